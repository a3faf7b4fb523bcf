//! The cgroups that pods stand below, and those of the system: one owner of what they are held to.
//!
//! - All pods together are held to what nobody keeps back from them (`kubepods`).
//! - A guaranteed pod stands beside the cgroup of all burstable pods and competes with it for the CPU. So that one weighs
//!   what its pods ask for together, as upstream has it; where memory is protected, so is theirs.
//! - The system and Kubernetes' own processes are held to what is kept for them, where that is wanted.
//!
//! It acts when pods come and go, and looks after everything now and then: somebody else may have put it wrong.

use std::sync::Arc;
use std::time::Duration;

use crablet_core::translate::{MemoryReservation, cpu_shares};
use crablet_host::cgroup::{CgroupError, Cgroups, HugePages, LevelLimits, Limits};
use crablet_logging::ErrorChain;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use crate::admission::{Admission, Asked};
use crate::recorder::{EventType, Involved, Recorder, reason};
use crate::statuses::Statuses;

/// The wait after classes of service did not get what is theirs.
const BETWEEN_TRIES: Duration = Duration::from_secs(1);
/// The wait after pods could not be held to what is theirs: they may use more by now, and some will be evicted.
const BETWEEN_ENFORCEMENTS: Duration = Duration::from_secs(60);
/// How often everything is put right that nobody told of.
const BETWEEN_CHECKS: Duration = Duration::from_secs(300);

/// What the cgroups of a node are held to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// All pods together.
    pub pods: Limits,
    /// Those beside the pods.
    pub others: Vec<Other>,
    /// Whether the memory of classes of service is protected, where the kernel can.
    pub memory: Option<MemoryReservation>,
    /// The cgroup that the agent puts itself into.
    pub of_kubelet: Option<String>,
    /// The cgroup for processes that stand in none.
    pub of_system: Option<String>,
}

/// A cgroup that is not ours and is held to what is kept for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Other {
    pub whose: Whose,
    /// Whether it is held to its CPU alone.
    pub is_compressible: bool,
    /// Its name, as it is configured.
    pub cgroup: String,
    pub limits: Limits,
}

/// Who runs in a cgroup that is not ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    System,
    Kube,
}

impl Other {
    fn what(&self) -> &'static str {
        match (self.whose, self.is_compressible) {
            (Whose::System, false) => "System Reserved",
            (Whose::System, true) => "System Reserved Compressible",
            (Whose::Kube, false) => "Kube Reserved",
            (Whose::Kube, true) => "Kube Reserved Compressible",
        }
    }

    fn done(&self) -> String {
        let whose = match self.whose {
            Whose::System => "system",
            Whose::Kube => "kube",
        };
        format!("Updated limits on {whose} reserved cgroup {}", self.cgroup)
    }
}

/// Somebody could not be held to what is kept for them.
#[derive(Debug, thiserror::Error)]
#[error("Failed to enforce {what} Cgroup Limits on {cgroup:?}")]
pub struct NotEnforced {
    what: &'static str,
    cgroup: String,
    source: CgroupError,
}

/// The owner of the cgroups of a node.
pub(crate) struct NodeCgroups {
    pub(crate) cgroups: Arc<dyn Cgroups>,
    pub(crate) settings: Settings,
    pub(crate) recorder: Recorder,
    /// The node, for events.
    pub(crate) node: Involved,
    /// The pods that are known.
    pub(crate) statuses: Statuses,
    /// Who is told of cgroups of other pods.
    pub(crate) strangers: Arc<Notify>,
}

/// What is done by now.
#[derive(Default)]
struct Done {
    /// What the classes of service have.
    classes: Option<Asked>,
    /// When pods are to be held to what is theirs; nothing when they are.
    pods: Option<Instant>,
}

impl NodeCgroups {
    /// Makes the cgroups of pods, and holds those to it whom something is kept for. What burstable pods weigh stays as it
    /// is until it is known who runs.
    pub(crate) async fn make(&self) -> Result<(), CgroupError> {
        self.cgroups.ensure_levels(&classes(None, None)).await
    }

    /// Holds the system and Kubernetes' own processes to what is kept for them.
    pub(crate) async fn hold_others(&self) -> Result<(), NotEnforced> {
        for other in &self.settings.others {
            let held = self.cgroups.limit_existing(&other.cgroup, &other.limits).await;
            held.map_err(|source| NotEnforced { what: other.what(), cgroup: other.cgroup.clone(), source })?;
        }
        Ok(())
    }

    /// Puts the agent and the system's processes where they should be. That it fails keeps nobody from working.
    async fn put_processes(&self) {
        if let Some(cgroup) = &self.settings.of_kubelet
            && let Err(error) = self.cgroups.enter(cgroup).await
        {
            warn!(cgroup, err = %ErrorChain(&error), "Cannot move into the cgroup of kubeletCgroups");
        }
        if let Some(cgroup) = &self.settings.of_system
            && let Err(error) = self.cgroups.gather(cgroup).await
        {
            warn!(cgroup, err = %ErrorChain(&error), "Cannot move processes into the cgroup of systemCgroups");
        }
    }

