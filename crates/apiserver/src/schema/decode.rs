//! Bodies, decoded: which kind they say they are, and whether that is the one that was expected.

use crablet_api::document;

use super::normalise::{self, Origin};
use super::problems::Problems;
use super::tree::Tree;
use super::{
    Decoded, Encoding, Expected, FieldValidation, MOST_VALUES, go, json, protobuf, take_kind, type_of, types,
};
use crate::status::Refusal;

/// Why a body is no object of its type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not even its kind can be told.
    #[error("the object provided is unrecognized (must be of type {expected}): {why} ({summary})")]
    Unrecognized { expected: String, why: String, summary: String },
    #[error("{kind} in version {version:?} cannot be handled as a {expected}: {why}")]
    Unfit { kind: String, version: String, expected: String, why: String },
    #[error("the API version in the data ({said}) does not match the expected API version ({expected})")]
    OtherVersion { said: String, expected: String },
}

impl DecodeError {
    pub fn refusal(&self) -> Refusal {
        Refusal::bad_request(self.to_string())
    }

    /// The same without what it was to be.
    pub fn bare_refusal(self) -> Refusal {
        match self {
            DecodeError::Unrecognized { why, .. } | DecodeError::Unfit { why, .. } => {
                Refusal::bad_request(why)
            }
            DecodeError::OtherVersion { .. } => self.refusal(),
        }
    }
}

/// Decodes a body as an object of a type.
pub fn decode(expected: &Expected<'_>, encoding: Encoding, body: &[u8]) -> Result<Decoded, DecodeError> {
    let unrecognized = |why: String| DecodeError::Unrecognized {
        expected: expected.kind.to_owned(),
        why,
        summary: summary(body),
    };
    let mut problems = Problems::default();
    let mut others = Vec::new();
    let source = match encoding {
        Encoding::Json => {
            let tree = json::parse(body).map_err(no_kind).map_err(unrecognized)?;
            Source::Tree(tree)
        }
        Encoding::Yaml => Source::Tree(yaml(body, &mut others).map_err(unrecognized)?),
        Encoding::Protobuf => Source::Message(protobuf::envelope(body).map_err(unrecognized)?),
    };
    let (api_version, kind) = source.kind().map_err(unrecognized)?;
    let said = GroupVersion::parse(&api_version).map_err(unrecognized)?;
    let wanted = GroupVersion::parse(expected.api_version).map_err(unrecognized)?;
    let said = said.or(wanted);
    let kind = if kind.is_empty() { expected.kind.to_owned() } else { kind };
    let version = said.version.to_owned();
    let unfit = |why: String| DecodeError::Unfit {
        kind: kind.clone(),
        version: version.clone(),
        expected: expected.kind.to_owned(),
        why,
    };
    check_kind(said, &kind, expected).map_err(|why| match why {
        Some(why) => unfit(why),
        None => {
            DecodeError::OtherVersion { said: said.to_string(), expected: expected.api_version.to_owned() }
        }
    })?;
    let type_ = type_of(expected.schema).map_err(|error| unfit(error.0))?;
    let tree = match source {
        Source::Tree(tree) => tree,
        Source::Message(envelope) => protobuf::message(type_, envelope.raw).map_err(unfit)?,
    };
    let object = normalise::object(type_, Origin::Json, tree, &mut problems);
    let mut object = object.map_err(|error| unfit(error.0))?;
    take_kind(&mut object);
    if encoding != Encoding::Protobuf {
        others.extend(problems.into_found());
    }
    Ok(Decoded { object, api_version: said.to_string(), kind, problems: others })
}

impl Decoded {
    /// Refuses problems if they are to be; what is left of them is what is to be warned of.
    pub fn checked(
        mut self,
        expected: &Expected<'_>,
        validation: FieldValidation,
    ) -> Result<Decoded, DecodeError> {
        match validation {
            FieldValidation::Ignore => self.problems.clear(),
            FieldValidation::Warn => {}
            FieldValidation::Strict if self.problems.is_empty() => {}
            FieldValidation::Strict => {
                return Err(DecodeError::Unfit {
                    version: self.api_version.rsplit('/').next().unwrap_or_default().to_owned(),
                    kind: self.kind,
                    expected: expected.kind.to_owned(),
                    why: format!("strict decoding error: {}", self.problems.join(", ")),
                });
            }
        }
        Ok(self)
    }
}

enum Source<'b> {
    Tree(Tree<'b>),
    Message(protobuf::Envelope<'b>),
}

impl Source<'_> {
    fn kind(&self) -> Result<(String, String), String> {
        match self {
            Source::Tree(tree) => kind_of(tree),
            Source::Message(envelope) => Ok((envelope.api_version.to_string(), envelope.kind.to_string())),
        }
    }
}

