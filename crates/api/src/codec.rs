//! Objects from and to text: leniently from an API server, strictly from a person.

use serde::{Serialize, de::DeserializeOwned};

use crate::document::{self, Limits, ParseError, Problem, Tree};
use crate::object::Object;

/// Why a JSON text is not an object. It says what was expected and where, never what was there instead: that may
/// be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The text is longer than accepted.
    #[error("has {bytes} bytes; at most {limit} are accepted")]
    TooLarge {
        /// Its length.
        bytes: usize,
        /// The longest that is accepted.
        limit: usize,
    },
    /// The text is nested deeper than accepted, be it in a field that nobody knows.
    #[error("is nested deeper than {limit} levels")]
    TooDeep {
        /// The most levels that are accepted.
        limit: usize,
    },
    /// The text has more values than accepted.
    #[error("has more than {limit} values")]
    TooManyValues {
        /// The most values that are accepted.
        limit: usize,
    },
    /// It is not UTF-8.
    #[error("is not UTF-8 text")]
    NotText,
    /// The text is not JSON, or does not fit the type.
    #[error("line {line}, column {column}: {message}")]
    Content {
        line: usize,
        column: usize,
        /// What is wrong.
        message: String,
    },
}

/// Reads an object that a machine wrote. Fields that the type does not know are skipped: a newer API server must
/// not make a node deaf.
pub fn from_json<T: DeserializeOwned>(json: &[u8], limits: Limits) -> Result<T, JsonError> {
    if json.len() > limits.bytes {
        return Err(JsonError::TooLarge { bytes: json.len(), limit: limits.bytes });
    }
    check_shape(json, limits)?;
    // Checked once and for all, which is faster than text by text.
    let text = std::str::from_utf8(json).map_err(|_| JsonError::NotText)?;
    serde_json::from_str(text).map_err(|error| JsonError::Content {
        line: error.line(),
        column: error.column(),
        message: without_values(&error),
    })
}

/// A short text can become a large object, or exhaust the stack. This looks at brackets and commas alone, and takes
/// a small part of the time that decoding takes.
fn check_shape(json: &[u8], limits: Limits) -> Result<(), JsonError> {
    let mut depth = 0_usize;
    let mut values = 1_usize;
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => {
                while bytes.find(|byte| matches!(byte, b'"' | b'\\')) == Some(&b'\\') {
                    bytes.next();
                }
            }
            b'{' | b'[' => {
                depth += 1;
                values += 1;
                if depth > limits.depth {
                    return Err(JsonError::TooDeep { limit: limits.depth });
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' => values += 1,
            _ => {}
        }
    }
    match values > limits.nodes {
        true => Err(JsonError::TooManyValues { limit: limits.nodes }),
        false => Ok(()),
    }
}

/// The JSON of an object, as an API server takes it.
pub fn to_json<T: Serialize>(object: &T) -> Vec<u8> {
    serde_json::to_vec(object).expect("keys are text and nothing else in an object can fail to be written")
}

/// Why a manifest is refused, with everything that is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// It is not YAML or JSON, or too large.
    #[error(transparent)]
    Text(#[from] ParseError),
    /// It is not an object of the kind that was asked for.
    #[error("{}", lines(.0))]
    Content(Vec<Problem>),
}

/// Reads an object that a person wrote, as YAML or JSON. Unknown and repeated fields are errors, because a person
/// who misspells a field does not get what they asked for. The problems beside the object are what they should know
/// though it changes nothing, such as a second document in the file.
pub fn from_manifest<T>(source: &str, text: &str) -> Result<(T, Vec<Problem>), ManifestError>
where
    T: Object + DeserializeOwned,
{
    let (tree, found) = document::parse(source, text, Limits::MANIFEST)?;
    let (mut errors, remarks): (Vec<Problem>, Vec<Problem>) =
        found.into_iter().partition(|problem| !problem.path.is_empty());
    errors.extend(
        ["apiVersion", "kind"]
            .into_iter()
            .zip([T::API_VERSION, T::KIND])
            .filter_map(|(field, expected)| missing(&tree, field, expected)),
    );
    match document::decode_strictly(&tree) {
        Ok((object, unknown)) => {
            errors.extend(unknown.into_iter().map(|unknown| Problem {
                message: format!("unknown field; {}", accepted(&unknown.problem.path, unknown.known)),
                ..unknown.problem
            }));
            if errors.is_empty() {
                return Ok((object, remarks));
            }
        }
        Err(error) => errors.push(error.0),
    }
    errors.sort_by_key(|problem| problem.place.line);
    Err(ManifestError::Content(errors))
}

