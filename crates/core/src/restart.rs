//! Whether a container that ended runs again.

use crablet_api::core::PodConditionType;
use crablet_api::core::{
    Container, ContainerRestartPolicy, ContainerRestartRule, ContainerRestartRuleAction,
    ContainerRestartRuleOnExitCodesOperator, ContainerState as ApiState, Pod, PodSpec, PodStatus,
    RestartPolicy,
};
use crablet_api::meta::ConditionStatus;
use crablet_api::{FeatureGates, Gate};
use crablet_cri_api::ContainerState;

use crate::observed;

/// Whether an init container goes on running beside the others.
pub fn is_sidecar(init_container: &Container) -> bool {
    init_container.restart_policy == Some(ContainerRestartPolicy::Always)
}

/// Whether the pod as a whole lets a failed container run again.
pub(crate) fn pod_restarts_failures(spec: &PodSpec) -> bool {
    spec.restart_policy != Some(RestartPolicy::Never)
}

/// Whether a container that could not be asked how it ended runs again: its rules have no exit code to go by.
pub(crate) fn restarts_without_exit_code(
    container: &Container,
    spec: &PodSpec,
    features: &FeatureGates,
) -> bool {
    match &container.restart_policy {
        Some(policy) if features.enabled(Gate::ContainerRestartRules) => {
            *policy != ContainerRestartPolicy::Never
        }
        Some(_) | None => pod_restarts_failures(spec),
    }
}

/// Whether a container that ended with `exit_code` runs again: as its rules say, else its own policy, else its pod's.
pub fn restarts_after_exit(
    container: &Container,
    spec: &PodSpec,
    exit_code: i32,
    features: &FeatureGates,
) -> bool {
    if !features.enabled(Gate::ContainerRestartRules) {
        return restarts_by_pod(spec, exit_code);
    }
    let Some(policy) = &container.restart_policy else { return restarts_by_pod(spec, exit_code) };
    match matching_rule(container, exit_code).and_then(|rule| rule.action.as_ref()) {
        Some(ContainerRestartRuleAction::Restart) => return true,
        Some(ContainerRestartRuleAction::RestartAllContainers)
            if features.enabled(Gate::RestartAllContainersOnContainerExits) =>
        {
            return true;
        }
        Some(ContainerRestartRuleAction::RestartAllContainers | ContainerRestartRuleAction::Other(_))
        | None => {}
    }
    match policy {
        ContainerRestartPolicy::Always => true,
        ContainerRestartPolicy::OnFailure => exit_code != 0,
        ContainerRestartPolicy::Never => false,
        ContainerRestartPolicy::Other(_) => restarts_by_pod(spec, exit_code),
    }
}

fn restarts_by_pod(spec: &PodSpec, exit_code: i32) -> bool {
    match &spec.restart_policy {
        Some(RestartPolicy::Never) => false,
        Some(RestartPolicy::OnFailure) => exit_code != 0,
        Some(RestartPolicy::Always | RestartPolicy::Other(_)) | None => true,
    }
}

/// The first of a container's rules that is about `exit_code`.
pub(crate) fn matching_rule(container: &Container, exit_code: i32) -> Option<&ContainerRestartRule> {
    container.restart_policy_rules.iter().find(|rule| {
        let Some(codes) = &rule.exit_codes else { return false };
        let listed = codes.values.contains(&exit_code);
        match &codes.operator {
            Some(ContainerRestartRuleOnExitCodesOperator::In) => listed,
            Some(ContainerRestartRuleOnExitCodesOperator::NotIn) => !listed,
            Some(ContainerRestartRuleOnExitCodesOperator::Other(_)) | None => false,
        }
    })
}

/// Whether a container that ended with `exit_code` restarts the whole pod in place.
pub(crate) fn restarts_all(container: &Container, exit_code: i32) -> bool {
    matching_rule(container, exit_code)
        .is_some_and(|rule| rule.action == Some(ContainerRestartRuleAction::RestartAllContainers))
}

/// Whether a container that does not run is to be started, now or after a while.
pub fn is_to_be_started(
    container: &Container,
    pod: &Pod,
    observed: &observed::Pod,
    features: &FeatureGates,
) -> bool {
    if pod.metadata.deletion_timestamp.is_some() {
        return false;
    }
    let Some(latest) = observed.latest(&container.name) else { return true };
    match latest.state {
        ContainerState::Running => false,
        ContainerState::Created | ContainerState::Unknown => true,
        ContainerState::Exited => {
            latest.is_replaced || restarts_after_exit(container, &pod.spec, latest.exit_code, features)
        }
    }
}

