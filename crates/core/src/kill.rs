//! How containers are stopped: with what grace period, and in what order.
//!
//! A whole pod is stopped step by step. The worker keeps a [`Termination`], which says when it must be over and is
//! written to disk when it begins, and asks [`steps`] what to do now, whenever a container ended, a hook was done, or
//! the time that the last answer named has come. Regular containers stop at once and together. Sidecars stop after
//! them, the last one first, with the time that remains. Hooks before the stop all run at once at the beginning.

use crablet_api::Text;
use crablet_api::core::{Container, Pod};
use jiff::{SignedDuration, Timestamp};

use crate::restart::is_sidecar;

/// Every container has at least so many seconds to stop.
pub const MINIMUM_GRACE_SECONDS: i64 = 2;

/// Why a container is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillReason {
    /// Its liveness probe failed.
    LivenessProbe,
    /// Its startup probe failed.
    StartupProbe,
    /// The hook after its start failed.
    PostStartHook,
    /// Its pod asks for another one by now.
    DefinitionChanged,
    /// It is to have other resources, and asked to be restarted for that.
    Resize,
    /// The runtime does not know whether it runs.
    Unknown,
    /// Another one of its name runs, or is to.
    Duplicate,
    /// It runs in a sandbox that is not the pod's any more.
    OldSandbox,
    /// All containers are removed, to begin again.
    RestartOfAll,
    /// The whole pod stops.
    PodStops,
}

/// How many seconds a container may take to stop: what the API server said when the pod was deleted, else what the
/// probe that failed says, else what the pod says.
pub fn container_grace(pod: &Pod, container: &str, reason: KillReason) -> i64 {
    if reason == KillReason::RestartOfAll {
        return 0;
    }
    if let Some(seconds) = pod.metadata.deletion_grace_period_seconds {
        return seconds;
    }
    let Some(seconds) = pod.spec.termination_grace_period_seconds else { return MINIMUM_GRACE_SECONDS };
    let container = find(pod, container);
    let probe = match reason {
        KillReason::LivenessProbe => container.and_then(|container| container.liveness_probe.as_deref()),
        KillReason::StartupProbe => container.and_then(|container| container.startup_probe.as_deref()),
        KillReason::PostStartHook
        | KillReason::DefinitionChanged
        | KillReason::Resize
        | KillReason::Unknown
        | KillReason::Duplicate
        | KillReason::OldSandbox
        | KillReason::RestartOfAll
        | KillReason::PodStops => None,
    };
    probe.and_then(|probe| probe.termination_grace_period_seconds).unwrap_or(seconds)
}

/// How many seconds a whole pod may take to stop. Whoever asks for the second time can only make it shorter.
pub fn pod_grace(pod: &Pod, in_force: Option<i64>, wanted: Option<i64>) -> i64 {
    let asked = [in_force, pod.metadata.deletion_grace_period_seconds, wanted].into_iter().flatten().min();
    asked.or(pod.spec.termination_grace_period_seconds).unwrap_or(1).max(1)
}

/// A pod that is being stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Termination {
    /// When that began.
    pub began: Timestamp,
    /// The grace period in force, in seconds.
    pub grace: i64,
    /// When it is over and containers are killed.
    pub deadline: Timestamp,
}

impl Termination {
    /// Begins at `now`.
    pub fn new(now: Timestamp, grace: i64) -> Termination {
        Termination { began: now, grace, deadline: after(now, grace) }
    }

    /// Goes on at `now` with one that an earlier agent began. A clock that was set back meanwhile does not make it longer.
    pub fn resume(self, now: Timestamp) -> Termination {
        if self.began > now { Termination::new(now, self.grace) } else { self }
    }

    /// Ends no later than another one, which has begun before.
    pub fn no_later_than(self, other: &Termination) -> Termination {
        Termination {
            grace: self.grace.min(other.grace),
            deadline: self.deadline.min(other.deadline),
            ..self
        }
    }

    /// Takes in another wish; it counts only where it makes the end come earlier. The answer is whether it did.
    pub fn shorten(&mut self, now: Timestamp, grace: i64) -> bool {
        let deadline = after(now, grace);
        if deadline >= self.deadline {
            return false;
        }
        (self.grace, self.deadline) = (grace.min(self.grace), deadline);
        true
    }

