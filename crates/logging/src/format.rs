//! The two forms of a line: klog's text and component-base's JSON.
//!
//! A line is one physical line in both. klog spreads a value with line breaks over several; here it is escaped
//! like any other, because what collects the lines would take each for a message of its own.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tracing::Level;

use crate::fields::{Fields, Text, Value};

/// The longest line, in bytes.
pub(crate) const LINE_LIMIT: usize = 16 * 1024;
/// Room kept at the end of a full line for saying what was cut.
const TAIL: usize = 256;

/// The form of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// klog's: `I1115 03:46:00.123456    1234 file.rs:123] "Message" key="value"`.
    #[default]
    Text,
    /// One JSON object a line: `{"ts":1763178360123.456,"caller":"file.rs:123","msg":"Message","v":0,"key":"value"}`.
    Json,
}

impl fmt::Display for Format {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Format::Text => "text",
            Format::Json => "json",
        })
    }
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Format, UnknownFormat> {
        match text {
            "text" => Ok(Format::Text),
            "json" => Ok(Format::Json),
            _ => Err(UnknownFormat(text.to_owned())),
        }
    }
}

/// The name of a log format that there is not.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("log format {0:?} is not known: expected text or json")]
pub struct UnknownFormat(String);

/// All that goes into a line.
pub(crate) struct Line<'a> {
    pub(crate) level: Level,
    /// The verbosity from which on the line is shown.
    pub(crate) verbosity: u32,
    pub(crate) time: Timestamp,
    pub(crate) file: &'a str,
    pub(crate) line: u32,
    pub(crate) fields: Fields,
}

/// What is the same on every line.
pub(crate) struct Header {
    pub(crate) process: u32,
    pub(crate) time_zone: TimeZone,
}

/// Appends a line, with its line break.
pub(crate) fn write_line(out: &mut String, format: Format, header: &Header, line: &Line<'_>) {
    let mut writer = Writer { out, format, limit: 0 };
    writer.limit = writer.out.len() + LINE_LIMIT - TAIL;
    match format {
        Format::Text => writer.text(header, line),
        Format::Json => writer.json(line),
    }
    out.push('\n');
}

struct Writer<'a> {
    out: &'a mut String,
    format: Format,
    /// The length of `out` at which the line is full.
    limit: usize,
}

