//! Cluster trust bundles.

use crablet_api::dns1123_subdomain_errors;
use crablet_api::validate::Errors;
use serde_json::Value;

use super::super::metadata::{self, check_immutable};
use super::super::{Context, NameForm, Rules, Update};
use super::check_signer;
use crate::object;
use crate::pki::{Certificate, pem};
use crate::resources::Resource;

pub struct TrustBundles;

const LARGEST_BUNDLE: usize = 1 << 20;

impl Rules for TrustBundles {
    fn validate_metadata(&self, errors: &mut Errors, resource: &Resource, bundle: &Value) {
        metadata::check(errors, resource, NameForm::PathSegment, bundle);
        check_bundle_name(errors, bundle);
    }

    fn validate_create(&self, errors: &mut Errors, bundle: &Value, _context: &Context<'_>) {
        check_bundle(errors, bundle, true);
    }

    fn validate_update(&self, errors: &mut Errors, update: &Update<'_>) {
        let Update { new, old, .. } = *update;
        check_bundle_name(errors, new);
        check_bundle(errors, new, new["spec"]["trustBundle"] != old["spec"]["trustBundle"]);
        metadata::check_update(errors, update);
        check_immutable(errors, "spec.signerName", &new["spec"]["signerName"], &old["spec"]["signerName"]);
    }

    fn updates_unconditionally(&self) -> bool {
        false
    }
}

fn check_bundle_name(errors: &mut Errors, bundle: &Value) {
    let (name, signer) = (object::name(bundle), object::text(bundle, &["spec", "signerName"]));
    if name.is_empty() {
        return;
    }
    let prefix = format!("{}:", signer.replace('/', ":"));
    let problems = if signer.is_empty() && name.contains(':') {
        vec!["ClusterTrustBundle without signer name must not have \":\" in its name".to_owned()]
    } else if signer.is_empty() {
        dns1123_subdomain_errors(name)
    } else {
        match name.strip_prefix(&prefix) {
            Some(rest) => dns1123_subdomain_errors(rest),
            None => {
                vec![format!("ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}")]
            }
        }
    };
    errors.invalid_each("metadata.name", name, problems);
}

fn check_bundle(errors: &mut Errors, bundle: &Value, is_new: bool) {
    let signer = object::text(bundle, &["spec", "signerName"]);
    if !signer.is_empty() {
        check_signer(errors, "spec.signerName", signer);
    }
    let (path, text) = ("spec.trustBundle", object::text(bundle, &["spec", "trustBundle"]));
    if !is_new {
        return;
    }
    if text.len() > LARGEST_BUNDLE {
        return errors.too_long(path, LARGEST_BUNDLE);
    }
    let blocks = pem::blocks(text.as_bytes());
    let omitted = "<value omitted>";
    let mut has_bad = false;
    for (index, block) in blocks.iter().enumerate() {
        let problem = if block.label != "CERTIFICATE" {
            format!("entry {index} has bad block type: {}", block.label)
        } else if block.has_headers {
            format!("entry {index} has PEM block headers")
        } else {
            match Certificate::from_der(&block.bytes) {
                Err(_) => format!("entry {index} does not parse as X.509"),
                Ok(certificate) if !certificate.is_authority() => {
                    format!("entry {index} does not have the CA bit set")
                }
                Ok(_) => continue,
            }
        };
        has_bad = true;
        errors.invalid(path, omitted, problem);
    }
    if has_bad {
        return;
    }
    if blocks.is_empty() {
        errors.invalid(path, omitted, "at least one trust anchor must be provided");
    }
    for (index, block) in blocks.iter().enumerate() {
        let same: Vec<String> = blocks
            .iter()
            .enumerate()
            .filter(|(_, other)| other.bytes == block.bytes)
            .map(|(other, _)| other.to_string())
            .collect();
        if same.len() > 1 && same.first().is_some_and(|first| *first == index.to_string()) {
            errors.invalid(path, omitted, format!("duplicate trust anchor (indices [{}])", same.join(" ")));
        }
    }
}
