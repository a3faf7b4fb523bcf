//! Patches: read, applied, and what comes out decoded again. What is refused differs by the kind of patch, as it does
//! upstream, where each takes its own way.

use crablet_api::validate::{ErrorKind, FieldError};
use serde_json::Value;

use super::normalise::{self, Origin};
use super::problems::Problems;
use super::tree::Tree;
use super::{Decoded, Expected, FieldValidation, decode, go, json, json_patch, strategic, take_kind, types};
use crate::status::Refusal;

/// The kinds of patches.
pub const PATCH_TYPES: [&str; 3] =
    ["application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json"];

/// The most operations of one JSON patch.
const MOST_OPERATIONS: usize = 10_000;

/// Why a patch could not be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchError {
    /// It is none of the kinds of patches.
    UnknownType,
    /// It is not written as such a patch is.
    Malformed(String),
    TooLarge(String),
    /// It does not fit the object.
    Unfit,
    /// What it makes of the object is no such object, or has fields that are not known.
    Invalid {
        value: String,
        why: String,
    },
    /// It has what upstream did not foresee.
    Unexpected(String),
}

impl PatchError {
    pub fn refusal(&self) -> Refusal {
        let without_details = |code, reason, message: &str| {
            let mut refusal = Refusal::new(code, reason, message);
            refusal.details = Some(serde_json::json!({}));
            refusal
        };
        match self {
            PatchError::UnknownType => {
                without_details(415, "UnsupportedMediaType", "415: Unsupported Media Type")
            }
            PatchError::Malformed(why) => Refusal::bad_request(why.clone()),
            PatchError::TooLarge(why) => {
                Refusal::new(413, "RequestEntityTooLarge", format!("Request entity too large: {why}"))
            }
            PatchError::Unfit => {
                let why = "the server rejected our request due to an error in our request";
                without_details(422, "Invalid", why)
            }
            PatchError::Invalid { value, why } => {
                let error = FieldError {
                    path: "patch".to_owned(),
                    kind: ErrorKind::Invalid,
                    value: Some(go::quote(value)),
                    detail: why.clone(),
                };
                Refusal::invalid_kind("", "", "", &[error])
            }
            PatchError::Unexpected(why) => Refusal::new(500, "", why.clone()),
        }
    }
}

impl From<strategic::Error> for PatchError {
    fn from(error: strategic::Error) -> PatchError {
        match error {
            strategic::Error::Malformed(why) => PatchError::Malformed(why.to_owned()),
            strategic::Error::Unfit => PatchError::Unfit,
            strategic::Error::Unexpected(why) => PatchError::Unexpected(why),
        }
    }
}

/// A patch that was read, to be applied to an object.
pub struct Patch {
    changes: Changes,
    validation: FieldValidation,
    /// What is to be warned of in the patch itself.
    problems: Vec<String>,
}

enum Changes {
    Operations(Vec<Value>),
    Merge(Value),
    Strategic(Value),
}

impl Patch {
    /// Reads a patch, whose kind is told by its media type.
    pub fn read(media: &str, patch: &[u8], validation: FieldValidation) -> Result<Patch, PatchError> {
        let is_checked = validation != FieldValidation::Ignore;
        let mut problems = Vec::new();
        let changes = match media {
            "application/json-patch+json" => {
                Changes::Operations(operations(patch, is_checked, &mut problems)?)
            }
            "application/merge-patch+json" => Changes::Merge(merge_patch(patch, is_checked, &mut problems)?),
            "application/strategic-merge-patch+json" => {
                Changes::Strategic(object(patch, &mut problems).map_err(PatchError::Malformed)?)
            }
            _ => return Err(PatchError::UnknownType),
        };
        Ok(Patch { changes, validation, problems })
    }

    /// Whether a member of the object may become another by it.
    pub fn touches(&self, member: &str) -> bool {
        self.part_of(member) != Touched::Not
    }

