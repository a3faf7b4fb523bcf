//! How long ago something was.

use crablet_api::human_duration;
use jiff::Timestamp;
use serde_json::Value;

/// A time of an object; none if there is none.
pub(super) fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// How long ago a time of an object was.
pub(super) fn since(value: &Value, now: Timestamp) -> String {
    match time(value) {
        Some(then) => human_duration(now.duration_since(then).as_secs()),
        None => "<unknown>".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_second_do_not_count() {
        let now = "2026-01-01T00:00:00.5Z".parse().unwrap();
        for (then, expected) in [
            (Value::Null, "<unknown>"),
            ("yesterday".into(), "<unknown>"),
            ("2026-01-01T00:00:02Z".into(), "0s"),
            ("2026-01-01T00:00:03Z".into(), "<invalid>"),
            ("2025-12-31T23:59:59Z".into(), "1s"),
            ("2025-12-31T23:59:59.123456Z".into(), "1s"),
        ] {
            assert_eq!(since(&then, now), expected, "{then}");
        }
    }
}
