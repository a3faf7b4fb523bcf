//! Whether a pod wants a node.

use crablet_api::core::{Node, NodeSelectorOperator, NodeSelectorRequirement, NodeSelectorTerm, Pod};
use crablet_api::selector::{Requirement, SelectorOperator};

/// Whether a node is one that a pod's selector and required affinity want.
pub fn matches(pod: &Pod, node: &Node) -> bool {
    let labels = &node.metadata.labels;
    let selected = pod.spec.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value));
    let affinity = pod.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required =
        affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    selected
        && required
            .is_none_or(|required| required.node_selector_terms.iter().any(|term| term_matches(term, node)))
}

/// A term that says nothing matches nothing, and so does one that makes no sense.
pub fn term_matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    (!term.match_expressions.is_empty() || !term.match_fields.is_empty())
        && term.match_expressions.iter().all(|expression| label_matches(expression, node))
        && term.match_fields.iter().all(|field| field_matches(field, node))
}

fn label_matches(expression: &NodeSelectorRequirement, node: &Node) -> bool {
    let (operator, values) = match &expression.operator {
        NodeSelectorOperator::In => (SelectorOperator::In, 1..=usize::MAX),
        NodeSelectorOperator::NotIn => (SelectorOperator::NotIn, 1..=usize::MAX),
        NodeSelectorOperator::Exists => (SelectorOperator::Exists, 0..=0),
        NodeSelectorOperator::DoesNotExist => (SelectorOperator::DoesNotExist, 0..=0),
        NodeSelectorOperator::Gt => (SelectorOperator::GreaterThan, 1..=1),
        NodeSelectorOperator::Lt => (SelectorOperator::LessThan, 1..=1),
        NodeSelectorOperator::Other(_) => return false,
    };
    let requirement =
        Requirement { key: expression.key.clone(), operator, values: expression.values.clone() };
    values.contains(&expression.values.len()) && requirement.matches(&node.metadata.labels)
}

/// A node has one field: its name.
fn field_matches(field: &NodeSelectorRequirement, node: &Node) -> bool {
    let [value] = &*field.values else { return false };
    let actual = if field.key == "metadata.name" { node.metadata.name.as_str() } else { "" };
    match field.operator {
        NodeSelectorOperator::In => actual == &**value,
        NodeSelectorOperator::NotIn => actual != &**value,
        NodeSelectorOperator::Exists
        | NodeSelectorOperator::DoesNotExist
        | NodeSelectorOperator::Gt
        | NodeSelectorOperator::Lt
        | NodeSelectorOperator::Other(_) => false,
    }
}
