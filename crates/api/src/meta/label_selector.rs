//! [`LabelSelector`]: which objects are meant, by their labels.

use crate::map::Map;
use crate::object::{object, words};

object! {
    /// Objects whose labels match all of this. An empty selector matches every object.
    pub struct LabelSelector {
        match_labels: Map<Box<str>> = "matchLabels",
        match_expressions: Box<[LabelSelectorRequirement]> = "matchExpressions",
    }
}

object! {
    /// What a label must be.
    pub struct LabelSelectorRequirement {
        key: Box<str> = "key" always,
        operator: LabelSelectorOperator = "operator" always,
        values: Box<[Box<str>]> = "values",
    }
}

words! {
    /// How a label is compared.
    pub enum LabelSelectorOperator {
        In = "In",
        NotIn = "NotIn",
        Exists = "Exists",
        DoesNotExist = "DoesNotExist",
    }
}
