//! What must happen to a pod now.
//!
//! A worker calls [`plan`] after every look at the runtime, carries out the first thing that it says in this order, and
//! looks again:
//!
//! 1. `kill`: stop these containers. Where the plan stops the whole pod ([`Plan::stops_pod`]), in the order that
//!    [`kill`](crate::kill) gives.
//! 2. `remove`: remove these containers, and their logs but where the plan keeps them ([`Plan::keeps_logs`]).
//! 3. `sandbox`: stop the sandboxes that it names, and make the new one, where one is wanted.
//! 4. `update`: give these containers, which run, other resources, in this order. The pod's own cgroup grows before the
//!    first of them and shrinks after the last.
//! 5. `start`: start these containers, in this order. An init container that is no sidecar and fails to start ends the
//!    pass; no other failure holds up the rest.
//!
//! A step whose kill failed is not passed over: the worker stops there and plans anew; nor is one whose removal failed
//! when all containers are to begin again. Any other removal holds up nothing.

mod containers;
mod init;
mod reset;
mod resize;
mod sandbox;

use crablet_api::core::{Container, Pod, PodStatus, ResourceRequirements};
use crablet_api::{FeatureGates, Text};
use crablet_cri_api::SandboxState;
use jiff::{SignedDuration, Timestamp};

use crate::backoff::{self, Restarts};
use crate::kill::{self, KillReason};
use crate::observed;
use crate::probes::Probes;
use crate::resize::{PodResourceInfo, Resource, allocated};

pub use sandbox::{SandboxNeed, WhyNewSandbox, sandbox_need};

/// What a plan is made from.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// What is wanted.
    pub pod: &'a Pod,
    /// The pod with the resources that the node granted it: what its containers get.
    pub allocated: &'a Pod,
    /// The resources that its containers were given last.
    pub actuated: &'a PodResourceInfo,
    /// What the runtime knows.
    pub observed: &'a observed::Pod,
    /// The status made from the same look, by [`pod_status`](crate::status::pod_status). It remembers what the
    /// runtime has forgotten.
    pub status: &'a PodStatus,
    /// What probes found.
    pub probes: &'a Probes,
    /// The waits before restarts.
    pub restarts: &'a Restarts,
    pub features: &'a FeatureGates,
    /// The time.
    pub now: Timestamp,
}

/// What must happen to a pod now. See the [module](self) for how it is carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What becomes of the sandbox.
    pub sandbox: Sandbox,
    /// Which containers to stop, and why.
    pub kill: Vec<Kill>,
    /// Which containers to remove, by the runtime's names for them.
    pub remove: Vec<String>,
    /// Which containers to give other resources.
    pub update: Vec<Update>,
    /// Which containers to start.
    pub start: Vec<Start>,
    /// What keeps the pod from going further.
    pub waiting_for: Vec<WaitingFor>,
    /// When to look again, should nothing else happen before.
    pub look_again: Option<Timestamp>,
}

/// What becomes of a pod's sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sandbox {
    /// It stays, and takes the containers that are started.
    Keep {
        /// The runtime's name for it.
        id: String,
    },
    /// A new one is made.
    Create {
        /// How many there were before.
        attempt: u32,
        why: WhyNewSandbox,
        /// Which ones to stop first.
        stop: Vec<String>,
    },
    /// The pod's work is over; no sandbox is needed.
    End {
        why: WhyEnd,
        /// Which ones to stop.
        stop: Vec<String>,
    },
}

/// Why a pod's work is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhyEnd {
    /// No container runs, and none is to be started again.
    ContainersDone,
    /// An init container failed and is not to be started again.
    InitContainerFailed {
        /// Which.
        name: Text,
    },
    /// It lost its sandbox, and its restart policy is not to begin again.
    SandboxLost,
    /// It was active for longer than it may be.
    DeadlineExceeded,
}

/// A container to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kill {
    /// The runtime's name for it.
    pub id: String,
    /// Its name in the pod.
    pub name: Text,
    /// Why, for the grace period.
    pub reason: KillReason,
    /// Why, in words: what the event says.
    pub message: Text,
    /// How many seconds it may take; see [`kill::container_grace`].
    pub grace: i64,
    /// Whether it is started anew afterwards, whatever its restart policy makes of how it ends. Whoever stops it writes
    /// that down before, and says so of what it looks at from then on
    /// ([`is_replaced`](observed::Container::is_replaced)).
    pub starts_anew: bool,
}

