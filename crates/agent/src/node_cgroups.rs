//! The cgroups that pods stand below, and those of the system: one owner of what they are held to.
//!
//! - All pods together are held to what nobody keeps back from them (`kubepods`), which follows what the machine has.
//! - A guaranteed pod stands beside the cgroup of all burstable pods and competes with it for the CPU. So that one weighs
//!   what its pods ask for together, as upstream has it; where memory is protected, so is theirs.
//! - The system and Kubernetes' own processes are held to what is kept for them, where that is wanted.
//!
//! Where pods have no cgroups of their own (`cgroupsPerQOS: false`), only the last of these is done.
//!
//! It acts when pods come and go, and looks after everything now and then: somebody else may have put it wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crablet_api::core::{ContainerState, ContainerStatus, Pod};

use crablet_core::translate::{MemoryReservation, cpu_shares};
use crablet_host::cgroup::{CgroupError, CgroupName, Cgroups, HugePages, LevelLimits, Limits, PodCgroup};
use crablet_logging::ErrorChain;
use crablet_metrics::{Gauge, RegisterError, Registry};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use crate::admission::{Admission, Asked};
use crate::node_facts::LiveFacts;
use crate::recorder::{EventType, Involved, Recorder, reason};
use crate::statuses::Statuses;

/// The first wait after classes of service did not get what is theirs. Each is twice the one before.
const BETWEEN_TRIES: Duration = Duration::from_secs(1);
/// The wait after pods could not be held to what is theirs: they may use more by now, and some will be evicted.
const BETWEEN_ENFORCEMENTS: Duration = Duration::from_secs(60);
/// How often everything is put right that nobody told of.
const BETWEEN_CHECKS: Duration = Duration::from_secs(300);

/// What the cgroups of a node are held to, beside what the machine has for pods.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
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
    /// What all pods together are held to, at its newest.
    pub(crate) facts: LiveFacts,
    pub(crate) recorder: Recorder,
    /// The node, for events.
    pub(crate) node: Involved,
    /// The pods that are known.
    pub(crate) statuses: Statuses,
    /// Who is told of cgroups of other pods.
    pub(crate) strangers: Arc<Notify>,
    pub(crate) protected: Option<Protected>,
}

/// How much memory is protected, where that is wanted.
pub(crate) struct Protected {
    least: Gauge,
    low: Gauge,
}

impl Protected {
    /// Upstream's gauges.
    pub(crate) fn register(registry: &Registry) -> Result<Protected, RegisterError> {
        Ok(Protected {
            least: registry.gauge(
                "kubelet_memory_qos_node_memory_min_bytes",
                "[ALPHA] Total cgroup v2 memory.min in bytes for Guaranteed pods. This memory is hard-reserved and never \
                 reclaimed by the kernel.",
            )?,
            low: registry.gauge(
                "kubelet_memory_qos_node_memory_low_bytes",
                "[ALPHA] Total cgroup v2 memory.low in bytes for Burstable pods. This memory is soft-reserved and may be \
                 reclaimed under extreme pressure.",
            )?,
        })
    }

    fn tell(&self, memory: Option<MemoryReservation>, asked: Asked) {
        let (least, low) = match memory {
            Some(MemoryReservation::Tiered) => (asked.guaranteed_memory, asked.burstable_memory),
            Some(MemoryReservation::None) | None => (0, 0),
        };
        self.least.set(least as f64);
        self.low.set(low as f64);
    }
}

/// What is done by now.
#[derive(Default)]
struct Done {
    /// What the classes of service have.
    classes: Option<Asked>,
    /// Why they do not have what is theirs, if that is so.
    trouble: Option<Trouble>,
    /// What all pods together were held to last, as far as that was told.
    held: Option<Limits>,
    /// When they are to be held to what is theirs; nothing when they are.
    due: Option<Instant>,
    /// The pods that ran without a cgroup of their own at the last check, and those of whom that was told.
    astray: BTreeSet<String>,
    told_astray: BTreeSet<String>,
}

/// Something that could not be done.
struct Trouble {
    what: String,
    /// When it is tried again, and how long was waited for that.
    again: Instant,
    wait: Duration,
}

