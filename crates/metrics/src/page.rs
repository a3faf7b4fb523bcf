//! A page in the text format that is written sample by sample, from numbers that nobody keeps.
//!
//! What counts itself is in a [`Registry`](crate::Registry). What is read when somebody asks, for hundreds of containers
//! and with the time at which it was read, goes straight to the text.

use std::fmt::Write as _;

use crate::text::{Escaped, Kind, Number};

/// The content type of a page of metrics, as upstream's pages have it.
pub const PAGE_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// From here on numbers have an exponent.
const MILLION: u64 = 1_000_000;
/// The largest whole number below which every whole number is a float of its own.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A page that is being written.
#[derive(Debug, Default)]
pub struct Page {
    out: String,
    family: Option<(&'static str, &'static str, Kind)>,
    name: &'static str,
}

impl Page {
    pub fn with_capacity(bytes: usize) -> Page {
        Page { out: String::with_capacity(bytes), ..Page::default() }
    }

    /// Begins the next metric. One without samples is not mentioned.
    pub fn family(&mut self, name: &'static str, help: &'static str, kind: Kind) {
        self.family = Some((name, help, kind));
        self.name = name;
    }

    /// Writes a sample of the metric that was begun last. The labels come rendered, in pieces between which commas go;
    /// empty pieces are left out. The time is in milliseconds since 1970.
    pub fn sample(&mut self, labels: &[&str], value: f64, milliseconds: Option<i64>) {
        self.begin();
        let mut before = '{';
        for piece in labels.iter().filter(|piece| !piece.is_empty()) {
            self.out.push(before);
            self.out.push_str(piece);
            before = ',';
        }
        if before == ',' {
            self.out.push('}');
        }
        self.out.push(' ');
        push_number(&mut self.out, value);
        if let Some(milliseconds) = milliseconds {
            self.out.push(' ');
            if milliseconds < 0 {
                self.out.push('-');
            }
            push_digits(&mut self.out, milliseconds.unsigned_abs());
        }
        self.out.push('\n');
    }

    /// Writes a sample whose labels are rendered with their braces, and its end with the time and the end of the line: what
    /// is the same for many samples is put together once.
    pub fn line(&mut self, labels: &str, value: f64, end: &str) {
        self.begin();
        self.out.push_str(labels);
        self.out.push(' ');
        push_number(&mut self.out, value);
        self.out.push_str(end);
    }

    /// Writes the name of the metric, and before the first of its samples what it is.
    fn begin(&mut self) {
        if let Some((name, help, kind)) = self.family.take() {
            // Writing to a string does not fail.
            let _ = write!(
                self.out,
                "# HELP {name} {}\n# TYPE {name} {kind}\n",
                Escaped { text: help, quotes: false }
            );
        }
        self.out.push_str(self.name);
    }

    pub fn into_text(self) -> String {
        self.out
    }
}

/// Adds a label to a rendered row of them.
pub fn push_label(out: &mut String, name: &str, value: &str) {
    if !out.is_empty() {
        out.push(',');
    }
    out.push_str(name);
    out.push_str("=\"");
    match value.bytes().any(|byte| matches!(byte, b'\\' | b'\n' | b'"')) {
        true => drop(write!(out, "{}", Escaped { text: value, quotes: true })),
        false => out.push_str(value),
    }
    out.push('"');
}

/// As [`Number`] writes it, without its detour over text where the number is whole, as most are.
fn push_number(out: &mut String, value: f64) {
    let whole = value as u64;
    if !(0.0..EXACT).contains(&value) || whole as f64 != value {
        let _ = write!(out, "{}", Number(value));
    } else if whole < MILLION {
        push_digits(out, whole);
    } else {
        let mut buffer = [0; 20];
        let digits = decimal(whole, &mut buffer);
        let exponent = digits.len() - 1;
        let (first, rest) = digits.split_at(1);
        let rest = rest.trim_end_matches('0');
        out.push_str(first);
        if !rest.is_empty() {
            out.push('.');
            out.push_str(rest);
        }
        out.push_str(if exponent < 10 { "e+0" } else { "e+" });
        push_digits(out, exponent as u64);
    }
}

fn push_digits(out: &mut String, value: u64) {
    let mut buffer = [0; 20];
    out.push_str(decimal(value, &mut buffer));
}

fn decimal(mut value: u64, buffer: &mut [u8; 20]) -> &str {
    let mut at = buffer.len();
    loop {
        at -= 1;
        buffer[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            return std::str::from_utf8(&buffer[at..]).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_what_a_metric_is_once_and_only_if_it_has_samples() {
        let mut page = Page::with_capacity(64);
        page.family("none", "Nothing.", Kind::Gauge);
        page.family("runs", "Runs\nso far.", Kind::Counter);
        page.sample(&[], 3.0, None);
        let mut label = String::new();
        push_label(&mut label, "pod", "a\"b");
        page.sample(&["", &label, "", "x=\"1\""], 1_028_096.0, Some(1_794_763_469_610));
        page.line("{x=\"2\"}", 7.0, " 1794763469610\n");
        assert_eq!(
            page.into_text(),
            "# HELP runs Runs\\nso far.\n# TYPE runs counter\nruns 3\n\
             runs{pod=\"a\\\"b\",x=\"1\"} 1.028096e+06 1794763469610\nruns{x=\"2\"} 7 1794763469610\n"
        );
    }

    #[test]
    fn numbers_are_those_of_the_registry() {
        for value in [
            0.0,
            -0.0,
            7.0,
            999_999.0,
            1e6,
            1_048_576.0,
            25_276_518_400.0,
            270_553_174_016.0,
            1e15,
            9_007_199_254_740_991.0,
            1e16,
            1.844_674_407_370_955_2e19,
            -1.0,
            0.168_105_94,
            5_208.272_307_809,
            9.7472e-5,
            f64::NAN,
            f64::INFINITY,
        ] {
            let mut text = String::new();
            push_number(&mut text, value);
            assert_eq!(text, Number(value).to_string());
        }
    }
}
