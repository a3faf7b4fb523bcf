//! Volumes whose files come from elsewhere: keys of objects, facts about the pod, tokens and certificates.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::core::{
    ClusterTrustBundleProjection, DownwardAPIVolumeFile, DownwardAPIVolumeSource, KeyToPath,
    PodCertificateProjection, ProjectedVolumeSource, ServiceAccountTokenProjection, VolumeProjection,
};
use crate::meta::LabelSelector;
use crate::names::{dns1123_label_errors, dns1123_subdomain_errors, qualified_name_errors};

use super::env::{FIELDS_IN_FILES, check_field_selector, check_resource_selector};
use super::error::{Errors, Json, Place, quoted};
use super::labels::check_label_selector;
use super::metadata::check_annotations_size;
use super::path::Path;
use super::text;

const KEY_TYPES: &[&str] = &["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];
const HOUR: i32 = 60 * 60;
const DAY: i32 = 24 * HOUR;

pub(super) fn check_key_to_path(errors: &mut Errors, path: &Path<'_>, item: &KeyToPath) {
    if item.key.is_empty() {
        errors.required(&path.child("key"), "");
    }
    if item.path.is_empty() {
        errors.required(&path.child("path"), "");
    }
    text::check_unreserved_path(errors, &path.child("path"), &item.path);
    text::check_file_mode(errors, &path.child("mode"), item.mode);
}

pub(super) fn check_downward_api(errors: &mut Errors, path: &Path<'_>, source: &DownwardAPIVolumeSource) {
    text::check_file_mode(errors, &path.child("defaultMode"), source.default_mode);
    for file in &source.items {
        check_downward_api_file(errors, path, file);
    }
}

fn check_downward_api_file(errors: &mut Errors, path: &Path<'_>, file: &DownwardAPIVolumeFile) {
    if file.path.is_empty() {
        errors.required(&path.child("path"), "");
    }
    text::check_unreserved_path(errors, &path.child("path"), &file.path);
    match (file.field_ref.as_deref(), file.resource_field_ref.as_deref()) {
        (Some(field), resource) => {
            check_field_selector(errors, &path.child("fieldRef"), field, FIELDS_IN_FILES);
            if resource.is_some() {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.invalid(path, "resource", detail);
            }
        }
        (None, Some(resource)) => {
            check_resource_selector(errors, &path.child("resourceFieldRef"), resource, true);
        }
        (None, None) => errors.required(path, "one of fieldRef and resourceFieldRef is required"),
    }
    text::check_file_mode(errors, &path.child("mode"), file.mode);
}

pub(super) fn check_projected(errors: &mut Errors, path: &Path<'_>, source: &ProjectedVolumeSource) {
    text::check_file_mode(errors, &path.child("defaultMode"), source.default_mode);
    let sources = path.child("sources");
    let mut files = Files { path, taken: BTreeSet::new() };
    for (index, projection) in source.sources.iter().enumerate() {
        let path = sources.index(index);
        let mut projections: Vec<&VolumeProjection> = projection.as_slice().iter().collect();
        projections.sort_by_key(|projection| order(projection));
        for projection in &projections {
            check_projection(errors, &path, projection, &mut files);
        }
        if projections.len() > 1 {
            errors.forbidden(&path, "may not specify more than 1 volume type per source");
        }
    }
}

/// Where upstream looks for a projection.
fn order(projection: &VolumeProjection) -> u8 {
    match projection {
        VolumeProjection::Secret(_) => 0,
        VolumeProjection::ConfigMap(_) => 1,
        VolumeProjection::DownwardApi(_) => 2,
        VolumeProjection::ServiceAccountToken(_) => 3,
        VolumeProjection::ClusterTrustBundle(_) => 4,
        VolumeProjection::PodCertificate(_) => 5,
    }
}

/// The files of a volume, which must not be the same.
struct Files<'a> {
    /// The volume's field; conflicts are reported there.
    path: &'a Path<'a>,
    taken: BTreeSet<&'a str>,
}

impl<'a> Files<'a> {
    /// Takes a path; where it is taken already, `shown` is what upstream shows.
    fn take(&mut self, errors: &mut Errors, file: &'a str, shown: &str) {
        if !self.taken.insert(file) {
            errors.invalid(self.path, shown, "conflicting duplicate paths");
        }
    }
}

