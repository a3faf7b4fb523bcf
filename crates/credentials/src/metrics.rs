//! What is counted of credentials, under upstream's names.

use std::sync::Arc;
use std::time::Duration;

use crablet_metrics::{Counter, DEFAULT_BUCKETS, Family, Histogram, RegisterError, Registry};

use crate::exec::ProviderError;

/// What became of the question whether a pod may use an image that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// It is nobody's in particular.
    PolicyAllows,
    /// Who asks was seen to have access.
    RecordFound,
    MustAuthenticate,
    /// What was written down, or the pod's credentials, cannot be read.
    Failed,
}

impl Check {
    const ALL: [Check; 4] = [Check::PolicyAllows, Check::RecordFound, Check::MustAuthenticate, Check::Failed];

    const fn word(self) -> &'static str {
        match self {
            Check::PolicyAllows => "credentialPolicyAllowed",
            Check::RecordFound => "credentialRecordFound",
            Check::MustAuthenticate => "mustAuthenticate",
            Check::Failed => "error",
        }
    }

    pub(crate) const fn may_use(self) -> bool {
        match self {
            Check::PolicyAllows | Check::RecordFound => true,
            Check::MustAuthenticate | Check::Failed => false,
        }
    }
}

/// How many checks there were, by what became of them.
pub(crate) struct Checks([Counter; 4]);

impl Checks {
    pub(crate) fn register(registry: &Registry) -> Result<Checks, RegisterError> {
        let checks = registry.counter_family(
            "kubelet_imagemanager_image_mustpull_checks_total",
            "[ALPHA] Counter for how many times kubelet checked whether credentials need to be re-verified to access an image",
            ["result"],
        )?;
        Ok(Checks(Check::ALL.map(|check| checks.with([check.word()]))))
    }

    pub(crate) fn count(&self, check: Check) {
        self.0[check as usize].increment();
    }
}

/// Has it told how much is written down of images: the pulls that are under way, and who pulled what.
pub(crate) fn register_records(
    registry: &Registry,
    count: impl Fn() -> (usize, usize) + Send + Sync + 'static,
) -> Result<(), RegisterError> {
    let count = Arc::new(count);
    let pulling = Arc::clone(&count);
    registry.gauge_fn(
        "kubelet_imagemanager_ondisk_pullintents",
        "[ALPHA] Number of ImagePullIntents stored on disk.",
        move || pulling().0 as f64,
    )?;
    registry.gauge_fn(
        "kubelet_imagemanager_ondisk_pulledrecords",
        "[ALPHA] Number of ImagePulledRecords stored on disk.",
        move || count().1 as f64,
    )
}

/// How long credential providers take, and how often they fail.
#[derive(Clone)]
pub(crate) struct Plugins {
    durations: Family<Histogram, 1>,
    errors: Family<Counter, 1>,
}

impl Plugins {
    pub(crate) fn register(registry: &Registry) -> Result<Plugins, RegisterError> {
        Ok(Plugins {
            durations: registry.histogram_family(
                "kubelet_credential_provider_plugin_duration",
                "[ALPHA] Duration of execution in seconds for credential provider plugin",
                ["plugin_name"],
                &DEFAULT_BUCKETS,
            )?,
            errors: registry.counter_family(
                "kubelet_credential_provider_plugin_errors_total",
                "[ALPHA] Number of errors from credential provider plugin",
                ["plugin_name"],
            )?,
        })
    }

    /// A provider ran. As upstream, one that ends well and says what nobody understands is no error of the plugin.
    pub(crate) fn ran(&self, name: &str, took: Duration, error: Option<&ProviderError>) {
        self.durations.with([name]).observe(took.as_secs_f64());
        match error {
            Some(
                ProviderError::Start { .. }
                | ProviderError::Failed { .. }
                | ProviderError::Late { .. }
                | ProviderError::TooLong { .. },
            ) => self.errors.with([name]).increment(),
            Some(
                ProviderError::NoVersion { .. }
                | ProviderError::Version { .. }
                | ProviderError::Undecodable
                | ProviderError::NoToken(_)
                | ProviderError::TokenAsPassword
                | ProviderError::CacheKeyType(_),
            )
            | None => {}
        }
    }
}

/// Has it told which configuration the providers have.
pub(crate) fn register_config(registry: &Registry, hash: &str) -> Result<(), RegisterError> {
    let name = "kubelet_credential_provider_config_info";
    let help =
        "[ALPHA] Information about the last applied credential provider configuration with hash as label";
    registry.gauge_family(name, help, ["hash"])?.with([hash]).set(1.0);
    Ok(())
}
