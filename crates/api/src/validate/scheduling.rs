//! Where a pod wants to be, and what it puts up with.

use std::collections::BTreeSet;

use crate::core::{
    Affinity, NodeInclusionPolicy, NodeSelectorOperator, NodeSelectorRequirement, NodeSelectorTerm,
    PodAffinityTerm, PodSchedulingGate, TaintEffect, Toleration, TolerationOperator,
    TopologySpreadConstraint, UnsatisfiableConstraintAction, WeightedPodAffinityTerm,
};
use crate::features::Gate;
use crate::meta::LabelSelector;
use crate::names::{
    dns1123_label_errors, dns1123_subdomain_errors, label_value_errors, qualified_name_errors,
};
use crate::text::Text;

use super::Rules;
use super::error::{Errors, Word, quoted};
use super::labels::{check_label_name, check_label_selector};
use super::path::Path;
use super::text;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const NO_SELECTOR: &str = "must not be specified when labelSelector is not set";
const IN_BOTH: &str = "exists in both matchLabelKeys and labelSelector";
const NO_OPERATOR: &str = "not a valid selector operator";

pub(super) fn check_affinity(errors: &mut Errors, path: &Path<'_>, affinity: Option<&Affinity>) {
    let Some(affinity) = affinity else { return };
    if let Some(of_nodes) = affinity.node_affinity.as_deref() {
        let path = path.child("nodeAffinity");
        if let Some(selector) = of_nodes.required_during_scheduling_ignored_during_execution.as_deref() {
            let path = path.child(REQUIRED);
            check_node_terms(errors, &path.child("nodeSelectorTerms"), &selector.node_selector_terms);
        }
        let preferred = path.child(PREFERRED);
        let terms = of_nodes.preferred_during_scheduling_ignored_during_execution.iter();
        for (index, term) in terms.enumerate() {
            let path = preferred.index(index);
            check_weight(errors, &path, term.weight);
            check_node_term(errors, &path.child("preference"), &term.preference, true);
        }
    }
    if let Some(near) = affinity.pod_affinity.as_deref() {
        let path = path.child("podAffinity");
        let required = &near.required_during_scheduling_ignored_during_execution;
        let preferred = &near.preferred_during_scheduling_ignored_during_execution;
        check_pod_terms(errors, &path, required, preferred);
    }
    if let Some(far) = affinity.pod_anti_affinity.as_deref() {
        let path = path.child("podAntiAffinity");
        let required = &far.required_during_scheduling_ignored_during_execution;
        let preferred = &far.preferred_during_scheduling_ignored_during_execution;
        check_pod_terms(errors, &path, required, preferred);
    }
}

fn check_weight(errors: &mut Errors, path: &Path<'_>, weight: i32) {
    if !(1..=100).contains(&weight) {
        errors.invalid(&path.child("weight"), weight, "must be in the range 1-100");
    }
}

pub(super) fn check_node_terms(errors: &mut Errors, path: &Path<'_>, terms: &[NodeSelectorTerm]) {
    if terms.is_empty() {
        errors.required(path, "must have at least one node selector term");
    }
    for (index, term) in terms.iter().enumerate() {
        check_node_term(errors, &path.index(index), term, false);
    }
}

/// What is preferred may name values that no label can have: it then matches nothing, and that is all.
fn check_node_term(errors: &mut Errors, path: &Path<'_>, term: &NodeSelectorTerm, any_value: bool) {
    let expressions = path.child("matchExpressions");
    for (index, requirement) in term.match_expressions.iter().enumerate() {
        check_node_labels(errors, &expressions.index(index), requirement, any_value);
    }
    let fields = path.child("matchFields");
    for (index, requirement) in term.match_fields.iter().enumerate() {
        check_node_fields(errors, &fields.index(index), requirement);
    }
}

fn check_node_labels(
    errors: &mut Errors,
    path: &Path<'_>,
    requirement: &NodeSelectorRequirement,
    any_value: bool,
) {
    let values = path.child("values");
    match &requirement.operator {
        NodeSelectorOperator::In | NodeSelectorOperator::NotIn => {
            if requirement.values.is_empty() {
                errors.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
            }
        }
        NodeSelectorOperator::Exists | NodeSelectorOperator::DoesNotExist => {
            if !requirement.values.is_empty() {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.forbidden(&values, detail);
            }
        }
        NodeSelectorOperator::Gt | NodeSelectorOperator::Lt => {
            if requirement.values.len() != 1 {
                let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                errors.required(&values, detail);
            }
        }
        NodeSelectorOperator::Other(operator) => {
            errors.invalid(&path.child("operator"), Word(operator), NO_OPERATOR);
        }
    }
    check_label_name(errors, &path.child("key"), &requirement.key);
    if !any_value {
        for (index, value) in requirement.values.iter().enumerate() {
            errors.invalid_each(&values.index(index), value, label_value_errors(value));
        }
    }
}

