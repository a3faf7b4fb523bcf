//! [`FieldError`]: one problem of an object, printed as upstream prints it.

use std::fmt;

use crate::document::{Problem, Tree};
use crate::text::Text;

use super::path::{Path, locate};

/// One problem of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// The field, such as `spec.containers[0].name`.
    pub path: String,
    /// What kind of problem it is.
    pub kind: ErrorKind,
    /// The value as upstream prints it (text in quotes, lists and mappings as JSON), for the kinds that print it.
    pub value: Option<String>,
    /// What would be accepted; empty where the kind says it all.
    pub detail: String,
}

/// What is wrong with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// It is missing or empty.
    Required,
    /// Its value has the wrong form or is out of range.
    Invalid,
    /// Its value is not of a closed set.
    NotSupported,
    /// Another has the same value already.
    Duplicate,
    /// It names something that is not there.
    NotFound,
    /// It may not be set here.
    Forbidden,
    /// Its text is too long.
    TooLong,
    /// Its list is too long.
    TooMany,
}

impl FieldError {
    /// The problem at its place in the document that the object was read from. A field that was not written is
    /// placed at the innermost thing around it that was.
    pub fn located(&self, document: &Tree) -> Problem {
        Problem {
            place: locate(document, &self.path).place.clone(),
            path: self.path.clone(),
            message: self.message(),
        }
    }

    /// What is wrong, without the path.
    pub fn message(&self) -> String {
        let mut message = self.kind.text().to_owned();
        for part in self.value.iter().chain(Some(&self.detail).filter(|detail| !detail.is_empty())) {
            message.push_str(": ");
            message.push_str(part);
        }
        message
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path, self.message())
    }
}

impl std::error::Error for FieldError {}

impl ErrorKind {
    fn text(self) -> &'static str {
        match self {
            ErrorKind::Required => "Required value",
            ErrorKind::Invalid => "Invalid value",
            ErrorKind::NotSupported => "Unsupported value",
            ErrorKind::Duplicate => "Duplicate value",
            ErrorKind::NotFound => "Not found",
            ErrorKind::Forbidden => "Forbidden",
            ErrorKind::TooLong => "Too long",
            ErrorKind::TooMany => "Too many",
        }
    }
}

/// The problems found so far. A path is anything that prints as one, and is printed only where something is wrong.
#[derive(Debug, Default)]
pub struct Errors(Vec<FieldError>);

impl Errors {
    pub fn into_list(self) -> Vec<FieldError> {
        self.0
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn required(&mut self, path: impl Place, detail: &str) {
        self.push(&path, ErrorKind::Required, None, detail.to_owned());
    }

    pub fn invalid(&mut self, path: impl Place, value: impl Shown, detail: impl Into<String>) {
        self.push(&path, ErrorKind::Invalid, Some(value.shown()), detail.into());
    }

    /// A value that is not to be shown.
    pub fn invalid_unshown(&mut self, path: impl Place, detail: &str) {
        self.push(&path, ErrorKind::Invalid, None, detail.to_owned());
    }

    /// One problem for each of the messages about the same value.
    pub fn invalid_each(&mut self, path: impl Place, value: &str, details: Vec<String>) {
        for detail in details {
            self.push(&path, ErrorKind::Invalid, Some(value.shown()), detail);
        }
    }

    pub fn not_supported(&mut self, path: impl Place, value: impl Shown, supported: &[&str]) {
        let supported: Vec<String> = supported.iter().map(|word| quoted(word)).collect();
        let detail = format!("supported values: {}", supported.join(", "));
        self.push(&path, ErrorKind::NotSupported, Some(value.shown()), detail);
    }

    pub fn duplicate(&mut self, path: impl Place, value: impl Shown) {
        self.push(&path, ErrorKind::Duplicate, Some(value.shown()), String::new());
    }

    /// Another has the same value already, and what that means is not plain.
    pub fn duplicate_because(&mut self, path: impl Place, value: impl Shown, detail: &str) {
        self.push(&path, ErrorKind::Duplicate, Some(value.shown()), detail.to_owned());
    }

    pub fn not_found(&mut self, path: impl Place, value: &str, detail: String) {
        self.push(&path, ErrorKind::NotFound, Some(value.shown()), detail);
    }

    pub fn forbidden(&mut self, path: impl Place, detail: impl Into<String>) {
        self.push(&path, ErrorKind::Forbidden, None, detail.into());
    }

    pub fn too_long(&mut self, path: impl Place, limit: usize) {
        self.push(&path, ErrorKind::TooLong, None, format!("may not be more than {limit} bytes"));
    }

    pub fn too_many(&mut self, path: impl Place, count: usize, limit: usize) {
        let detail = format!("must have at most {limit} items");
        self.push(&path, ErrorKind::TooMany, Some(count.to_string()), detail);
    }

    fn push(&mut self, path: &dyn fmt::Display, kind: ErrorKind, value: Option<String>, detail: String) {
        self.0.push(FieldError { path: path.to_string(), kind, value, detail });
    }
}

impl Extend<FieldError> for Errors {
    fn extend<I: IntoIterator<Item = FieldError>>(&mut self, others: I) {
        self.0.extend(others);
    }
}

/// What prints as the path of a field.
pub trait Place: fmt::Display {}

impl Place for &Path<'_> {}
impl Place for &str {}
impl Place for String {}
impl Place for &String {}
impl Place for fmt::Arguments<'_> {}

/// A value that can be printed in a message.
pub trait Shown {
    fn shown(&self) -> String;
}

/// Plain text, which upstream prints as a Go literal.
impl Shown for &str {
    fn shown(&self) -> String {
        quoted(self)
    }
}

/// Text of a closed set or behind a pointer, which upstream prints as JSON.
pub struct Word<'a>(pub &'a str);