fn check_projection<'a>(
    errors: &mut Errors,
    path: &Path<'_>,
    projection: &'a VolumeProjection,
    files: &mut Files<'a>,
) {
    match projection {
        VolumeProjection::Secret(it) => {
            check_keys(errors, &path.child("secret"), &it.name, &it.items, files);
        }
        VolumeProjection::ConfigMap(it) => {
            check_keys(errors, &path.child("configMap"), &it.name, &it.items, files);
        }
        VolumeProjection::DownwardApi(it) => {
            for file in &it.items {
                check_downward_api_file(errors, &path.child("downwardAPI"), file);
                if !file.path.is_empty() {
                    files.take(errors, &file.path, &file.path);
                }
            }
        }
        VolumeProjection::ServiceAccountToken(it) => {
            check_token(errors, &path.child("serviceAccountToken"), files.path, it);
        }
        VolumeProjection::ClusterTrustBundle(it) => {
            let path = path.child("clusterTrustBundle");
            check_trust_bundle(errors, &path, it);
            if it.path.is_empty() {
                errors.required(&path.child("path"), "");
            }
            text::check_unreserved_path(errors, &path.child("path"), &it.path);
            files.take(errors, &it.path, &it.path);
        }
        VolumeProjection::PodCertificate(it) => {
            check_certificate(errors, &path.child("podCertificate"), it, files);
        }
    }
}

fn check_keys<'a>(
    errors: &mut Errors,
    path: &Path<'_>,
    name: &str,
    items: &'a [KeyToPath],
    files: &mut Files<'a>,
) {
    if name.is_empty() {
        errors.required(&path.child("name"), "");
    }
    let items_path = path.child("items");
    for (index, item) in items.iter().enumerate() {
        check_key_to_path(errors, &items_path.index(index), item);
        if !item.path.is_empty() {
            files.take(errors, &item.path, name);
        }
    }
}

fn check_token(
    errors: &mut Errors,
    path: &Path<'_>,
    volume: &Path<'_>,
    token: &ServiceAccountTokenProjection,
) {
    let seconds = token.expiration_seconds.unwrap_or_default();
    let field = path.child("expirationSeconds");
    if seconds < 10 * 60 {
        errors.invalid(&field, seconds, "may not specify a duration less than 10 minutes");
    }
    if seconds > 1 << 32 {
        errors.invalid(&field, seconds, "may not specify a duration larger than 2^32 seconds");
    }
    if token.path.is_empty() {
        errors.required(&volume.child("path"), "");
    } else {
        text::check_unreserved_path(errors, &volume.child("path"), &token.path);
    }
}

fn check_trust_bundle(errors: &mut Errors, path: &Path<'_>, bundle: &ClusterTrustBundleProjection) {
    match (bundle.name.as_deref(), bundle.signer_name.as_deref()) {
        (Some(_), Some(_)) => {
            let printed = PrintedTrustBundle {
                name: bundle.name.as_deref(),
                signer_name: bundle.signer_name.as_deref(),
                label_selector: bundle.label_selector.as_deref(),
                optional: bundle.optional,
                path: &bundle.path,
            };
            errors.invalid(path, Json::of(&printed), "only one of name and signerName may be used");
        }
        (Some(name), None) => {
            if name.is_empty() {
                errors.required(&path.child("name"), "must be a valid object name");
            }
            for problem in trust_bundle_name_errors(name) {
                let detail = format!("not a valid clustertrustbundlename: {problem}");
                errors.invalid(&path.child("name"), name, detail);
            }
            if let Some(selector) = bundle.label_selector.as_deref() {
                let detail = "labelSelector must be unset if name is specified";
                errors.invalid(&path.child("labelSelector"), Json::of(selector), detail);
            }
        }
        (None, Some(signer)) => {
            if signer.is_empty() {
                errors.required(&path.child("signerName"), "must be a valid signer name");
            }
            check_signer_name(errors, &path.child("signerName"), signer);
            check_label_selector(errors, &path.child("labelSelector"), bundle.label_selector.as_deref());
        }
        (None, None) => errors.required(path, "either name or signerName must be specified"),
    }
}

/// A bundle of a signer has the signer's name before its own, with colons for slashes.
fn trust_bundle_name_errors(name: &str) -> Vec<String> {
    match name.rsplit_once(':') {
        // Upstream takes an empty signer for none, and then minds the colon.
        Some(("", _)) => {
            vec!["ClusterTrustBundle without signer name must not have \":\" in its name".to_owned()]
        }
        Some((signer, _)) if signer.contains('/') => {
            let (with_slashes, with_colons) = (signer.replace(':', "/"), signer.replace('/', ":"));
            let problem = format!(
                "ClusterTrustBundle for signerName {with_slashes} must be named with prefix {with_colons}:"
            );
            vec![problem]
        }
        Some((_, own)) => dns1123_subdomain_errors(own),
        None => dns1123_subdomain_errors(name),
    }
}