fn check_node_fields(errors: &mut Errors, path: &Path<'_>, requirement: &NodeSelectorRequirement) {
    let values = path.child("values");
    if matches!(requirement.operator, NodeSelectorOperator::In | NodeSelectorOperator::NotIn) {
        if requirement.values.len() != 1 {
            let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            errors.required(&values, detail);
        }
    } else {
        errors.invalid(&path.child("operator"), Word(requirement.operator.as_str()), NO_OPERATOR);
    }
    if requirement.key.as_ref() != "metadata.name" {
        let detail = "not a valid field selector key";
        return errors.invalid(&path.child("key"), requirement.key.as_ref(), detail);
    }
    for (index, value) in requirement.values.iter().enumerate() {
        errors.invalid_each(&values.index(index), value, dns1123_subdomain_errors(value));
    }
}

fn check_pod_terms(
    errors: &mut Errors,
    path: &Path<'_>,
    required: &[PodAffinityTerm],
    preferred: &[WeightedPodAffinityTerm],
) {
    let required_path = path.child(REQUIRED);
    for (index, term) in required.iter().enumerate() {
        check_pod_term(errors, &required_path.index(index), term);
    }
    let preferred_path = path.child(PREFERRED);
    for (index, weighted) in preferred.iter().enumerate() {
        let path = preferred_path.index(index);
        check_weight(errors, &path, weighted.weight);
        check_pod_term(errors, &path.child("podAffinityTerm"), &weighted.pod_affinity_term);
    }
}

fn check_pod_term(errors: &mut Errors, path: &Path<'_>, term: &PodAffinityTerm) {
    check_label_selector(errors, &path.child("labelSelector"), term.label_selector.as_deref());
    check_label_selector(errors, &path.child("namespaceSelector"), term.namespace_selector.as_deref());
    for namespace in &term.namespaces {
        errors.invalid_each(&path.child("namespace"), namespace, dns1123_label_errors(namespace));
    }
    let selector = term.label_selector.as_deref();
    check_match_label_keys(errors, path, &term.match_label_keys, &term.mismatch_label_keys, selector);
    if term.topology_key.is_empty() {
        errors.required(&path.child("topologyKey"), "can not be empty");
    }
    check_label_name(errors, &path.child("topologyKey"), &term.topology_key);
}

fn check_match_label_keys(
    errors: &mut Errors,
    path: &Path<'_>,
    matching: &[Text],
    differing: &[Text],
    selector: Option<&LabelSelector>,
) {
    let matching_path = path.child("matchLabelKeys");
    for (path, keys) in [(&matching_path, matching), (&path.child("mismatchLabelKeys"), differing)] {
        if selector.is_none() {
            if !keys.is_empty() {
                errors.forbidden(path, NO_SELECTOR);
            }
            continue;
        }
        for (index, key) in keys.iter().enumerate() {
            check_label_name(errors, &path.index(index), key);
        }
    }
    if let Some(selector) = selector {
        let mut selected: BTreeSet<&str> = selector.match_labels.keys().collect();
        for expression in &selector.match_expressions {
            let key = expression.key.as_ref();
            // The API server has added the keys to the selector by now; a second time is one too many.
            if !selected.insert(key)
                && let Some(index) = matching.iter().rposition(|other| other.as_ref() == key)
            {
                errors.invalid(&path.index(index), key, IN_BOTH);
            }
        }
    }
    for (index, key) in matching.iter().enumerate() {
        if differing.contains(key) {
            let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
            errors.invalid(&matching_path.index(index), key.as_ref(), detail);
        }
    }
}

pub(super) fn check_topology_spread(
    errors: &mut Errors,
    path: &Path<'_>,
    constraints: &[TopologySpreadConstraint],
    rules: &Rules<'_>,
) {
    for (index, constraint) in constraints.iter().enumerate() {
        let path = path.index(index);
        if constraint.max_skew <= 0 {
            errors.invalid(&path.child("maxSkew"), constraint.max_skew, text::POSITIVE);
        }
        if constraint.topology_key.is_empty() {
            errors.required(&path.child("topologyKey"), "can not be empty");
        }
        let action = &constraint.when_unsatisfiable;
        if let UnsatisfiableConstraintAction::Other(action) = action {
            let supported = UnsatisfiableConstraintAction::WORDS;
            errors.not_supported(&path.child("whenUnsatisfiable"), Word(action), supported);
        }
        let again = constraints[index + 1..].iter().any(|other| {
            other.topology_key == constraint.topology_key && other.when_unsatisfiable == *action
        });
        if again {
            let pair = format!("{{{}, {action}}}", constraint.topology_key);
            errors.duplicate(&path.child("{topologyKey, whenUnsatisfiable}"), pair.as_str());
        }
        check_minimal_domains(errors, &path.child("minDomains"), constraint);
        for (field, policy) in [
            ("nodeAffinityPolicy", &constraint.node_affinity_policy),
            ("nodeTaintsPolicy", &constraint.node_taints_policy),
        ] {
            if let Some(NodeInclusionPolicy::Other(policy)) = policy {
                errors.not_supported(&path.child(field), Word(policy), &["Honor", "Ignore"]);
            }
        }
        let (keys, selector) = (&constraint.match_label_keys, constraint.label_selector.as_deref());
        if rules.features.enabled(Gate::MatchLabelKeysInPodTopologySpread)
            && rules.features.enabled(Gate::MatchLabelKeysInPodTopologySpreadSelectorMerge)
        {
            check_match_label_keys(errors, &path, keys, &[], selector);
        } else {
            check_match_label_keys_apart(errors, &path.child("matchLabelKeys"), keys, selector);
        }
        check_label_selector(errors, &path.child("labelSelector"), selector);
    }
}

