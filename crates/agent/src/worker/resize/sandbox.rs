//! What the runtime is told of what a pod as a whole has, which others go by: a plugin of it, or a machine of the pod's own.

use std::sync::Arc;

use crablet_core::pod_cgroup::PodResources;
use crablet_core::resize::sandbox;
use crablet_core::translate::overhead_resources;
use crablet_cri_api::v1;
use crablet_host::cgroup::Limits;
use tokio::time::Instant;

use super::limits::{as_told, grows};
use super::steps::ResizeError;
use crate::worker::Worker;

impl Worker {
    /// Tells the runtime what the pod's cgroup has while its containers change, where that is more than it has now. Says
    /// whether it was told.
    pub(super) async fn tell_larger(
        &mut self,
        current: &Limits,
        larger: &Limits,
    ) -> Result<bool, ResizeError> {
        let Some(resource) = grows(current, larger).filter(|_| self.allocation.sandbox_is_behind) else {
            return Ok(false);
        };
        let resources = as_told(larger, self.cgroup_of(&self.allocation.pod).0);
        self.tell_sandbox(resource, &resources).await?;
        Ok(true)
    }

    /// Tells the runtime what the pod as a whole has from now on, where it was not told that already. Says whether it was
    /// told.
    pub(super) async fn tell_wanted(
        &mut self,
        larger: &Limits,
        is_larger_told: bool,
    ) -> Result<bool, ResizeError> {
        let wanted = self.cgroup_of(&self.allocation.pod).0;
        let told = as_told(larger, wanted.clone());
        if !self.allocation.sandbox_is_behind || (is_larger_told && told == wanted) {
            return Ok(false);
        }
        let resource = if told.memory == wanted.memory { "cpu" } else { "memory" };
        self.tell_sandbox(resource, &wanted).await?;
        Ok(true)
    }

    /// Tells the runtime that the pod's cgroup stayed as it is.
    pub(super) async fn tell_again(&mut self, current: &Limits) {
        let resources = as_told(current, self.cgroup_of(&self.allocation.pod).0);
        let began = Instant::now();
        if let Err(error) = self.tell_sandbox("memory", &resources).await {
            let what =
                format_args!("the runtime does not know that the pod's cgroup stayed as it was: {error}");
            self.story.failed("resize", began.elapsed(), what);
        }
    }

    async fn tell_sandbox(
        &mut self,
        resource: &'static str,
        resources: &PodResources,
    ) -> Result<(), ResizeError> {
        let Some(sandbox) = self.observed.active_sandbox() else { return Ok(()) };
        let (facts, pod) = (self.node.facts.now(), &self.allocation.pod);
        let period = facts.translation.settings.cpu_cfs_quota_period;
        let id = sandbox.id.clone();
        let request = v1::UpdatePodSandboxResourcesRequest {
            pod_sandbox_id: id.clone(),
            overhead: Some(overhead_resources(pod, &facts.translation)),
            resources: Some(sandbox::limits(resources, period, &pod.spec.overhead)),
        };
        let node = Arc::clone(&self.node);
        let told = self.see_through(node.runtime.update_sandbox_resources(request)).await;
        told.map_err(|error| ResizeError::Sandbox { resource, id, error })
    }
}
