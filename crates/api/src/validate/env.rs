//! Variables of the environment, and where their values come from.

use crate::core::{
    EnvFromSource, EnvVar, EnvVarSource, FileKeySelector, ObjectFieldSelector, ResourceFieldSelector,
};
use crate::features::Gate;
use crate::names::{dns1123_label_errors, dns1123_subdomain_errors, qualified_name_errors};
use crate::one_of::OneOf;

use super::Rules;
use super::error::Errors;
use super::path::Path;
use super::text;

/// The fields of a pod that a variable can hold.
const FIELDS_IN_ENV: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// The fields of a pod that a file can hold.
pub(super) const FIELDS_IN_FILES: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

/// The fields of a pod that once could be asked for, or still can.
const FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
    "spec.host",
];

const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

const HUGE_PAGES: [&str; 2] = ["limits.hugepages-", "requests.hugepages-"];

const CPU_DIVISORS: &[&str] = &["1m", "1"];
const BYTE_DIVISORS: &[&str] =
    &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

pub(super) fn check_env(errors: &mut Errors, path: &Path<'_>, variables: &[EnvVar], rules: &Rules<'_>) {
    for (index, variable) in variables.iter().enumerate() {
        let path = path.index(index);
        if variable.name.is_empty() {
            errors.required(&path.child("name"), "");
        } else {
            let problems = text::variable_name_errors(&variable.name);
            errors.invalid_each(&path.child("name"), &variable.name, problems);
        }
        if let Some(source) = &variable.value_from {
            check_source(errors, &path.child("valueFrom"), source, variable, rules);
        }
    }
}

fn check_source(
    errors: &mut Errors,
    path: &Path<'_>,
    source: &OneOf<EnvVarSource>,
    variable: &EnvVar,
    rules: &Rules<'_>,
) {
    let mut sources: Vec<&EnvVarSource> = source.as_slice().iter().collect();
    sources.sort_by_key(|source| order(source));
    for source in &sources {
        match source {
            EnvVarSource::FieldRef(field) => {
                check_field_selector(errors, &path.child("fieldRef"), field, FIELDS_IN_ENV);
            }
            EnvVarSource::ResourceFieldRef(field) => {
                check_resource_selector(errors, &path.child("resourceFieldRef"), field, false);
            }
            EnvVarSource::ConfigMapKeyRef(key) => {
                check_key_selector(errors, &path.child("configMapKeyRef"), &key.name, &key.key);
            }
            EnvVarSource::SecretKeyRef(key) => {
                check_key_selector(errors, &path.child("secretKeyRef"), &key.name, &key.key);
            }
            EnvVarSource::FileKeyRef(key) => check_file_key(errors, &path.child("fileKeyRef"), key),
        }
    }
    if sources.is_empty() {
        let choices = if rules.features.enabled(Gate::EnvFiles) {
            "`configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        } else {
            "`configMapKeyRef` or `secretKeyRef`"
        };
        errors.invalid(path, "", format!("must specify one of: `fieldRef`, `resourceFieldRef`, {choices}"));
    } else if !variable.value.is_empty() {
        errors.invalid(path, "", "may not be specified when `value` is not empty");
    } else if sources.len() > 1 {
        errors.invalid(path, "", "may not have more than one field specified at a time");
    }
}

/// Where upstream looks for a source.
fn order(source: &EnvVarSource) -> u8 {
    match source {
        EnvVarSource::FieldRef(_) => 0,
        EnvVarSource::ResourceFieldRef(_) => 1,
        EnvVarSource::ConfigMapKeyRef(_) => 2,
        EnvVarSource::SecretKeyRef(_) => 3,
        EnvVarSource::FileKeyRef(_) => 4,
    }
}

pub(super) fn check_field_selector(
    errors: &mut Errors,
    path: &Path<'_>,
    selector: &ObjectFieldSelector,
    supported: &[&str],
) {
    if selector.api_version.is_empty() {
        return errors.required(&path.child("apiVersion"), "");
    }
    if selector.field_path.is_empty() {
        return errors.required(&path.child("fieldPath"), "");
    }
    let field = selector.field_path.as_ref();
    let subscripted = split_subscript(field);
    let problem = match subscripted {
        _ if selector.api_version.as_ref() != "v1" => {
            Some(format!("unsupported pod version: {}", selector.api_version))
        }
        Some(("metadata.annotations" | "metadata.labels", _)) => None,
        Some(_) => Some(format!("field label does not support subscript: {field}")),
        None if FIELDS.contains(&field) => None,
        None => Some(format!("field label not supported: {field}")),
    };
    if let Some(problem) = problem {
        let detail = format!("error converting fieldPath: {problem}");
        return errors.invalid(&path.child("fieldPath"), field, detail);
    }
    match subscripted {
        Some(("metadata.annotations", key)) => {
            let key = key.to_lowercase();
            errors.invalid_each(path, &key, qualified_name_errors(&key));
        }
        Some((_, key)) => errors.invalid_each(path, key, qualified_name_errors(key)),
        None => {
            let field = if field == "spec.host" { "spec.nodeName" } else { field };
            if !supported.contains(&field) {
                errors.not_supported(&path.child("fieldPath"), field, supported);
            }
        }
    }
}

