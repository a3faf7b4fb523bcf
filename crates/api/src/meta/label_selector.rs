//! [`LabelSelector`]: which objects are meant, by their labels.

use crate::map::Map;
use crate::object::{object, words};
use crate::text::Text;

object! {
    /// Objects whose labels match all of this. An empty selector matches every object.
    pub struct LabelSelector {
        match_labels: Map<Text> = "matchLabels",
        match_expressions: Box<[LabelSelectorRequirement]> = "matchExpressions",
    }
}

object! {
    /// What a label must be.
    pub struct LabelSelectorRequirement {
        key: Text = "key" always,
        operator: LabelSelectorOperator = "operator" always,
        values: Box<[Text]> = "values",
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
