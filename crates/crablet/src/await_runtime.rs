//! The container runtime: who to ask, and waiting until it answers.

use std::time::Duration;

use anyhow::Context as _;
use crablet_config::{CgroupDriver, KubeletConfiguration};
use crablet_cri::client::Settings;
use crablet_cri::{Client, Error, Runtime as _};
use crablet_cri_api as cri_api;
use crablet_cri_api::Version;
use crablet_metrics::{RegisterError, Registry};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::service_manager;

/// The longest pause between two tries: how late a runtime that came up is noticed, at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How often a wait that goes on is mentioned in the log.
const MENTION_EVERY: Duration = Duration::from_secs(30);

/// A client of the runtime and image service that a configuration names.
pub(crate) fn client(configuration: &KubeletConfiguration) -> anyhow::Result<Client> {
    let settings =
        Settings { timeout: configuration.runtime_request_timeout.to_std(), ..Settings::default() };
    let images = Some(&*configuration.image_service_endpoint).filter(|endpoint| !endpoint.is_empty());
    Ok(Client::new(&configuration.container_runtime_endpoint, images, settings)?)
}

/// Waits until the runtime says who it is. What is awaited and why it is not there yet is told each time that it is
/// news.
pub(crate) async fn await_runtime(client: &Client, endpoint: &str, tell: impl Fn(&str)) -> Version {
    let mut pause = Duration::from_millis(50);
    let mut mentioned: Option<(String, Instant)> = None;
    loop {
        let reason = match client.version().await {
            Ok(version) => {
                let (runtime, version_text) = (&version.name, &version.version);
                info!(endpoint, %runtime, version = %version_text, "Container runtime is there");
                return version;
            }
            // Where it should be is said anyhow.
            Err(Error::Unreachable { reason, .. }) => reason,
            Err(error) => error.to_string(),
        };
        let is_news =
            mentioned.as_ref().is_none_or(|(last, when)| *last != reason || when.elapsed() >= MENTION_EVERY);
        if is_news {
            warn!(endpoint, reason, "Waiting for the container runtime");
            let awaited = format!("the container runtime at {endpoint}: {reason}");
            service_manager::waiting(&format!("waiting for {awaited}"));
            tell(&awaited);
            mentioned = Some((reason, Instant::now()));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// How often a runtime is asked who makes cgroups, and how long it is left alone in between: it may have just started.
const DRIVER_TRIES: u32 = 3;
const DRIVER_PAUSE: Duration = Duration::from_secs(2);

/// Who makes the cgroups of containers. What the runtime says counts, and what is configured where it does not say.
pub(crate) async fn cgroup_driver(
    client: &Client,
    configured: &CgroupDriver,
    metrics: &Registry,
) -> anyhow::Result<CgroupDriver> {
    let driver = match ask_for_driver(client, metrics).await? {
        Some(cri_api::CgroupDriver::Cgroupfs) => CgroupDriver::Cgroupfs,
        Some(cri_api::CgroupDriver::Systemd) => CgroupDriver::Systemd,
        None => return Ok(configured.clone()),
    };
    if *configured != driver {
        info!(%driver, %configured, "Using the cgroup driver of the container runtime, and not the configured one");
    }
    Ok(driver)
}

/// The version of Kubernetes that does without what is configured: runtimes have to say by then who makes cgroups.
const LOSES_SUPPORT: &str = "1.37.0";

/// Has it told that the runtime is too old for the Kubernetes to come.
fn loses_support(metrics: &Registry) -> Result<(), RegisterError> {
    let name = "kubelet_cri_losing_support";
    let help = "[ALPHA] the Kubernetes version that the currently running CRI implementation will lose support on if not upgraded.";
    metrics.gauge_family(name, help, ["version"])?.with([LOSES_SUPPORT]).set(1.0);
    Ok(())
}

/// What the runtime says, if it says anything: older ones do not.
async fn ask_for_driver(
    client: &Client,
    metrics: &Registry,
) -> anyhow::Result<Option<cri_api::CgroupDriver>> {
    let mut tries = 1;
    loop {
        match client.cgroup_driver().await {
            Ok(driver) => return Ok(Some(driver)),
            Err(Error::Unsupported { .. }) => {
                loses_support(metrics)?;
                return Ok(None);
            }
            // An answer without the part for Linux says nothing.
            Err(Error::Malformed { .. }) => return Ok(None),
            Err(error) if tries == DRIVER_TRIES => {
                return Err(error).context("cannot tell which cgroup driver the container runtime has");
            }
            Err(error) => {
                warn!(%error, "Cannot tell which cgroup driver the container runtime has; asking again");
                tries += 1;
                tokio::time::sleep(DRIVER_PAUSE).await;
            }
        }
    }
}
