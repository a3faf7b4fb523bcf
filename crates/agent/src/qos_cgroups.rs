//! The cgroups that pods stand below, by their class of service.
//!
//! A guaranteed pod stands beside the cgroup of all burstable pods and competes with it for the CPU. So that one weighs
//! what its pods ask for together, as upstream has it.

use std::sync::Arc;
use std::time::Duration;

use crablet_core::translate::cpu_shares;
use crablet_host::cgroup::{CgroupError, Cgroups, HugePages, LevelLimits, Limits};
use tracing::warn;

use crate::admission::Admission;

/// The wait after a try that failed.
const BETWEEN_TRIES: Duration = Duration::from_secs(1);

/// Makes them where they are missing. What burstable pods weigh stays as it is until it is known who runs.
pub(crate) async fn ensure(cgroups: &dyn Cgroups, burstable_shares: Option<u64>) -> Result<(), CgroupError> {
    let node = Limits { huge_pages: HugePages::Unlimited, ..Limits::default() };
    let burstable = Limits { cpu_shares: burstable_shares, ..node.clone() };
    let best_effort = Limits { cpu_shares: Some(cpu_shares(0).unsigned_abs()), ..node.clone() };
    cgroups.ensure_levels(&LevelLimits { node, burstable, best_effort }).await
}

/// Has all burstable pods together weigh what those ask for that the node has taken.
pub(crate) async fn keep_burstable_shares(admission: Admission, cgroups: Arc<dyn Cgroups>) {
    let mut has = None;
    loop {
        let changed = admission.changed();
        let wanted = admission.burstable_cpu().map(|milli_cpu| cpu_shares(milli_cpu).unsigned_abs());
        if wanted.is_some() && wanted != has {
            if let Err(error) = ensure(&*cgroups, wanted).await {
                warn!(%error, "Cannot give burstable pods their shares of the CPU; trying again");
                tokio::time::sleep(BETWEEN_TRIES).await;
                continue;
            }
            has = wanted;
        }
        changed.await;
    }
}
