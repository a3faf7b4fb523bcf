//! Labels, and selectors of objects by their labels.

use crate::map::Map;
use crate::meta::{LabelSelector, LabelSelectorOperator};
use crate::names::{label_value_errors, qualified_name_errors};
use crate::text::Text;

use super::error::{Errors, Word};
use super::path::Path;

pub(super) fn check_labels(errors: &mut Errors, path: &Path<'_>, labels: &Map<Text>) {
    for (key, value) in labels.iter() {
        check_label_name(errors, path, key);
        errors.invalid_each(path, value, label_value_errors(value));
    }
}

pub(super) fn check_label_name(errors: &mut Errors, path: &Path<'_>, name: &str) {
    errors.invalid_each(path, name, qualified_name_errors(name));
}

pub(super) fn check_label_selector(errors: &mut Errors, path: &Path<'_>, selector: Option<&LabelSelector>) {
    let Some(selector) = selector else { return };
    check_labels(errors, &path.child("matchLabels"), &selector.match_labels);
    let expressions = path.child("matchExpressions");
    for (index, requirement) in selector.match_expressions.iter().enumerate() {
        let path = expressions.index(index);
        let values = path.child("values");
        match requirement.operator {
            LabelSelectorOperator::In | LabelSelectorOperator::NotIn => {
                if requirement.values.is_empty() {
                    errors.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
                }
            }
            LabelSelectorOperator::Exists | LabelSelectorOperator::DoesNotExist => {
                if !requirement.values.is_empty() {
                    errors.forbidden(
                        &values,
                        "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                    );
                }
            }
            LabelSelectorOperator::Other(ref operator) => {
                errors.invalid(&path.child("operator"), Word(operator), "not a valid selector operator");
            }
        }
        check_label_name(errors, &path.child("key"), &requirement.key);
        for (index, value) in requirement.values.iter().enumerate() {
            errors.invalid_each(&values.index(index), value, label_value_errors(value));
        }
    }
}