    /// How much of a member of the object the patch is about. What the object is counts in any case.
    fn part_of(&self, member: &str) -> Touched<'_> {
        match &self.changes {
            _ if matches!(member, "apiVersion" | "kind") => Touched::Whole,
            Changes::Operations(_) => Touched::Whole,
            Changes::Merge(changes) => Touched::by_merge(changes, member),
            Changes::Strategic(Value::Object(changes)) => {
                // A directive of the whole object is about its other members.
                let is_meant =
                    changes.contains_key(member) || changes.keys().any(|name| name.starts_with('$'));
                if is_meant { Touched::Whole } else { Touched::Not }
            }
            Changes::Strategic(_) => Touched::Not,
        }
    }

    /// Applies the patch to an object as it is kept, which is in the form that Go would write: only what the patch
    /// touches goes through the schema. Of what comes out, problems are only what is to be warned of.
    pub fn apply(&self, expected: &Expected<'_>, object: &Value) -> Result<Decoded, PatchError> {
        let type_ = types::find(expected.schema)
            .ok_or_else(|| PatchError::Unexpected(format!("no type {} is known", expected.schema)))?;
        let (origin, patched) = match &self.changes {
            Changes::Operations(operations) => {
                let mut patched = object.clone();
                json_patch::apply(&mut patched, operations).map_err(|_| PatchError::Unfit)?;
                (Origin::Json, patched)
            }
            Changes::Merge(changes) => {
                let mut patched = touched(object, &|member| self.part_of(member));
                json_patch::merge(&mut patched, changes.clone());
                (Origin::Json, patched)
            }
            Changes::Strategic(changes) => {
                let original = touched(object, &|member| self.part_of(member));
                let patched = match (original, changes.clone()) {
                    (Value::Object(original), Value::Object(changes)) => {
                        Value::Object(strategic::merge(original, changes, type_)?)
                    }
                    (original, _) => original,
                };
                (Origin::Unstructured, patched)
            }
        };
        let said = || match &self.changes {
            Changes::Operations(_) | Changes::Merge(_) => {
                self.with_untouched(patched.clone(), object).to_string()
            }
            Changes::Strategic(changes) => go::print(changes),
        };
        let mut decoded = self.decode(origin, type_, expected, &patched, said)?;
        decoded.object = self.with_untouched(decoded.object, object);
        Ok(decoded)
    }

    /// The same with what the patch is not about.
    fn with_untouched(&self, mut patched: Value, object: &Value) -> Value {
        add_untouched(&mut patched, object, &|member| self.part_of(member));
        patched
    }

    /// What came out, through the schema again.
    fn decode(
        &self,
        origin: Origin,
        type_: &'static types::Type,
        expected: &Expected<'_>,
        patched: &Value,
        said: impl Fn() -> String,
    ) -> Result<Decoded, PatchError> {
        let invalid = |why: String| PatchError::Invalid { value: said(), why };
        let tree = Tree::from(patched);
        if origin == Origin::Json {
            decode::check_patched(&tree, expected).map_err(invalid)?;
        }
        let mut found = Problems::default();
        let object = normalise::object(type_, origin, tree, &mut found);
        let mut object = object.map_err(|error| invalid(error.0))?;
        let (api_version, kind) = take_kind(&mut object);
        let mut found = found.into_found();
        if origin == Origin::Unstructured {
            found.sort();
        }
        let mut problems = self.problems.clone();
        problems.extend(found);
        match self.validation {
            FieldValidation::Ignore => problems.clear(),
            FieldValidation::Warn => {}
            FieldValidation::Strict if problems.is_empty() => {}
            FieldValidation::Strict => {
                return Err(invalid(format!("strict decoding error: {}", problems.join(", "))));
            }
        }
        Ok(Decoded { object, api_version, kind, problems })
    }
}

/// How much of a value a patch is about.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Touched<'p> {
    Not,
    /// Of an object, what a merge patch is about; of anything else, all.
    Fields(&'p Value),
    Whole,
}

impl Touched<'_> {
    /// What a merge patch of an object is about of one of its fields.
    fn by_merge<'p>(changes: &'p Value, field: &str) -> Touched<'p> {
        match changes.get(field) {
            None => Touched::Not,
            Some(changes) if changes.is_object() => Touched::Fields(changes),
            Some(_) => Touched::Whole,
        }
    }
}