impl Writer<'_> {
    fn text(&mut self, header: &Header, line: &Line<'_>) {
        let severity = match line.level {
            Level::ERROR => 'E',
            Level::WARN => 'W',
            _ => 'I',
        };
        let time = header.time_zone.to_datetime(line.time);
        self.push(format_args!(
            "{severity}{:02}{:02} {:02}:{:02}:{:02}.{:06} {:>7} {}:{}] ",
            time.month(),
            time.day(),
            time.hour(),
            time.minute(),
            time.second(),
            time.subsec_nanosecond() / 1_000,
            header.process,
            file_name(line.file),
            line.line,
        ));
        self.quoted(&line.fields.message);
        self.fields(&line.fields);
    }

    fn json(&mut self, line: &Line<'_>) {
        // Milliseconds with a fraction, as a double: microseconds survive, and that is what upstream writes.
        let milliseconds = line.time.as_nanosecond() as f64 / 1e6;
        self.push(format_args!(
            "{{\"ts\":{milliseconds},\"caller\":\"{}:{}\",\"msg\":",
            file_name(line.file),
            line.line
        ));
        self.quoted(&line.fields.message);
        if line.level != Level::ERROR {
            self.push(format_args!(",\"v\":{}", line.verbosity));
        }
        self.fields(&line.fields);
        self.out.push('}');
    }

    /// The error goes first: it is what a reader of a cut line needs most.
    fn fields(&mut self, fields: &Fields) {
        let errors = fields.values.iter().filter(|(name, _)| *name == "err");
        let others = fields.values.iter().filter(|(name, _)| *name != "err");
        for (index, (name, value)) in errors.chain(others).enumerate() {
            if self.out.len() >= self.limit {
                let left_out = fields.values.len() - index;
                self.key("fieldsLeftOut");
                self.push(format_args!("{left_out}"));
                return;
            }
            self.key(name);
            self.value(value);
        }
    }

    fn key(&mut self, name: &str) {
        match self.format {
            Format::Text => self.push(format_args!(" {name}=")),
            Format::Json => self.push(format_args!(",\"{name}\":")),
        }
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Text(text) => self.quoted(text),
            Value::Signed(number) => self.push(format_args!("{number}")),
            Value::Unsigned(number) => self.push(format_args!("{number}")),
            Value::Float(number) if number.is_finite() => self.push(format_args!("{number}")),
            // JSON has no such numbers.
            Value::Float(number) => self.push(format_args!("\"{number}\"")),
            Value::Boolean(truth) => self.push(format_args!("{truth}")),
        }
    }

    fn quoted(&mut self, text: &Text) {
        self.out.push('"');
        let mut cut = text.cut;
        for (at, character) in text.kept.char_indices() {
            if self.out.len() >= self.limit {
                cut += text.kept.len() - at;
                break;
            }
            self.escaped(character);
        }
        if cut > 0 {
            self.push(format_args!("...[{cut} bytes cut]"));
        }
        self.out.push('"');
    }

    fn escaped(&mut self, character: char) {
        match character {
            '"' => self.out.push_str("\\\""),
            '\\' => self.out.push_str("\\\\"),
            '\n' => self.out.push_str("\\n"),
            '\r' => self.out.push_str("\\r"),
            '\t' => self.out.push_str("\\t"),
            ' '..='~' => self.out.push(character),
            _ if is_printable(character) => self.out.push(character),
            _ => match self.format {
                // As Go quotes them, which is what parsers of klog's format undo.
                Format::Text => match u32::from(character) {
                    code @ ..0x80 => self.push(format_args!("\\x{code:02x}")),
                    code @ ..0x1_0000 => self.push(format_args!("\\u{code:04x}")),
                    code => self.push(format_args!("\\U{code:08x}")),
                },
                Format::Json => {
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        self.push(format_args!("\\u{unit:04x}"));
                    }
                }
            },
        }
    }

    fn push(&mut self, arguments: fmt::Arguments<'_>) {
        // Writing to a string fails only if a Display does, and those used here are of numbers and strings.
        let _ = self.out.write_fmt(arguments);
    }
}