/// `apiVersion` and `kind`. Upstream looks for them before it decodes, and does not mind their letters' case.
fn kind_of(tree: &Tree<'_>) -> Result<(String, String), String> {
    let fields = match tree {
        Tree::Object(fields) => fields,
        Tree::Null => return Ok(Default::default()),
        other => {
            let type_ = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
            let why = format!("json: cannot unmarshal {} into Go value of type {type_}", other.kind());
            return Err(no_kind(why));
        }
    };
    let (mut api_version, mut kind) = (String::new(), String::new());
    for (name, field) in fields {
        let (target, name) = match name.as_ref() {
            name if name.eq_ignore_ascii_case("apiVersion") => (&mut api_version, "apiVersion"),
            name if name.eq_ignore_ascii_case("kind") => (&mut kind, "kind"),
            _ => continue,
        };
        match field {
            Tree::Text(text) => *target = text.to_string(),
            Tree::Null => {}
            other => {
                let what = other.kind();
                return Err(no_kind(format!(
                    "json: cannot unmarshal {what} into Go struct field .{name} of type string"
                )));
            }
        }
    }
    Ok((api_version, kind))
}

fn no_kind(why: String) -> String {
    format!("couldn't get version/kind; json parse error: {why}")
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct GroupVersion<'v> {
    group: &'v str,
    version: &'v str,
}

impl<'v> GroupVersion<'v> {
    fn parse(text: &'v str) -> Result<GroupVersion<'v>, String> {
        match text.split_once('/') {
            None => Ok(GroupVersion { group: "", version: text }),
            Some(("", "")) => Ok(GroupVersion { group: "", version: "" }),
            Some((group, version)) if !version.contains('/') => Ok(GroupVersion { group, version }),
            Some(_) => Err(format!("unexpected GroupVersion string: {text}")),
        }
    }

    /// What is not said is what is expected.
    fn or(self, wanted: GroupVersion<'v>) -> GroupVersion<'v> {
        match self {
            GroupVersion { group: "", version: "" } => wanted,
            GroupVersion { group, version: "" } if group == wanted.group => wanted,
            said => said,
        }
    }

    /// Where the schema has its types.
    fn file(self) -> String {
        let first = self.group.split('.').next().filter(|first| !first.is_empty()).unwrap_or("core");
        match self.version {
            "v1" => first.to_owned(),
            version => format!("{first}.{version}"),
        }
    }
}

impl std::fmt::Display for GroupVersion<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.group {
            "" => formatter.write_str(self.version),
            group => write!(formatter, "{group}/{}", self.version),
        }
    }
}

/// Whether what a patch made is still of its kind.
pub(super) fn check_patched(tree: &Tree<'_>, expected: &Expected<'_>) -> Result<(), String> {
    let (api_version, kind) = kind_of(tree)?;
    let said = GroupVersion::parse(&api_version)?;
    let wanted = GroupVersion::parse(expected.api_version)?;
    match check_kind(said.or(wanted), if kind.is_empty() { expected.kind } else { &kind }, expected) {
        Ok(()) | Err(None) => Ok(()),
        Err(Some(why)) => Err(why),
    }
}

/// What upstream knows and is not here, as far as anybody would send it to the wrong place.
const NOT_SERVED: [(&str, &[&str]); 7] = [
    ("v1", &["Endpoints", "LimitRange", "List", "PodTemplate", "ReplicationController", "ResourceQuota"]),
    ("apps/v1", &["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"]),
    ("autoscaling/v2", &["HorizontalPodAutoscaler"]),
    ("batch/v1", &["CronJob", "Job"]),
    ("discovery.k8s.io/v1", &["EndpointSlice"]),
    ("networking.k8s.io/v1", &["Ingress", "IngressClass", "NetworkPolicy"]),
    ("policy/v1", &["PodDisruptionBudget"]),
];

