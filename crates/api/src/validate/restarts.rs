//! When a container starts again: its own policy and rules, and what a changed resource does to it.

use std::collections::BTreeSet;

use crate::core::{
    Container, ContainerResizePolicy, ContainerRestartPolicy, ContainerRestartRule,
    ContainerRestartRuleAction as Action, ContainerRestartRuleOnExitCodesOperator as Operator,
    ResourceResizeRestartPolicy,
};
use crate::features::Gate;

use super::Rules;
use super::error::{Errors, Word};
use super::path::Path;

const RULES_LIMIT: usize = 20;
const EXIT_CODES_LIMIT: usize = 255;
const POLICY_NEEDED: &str = "must specify restartPolicy when restart rules are used";

pub(super) fn check_container_restarts(
    errors: &mut Errors,
    path: &Path<'_>,
    container: &Container,
    rules: &Rules<'_>,
) {
    match &container.restart_policy {
        None if container.restart_policy_rules.is_empty() => return,
        None => errors.required(&path.child("restartPolicy"), POLICY_NEEDED),
        Some(ContainerRestartPolicy::Other(policy)) => {
            let supported = ["Always", "Never", "OnFailure"];
            errors.not_supported(&path.child("restartPolicy"), Word(policy), &supported);
        }
        Some(
            ContainerRestartPolicy::Always
            | ContainerRestartPolicy::Never
            | ContainerRestartPolicy::OnFailure,
        ) => {}
    }
    let path = path.child("restartPolicyRules");
    if container.restart_policy_rules.len() > RULES_LIMIT {
        errors.too_many(&path, container.restart_policy_rules.len(), RULES_LIMIT);
    }
    for (index, rule) in container.restart_policy_rules.iter().enumerate() {
        check_rule(errors, &path.index(index), rule, rules);
    }
}

pub(super) fn check_init_container_restarts(
    errors: &mut Errors,
    path: &Path<'_>,
    container: &Container,
    rules: &Rules<'_>,
) {
    let Some(policy) = &container.restart_policy else {
        if !container.restart_policy_rules.is_empty() {
            errors.required(&path.child("restartPolicy"), POLICY_NEEDED);
        }
        return;
    };
    let sidecar = *policy == ContainerRestartPolicy::Always;
    if !rules.features.enabled(Gate::ContainerRestartRules) {
        if !sidecar {
            errors.not_supported(&path.child("restartPolicy"), Word(policy.as_str()), &["Always"]);
        }
    } else if !sidecar || rules.features.enabled(Gate::RestartAllContainersOnContainerExits) {
        check_container_restarts(errors, path, container, rules);
    } else if !container.restart_policy_rules.is_empty() {
        let detail = "restartPolicyRules are not allowed for init containers with restart policy Always";
        errors.forbidden(&path.child("restartPolicyRules"), detail);
    }
}

fn check_rule(errors: &mut Errors, path: &Path<'_>, rule: &ContainerRestartRule, rules: &Rules<'_>) {
    let restart_all = rules.features.enabled(Gate::RestartAllContainersOnContainerExits);
    let supported: &[&str] = if restart_all { &["Restart", "RestartAllContainers"] } else { &["Restart"] };
    let action = rule.action.as_ref().map_or("", Action::as_str);
    if !supported.contains(&action) {
        errors.not_supported(&path.child("action"), Word(action), supported);
    }
    let path = path.child("exitCodes");
    let Some(exit_codes) = rule.exit_codes.as_deref() else {
        return errors.required(&path, "must be specified");
    };
    let operator = exit_codes.operator.as_ref().map_or("", Operator::as_str);
    if !Operator::WORDS.contains(&operator) {
        errors.not_supported(&path.child("operator"), Word(operator), Operator::WORDS);
    }
    if exit_codes.values.len() > EXIT_CODES_LIMIT {
        errors.too_many(&path.child("values"), exit_codes.values.len(), EXIT_CODES_LIMIT);
    }
}

pub(super) fn check_resize_policy(
    errors: &mut Errors,
    path: &Path<'_>,
    policies: &[ContainerResizePolicy],
    pod_never_restarts: bool,
) {
    let mut resources = BTreeSet::new();
    for (index, policy) in policies.iter().enumerate() {
        let resource = policy.resource_name.as_ref();
        if !resources.insert(resource) {
            errors.duplicate(&path.index(index), Word(resource));
        }
        match resource {
            "cpu" | "memory" => {}
            "" => errors.required(path, ""),
            other => errors.not_supported(path, Word(other), &["cpu", "memory"]),
        }
        match policy.restart_policy.as_str() {
            "NotRequired" | "RestartContainer" => {}
            "" => errors.required(path, ""),
            other => errors.not_supported(path, Word(other), &["NotRequired", "RestartContainer"]),
        }
        if pod_never_restarts && policy.restart_policy != ResourceResizeRestartPolicy::NotRequired {
            let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.invalid(path, Word(policy.restart_policy.as_str()), detail);
        }
    }
}
