//! Bodies in protobuf, as `kubectl`'s typed clients write them: four letters, an envelope with the kind, and the
//! message, whose fields the schema names. What comes out is a tree as JSON would be, so that there is one way on.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::json;
use super::tree::Tree;
use super::types::{Field, Item, Type};
use super::{MOST_VALUES, time};

const PREFIX: &[u8] = b"k8s\0";

/// The envelope of every message.
#[derive(Debug, Default)]
pub(crate) struct Envelope<'b> {
    pub(crate) api_version: Cow<'b, str>,
    pub(crate) kind: Cow<'b, str>,
    pub(crate) raw: &'b [u8],
}

pub(crate) fn envelope(body: &[u8]) -> Result<Envelope<'_>, String> {
    if body.is_empty() {
        return Err("empty data".to_owned());
    }
    let data = body.strip_prefix(PREFIX).ok_or_else(|| {
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]".to_owned()
    })?;
    if data.is_empty() {
        return Err("empty body".to_owned());
    }
    let mut envelope = Envelope::default();
    let mut reader = Reader::new(data, "Unknown");
    while let Some(tag) = reader.tag()? {
        match tag.number {
            1 => {
                let mut meta = Reader::new(reader.bytes(tag, "TypeMeta")?, "TypeMeta");
                while let Some(tag) = meta.tag()? {
                    match tag.number {
                        1 => envelope.api_version = String::from_utf8_lossy(meta.bytes(tag, "APIVersion")?),
                        2 => envelope.kind = String::from_utf8_lossy(meta.bytes(tag, "Kind")?),
                        _ => meta.skip(tag)?,
                    }
                }
            }
            2 => envelope.raw = reader.bytes(tag, "Raw")?,
            _ => reader.skip(tag)?,
        }
    }
    Ok(envelope)
}

pub(crate) fn message<'b>(type_: &'static Type, raw: &'b [u8]) -> Result<Tree<'b>, String> {
    let mut decoder = Decoder { values: 0 };
    Ok(Tree::Object(decoder.message(type_, raw)?))
}

type Fields<'b> = Vec<(Cow<'b, str>, Tree<'b>)>;

struct Decoder {
    values: usize,
}

impl Decoder {
    fn message<'b>(&mut self, type_: &'static Type, raw: &'b [u8]) -> Result<Fields<'b>, String> {
        let mut fields: Fields<'b> = Vec::new();
        let mut reader = Reader::new(raw, type_.name);
        while let Some(tag) = reader.tag()? {
            let Some(field) = type_.by_number(tag.number) else {
                reader.skip(tag)?;
                continue;
            };
            self.count()?;
            if let Some(inner) = field.embedded() {
                let inner = self.message(inner, reader.bytes(tag, inner.name)?)?;
                fields.extend(inner);
            } else if field.shape.is_map {
                let entry = self.entry(field, reader.bytes(tag, field.name)?)?;
                match last(&mut fields, field) {
                    Tree::Object(entries) => entries.push(entry),
                    other => *other = Tree::Object(vec![entry]),
                }
            } else if field.shape.is_list {
                let values = self.repeated(field, &mut reader, tag)?;
                match last(&mut fields, field) {
                    Tree::List(items) => items.extend(values),
                    other => *other = Tree::List(values),
                }
            } else {
                *last(&mut fields, field) = self.item(field, &mut reader, tag)?;
            }
        }
        Ok(fields)
    }

