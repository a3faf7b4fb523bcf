//! Why a metric cannot be registered.

use crate::text::Kind;

/// Why a metric cannot be registered. All of these are mistakes in the program.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RegisterError {
    /// The name is not one that Prometheus accepts.
    #[error("{0:?} is not the name of a metric: letters, digits, underscores and colons, and no digit first")]
    Name(String),
    /// A label's name is not one that Prometheus accepts, is reserved, or stands twice.
    #[error(
        "metric {metric}: label {label:?} is not usable: it must be letters, digits and underscores, with no digit first, not reserved, and given once"
    )]
    Label {
        /// The metric's name.
        metric: String,
        /// The label's name.
        label: String,
    },
    /// A histogram's bounds do not rise, or are not finite.
    #[error("metric {metric}: the bucket bounds {bounds:?} are not finite and rising")]
    Buckets {
        /// The metric's name.
        metric: String,
        /// The bounds that were given.
        bounds: Vec<f64>,
    },
    /// The name is taken by a metric that differs in kind, labels or buckets, or that is computed.
    #[error("metric {metric} is already registered as a {kind} that differs")]
    Taken {
        /// The metric's name.
        metric: String,
        /// What it is registered as.
        kind: Kind,
    },
}
