//! The way of a tree through the schema: what Go's decoder would make of it, written as Go's encoder and the store
//! would write it. An empty list that is always written comes back from the store as null.

use std::borrow::Cow;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use crablet_api::Quantity;
use serde_json::{Map, Number, Value};

use super::problems::Problems;
use super::time;
use super::tree::Tree;
use super::types::{Field, Item, Type};

/// Go takes what is over in the last letter.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// Where a tree is from, which decides what type errors say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A text, decoded by upstream's JSON decoder.
    Json,
    /// A tree without types, as strategic merge patches work on.
    Unstructured,
}

/// Why a tree is not of its type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TypeError(pub String);

/// An object of a type. Problems are of fields that are not known or are there twice.
pub(crate) fn object(
    type_: &'static Type,
    origin: Origin,
    tree: Tree<'_>,
    problems: &mut Problems,
) -> Result<Value, TypeError> {
    let mut walk = Walk { origin, problems, saved: None, names: Vec::new(), structure: None };
    let object = match tree {
        Tree::Object(fields) => walk.structure(type_, fields)?,
        Tree::Null => zero_of(type_),
        other => {
            walk.mismatch(other.kind(), || type_.go_name(), "struct")?;
            Value::Null
        }
    };
    walk.saved.map_or(Ok(object), Err)
}

/// A list of things of a type, which nothing is made of: only what is wrong with it is of interest.
pub(crate) fn check_list(
    type_: &'static Type,
    tree: Tree<'_>,
    problems: &mut Problems,
) -> Result<(), TypeError> {
    let mut walk = Walk { origin: Origin::Json, problems, saved: None, names: Vec::new(), structure: None };
    match tree {
        Tree::List(items) => {
            for (index, item) in items.into_iter().enumerate() {
                let outer = walk.problems.enter_index(index);
                match item {
                    Tree::Object(fields) => drop(walk.structure(type_, fields)?),
                    Tree::Null => {}
                    other => walk.mismatch(other.kind(), || type_.go_name(), "struct")?,
                }
                walk.problems.leave(outer);
            }
        }
        Tree::Null => {}
        other => walk.mismatch(other.kind(), || format!("[]{}", type_.go_name()), "slice")?,
    }
    walk.saved.map_or(Ok(()), Err)
}

struct Walk<'w> {
    origin: Origin,
    problems: &'w mut Problems,
    /// The first type error. Go's decoder goes on after one, and some errors that come later count for more.
    saved: Option<TypeError>,
    /// The fields on the way here, with the embedded types between them.
    names: Vec<&'static str>,
    /// The innermost type on the way.
    structure: Option<&'static str>,
}