    /// The entry of a map is a message of a key and a value.
    fn entry<'b>(
        &mut self,
        field: &'static Field,
        raw: &'b [u8],
    ) -> Result<(Cow<'b, str>, Tree<'b>), String> {
        let (mut key, mut value) = (Cow::Borrowed(""), Tree::Null);
        let mut reader = Reader::new(raw, field.name);
        while let Some(tag) = reader.tag()? {
            match tag.number {
                1 => key = String::from_utf8_lossy(reader.bytes(tag, field.name)?),
                // A list in a map is a message of its own.
                2 if field.shape.is_list => {
                    let mut items = Vec::new();
                    let mut inner = Reader::new(reader.bytes(tag, field.name)?, field.name);
                    while let Some(tag) = inner.tag()? {
                        match tag.number {
                            1 => {
                                self.count()?;
                                items.push(self.item(field, &mut inner, tag)?);
                            }
                            _ => inner.skip(tag)?,
                        }
                    }
                    value = Tree::List(items);
                }
                2 => value = self.item(field, &mut reader, tag)?,
                _ => reader.skip(tag)?,
            }
        }
        Ok((key, value))
    }

    /// One more of a list, or several numbers that were packed together.
    fn repeated<'b>(
        &mut self,
        field: &'static Field,
        reader: &mut Reader<'b>,
        tag: Tag,
    ) -> Result<Vec<Tree<'b>>, String> {
        let is_packed = tag.wire == 2 && matches!(field.shape.item, Item::Int32 | Item::Int64 | Item::Bool);
        if !is_packed {
            return Ok(vec![self.item(field, reader, tag)?]);
        }
        let mut packed = Reader::new(reader.bytes(tag, field.name)?, field.name);
        let mut values = Vec::new();
        while packed.at < packed.data.len() {
            self.count()?;
            values.push(scalar(field.shape.item, packed.varint()?));
        }
        Ok(values)
    }

    fn item<'b>(
        &mut self,
        field: &'static Field,
        reader: &mut Reader<'b>,
        tag: Tag,
    ) -> Result<Tree<'b>, String> {
        let item = field.shape.item;
        if let Item::Int32 | Item::Int64 | Item::Bool = item {
            reader.expect(tag, 0, field.name)?;
            return Ok(scalar(item, reader.varint()?));
        }
        if item == Item::Double {
            reader.expect(tag, 1, field.name)?;
            let bytes = reader.take(8)?;
            let bits = bytes.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
            return Ok(Tree::Number(f64::from_bits(bits).to_string().into()));
        }
        let raw = reader.bytes(tag, field.name)?;
        match item {
            Item::Text => Ok(Tree::Text(String::from_utf8_lossy(raw))),
            Item::Bytes => Ok(Tree::Text(STANDARD.encode(raw).into())),
            Item::Struct(id) => Ok(Tree::Object(self.message(id.get(), raw)?)),
            Item::Quantity => {
                let mut quantity = Tree::Null;
                each(raw, "Quantity", |reader, tag| match tag.number {
                    1 => {
                        quantity = Tree::Text(String::from_utf8_lossy(reader.bytes(tag, "String_")?));
                        Ok(())
                    }
                    _ => reader.skip(tag),
                })?;
                Ok(quantity)
            }
            Item::Raw => {
                let mut inner: &[u8] = &[];
                each(raw, "RawExtension", |reader, tag| match tag.number {
                    1 => {
                        inner = reader.bytes(tag, "Raw")?;
                        Ok(())
                    }
                    _ => reader.skip(tag),
                })?;
                if inner.is_empty() { Ok(Tree::Null) } else { json::parse(inner) }
            }
            Item::IntOrString => {
                let (mut kind, mut number, mut text) = (0, 0, Cow::Borrowed(""));
                each(raw, "IntOrString", |reader, tag| {
                    match tag.number {
                        1 => kind = reader.number(tag, "Type")?,
                        2 => number = reader.number(tag, "IntVal")?,
                        3 => text = String::from_utf8_lossy(reader.bytes(tag, "StrVal")?),
                        _ => reader.skip(tag)?,
                    }
                    Ok(())
                })?;
                Ok(match kind {
                    0 => scalar(Item::Int32, number),
                    _ => Tree::Text(text),
                })
            }
            Item::Time | Item::MicroTime if raw.is_empty() => Ok(Tree::Null),
            Item::Time | Item::MicroTime => {
                let (mut seconds, mut nanoseconds) = (0, 0);
                each(raw, "Timestamp", |reader, tag| {
                    match tag.number {
                        1 => seconds = reader.number(tag, "Seconds")?,
                        2 => nanoseconds = reader.number(tag, "Nanos")?,
                        _ => reader.skip(tag)?,
                    }
                    Ok(())
                })?;
                let written = time::from_seconds(seconds as i64, nanoseconds as i32, item == Item::MicroTime);
                Ok(written.map_or(Tree::Null, |time| Tree::Text(time.into())))
            }
            Item::Int32 | Item::Int64 | Item::Bool | Item::Double => Ok(Tree::Null),
        }
    }

    /// A few bytes can say a lot: an empty message is two, and an object in memory.
    fn count(&mut self) -> Result<(), String> {
        self.values += 1;
        match self.values > MOST_VALUES {
            true => Err(super::too_many_values()),
            false => Ok(()),
        }
    }
}

