//! What a pod's status is.
//!
//! [`pod_status`] makes it from what the runtime knows and from the status before. The worker makes one after every
//! look, keeps it as the next `previous`, and hands it to whoever writes to the API server, who calls [`to_publish`].
//! [`rejected`] and [`terminated`] are the statuses of pods that never ran and of pods that are over.

mod addresses;
mod conditions;
mod containers;
mod latest;
mod lifecycle;
mod phase;
mod readiness;
mod resources;
mod termination_message;
mod transition;

use std::collections::BTreeMap;
use std::net::IpAddr;

use crablet_api::core::{Pod, PodCondition, PodConditionType, PodPhase, PodStatus};
use crablet_api::meta::{ConditionStatus, Time};
use crablet_api::{FeatureGates, Gate, Text};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::plan::deadline;
use crate::probes::Probes;
use crate::resize::PodResourceInfo;
use crate::resize::conditions::Conditions;
use crate::{eviction, observed, qos, shutdown};

pub use addresses::pod_ips;
pub use conditions::readiness_gates_differ;
pub use latest::is_newer;
pub use lifecycle::{rejected, terminated, to_publish};
pub(crate) use readiness::runtime_id;
pub use resources::PodCgroup;
pub use termination_message::{
    MAX_LOG_BYTES, MAX_LOG_LINES, MAX_MESSAGE_BYTES, MessageSource, termination_message,
};
pub use transition::keep_what_ended;

/// What a status is made from.
#[derive(Debug, Clone, Copy)]
pub struct StatusInput<'a> {
    /// What is wanted, and the status that the API server has.
    pub pod: &'a Pod,
    /// The pod with the resources that the node granted it.
    pub allocated: &'a Pod,
    /// What the runtime knows.
    pub observed: &'a observed::Pod,
    /// The status that was made last: by this agent, or by the one before it and written down; else the API server's.
    pub previous: &'a PodStatus,
    /// What probes found.
    pub probes: &'a Probes,
    /// Why containers could not be started, by their names in the pod.
    pub start_errors: &'a BTreeMap<Text, StartError>,
    /// The containers that wait before their restart, by their names in the pod, and what is said of that: the plan
    /// [names](crate::plan::Plan::held_back) them. One that could not be started says that instead.
    pub held_back: &'a BTreeMap<Text, Text>,
    /// Whether all containers have been stopped for good.
    pub finished: bool,
    /// Why the pod was ended from outside, if it was: evicted, preempted, the node shut down.
    pub failure: Option<&'a Failure>,
    /// The conditions of a change of the pod's resources, as their owner keeps them.
    pub resize_conditions: &'a Conditions,
    /// The resources that containers were given last.
    pub actuated: &'a PodResourceInfo,
    /// What the pod's cgroup says, where it was read.
    pub pod_cgroup: Option<&'a PodCgroup>,
    /// Whether the handler that runs the pod can mount read-only all the way down. Where nobody knows yet, the same is
    /// said of it as before, or nothing.
    pub recursive_read_only_mounts: Option<bool>,
    /// What is known of the node.
    pub node: &'a NodeFacts,
    pub features: &'a FeatureGates,
    /// The time.
    pub now: Timestamp,
}

/// What is known of a node, as far as a pod's status asks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeFacts {
    /// The node's addresses, the first one of the primary family; at most one more, of the other. Empty where the
    /// agent does not know any: without an API server.
    pub host_ips: Vec<IpAddr>,
    /// Whether IPv6 is the primary family.
    pub prefers_ipv6: bool,
    /// The runtime's name, such as `containerd`.
    pub runtime_name: Text,
}

/// Why a container could not be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartError {
    /// One word, such as `ErrImagePull` or `CreateContainerError`.
    pub reason: Text,
    /// More words.
    pub message: Text,
}

impl StartError {
    /// Of more words, so many bytes are kept: what a hook wrote is among them, and everybody who looks gets them all.
    const LONGEST_MESSAGE: usize = 8192;

    /// A word and more words.
    pub fn new(reason: impl Into<Text>, message: impl Into<Text>) -> StartError {
        let message: Text = message.into();
        let end = message.floor_char_boundary(StartError::LONGEST_MESSAGE);
        let message = if end < message.len() { format!("{}…", &message[..end]).into() } else { message };
        StartError { reason: reason.into(), message }
    }
}

/// The word for a pod that was active for longer than it may be.
pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";

/// What made a pod fail as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FailureCause {
    /// It was active for longer than it may be.
    DeadlineExceeded,
    /// The node let it go: it ran short of something, or the pod took more than it may.
    Evicted,
    /// A critical pod needed its place.
    Preempted,
    /// The node was about to be shut down.
    NodeShutdown,
    /// The node did not take it.
    #[serde(alias = "volumeLimit")]
    Rejected,
}

/// Why a pod failed as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// What did it.
    pub cause: FailureCause,
    /// Whether its containers had done their work before.
    #[serde(default)]
    pub after_success: bool,
    /// One word.
    pub reason: Text,
    /// More words.
    pub message: Text,
    /// What disturbed it, where something did: its condition `DisruptionTarget`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruption: Option<PodCondition>,
}