/// As it was before the API server merged the keys into the selector.
fn check_match_label_keys_apart(
    errors: &mut Errors,
    path: &Path<'_>,
    keys: &[Text],
    selector: Option<&LabelSelector>,
) {
    if selector.is_none() && !keys.is_empty() {
        errors.forbidden(path, NO_SELECTOR);
    }
    for (index, key) in keys.iter().enumerate() {
        let path = path.index(index);
        check_label_name(errors, &path, key);
        let is_selected = |selector: &LabelSelector| {
            selector.match_labels.contains_key(key)
                || selector.match_expressions.iter().any(|expression| expression.key == *key)
        };
        if selector.is_some_and(is_selected) {
            errors.invalid(&path, key.as_ref(), IN_BOTH);
        }
    }
}

fn check_minimal_domains(errors: &mut Errors, path: &Path<'_>, constraint: &TopologySpreadConstraint) {
    let Some(domains) = constraint.min_domains else { return };
    if domains <= 0 {
        errors.invalid(path, domains, text::POSITIVE);
    }
    if constraint.when_unsatisfiable != UnsatisfiableConstraintAction::DoNotSchedule {
        let action = constraint.when_unsatisfiable.as_str();
        let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
        errors.invalid(path, domains, detail);
    }
}

pub(super) fn check_tolerations(
    errors: &mut Errors,
    path: &Path<'_>,
    tolerations: &[Toleration],
    rules: &Rules<'_>,
) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let path = path.index(index);
        if !toleration.key.is_empty() {
            check_label_name(errors, &path.child("key"), &toleration.key);
        } else if toleration.operator != Some(TolerationOperator::Exists) {
            let operator = toleration.operator.as_ref().map_or("", TolerationOperator::as_str);
            let detail =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(&path.child("operator"), Word(operator), detail);
        }
        if toleration.toleration_seconds.is_some() && toleration.effect != Some(TaintEffect::NoExecute) {
            let effect = toleration.effect.as_ref().map_or("", TaintEffect::as_str);
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid(&path.child("effect"), Word(effect), detail);
        }
        check_toleration_value(errors, &path, toleration, rules);
        if let Some(TaintEffect::Other(effect)) = &toleration.effect {
            errors.not_supported(&path.child("effect"), Word(effect), TaintEffect::WORDS);
        }
    }
}

fn check_toleration_value(errors: &mut Errors, path: &Path<'_>, toleration: &Toleration, rules: &Rules<'_>) {
    let (field, value) = (path.child("operator"), toleration.value.as_ref());
    match &toleration.operator {
        None | Some(TolerationOperator::Equal) => {
            let problems = label_value_errors(value);
            if !problems.is_empty() {
                errors.invalid(&field, value, problems.join(";"));
            }
        }
        Some(TolerationOperator::Exists) => {
            if !value.is_empty() {
                errors.invalid(&field, value, "value must be empty when `operator` is 'Exists'");
            }
        }
        Some(operator @ (TolerationOperator::Lt | TolerationOperator::Gt)) => {
            if !rules.features.enabled(Gate::TaintTolerationComparisonOperators) {
                let supported = ["Equal", "Exists", "Lt", "Gt"];
                return errors.not_supported(&field, Word(operator.as_str()), &supported);
            }
            let field = path.child("value");
            errors.invalid_each(&field, value, text::decimal_integer_errors(value));
            if let Some(problem) = go_integer_error(value) {
                errors.invalid(&field, value, problem);
            }
        }
        Some(TolerationOperator::Other(operator)) => {
            errors.not_supported(&field, Word(operator), &["Equal", "Exists"]);
        }
    }
}

/// Why Go cannot read this as a number of 64 bits, in its own words.
fn go_integer_error(text: &str) -> Option<String> {
    text.parse::<i64>().err()?;
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let reason = if is_number { "value out of range" } else { "invalid syntax" };
    Some(format!("strconv.ParseInt: parsing {}: {reason}", quoted(text)))
}

pub(super) fn check_scheduling_gates(errors: &mut Errors, path: &Path<'_>, gates: &[PodSchedulingGate]) {
    let mut seen = BTreeSet::new();
    for (index, gate) in gates.iter().enumerate() {
        let path = path.index(index);
        errors.invalid_each(&path, &gate.name, qualified_name_errors(&gate.name));
        if !seen.insert(gate.name.as_ref()) {
            errors.duplicate(&path, gate.name.as_ref());
        }
    }
}
