//! Annotations that once were, or still are, settings of a pod.

use crate::core::{
    AppArmorProfileType, Container, OSName, Pod, PodSpec, SeccompProfile, SeccompProfileType, Toleration,
};
use crate::features::Gate;
use crate::map::Map;
use crate::text::Text;

use super::Rules;
use super::containers::all_containers;
use super::error::Errors;
use super::path::Path;
use super::scheduling::check_tolerations;
use super::text;

pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const POD_SECCOMP: &str = "seccomp.security.alpha.kubernetes.io/pod";
const CONTAINER_SECCOMP: &str = "container.seccomp.security.alpha.kubernetes.io/";
const CONTAINER_APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const RUNTIME_DEFAULT: &str = "runtime/default";
const DOCKER_DEFAULT: &str = "docker/default";
const UNCONFINED: &str = "unconfined";
const LOCALHOST: &str = "localhost/";

pub(super) fn check_pod_annotations(errors: &mut Errors, path: &Path<'_>, pod: &Pod, rules: &Rules<'_>) {
    let annotations = &pod.metadata.annotations;
    if let Some(value) = annotations.get(MIRROR)
        && pod.spec.node_name.is_empty()
    {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        errors.invalid(&path.key(MIRROR), value.as_ref(), detail);
    }
    check_tolerations_annotation(errors, path, annotations, rules);
    if let Some(cost) = annotations.get(DELETION_COST)
        && rules.features.enabled(Gate::PodDeletionCost)
        && !is_deletion_cost(cost)
    {
        errors.invalid(&path.key(DELETION_COST), cost.as_ref(), "must be a 32bit integer");
    }
    if let Some(profile) = annotations.get(POD_SECCOMP) {
        check_seccomp_annotation(errors, &path.child(POD_SECCOMP), profile);
    }
    for (key, profile) in annotations.iter().filter(|(key, _)| key.starts_with(CONTAINER_SECCOMP)) {
        check_seccomp_annotation(errors, &path.child(key), profile);
    }
    for (key, profile) in annotations.iter() {
        if let Some(name) = key.strip_prefix(CONTAINER_APP_ARMOR) {
            check_app_armor_annotation(errors, &path.key(key), name, profile, &pod.spec);
        }
    }
}

/// Checks that annotations and the fields that took their place say the same.
pub(super) fn check_annotations_match_fields(errors: &mut Errors, path: &Path<'_>, pod: &Pod) {
    let (annotations, spec) = (&pod.metadata.annotations, &pod.spec);
    let pod_context = spec.security_context.as_deref();
    if let Some(profile) = pod_context.and_then(|context| context.seccomp_profile.as_deref())
        && let Some(annotation) = annotations.get(POD_SECCOMP)
    {
        let context = path.child("securityContext");
        check_seccomp_matches(errors, &context.child("seccompProfile"), annotation, profile);
    }
    for (list, index, container) in all_containers(spec) {
        let context = container.security_context.as_deref();
        let key = format!("{CONTAINER_SECCOMP}{}", container.name);
        if let Some(profile) = context.and_then(|context| context.seccomp_profile.as_deref())
            && let Some(annotation) = annotations.get(&key)
        {
            let path = path.child(list);
            let path = path.index(index);
            let context = path.child("securityContext");
            check_seccomp_matches(errors, &context.child("seccompProfile"), annotation, profile);
        }
    }
    if spec.os.as_ref().is_none_or(|os| os.name != OSName::Windows) {
        for (list, index, container) in all_containers(spec) {
            let path = path.child(list);
            check_app_armor_matches(errors, &path.index(index), pod, container);
        }
    }
}

fn check_tolerations_annotation(
    errors: &mut Errors,
    path: &Path<'_>,
    annotations: &Map<Text>,
    rules: &Rules<'_>,
) {
    let Some(text) = annotations.get(TOLERATIONS).filter(|text| !text.is_empty()) else { return };
    match serde_json::from_str::<Option<Vec<Toleration>>>(text) {
        Ok(tolerations) => {
            check_tolerations(errors, &path.child(TOLERATIONS), &tolerations.unwrap_or_default(), rules);
        }
        Err(error) => errors.invalid(path, TOLERATIONS, error.to_string()),
    }
}

