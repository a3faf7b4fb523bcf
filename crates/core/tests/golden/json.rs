//! A protobuf message as protobuf's JSON, without fields at their zero value.

use std::sync::LazyLock;

use crablet_cri_api::DESCRIPTORS;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, Kind, MapKey, ReflectMessage, Value};
use serde_json::{Map, Value as Json};

static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(DESCRIPTORS).expect("the descriptors are whole"));

/// The JSON of a message; `name` is its full name.
pub fn to_json(name: &str, message: &impl Message) -> Json {
    let descriptor = POOL.get_message_by_name(name).expect("the message is described");
    let bytes = message.encode_to_vec();
    object(&DynamicMessage::decode(descriptor, &*bytes).expect("what was encoded can be decoded"))
}

fn object(message: &DynamicMessage) -> Json {
    let mut fields = Map::new();
    for field in message.descriptor().fields().filter(|field| message.has_field(field)) {
        let value = message.get_field(&field);
        let json = match (&*value, field.kind()) {
            (Value::Map(entries), Kind::Message(entry)) => {
                let kind = entry.map_entry_value_field().kind();
                let entries = entries.iter().map(|(key, value)| (key_text(key), scalar(value, &kind)));
                Json::Object(entries.collect())
            }
            (Value::List(list), kind) => list.iter().map(|value| scalar(value, &kind)).collect(),
            (value, kind) => scalar(value, &kind),
        };
        fields.insert(field.json_name().to_owned(), json);
    }
    Json::Object(fields)
}

fn scalar(value: &Value, kind: &Kind) -> Json {
    match value {
        Value::Bool(value) => (*value).into(),
        Value::I32(value) => (*value).into(),
        Value::U32(value) => (*value).into(),
        Value::I64(value) => value.to_string().into(),
        Value::U64(value) => value.to_string().into(),
        Value::String(value) => value.as_str().into(),
        // Only variables have bytes; the recordings show them as text.
        Value::Bytes(value) => String::from_utf8_lossy(value).into(),
        Value::EnumNumber(number) => match kind {
            Kind::Enum(kind) => kind.get_value(*number).map_or((*number).into(), |value| value.name().into()),
            other => panic!("{other:?} is not an enum"),
        },
        Value::Message(message) => object(message),
        other => panic!("no message of ours has {other:?} in here"),
    }
}

fn key_text(key: &MapKey) -> String {
    match key {
        MapKey::String(key) => key.clone(),
        other => panic!("no map of ours has a key like {other:?}"),
    }
}
