//! What the API server has to be told of a pod next, decided from what is shown of it and from what the server has.

use std::sync::Arc;

use crablet_agent::mirrors::is_mirror_of;
use crablet_agent::sources::{CONFIG_HASH, CONFIG_MIRROR};
use crablet_agent::statuses::Reported;
use crablet_api::core::{Pod, PodConditionType, PodStatus};
use crablet_api::meta::{ConditionStatus, OwnerReference};
use crablet_api::{FeatureGates, Text, patch};
use crablet_core::qos::is_static;
use crablet_core::status::{keep_what_ended, to_publish};
use jiff::Timestamp;

use crate::node::{Identity, node_owner};
use crate::pod_source::key;

/// What is to be done at the server about a pod.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Its status is to be this one, by this patch.
    Patch { at_server: Arc<Pod>, status: Box<PodStatus>, patch: Vec<u8> },
    /// It has come to its end, or is no mirror of anything.
    Delete { namespace: Text, name: Text, uid: Text },
    /// It needs a mirror.
    CreateMirror(Box<Pod>),
}

/// What goes first where not all can go at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    Usual,
    /// Others wait for it: a pod's readiness, its address, its end.
    Awaited,
}

impl Step {
    pub(super) fn patch(&self) -> &[u8] {
        match self {
            Step::Patch { patch, .. } => patch,
            Step::Delete { .. } | Step::CreateMirror(_) => &[],
        }
    }

    /// The UID of the object at the server that it is about, if there is one.
    pub(super) fn about(&self) -> Option<&Text> {
        match self {
            Step::Patch { at_server, .. } => Some(&at_server.metadata.uid),
            Step::Delete { uid, .. } => Some(uid),
            Step::CreateMirror(_) => None,
        }
    }
}

/// What is known of a pod that is shown, and of what the server has of it: the pod itself, or the mirror of a static one.
pub(super) struct View<'a> {
    pub(super) report: &'a Reported,
    /// Whether its source has it. Another of the same name may be wanted in its place.
    pub(super) is_wanted: bool,
    /// Whether the server did not take its status.
    pub(super) is_invalid: bool,
    /// Whether a static pod of its name is still there, in whose place it comes.
    pub(super) comes_after_another: bool,
    pub(super) at_server: Option<&'a Arc<Pod>>,
    pub(super) node: Option<Identity>,
    pub(super) features: &'a FeatureGates,
    pub(super) now: Timestamp,
}

impl View<'_> {
    /// What is to be done next.
    pub(super) fn next_step(&self) -> Option<Step> {
        match is_static(&self.report.pod) {
            true => self.step_of_static_pod(),
            false => {
                // What its source does not have any more, the server has deleted.
                let pod = self.at_server.filter(|_| self.is_wanted)?;
                let is_over = self.report.terminated && self.report.pod.metadata.deletion_timestamp.is_some();
                self.status_step(pod).or_else(|| is_over.then(|| delete(pod)))
            }
        }
    }

    /// A mirror is made, and replaced, for the pod that is wanted under its name, once the one before it is gone. Of one
    /// that is not wanted any more nothing is told, as upstream: its mirror goes with it. A manifest that comes back has
    /// another life under the same UID, of which the mirror of the one before may not be able to tell.
    fn step_of_static_pod(&self) -> Option<Step> {
        let pod = &self.report.pod;
        let mirror = self.at_server.filter(|pod| pod.metadata.annotations.get(CONFIG_MIRROR).is_some());
        match mirror {
            _ if !self.is_wanted || self.comes_after_another => None,
            Some(mirror) if is_mirror_of(mirror, pod) => {
                let step = self.status_step(mirror)?;
                Some(if self.is_invalid { delete(mirror) } else { step })
            }
            Some(mirror) => Some(delete(mirror)),
            None => Some(Step::CreateMirror(Box::new(mirror_of(pod, self.node.as_ref()?)))),
        }
    }

    fn status_step(&self, at_server: &Arc<Pod>) -> Option<Step> {
        // Nothing is known of it yet: the runtime may not answer, and another kubelet have run it.
        self.report.status.phase.as_ref()?;
        // What an agent remembers from before a crash can be older than what it told last: it looks before it tells more.
        let told = at_server.status.observed_generation;
        if self.report.status.observed_generation < told && told <= at_server.metadata.generation {
            return None;
        }
        let mut new = to_publish(at_server, &self.report.status, false, self.features, self.now);
        // A mirror is made anew instead.
        if !is_static(&self.report.pod) {
            keep_what_ended(at_server, &mut new, self.features);
        }
        // The server says it of every pod, also of one that nobody has looked at yet.
        new.qos_class = new.qos_class.or_else(|| at_server.status.qos_class.clone());
        if new == at_server.status {
            return None;
        }
        let patch = patch::pod_status(&at_server.metadata.uid, &at_server.status, &new)?;
        let patch = patch.to_json();
        Some(Step::Patch { at_server: Arc::clone(at_server), status: Box::new(new), patch })
    }
}

