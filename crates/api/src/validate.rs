//! Whether a pod is one that the API server would accept, and whether it can be a static one.
//!
//! What is checked, in which order, and every word of the answer is upstream's `ValidatePodCreate`: a person who
//! knows the message from `kubectl` finds the same in the agent's log. All problems are reported at once. Upstream
//! goes through maps in random order; here they are sorted.
//!
//! A pod is checked after its defaults were applied. [`FieldError::located`] leads from a problem to the line of
//! the manifest; [`static_pod_from_manifest`] does all of it.
//!
//! One message differs: where the annotation that once held tolerations is not JSON, it says so in our parser's
//! words.

mod annotations;
mod claim_template;
mod containers;
mod env;
mod error;
mod labels;
mod manifest;
mod metadata;
mod mounts;
mod path;
mod probes;
mod projected;
mod resources;
mod restarts;
mod scheduling;
mod security;
mod spec;
mod static_pod;
mod storage;
mod text;
mod volumes;
mod windows;

pub use error::{ErrorKind, FieldError};
pub use manifest::static_pod_from_manifest;

use crate::core::{Pod, VolumeProjection, VolumeSource};
use crate::features::{FeatureGates, Gate};

use error::Errors;
use path::Path;

/// What is wrong with a pod that is sent to the API server.
pub fn validate_pod(pod: &Pod, features: &FeatureGates) -> Vec<FieldError> {
    let mut errors = Errors::default();
    check_pod(&mut errors, pod, &Rules { features, resource_is_pod: true });
    errors.into_list()
}

/// What is wrong with a pod that was read from a manifest on the node, once it has the name, the namespace and the
/// node that the agent gives it.
pub fn validate_static_pod(pod: &Pod, features: &FeatureGates) -> Vec<FieldError> {
    let mut errors = Errors::default();
    // Upstream's kubelet validates with the options of a pod template, which are more lenient in two places.
    check_pod(&mut errors, pod, &Rules { features, resource_is_pod: false });
    let path = Path::root("spec");
    if features.enabled(Gate::PreventStaticPodAPIReferences) {
        static_pod::check_references(&mut errors, &path, &pod.spec);
    } else {
        static_pod::check_claims_and_trust_bundles(&mut errors, &path, &pod.spec);
    }
    errors.into_list()
}

/// What the checks depend on beside the pod.
struct Rules<'a> {
    features: &'a FeatureGates,
    /// Whether the spec is a pod's own and not one that something else fills in later.
    resource_is_pod: bool,
}

fn check_pod(errors: &mut Errors, pod: &Pod, rules: &Rules<'_>) {
    let (metadata, path) = (Path::root("metadata"), Path::root("spec"));
    metadata::check_metadata(errors, &metadata, &pod.metadata);
    annotations::check_pod_annotations(errors, &metadata.child("annotations"), pod, rules);
    spec::check_spec(errors, &path, pod, rules);
    check_tokens_have_account(errors, &path, pod);
    containers::check_images_spaces(errors, &path.child("containers"), &pod.spec.containers);
    containers::check_images_spaces(errors, &path.child("initContainers"), &pod.spec.init_containers);
    if !pod.spec.ephemeral_containers.is_empty() {
        errors.forbidden(&path.child("ephemeralContainers"), "cannot be set on create");
    }
    if !pod.spec.node_name.is_empty() && !pod.spec.scheduling_gates.is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.forbidden(&path.child("nodeName"), detail);
    }
    annotations::check_annotations_match_fields(errors, &path, pod);
}

/// Checks that a pod without a service account asks for no token of one.
fn check_tokens_have_account(errors: &mut Errors, path: &Path<'_>, pod: &Pod) {
    if !spec::service_account(&pod.spec).is_empty() {
        return;
    }
    let volumes = path.child("volumes");
    for (index, volume) in pod.spec.volumes.iter().enumerate() {
        let volume_path = volumes.index(index);
        for source in volume.source.as_slice() {
            let VolumeSource::Projected(projected) = source else { continue };
            let projected_path = volume_path.child("projected");
            let sources = projected_path.child("sources");
            for (index, source) in projected.sources.iter().enumerate() {
                let is_token = |it: &VolumeProjection| matches!(it, VolumeProjection::ServiceAccountToken(_));
                if source.as_slice().iter().any(is_token) {
                    let path = sources.index(index);
                    let detail = "must not be specified when serviceAccountName is not set";
                    errors.forbidden(&path.child("serviceAccountToken"), detail);
                }
            }
        }
    }
}