fn missing(tree: &Tree, field: &str, expected: &str) -> Option<Problem> {
    let is_mapping = matches!(tree.value, document::Value::Map(_));
    (is_mapping && tree.get(field).is_none()).then(|| Problem {
        place: tree.place.clone(),
        path: field.into(),
        message: format!("expected {expected}, found nothing"),
    })
}

/// The field that was meant, where one is spelled nearly like it, or else all that there are.
fn accepted(path: &str, known: &[&str]) -> String {
    let name = path.rsplit('.').next().unwrap_or(path);
    let nearest = known.iter().min_by_key(|known| edits(name, known));
    match nearest {
        Some(nearest) if edits(name, nearest) <= 1 + name.len() / 5 => format!("did you mean {nearest}?"),
        _ => format!("accepted here: {}", known.join(", ")),
    }
}

/// How many letters have to be changed to come from one word to the other, regardless of case.
fn edits(one: &str, other: &str) -> usize {
    let other = other.as_bytes();
    let mut costs: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in one.bytes().take(100).enumerate() {
        let mut diagonal = row;
        costs[0] = row + 1;
        for column in 0..other.len() {
            let replaced = diagonal + usize::from(!letter.eq_ignore_ascii_case(&other[column]));
            diagonal = costs[column + 1];
            costs[column + 1] = replaced.min(diagonal + 1).min(costs[column] + 1);
        }
    }
    costs[other.len()]
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// serde shows the value that it did not expect; this keeps the kind of value alone.
fn without_values(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message);
    let Some(found) = text.strip_prefix("invalid type: ").or_else(|| text.strip_prefix("invalid value: "))
    else {
        return text.to_owned();
    };
    let Some((found, expected)) = found.rsplit_once(", expected ") else {
        return "an unexpected value".to_owned();
    };
    let kind = found.split(' ').next().unwrap_or_default();
    format!("expected {expected}, found a value of type {kind}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Pod, Secret};

    #[test]
    fn json_from_a_newer_server_is_understood() {
        let json = br#"{"kind":"Pod","apiVersion":"v1","fromTheFuture":{"a":[1]},
            "metadata":{"name":"a","labels":null,"managedFields":[{"manager":"m","fieldsV1":{"f:a":{}}}]},
            "spec":{"restartPolicy":"Sometimes","containers":[{"name":"c","newField":1}],"volumes":[{"name":"v","newKind":{}}]}}"#;
        let pod: Pod = from_json(json, Limits::API).unwrap();
        assert_eq!(pod.spec.restart_policy.unwrap().as_str(), "Sometimes");
        assert_eq!(pod.spec.volumes[0].source, crate::OneOf::Nothing);
    }

    #[test]
    fn a_bad_json_text_is_refused_without_telling_what_it_holds() {
        for (json, expected) in [
            ("", "line 1, column 0: EOF while parsing a value"),
            ("[]", "line 1, column 2: expected a mapping, found a value of type sequence"),
            (r#"{"data":"s3cr3t"}"#, "line 1, column 16: expected a mapping, found a value of type string"),
            (r#"{"data":{"a":"s3cr3t, expected x"}}"#, "line 1, column 33: expected base64 text"),
            (r#"{"data":{"a":5}}"#, "line 1, column 14: expected base64 text, found a value of type integer"),
            (
                r#"{"stringData":["s3cr3t"]}"#,
                "line 1, column 14: expected a mapping, found a value of type sequence",
            ),
            (
                r#"{"immutable":"s3cr3t, expected x"}"#,
                "line 1, column 33: expected a boolean, found a value of type string",
            ),
            (
                r#"{"metadata":{"creationTimestamp":"s3cr3t"}}"#,
                "line 1, column 41: expected a time such as \"2006-01-02T15:04:05Z\"",
            ),
            (r#"{"kind":"Pod"}"#, "line 1, column 13: expected Secret, found \"Pod\""),
        ] {
            let error = from_json::<Secret>(json.as_bytes(), Limits::API).unwrap_err().to_string();
            assert_eq!(error, expected, "{json}");
        }
    }

    #[test]
    fn limits_are_kept_before_memory_is_spent() {
        let limits = Limits { bytes: 50, nodes: 6, depth: 3 };
        for (json, expected) in [
            (r#"{"metadata":{"labels":{"a":"[[[[,,,\\\"["}}}"#, None),
            (
                r#"{"metadata":{"labels":{"a":"0123456789012345678"}}}"#,
                Some("has 51 bytes; at most 50 are accepted"),
            ),
            (r#"{"x":[[[1]]]}"#, Some("is nested deeper than 3 levels")),
            (r#"{"x":[1,2,3,4,5,6]}"#, Some("has more than 6 values")),
        ] {
            let error = from_json::<Secret>(json.as_bytes(), limits).err().map(|error| error.to_string());
            assert_eq!(error.as_deref(), expected, "{json}");
        }
    }

    #[test]
    fn a_manifest_is_read_as_yaml_or_json() {
        let yaml = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  creationTimestamp: null\n  managedFields:\n  - manager: kubectl\nspec:\n  containers:\n  - name: c\n    image: i\n    ports:\n    - containerPort: 0x50\n";
        let json = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"containers":[{"name":"c","image":"i","ports":[{"containerPort":80}]}]}}"#;
        let (pod, remarks) = from_manifest::<Pod>("f", yaml).unwrap();
        assert_eq!(remarks, []);
        assert_eq!(from_manifest::<Pod>("f", json).unwrap().0, pod);
        let (pods, _) = from_manifest::<crate::meta::List<Pod>>(
            "f",
            &format!(r#"{{"apiVersion":"v1","kind":"PodList","items":[{json}]}}"#),
        )
        .unwrap();
        assert_eq!(pods.items, [pod]);

        let (_, remarks) = from_manifest::<Pod>("f", &format!("{yaml}---\nkind: Pod\n")).unwrap();
        assert_eq!(
            remarks[0].to_string(),
            "f:14: only the first document of the file is read; this one is ignored"
        );
    }

    #[test]
    fn a_bad_manifest_is_refused_with_every_line_to_look_at() {
        for (text, expected) in [
            ("kind: Pod\n", "f:1: apiVersion: expected v1, found nothing"),
            (
                "a: 1\n",
                "f:1: apiVersion: expected v1, found nothing\nf:1: kind: expected Pod, found nothing\nf:1: a: unknown field; accepted here: metadata, spec, status, apiVersion, kind",
            ),
            ("apiVersion: v1\nkind: Deployment\n", "f:2: kind: expected Pod, found \"Deployment\""),
            ("apiVersion: v2\nkind: Pod\n", "f:1: apiVersion: expected v1, found \"v2\""),
            ("[]\n", "f:1: expected a mapping, found a list"),
            ("a: [\n", "f:1: is not valid YAML: unclosed bracket '['"),
            (
                "apiVersion: v1\nkind: Pod\nspec:\n  hostnetwork: true\n  containers:\n  - name: c\n    livenessProbe:\n      httpGet: {port: http}\n      htpGet: {}\n    emptyDir: {}\n  volumes:\n  - {name: v, emptydir: {}}\n",
                "f:4: spec.hostnetwork: unknown field; did you mean hostNetwork?\n\
                 f:9: spec.containers[0].livenessProbe.htpGet: unknown field; did you mean httpGet?\n\
                 f:10: spec.containers[0].emptyDir: unknown field; accepted here: name, image, command, args, workingDir, ports, envFrom, env, resources, resizePolicy, restartPolicy, restartPolicyRules, volumeMounts, volumeDevices, livenessProbe, readinessProbe, startupProbe, lifecycle, terminationMessagePath, terminationMessagePolicy, imagePullPolicy, securityContext, stdin, stdinOnce, tty\n\
                 f:12: spec.volumes[0].emptydir: unknown field; did you mean emptyDir?",
            ),
            (
                "apiVersion: v1\nkind: Pod\nspec:\n  hostNetwork: true\n  hostNetwork: false\n  containers: 5\n",
                "f:5: spec.hostNetwork: is set twice (first on line 4); the last one counts\nf:6: spec.containers: expected a list, found a whole number",
            ),
            (
                "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - env:\n    - {name: a, value: 5}\n",
                "f:6: spec.containers[0].env[0].value: expected text, found a whole number",
            ),
            (
                "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - resources:\n      limits:\n        cpu: lots\n",
                "f:7: spec.containers[0].resources.limits.cpu: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ),
        ] {
            assert_eq!(from_manifest::<Pod>("f", text).unwrap_err().to_string(), expected, "{text}");
        }
    }
}
