//! Checks that many kinds have in common.

use crablet_api::validate::{Errors, Place, Word};
use serde_json::Value;

/// A name that must be there, in a form that is said by what is wrong with it.
pub(super) fn check_name(
    errors: &mut Errors,
    path: impl Place,
    name: &str,
    problems: fn(&str) -> Vec<String>,
) {
    match name {
        "" => errors.required(path, ""),
        name => errors.invalid_each(path, name, problems(name)),
    }
}

/// A word of a closed set, if there is one.
pub(super) fn check_word(errors: &mut Errors, path: impl Place, word: &str, known: &[&str]) {
    if !word.is_empty() && !known.contains(&word) {
        errors.not_supported(path, Word(word), known);
    }
}

/// Whether an earlier one in the list has the same in a field.
pub(super) fn is_repeated(items: &[Value], index: usize, field: &str) -> bool {
    let (earlier, rest) = items.split_at_checked(index).unwrap_or_default();
    rest.first().is_some_and(|item| earlier.iter().any(|other| other[field] == item[field]))
}

/// The problems that a check finds, as people read them.
#[cfg(test)]
pub(super) fn lines(check: impl FnOnce(&mut Errors)) -> Vec<String> {
    let mut errors = Errors::default();
    check(&mut errors);
    errors.into_list().iter().map(ToString::to_string).collect()
}