impl Failure {
    pub fn new(
        cause: FailureCause,
        reason: impl Into<Text>,
        message: impl Into<Text>,
        disruption: Option<PodCondition>,
    ) -> Failure {
        let (reason, message) = (reason.into(), message.into());
        Failure { cause, after_success: false, reason, message, disruption }
    }

    /// The pod was active for longer than it may be.
    pub fn deadline_exceeded() -> Failure {
        let message = "Pod was active on the node longer than the specified deadline";
        Failure::new(FailureCause::DeadlineExceeded, DEADLINE_EXCEEDED, message, None)
    }

    /// The node ran short of something and let this pod go.
    pub fn evicted(pod: &Pod, message: &str) -> Failure {
        let disruption = Some(ended_by_the_node(pod, message));
        Failure::new(FailureCause::Evicted, eviction::REASON, message, disruption)
    }

    /// The pod took more of the node's own disk than it may. As upstream, nothing is said to have disturbed it.
    pub fn over_limit(message: &str) -> Failure {
        Failure::new(FailureCause::Evicted, eviction::REASON, message, None)
    }

    /// The node did not take the pod, though something of it may be there.
    pub fn rejected(reason: impl Into<Text>, message: &str) -> Failure {
        Failure::new(FailureCause::Rejected, reason, format!("Pod was rejected: {message}"), None)
    }

    /// A critical pod needed its place.
    pub fn preempted(pod: &Pod) -> Failure {
        let condition = "Pod was preempted by Kubelet to accommodate a critical pod.";
        let disruption = Some(ended_by_the_node(pod, condition));
        Failure::new(
            FailureCause::Preempted,
            "Preempting",
            "Preempted in order to admit critical pod",
            disruption,
        )
    }

    /// The node is about to be shut down.
    pub fn node_shutdown(pod: &Pod) -> Failure {
        let disruption = Some(ended_by_the_node(pod, shutdown::MESSAGE));
        Failure::new(FailureCause::NodeShutdown, shutdown::REASON, shutdown::MESSAGE, disruption)
    }

    /// Whether the node needed what the pod used, for itself or for another pod.
    pub fn is_eviction(&self) -> bool {
        matches!(self.cause, FailureCause::Evicted | FailureCause::Preempted)
    }

    /// Whether a pod that had done its work stays one that succeeded, as upstream: the end of its machine makes no failure of
    /// that. Whoever is told to end before that has failed, also if its containers say that all went well.
    fn spares_success(&self) -> bool {
        match self.cause {
            FailureCause::NodeShutdown => self.after_success,
            FailureCause::DeadlineExceeded
            | FailureCause::Evicted
            | FailureCause::Preempted
            | FailureCause::Rejected => false,
        }
    }
}

fn ended_by_the_node(pod: &Pod, message: &str) -> PodCondition {
    PodCondition {
        r#type: PodConditionType::DisruptionTarget,
        observed_generation: pod.metadata.generation,
        status: ConditionStatus::True,
        reason: "TerminationByKubelet".into(),
        message: message.into(),
        ..PodCondition::default()
    }
}

/// Makes the status of a pod.
pub fn pod_status(input: &StatusInput) -> PodStatus {
    let StatusInput { pod, previous, features, .. } = *input;
    let class = qos::qos_class_for_status(pod, qos::PodLevel::from(features));
    let mut status = PodStatus { qos_class: Some(class), ..PodStatus::default() };
    containers::fill(input, &mut status);
    addresses::fill(input, &mut status);
    if features.enabled(Gate::InPlacePodLevelResourcesVerticalScaling) {
        resources::fill_pod_level(input, &mut status);
    }

    readiness::fill(input, &mut status);
    let phase = phase::phase(input, &status);
    set_phase(input, &mut status, phase);
    conditions::fill(input, &mut status);

    status.start_time = previous.start_time.or(Some(Time::from(input.now)));
    status.observed_generation = previous.observed_generation.max(pod.metadata.generation);
    termination_message::shorten(pod, &mut status);
    status
}

/// What has come to an end stays there, whatever the containers say now.
fn set_phase(input: &StatusInput, status: &mut PodStatus, phase: PodPhase) {
    let StatusInput { pod, previous, .. } = *input;
    let ended = [&previous.phase, &pod.status.phase].into_iter().flatten().find(|phase| phase.is_terminal());
    let phase = if phase.is_terminal() { phase } else { ended.cloned().unwrap_or(phase) };
    if previous.phase.as_ref() == Some(&phase) {
        status.reason = first_of(&previous.reason, &pod.status.reason);
        status.message = first_of(&previous.message, &pod.status.message);
    }
    status.phase = Some(phase);

    let too_late = deadline(pod, previous).is_some_and(|deadline| deadline <= input.now);
    let failure = input.failure.cloned().or_else(|| too_late.then(Failure::deadline_exceeded));
    if let Some(failure) = failure {
        if !failure.spares_success() {
            status.phase = Some(PodPhase::Failed);
        }
        (status.reason, status.message) = (failure.reason, failure.message);
    }
    if let Some(api) = pod.status.phase.as_ref().filter(|phase| phase.is_terminal()) {
        status.phase = Some(api.clone());
    }
}

fn first_of(first: &Text, second: &Text) -> Text {
    if first.is_empty() { second.clone() } else { first.clone() }
}