impl Walk<'_> {
    fn structure(
        &mut self,
        type_: &'static Type,
        fields: Vec<(Cow<'_, str>, Tree<'_>)>,
    ) -> Result<Value, TypeError> {
        let mut object = Map::new();
        let (mut seen, mut written) = (0u128, 0u128);
        let (depth, outer_structure) = (self.names.len(), self.structure);
        for (name, tree) in fields {
            let Some(found) = type_.find(&name) else {
                match (type_.is_object, name.as_ref()) {
                    (true, "apiVersion" | "kind") => self.type_meta(type_, &name, tree, &mut object)?,
                    _ => self.problems.unknown(&name),
                }
                continue;
            };
            let (field, bit) = (found.field, 1u128 << found.slot);
            if seen & bit != 0 {
                self.problems.duplicate(field.name);
            }
            seen |= bit;
            if !std::ptr::eq(found.owner, type_) {
                self.names.push(found.owner.name);
            }
            self.names.push(field.name);
            self.structure = Some(type_.name);
            let outer = self.problems.enter(field.name);
            let value = self.field(field, tree)?;
            self.problems.leave(outer);
            self.names.truncate(depth);
            self.structure = outer_structure;
            match kept(field, value) {
                Some(value) => {
                    object.insert(field.name.to_owned(), value);
                    written |= bit;
                }
                // What was said before is overwritten.
                None if written & bit != 0 => {
                    object.remove(field.name);
                    written &= !bit;
                }
                None => {}
            }
        }
        type_.each(&mut |slot, field, _| {
            if field.is_always() && written & (1 << slot) == 0 {
                object.insert(field.name.to_owned(), unsaid(field));
            }
        });
        Ok(Value::Object(object))
    }

    /// `apiVersion` and `kind`, which all objects have, those within others too.
    fn type_meta(
        &mut self,
        type_: &'static Type,
        name: &str,
        tree: Tree<'_>,
        object: &mut Map<String, Value>,
    ) -> Result<(), TypeError> {
        if object.contains_key(name) {
            self.problems.duplicate(name);
        }
        match tree {
            Tree::Text(text) if !text.is_empty() => {
                drop(object.insert(name.to_owned(), Value::String(text.into())))
            }
            Tree::Text(_) | Tree::Null => {}
            other => {
                let embedded = if name == "kind" { "kind" } else { "apiVersion" };
                let (depth, outer) = (self.names.len(), self.structure);
                self.names.extend(["TypeMeta", embedded]);
                self.structure = Some(type_.name);
                self.mismatch(other.kind(), || "string".to_owned(), "string")?;
                self.names.truncate(depth);
                self.structure = outer;
            }
        }
        Ok(())
    }

    fn field(&mut self, field: &'static Field, tree: Tree<'_>) -> Result<Value, TypeError> {
        match (field.shape.is_map, field.shape.is_list, tree) {
            (true, _, Tree::Null) | (false, true, Tree::Null) => Ok(Value::Null),
            (true, _, tree) => self.map(field, tree),
            (false, true, tree) => self.list(field, 0, tree),
            (false, false, Tree::Null) if field.is_pointer() => Ok(Value::Null),
            (false, false, tree) => self.item(field, 0, tree),
        }
    }

    fn map(&mut self, field: &'static Field, tree: Tree<'_>) -> Result<Value, TypeError> {
        let Tree::Object(fields) = tree else {
            self.mismatch(tree.kind(), || field.go_type(0), "map")?;
            return Ok(Value::Null);
        };
        let mut object = Map::new();
        for (name, tree) in fields {
            if object.contains_key(name.as_ref()) {
                self.problems.duplicate(&name);
            }
            let outer = self.problems.enter(&name);
            let value = match (field.shape.is_list, tree) {
                (true, Tree::Null) => Value::Null,
                (true, tree) => self.list(field, 1, tree)?,
                (false, tree) => self.element(field, 1, tree)?,
            };
            self.problems.leave(outer);
            object.insert(name.into_owned(), value);
        }
        Ok(Value::Object(object))
    }

    fn list(&mut self, field: &'static Field, depth: usize, tree: Tree<'_>) -> Result<Value, TypeError> {
        let Tree::List(items) = tree else {
            self.mismatch(tree.kind(), || field.go_type(depth), "slice")?;
            return Ok(Value::Null);
        };
        let mut values = Vec::with_capacity(items.len());
        for (index, item) in items.into_iter().enumerate() {
            let outer = self.problems.enter_index(index);
            values.push(self.element(field, depth + 1, item)?);
            self.problems.leave(outer);
        }
        Ok(Value::Array(values))
    }

    /// What is in a list or a map cannot be nothing: the store gives back no bytes for none.
    fn element(&mut self, field: &'static Field, depth: usize, tree: Tree<'_>) -> Result<Value, TypeError> {
        match (field.shape.item, tree) {
            (Item::Bytes, Tree::Null) => Ok("".into()),
            (_, tree) => self.item(field, depth, tree),
        }
    }

    fn item(&mut self, field: &'static Field, depth: usize, tree: Tree<'_>) -> Result<Value, TypeError> {
        let go_type = || field.go_type(depth);
        match (field.shape.item, tree) {
            (item, Tree::Null) => return Ok(zero(item)),
            (Item::Text, Tree::Text(text)) => return Ok(Value::String(text.into_owned())),
            (Item::Text, tree) => self.mismatch(self.source(&tree), go_type, "string")?,
            (Item::Bool, Tree::Bool(value)) => return Ok(value.into()),
            (Item::Bool, tree) => self.mismatch(tree.kind(), go_type, "bool")?,
            (item @ (Item::Int32 | Item::Int64), Tree::Number(text)) => match self.integer(item, &text) {
                Some(integer) => return Ok(integer.into()),
                None => self.bad_number(&text, go_type)?,
            },
            (Item::Int32, tree) => self.mismatch(tree.kind(), go_type, "int32")?,
            (Item::Int64, tree) => self.mismatch(tree.kind(), go_type, "int64")?,
            (Item::Double, Tree::Number(text)) => match text.parse().ok().and_then(Number::from_f64) {
                Some(number) => return Ok(Value::Number(number)),
                None => self.bad_number(&text, go_type)?,
            },
            (Item::Double, tree) => self.mismatch(tree.kind(), go_type, "float64")?,
            (Item::Bytes, Tree::Text(text)) => return self.bytes(&text),
            (Item::Bytes, tree) => self.mismatch(tree.kind(), go_type, "slice")?,
            (Item::Quantity, tree) => return quantity(&tree),
            (item @ (Item::Time | Item::MicroTime), Tree::Text(text)) => {
                let written = time::canonical(&text, item == Item::MicroTime).map_err(TypeError)?;
                return Ok(written.map_or(Value::Null, Value::String));
            }
            (Item::IntOrString, Tree::Text(text)) => return Ok(Value::String(text.into_owned())),
            (Item::Time | Item::MicroTime, tree) => {
                return Err(self.type_error(tree.kind(), "string"));
            }
            (Item::IntOrString, Tree::Number(text)) => {
                let integer = text.parse::<i32>().ok();
                let what = || format!("number {text}");
                return integer.map(Value::from).ok_or_else(|| self.type_error(&what(), "int32"));
            }
            (Item::IntOrString, tree) => return Err(self.type_error(tree.kind(), "int32")),
            (Item::Raw, tree) => return Ok(tree.into_value(&mut Problems::default())),
            (Item::Struct(id), Tree::Object(fields)) => return self.structure(id.get(), fields),
            (Item::Struct(_), tree) => self.mismatch(tree.kind(), go_type, "struct")?,
        }
        Ok(zero(field.shape.item))
    }

    /// What a number is, where it matters whether it has a fraction.
    fn source(&self, tree: &Tree<'_>) -> &'static str {
        match (self.origin, tree) {
            (Origin::Unstructured, Tree::Number(text)) if text.parse::<i64>().is_ok() => "int64",
            _ => tree.kind(),
        }
    }

    fn integer(&self, item: Item, text: &str) -> Option<i64> {
        let integer = match (text.parse::<i64>(), self.origin) {
            (Ok(integer), _) => integer,
            // A tree has lost how its numbers were written.
            (Err(_), Origin::Unstructured) => {
                let float = text.parse::<f64>().ok().filter(|float| float.trunc() == *float)?;
                float as i64
            }
            (Err(_), Origin::Json) => return None,
        };
        match (item, self.origin) {
            (Item::Int32, Origin::Json) => i32::try_from(integer).ok().map(i64::from),
            // Go's conversion cuts off what is too much.
            (Item::Int32, Origin::Unstructured) => Some(i64::from(integer as i32)),
            _ => Some(integer),
        }
    }

    fn bytes(&mut self, text: &str) -> Result<Value, TypeError> {
        let plain: Cow<'_, str> = match text.contains(['\r', '\n']) {
            true => text.replace(['\r', '\n'], "").into(),
            false => text.into(),
        };
        let decoded = BASE64.decode(plain.as_bytes());
        match (decoded, bad_base64(text.as_bytes())) {
            (Ok(bytes), None) => Ok(BASE64.encode(bytes).into()),
            (_, at) => {
                let at = at.unwrap_or(text.len());
                let error = TypeError(format!("illegal base64 data at input byte {at}"));
                match self.origin {
                    Origin::Json => self.saved.get_or_insert(error),
                    Origin::Unstructured => {
                        return Err(TypeError(format!("error decoding from json: {error}")));
                    }
                };
                Ok("".into())
            }
        }
    }

    fn bad_number(&mut self, text: &str, go_type: impl Fn() -> String) -> Result<(), TypeError> {
        match self.origin {
            Origin::Json => self.mismatch(&format!("number {text}"), go_type, ""),
            Origin::Unstructured => Err(TypeError(format!("cannot convert float64 to {}", go_type()))),
        }
    }

    /// A value of another kind than its field's.
    fn mismatch(&mut self, what: &str, go_type: impl Fn() -> String, go_kind: &str) -> Result<(), TypeError> {
        match (self.origin, what, go_kind) {
            (Origin::Json, _, _) => {
                if self.saved.is_none() {
                    self.saved = Some(self.type_error(what, &go_type()));
                }
                Ok(())
            }
            (Origin::Unstructured, _, "map" | "slice") => {
                Err(TypeError(format!("cannot restore {go_kind} from {}", unstructured_kind(what))))
            }
            (Origin::Unstructured, _, "struct") => {
                Err(TypeError(format!("cannot restore struct from: {}", unstructured_kind(what))))
            }
            // Go can make a text of a number, and refuses to.
            (Origin::Unstructured, "int64", "string") => {
                Err(TypeError(format!("cannot convert int64 to {}", go_type())))
            }
            (Origin::Unstructured, _, kind) => Err(TypeError(format!("unrecognized type: {kind}"))),
        }
    }

    fn type_error(&self, what: &str, go_type: &str) -> TypeError {
        TypeError(match (self.origin, self.structure) {
            (Origin::Json, Some(structure)) => {
                let names = self.names.join(".");
                format!(
                    "json: cannot unmarshal {what} into Go struct field {structure}.{names} of type {go_type}"
                )
            }
            (Origin::Json, None) | (Origin::Unstructured, _) => {
                format!("json: cannot unmarshal {what} into Go value of type {go_type}")
            }
        })
    }
}