impl NodeCgroups {
    /// Makes the cgroups of pods. What burstable pods weigh stays as it is until it is known who runs. Processors are
    /// named at once: systemd takes `cpuset` away from who has none.
    pub(crate) async fn make(&self) -> Result<(), CgroupError> {
        let mut levels = classes(None, None);
        levels.node.cpus.clone_from(&self.facts.now().held.cpus);
        self.cgroups.ensure_levels(&levels).await
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
        let mut done = Done { due: Some(Instant::now()), ..Done::default() };
        let mut check = Instant::now() + BETWEEN_CHECKS;
        let mut facts = self.facts.subscribe();
        loop {
            let changed = admission.changed();
            facts.mark_unchanged();
            if Instant::now() >= check {
                self.check(&mut done).await;
                check = Instant::now() + BETWEEN_CHECKS;
            }
            let mut next = check;
            if let Some(kubepods) = self.cgroups.kubepods() {
                if let Some(again) = self.hold_pods(&kubepods, &mut done).await {
                    next = next.min(again);
                }
                if let Some(asked) = admission.asked()
                    && let Some(again) = self.serve_classes(asked, &mut done).await
                {
                    next = next.min(again);
                }
            }
            tokio::select! {
                biased;
                () = changed => {}
                Ok(()) = facts.changed() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    /// Puts right what somebody else may have put wrong, and has what is left of pods that nobody knows found.
    async fn check(&self, done: &mut Done) {
        self.put_processes().await;
        if self.cgroups.kubepods().is_some() {
            self.check_pods(done).await;
        }
        if let Err(error) = self.hold_others().await {
            self.tell(
                EventType::Warning,
                reason::FAILED_NODE_ALLOCATABLE_ENFORCEMENT,
                ErrorChain(&error).to_string(),
            );
        }
    }

    async fn check_pods(&self, done: &mut Done) {
        done.classes = None;
        // Who comes meanwhile has a cgroup before it runs.
        let running = self.running();
        match self.cgroups.pods().await {
            Ok(pods) => {
                self.tell_of_astray(running, &pods, done);
                if pods.iter().any(|pod| self.statuses.get(pod.uid()).is_none()) {
                    self.strangers.notify_one();
                }
            }
            Err(error) => warn!(err = %ErrorChain(&error), "Cannot tell which pods have cgroups"),
        }
        done.due.get_or_insert_with(Instant::now);
    }

    /// The pods whose containers run.
    fn running(&self) -> BTreeMap<String, Arc<Pod>> {
        let is_running =
            |status: &ContainerStatus| matches!(status.state.one(), Some(ContainerState::Running(_)));
        let reported = self.statuses.list().into_iter();
        let running = reported.filter(|reported| reported.status.container_statuses.iter().any(is_running));
        running.map(|reported| (reported.pod.metadata.uid.to_string(), reported.pod)).collect()
    }

    /// Tells of pods that run outside the tree, where an agent with another driver or root has put them. They stay there
    /// until they start anew. Who has no cgroup at one check alone may be on the way out.
    fn tell_of_astray(
        &self,
        running: BTreeMap<String, Arc<Pod>>,
        with_cgroups: &[PodCgroup],
        done: &mut Done,
    ) {
        let mut astray = running;
        with_cgroups.iter().for_each(|pod| _ = astray.remove(pod.uid()));
        done.told_astray.retain(|uid| astray.contains_key(uid));
        for (uid, pod) in &astray {
            if done.astray.contains(uid) && done.told_astray.insert(uid.clone()) {
                let pod = format!("{}/{}", pod.metadata.namespace, pod.metadata.name);
                warn!(
                    pod,
                    uid,
                    "The pod runs outside the cgroups of pods and what they are held to, until it starts anew"
                );
            }
        }
        done.astray = astray.into_keys().collect();
    }

    /// Holds all pods together to what is theirs. Says when to try again, if it could not.
    async fn hold_pods(&self, kubepods: &CgroupName, done: &mut Done) -> Option<Instant> {
        let node = self.facts.now().held.clone();
        let is_held = done.held.as_ref() == Some(&node);
        match done.due {
            None if is_held => return None,
            Some(due) if Instant::now() < due => return Some(due),
            None | Some(_) => {}
        }
        let levels = LevelLimits { node, ..LevelLimits::default() };
        match self.cgroups.ensure_levels(&levels).await {
            Ok(()) => {
                if !is_held {
                    const MESSAGE: &str = "Updated Node Allocatable limit across pods";
                    self.tell(EventType::Normal, reason::NODE_ALLOCATABLE_ENFORCED, MESSAGE.to_owned());
                }
                (done.held, done.due) = (Some(levels.node), None);
            }
            Err(error) => {
                self.cannot_hold_pods(kubepods, &error);
                (done.held, done.due) = (None, Some(Instant::now() + BETWEEN_ENFORCEMENTS));
            }
        }
        done.due
    }

    fn cannot_hold_pods(&self, kubepods: &CgroupName, error: &CgroupError) {
        let name: Vec<String> = kubepods.parts().iter().map(|part| format!("{part:?}")).collect();
        let message =
            format!("Failed to update Node Allocatable Limits [{}]: {}", name.join(" "), ErrorChain(error));
        self.tell(EventType::Warning, reason::FAILED_NODE_ALLOCATABLE_ENFORCEMENT, message);
    }

    /// Gives the classes of service what their pods ask for together. Says when to try again, if it could not.
    async fn serve_classes(&self, asked: Asked, done: &mut Done) -> Option<Instant> {
        if done.classes == Some(asked) {
            return None;
        }
        if let Some(trouble) = done.trouble.as_ref().filter(|trouble| Instant::now() < trouble.again) {
            return Some(trouble.again);
        }
        match self.cgroups.ensure_levels(&classes(Some(asked), self.settings.memory)).await {
            Ok(()) => {
                if let Some(protected) = &self.protected {
                    protected.tell(self.settings.memory, asked);
                }
                (done.classes, done.trouble) = (Some(asked), None);
                None
            }
            Err(error) => {
                let what = ErrorChain(&error).to_string();
                let last = done.trouble.take();
                if last.as_ref().is_none_or(|last| last.what != what) {
                    warn!(err = what, "Cannot give the classes of pods what is theirs; trying again");
                }
                let wait =
                    last.map_or(BETWEEN_TRIES, |last| last.wait.saturating_mul(2).min(BETWEEN_ENFORCEMENTS));
                let again = Instant::now() + wait;
                done.trouble = Some(Trouble { what, again, wait });
                Some(again)
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
