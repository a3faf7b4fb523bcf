//! Who may pull and use which images, by flags and configuration.

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use crablet_agent::images::Access;
use crablet_api::Gate;
use crablet_config::Effective;
use crablet_credentials::{
    Credentials, LoadedProviders, NodeConfig, Providers, PullRecords, ServiceAccounts, VerificationPolicy,
    load_providers,
};
use crablet_host::checkpoint::DirectoryCheckpoints;
use crablet_host::clock::Clock;
use crablet_metrics::Registry;

use crate::exit::Failure;

/// The largest record of an image that is read.
const LARGEST_RECORD: usize = 1 << 20;

/// The credential providers that the flags name, if any.
pub(crate) fn providers(effective: &Effective) -> Result<Option<LoadedProviders>, Failure> {
    let flags = &effective.flags;
    let (config, programs) =
        (&*flags.image_credential_provider_config, &*flags.image_credential_provider_bin_dir);
    if config.is_empty() && programs.is_empty() {
        return Ok(None);
    }
    let tokens = effective.features.enabled(Gate::KubeletServiceAccountTokenForCredentialProviders);
    load_providers(Path::new(config), Path::new(programs), tokens).map(Some).map_err(Failure::Configuration)
}

/// Everything that says who may pull and use which images.
pub(crate) async fn access(
    effective: &Effective,
    providers: Option<LoadedProviders>,
    clock: &Clock,
    accounts: Option<Arc<dyn ServiceAccounts>>,
    metrics: &Registry,
) -> anyhow::Result<Access> {
    let root = Path::new(&*effective.flags.root_dir);
    let home = std::env::var_os("HOME");
    let node = NodeConfig::new(root, home.as_deref().map(Path::new));
    let providers = match providers {
        Some(LoadedProviders { configs, hash }) => Providers::new(configs).counted_in(metrics, &hash)?,
        None => Providers::default(),
    };
    let credentials = Arc::new(Credentials::new(node, providers.with_service_accounts(accounts)));
    let records = match effective.features.enabled(Gate::KubeletEnsureSecretPulledImages) {
        true => Some(Arc::new(records(effective, root, clock).await?.counted_in(metrics)?)),
        false => None,
    };
    Ok(Access { credentials, records })
}

async fn records(effective: &Effective, root: &Path, clock: &Clock) -> anyhow::Result<PullRecords> {
    let configuration = &effective.configuration;
    let policy = VerificationPolicy::new(
        configuration.image_pull_credentials_verification_policy.as_ref(),
        configuration.preloaded_images_verification_allowlist.iter().map(ToString::to_string),
    );
    let store = |name: &str| {
        let directory = root.join("image_manager").join(name);
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .with_context(|| format!("cannot make the directory {}", directory.display()))?;
        anyhow::Ok(Arc::new(DirectoryCheckpoints::open(&directory, LARGEST_RECORD)?))
    };
    let records = PullRecords::open(policy, clock.clone(), store("pulling")?, store("pulled")?).await;
    records.context("cannot read who pulled which images")
}