/// The value of a field, which is the last of the list if it came before.
fn last<'f, 'b>(fields: &'f mut Fields<'b>, field: &'static Field) -> &'f mut Tree<'b> {
    let index = fields.iter().rposition(|(name, _)| name == field.name).unwrap_or_else(|| {
        fields.push((Cow::Borrowed(field.name), Tree::Null));
        fields.len() - 1
    });
    &mut fields[index].1
}

fn scalar<'b>(item: Item, number: u64) -> Tree<'b> {
    match item {
        Item::Bool => Tree::Bool(number != 0),
        Item::Int32 => Tree::Number((number as i32).to_string().into()),
        _ => Tree::Number((number as i64).to_string().into()),
    }
}

fn each<'b>(
    raw: &'b [u8],
    name: &'static str,
    mut visit: impl FnMut(&mut Reader<'b>, Tag) -> Result<(), String>,
) -> Result<(), String> {
    let mut reader = Reader::new(raw, name);
    while let Some(tag) = reader.tag()? {
        visit(&mut reader, tag)?;
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Tag {
    number: u64,
    wire: u8,
}

struct Reader<'b> {
    data: &'b [u8],
    at: usize,
    /// What is read, for errors.
    name: &'static str,
}

impl<'b> Reader<'b> {
    fn new(data: &'b [u8], name: &'static str) -> Reader<'b> {
        Reader { data, at: 0, name }
    }

    fn tag(&mut self) -> Result<Option<Tag>, String> {
        if self.at >= self.data.len() {
            return Ok(None);
        }
        let wire = self.varint()?;
        let tag = Tag { number: wire >> 3, wire: (wire & 7) as u8 };
        if tag.wire == 4 {
            return Err(format!("proto: {}: wiretype end group for non-group", self.name));
        }
        // Numbers have 32 bits, with a sign.
        let number = tag.number as u32 as i32;
        if number <= 0 {
            return Err(format!("proto: {}: illegal tag {number} (wire type {wire})", self.name));
        }
        Ok(Some(Tag { number: number as u64, ..tag }))
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.data.get(self.at).ok_or_else(end)?;
            self.at += 1;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err("proto: integer overflow".to_owned())
    }

    fn expect(&self, tag: Tag, wire: u8, field: &str) -> Result<(), String> {
        match tag.wire == wire {
            true => Ok(()),
            false => Err(format!("proto: wrong wireType = {} for field {}", tag.wire, capital(field))),
        }
    }

    fn number(&mut self, tag: Tag, field: &str) -> Result<u64, String> {
        self.expect(tag, 0, field)?;
        self.varint()
    }

    fn bytes(&mut self, tag: Tag, field: &str) -> Result<&'b [u8], String> {
        self.expect(tag, 2, field)?;
        let length = self.varint()? as i64;
        let length = usize::try_from(length)
            .map_err(|_| "proto: negative length found during unmarshaling".to_owned())?;
        self.take(length)
    }

    fn take(&mut self, length: usize) -> Result<&'b [u8], String> {
        let end_at = self.at.checked_add(length).ok_or_else(end)?;
        let taken = self.data.get(self.at..end_at).ok_or_else(end)?;
        self.at = end_at;
        Ok(taken)
    }

    /// Passes over a field that is not known.
    fn skip(&mut self, tag: Tag) -> Result<(), String> {
        let mut depth = 0usize;
        let mut wire = tag.wire;
        loop {
            match wire {
                0 => drop(self.varint()?),
                1 => drop(self.take(8)?),
                2 => {
                    let length = self.varint()?;
                    self.take(usize::try_from(length).map_err(|_| end())?)?;
                }
                3 => depth += 1,
                4 => depth = depth.checked_sub(1).ok_or("proto: unexpected end of group")?,
                5 => drop(self.take(4)?),
                other => return Err(format!("proto: illegal wireType {other}")),
            }
            if depth == 0 {
                return Ok(());
            }
            wire = (self.varint()? & 7) as u8;
        }
    }
}