/// What of an object a patch is about.
fn touched<'p>(object: &Value, part_of: &dyn Fn(&str) -> Touched<'p>) -> Value {
    let fields = object.as_object().into_iter().flatten();
    let touched = fields.filter_map(|(name, value)| {
        let value = match part_of(name) {
            Touched::Not => return None,
            Touched::Fields(changes) if value.is_object() => {
                touched(value, &|field| Touched::by_merge(changes, field))
            }
            Touched::Fields(_) | Touched::Whole => value.clone(),
        };
        Some((name.clone(), value))
    });
    touched.collect()
}

/// Adds what a patch is not about.
fn add_untouched<'p>(patched: &mut Value, object: &Value, part_of: &dyn Fn(&str) -> Touched<'p>) {
    for (name, value) in object.as_object().into_iter().flatten() {
        match part_of(name) {
            Touched::Not => patched[name] = value.clone(),
            Touched::Fields(changes) if value.is_object() => {
                // Where nothing was left of it, it need not have been written.
                let written = patched.get_mut(name).map(Value::take);
                let was_written = written.is_some();
                let mut inner = written.unwrap_or_default();
                add_untouched(&mut inner, value, &|field| Touched::by_merge(changes, field));
                if was_written || !inner.is_null() {
                    patched[name] = inner;
                }
            }
            Touched::Fields(_) | Touched::Whole => {}
        }
    }
}

fn operations(patch: &[u8], is_checked: bool, all: &mut Vec<String>) -> Result<Vec<Value>, PatchError> {
    let decoding = |why: String| match is_checked {
        true => PatchError::Malformed(format!("error decoding patch: {why}")),
        false => PatchError::Malformed(why),
    };
    let tree = json::parse(patch).map_err(decoding)?;
    if is_checked {
        let type_ = types::find("handlers.jsonPatchOp").ok_or(PatchError::UnknownType)?;
        let mut problems = Problems::default();
        let checked = normalise::check_list(type_, tree.clone(), &mut problems);
        checked.map_err(|error| decoding(error.0))?;
        let found = problems.into_found();
        all.extend(found.into_iter().map(|problem| format!("json patch {problem}")));
    }
    let wrong = |tree: &Tree<'_>, type_: &str| {
        let what = tree.kind();
        decoding(format!("json: cannot unmarshal {what} into Go value of type jsonpatch.{type_}"))
    };
    let items = match tree {
        Tree::List(items) => items,
        Tree::Null => Vec::new(),
        other => return Err(wrong(&other, "Patch")),
    };
    if items.len() > MOST_OPERATIONS {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {}",
            items.len()
        )));
    }
    if let Some(other) = items.iter().find(|item| !matches!(item, Tree::Object(_) | Tree::Null)) {
        return Err(wrong(other, "Operation"));
    }
    Ok(items.into_iter().map(|item| item.into_value(&mut Problems::default())).collect())
}

fn merge_patch(patch: &[u8], is_checked: bool, problems: &mut Vec<String>) -> Result<Value, PatchError> {
    let bad = || PatchError::Malformed("Invalid JSON Patch".to_owned());
    let changes = object(patch, problems).map_err(|why| match is_checked {
        true => PatchError::Malformed(format!("error decoding patch: {why}")),
        false => bad(),
    })?;
    if changes.is_null() { Err(bad()) } else { Ok(changes) }
}

