//! A look at what the runtime knows of one pod.

use std::collections::BTreeMap;

use crablet_core::{labels, observed};
use crablet_cri::{Error, Runtime};
use crablet_cri_api::{
    Container, ContainerFilter, ContainerState, ContainerStatus, Sandbox, SandboxFilter, SandboxState,
    SandboxStatus,
};
use futures_util::future::{try_join, try_join_all};

/// Reads what the runtime knows of a pod: two lists, and a closer look at each thing in them that can have changed
/// since `known`. What ended does not change any more.
///
/// Labels, and a sandbox's annotations, are left out: nobody decides by them, and they are most of what would be kept.
pub async fn observe(
    runtime: &dyn Runtime,
    uid: &str,
    known: &observed::Pod,
) -> Result<observed::Pod, Error> {
    let of_pod = BTreeMap::from([(labels::POD_UID.to_owned(), uid.to_owned())]);
    let sandboxes =
        runtime.list_sandboxes(SandboxFilter { labels: of_pod.clone(), ..SandboxFilter::default() });
    let containers =
        runtime.list_containers(ContainerFilter { labels: of_pod, ..ContainerFilter::default() });
    let (sandboxes, containers) = try_join(sandboxes, containers).await?;
    let sandboxes = try_join_all(sandboxes.iter().map(|sandbox| look_at_sandbox(runtime, sandbox, known)));
    let containers =
        try_join_all(containers.iter().map(|container| look_at_container(runtime, container, known)));
    let (sandboxes, containers) = try_join(sandboxes, containers).await?;
    Ok(observed::Pod::new(
        sandboxes.into_iter().flatten().collect(),
        containers.into_iter().flatten().collect(),
    ))
}

async fn look_at_sandbox(
    runtime: &dyn Runtime,
    listed: &Sandbox,
    known: &observed::Pod,
) -> Result<Option<SandboxStatus>, Error> {
    let ended = |status: &&SandboxStatus| status.id == listed.id && status.state == SandboxState::NotReady;
    match known.sandboxes().iter().find(ended) {
        Some(known) if listed.state == SandboxState::NotReady => Ok(Some(known.clone())),
        Some(_) | None => {
            let status = unless_gone(runtime.sandbox_status(&listed.id).await)?;
            Ok(status.map(|status| SandboxStatus {
                labels: BTreeMap::new(),
                annotations: BTreeMap::new(),
                ..status
            }))
        }
    }
}

async fn look_at_container(
    runtime: &dyn Runtime,
    listed: &Container,
    known: &observed::Pod,
) -> Result<Option<observed::Container>, Error> {
    let ended = |container: &&observed::Container| {
        container.id == listed.id && container.state == ContainerState::Exited
    };
    match known.containers().iter().find(ended) {
        Some(known) if listed.state == ContainerState::Exited => Ok(Some(known.clone())),
        Some(_) | None => {
            let status = unless_gone(runtime.container_status(&listed.id).await)?;
            let sandbox_id = listed.sandbox_id.clone();
            Ok(status.map(|status| observed::Container {
                sandbox_id,
                status: ContainerStatus { labels: BTreeMap::new(), ..status },
                is_replaced: false,
            }))
        }
    }
}

/// What was removed between the list and the closer look is not there.
fn unless_gone<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Err(error) if error.is_not_found() => Ok(None),
        answer => answer.map(Some),
    }
}