/// Whether any exit of any container could restart the whole pod in place.
pub(crate) fn could_restart_all(spec: &PodSpec) -> bool {
    spec.init_and_regular_containers().any(|container| {
        let mut actions = container.restart_policy_rules.iter().map(|rule| &rule.action);
        actions.any(|action| *action == Some(ContainerRestartRuleAction::RestartAllContainers))
    })
}

/// Whether the whole pod is to be restarted in place: it already is under way, or a container ended in a way that asks
/// for it, by what the runtime says or by what the status said last.
pub(crate) fn all_are_to_restart(pod: &Pod, observed: &observed::Pod, previous: &PodStatus) -> bool {
    is_restarting_all(previous)
        || pod.spec.init_and_regular_containers().any(|container| {
            let Some(latest) = observed.latest(&container.name) else { return false };
            if latest.state != ContainerState::Exited {
                return false;
            }
            restarts_all(container, latest.exit_code)
                || previous_exit_code(previous, &container.name)
                    .is_some_and(|code| restarts_all(container, code))
        })
}

/// Whether the status says that the whole pod is being restarted in place.
pub(crate) fn is_restarting_all(status: &PodStatus) -> bool {
    status.conditions.iter().any(|condition| {
        condition.r#type == PodConditionType::AllContainersRestarting
            && condition.status == ConditionStatus::True
    })
}

/// Whether every container of the pod is gone from the runtime, so that it can begin anew.
pub(crate) fn all_are_removed(pod: &Pod, observed: &observed::Pod) -> bool {
    let mut containers = pod.spec.init_and_regular_containers();
    containers.all(|container| observed.latest(&container.name).is_none())
}

fn previous_exit_code(previous: &PodStatus, name: &str) -> Option<i32> {
    match previous.find_container_status(name)?.state.one()? {
        ApiState::Terminated(terminated) => Some(terminated.exit_code),
        ApiState::Waiting(_) | ApiState::Running(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crablet_api::testing::pod_yaml;

    /// A container with this YAML, in a pod with this restart policy, that ended with each of these codes.
    #[track_caller]
    fn check(pod_policy: &str, container: &str, expected: &[(i32, bool)]) {
        let pod = pod_yaml(&format!(
            "spec:\n  restartPolicy: {pod_policy}\n  containers:\n  - {{name: c{container}}}\n"
        ));
        for &(code, restarts) in expected {
            let found =
                restarts_after_exit(&pod.spec.containers[0], &pod.spec, code, &FeatureGates::default());
            assert_eq!(found, restarts, "{pod_policy}, {container:?}, exit code {code}");
        }
    }

    #[test]
    fn the_pods_policy_counts_where_a_container_has_none() {
        check("Always", "", &[(0, true), (1, true)]);
        check("OnFailure", "", &[(0, false), (1, true)]);
        check("Never", "", &[(0, false), (1, false)]);
    }

    #[test]
    fn a_containers_policy_counts_more_than_its_pods() {
        check("Never", ", restartPolicy: Always", &[(0, true), (1, true)]);
        check("Always", ", restartPolicy: OnFailure", &[(0, false), (1, true)]);
        check("Always", ", restartPolicy: Never", &[(0, false), (1, false)]);
    }

    #[test]
    fn the_first_rule_that_matches_counts_more_than_the_policy() {
        let rules = ", restartPolicy: Never, restartPolicyRules: [\
            {action: Restart, exitCodes: {operator: In, values: [42, 43]}}]";
        check("Never", rules, &[(0, false), (1, false), (42, true), (43, true)]);
        let rules = ", restartPolicy: OnFailure, restartPolicyRules: [\
            {action: Restart, exitCodes: {operator: NotIn, values: [1]}}]";
        check("Never", rules, &[(0, true), (1, true), (2, true)]);
    }

    #[test]
    fn rules_without_a_policy_of_the_container_do_not_count() {
        let rules = ", restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]";
        check("Never", rules, &[(1, false)]);
    }

    #[test]
    fn with_the_gates_off_only_the_pods_policy_counts() {
        let pod = pod_yaml(
            "spec: {restartPolicy: Never, containers: [{name: c, restartPolicy: Always, restartPolicyRules: [\
            {action: RestartAllContainers, exitCodes: {operator: In, values: [1]}}]}]}",
        );
        let container = &pod.spec.containers[0];
        let rules = FeatureGates::default().with(Gate::RestartAllContainersOnContainerExits, false);
        let none = rules.with(Gate::ContainerRestartRules, false);
        let restarts = |features| restarts_after_exit(container, &pod.spec, 1, features);
        assert_eq!(
            (restarts(&FeatureGates::default()), restarts(&rules), restarts(&none)),
            (true, true, false)
        );
    }
}