/// Whether a character shows as itself: not a control, a line separator or a change of direction.
fn is_printable(character: char) -> bool {
    // The standard library's own judgement. The letter in front is there because a combining mark that stands
    // alone would be escaped, and one inside a word is fine.
    let mut text = [b'a'; 5];
    let length = character.encode_utf8(&mut text[1..]).len();
    str::from_utf8(&text[..=length]).is_ok_and(|text| text.escape_debug().nth(1) == Some(character))
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(message: &str, values: Vec<(&'static str, Value)>) -> Line<'static> {
        Line {
            level: Level::INFO,
            verbosity: 0,
            time: "2026-11-15T03:46:00.123456Z".parse().unwrap(),
            file: "crates/agent/src/worker.rs",
            line: 123,
            fields: Fields { message: text(message), values },
        }
    }

    fn text(content: &str) -> Text {
        Text::capture(format_args!("{content}"))
    }

    fn written(format: Format, line: &Line<'_>) -> String {
        let mut out = String::new();
        write_line(&mut out, format, &Header { process: 1234, time_zone: TimeZone::UTC }, line);
        out
    }

    #[test]
    fn text_is_klogs() {
        let fields = vec![
            ("pod", Value::Text(text("default/web"))),
            ("restarts", Value::Signed(-3)),
            ("ready", Value::Boolean(true)),
            ("share", Value::Float(0.5)),
            ("err", Value::Text(text("exit status \"1\""))),
        ];
        let mut line = line("Container died", fields);
        assert_eq!(
            written(Format::Text, &line),
            "I1115 03:46:00.123456    1234 worker.rs:123] \"Container died\" err=\"exit status \\\"1\\\"\" \
             pod=\"default/web\" restarts=-3 ready=true share=0.5\n"
        );
        line.level = Level::WARN;
        assert!(written(Format::Text, &line).starts_with("W1115 "));
        line.level = Level::ERROR;
        assert!(written(Format::Text, &line).starts_with("E1115 "));
        line.level = Level::TRACE;
        assert!(written(Format::Text, &line).starts_with("I1115 "));
    }

    #[test]
    fn text_shows_local_time() {
        let mut out = String::new();
        let header = Header { process: 12_345_678, time_zone: TimeZone::fixed(jiff::tz::offset(-5)) };
        write_line(&mut out, Format::Text, &header, &line("Hello", vec![]));
        assert_eq!(out, "I1114 22:46:00.123456 12345678 worker.rs:123] \"Hello\"\n");
    }

    #[test]
    fn json_is_component_bases() {
        let mut line =
            line("Started", vec![("pod", Value::Text(text("default/web"))), ("count", Value::Unsigned(2))]);
        assert_eq!(
            written(Format::Json, &line),
            "{\"ts\":1794714360123.456,\"caller\":\"worker.rs:123\",\"msg\":\"Started\",\"v\":0,\
             \"pod\":\"default/web\",\"count\":2}\n"
        );
        line.level = Level::ERROR;
        line.fields.put("err", Value::Text(text("no")));
        assert_eq!(
            written(Format::Json, &line),
            "{\"ts\":1794714360123.456,\"caller\":\"worker.rs:123\",\"msg\":\"Started\",\"err\":\"no\",\
             \"pod\":\"default/web\",\"count\":2}\n"
        );
    }

    #[test]
    fn nothing_in_a_value_can_start_a_line_of_its_own() {
        let nasty = "a\nE1115 03:46:00.123456    1234 x.rs:1] \"forged\"\r\u{1b}[2K\u{7f}\u{85}\u{2028}\u{202e}\0\u{e0001}";
        let line = line(nasty, vec![("value", Value::Text(text(nasty)))]);
        let plain = written(Format::Text, &line);
        assert!(
            plain.trim_end_matches('\n').chars().all(|character| (' '..='~').contains(&character)),
            "{plain}"
        );
        assert!(plain.contains(r#"a\nE1115 03:46:00.123456    1234 x.rs:1] \"forged\"\r\x1b[2K\x7f\u0085\u2028\u202e\x00\U000e0001"#));

        let json = written(Format::Json, &line);
        assert!(
            json.trim_end_matches('\n').chars().all(|character| (' '..='~').contains(&character)),
            "{json}"
        );
        let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(parsed["msg"], nasty);
        assert_eq!(parsed["value"], nasty);
    }

    #[test]
    fn letters_of_every_script_stay_readable() {
        let words = "żółć 日本 e\u{301} 🦀 हिन्दी";
        assert!(written(Format::Text, &line(words, vec![])).contains(words));
        assert!(written(Format::Json, &line(words, vec![])).contains(words));
    }

    #[test]
    fn numbers_that_json_lacks_are_quoted() {
        let line = line("x", vec![("a", Value::Float(f64::NAN)), ("b", Value::Float(f64::INFINITY))]);
        let parsed: serde_json::Value = serde_json::from_str(&written(Format::Json, &line)).unwrap();
        assert_eq!(parsed["a"], "NaN");
        assert_eq!(parsed["b"], "inf");
    }

    #[test]
    fn a_line_over_the_limit_is_cut_says_so_and_still_parses() {
        // Each of these takes six bytes in JSON and four in text.
        let huge = "\u{1}".repeat(20_000);
        let fields = vec![
            ("pod", Value::Text(text("default/web"))),
            ("output", Value::Text(text(&huge))),
            ("more", Value::Text(text(&huge))),
            ("last", Value::Signed(1)),
        ];
        let line = line("Too much", fields);
        let plain = written(Format::Text, &line);
        assert!(plain.len() <= LINE_LIMIT, "{}", plain.len());
        assert!(plain.contains("pod=\"default/web\"") && plain.contains(" bytes cut]\" fieldsLeftOut=2\n"));
        let json = written(Format::Json, &line);
        assert!(json.len() <= LINE_LIMIT, "{}", json.len());
        let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(parsed["fieldsLeftOut"], 2);
    }

    #[test]
    fn formats_go_by_upstreams_names() {
        assert_eq!("json".parse(), Ok(Format::Json));
        assert_eq!(Format::Text.to_string().parse(), Ok(Format::Text));
        assert_eq!(
            "xml".parse::<Format>().unwrap_err().to_string(),
            "log format \"xml\" is not known: expected text or json"
        );
    }
}