/// A patch that is an object, or null.
fn object(patch: &[u8], problems: &mut Vec<String>) -> Result<Value, String> {
    let mut found = Problems::default();
    let value = json::parse_object(patch)?.into_value(&mut found);
    problems.extend(found.into_found());
    Ok(value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const JSON: &str = "application/json-patch+json";
    const MERGE: &str = "application/merge-patch+json";
    const STRATEGIC: &str = "application/strategic-merge-patch+json";

    fn patched(media: &str, patch: &str, validation: FieldValidation) -> Result<Decoded, PatchError> {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
            "spec": {"containers": [{"name": "a", "resources": {}}]}, "status": {}});
        let expected = Expected { schema: "core.Pod", api_version: "v1", kind: "Pod" };
        Patch::read(media, patch.as_bytes(), validation)?.apply(&expected, &pod)
    }

    #[test]
    fn a_patched_object_is_decoded_again() {
        for (media, patch) in [
            (
                JSON,
                r#"[{"op": "add", "path": "/spec/containers/0/resources/limits", "value": {"cpu": 0.5}}]"#,
            ),
            (MERGE, r#"{"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": "500m"}}}]}}"#),
            (
                STRATEGIC,
                r#"{"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": "0.5"}}}]}}"#,
            ),
        ] {
            let decoded = patched(media, patch, FieldValidation::Strict).unwrap();
            let containers = json!([{"name": "a", "resources": {"limits": {"cpu": "500m"}}}]);
            assert_eq!(decoded.object["spec"]["containers"], containers, "{patch}");
            assert_eq!((decoded.api_version.as_str(), decoded.kind.as_str()), ("v1", "Pod"));
        }
    }

    #[test]
    fn problems_are_warned_of_or_refused() {
        for (media, patch, expected) in [
            (
                JSON,
                r#"[{"op": "add", "path": "/spec/x", "value": 1, "y": 1, "op": "add"}]"#,
                &[
                    r#"json patch unknown field "[0].y""#,
                    r#"json patch duplicate field "[0].op""#,
                    r#"unknown field "spec.x""#,
                ][..],
            ),
            (
                MERGE,
                r#"{"spec": {"x": 1}, "spec": {"x": 1}}"#,
                &[r#"duplicate field "spec""#, r#"unknown field "spec.x""#],
            ),
            (
                STRATEGIC,
                r#"{"z": 1, "spec": {"x": 1, "x": 2}}"#,
                &[r#"duplicate field "spec.x""#, r#"unknown field "spec.x""#, r#"unknown field "z""#],
            ),
        ] {
            assert_eq!(patched(media, patch, FieldValidation::Warn).unwrap().problems, expected);
            assert_eq!(
                patched(media, patch, FieldValidation::Ignore).unwrap().problems,
                Vec::<String>::new()
            );
            let refusal = patched(media, patch, FieldValidation::Strict).unwrap_err().refusal();
            let why = format!("strict decoding error: {}", expected.join(", "));
            assert!(refusal.code == 422 && refusal.message.ends_with(&why), "{}", refusal.message);
        }
    }

    #[test]
    fn what_is_no_patch_or_does_not_fit_is_refused_as_upstream_refuses_it() {
        let invalid = |value: &str, why: &str| {
            (422, format!(" \"\" is invalid: patch: Invalid value: {}: {why}", go::quote(value)))
        };
        let many = format!("[{}]", vec![r#"{"op":"test","path":"/x"}"#; MOST_OPERATIONS + 1].join(","));
        for (media, patch, expected) in [
            (JSON, "{", (400, "error decoding patch: unexpected end of JSON input".to_owned())),
            (
                JSON,
                "{}",
                (400, "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp".to_owned()),
            ),
            (
                JSON,
                r#"[{"op": 1}]"#,
                (400, "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string".to_owned()),
            ),
            (
                JSON,
                r#"[{"op": "test", "path": "/spec", "value": 1}]"#,
                (422, "the server rejected our request due to an error in our request".to_owned()),
            ),
            (
                JSON,
                &many,
                (413, "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001".to_owned()),
            ),
            (
                MERGE,
                "[]",
                (400, "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}".to_owned()),
            ),
            (MERGE, "null", (400, "Invalid JSON Patch".to_owned())),
            (
                MERGE,
                r#"{"spec": {"nodeName": 1}}"#,
                invalid(
                    r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"a","resources":{}}],"nodeName":1},"status":{}}"#,
                    "json: cannot unmarshal number into Go struct field PodSpec.spec.nodeName of type string",
                ),
            ),
            (STRATEGIC, "{]", (400, "invalid character ']' looking for beginning of object key string".to_owned())),
            (
                STRATEGIC,
                r#"{"spec": {"nodeName": 1}}"#,
                invalid("map[spec:map[nodeName:1]]", "cannot convert int64 to string"),
            ),
            (
                STRATEGIC,
                r#"{"spec": {"hostNetwork": "yes"}}"#,
                invalid("map[spec:map[hostNetwork:yes]]", "unrecognized type: bool"),
            ),
            (STRATEGIC, r#"{"spec": 1}"#, invalid("map[spec:1]", "cannot restore struct from: int64")),
            (
                STRATEGIC,
                r#"{"spec": {"containers": [{}]}}"#,
                (500, "map: map[] does not contain declared merge key: name".to_owned()),
            ),
        ] {
            let refusal = patched(media, patch, FieldValidation::Warn).unwrap_err().refusal();
            assert_eq!((refusal.code, refusal.message), expected, "{patch:.80}");
        }
        assert_eq!(patched("text/plain", "", FieldValidation::Warn).unwrap_err(), PatchError::UnknownType);
    }

    #[test]
    fn what_a_patch_does_not_touch_comes_out_as_if_all_had_gone_through_the_schema() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "labels": {"l": "1"}, "finalizers": ["f/a", "f/b"]},
            "spec": {"containers": [{"name": "a", "resources": {}}], "nodeSelector": {"a": "b"},
                "overhead": {"cpu": "2", "memory": "1Mi"},
                "securityContext": {"runAsUser": 1, "seLinuxOptions": {"level": "l"}, "fsGroup": 2}},
            "status": {"conditions": [{"type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": null}]}});
        let expected = Expected { schema: "core.Pod", api_version: "v1", kind: "Pod" };
        for patch in [
            json!({}),
            json!({"status": {"phase": "Running", "message": "", "podIPs": []}}),
            json!({"status": null}),
            json!({"spec": null}),
            json!({"spec": {"nodeName": "n", "priority": 0}}),
            json!({"metadata": {"labels": null, "annotations": {"b": "2"}}}),
            json!({"metadata": {"labels": {"l": null}}, "z": {"y": null}}),
            json!({"metadata": {"labels": {}, "annotations": {}}, "spec": {}, "status": {}}),
            json!({"metadata": {"labels": {"m": "2"}, "ownerReferences": []}}),
            json!({"spec": {"securityContext": {"runAsUser": null}, "affinity": {"nodeAffinity": {}}}}),
            json!({"spec": {"securityContext": {"runAsUser": 0, "sysctls": []}, "nodeSelector": {"a": "c"}}}),
            json!({"spec": {"nodeSelector": {"a": null}, "overhead": {"cpu": "1000m", "memory": null}}}),
            json!({"spec": {"securityContext": {"seLinuxOptions": {"level": null}}}}),
            json!({"$retainKeys": ["metadata", "status"], "status": {"phase": "Running"}}),
            json!({"$patch": "replace", "metadata": {"name": "a"}}),
            json!({"$patch": "delete"}),
            json!({"status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "New"}]}}),
            json!({"metadata": {"$setElementOrder/finalizers": ["f/b", "f/a"], "finalizers": ["f/b"]}}),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["f/a"]}}),
        ] {
            let Value::Object(changes) = &patch else { panic!("{patch}") };
            let mut merged = pod.clone();
            json_patch::merge(&mut merged, patch.clone());
            let type_ = types::find("core.Pod").unwrap();
            let Value::Object(original) = pod.clone() else { panic!("{pod}") };
            let strategic = strategic::merge(original, changes.clone(), type_).map(Value::Object);
            for (media, whole) in [(MERGE, Ok(merged)), (STRATEGIC, strategic)] {
                let read = Patch::read(media, patch.to_string().as_bytes(), FieldValidation::Warn).unwrap();
                let applied = read.apply(&expected, &pod).map(|decoded| decoded.object);
                let whole = whole.map(|whole| crate::schema::normalise("core.Pod", &whole).unwrap().object);
                assert_eq!(applied, whole.map_err(PatchError::from), "{media} {patch}");
            }
        }
    }
}
