//! Pods' requests for certificates of their own.

use crablet_api::dns1123_subdomain_errors;
use crablet_api::validate::{Errors, Word, check_domain_prefixed_key, is_kubernetes_signer};
use serde_json::{Value, json};

use super::super::metadata::{self, check_immutable_object};
use super::super::{Context, Rules, Update};
use super::{check_signer, decoded, pod_request_status};
use crate::object;
use crate::pki::{CertificateRequest, Curve, KeyKind, PublicKey};
use crate::resources::Subresource;

pub struct PodRequests;

/// A key, a proof or a request, in bytes.
const LARGEST_KEY: usize = 10 * 1024;
const UNKNOWN_KEY: &str = "unknown public key type; supported types are Ed25519, ECDSA, and RSA";

impl Rules for PodRequests {
    fn default(&self, request: &mut Value, _part: Option<Subresource>) {
        if request["spec"].is_object() {
            object::fill(&mut request["spec"], "maxExpirationSeconds", 86_400);
        }
    }

    fn prepare_create(&self, request: &mut Value, _context: &Context<'_>) {
        request["status"] = json!({});
    }

    fn validate_create(&self, errors: &mut Errors, request: &Value, _context: &Context<'_>) {
        check_pod_request(errors, &request["spec"]);
    }

    fn validate_update(&self, errors: &mut Errors, update: &Update<'_>) {
        let Update { new, old, part, .. } = *update;
        if part == Some(Subresource::Status) {
            pod_request_status::check(errors, update);
        } else {
            metadata::check_update(errors, update);
            let kind = "certificates.PodCertificateRequestSpec";
            check_immutable_object(errors, "spec", kind, &new["spec"], &old["spec"]);
        }
    }

    fn updates_unconditionally(&self) -> bool {
        false
    }
}

fn check_pod_request(errors: &mut Errors, spec: &Value) {
    let signer = object::text(spec, &["signerName"]);
    check_signer(errors, "spec.signerName", signer);
    for (key, _) in metadata::entries(&spec["unverifiedUserAnnotations"]) {
        check_domain_prefixed_key(errors, "spec.unverifiedUserAnnotations", &key.to_lowercase());
    }
    metadata::check_annotations_size(
        errors,
        "spec.unverifiedUserAnnotations",
        &spec["unverifiedUserAnnotations"],
    );
    for (name, uid) in
        [("podName", "podUID"), ("serviceAccountName", "serviceAccountUID"), ("nodeName", "nodeUID")]
    {
        let (said, said_uid) = (object::text(spec, &[name]), object::text(spec, &[uid]));
        for problem in dns1123_subdomain_errors(said) {
            match name {
                "nodeName" => errors.invalid("spec.nodeName", Word(said), problem),
                name => errors.invalid(format_args!("spec.{name}"), said, problem),
            }
        }
        if said_uid.is_empty() {
            errors.invalid(format_args!("spec.{uid}"), Word(""), "must not be empty");
        }
        if said_uid.len() > 128 {
            errors.too_long(format_args!("spec.{uid}"), 128);
        }
    }
    let Some(seconds) = spec["maxExpirationSeconds"].as_i64() else {
        return errors.required("spec.maxExpirationSeconds", "must be set");
    };
    let longest = if is_kubernetes_signer(signer) { 86_400 } else { 7_862_400 };
    if !(3600..=longest).contains(&seconds) {
        let detail = format!("must be in the range [3600, {longest}]");
        errors.invalid("spec.maxExpirationSeconds", seconds, detail);
    }
    let has = |field: &str| !object::text(spec, &[field]).is_empty();
    match (has("stubPKCS10Request"), has("pkixPublicKey"), has("proofOfPossession")) {
        (true, false, false) => check_stub(errors, spec),
        (false, true, true) => check_proof(errors, spec),
        _ => errors.invalid_unshown(
            "spec",
            "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set",
        ),
    }
}

fn check_stub(errors: &mut Errors, spec: &Value) {
    let path = "spec.stubPKCS10Request";
    let der = decoded(spec, &["stubPKCS10Request"]);
    if der.len() > LARGEST_KEY {
        return errors.too_long(path, LARGEST_KEY);
    }
    let Ok(request) = CertificateRequest::from_der(&der) else {
        return errors.invalid_unshown(path, "must be a valid PKCS#10 CSR");
    };
    if request.key().kind() == KeyKind::Other {
        return errors.invalid_unshown(path, UNKNOWN_KEY);
    }
    let curves = "elliptic public keys must use curve P256, P384, or P521";
    if is_strong(errors, path, &request.key(), curves) && request.signature_problem().is_some() {
        errors.invalid_unshown(path, "invalid signature");
    }
}

/// How it was asked before there was the other way.
fn check_proof(errors: &mut Errors, spec: &Value) {
    for field in ["pkixPublicKey", "proofOfPossession"] {
        if decoded(spec, &[field]).len() > LARGEST_KEY {
            return errors.too_long(format_args!("spec.{field}"), LARGEST_KEY);
        }
    }
    let path = "spec.pkixPublicKey";
    let key = PublicKey::from_der(&decoded(spec, &["pkixPublicKey"]));
    let Some(key) = key.filter(|key| key.kind() != KeyKind::Other) else {
        return errors.invalid(path, &spec["pkixPublicKey"], "must be a valid PKIX-serialized public key");
    };
    let curves = "elliptic public keys must use curve P256 or P384";
    let proof = decoded(spec, &["proofOfPossession"]);
    if is_strong(errors, path, &key, curves)
        && !key.has_proved(object::text(spec, &["podUID"]).as_bytes(), &proof)
    {
        errors.invalid_unshown("spec.proofOfPossession", "could not verify proof-of-possession signature");
    }
}

fn is_strong(errors: &mut Errors, path: &str, key: &PublicKey, curves: &str) -> bool {
    match key.kind() {
        KeyKind::Ed25519
        | KeyKind::Ecdsa(Curve::P256 | Curve::P384 | Curve::P521)
        | KeyKind::Rsa { bits: 3072 | 4096 } => return true,
        KeyKind::Ecdsa(Curve::P224) => errors.invalid(path, "curve P-224", curves),
        KeyKind::Rsa { bits } => {
            let modulus = format!("{bits}-bit modulus");
            errors.invalid(path, modulus.as_str(), "RSA keys must have modulus size 3072 or 4096");
        }
        KeyKind::Other => errors.invalid_unshown(path, UNKNOWN_KEY),
    }
    false
}