fn end() -> String {
    "unexpected EOF".to_owned()
}

/// Go's name of a field, as far as its name in JSON says it.
fn capital(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::schema::{Encoding, Expected, decode, normalise, types};

    fn decoded(schema: &str, api_version: &str, body: &[u8]) -> Result<Value, String> {
        let kind = schema.rsplit('.').next().unwrap();
        let decoded = decode(&Expected { schema, api_version, kind }, Encoding::Protobuf, body);
        decoded.map(|decoded| decoded.object).map_err(|error| error.to_string())
    }

    #[test]
    fn what_kubectl_sends_is_read() {
        for (schema, api_version, body, expected) in [
            (
                "core.Secret",
                "v1",
                "azhzAAoMCgJ2MRIGU2VjcmV0EiYKEgoCczESABoAIgAqADIAOABCABIGCgFhEgFiEgYKAWMSAWQaABoAIgA=",
                json!({"metadata": {"name": "s1"}, "data": {"a": "Yg==", "c": "ZA=="}}),
            ),
            (
                "authentication.TokenRequest",
                "authentication.k8s.io/v1",
                "azhzAAooChhhdXRoZW50aWNhdGlvbi5rOHMuaW8vdjESDFRva2VuUmVxdWVzdBIdChAKABIAGgAiACoAMgA4AEIAEgMgkBwaBAoAEgAaACIA",
                json!({"metadata": {}, "spec": {"audiences": null, "boundObjectRef": null, "expirationSeconds": 3600},
                    "status": {"token": "", "expirationTimestamp": null}}),
            ),
            (
                "rbac.Role",
                "rbac.authorization.k8s.io/v1",
                "azhzAAokChxyYmFjLmF1dGhvcml6YXRpb24uazhzLmlvL3YxEgRSb2xlEiMKEgoCcjESABoAIgAqADIAOABCABINCgNnZXQSABoEcG9kcxoAIgA=",
                json!({"metadata": {"name": "r1"}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}),
            ),
            (
                "core.Service",
                "v1",
                "azhzAAoNCgJ2MRIHU2VydmljZRJmCh0KAnMxEgAaACIAKgAyADgAQgBaCQoDYXBwEgJzMRJBChsKBzgwLTgwODASA1RDUBhQIgcIABCQPxoAKAASCQoDYXBwEgJzMRoAIglDbHVzdGVySVA6AEIAUgBaAGAAaAAaAgoAGgAiAA==",
                json!({"metadata": {"name": "s1", "labels": {"app": "s1"}}, "status": {"loadBalancer": {}},
                    "spec": {"ports": [{"name": "80-8080", "protocol": "TCP", "port": 80, "targetPort": 8080}],
                        "selector": {"app": "s1"}, "type": "ClusterIP"}}),
            ),
            (
                "scheduling.PriorityClass",
                "scheduling.k8s.io/v1",
                "azhzAAolChRzY2hlZHVsaW5nLms4cy5pby92MRINUHJpb3JpdHlDbGFzcxIwChIKAnAxEgAaACIAKgAyADgAQgAQBRgAIgAqFFByZWVtcHRMb3dlclByaW9yaXR5GgAiAA==",
                json!({"metadata": {"name": "p1"}, "value": 5, "preemptionPolicy": "PreemptLowerPriority"}),
            ),
            (
                "authorization.SelfSubjectAccessReview",
                "authorization.k8s.io/v1",
                "azhzAAoyChdhdXRob3JpemF0aW9uLms4cy5pby92MRIXU2VsZlN1YmplY3RBY2Nlc3NSZXZpZXcSPAoQCgASABoAIgAqADIAOABCABIeChwKB2RlZmF1bHQSA2dldBoAIgAqBHBvZHMyADoAGggIABIAGgAgABoAIgA=",
                json!({"metadata": {}, "spec": {"resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"}},
                    "status": {"allowed": false}}),
            ),
        ] {
            let body = STANDARD.decode(body).unwrap();
            assert_eq!(decoded(schema, api_version, &body), Ok(expected), "{schema}");
        }
    }

    #[test]
    fn every_kind_of_field_comes_through() {
        for (schema, object) in samples() {
            let expected = normalise(schema, &object).unwrap();
            assert!(expected.problems.is_empty(), "{:?}", expected.problems);
            let body = encoded(schema, &object);
            assert_eq!(decoded(schema, "v1", &body), Ok(expected.object), "{schema}");
        }
    }

    #[test]
    fn what_is_malformed_is_told_in_upstreams_words() {
        let sent = |raw: &[u8]| [b"k8s\0\x12", &[raw.len() as u8][..], raw].concat();
        for (body, expected) in [
            (b"".to_vec(), "the object provided is unrecognized (must be of type Pod): empty data (<empty>)"),
            (
                b"{}".to_vec(),
                "the object provided is unrecognized (must be of type Pod): provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] ({})",
            ),
            (
                b"k8s\0".to_vec(),
                "the object provided is unrecognized (must be of type Pod): empty body (6b387300)",
            ),
            (
                b"k8s\0\x12\x7f".to_vec(),
                "the object provided is unrecognized (must be of type Pod): unexpected EOF (6b387300127f)",
            ),
            (
                sent(b"\x08\x01"),
                r#"Pod in version "v1" cannot be handled as a Pod: proto: wrong wireType = 0 for field Metadata"#,
            ),
            (
                sent(b"\x00"),
                r#"Pod in version "v1" cannot be handled as a Pod: proto: Pod: illegal tag 0 (wire type 0)"#,
            ),
            (
                sent(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
                r#"Pod in version "v1" cannot be handled as a Pod: proto: integer overflow"#,
            ),
            (
                sent(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
                r#"Pod in version "v1" cannot be handled as a Pod: proto: negative length found during unmarshaling"#,
            ),
            (
                sent(b"\xff\x07"),
                r#"Pod in version "v1" cannot be handled as a Pod: proto: illegal wireType 7"#,
            ),
        ] {
            assert_eq!(decoded("core.Pod", "v1", &body), Err(expected.to_owned()), "{body:x?}");
        }
        let raw = b"\x12\x00".repeat(1 << 20);
        let too_many = message(types::find("core.PodSpec").unwrap(), &raw).unwrap_err();
        assert_eq!(too_many, "too many values: limit is 200000");
    }

    fn samples() -> [(&'static str, Value); 3] {
        let pod = json!({
            "metadata": {"name": "a", "labels": {"x": "y", "": ""}, "generation": -1, "finalizers": ["f", "é"],
                "deletionTimestamp": "2024-02-29T12:34:56Z",
                "managedFields": [{"manager": "m", "fieldsV1": {"f:a": {}}, "time": "1969-12-31T23:59:59Z"}]},
            "spec": {
                "containers": [{"name": "c", "env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": false}}}],
                    "resources": {"limits": {"cpu": "100m", "memory": "1.5Gi"}},
                    "livenessProbe": {"tcpSocket": {"port": "http"}, "initialDelaySeconds": 3},
                    "readinessProbe": {"httpGet": {"port": 80, "path": "/"}}}],
                "volumes": [{"name": "v", "projected": {"sources": [{"configMap": {"name": "c", "items": [{"key": "k", "path": "p", "mode": 256}]}}]}}],
                "securityContext": {"runAsUser": 0, "supplementalGroups": [1, -2, 3], "runAsNonRoot": false},
                "ephemeralContainers": [{"name": "e", "targetContainerName": "c", "resources": {}}],
                "hostNetwork": true,
            },
        });
        let secret = json!({"data": {"a": "AAH/", "b": ""}, "stringData": {"c": "d"}, "immutable": false});
        let class =
            json!({"spec": {"config": [{"opaque": {"driver": "d", "parameters": {"a": [1, {"b": null}]}}}]}});
        [("core.Pod", pod), ("core.Secret", secret), ("resource.DeviceClass", class)]
    }

    /// An object as a client would send it, of the version `v1`, so that any type can be.
    fn encoded(schema: &str, object: &Value) -> Vec<u8> {
        let raw = encode(types::find(schema).unwrap(), object);
        [PREFIX.to_vec(), delimited(1, &delimited(1, b"v1")), delimited(2, &raw)].concat()
    }

    fn varint(number: u64) -> Vec<u8> {
        let (mut bytes, mut rest) = (Vec::new(), number);
        while rest >= 0x80 {
            bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
        bytes
    }

    fn delimited(number: u16, bytes: &[u8]) -> Vec<u8> {
        [varint(u64::from(number) << 3 | 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
    }

    fn plain(number: u16, value: i64) -> Vec<u8> {
        [varint(u64::from(number) << 3), varint(value as u64)].concat()
    }

    fn encode(type_: &'static Type, object: &Value) -> Vec<u8> {
        let mut bytes = Vec::new();
        for field in &type_.fields {
            if let Some(inner) = field.embedded() {
                bytes.extend(delimited(field.number, &encode(inner, object)));
                continue;
            }
            let item = |number, value: &Value| encode_item(field, number, value);
            match object.get(field.name) {
                None | Some(Value::Null) => {}
                Some(Value::Object(entries)) if field.shape.is_map => {
                    for (key, value) in entries {
                        let entry = [delimited(1, key.as_bytes()), item(2, value)].concat();
                        bytes.extend(delimited(field.number, &entry));
                    }
                }
                Some(Value::Array(items)) if field.shape.is_list => {
                    items.iter().for_each(|value| bytes.extend(item(field.number, value)));
                }
                Some(value) => bytes.extend(item(field.number, value)),
            }
        }
        bytes
    }

    fn encode_item(field: &Field, number: u16, value: &Value) -> Vec<u8> {
        let text = value.as_str().unwrap_or_default();
        match field.shape.item {
            Item::Text => delimited(number, text.as_bytes()),
            Item::Int32 | Item::Int64 => plain(number, value.as_i64().unwrap()),
            Item::Bool => plain(number, value.as_bool().unwrap().into()),
            Item::Double => panic!("there is none"),
            Item::Bytes => delimited(number, &STANDARD.decode(text).unwrap()),
            Item::Quantity => delimited(number, &delimited(1, text.as_bytes())),
            Item::Raw => delimited(number, &delimited(1, value.to_string().as_bytes())),
            Item::IntOrString => delimited(
                number,
                &match value.as_i64() {
                    Some(integer) => [plain(1, 0), plain(2, integer), delimited(3, b"")].concat(),
                    None => [plain(1, 1), plain(2, 0), delimited(3, text.as_bytes())].concat(),
                },
            ),
            Item::Time | Item::MicroTime => {
                let time: jiff::Timestamp = text.parse().unwrap();
                delimited(
                    number,
                    &[plain(1, time.as_second()), plain(2, time.subsec_nanosecond().into())].concat(),
                )
            }
            Item::Struct(id) => delimited(number, &encode(id.get(), value)),
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for (schema, _) in samples() {
                let _ = message(types::find(schema).unwrap(), &bytes);
            }
            let _ = decoded("core.Pod", "v1", &[PREFIX, &bytes[..]].concat());
        }

        #[test]
        fn no_damage_panics(cut in 0..1000usize, at in 0..1000usize, with: u8) {
            for (schema, object) in samples() {
                let mut body = encoded(schema, &object);
                body.truncate(cut);
                if let Some(byte) = body.get_mut(at) {
                    *byte = with;
                }
                let _ = decoded(schema, "v1", &body);
            }
        }
    }
}
