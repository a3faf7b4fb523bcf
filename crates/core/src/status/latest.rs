//! Which of two statuses of a pod was made later, by what they say happened.

use crablet_api::core::{ContainerState, ContainerStatus, PodConditionType, PodStatus};
use crablet_api::meta::Time;

/// Whether something is said to have happened in `one` after all that `other` knows of. What others than kubelets say of a
/// pod does not count.
pub fn is_newer(one: &PodStatus, other: &PodStatus) -> bool {
    latest(one) > latest(other)
}

/// When what a kubelet says of a pod last became something else.
fn latest(status: &PodStatus) -> Option<Time> {
    let conditions = status.conditions.iter().filter(|condition| is_kubelets(&condition.r#type));
    let transitions = conditions.filter_map(|condition| condition.last_transition_time);
    transitions.chain(status.all_statuses().flat_map(happened)).chain(status.start_time).max()
}

/// Whether only kubelets say it. That a pod is not ready is also said of all pods of a node that has not been heard of.
fn is_kubelets(condition: &PodConditionType) -> bool {
    matches!(
        condition,
        PodConditionType::ContainersReady
            | PodConditionType::Initialized
            | PodConditionType::PodReadyToStartContainers
    )
}

fn happened(status: &ContainerStatus) -> impl Iterator<Item = Time> {
    [status.state.one(), status.last_state.one()].into_iter().flatten().filter_map(|state| match state {
        ContainerState::Running(running) => running.started_at,
        ContainerState::Terminated(ended) => ended.finished_at.or(ended.started_at),
        ContainerState::Waiting(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(text: &str) -> PodStatus {
        let manifest = format!("{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, status: {text}}}");
        crablet_api::from_manifest::<crablet_api::core::Pod>("test", &manifest).unwrap().0.status
    }

    fn condition(kind: &str, second: u32) -> String {
        format!("{{conditions: [{{type: {kind}, lastTransitionTime: '2026-01-01T00:00:{second:02}Z'}}]}}")
    }

    fn container(state: &str) -> String {
        format!("{{containerStatuses: [{{name: c, state: {state}}}]}}")
    }

    #[test]
    fn the_one_in_which_something_happened_later_is_newer() {
        let at = |second| format!("2026-01-01T00:00:{second:02}Z");
        let (started, ended) = (
            container(&format!("{{running: {{startedAt: '{}'}}}}", at(7))),
            container(&format!("{{terminated: {{startedAt: '{}', finishedAt: '{}'}}}}", at(7), at(9))),
        );
        let waiting = container("{waiting: {reason: CrashLoopBackOff}}");
        let last = format!(
            "{{containerStatuses: [{{name: c, lastState: {{terminated: {{finishedAt: '{}'}}}}}}]}}",
            at(9)
        );
        for (one, other, expected) in [
            ("{}", "{}", false),
            (&*condition("ContainersReady", 5), "{}", true),
            (&*condition("ContainersReady", 6), &*condition("ContainersReady", 5), true),
            (&*condition("ContainersReady", 5), &*condition("ContainersReady", 5), false),
            (&*condition("ContainersReady", 5), &*condition("ContainersReady", 6), false),
            (&*condition("Initialized", 6), &*condition("ContainersReady", 5), true),
            // Of whoever a gate is for, of the scheduler, of an eviction, and of who looks after nodes.
            (&*condition("example.com/gate", 6), &*condition("ContainersReady", 5), false),
            (&*condition("PodScheduled", 6), &*condition("ContainersReady", 5), false),
            (&*condition("DisruptionTarget", 6), &*condition("ContainersReady", 5), false),
            (&*condition("Ready", 6), &*condition("ContainersReady", 5), false),
            (&*started, &*condition("ContainersReady", 6), true),
            (&*ended, &*started, true),
            (&*last, &*started, true),
            (&*waiting, &*started, false),
            (&*started, &*waiting, true),
        ] {
            assert_eq!(is_newer(&status(one), &status(other)), expected, "{one} {other}");
        }
    }
}