/// What Go's reflection calls a kind of JSON value.
fn unstructured_kind(what: &str) -> &str {
    match what {
        "array" => "slice",
        "object" => "map",
        "number" => "int64",
        other => other,
    }
}

/// Where Go's decoder of base64 stops, if it does: at a letter that is none, at what follows the end, or at the
/// beginning of four letters that are not four.
fn bad_base64(text: &[u8]) -> Option<usize> {
    let is_break = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let (mut at, mut quantum) = (0, 0);
    while let Some(byte) = text.get(at) {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' => quantum = (quantum + 1) % 4,
            byte if is_break(byte) => {}
            b'=' if quantum >= 2 => {
                let mut rest = (at + 1..text.len()).filter(|index| !is_break(&text[*index]));
                if quantum == 2 {
                    match rest.next() {
                        None => return Some(text.len()),
                        Some(next) if text[next] != b'=' => return Some(next - 1),
                        Some(_) => {}
                    }
                }
                return rest.next();
            }
            _ => return Some(at),
        }
        at += 1;
    }
    (quantum != 0).then(|| at.saturating_sub(quantum))
}

fn quantity(tree: &Tree<'_>) -> Result<Value, TypeError> {
    let text = match tree {
        Tree::Text(text) | Tree::Number(text) => text.trim(),
        _ => "",
    };
    let parsed: Quantity = text.parse().map_err(|error| TypeError(format!("{error}")))?;
    Ok(parsed.to_string().into())
}

