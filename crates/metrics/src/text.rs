//! The text format: what is escaped, and how numbers look.

use std::fmt::{self, Write as _};

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number that only goes up.
    Counter,
    /// A number that goes up and down.
    Gauge,
    /// Observations by size.
    Histogram,
    /// A number about which nothing more is known.
    Untyped,
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Untyped => "untyped",
        })
    }
}

/// Writes the samples of one metric, and before the first of them what the metric is. A metric without samples
/// is not mentioned.
pub struct FamilyWriter<'a> {
    out: &'a mut String,
    name: &'a str,
    help: &'a str,
    kind: Kind,
    begun: bool,
}

impl<'a> FamilyWriter<'a> {
    pub(crate) fn new(out: &'a mut String, name: &'a str, help: &'a str, kind: Kind) -> FamilyWriter<'a> {
        FamilyWriter { out, name, help, kind, begun: false }
    }

    /// Writes a sample. The labels come rendered; the time is in milliseconds since 1970.
    pub(crate) fn sample(&mut self, suffix: &str, labels: &str, value: f64, timestamp: Option<i64>) {
        self.begin();
        let name = self.name;
        if labels.is_empty() {
            self.push(format_args!("{name}{suffix} {}", Number(value)));
        } else {
            self.push(format_args!("{name}{suffix}{{{labels}}} {}", Number(value)));
        }
        if let Some(milliseconds) = timestamp {
            self.push(format_args!(" {milliseconds}"));
        }
        self.out.push('\n');
    }

    /// Writes how many observations of a histogram are at or below a bound.
    pub(crate) fn bucket(&mut self, labels: &str, bound: f64, count: f64) {
        self.begin();
        let name = self.name;
        let comma = if labels.is_empty() { "" } else { "," };
        self.push(format_args!(
            "{name}_bucket{{{labels}{comma}le=\"{}\"}} {}\n",
            Number(bound),
            Number(count)
        ));
    }

    fn begin(&mut self) {
        if !self.begun {
            self.begun = true;
            let (name, help, kind) = (self.name, Escaped { text: self.help, quotes: false }, self.kind);
            self.push(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        }
    }

    fn push(&mut self, arguments: fmt::Arguments<'_>) {
        // Writing to a string fails only if a Display does, and none here does.
        let _ = self.out.write_fmt(arguments);
    }
}

/// Labels as they stand between the braces, ordered by name as Prometheus' libraries order them.
pub(crate) fn render_labels<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut labels: Vec<_> = labels.collect();
    labels.sort_unstable();
    let mut out = String::new();
    for (name, value) in labels {
        let comma = if out.is_empty() { "" } else { "," };
        let _ = write!(out, "{comma}{name}=\"{}\"", Escaped { text: value, quotes: true });
    }
    out
}

/// Whether Prometheus accepts this as the name of a metric.
pub(crate) fn is_metric_name(name: &str) -> bool {
    is_name(name, |character| character == '_' || character == ':')
}

/// Whether Prometheus accepts this as the name of a label that is not its own.
pub(crate) fn is_label_name(name: &str) -> bool {
    is_name(name, |character| character == '_') && !name.starts_with("__")
}

fn is_name(name: &str, allowed: impl Fn(char) -> bool) -> bool {
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.chars().all(|character| character.is_ascii_alphanumeric() || allowed(character))
}

pub(crate) struct Escaped<'a> {
    pub(crate) text: &'a str,
    pub(crate) quotes: bool,
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.text.chars() {
            match character {
                '\\' => formatter.write_str("\\\\")?,
                '\n' => formatter.write_str("\\n")?,
                '"' if self.quotes => formatter.write_str("\\\"")?,
                _ => formatter.write_char(character)?,
            }
        }
        Ok(())
    }
}

/// A number as Go writes it, with an exponent from a million on.
///
/// Anything that reads the format understands other notations too, but the bound of a bucket is a label, and
/// a label's text is part of a time series' identity.
pub(crate) struct Number(pub(crate) f64);

impl fmt::Display for Number {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0;
        if value.is_nan() {
            return formatter.write_str("NaN");
        }
        if value.is_infinite() {
            return formatter.write_str(if value > 0.0 { "+Inf" } else { "-Inf" });
        }
        if value == 0.0 {
            return formatter.write_str("0");
        }
        let scientific = format!("{value:e}");
        let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        if (-4..6).contains(&exponent) {
            return write!(formatter, "{value}");
        }
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(formatter, "{digits}e{sign}{:02}", exponent.unsigned_abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_as_go_writes_them() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (-1.0, "-1"),
            (0.005, "0.005"),
            (0.0001, "0.0001"),
            (0.000_01, "1e-05"),
            (123_456.0, "123456"),
            (999_999.5, "999999.5"),
            (1_000_000.0, "1e+06"),
            (1_048_576.0, "1.048576e+06"),
            (1_580_306_777.046, "1.580306777046e+09"),
            (-2_500_000.0, "-2.5e+06"),
            (1e100, "1e+100"),
            (18_446_744_073_709_551_615.0, "1.8446744073709552e+19"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ] {
            assert_eq!(Number(value).to_string(), text);
        }
    }

    #[test]
    fn labels_are_ordered_and_escaped() {
        let labels = [("zone", "a\"b"), ("app", "back\\slash\nbreak")];
        assert_eq!(render_labels(labels.into_iter()), r#"app="back\\slash\nbreak",zone="a\"b""#);
    }

    #[test]
    fn names_are_prometheus_names() {
        assert!(is_metric_name("kubelet:runs_2") && is_label_name("_label1"));
        assert!(
            !is_metric_name("2nd") && !is_metric_name("") && !is_metric_name("a-b") && !is_metric_name("é")
        );
        assert!(!is_label_name("a:b") && !is_label_name("__name__"));
    }
}