impl Shown for Word<'_> {
    fn shown(&self) -> String {
        json_text(self.0)
    }
}

/// A value that is already JSON.
pub struct Json(pub String);

impl Json {
    pub fn list<'a>(texts: impl IntoIterator<Item = &'a Text>) -> Json {
        let texts: Vec<String> = texts.into_iter().map(|text| json_text(text)).collect();
        Json(format!("[{}]", texts.join(",")))
    }

    /// A value with upstream's own field names.
    pub fn of(value: &impl serde::Serialize) -> Json {
        Json(escaped_for_html(&serde_json::to_string(value).unwrap_or_default()))
    }
}

impl Shown for Json {
    fn shown(&self) -> String {
        self.0.clone()
    }
}

impl Shown for &serde_json::Value {
    fn shown(&self) -> String {
        escaped_for_html(&self.to_string())
    }
}

impl Shown for i32 {
    fn shown(&self) -> String {
        self.to_string()
    }
}

impl Shown for i64 {
    fn shown(&self) -> String {
        self.to_string()
    }
}

impl Shown for bool {
    fn shown(&self) -> String {
        self.to_string()
    }
}

/// Text as Go's JSON has it.
pub fn json_text(text: &str) -> String {
    escaped_for_html(&serde_json::Value::from(text).to_string())
}

/// Go keeps JSON safe inside HTML. These characters are in JSON only inside of text.
fn escaped_for_html(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                escaped.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            other => escaped.push(other),
        }
    }
    escaped
}

/// Text as a Go literal.
pub fn quoted(text: &str) -> String {
    let mut literal = String::with_capacity(text.len() + 2);
    literal.push('"');
    for character in text.chars() {
        match character {
            '"' => literal.push_str("\\\""),
            '\\' => literal.push_str("\\\\"),
            '\u{07}' => literal.push_str("\\a"),
            '\u{08}' => literal.push_str("\\b"),
            '\u{0b}' => literal.push_str("\\v"),
            '\u{0c}' => literal.push_str("\\f"),
            '\n' => literal.push_str("\\n"),
            '\r' => literal.push_str("\\r"),
            '\t' => literal.push_str("\\t"),
            ' '..='~' => literal.push(character),
            '\0'..='\u{7f}' => literal.push_str(&format!("\\x{:02x}", u32::from(character))),
            _ if is_printable(character) => literal.push(character),
            '\u{80}'..='\u{ffff}' => literal.push_str(&format!("\\u{:04x}", u32::from(character))),
            _ => literal.push_str(&format!("\\U{:08x}", u32::from(character))),
        }
    }
    literal.push('"');
    literal
}

/// Whether a character beyond ASCII can be seen. Rust's escapes know; a letter before it keeps accents whole.
fn is_printable(character: char) -> bool {
    !character.is_whitespace() && ['a', character].iter().collect::<String>().escape_debug().count() == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_reads_as_upstream_prints_it() {
        let root = Path::root("spec");
        let mut errors = Errors::default();
        errors.required(&root.child("a"), "");
        errors.required(&root.child("a"), "say which");
        errors.invalid(&root.child("b").index(1), "x\"\n", "must be y");
        errors.invalid(&root.child("b"), 7_i64, "must be 8");
        errors.invalid(&root.child("b"), Json::list(&["<a>".into(), "b".into()]), "too many");
        errors.not_supported(&root.child("c"), Word("&"), &["A", "B"]);
        errors.duplicate(&root.child("d").key("example.com/k"), "x");
        errors.not_found(&root.child("e"), "x", String::new());
        errors.forbidden(&root.child("f"), "not here");
        errors.too_long(&root.child("g"), 63);
        errors.too_many(&root.child("h"), 21, 20);
        let lines: Vec<String> = errors.into_list().iter().map(FieldError::to_string).collect();
        assert_eq!(
            lines,
            [
                r#"spec.a: Required value"#,
                r#"spec.a: Required value: say which"#,
                r#"spec.b[1]: Invalid value: "x\"\n": must be y"#,
                r#"spec.b: Invalid value: 7: must be 8"#,
                r#"spec.b: Invalid value: ["\u003ca\u003e","b"]: too many"#,
                r#"spec.c: Unsupported value: "\u0026": supported values: "A", "B""#,
                r#"spec.d[example.com/k]: Duplicate value: "x""#,
                r#"spec.e: Not found: "x""#,
                r#"spec.f: Forbidden: not here"#,
                r#"spec.g: Too long: may not be more than 63 bytes"#,
                r#"spec.h: Too many: 21: must have at most 20 items"#,
            ]
        );
    }

    #[test]
    fn text_is_quoted_as_go_does() {
        for (text, literal) in [
            ("plain", r#""plain""#),
            (
                "caf\u{e9} \u{65e5}\u{672c} \u{1f600} e\u{301}",
                "\"caf\u{e9} \u{65e5}\u{672c} \u{1f600} e\u{301}\"",
            ),
            ("\u{0}\u{1b}\u{7f}", r#""\x00\x1b\x7f""#),
            ("\u{a0}\u{200b}\u{e0001}", r#""\u00a0\u200b\U000e0001""#),
        ] {
            assert_eq!(quoted(text), literal);
        }
    }
}