/// What is written of a field that was said; none if nothing is.
fn kept(field: &Field, value: Value) -> Option<Value> {
    let is_empty = match &value {
        Value::Null => true,
        Value::Array(items) if field.shape.is_list => items.is_empty(),
        Value::Object(fields) if field.shape.is_map => fields.is_empty(),
        _ if field.is_pointer() => false,
        Value::String(text) => text.is_empty(),
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Object(fields) => fields.is_empty(),
        Value::Array(_) => false,
    };
    match (is_empty, field.is_always()) {
        (false, _) => Some(value),
        (true, false) => None,
        (true, true) if field.shape.is_list || field.shape.is_map => Some(Value::Null),
        (true, true) => Some(value),
    }
}

/// What is written of a field that was not said and is always written.
fn unsaid(field: &Field) -> Value {
    match field.is_pointer() || field.shape.is_list || field.shape.is_map {
        true => Value::Null,
        false => zero(field.shape.item),
    }
}

fn zero(item: Item) -> Value {
    match item {
        Item::Text => "".into(),
        Item::Int32 | Item::Int64 | Item::IntOrString => 0.into(),
        Item::Bool => false.into(),
        Item::Double => 0.0.into(),
        Item::Bytes | Item::Time | Item::MicroTime | Item::Raw => Value::Null,
        Item::Quantity => "0".into(),
        Item::Struct(id) => zero_of(id.get()),
    }
}

