//! Giving containers what was granted, and the pod as a whole.

use std::sync::Arc;

use crablet_api::core::Container;
use crablet_core::plan::Update;
use crablet_core::resize::{PodResourceInfo, message};
use crablet_core::translate::{container_resources, go_quote, pod_description};
use crablet_cri::Error;
use crablet_cri_api::v1;
use crablet_host::cgroup::{Bound, CgroupError, Limits};
use tokio::time::Instant;

use super::limits::larger_of;
use super::{CgroupState, NotWritten};
use crate::metrics::CgroupChange;
use crate::recorder::reason;
use crate::worker::Worker;
use crate::worker::retry::What;
use crate::worker::runtime_config::PodCgroupError;

/// Why a pod has not got its new resources: in upstream's words, which its condition and an event carry.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResizeError {
    #[error("its cgroup: {0}")]
    Cgroup(#[from] PodCgroupError),
    #[error("{}", error.in_go_words())]
    Container { name: String, error: Error },
    #[error(transparent)]
    Disk(#[from] NotWritten),
    #[error(
        "failed to notify runtime for UpdatePodSandboxResources (resource={resource}); resize rejected: \
         updatePodSandboxResources failed for sanboxID {}: {}",
        go_quote(id),
        error.in_go_words()
    )]
    Sandbox { resource: &'static str, id: String, error: Error },
    #[error("cannot decrease memory limits: {0}")]
    MemoryInUse(String),
    #[error("unable to read memory usage for pod {}", go_quote(pod))]
    MemoryUsage { pod: String, source: MemoryUsageError },
}

/// Why it is not known how much memory something uses.
#[derive(Debug, thiserror::Error)]
pub(super) enum MemoryUsageError {
    #[error(transparent)]
    Pod(#[from] CgroupError),
    #[error("container {name}: {source}")]
    Container { name: String, source: Error },
}

impl ResizeError {
    /// With what the condition does not say.
    fn in_full(&self) -> String {
        match self {
            ResizeError::Container { name, error } => format!("container {name}: {error}"),
            ResizeError::MemoryUsage { source, .. } => format!("{self}: {source}"),
            ResizeError::Cgroup(_)
            | ResizeError::Disk(_)
            | ResizeError::Sandbox { .. }
            | ResizeError::MemoryInUse(_) => self.to_string(),
        }
    }
}

impl Worker {
    /// Gives containers other resources, and the pod as a whole. What fails is tried again a while later, and the answer
    /// is when: the order matters.
    pub(in crate::worker) async fn resize(&mut self, updates: &[Update]) -> Option<Instant> {
        if let Some(until) = self.retries.held(&What::Resize) {
            return Some(until);
        }
        let began = Instant::now();
        let resized = self.try_to_resize(updates).await;
        self.node.metrics.resizes.done(resized.is_ok(), began.elapsed());
        match resized {
            Ok(()) => {
                self.retries.worked(&What::Resize);
                self.story.step("resize", began.elapsed(), format_args!("gave containers other resources"));
                None
            }
            Err(error) => {
                self.story.failed("resize", began.elapsed(), format_args!("{}", error.in_full()));
                let (generation, now, error) = (self.pod.metadata.generation, self.time(), error.to_string());
                if let Some(generation) = self.allocation.conditions.fail(&error, generation, now) {
                    let message = message::failed(&self.allocation.pod, generation, &error);
                    self.warn_pod(reason::RESIZE_ERROR, &message);
                }
                self.show(self.make_status(false));
                Some(self.retries.failed(What::Resize))
            }
        }
    }

    /// The pod's cgroup grows before its containers do and shrinks after them: they always fit into it. The runtime is told
    /// just before either, and may refuse.
    async fn try_to_resize(&mut self, updates: &[Update]) -> Result<(), ResizeError> {
        self.allocation.cgroup = CgroupState::Behind;
        self.keep_cgroup().await?;
        let current = self.current_limits().await?;
        self.check_memory(updates, &current).await?;
        let larger = larger_of(&current, &self.cgroup_limits());
        let is_told = self.tell_larger(&current, &larger).await?;
        let grown = self.begin_resize(updates, &larger).await;
        if grown.is_err() && is_told {
            self.tell_again(&current).await;
        }
        grown?;
        for update in updates {
            let Some(container) = self.pod.spec.find_container(&update.name) else { continue };
            let container = Container { resources: update.resources.clone(), ..container.clone() };
            let facts = self.node.facts.now();
            let linux = container_resources(&self.allocation.pod, &container, &facts.translation, false);
            let request = v1::UpdateContainerResourcesRequest {
                container_id: update.id.clone(),
                linux: Some(linux),
                ..v1::UpdateContainerResourcesRequest::default()
            };
            let (node, features) = (Arc::clone(&self.node), self.features());
            // A call that fails may have worked.
            self.allocation.give(&features, |given| {
                let known = given.get(&update.name).cloned().unwrap_or_default();
                given.set(&update.name, update.under_way(known));
            });
            let result = self.see_through(node.runtime.update_container_resources(request)).await;
            result.map_err(|error| ResizeError::Container { name: update.name.to_string(), error })?;
            self.allocation.give(&features, |given| given.set(&update.name, container.resources));
        }
        let is_told = self.tell_wanted(&larger, is_told).await?;
        let made = self.make_cgroup().await;
        if made.is_err() && is_told {
            self.tell_again(&larger).await;
        }
        made?;
        self.allocation.sandbox_is_behind = false;
        let features = self.features();
        self.allocation.give(&features, PodResourceInfo::end_change);
        // Nobody else remembers: the runtime rounds, and does not know how much memory was asked for.
        self.note_actuated();
        Ok(())
    }