/// `metadata.labels['key']` in its two parts.
fn split_subscript(field: &str) -> Option<(&str, &str)> {
    let (path, key) = field.strip_suffix("']")?.split_once("['")?;
    (!path.is_empty()).then_some((path, key))
}

pub(super) fn check_resource_selector(
    errors: &mut Errors,
    path: &Path<'_>,
    selector: &ResourceFieldSelector,
    in_file: bool,
) {
    let resource = selector.resource.as_ref();
    let huge_pages = HUGE_PAGES.iter().any(|prefix| resource.starts_with(prefix));
    if in_file && selector.container_name.is_empty() {
        errors.required(&path.child("containerName"), "");
    } else if resource.is_empty() {
        errors.required(&path.child("resource"), "");
    } else if !RESOURCES.contains(&resource) && !huge_pages {
        errors.not_supported(&path.child("resource"), resource, RESOURCES);
    }
    if selector.divisor.is_zero() {
        return;
    }
    let (divisors, kind) = match resource {
        "limits.cpu" | "requests.cpu" => (CPU_DIVISORS, "cpu"),
        "limits.memory" | "requests.memory" => (BYTE_DIVISORS, "memory"),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => {
            (BYTE_DIVISORS, "local ephemeral storage")
        }
        _ if huge_pages => (BYTE_DIVISORS, "hugepages"),
        _ => return,
    };
    if !divisors.contains(&selector.divisor.to_string().as_str()) {
        let (last, others) = divisors.split_last().unwrap_or((&"", &[]));
        // The two that there are for CPUs read as a pair, the many for bytes as a list.
        let named = match others {
            [only] => format!("{only} and {last}"),
            _ => divisors.join(", "),
        };
        let detail = format!("only divisor's values {named} are supported with the {kind} resource");
        errors.invalid(&path.child("divisor"), resource, detail);
    }
}

fn check_key_selector(errors: &mut Errors, path: &Path<'_>, name: &str, key: &str) {
    errors.invalid_each(&path.child("name"), name, dns1123_subdomain_errors(name));
    if key.is_empty() {
        errors.required(&path.child("key"), "");
    } else {
        errors.invalid_each(&path.child("key"), key, text::config_key_errors(key));
    }
}

fn check_file_key(errors: &mut Errors, path: &Path<'_>, selector: &FileKeySelector) {
    if selector.key.is_empty() {
        errors.required(&path.child("key"), "");
    } else {
        let problems = text::variable_name_errors(&selector.key);
        errors.invalid_each(&path.child("key"), &selector.key, problems);
    }
    if selector.volume_name.is_empty() {
        errors.required(&path.child("volumeName"), "");
    } else {
        let problems = dns1123_label_errors(&selector.volume_name);
        errors.invalid_each(&path.child("volumeName"), &selector.volume_name, problems);
    }
    if selector.path.is_empty() {
        errors.required(&path.child("path"), "");
    } else {
        text::check_no_backsteps(errors, &path.child("path"), &selector.path);
    }
}

pub(super) fn check_env_from(errors: &mut Errors, path: &Path<'_>, sources: &[EnvFromSource]) {
    for (index, source) in sources.iter().enumerate() {
        let list_path = path;
        let path = path.index(index);
        if !source.prefix.is_empty() {
            let problems = text::variable_name_errors(&source.prefix);
            errors.invalid_each(&path.child("prefix"), &source.prefix, problems);
        }
        let config_map = source.config_map_ref.as_ref().map(|it| ("configMapRef", &it.name));
        let secret = source.secret_ref.as_ref().map(|it| ("secretRef", &it.name));
        for (field, name) in config_map.iter().chain(&secret) {
            let path = path.child(field);
            if name.is_empty() {
                errors.required(&path.child("name"), "");
            } else {
                errors.invalid_each(&path.child("name"), name, text::name_prefix_errors(name));
            }
        }
        match (config_map, secret) {
            (None, None) => {
                errors.invalid(list_path, "", "must specify one of: `configMapRef` or `secretRef`");
            }
            (Some(_), Some(_)) => {
                errors.invalid(list_path, "", "may not have more than one field specified at a time");
            }
            (Some(_), None) | (None, Some(_)) => {}
        }
    }
}
