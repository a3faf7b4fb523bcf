//! The second version of OpenAPI as protobuf, the only form that `kubectl` takes it in: it validates the objects of a
//! `List` by it, and looks there for kinds that the third version does not have. The numbers are gnostic's.
//!
//! The definitions alone: a path that validates fields would make `kubectl` look for unknown kinds among the custom
//! resources, which are not there either.

use std::collections::BTreeMap;

use serde_json::Value;

pub const CONTENT_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// How it was called before, and clients still do.
pub const OLD_CONTENT_TYPE: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

pub(super) fn document(title: &str, version: &str, definitions: &BTreeMap<String, Value>) -> Vec<u8> {
    let mut info = Message::default();
    info.text(1, title);
    info.text(2, version);
    let mut document = Message::default();
    document.text(1, "2.0");
    document.message(2, &info);
    document.message(9, &named(definitions.iter()));
    document.0
}

/// What has a name each.
fn named<'v, Name: AsRef<str>>(schemas: impl Iterator<Item = (Name, &'v Value)>) -> Message {
    let mut all = Message::default();
    for (name, definition) in schemas {
        let mut one = Message::default();
        one.text(1, name.as_ref());
        one.message(2, &schema(definition));
        all.message(1, &one);
    }
    all
}

fn schema(definition: &Value) -> Message {
    let mut message = Message::default();
    for (name, value) in definition.as_object().into_iter().flatten() {
        match (name.as_str(), value) {
            ("$ref", Value::String(text)) => message.text(1, text),
            ("format", Value::String(text)) => message.text(2, text),
            ("required", Value::Array(names)) => {
                names.iter().filter_map(Value::as_str).for_each(|name| message.text(19, name));
            }
            ("enum", Value::Array(values)) => {
                values.iter().for_each(|value| message.message(20, &any(value)))
            }
            ("additionalProperties", inner) => message.wrapped(21, &schema(inner)),
            ("type", Value::String(text)) => {
                let mut item = Message::default();
                item.text(1, text);
                message.message(22, &item);
            }
            ("items", inner) => message.wrapped(23, &schema(inner)),
            ("properties", Value::Object(fields)) => message.message(25, &named(fields.iter())),
            (name, value) => {
                let mut extension = Message::default();
                extension.text(1, name);
                extension.message(2, &any(value));
                message.message(31, &extension);
            }
        }
    }
    message
}

/// A value as YAML, which JSON is.
fn any(value: &Value) -> Message {
    let mut any = Message::default();
    any.text(2, &value.to_string());
    any
}

#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn text(&mut self, number: u32, text: &str) {
        self.bytes(number, text.as_bytes());
    }

    fn message(&mut self, number: u32, message: &Message) {
        self.bytes(number, &message.0);
    }

    /// A message that has nothing but this one in it.
    fn wrapped(&mut self, number: u32, message: &Message) {
        let mut outer = Message::default();
        outer.message(1, message);
        self.message(number, &outer);
    }

    fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.varint(u64::from(number << 3 | 2));
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn varint(&mut self, mut rest: u64) {
        while rest >= 0x80 {
            self.0.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        self.0.push(rest as u8);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_definition_has_gnostics_numbers() {
        let one =
            json!({"type": "object", "required": ["a"], "properties": {"a": {"$ref": "r"}}, "x-c": [1]});
        let document = document("K", "v", &BTreeMap::from([("b".to_owned(), one)]));
        let expected: &[&[u8]] = &[
            b"\x0a\x032.0",
            b"\x12\x06\x0a\x01K\x12\x01v",
            b"\x4a\x32\x0a\x30\x0a\x01b\x12\x2b",
            b"\xca\x01\x0a\x0a\x08\x0a\x01a\x12\x03\x0a\x01r",
            b"\x9a\x01\x01a",
            b"\xb2\x01\x08\x0a\x06object",
            b"\xfa\x01\x0c\x0a\x03x-c\x12\x05\x12\x03[1]",
        ];
        assert_eq!(document, expected.concat());
    }

    #[test]
    fn long_things_have_long_lengths() {
        let mut message = Message::default();
        message.text(1, &"x".repeat(300));
        assert_eq!(message.0[..3], [0x0a, 0xac, 0x02]);
    }
}