fn zero_of(type_: &'static Type) -> Value {
    let mut object = Map::new();
    type_.each(&mut |_, field, _| {
        if field.is_always() {
            object.insert(field.name.to_owned(), unsaid(field));
        }
    });
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::{json, types};

    fn decoded(schema: &str, text: &str) -> Result<(Value, Vec<String>), String> {
        let mut problems = Problems::default();
        let tree = json::parse(text.as_bytes()).unwrap();
        let value = object(types::find(schema).unwrap(), Origin::Json, tree, &mut problems);
        Ok((value.map_err(|error| error.0)?, problems.into_found()))
    }

    #[test]
    fn an_object_is_written_as_go_would_write_it() {
        let (pod, problems) = decoded(
            "core.Pod",
            r#"{
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "a", "namespace": "", "labels": {}, "annotations": null, "creationTimestamp": null,
                    "generation": 0, "finalizers": [], "ownerReferences": [{"kind": "Node", "controller": false}]},
                "spec": {
                    "hostNetwork": false, "terminationGracePeriodSeconds": 0, "securityContext": {}, "priority": null,
                    "nodeSelector": {"a": null}, "tolerations": [null],
                    "volumes": [{"name": "v", "emptyDir": {}}, {"configMap": {"name": "c", "defaultMode": 0}, "name": "w"}],
                    "containers": [{"name": "c", "args": ["a", null],
                        "resources": {"limits": {"cpu": 1.50, "memory": "1024Mi", "x": null}, "requests": {}},
                        "env": [{"name": "E", "value": "", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}],
                        "livenessProbe": {"httpGet": {"port": "http"}, "periodSeconds": 0},
                        "ports": [{"containerPort": 80, "hostPort": 0}]}]}
            }"#,
        )
        .unwrap();
        assert_eq!(problems, Vec::<String>::new());
        let expected = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a",
                "ownerReferences": [{"apiVersion": "", "kind": "Node", "name": "", "uid": "", "controller": false}]},
            "spec": {
                "terminationGracePeriodSeconds": 0, "securityContext": {}, "nodeSelector": {"a": ""}, "tolerations": [{}],
                "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "c", "defaultMode": 0}}],
                "containers": [{"name": "c", "args": ["a", ""],
                    "resources": {"limits": {"cpu": "1500m", "memory": "1Gi", "x": "0"}},
                    "env": [{"name": "E", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "0"}}}],
                    "livenessProbe": {"httpGet": {"port": "http"}},
                    "ports": [{"containerPort": 80}]}]},
            "status": {},
        });
        assert_eq!(pod, expected, "{pod:#}");
        // And so it stays.
        assert_eq!(decoded("core.Pod", &pod.to_string()).unwrap(), (pod, Vec::new()));
    }

    #[test]
    fn what_is_always_written_is_there_unsaid_or_empty() {
        for (schema, text, expected) in [
            ("core.Pod", "null", json!({"metadata": {}, "spec": {"containers": null}, "status": {}})),
            (
                "core.Pod",
                r#"{"spec": {"containers": []}}"#,
                json!({"metadata": {}, "spec": {"containers": null}, "status": {}}),
            ),
            ("rbac.Role", "{}", json!({"metadata": {}, "rules": null})),
            (
                "core.Event",
                r#"{"firstTimestamp": "2024-01-02T03:04:05.6+01:00", "eventTime": "2024-01-02T03:04:05.678901Z"}"#,
                json!({"metadata": {}, "involvedObject": {}, "source": {}, "firstTimestamp": "2024-01-02T02:04:05Z",
                    "lastTimestamp": null, "eventTime": "2024-01-02T03:04:05.678901Z", "reportingComponent": "", "reportingInstance": ""}),
            ),
            (
                "core.Secret",
                r#"{"data": {"a": "YQ==", "b": "YQ\n==", "c": null, "d": ""}, "immutable": false}"#,
                json!({"metadata": {}, "data": {"a": "YQ==", "b": "YQ==", "c": "", "d": ""}, "immutable": false}),
            ),
            (
                "core.Service",
                r#"{"spec": {"ports": [{"port": 80}, {"port": 81, "targetPort": 8081}]}}"#,
                json!({"metadata": {}, "status": {"loadBalancer": {}},
                    "spec": {"ports": [{"port": 80, "targetPort": 0}, {"port": 81, "targetPort": 8081}]}}),
            ),
            ("scheduling.PriorityClass", "{}", json!({"metadata": {}, "value": 0})),
            (
                "resource.DeviceClass",
                r#"{"spec": {"config": [{"opaque": {"driver": "d", "parameters": {"b": [1, 1.5, {"a": null}]}}}]}}"#,
                json!({"metadata": {}, "spec": {"config": [{"opaque": {"driver": "d", "parameters": {"b": [1, 1.5, {"a": null}]}}}]}}),
            ),
        ] {
            assert_eq!(decoded(schema, text).unwrap().0, expected, "{schema} {text}");
        }
    }

    #[test]
    fn unknown_and_double_fields_are_told_with_their_paths_in_the_order_of_the_text() {
        let (_, problems) = decoded(
            "core.Pod",
            r#"{"foo": 1, "spec": {"containers": [{"name": "a", "Name": "b", "bar": {"x": 1, "x": 2}, "image": "i", "image": "j"}],
                "nodeSelector": {"a.b/c": "x", "a.b/c": "y"}, "volumes": [{"name": "v", "emptyDir": {"x": 1}}]},
                "metadata": {"labels": {"a": "b"}, "name": "n", "name": "m"}, "foo": 2}"#,
        )
        .unwrap();
        assert_eq!(
            problems,
            [
                r#"unknown field "foo""#,
                r#"unknown field "spec.containers[0].Name""#,
                r#"unknown field "spec.containers[0].bar""#,
                r#"duplicate field "spec.containers[0].image""#,
                r#"duplicate field "spec.nodeSelector.a.b/c""#,
                r#"unknown field "spec.volumes[0].emptyDir.x""#,
                r#"duplicate field "metadata.name""#,
            ]
        );
        let many: String = (0..500).map(|number| format!("\"f{number}\": 1,")).collect();
        let (_, problems) = decoded("core.Pod", &format!("{{{many} \"spec\": {{}}}}")).unwrap();
        assert_eq!(problems.len(), 100);
    }

    #[test]
    fn type_errors_are_told_in_gos_words() {
        for (schema, text, expected) in [
            (
                "core.Pod",
                r#"{"spec": {"hostNetwork": "yes"}}"#,
                "json: cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork of type bool",
            ),
            (
                "core.Pod",
                r#"{"spec": {"containers": [{"name": 5}]}}"#,
                "json: cannot unmarshal number into Go struct field Container.spec.containers.name of type string",
            ),
            (
                "core.Pod",
                r#"{"spec": {"containers": {}}}"#,
                "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
            ),
            (
                "core.Pod",
                r#"{"spec": {"restartPolicy": 1}}"#,
                "json: cannot unmarshal number into Go struct field PodSpec.spec.restartPolicy of type v1.RestartPolicy",
            ),
            (
                "core.Pod",
                r#"{"metadata": {"labels": {"a": 1}}}"#,
                "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
            ),
            (
                "core.Pod",
                r#"{"metadata": {"labels": []}}"#,
                "json: cannot unmarshal array into Go struct field ObjectMeta.metadata.labels of type map[string]string",
            ),
            (
                "core.Pod",
                r#"{"spec": {"priority": 3000000000}}"#,
                "json: cannot unmarshal number 3000000000 into Go struct field PodSpec.spec.priority of type int32",
            ),
            (
                "core.Pod",
                r#"{"spec": {"terminationGracePeriodSeconds": 1.0}}"#,
                "json: cannot unmarshal number 1.0 into Go struct field PodSpec.spec.terminationGracePeriodSeconds of type int64",
            ),
            (
                "core.Pod",
                r#"{"spec": []}"#,
                "json: cannot unmarshal array into Go struct field Pod.spec of type v1.PodSpec",
            ),
            // The first counts.
            (
                "core.Pod",
                r#"{"spec": {"volumes": [{"hostPath": "/"}], "nodeName": 1}}"#,
                "json: cannot unmarshal string into Go struct field Volume.spec.volumes.VolumeSource.hostPath of type v1.HostPathVolumeSource",
            ),
            // But not before one of a type that decodes itself.
            (
                "core.Pod",
                r#"{"spec": {"nodeName": 1, "overhead": {"cpu": "1x"}}}"#,
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ),
            (
                "core.Pod",
                r#"{"metadata": {"creationTimestamp": 1}}"#,
                "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
            ),
            (
                "core.Pod",
                r#"{"metadata": {"creationTimestamp": "now"}}"#,
                r#"parsing time "now" as "2006-01-02T15:04:05Z07:00": cannot parse "now" as "2006""#,
            ),
            (
                "core.Service",
                r#"{"spec": {"ports": [{"targetPort": true}]}}"#,
                "json: cannot unmarshal bool into Go struct field ServicePort.spec.ports.targetPort of type int32",
            ),
            ("core.Secret", r#"{"data": {"a": "x!"}}"#, "illegal base64 data at input byte 1"),
            ("core.Secret", r#"{"data": {"a": "YQ"}}"#, "illegal base64 data at input byte 0"),
            ("core.Secret", r#"{"data": {"a": "YWJjZ"}}"#, "illegal base64 data at input byte 4"),
            ("core.Secret", r#"{"data": {"a": "YQ=a"}}"#, "illegal base64 data at input byte 2"),
            (
                "core.Secret",
                r#"{"data": {"a": "YQ=="}, "data": {"a": "YQ==="}}"#,
                "illegal base64 data at input byte 4",
            ),
            (
                "core.Secret",
                r#"{"data": {"a": 1}}"#,
                "json: cannot unmarshal number into Go struct field Secret.data of type []uint8",
            ),
            ("core.Secret", "[]", "json: cannot unmarshal array into Go value of type v1.Secret"),
        ] {
            assert_eq!(decoded(schema, text).unwrap_err(), expected, "{text}");
        }
    }
}
