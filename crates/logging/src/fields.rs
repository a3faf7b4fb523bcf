//! What a line says: its message and its fields, captured at a bounded size.

use std::error::Error;
use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};

use crate::error_chain::ErrorChain;

/// How much of a single value is kept. Half a line, so that one value cannot push out what names the pod.
const VALUE_LIMIT: usize = crate::format::LINE_LIMIT / 2;

/// The message and fields of an event or of a span.
#[derive(Clone, Default)]
pub(crate) struct Fields {
    pub(crate) message: Text,
    pub(crate) values: Vec<(&'static str, Value)>,
}

impl Fields {
    /// Adds a field. A name is kept once: the later value wins, and a value said twice keeps its first place.
    pub(crate) fn put(&mut self, name: &'static str, value: Value) {
        if let Some(at) = self.values.iter().position(|(known, _)| *known == name) {
            if self.values[at].1 == value {
                return;
            }
            self.values.remove(at);
        }
        self.values.push((name, value));
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = Text::capture(format_args!("{value:?}"));
        if field.name() == "message" {
            self.message = text;
        } else {
            self.put(field.name(), Value::Text(text));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.record_debug(field, &format_args!("{}", ErrorChain(value)));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), Value::Signed(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), Value::Unsigned(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field.name(), Value::Float(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), Value::Boolean(value));
    }
}

#[derive(Clone, PartialEq)]
pub(crate) enum Value {
    Text(Text),
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Boolean(bool),
}

/// Text of bounded length, and how many bytes were cut off its end.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct Text {
    pub(crate) kept: String,
    pub(crate) cut: usize,
}

impl Text {
    pub(crate) fn capture(arguments: fmt::Arguments<'_>) -> Text {
        let mut text = Text::default();
        if text.write_fmt(arguments).is_err() {
            text.kept.push_str("(could not be formatted)");
        }
        text
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        // Once something was cut, nothing after it may be kept.
        let room = if self.cut > 0 { 0 } else { VALUE_LIMIT.saturating_sub(self.kept.len()) };
        let fits = &piece[..piece.floor_char_boundary(room)];
        self.kept.push_str(fits);
        self.cut += piece.len() - fits.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_value_is_cut_while_it_is_captured() {
        let text = Text::capture(format_args!("{}{}", "ä".repeat(VALUE_LIMIT), "tail"));
        assert!(text.kept.len() <= VALUE_LIMIT);
        assert_eq!(text.kept.len() + text.cut, 2 * VALUE_LIMIT + 4);
        assert!(!text.kept.contains("tail"));
    }

    #[test]
    fn a_repeated_field_is_kept_once() {
        let mut fields = Fields::default();
        for (name, number) in [("a", 1), ("b", 2), ("a", 1), ("c", 3), ("b", 4)] {
            fields.put(name, Value::Signed(number));
        }
        let names: Vec<_> = fields.values.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["a", "c", "b"]);
    }
}