/// Whether an object is of the kind that is expected; else why it cannot be made one, or nothing if it could be, but
/// is not wanted in that version.
fn check_kind(said: GroupVersion<'_>, kind: &str, expected: &Expected<'_>) -> Result<(), Option<String>> {
    if kind == expected.kind && said.to_string() == expected.api_version {
        return Ok(());
    }
    let file = said.file();
    let ours =
        types::find(&format!("{file}.{kind}")).filter(|found| found.is_object).map(types::Type::go_name);
    let theirs = || {
        let known =
            NOT_SERVED.iter().any(|(version, kinds)| *version == said.to_string() && kinds.contains(&kind));
        known.then(|| format!("{}.{kind}", said.version))
    };
    // Options are read by those who know nothing else.
    let is_of_options = expected.kind == "DeleteOptions";
    let Some(other) = ours.or_else(theirs).filter(|_| !is_of_options) else {
        let scheme = match is_of_options {
            true => "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27",
            false => "pkg/api/legacyscheme/scheme.go:30",
        };
        return Err(Some(format!(
            "no kind {} is registered for version {} in scheme {scheme:?}",
            go::quote(kind),
            go::quote(&said.to_string())
        )));
    };
    // Both groups' events are the same to upstream, too.
    let internal = |file: &str| match file.split('.').next() {
        None | Some("events") => "core".to_owned(),
        Some(group) => group.to_owned(),
    };
    let wanted = internal(expected.schema.rsplit_once('.').map_or("", |(file, _)| file));
    if kind == expected.kind && internal(&file) == wanted {
        return Err(None);
    }
    Err(Some(format!("converting ({other}) to ({wanted}.{}): unknown conversion", expected.kind)))
}

/// The beginning of a body, for messages.
fn summary(body: &[u8]) -> String {
    const LONGEST: usize = 30;
    let (shown, more) = match body.get(..LONGEST) {
        Some(shown) if body.len() > LONGEST => (shown, " ..."),
        _ => (body, ""),
    };
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(shown)),
        Some(_) => {
            let hexadecimal: String = shown.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{hexadecimal}{more}")
        }
    }
}

/// YAML as a tree, its fields in the order in which upstream's way through JSON puts them.
fn yaml(body: &[u8], problems: &mut Vec<String>) -> Result<Tree<'static>, String> {
    let text = std::str::from_utf8(body).map_err(|_| "yaml: invalid leading UTF-8 octet".to_owned())?;
    let limits = document::Limits { nodes: MOST_VALUES, ..document::Limits::API };
    let (tree, doubts) = match document::parse("body", text, limits) {
        Ok(parsed) => parsed,
        Err(document::ParseError::Empty(_)) => return Ok(Tree::Null),
        Err(document::ParseError::Syntax { place, message }) => {
            return Err(format!("yaml: line {}: {message}", place.line));
        }
        Err(error) => return Err(format!("yaml: {error}")),
    };
    // Those without a path are of what follows the document.
    let twice: Vec<String> = doubts
        .iter()
        .filter(|doubt| !doubt.path.is_empty())
        .map(|doubt| {
            let key = doubt.path.rsplit('.').next().unwrap_or_default();
            format!("\n  line {}: key {} already set in map", doubt.place.line, go::quote(key))
        })
        .collect();
    if !twice.is_empty() {
        problems.push(format!("yaml: unmarshal errors:{}", twice.concat()));
    }
    Ok(from_yaml(tree))
}

