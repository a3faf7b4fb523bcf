//! Resources that change while a pod runs: granted, then given to its containers.

use std::sync::Arc;

use crablet_api::core::{Container, Pod};
use crablet_core::plan::Update;
use crablet_core::qos::is_static;
use crablet_core::resize::{self, Actuated};
use crablet_core::translate::container_resources;
use crablet_cri::Error;
use crablet_cri_api::{ContainerState, v1};
use crablet_host::cgroup::{CpuBandwidth, Limits};
use tokio::time::Instant;

use crate::metrics::CgroupChange;
use crate::story::State;
use crate::worker::retry::What;
use crate::worker::runtime_config::PodCgroupError;
use crate::worker::{Next, Worker};

/// What the node granted of what a pod asks for, and what was given of it.
pub(super) struct Allocation {
    /// The pod with the resources that the node granted: what containers get. Shared with what is wanted where it is no
    /// other.
    pub(super) pod: Arc<Pod>,
    /// What containers were given last. Of a static pod nothing: it does not change.
    pub(super) actuated: Actuated,
    /// Whether the pod's cgroup is known to have what is allocated.
    pub(super) cgroup_fits: bool,
}

impl Allocation {
    /// All that the pod asks for, and nothing given yet.
    pub(super) fn new(pod: &Arc<Pod>) -> Allocation {
        Allocation { pod: Arc::clone(pod), actuated: Actuated::default(), cgroup_fits: is_static(pod) }
    }
}

/// Why a pod has not got its new resources.
#[derive(Debug, thiserror::Error)]
enum ResizeError {
    #[error("its cgroup: {0}")]
    Cgroup(PodCgroupError),
    #[error("container {name}: {source}")]
    Container { name: String, source: Error },
}

impl Worker {
    /// Has the node grant what the pod asks for by now. So far every change is granted; whoever decides on that leaves
    /// the allocation as it is where one is not.
    pub(super) fn allocate(&mut self) {
        if !is_static(&self.pod) {
            self.know_what_was_given();
            if !Arc::ptr_eq(&self.allocation.pod, &self.pod) {
                self.node.admission.regrant(&self.pod);
                self.allocation.cgroup_fits = false;
            }
        }
        self.allocation.pod = Arc::clone(&self.pod);
    }

    /// A container whose resources no agent wrote down has what was allocated until now.
    fn know_what_was_given(&mut self) {
        let containers = self.observed.containers();
        let lives = |id: &str| {
            containers.iter().any(|container| container.id == id && container.state != ContainerState::Exited)
        };
        self.allocation.actuated.retain(lives);
        for run in containers.iter().filter(|run| run.state == ContainerState::Running) {
            let container = self.allocation.pod.spec.find_container(&run.name);
            if let Some(container) = container.filter(|_| self.allocation.actuated.get(&run.id).is_none()) {
                self.allocation.actuated.set(&run.id, container.resources.clone());
            }
        }
    }

    /// A container was made from what is allocated to it.
    pub(super) fn note_given(&mut self, id: &str, container: &Container) {
        if !is_static(&self.pod) {
            self.allocation.actuated.set(id, container.resources.clone());
        }
    }

    /// A container of the pod, with the resources that are allocated to it.
    pub(super) fn with_allocated(&self, container: &Container) -> Container {
        let resources = resize::allocated(&self.allocation.pod, container).clone();
        Container { resources, ..container.clone() }
    }

    /// Sees to it that the pod's cgroup has what is allocated by now, before a container is started in it.
    pub(super) async fn fit_cgroup(&mut self) -> Result<(), PodCgroupError> {
        if !self.allocation.cgroup_fits {
            self.make_cgroup().await?;
            self.allocation.cgroup_fits = true;
        }
        Ok(())
    }