fn is_deletion_cost(text: &str) -> bool {
    let leading = text == "0" || text.starts_with(|first: char| first == '-' || ('1'..='9').contains(&first));
    leading && text.parse::<i32>().is_ok()
}

fn check_seccomp_annotation(errors: &mut Errors, path: &Path<'_>, profile: &str) {
    match profile {
        RUNTIME_DEFAULT | DOCKER_DEFAULT | UNCONFINED => {}
        profile => match profile.strip_prefix(LOCALHOST) {
            Some(file) => text::check_descending_path(errors, path, file),
            None => errors.invalid(path, profile, "must be a valid seccomp profile"),
        },
    }
}

fn check_app_armor_annotation(
    errors: &mut Errors,
    path: &Path<'_>,
    container_name: &str,
    profile: &str,
    spec: &PodSpec,
) {
    if !all_containers(spec).any(|(_, _, container)| container.name.as_ref() == container_name) {
        errors.invalid(path, container_name, "container not found");
    }
    let known = matches!(profile, "" | RUNTIME_DEFAULT | UNCONFINED) || profile.starts_with(LOCALHOST);
    if !known {
        let detail = format!("invalid AppArmor profile name: {}", super::error::quoted(profile));
        errors.invalid(path, profile, detail);
    }
}

fn check_seccomp_matches(errors: &mut Errors, path: &Path<'_>, annotation: &str, profile: &SeccompProfile) {
    let same_type = match &profile.r#type {
        SeccompProfileType::Unconfined => annotation == UNCONFINED,
        SeccompProfileType::RuntimeDefault => [RUNTIME_DEFAULT, DOCKER_DEFAULT].contains(&annotation),
        SeccompProfileType::Localhost => annotation.starts_with(LOCALHOST),
        SeccompProfileType::Other(_) => return,
    };
    if !same_type {
        errors.forbidden(&path.child("type"), "seccomp type in annotation and field must match");
    } else if profile.r#type == SeccompProfileType::Localhost
        && annotation.strip_prefix(LOCALHOST) != profile.localhost_profile.as_deref()
    {
        errors
            .forbidden(&path.child("localhostProfile"), "seccomp profile in annotation and field must match");
    }
}

fn check_app_armor_matches(errors: &mut Errors, path: &Path<'_>, pod: &Pod, container: &Container) {
    let of_container =
        container.security_context.as_deref().and_then(|context| context.app_armor_profile.as_deref());
    let of_pod =
        pod.spec.security_context.as_deref().and_then(|context| context.app_armor_profile.as_deref());
    let Some(profile) = of_container.or(of_pod) else { return };
    let key = format!("{CONTAINER_APP_ARMOR}{}", container.name);
    let Some(annotation) = pod.metadata.annotations.get(&key) else { return };
    let same_type = match &profile.r#type {
        AppArmorProfileType::Unconfined => annotation.as_ref() == UNCONFINED,
        AppArmorProfileType::RuntimeDefault => annotation.as_ref() == RUNTIME_DEFAULT,
        AppArmorProfileType::Localhost => annotation.starts_with(LOCALHOST),
        AppArmorProfileType::Other(_) => return,
    };
    let context = path.child("securityContext");
    let path = context.child("appArmorProfile");
    if !same_type {
        errors.forbidden(&path.child("type"), "apparmor type in annotation and field must match");
    } else if profile.r#type == AppArmorProfileType::Localhost
        && annotation.strip_prefix(LOCALHOST) != profile.localhost_profile.as_deref()
    {
        errors.forbidden(
            &path.child("localhostProfile"),
            "apparmor profile in annotation and field must match",
        );
    }
}