    /// Keeps everything as it should be.
    pub(crate) async fn keep(self, admission: Admission) {
        for other in &self.settings.others {
            self.tell(EventType::Normal, reason::NODE_ALLOCATABLE_ENFORCED, other.done());
        }
        self.put_processes().await;
        let mut done = Done { pods: Some(Instant::now()), ..Done::default() };
        let mut check = Instant::now() + BETWEEN_CHECKS;
        loop {
            let changed = admission.changed();
            if Instant::now() >= check {
                self.check(&mut done).await;
                check = Instant::now() + BETWEEN_CHECKS;
            }
            let mut next = check;
            if let Some(again) = self.hold_pods(&mut done).await {
                next = next.min(again);
            }
            if let Some(asked) = admission.asked()
                && let Some(again) = self.serve_classes(asked, &mut done).await
            {
                next = next.min(again);
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = sleep_until(next) => {}
            }
        }
    }

    /// Puts right what somebody else may have put wrong, and has what is left of pods that nobody knows found.
    async fn check(&self, done: &mut Done) {
        done.classes = None;
        self.put_processes().await;
        match self.cgroups.pods().await {
            Ok(pods) => {
                if pods.iter().any(|pod| self.statuses.get(pod.uid()).is_none()) {
                    self.strangers.notify_one();
                }
            }
            Err(error) => warn!(err = %ErrorChain(&error), "Cannot tell which pods have cgroups"),
        }
        if done.pods.is_none()
            && let Err(error) = self.cgroups.ensure_levels(&self.of_pods()).await
        {
            self.cannot_hold_pods(&error);
            done.pods = Some(Instant::now() + BETWEEN_ENFORCEMENTS);
        }
        if let Err(error) = self.hold_others().await {
            self.tell(
                EventType::Warning,
                reason::FAILED_NODE_ALLOCATABLE_ENFORCEMENT,
                ErrorChain(&error).to_string(),
            );
        }
    }

    /// Holds all pods together to what is theirs. Says when to try again, if it could not.
    async fn hold_pods(&self, done: &mut Done) -> Option<Instant> {
        let due = done.pods?;
        if Instant::now() < due {
            return Some(due);
        }
        match self.cgroups.ensure_levels(&self.of_pods()).await {
            Ok(()) => {
                const MESSAGE: &str = "Updated Node Allocatable limit across pods";
                self.tell(EventType::Normal, reason::NODE_ALLOCATABLE_ENFORCED, MESSAGE.to_owned());
                done.pods = None;
            }
            Err(error) => {
                self.cannot_hold_pods(&error);
                done.pods = Some(Instant::now() + BETWEEN_ENFORCEMENTS);
            }
        }
        done.pods
    }

    fn of_pods(&self) -> LevelLimits {
        LevelLimits { node: self.settings.pods.clone(), ..LevelLimits::default() }
    }

    fn cannot_hold_pods(&self, error: &CgroupError) {
        let name: Vec<String> =
            self.cgroups.kubepods().parts().iter().map(|part| format!("{part:?}")).collect();
        let message =
            format!("Failed to update Node Allocatable Limits [{}]: {}", name.join(" "), ErrorChain(error));
        self.tell(EventType::Warning, reason::FAILED_NODE_ALLOCATABLE_ENFORCEMENT, message);
    }

    /// Gives the classes of service what their pods ask for together. Says when to try again, if it could not.
    async fn serve_classes(&self, asked: Asked, done: &mut Done) -> Option<Instant> {
        if done.classes == Some(asked) {
            return None;
        }
        match self.cgroups.ensure_levels(&classes(Some(asked), self.settings.memory)).await {
            Ok(()) => {
                done.classes = Some(asked);
                None
            }
            Err(error) => {
                let err = ErrorChain(&error);
                warn!(%err, "Cannot give the classes of pods what is theirs; trying again");
                Some(Instant::now() + BETWEEN_TRIES)
            }
        }
    }

    fn tell(&self, event_type: EventType, reason: &str, message: String) {
        self.recorder.event(&self.node, event_type, reason, message);
    }
}

/// What the classes of service have. What burstable pods weigh stays as it is while it is not known who runs.
fn classes(asked: Option<Asked>, memory: Option<MemoryReservation>) -> LevelLimits {
    let mut levels = LevelLimits::default();
    levels.burstable.huge_pages = HugePages::Unlimited;
    levels.best_effort.huge_pages = HugePages::Unlimited;
    levels.best_effort.cpu_shares = Some(cpu_shares(0).unsigned_abs());
    let Some(asked) = asked else { return levels };
    levels.burstable.cpu_shares = Some(cpu_shares(asked.burstable_milli_cpu).unsigned_abs());
    let (least, low) = match memory {
        None => return levels,
        Some(MemoryReservation::None) => (0, 0),
        // Guaranteed pods stand below the cgroup of all pods, which must protect what those below it protect.
        Some(MemoryReservation::Tiered) => {
            (asked.guaranteed_memory.saturating_add(asked.burstable_memory), asked.burstable_memory)
        }
    };
    levels.node.unified.insert("memory.min".to_owned(), least.to_string());
    levels.burstable.unified.insert("memory.low".to_owned(), low.to_string());
    levels
}

#[cfg(test)]
mod tests;
