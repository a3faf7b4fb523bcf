//! What the runtime knows of a pod.

use std::cmp::Reverse;
use std::ops::Deref;

use crablet_api::core;
use crablet_cri_api::{ContainerState, ContainerStatus, SandboxState, SandboxStatus};

use crate::hash;
use crate::labels::{CONTAINER_HASH, CONTAINER_RESTART_COUNT};

/// A container, and the sandbox it lives in. CRI tells the sandbox in its list of containers alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Container {
    /// The sandbox it lives in.
    pub sandbox_id: String,
    /// What the runtime says of it. Its message has its termination message already: see
    /// [`status::termination_message`](crate::status::termination_message).
    pub status: ContainerStatus,
    /// Whether the agent stopped it, or is about to, to start it anew: then it is not over, whatever its restart policy
    /// makes of how it ended. The runtime does not know, so that the worker says it.
    pub is_replaced: bool,
}

impl Deref for Container {
    type Target = ContainerStatus;

    fn deref(&self) -> &ContainerStatus {
        &self.status
    }
}

impl Container {
    /// How often it was started before.
    pub fn restart_count(&self) -> u32 {
        self.annotations
            .get(CONTAINER_RESTART_COUNT)
            .and_then(|count| count.parse().ok())
            .unwrap_or(self.attempt)
    }

    /// Whether its pod asks for another one by now. A container that does not say what it was made from is not
    /// ours to judge.
    pub fn differs_from(&self, wanted: &core::Container) -> bool {
        self.annotations
            .get(CONTAINER_HASH)
            .is_some_and(|made_from| *made_from != hash::container_hash(wanted))
    }

    /// Whether it may be running: it runs, or the runtime does not know.
    pub fn may_live(&self) -> bool {
        match self.state {
            ContainerState::Running | ContainerState::Unknown => true,
            ContainerState::Created | ContainerState::Exited => false,
        }
    }

    /// Whether it ended and said that all went well.
    pub fn succeeded(&self) -> bool {
        self.state == ContainerState::Exited && self.exit_code == 0
    }
}

/// What the runtime knows of a pod, the newest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Pod {
    sandboxes: Vec<SandboxStatus>,
    containers: Vec<Container>,
}

impl Pod {
    /// Brings what was read into order.
    pub fn new(mut sandboxes: Vec<SandboxStatus>, mut containers: Vec<Container>) -> Pod {
        sandboxes.sort_by_key(|sandbox| Reverse((sandbox.created_at, sandbox.metadata.attempt)));
        containers.sort_by_key(|container| Reverse((container.created_at, container.attempt)));
        // It is kept for as long as the pod runs.
        sandboxes.shrink_to_fit();
        containers.shrink_to_fit();
        Pod { sandboxes, containers }
    }

    /// Its sandboxes, the newest first.
    pub fn sandboxes(&self) -> &[SandboxStatus] {
        &self.sandboxes
    }

    /// Its containers, the newest first.
    pub fn containers(&self) -> &[Container] {
        &self.containers
    }

    /// Its containers, to be written to. Their order stays.
    pub fn containers_mut(&mut self) -> &mut [Container] {
        &mut self.containers
    }

    /// Takes in that the runtime says it has stopped a sandbox.
    pub fn note_stopped_sandbox(&mut self, id: &str) {
        if let Some(sandbox) = self.sandboxes.iter_mut().find(|sandbox| sandbox.id == id) {
            sandbox.state = SandboxState::NotReady;
        }
    }

    /// The containers of a name, the newest first.
    pub fn named<'p>(&'p self, name: &'p str) -> impl Iterator<Item = &'p Container> {
        self.containers.iter().filter(move |container| container.name == name)
    }

    /// The newest container of a name.
    pub fn latest<'p>(&'p self, name: &'p str) -> Option<&'p Container> {
        self.named(name).next()
    }

    /// The newest sandbox, where it is ready. Addresses come from it, and what runs in it is what runs now.
    pub fn active_sandbox(&self) -> Option<&SandboxStatus> {
        self.sandboxes.first().filter(|sandbox| sandbox.state == SandboxState::Ready)
    }

    /// Whether any sandbox is ready.
    pub fn has_ready_sandbox(&self) -> bool {
        self.sandboxes.iter().any(|sandbox| sandbox.state == SandboxState::Ready)
    }

    /// Whether a container was ever made for any of the pod's regular containers, and the runtime still knows: then
    /// all init containers had done their work.
    pub fn has_any_regular_container(&self, spec: &core::PodSpec) -> bool {
        spec.containers.iter().any(|container| {
            self.latest(&container.name).is_some_and(|latest| latest.state != ContainerState::Unknown)
        })
    }

    /// Whether one of the pod's regular containers was made in the active sandbox: then all init containers had done
    /// their work in it.
    pub fn has_regular_container_in_active_sandbox(&self, spec: &core::PodSpec) -> bool {
        self.active_sandbox().is_some_and(|sandbox| {
            self.containers.iter().any(|container| {
                container.sandbox_id == sandbox.id
                    && spec.containers.iter().any(|wanted| *wanted.name == *container.name)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Described, container, sandbox};

    #[test]
    fn the_newest_comes_first_whatever_the_runtime_lists_first() {
        let pod = Pod::new(
            vec![sandbox(0, false), sandbox(2, true), sandbox(1, false)],
            vec![container("a", 0).exited(1), container("a", 1).running(), container("b", 0).running()],
        );
        assert_eq!(pod.active_sandbox().map(|sandbox| sandbox.metadata.attempt), Some(2));
        assert_eq!(pod.latest("a").map(|container| container.attempt), Some(1));
        assert_eq!(pod.named("a").count(), 2);
        assert!(pod.latest("c").is_none());
    }

    #[test]
    fn the_newest_sandbox_is_not_active_when_it_is_not_ready_even_if_an_older_one_is() {
        let pod = Pod::new(vec![sandbox(0, true), sandbox(1, false)], vec![]);
        assert_eq!((pod.active_sandbox(), pod.has_ready_sandbox()), (None, true));
    }

    #[test]
    fn the_restart_count_is_that_of_the_annotation_where_there_is_one() {
        let counted = container("a", 3).annotation(CONTAINER_RESTART_COUNT, "7");
        assert_eq!((counted.restart_count(), container("a", 3).restart_count()), (7, 3));
    }
}
