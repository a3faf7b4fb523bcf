//! From the text of a manifest to the static pods it asks for, or to what is wrong with it.

use crablet_api::core::Pod;
use crablet_api::document::{self, Limits, ParseError, Tree, Value};
use crablet_api::meta::List;
use crablet_api::validate::{ErrorKind, FieldError, static_pod_from_manifest, validate_static_pod};
use crablet_api::{ManifestError, Object, Text, default_pod, from_manifest};

use super::identity::{Origin, StaticPods, uid_error};
use super::problems::Found;

/// A pod as a manifest asks for it.
pub(super) struct Made {
    pub(super) pod: Pod,
    /// What the manifest says, as 32 digits.
    pub(super) digest: Text,
}

impl Made {
    /// Whether its UID is ours, and not the manifest's own.
    pub(super) fn has_our_uid(&self) -> bool {
        self.pod.metadata.uid == self.digest
    }
}

/// The one pod of a manifest, and what its author should know though it changes nothing.
pub(super) fn read_pod(
    pods: &StaticPods,
    origin: Origin<'_>,
    text: &[u8],
) -> Result<(Made, Vec<Found>), Vec<Found>> {
    let text = utf8(origin.place, text)?;
    let tree = tree(origin.place, text)?;
    let digest = pods.digest(origin, &tree);
    let made = static_pod_from_manifest(origin.place, text, &pods.features, |pod| {
        pods.identify(pod, origin, &digest);
    });
    let (pod, remarks) = made.map_err(|error| all_found(origin.place, error))?;
    if let Some(error) = uid_problem(&pod) {
        return Err(vec![found(error.located(&tree))]);
    }
    Ok((Made { pod, digest }, remarks.into_iter().map(found).collect()))
}

/// The pods of an answer that is a pod or a list of them.
pub(super) fn read_pods(
    pods: &StaticPods,
    origin: Origin<'_>,
    text: &[u8],
) -> Result<(Vec<Made>, Vec<Found>), Vec<Found>> {
    let checked = utf8(origin.place, text)?;
    let tree = tree(origin.place, checked)?;
    if tree.get("kind").and_then(Tree::as_text) != Some(List::<Pod>::KIND) {
        return read_pod(pods, origin, text).map(|(made, remarks)| (vec![made], remarks));
    }
    let (list, remarks) =
        from_manifest::<List<Pod>>(origin.place, checked).map_err(|error| all_found(origin.place, error))?;
    let nodes = match tree.get("items").map(|items| &items.value) {
        Some(Value::List(nodes)) => nodes.as_slice(),
        _ => &[],
    };
    let mut problems = Vec::new();
    let mut made = Vec::new();
    for (index, (pod, node)) in list.items.into_iter().zip(nodes).enumerate() {
        match finish(pods, origin, pod, node) {
            Ok(pod) => made.push(pod),
            Err(errors) => problems.extend(errors.into_iter().map(|error| {
                let mut problem = error.located(node);
                problem.path = format!("items[{index}].{}", problem.path);
                found(problem)
            })),
        }
    }
    match problems.is_empty() {
        true => Ok((made, remarks.into_iter().map(found).collect())),
        false => Err(problems),
    }
}

/// What is done to a pod of a list after it was read.
fn finish(pods: &StaticPods, origin: Origin<'_>, mut pod: Pod, node: &Tree) -> Result<Made, Vec<FieldError>> {
    default_pod(&mut pod, &pods.features);
    if pod.metadata.name.is_empty() {
        return Err(vec![FieldError {
            path: "metadata.name".to_owned(),
            kind: ErrorKind::Required,
            value: None,
            detail: "name is needed for the pod".to_owned(),
        }]);
    }
    let digest = pods.digest(origin, node);
    pods.identify(&mut pod, origin, &digest);
    let mut errors = validate_static_pod(&pod, &pods.features);
    errors.extend(uid_problem(&pod));
    match errors.is_empty() {
        true => Ok(Made { pod, digest }),
        false => Err(errors),
    }
}

fn uid_problem(pod: &Pod) -> Option<FieldError> {
    uid_error(&pod.metadata.uid).map(|detail| FieldError {
        path: "metadata.uid".to_owned(),
        kind: ErrorKind::Invalid,
        value: None,
        detail,
    })
}

fn utf8<'a>(place: &str, text: &'a [u8]) -> Result<&'a str, Vec<Found>> {
    std::str::from_utf8(text).map_err(|error| {
        let before = &text[..error.valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let line = u32::try_from(line).unwrap_or(u32::MAX);
        vec![Found { origin: place.to_owned(), line, message: "is not UTF-8 text".to_owned() }]
    })
}

fn tree(place: &str, text: &str) -> Result<Tree, Vec<Found>> {
    match document::parse(place, text, Limits::MANIFEST) {
        Ok((tree, _)) => Ok(tree),
        Err(error) => Err(all_found(place, error.into())),
    }
}

fn found(problem: document::Problem) -> Found {
    let message = match problem.path.as_str() {
        "" => problem.message,
        path => format!("{path}: {}", problem.message),
    };
    Found { origin: problem.place.source.to_string(), line: problem.place.line, message }
}

fn all_found(place: &str, error: ManifestError) -> Vec<Found> {
    match error {
        ManifestError::Content(problems) => problems.into_iter().map(found).collect(),
        ManifestError::Text(error) => vec![text_error(place, error)],
    }
}

fn text_error(place: &str, error: ParseError) -> Found {
    let line = match &error {
        ParseError::NotText(place)
        | ParseError::Syntax { place, .. }
        | ParseError::TooManyValues { place, .. }
        | ParseError::TooMuchText { place, .. } => place.line,
        ParseError::TooLarge { .. } | ParseError::Empty(_) => 0,
    };
    // The place is said apart from the message here.
    let whole = error.to_string();
    let with_line = format!("{place}:{line}: ");
    let without_line = format!("{place}: ");
    let message = whole.strip_prefix(&with_line).or_else(|| whole.strip_prefix(&without_line));
    Found { origin: place.to_owned(), line, message: message.unwrap_or(&whole).to_owned() }
}
