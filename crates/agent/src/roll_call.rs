//! What the runtime has when an agent begins: who runs, before anybody is decided about.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crablet_core::labels;
use crablet_cri::Error;
use crablet_cri_api::{Container, ContainerFilter, ContainerState, Sandbox, SandboxFilter, SandboxState};
use tracing::warn;

use crate::admission::Remains;
use crate::shared::Shared;
use crate::sources::SourcesReady;

/// How long pods of which nothing lives wait for all sources to be heard: what runs is taken over first, wherever it comes
/// from. No longer: a static pod may be the very API server that is waited for.
const LONGEST_WAIT_FOR_SOURCES: Duration = Duration::from_secs(2);
/// The wait after a look that failed.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// Has admission take over what lives, and then decide about the rest.
pub(crate) async fn begin_admission(node: Arc<Shared>, mut ready: SourcesReady) {
    let found = loop {
        match look(&node).await {
            Ok(found) => break found,
            Err(error) => {
                warn!(%error, "Cannot tell what runs already; no pod is started before");
                tokio::time::sleep(BETWEEN_LOOKS).await;
            }
        }
    };
    node.admission.take_over(found);
    // Whether they were heard or not.
    let _ = tokio::time::timeout(LONGEST_WAIT_FOR_SOURCES, ready.ready()).await;
    node.admission.open();
}

async fn look(node: &Shared) -> Result<BTreeMap<String, Remains>, Error> {
    let sandboxes = node.runtime.list_sandboxes(SandboxFilter::default()).await?;
    let containers = node.runtime.list_containers(ContainerFilter::default()).await?;
    Ok(remains(&sandboxes, &containers))
}

fn remains(sandboxes: &[Sandbox], containers: &[Container]) -> BTreeMap<String, Remains> {
    let kind = |lives: bool| if lives { Remains::Live } else { Remains::Dead };
    let of_sandboxes = sandboxes.iter().map(|one| (&one.labels, kind(one.state == SandboxState::Ready)));
    let of_containers = containers.iter().map(|one| (&one.labels, kind(one.state != ContainerState::Exited)));
    let mut found = BTreeMap::new();
    for (labels, remains) in of_sandboxes.chain(of_containers) {
        let Some(uid) = labels.get(labels::POD_UID) else { continue };
        let known = found.entry(uid.clone()).or_insert(remains);
        *known = remains.max(*known);
    }
    found
}