    /// Gives containers other resources. What fails is tried again a while later: the order matters.
    pub(super) async fn resize(&mut self, updates: &[Update]) -> Next {
        if let Some(until) = self.retries.held(&What::Resize) {
            return Next::Wait(Some(until));
        }
        let began = Instant::now();
        let resized = self.try_to_resize(updates).await;
        self.node.metrics.resizes.done(resized.is_ok(), began.elapsed());
        match resized {
            Ok(()) => {
                self.retries.worked(&What::Resize);
                self.story.step("resize", began.elapsed(), format_args!("gave containers other resources"));
                Next::Again
            }
            Err(error) => {
                self.story.failed("resize", began.elapsed(), format_args!("{error}"));
                self.story.headline(State::Blocked, format_args!("it cannot be resized: {error}"));
                Next::Wait(Some(self.retries.failed(What::Resize)))
            }
        }
    }

    /// The pod's cgroup grows before its containers do and shrinks after them: they always fit into it.
    async fn try_to_resize(&mut self, updates: &[Update]) -> Result<(), ResizeError> {
        self.allocation.cgroup_fits = false;
        self.grow_cgroup().await.map_err(ResizeError::Cgroup)?;
        for update in updates {
            let Some(container) = self.pod.spec.find_container(&update.name) else { continue };
            let container = Container { resources: update.resources.clone(), ..container.clone() };
            let linux = container_resources(&self.pod, &container, &self.node.facts.now().translation, false);
            let request = v1::UpdateContainerResourcesRequest {
                container_id: update.id.clone(),
                linux: Some(linux),
                ..v1::UpdateContainerResourcesRequest::default()
            };
            let node = Arc::clone(&self.node);
            let result = self.see_through(node.runtime.update_container_resources(request)).await;
            result.map_err(|source| ResizeError::Container { name: update.name.to_string(), source })?;
            self.allocation.actuated.set(&update.id, container.resources);
        }
        // Nobody else remembers: the runtime rounds, and does not know how much memory was asked for.
        self.checkpoint_now().await;
        self.fit_cgroup().await.map_err(ResizeError::Cgroup)
    }

    async fn grow_cgroup(&mut self) -> Result<(), PodCgroupError> {
        let (cgroup, wanted) = (self.cgroup()?, self.cgroup_limits());
        let node = Arc::clone(&self.node);
        let grow = async {
            let current = node.host.cgroups.pod_limits(&cgroup).await?;
            let begun = Instant::now();
            let updated = node.host.cgroups.update_pod(&cgroup, &larger_of(&current, &wanted)).await;
            node.metrics.changed_cgroup(CgroupChange::Update, begun.elapsed());
            updated
        };
        Ok(self.see_through(grow).await?)
    }
}

/// What can be resized, each as large as in either. What has no limit yet gets one afterwards.
fn larger_of(current: &Limits, wanted: &Limits) -> Limits {
    let cpu_bandwidth = match (current.cpu_bandwidth, wanted.cpu_bandwidth) {
        (Some(current), Some(wanted)) => {
            Some(CpuBandwidth { quota: current.quota.max(wanted.quota), period: wanted.period })
        }
        (Some(_) | None, _) => None,
    };
    let memory = current.memory.zip(wanted.memory).map(|(current, wanted)| current.max(wanted));
    Limits {
        cpu_shares: current.cpu_shares.max(wanted.cpu_shares),
        cpu_bandwidth,
        memory,
        ..Limits::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crablet_host::cgroup::Bound;

    #[test]
    fn a_cgroup_grows_where_more_is_wanted_and_shrinks_nowhere() {
        let limits = |shares: u64, quota: Bound, memory: Option<Bound>| Limits {
            cpu_shares: Some(shares),
            cpu_bandwidth: Some(CpuBandwidth { quota, period: 100_000 }),
            memory,
            ..Limits::default()
        };
        let (small, large) = (Bound::At(1), Bound::At(2));
        let current = limits(50, large, Some(small));
        assert_eq!(larger_of(&current, &limits(80, small, Some(large))), limits(80, large, Some(large)));
        assert_eq!(
            larger_of(&current, &limits(20, Bound::Unlimited, None)),
            limits(50, Bound::Unlimited, None)
        );
    }
}
