//! Times on the wire.

use jiff::Timestamp;

/// Nanoseconds since 1970, where 0 and below mean: not yet.
pub(crate) fn timestamp(nanoseconds: i64) -> Option<Timestamp> {
    (nanoseconds > 0).then(|| Timestamp::from_nanosecond(i128::from(nanoseconds)).ok()).flatten()
}
