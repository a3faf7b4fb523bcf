//! What was asked and answered, as protobuf's JSON with the names of fields as the protocol has them.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use prost::Message;
use prost_reflect::{
    DescriptorPool, DynamicMessage, Kind, MapKey, MessageDescriptor, MethodDescriptor, ReflectMessage as _,
    Value,
};
use serde_json::{Map, Value as Json, json};
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use super::Inner;
use crate::DESCRIPTORS;

static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(DESCRIPTORS).expect("the build has made them"));

/// A call of the stand-in.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Its service and method: `Node.NodeStageVolume`.
    pub call: &'static str,
    pub request: Json,
    /// How long the caller was going to wait when the call arrived.
    pub deadline: Option<Duration>,
    pub outcome: Outcome,
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    UnderWay,
    Answered(Json),
    Failed {
        code: Code,
        message: String,
    },
    /// The caller gave up, or the driver died.
    Cancelled,
}

impl Call {
    /// The call in the form of the recordings.
    pub fn to_json(&self) -> Json {
        let mut json = json!({"call": self.call, "request": self.request});
        match &self.outcome {
            Outcome::UnderWay => {}
            Outcome::Answered(answer) => json["answer"] = answer.clone(),
            Outcome::Failed { code, message } => {
                json["error"] = json!({"code": constant(*code), "message": message});
            }
            Outcome::Cancelled => json["cancelled"] = true.into(),
        }
        json
    }
}

/// A code by its name in gRPC's specification: `DEADLINE_EXCEEDED`.
fn constant(code: Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

/// A call that is under way. One that is dropped before it is finished was given up.
pub(super) struct Entry {
    stand_in: Arc<Inner>,
    method: MethodDescriptor,
    place: usize,
    is_finished: bool,
}

impl Entry {
    pub(super) fn new(
        stand_in: &Arc<Inner>,
        call: &'static str,
        metadata: &MetadataMap,
        request: &impl Message,
    ) -> Entry {
        let method = method(call);
        let mut place = 0;
        let call = Call {
            call,
            request: to_json(method.input(), request),
            deadline: metadata.get("grpc-timeout").and_then(|text| timeout(text.to_str().ok()?)),
            outcome: Outcome::UnderWay,
        };
        stand_in.calls.send_modify(|calls| {
            place = calls.len();
            calls.push(call);
        });
        Entry { stand_in: Arc::clone(stand_in), method, place, is_finished: false }
    }

    pub(super) fn finish(mut self, answer: Result<&impl Message, &Status>) {
        let outcome = match answer {
            Ok(answer) => Outcome::Answered(to_json(self.method.output(), answer)),
            Err(status) => Outcome::Failed { code: status.code(), message: status.message().to_owned() },
        };
        self.end(outcome);
    }

    fn end(&mut self, outcome: Outcome) {
        self.is_finished = true;
        self.stand_in.calls.send_modify(|calls| calls[self.place].outcome = outcome);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if !self.is_finished {
            self.end(Outcome::Cancelled);
        }
    }
}

fn method(call: &str) -> MethodDescriptor {
    let (service, method) = call.split_once('.').expect("it is Service.Method");
    let mut services = POOL.services().filter(|known| known.name() == service);
    let found = services.next().and_then(|service| service.methods().find(|known| known.name() == method));
    found.expect("it is a method of the protocol")
}

/// The value of a `grpc-timeout` header, such as `120000m`.
fn timeout(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number = number.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

fn to_json(descriptor: MessageDescriptor, message: &impl Message) -> Json {
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
        fields.insert(field.name().to_owned(), json);
    }
    Json::Object(fields)
}

fn scalar(value: &Value, kind: &Kind) -> Json {
    match value {
        Value::Bool(value) => (*value).into(),
        Value::I64(value) => value.to_string().into(),
        Value::String(value) => value.as_str().into(),
        Value::EnumNumber(number) => match kind {
            Kind::Enum(kind) => kind.get_value(*number).map_or((*number).into(), |value| value.name().into()),
            other => panic!("{other:?} is not an enum"),
        },
        Value::Message(message) => object(message),
        other => panic!("no message of CSI has {other:?} in it"),
    }
}

fn key_text(key: &MapKey) -> String {
    match key {
        MapKey::String(key) => key.clone(),
        other => panic!("no map of CSI has a key like {other:?}"),
    }
}