fn from_yaml(tree: document::Tree) -> Tree<'static> {
    match tree.value {
        document::Value::Null => Tree::Null,
        document::Value::Bool(value) => Tree::Bool(value),
        document::Value::Int(number) => Tree::Number(number.to_string().into()),
        document::Value::Float(number) => Tree::Number(number.to_string().into()),
        document::Value::Text(text) => Tree::Text(String::from(text).into()),
        document::Value::List(items) => Tree::List(items.into_iter().map(from_yaml).collect()),
        document::Value::Map(fields) => Tree::Object(
            fields.into_iter().map(|(name, field)| (String::from(name).into(), from_yaml(field))).collect(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const POD: Expected<'_> = Expected { schema: "core.Pod", api_version: "v1", kind: "Pod" };

    fn refused(expected: &Expected<'_>, encoding: Encoding, body: &str) -> String {
        decode(expected, encoding, body.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn what_is_not_said_is_what_is_expected() {
        for (encoding, body) in [
            (Encoding::Json, r#"{"metadata": {"name": "a"}}"#),
            (Encoding::Json, r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}"#),
            (Encoding::Yaml, "kind: Pod\nmetadata:\n  name: a\n"),
        ] {
            let decoded = decode(&POD, encoding, body.as_bytes()).unwrap();
            assert_eq!((decoded.api_version.as_str(), decoded.kind.as_str()), ("v1", "Pod"), "{body}");
            assert_eq!(decoded.object["metadata"], json!({"name": "a"}), "{body}");
            assert!(decoded.object.get("kind").is_none() && decoded.problems.is_empty(), "{body}");
        }
        let empty = decode(&POD, Encoding::Yaml, b"").unwrap();
        assert_eq!(empty.object["metadata"], json!({}));
    }

    #[test]
    fn what_cannot_be_handled_is_told_in_upstreams_words() {
        for (body, expected) in [
            (
                "{",
                "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: unexpected end of JSON input ({)",
            ),
            (
                "apiVersion: v1\nkind: Pod\nmetadata: {}",
                "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: invalid character 'a' looking for beginning of value (61706956657273696f6e3a2076310a6b696e643a20506f640a6d65746164 ...)",
            ),
            (
                "",
                "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)",
            ),
            (
                r#"{"kind": 1}"#,
                r#"the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string ({"kind": 1})"#,
            ),
            (
                r#"{"apiVersion": "a/b/c"}"#,
                r#"the object provided is unrecognized (must be of type Pod): unexpected GroupVersion string: a/b/c ({"apiVersion": "a/b/c"})"#,
            ),
            (
                r#"{"kind": "Service"}"#,
                r#"Service in version "v1" cannot be handled as a Pod: converting (v1.Service) to (core.Pod): unknown conversion"#,
            ),
            (
                r#"{"apiVersion": "apps/v1", "kind": "Deployment"}"#,
                r#"Deployment in version "v1" cannot be handled as a Pod: converting (v1.Deployment) to (core.Pod): unknown conversion"#,
            ),
            (
                r#"{"kind": "Pud"}"#,
                r#"Pud in version "v1" cannot be handled as a Pod: no kind "Pud" is registered for version "v1" in scheme "pkg/api/legacyscheme/scheme.go:30""#,
            ),
            (
                r#"{"apiVersion": "apps/v2", "kind": "Pod"}"#,
                r#"Pod in version "v2" cannot be handled as a Pod: no kind "Pod" is registered for version "apps/v2" in scheme "pkg/api/legacyscheme/scheme.go:30""#,
            ),
            (
                r#"{"spec": {"nodeName": 1}}"#,
                r#"Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal number into Go struct field PodSpec.spec.nodeName of type string"#,
            ),
        ] {
            assert_eq!(refused(&POD, Encoding::Json, body), expected, "{body}");
        }
        let event = Expected { schema: "core.Event", api_version: "v1", kind: "Event" };
        assert_eq!(
            refused(&event, Encoding::Json, r#"{"apiVersion": "events.k8s.io/v1", "kind": "Event"}"#),
            "the API version in the data (events.k8s.io/v1) does not match the expected API version (v1)"
        );
        assert_eq!(
            refused(&POD, Encoding::Yaml, "a: [\n"),
            "the object provided is unrecognized (must be of type Pod): yaml: line 1: unclosed bracket '[' (613a205b0a)"
        );
    }

    #[test]
    fn problems_are_refused_where_that_is_wanted() {
        let body = br#"{"spec": {"x": 1}, "kind": "Pod"}"#;
        let decoded = || decode(&POD, Encoding::Json, body).unwrap();
        let problem = r#"unknown field "spec.x""#;
        assert_eq!(decoded().checked(&POD, FieldValidation::Warn).unwrap().problems, [problem]);
        assert!(decoded().checked(&POD, FieldValidation::Ignore).unwrap().problems.is_empty());
        assert_eq!(
            decoded().checked(&POD, FieldValidation::Strict).unwrap_err().to_string(),
            r#"Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.x""#
        );
        let twice = decode(&POD, Encoding::Yaml, b"metadata:\n  name: a\n  name: b\n").unwrap();
        assert_eq!(
            (twice.problems, &twice.object["metadata"]["name"]),
            (
                vec!["yaml: unmarshal errors:\n  line 3: key \"name\" already set in map".to_owned()],
                &json!("b")
            )
        );
    }

    const SAMPLE: &str = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"b": "c"},
        "creationTimestamp": "2024-01-02T03:04:05Z"}, "spec": {"containers": [{"name": "d", "ports": [{"containerPort": 80}],
        "resources": {"limits": {"cpu": "100m"}}, "livenessProbe": {"httpGet": {"port": "http"}}}], "priority": -1}}"#;

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for encoding in [Encoding::Json, Encoding::Yaml, Encoding::Protobuf] {
                let _ = decode(&POD, encoding, &bytes);
            }
        }

        #[test]
        fn no_damage_panics_and_what_is_read_stays_as_it_is(
            cut in 0..SAMPLE.len(),
            length in 0..20usize,
            with in "[0-9a-z{}\\[\\]\":, .-]{0,4}",
        ) {
            let end = (cut + length).min(SAMPLE.len());
            let damaged = format!("{}{with}{}", &SAMPLE[..cut], &SAMPLE[end..]);
            for encoding in [Encoding::Json, Encoding::Yaml] {
                if let Ok(decoded) = decode(&POD, encoding, damaged.as_bytes()) {
                    let again = crate::schema::normalise("core.Pod", &decoded.object).unwrap();
                    prop_assert_eq!(again.object, decoded.object);
                }
            }
        }
    }
}
