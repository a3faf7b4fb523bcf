//! Pods' requests for certificates of their own.

use crablet_api::dns1123_subdomain_errors;
use crablet_api::validate::{Errors, Word};
use serde_json::{Value, json};

use super::super::metadata::{self, check_immutable_object, same};
use super::super::{Context, Rules, Update};
use super::check_signer;
use crate::object;
use crate::resources::Subresource;

pub struct PodRequests;

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
        metadata::check_update(errors, update);
        if part == Some(Subresource::Status) {
            check_pod_request_status(errors, &new["status"], &old["status"]);
        } else {
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
    let longest = if signer.starts_with("kubernetes.io/") { 86_400 } else { 7_862_400 };
    if !(3600..=longest).contains(&seconds) {
        let detail = format!("must be in the range [3600, {longest}]");
        errors.invalid("spec.maxExpirationSeconds", seconds, detail);
    }
    let has = |field: &str| !object::text(spec, &[field]).is_empty();
    let (stub, key, proof) = (has("stubPKCS10Request"), has("pkixPublicKey"), has("proofOfPossession"));
    if !matches!((stub, key, proof), (true, false, false) | (false, true, true)) {
        errors.invalid_unshown(
            "spec",
            "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set",
        );
    }
}

fn check_pod_request_status(errors: &mut Errors, status: &Value, known: &Value) {
    let ends = ["Issued", "Denied", "Failed"];
    let conditions = object::list(status, &["conditions"]);
    let mut count = 0;
    for (index, condition) in conditions.iter().enumerate() {
        let path = format!("status.conditions.[{index}]");
        let kind = object::text(condition, &["type"]);
        if !ends.contains(&kind) {
            errors.not_supported(format_args!("{path}.type"), kind, &ends);
            continue;
        }
        count += 1;
        if count > 1 {
            let detail = "There may be at most one condition with type \"Issued\", \"Denied\", or \"Failed\"";
            errors.invalid(format_args!("{path}.type"), kind, detail);
        }
        if condition["status"] != "True" {
            let status = Word(object::text(condition, &["status"]));
            errors.not_supported(format_args!("{path}.status"), status, &["True"]);
        }
    }
    let has_ended = object::list(known, &["conditions"])
        .iter()
        .any(|condition| ends.iter().any(|end| condition["type"] == *end));
    if has_ended && !same(status, known) {
        let detail = "immutable after PodCertificateRequest is issued, denied, or failed";
        errors.invalid("status", status, detail);
    }
}
