//! Pods that may take no more of the disk than so much.

use crablet_api::core::Pod;
use crablet_core::eviction::{Explanation, Usages, grace_over_limit, has_limits, over_limit};
use crablet_core::qos::is_critical;
use crablet_core::status::Failure;
use tokio::time::Instant;

use super::{EvictionManager, MEASURING_TAKES};

impl EvictionManager {
    pub(super) fn has_limited_pods(&self) -> bool {
        self.settings.limits_local_storage && self.node.admission.active().iter().any(|pod| is_limited(pod))
    }

    /// Has pods measured that may take no more of the disk than so much, where it is time to.
    pub(super) fn measure_limited(&mut self) {
        if self.disk_use.due().is_some_and(|due| due <= Instant::now()) {
            self.measure_limited_now();
        }
    }

    fn measure_limited_now(&mut self) {
        if self.disk_use.is_measuring() || self.disks.is_err() || !self.settings.limits_local_storage {
            return;
        }
        let limited = self.candidates().into_iter().filter(|pod| is_limited(pod));
        let uids = limited.map(|pod| pod.metadata.uid.to_string()).collect();
        self.disk_use.measure(&self.parts.meter, uids, MEASURING_TAKES);
    }

    /// Before anybody is ranked for a disk, those go that take more of it than they may, as upstream. Says whether it is
    /// time to look again.
    pub(super) async fn any_over_limit_goes(&mut self) -> bool {
        self.measure_limited_now();
        if !self.disk_use.is_measuring() {
            return false;
        }
        let measured = self.memory_watch().meanwhile(self.disk_use.measured()).await;
        match measured {
            Some(usages) => self.hold_to_limits(usages).await,
            // Memory comes first.
            None => true,
        }
    }

    /// Ends pods that take more of the disk than they may. Says whether there were any.
    pub(super) async fn hold_to_limits(&mut self, usages: Option<Usages>) -> bool {
        let (Some(usages), Ok(disks)) = (usages, self.disks) else { return false };
        let mut leaving = Vec::new();
        for pod in self.candidates().into_iter().filter(|pod| is_limited(pod)) {
            let usage = usages.get(&*pod.metadata.uid);
            let Some(over) = usage.and_then(|usage| over_limit(&pod, usage, disks)) else { continue };
            let told = Explanation { message: over.message, annotations: Vec::new() };
            leaving.push(self.evict(pod, Failure::over_limit(&told.message), grace_over_limit(), told).await);
            self.parts.metrics.evicted(over.limit.signal());
        }
        let somebody_goes = !leaving.is_empty();
        if somebody_goes {
            let watch = self.memory_watch();
            self.see_off(None, leaving, &watch).await;
        }
        somebody_goes
    }
}

/// Whether it has to be known what a pod takes on disk, so that it can be ended for that.
fn is_limited(pod: &Pod) -> bool {
    has_limits(pod) && !is_critical(pod)
}
