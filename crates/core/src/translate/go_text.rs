//! Text as Go writes it, where others read and compare it to the letter.

use std::fmt::{self, Write};

use serde::Serialize;

/// Writes a JSON string as Go does: what could end an HTML script is escaped too.
pub(crate) fn go_json_text(out: &mut impl Write, text: &str) -> fmt::Result {
    out.write_char('"')?;
    for character in text.chars() {
        match character {
            '"' => out.write_str("\\\"")?,
            '\\' => out.write_str("\\\\")?,
            '\u{8}' => out.write_str("\\b")?,
            '\u{c}' => out.write_str("\\f")?,
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                write!(out, "\\u{:04x}", u32::from(character))?;
            }
            other => out.write_char(other)?,
        }
    }
    out.write_char('"')
}

/// The JSON of an object as Go writes it.
pub(crate) fn go_json<T: Serialize + ?Sized>(object: &T) -> String {
    let json = String::from_utf8(crablet_api::to_json(&object)).unwrap_or_default();
    const SPECIAL: [char; 5] = ['<', '>', '&', '\u{2028}', '\u{2029}'];
    if !json.contains(SPECIAL) {
        return json;
    }
    // These can only stand within strings.
    let mut escaped = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        match SPECIAL.contains(&character) {
            // Writing to a string never fails.
            true => _ = write!(escaped, "\\u{:04x}", u32::from(character)),
            false => escaped.push(character),
        }
    }
    escaped
}

/// Text in quotes, as Go's `%q` writes it.
pub fn go_quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            ' '..='~' => out.push(character),
            '\0'..='\u{7f}' => _ = write!(out, "\\x{:02x}", u32::from(character)),
            other if is_printable(other) => out.push(other),
            '\u{80}'..='\u{ffff}' => _ = write!(out, "\\u{:04x}", u32::from(character)),
            '\u{10000}'.. => _ = write!(out, "\\U{:08x}", u32::from(character)),
        }
    }
    out.push('"');
    out
}

/// Rust's own escaping knows what can be printed. It also escapes a combining mark, but only as the first character.
fn is_printable(character: char) -> bool {
    let mut buffer = [b'a'; 5];
    let length = character.encode_utf8(&mut buffer[1..]).len();
    std::str::from_utf8(&buffer[..=length])
        .is_ok_and(|text| text.escape_debug().nth(1).is_some_and(|shown| shown == character))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_strings_are_escaped_as_go_does() {
        for (text, expected) in [
            ("plain", r#""plain""#),
            ("a<b>&c", r#""a\u003cb\u003e\u0026c""#),
            ("\u{2028}\u{1}\u{8}\n\"\\\u{7f}ü", "\"\\u2028\\u0001\\b\\n\\\"\\\\\u{7f}ü\""),
        ] {
            let mut written = String::new();
            go_json_text(&mut written, text).unwrap();
            assert_eq!(written, expected);
            assert_eq!(go_json(text), expected);
        }
    }

    #[test]
    fn quoted_text_is_escaped_as_go_does() {
        for (text, expected) in [
            ("it's", r#""it's""#),
            ("\u{7}\u{b}\u{1b}\u{7f}", r#""\a\v\x1b\x7f""#),
            ("größe 映像", r#""größe 映像""#),
            ("\u{a0}\u{200b}\u{e0001}", r#""\u00a0\u200b\U000e0001""#),
            ("e\u{301}", "\"e\u{301}\""),
        ] {
            assert_eq!(go_quote(text), expected);
        }
    }
}
