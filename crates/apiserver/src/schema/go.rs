//! How Go writes things into its messages.

use std::fmt::Write as _;

use serde_json::Value;

/// A text in double quotes, as `%q` writes it.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        escape(letter, &mut quoted);
    }
    quoted.push('"');
    quoted
}

fn escape(letter: char, out: &mut String) {
    let code = u32::from(letter);
    // Writing into a string cannot fail.
    let _ = match letter {
        '"' => out.write_str("\\\""),
        '\\' => out.write_str("\\\\"),
        '\n' => out.write_str("\\n"),
        '\t' => out.write_str("\\t"),
        '\r' => out.write_str("\\r"),
        '\x07' => out.write_str("\\a"),
        '\x08' => out.write_str("\\b"),
        '\x0b' => out.write_str("\\v"),
        '\x0c' => out.write_str("\\f"),
        _ if code < 0x20 || code == 0x7f => write!(out, "\\x{code:02x}"),
        // What Rust would not print as it is, Go does not either.
        _ if code > 0x7f && letter.escape_debug().len() > 1 && code < 0x10000 => write!(out, "\\u{code:04x}"),
        _ if code > 0x7f && letter.escape_debug().len() > 1 => write!(out, "\\U{code:08x}"),
        _ => out.write_char(letter),
    };
}

/// A letter in single quotes, as the JSON decoder names one that it did not expect. It goes by bytes.
pub(crate) fn quote_byte(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => r#"'"'"#.to_owned(),
        _ => {
            let mut quoted = String::from("'");
            escape(char::from(byte), &mut quoted);
            quoted.push('\'');
            quoted
        }
    }
}

/// A tree as `%v` writes it: `map[a:1 b:[x y]]`.
pub(crate) fn print(value: &Value) -> String {
    let mut text = String::new();
    print_into(value, &mut text);
    text
}

/// The type that a value has where it has none from the schema.
pub(crate) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

fn print_into(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&number.to_string()),
        Value::String(text) => out.push_str(text),
        Value::Array(items) => {
            out.push('[');
            separated(items.iter(), out, print_into);
            out.push(']');
        }
        Value::Object(fields) => {
            out.push_str("map[");
            separated(fields.iter(), out, |(name, field), out| {
                out.push_str(name);
                out.push(':');
                print_into(field, out);
            });
            out.push(']');
        }
    }
}

fn separated<T>(items: impl Iterator<Item = T>, out: &mut String, mut print: impl FnMut(T, &mut String)) {
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push(' ');
        }
        print(item, out);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_and_trees_are_printed_as_go_prints_them() {
        assert_eq!(quote("a\"b\\c\n\u{1}é\u{200b}"), r#""a\"b\\c\n\x01é\u200b""#);
        assert_eq!(
            [quote_byte(b'\''), quote_byte(b'"'), quote_byte(b'}'), quote_byte(0xe9)],
            [r"'\''", r#"'"'"#, "'}'", "'é'"]
        );
        let tree = json!({"b": [1, "x y", null, true], "a": {"c": 1.5}});
        assert_eq!(print(&tree), "map[a:map[c:1.5] b:[1 x y <nil> true]]");
    }
}