fn delete(pod: &Pod) -> Step {
    let (namespace, name) = key(pod);
    Step::Delete { namespace, name, uid: pod.metadata.uid.clone() }
}

/// How urgent it is to tell a status where another is known.
pub(super) fn urgency(old: &PodStatus, new: &PodStatus) -> Urgency {
    let is_ready = |status: &PodStatus| {
        let ready = status.conditions.iter().find(|condition| condition.r#type == PodConditionType::Ready);
        ready.is_some_and(|condition| condition.status == ConditionStatus::True)
    };
    let is_awaited =
        is_ready(old) != is_ready(new) || old.is_over() != new.is_over() || old.pod_ips != new.pod_ips;
    if is_awaited { Urgency::Awaited } else { Urgency::Usual }
}

fn mirror_of(pod: &Pod, node: &Identity) -> Pod {
    let mut mirror = Pod { status: PodStatus::default(), ..pod.clone() };
    let hash = pod.metadata.annotations.get(CONFIG_HASH).cloned().unwrap_or_default();
    mirror.metadata.annotations.insert(CONFIG_MIRROR, hash);
    mirror.metadata.creation_timestamp = None;
    mirror.metadata.owner_references =
        Box::new([OwnerReference { controller: Some(true), ..node_owner(node) }]);
    mirror
}

#[cfg(test)]
mod tests {
    use crablet_api::core::{PodCondition, PodIP, PodPhase};

    use super::*;

    #[test]
    fn a_change_of_readiness_of_the_address_or_to_the_end_is_awaited() {
        let ready = |status: ConditionStatus| {
            let condition =
                PodCondition { r#type: PodConditionType::Ready, status, ..PodCondition::default() };
            PodStatus { conditions: Box::new([condition]), ..PodStatus::default() }
        };
        let of_phase = |phase| PodStatus { phase: Some(phase), ..PodStatus::default() };
        let none = PodStatus::default;
        let address = PodStatus { pod_ips: Box::new([PodIP { ip: "10.0.0.1".into() }]), ..none() };
        let (is, is_not) = (ready(ConditionStatus::True), ready(ConditionStatus::False));
        for (old, new, expected) in [
            (none(), is.clone(), Urgency::Awaited),
            (is.clone(), is_not.clone(), Urgency::Awaited),
            (none(), is_not, Urgency::Usual),
            (is.clone(), is, Urgency::Usual),
            (none(), address.clone(), Urgency::Awaited),
            (address.clone(), address, Urgency::Usual),
            (of_phase(PodPhase::Running), of_phase(PodPhase::Failed), Urgency::Awaited),
            (of_phase(PodPhase::Running), of_phase(PodPhase::Succeeded), Urgency::Awaited),
            (of_phase(PodPhase::Pending), of_phase(PodPhase::Running), Urgency::Usual),
            (of_phase(PodPhase::Succeeded), of_phase(PodPhase::Failed), Urgency::Usual),
        ] {
            assert_eq!(urgency(&old, &new), expected, "{old:?} {new:?}");
        }
    }
}
