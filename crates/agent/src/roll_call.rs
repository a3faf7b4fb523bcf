//! What the runtime has when an agent begins: who runs, before anybody is decided about.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crablet_core::labels;
use crablet_cri::Error;
use crablet_cri_api::{Container, ContainerFilter, ContainerState, Sandbox, SandboxFilter, SandboxState};
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::admission::Remains;
use crate::shared::Shared;
use crate::sources::{CONFIG_SOURCE, SourceKind, SourcesReady};

/// How long pods that do not run yet wait until all sources were heard: what runs is taken over first, wherever it comes
/// from. No longer: a static pod may be the very API server that a source waits for.
const LONGEST_WAIT_FOR_SOURCES: Duration = Duration::from_secs(2);
/// How long they wait for the static pods that live: their sources are on the node, and a UID that another kubelet gave
/// is known when the runtime has told what its pod was made from.
const LONGEST_WAIT_FOR_STATIC_PODS: Duration = Duration::from_secs(10);
/// How long those behind a pod that ran wait for its worker to find out whether it is over.
const LONGEST_WAIT_FOR_WORKERS: Duration = Duration::from_secs(10);
/// The wait after a look that failed.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// Has admission take over what lives, and then decide about the rest.
pub(crate) async fn begin_admission(node: Arc<Shared>, mut ready: SourcesReady) {
    let (found, static_pods) = loop {
        match look(&node).await {
            Ok(found) => break found,
            Err(error) => {
                warn!(%error, "Cannot tell what runs already; no pod is started before");
                sleep(BETWEEN_LOOKS).await;
            }
        }
    };
    node.admission.take_over(found);
    // Whether they were heard or not.
    if timeout(LONGEST_WAIT_FOR_SOURCES, ready.ready()).await.is_err() {
        let claimed = async {
            loop {
                let changed = node.admission.changed();
                if static_pods.iter().all(|uid| node.admission.knows(uid)) {
                    return;
                }
                changed.await;
            }
        };
        tokio::select! {
            biased;
            () = ready.ready() => {}
            () = claimed => {}
            () = sleep(LONGEST_WAIT_FOR_STATIC_PODS - LONGEST_WAIT_FOR_SOURCES) => {}
        }
    }
    // What the runtime can do is known when it first tells how it is. Nothing starts before that anyway.
    let mut known = node.readiness.now();
    while node.facts.now().handlers.is_none() {
        node.readiness.other_than(&known).await;
        known = node.readiness.now();
    }
    node.admission.open();
    let wait_for_workers = async {
        sleep(LONGEST_WAIT_FOR_WORKERS).await;
        node.admission.wait_no_longer();
    };
    let hear_all = async {
        ready.ready().await;
        node.admission.all_heard();
    };
    tokio::join!(hear_all, wait_for_workers);
}

/// What there is of which pods, and which of those that live are static.
async fn look(node: &Shared) -> Result<(BTreeMap<String, Remains>, Vec<String>), Error> {
    let sandboxes = node.runtime.list_sandboxes(SandboxFilter::default()).await?;
    let containers = node.runtime.list_containers(ContainerFilter::default()).await?;
    let is_static = |sandbox: &&Sandbox| {
        let source = sandbox.annotations.get(CONFIG_SOURCE);
        sandbox.state == SandboxState::Ready && source.is_some_and(|word| word != SourceKind::Api.as_str())
    };
    let static_pods = sandboxes.iter().filter(is_static).map(|sandbox| sandbox.metadata.uid.clone());
    Ok((remains(&sandboxes, &containers), static_pods.collect()))
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
