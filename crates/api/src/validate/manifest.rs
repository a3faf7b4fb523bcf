//! From the text of a manifest to a static pod, with every problem at its line.

use crate::codec::{ManifestError, from_manifest};
use crate::core::Pod;
use crate::defaults::default_pod;
use crate::document::{self, Limits, Problem};
use crate::features::FeatureGates;

use super::{ErrorKind, FieldError, validate_static_pod};

/// Reads the manifest of a static pod, fills in its defaults and checks it. `prepare` gives it what the agent gives
/// every static pod, such as its node and the name that goes with it; it sees a pod that has a name. The problems
/// beside the pod are what the author should know though it changes nothing.
pub fn static_pod_from_manifest(
    source: &str,
    text: &str,
    features: &FeatureGates,
    prepare: impl FnOnce(&mut Pod),
) -> Result<(Pod, Vec<Problem>), ManifestError> {
    let (mut pod, remarks) = from_manifest::<Pod>(source, text)?;
    default_pod(&mut pod, features);
    let mut errors = Vec::new();
    if pod.metadata.name.is_empty() {
        errors.push(FieldError {
            path: "metadata.name".to_owned(),
            kind: ErrorKind::Required,
            value: None,
            detail: "name is needed for the pod".to_owned(),
        });
        // Anything will do, so that the rest can be checked.
        pod.metadata.name = "pod".into();
    }
    prepare(&mut pod);
    errors.extend(validate_static_pod(&pod, features));
    if errors.is_empty() {
        return Ok((pod, remarks));
    }
    let (tree, _) = document::parse(source, text, Limits::MANIFEST)?;
    let mut problems: Vec<Problem> = errors.iter().map(|error| error.located(&tree)).collect();
    problems.sort_by_key(|problem| problem.place.line);
    Err(ManifestError::Content(problems))
}
