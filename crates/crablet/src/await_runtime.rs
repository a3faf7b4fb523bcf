//! The container runtime: who to ask, and waiting until it answers.

use std::time::Duration;

use crablet_config::KubeletConfiguration;
use crablet_cri::client::Settings;
use crablet_cri::{Client, Error, Runtime as _};
use crablet_cri_api::Version;
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