fn check_signer_name(errors: &mut Errors, path: &Path<'_>, signer: &str) {
    const DOMAIN_LIMIT: usize = 253;
    const LIMIT: usize = 571;
    if signer.is_empty() {
        return errors.required(path, "");
    }
    let Some((domain, name)) = signer.split_once('/').filter(|(_, name)| !name.contains('/')) else {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return errors.invalid(path, signer, detail);
    };
    let check_parts = |errors: &mut Errors, text: &str, problems_of: fn(&str) -> Vec<String>| {
        let bad =
            text.split('.').map(|part| (part, problems_of(part))).find(|(_, problems)| !problems.is_empty());
        for (part, problem) in
            bad.iter().flat_map(|(part, problems)| problems.iter().map(move |it| (part, it)))
        {
            errors.invalid(path, text, format!("validating label {}: {problem}", quoted(part)));
        }
    };
    if domain.len() > DOMAIN_LIMIT {
        errors.too_long(path, DOMAIN_LIMIT);
    }
    check_parts(errors, domain, dns1123_label_errors);
    if !domain.contains('.') {
        errors.invalid(path, domain, "should be a domain with at least two segments separated by dots");
    }
    check_parts(errors, name, dns1123_subdomain_errors);
    if signer.len() > LIMIT {
        errors.too_long(path, LIMIT);
    }
}

fn check_certificate<'a>(
    errors: &mut Errors,
    path: &Path<'_>,
    certificate: &'a PodCertificateProjection,
    files: &mut Files<'a>,
) {
    check_signer_name(errors, &path.child("signerName"), &certificate.signer_name);
    let annotations = path.child("userAnnotations");
    for key in certificate.user_annotations.keys() {
        check_domain_prefixed_key(errors, &annotations, &key.to_lowercase());
    }
    check_annotations_size(errors, &annotations, &certificate.user_annotations);
    if !KEY_TYPES.contains(&certificate.key_type.as_ref()) {
        errors.not_supported(&path.child("keyType"), certificate.key_type.as_ref(), KEY_TYPES);
    }
    if let Some(seconds) = certificate.max_expiration_seconds {
        let path = path.child("maxExpirationSeconds");
        if seconds < HOUR {
            errors.invalid(&path, seconds, "if provided, maxExpirationSeconds must be >= 3600");
        }
        let limit = if is_kubernetes_signer(&certificate.signer_name) { DAY } else { 91 * DAY };
        if seconds > limit {
            let detail = format!("if provided, maxExpirationSeconds must be <= {limit}");
            errors.invalid(&path, seconds, detail);
        }
    }
    let paths = [
        ("credentialBundlePath", certificate.credential_bundle_path.as_ref()),
        ("keyPath", certificate.key_path.as_ref()),
        ("certificateChainPath", certificate.certificate_chain_path.as_ref()),
    ];
    for (field, file) in paths.into_iter().filter(|(_, file)| !file.is_empty()) {
        text::check_unreserved_path(errors, &path.child(field), file);
        files.take(errors, file, file);
    }
    if paths.iter().all(|(_, file)| file.is_empty()) {
        let detail = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath";
        errors.required(path, detail);
    }
}

/// Whether a signer is one of Kubernetes itself, whose certificates last a day at most.
pub fn is_kubernetes_signer(name: &str) -> bool {
    let domain = name.split('/').next().unwrap_or_default();
    domain == "kubernetes.io" || domain.ends_with(".kubernetes.io")
}

/// A key such as `acme.io/foo`.
pub fn check_domain_prefixed_key(errors: &mut Errors, path: impl Place, key: &str) {
    let problems = qualified_name_errors(key);
    if key.is_empty() {
        errors.required(path, "");
    } else if problems.is_empty() && !key.contains('/') {
        errors.invalid(path, key, "must be a domain-prefixed key (such as \"acme.io/foo\")");
    } else {
        errors.invalid_each(path, key, problems);
    }
}

/// A trust bundle as upstream prints it: its internal type, with every field.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct PrintedTrustBundle<'a> {
    name: Option<&'a str>,
    signer_name: Option<&'a str>,
    label_selector: Option<&'a LabelSelector>,
    optional: Option<bool>,
    path: &'a str,
}