/// A container that runs, to be given other resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// The runtime's name for it.
    pub id: String,
    /// Its name in the pod.
    pub name: Text,
    /// All that it has from then on. Memory and CPU change one after the other.
    pub resources: ResourceRequirements,
    /// The limit of memory in bytes, where the container is to have less of it than it has.
    pub less_memory: Option<i64>,
    /// What changes, and whether it grows.
    order: (Resource, bool),
}

/// A container to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// In which of the pod's lists it is.
    pub role: Role,
    /// Where in that list.
    pub index: usize,
    pub name: Text,
    /// How often it was started before, as far as the runtime and the status remember.
    pub attempt: u32,
    /// Whether the runtime has forgotten all earlier runs: then the container's log files may know of more, and
    /// the next number after theirs counts where it is higher, so that no log is overwritten.
    pub ask_logs: bool,
    /// When its last run ended, where the runtime remembers: for [`Restarts::note_start`].
    pub last_finished: Option<Timestamp>,
}

/// In which of a pod's lists a container is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// One that was added to look into the pod.
    Ephemeral,
    /// One that prepares the pod, or a sidecar.
    Init,
    /// One that does the work.
    Main,
}

/// What keeps a pod from going further.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitingFor {
    /// It needs a sandbox first.
    Sandbox {
        /// Why it has none that will do.
        why: WhyNewSandbox,
    },
    /// An init container runs.
    InitContainer {
        /// Which.
        name: Text,
    },
    /// A sidecar runs, but its startup probe has not succeeded.
    SidecarStartup {
        /// Which.
        name: Text,
    },
    /// A container failed, and waits before its restart.
    BackOff {
        /// In which of the pod's lists it is.
        role: Role,
        /// Which.
        name: Text,
        /// How long it waits in all.
        length: SignedDuration,
        /// When it is started.
        until: Timestamp,
        /// What its status says.
        message: Text,
    },
    /// All containers are being removed, to begin again.
    RestartOfAll,
}

/// Decides what must happen to a pod now. The pod's phase is not terminal and it is not being deleted: what has
/// terminated never runs again, which is for the worker to keep.
pub fn plan(input: &Input) -> Plan {
    let mut plan = match deadline(input.pod, input.status) {
        Some(deadline) if deadline <= input.now => end(input, WhyEnd::DeadlineExceeded),
        Some(deadline) => Plan { look_again: Some(deadline), ..sandbox::plan(input) },
        None => sandbox::plan(input),
    };
    let waits = plan.waiting_for.iter().filter_map(|waiting| match waiting {
        WaitingFor::BackOff { until, .. } => Some(*until),
        WaitingFor::RestartOfAll => Some(input.now),
        WaitingFor::Sandbox { .. } | WaitingFor::InitContainer { .. } | WaitingFor::SidecarStartup { .. } => {
            None
        }
    });
    plan.look_again = waits.chain(plan.look_again).min();
    plan
}

/// When a pod will have been active for as long as it may be.
pub fn deadline(pod: &Pod, status: &PodStatus) -> Option<Timestamp> {
    let seconds = pod.spec.active_deadline_seconds?;
    let started = Timestamp::from(status.start_time?);
    Some(started.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX))
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        let sandbox_stays = match &self.sandbox {
            Sandbox::Keep { .. } => true,
            Sandbox::Create { .. } => false,
            Sandbox::End { stop, .. } => stop.is_empty(),
        };
        sandbox_stays
            && self.kill.is_empty()
            && self.remove.is_empty()
            && self.update.is_empty()
            && self.start.is_empty()
    }

    /// Whether all containers are stopped together, in order, with the pod's grace period.
    pub fn stops_pod(&self) -> bool {
        match self.sandbox {
            Sandbox::Keep { .. } => false,
            Sandbox::Create { .. } | Sandbox::End { .. } => true,
        }
    }

    /// Whether the logs of the containers that are removed stay: nobody asked for those containers to be forgotten.
    pub fn keeps_logs(&self) -> bool {
        self.waiting_for.contains(&WaitingFor::RestartOfAll)
    }

    /// The containers that wait before their restart, and what their statuses say of that.
    pub fn held_back(&self) -> impl Iterator<Item = (&Text, &Text)> {
        self.waiting_for.iter().filter_map(|waiting| match waiting {
            WaitingFor::BackOff { name, message, .. } => Some((name, message)),
            WaitingFor::Sandbox { .. }
            | WaitingFor::InitContainer { .. }
            | WaitingFor::SidecarStartup { .. }
            | WaitingFor::RestartOfAll => None,
        })
    }
}