    /// The whole seconds that are left.
    pub fn remaining(&self, now: Timestamp) -> i64 {
        let left = self.deadline.duration_since(now);
        // What has begun is not over: upstream takes off only the whole seconds that have passed.
        (left.as_secs() + i64::from(left.subsec_nanos() > 0)).max(0)
    }
}

fn after(now: Timestamp, seconds: i64) -> Timestamp {
    now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

/// A container that has not been seen to end yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopping {
    /// The runtime's name for it.
    pub id: String,
    /// Its name in the pod.
    pub name: Text,
    /// How far the hook before its stop has come.
    pub hook: Hook,
    /// Whether the runtime was told to stop it, and until when at the latest that takes.
    pub stop_sent: Option<Timestamp>,
}

impl Stopping {
    /// A container that nothing was done to.
    pub fn new(id: &str, name: &str) -> Stopping {
        Stopping { id: id.into(), name: name.into(), hook: Hook::NotRun, stop_sent: None }
    }
}

/// How far a container's hook before its stop has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// It did not begin. Whether there is one, the pod says.
    NotRun,
    /// It runs.
    Running,
    /// It is over, or there is none.
    Done,
}

/// What to do now to stop a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Run the hook before the stop.
    RunHook {
        /// The container.
        id: String,
        /// Its name in the pod.
        name: Text,
        /// How many seconds it may take.
        seconds: i64,
    },
    /// Tell the runtime to stop it.
    Stop {
        /// The container.
        id: String,
        /// Its name in the pod.
        name: Text,
        /// How many seconds it has before it is killed.
        grace: i64,
    },
    /// Leave it: others have to end first, or its hook has to.
    Wait {
        /// Its name in the pod.
        name: Text,
        /// Whose end it waits for; its own name where it is for its hook.
        until: Text,
        /// When it is stopped at the latest.
        deadline: Timestamp,
    },
}

/// What to do now to the containers of a pod that may still run. Containers that were told to stop are left alone,
/// unless the end has come nearer since: then they are told again.
pub fn steps(pod: &Pod, termination: &Termination, containers: &[Stopping], now: Timestamp) -> Vec<Step> {
    containers.iter().filter_map(|container| step(pod, termination, containers, container, now)).collect()
}

fn step(
    pod: &Pod,
    termination: &Termination,
    all: &[Stopping],
    container: &Stopping,
    now: Timestamp,
) -> Option<Step> {
    let remaining = termination.remaining(now);
    let (id, name) = (container.id.clone(), container.name.clone());
    let grace = remaining.max(MINIMUM_GRACE_SECONDS);
    if let Some(killed_at) = container.stop_sent {
        return (after(now, grace) < killed_at).then_some(Step::Stop { id, name, grace });
    }
    if remaining > 0 {
        let wait = |until: &Text| {
            Some(Step::Wait { name: name.clone(), until: until.clone(), deadline: termination.deadline })
        };
        match container.hook {
            Hook::NotRun if has_hook(pod, &name) => {
                return Some(Step::RunHook { id, name, seconds: remaining });
            }
            Hook::Running => return wait(&name),
            Hook::NotRun | Hook::Done => {}
        }
        if let Some(other) = all.iter().find(|other| stops_after(pod, &name, &other.name)) {
            return wait(&other.name);
        }
    }
    Some(Step::Stop { id, name, grace })
}

/// Whether a container is to stop only when `other` has: it is a sidecar, and `other` a regular container or a sidecar
/// that started after it.
fn stops_after(pod: &Pod, container: &str, other: &str) -> bool {
    let Some(index) = sidecar_index(pod, container) else { return false };
    pod.spec.containers.iter().any(|regular| *regular.name == *other)
        || sidecar_index(pod, other).is_some_and(|other| other > index)
}

fn sidecar_index(pod: &Pod, name: &str) -> Option<usize> {
    pod.spec.init_containers.iter().position(|container| *container.name == *name && is_sidecar(container))
}

fn has_hook(pod: &Pod, container: &str) -> bool {
    let lifecycle = find(pod, container).and_then(|container| container.lifecycle.as_ref());
    lifecycle.is_some_and(|lifecycle| lifecycle.pre_stop.is_some())
}

fn find<'p>(pod: &'p Pod, name: &str) -> Option<&'p Container> {
    pod.spec.all_containers().find(|container| *container.name == *name)
}