    /// Writes down what is being changed, and has the pod's cgroup grow. Nothing has changed before.
    async fn begin_resize(&mut self, updates: &[Update], larger: &Limits) -> Result<(), ResizeError> {
        self.note_under_way(updates).await?;
        Ok(self.write_larger(larger).await?)
    }

    /// Memory that is in use cannot be taken away: version 1 of cgroups refuses, and version 2 has a process killed.
    async fn check_memory(&mut self, updates: &[Update], current: &Limits) -> Result<(), ResizeError> {
        let mut refused = Vec::new();
        if let Some((wanted, used)) = self.too_little_for_pod(current).await? {
            refused
                .push(format!("attempting to set pod memory limit ({wanted}) below current usage ({used})"));
        }
        for update in updates {
            let Some(wanted) = update.less_memory.map(i64::unsigned_abs) else { continue };
            let node = Arc::clone(&self.node);
            let used = self.see_through(node.runtime.container_memory(&update.id)).await;
            let name = update.name.to_string();
            let used = used
                .map_err(|source| self.memory_usage_unknown(MemoryUsageError::Container { name, source }))?;
            refused.extend(too_little(&update.name, wanted, used));
        }
        match refused.as_slice() {
            [] => Ok(()),
            [one] => Err(ResizeError::MemoryInUse(one.clone())),
            all => Err(ResizeError::MemoryInUse(format!("[{}]", all.join(", ")))),
        }
    }

    /// Writes down that it is not known what is being changed, until all of it is: what is asked for may change back, and
    /// an agent that comes then would take it for what was given. It gives it again. The most that it may be counts.
    async fn note_under_way(&mut self, updates: &[Update]) -> Result<(), ResizeError> {
        let features = self.features();
        let allocated = Arc::clone(&self.allocation.pod);
        self.allocation.give(&features, |given| given.begin_change(&allocated, &features));
        let mut known = self.allocation.actuated(&features).into_owned();
        for update in updates {
            let resources = known.get(&update.name).cloned().unwrap_or_default();
            known.set(&update.name, update.under_way(resources));
        }
        known.set_pod_level(None);
        self.node.allocations.set_actuated(&self.owner.uid, &known);
        Ok(self.write_allocations().await?)
    }

    /// What the pod's cgroup is to have of memory, and what is used, where that is more.
    async fn too_little_for_pod(&mut self, current: &Limits) -> Result<Option<(u64, u64)>, ResizeError> {
        let Some(Bound::At(wanted)) = self.cgroup_limits().memory else { return Ok(None) };
        let (cgroup, node) = (self.cgroup().map_err(PodCgroupError::from)?, Arc::clone(&self.node));
        let shrinks = match current.memory {
            Some(Bound::At(current)) => wanted < current,
            Some(Bound::Unlimited) | None => true,
        };
        if !shrinks {
            return Ok(None);
        }
        let used = self.see_through(node.host.cgroups.pod_memory_usage(&cgroup)).await;
        let used = used.map_err(|error| self.memory_usage_unknown(error.into()))?;
        Ok((used >= wanted).then_some((wanted, used)))
    }

    fn memory_usage_unknown(&self, source: MemoryUsageError) -> ResizeError {
        ResizeError::MemoryUsage { pod: pod_description(&self.pod), source }
    }

    async fn current_limits(&mut self) -> Result<Limits, PodCgroupError> {
        let (cgroup, node) = (self.cgroup()?, Arc::clone(&self.node));
        Ok(self.see_through(node.host.cgroups.pod_limits(&cgroup)).await?)
    }

    pub(super) async fn grow_cgroup(&mut self) -> Result<(), PodCgroupError> {
        let larger = larger_of(&self.current_limits().await?, &self.cgroup_limits());
        self.write_larger(&larger).await
    }

    async fn write_larger(&mut self, larger: &Limits) -> Result<(), PodCgroupError> {
        let (cgroup, node) = (self.cgroup()?, Arc::clone(&self.node));
        let write = async {
            let begun = Instant::now();
            let written = node.host.cgroups.update_pod(&cgroup, larger).await;
            node.metrics.changed_cgroup(CgroupChange::Update, begun.elapsed());
            written
        };
        Ok(self.see_through(write).await?)
    }
}

/// What speaks against so much memory for a container: it uses that, or it is not known how much it uses.
fn too_little(container: &str, wanted: u64, used: Option<u64>) -> Option<String> {
    let name = go_quote(container);
    match used {
        Some(used) if used >= wanted => Some(format!(
            "attempting to set container {name} memory limit ({wanted}) below current usage ({used})"
        )),
        Some(_) => None,
        None => Some(format!("missing container {name} memory usage")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_not_taken_from_a_container_that_uses_it_or_may() {
        let said = |used| too_little("c", 5, used).unwrap_or_default();
        let in_use = "attempting to set container \"c\" memory limit (5) below current usage (5)";
        assert_eq!([Some(4), Some(5), None].map(said), ["", in_use, "missing container \"c\" memory usage"]);
    }
}
