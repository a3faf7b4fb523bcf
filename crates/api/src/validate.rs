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

pub use error::{ErrorKind, Errors, FieldError, Json, Place, Shown, Word, json_text, quoted};
pub use manifest::static_pod_from_manifest;
pub use projected::{check_domain_prefixed_key, is_kubernetes_signer};
pub use text::{
    check_address, config_key_errors, decimal_integer_errors, inclusive_range, port_name_errors,
    port_number_errors,
};

use crate::core::{NodeSelectorTerm, Pod, ResourceList, Toleration, VolumeProjection, VolumeSource};
use crate::features::{FeatureGates, Gate};
use crate::meta::LabelSelector;

use path::Path;

/// What is wrong with a pod that is sent to the API server.
pub fn validate_pod(pod: &Pod, features: &FeatureGates) -> Vec<FieldError> {
    let mut errors = Errors::default();
    check_pod(&mut errors, pod, &Rules { features, resource_is_pod: true });
    errors.into_list()
}

/// What is wrong with a pod after a change of its spec, whatever it was before.
pub fn validate_changed_pod(pod: &Pod, features: &FeatureGates) -> Vec<FieldError> {
    let mut errors = Errors::default();
    check_metadata_and_spec(&mut errors, pod, &Rules { features, resource_is_pod: true });
    errors.into_list()
}

/// What is wrong with a selector of objects by their labels, at a path.
pub fn validate_label_selector(errors: &mut Errors, path: &str, selector: &LabelSelector) {
    labels::check_label_selector(errors, &Path::root(path), Some(selector));
}

/// What is wrong with the tolerations at a path.
pub fn validate_tolerations(
    errors: &mut Errors,
    path: &str,
    tolerations: &[Toleration],
    features: &FeatureGates,
) {
    let rules = Rules { features, resource_is_pod: false };
    scheduling::check_tolerations(errors, &Path::root(path), tolerations, &rules);
}

/// What is wrong with a list of terms that select nodes, at a path.
pub fn validate_node_terms(errors: &mut Errors, path: &str, terms: &[NodeSelectorTerm]) {
    scheduling::check_node_terms(errors, &Path::root(path), terms);
}

/// What is wrong with the overhead of a pod at a path.
pub fn validate_overhead(errors: &mut Errors, path: &str, overhead: &ResourceList) {
    resources::check_overhead(errors, &Path::root(path), overhead);
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

fn check_metadata_and_spec(errors: &mut Errors, pod: &Pod, rules: &Rules<'_>) {
    let (metadata, path) = (Path::root("metadata"), Path::root("spec"));
    metadata::check_metadata(errors, &metadata, &pod.metadata);
    annotations::check_pod_annotations(errors, &metadata.child("annotations"), pod, rules);
    spec::check_spec(errors, &path, pod, rules);
    check_tokens_have_account(errors, &path, pod);
    containers::check_images_spaces(errors, &path.child("containers"), &pod.spec.containers);
    containers::check_images_spaces(errors, &path.child("initContainers"), &pod.spec.init_containers);
}

fn check_pod(errors: &mut Errors, pod: &Pod, rules: &Rules<'_>) {
    check_metadata_and_spec(errors, pod, rules);
    let path = Path::root("spec");
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