impl Start {
    /// The container in the pod that it belongs to.
    pub fn container<'p>(&self, pod: &'p Pod) -> Option<&'p Container> {
        match self.role {
            Role::Ephemeral => {
                pod.spec.ephemeral_containers.get(self.index).map(|ephemeral| &ephemeral.container)
            }
            Role::Init => pod.spec.init_containers.get(self.index),
            Role::Main => pod.spec.containers.get(self.index),
        }
    }
}

/// A plan that keeps the sandbox and does nothing yet.
fn keep(id: String) -> Plan {
    Plan {
        sandbox: Sandbox::Keep { id },
        kill: Vec::new(),
        remove: Vec::new(),
        update: Vec::new(),
        start: Vec::new(),
        waiting_for: Vec::new(),
        look_again: None,
    }
}

/// A plan that stops all there is.
fn end(input: &Input, why: WhyEnd) -> Plan {
    let ready = input.observed.sandboxes().iter().filter(|sandbox| sandbox.state == SandboxState::Ready);
    let stop = ready.map(|sandbox| sandbox.id.clone()).collect();
    Plan { sandbox: Sandbox::End { why, stop }, kill: kill_all(input), ..keep(String::new()) }
}

/// Stops every container that may be running.
fn kill_all(input: &Input) -> Vec<Kill> {
    let live = input.observed.containers().iter().filter(|container| container.may_live());
    live.map(|container| {
        let message = format!("Stopping container {}", container.name);
        kill(input, container, KillReason::PodStops, message)
    })
    .collect()
}

fn kill(input: &Input, container: &observed::Container, reason: KillReason, message: String) -> Kill {
    let name = container.name.as_str();
    let grace = kill::container_grace(input.pod, name, reason);
    Kill {
        id: container.id.clone(),
        name: name.into(),
        reason,
        message: message.into(),
        grace,
        starts_anew: false,
    }
}

/// Adds the start of a container to a plan, or the wait before it. Whatever of its name may still run is stopped
/// first, so that never two of a name run.
fn start(input: &Input, plan: &mut Plan, role: Role, index: usize, container: &Container) {
    let mut runs = input.observed.named(&container.name).filter(|run| run.finished_at.is_some());
    let last_finished = runs.next().and_then(|run| run.finished_at);
    // A restart is noted with what the container was given by it, not with what its pod asks for by now.
    let given = allocated(input.allocated, container);
    let held = last_finished.and_then(|finished| input.restarts.held(given, finished, input.now));
    if let Some(held) = held {
        let message = backoff::restart_message(held.length, &container.name, input.pod).into();
        let (name, length, until) = (container.name.clone(), held.length, held.until);
        plan.waiting_for.push(WaitingFor::BackOff { role, name, length, until, message });
        return;
    }
    stop_others(input, plan, &container.name, None);
    let attempt = match input.observed.latest(&container.name) {
        Some(latest) => latest.restart_count() + 1,
        None => remembered_attempt(input.status, &container.name),
    };
    plan.start.push(Start {
        role,
        index,
        name: container.name.clone(),
        attempt,
        ask_logs: input.observed.latest(&container.name).is_none(),
        last_finished,
    });
}

/// Stops every container of a name that may run, but the one to keep and those that the plan stops already.
fn stop_others(input: &Input, plan: &mut Plan, name: &str, keep: Option<&str>) {
    for other in input.observed.named(name) {
        let planned = plan.kill.iter().any(|kill| kill.id == other.id);
        if other.may_live() && keep != Some(other.id.as_str()) && !planned {
            let message = format!("Container {name} must not run twice, stopping the other one first");
            plan.kill.push(kill(input, other, KillReason::Duplicate, message));
        }
    }
}

/// The attempt of a container that the runtime does not know: one more than its status has, if it ever ran.
fn remembered_attempt(status: &PodStatus, name: &str) -> u32 {
    let Some(status) = status.find_container_status(name) else { return 0 };
    let count = u32::try_from(status.restart_count).unwrap_or(0);
    if status.container_id.is_empty() { count } else { count + 1 }
}
