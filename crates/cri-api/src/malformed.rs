//! An answer that makes no sense.

/// A runtime's answer that lacks what every answer of its kind has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the runtime's answer has no {field} in its {message}")]
pub struct Malformed {
    /// The message that is incomplete.
    pub message: &'static str,
    /// What is missing.
    pub field: &'static str,
}

/// What every message of this kind has.
pub(crate) fn required<T>(
    value: Option<T>,
    message: &'static str,
    field: &'static str,
) -> Result<T, Malformed> {
    value.ok_or(Malformed { message, field })
}
