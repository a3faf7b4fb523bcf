//! Selectors as text: labels (`app=web,tier in (a,b),!beta`) and fields (`spec.nodeName=x,metadata.name!=y`).

mod field;
mod label;

pub use field::{FieldSelector, FieldTerm};
pub use label::{Requirement, Selector, SelectorOperator};

/// Why a text is not a selector; the messages are upstream's where it has them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub String);
