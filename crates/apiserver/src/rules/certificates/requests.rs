//! Certificate signing requests.

use crablet_api::validate::{Errors, Word};
use serde_json::{Value, json};

use super::super::metadata;
use super::super::{Context, NameForm, Rules, Update, keep_other_parts};
use super::{check_signer, decoded, requested};
use crate::object;
use crate::pki::{Certificate, pem};
use crate::resources::Subresource;

pub struct SigningRequests;

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

impl Rules for SigningRequests {
    fn name_form(&self) -> NameForm {
        NameForm::PathSegment
    }

    fn prepare_create(&self, request: &mut Value, context: &Context<'_>) {
        request["status"] = json!({});
        let spec = object::holder(request, "spec");
        for field in ["username", "uid", "groups", "extra"] {
            object::remove(spec, field);
        }
        let user = context.user;
        if !user.name.is_empty() {
            spec["username"] = user.name.as_str().into();
        }
        if !user.uid.is_empty() {
            spec["uid"] = user.uid.as_str().into();
        }
        if !user.groups.is_empty() {
            spec["groups"] = user.groups.clone().into();
        }
        if !user.extra.is_empty() {
            spec["extra"] = json!(user.extra);
        }
    }

    fn validate_create(&self, errors: &mut Errors, request: &Value, _context: &Context<'_>) {
        check_request(errors, request, None);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, part: Option<Subresource>, context: &Context<'_>) {
        match part {
            Some(Subresource::Status) => {
                keep_other_parts(new, old, part);
                for kind in ["Approved", "Denied"] {
                    keep_conditions(new, old, kind);
                }
                set_condition_times(new, old, context);
            }
            Some(Subresource::Approval) => {
                set_condition_times(new, old, context);
                let conditions = new["status"]["conditions"].take();
                new["spec"] = old["spec"].clone();
                new["status"] = old["status"].clone();
                if conditions.is_array() {
                    new["status"]["conditions"] = conditions;
                } else if let Some(status) = new.get_mut("status") {
                    object::remove(status, "conditions");
                }
            }
            Some(_) | None => {
                new["spec"] = old["spec"].clone();
                keep_other_parts(new, old, None);
            }
        }
    }

    fn validate_update(&self, errors: &mut Errors, update: &Update<'_>) {
        let Update { new, old, part, .. } = *update;
        metadata::check(errors, update.resource, NameForm::PathSegment, new);
        check_request(errors, new, Some(old));
        let path = "status.conditions";
        let of = |request: &Value, kind: &str| -> Vec<Value> {
            let conditions = object::list(request, &["status", "conditions"]).iter();
            conditions.filter(|condition| condition["type"] == kind).cloned().collect()
        };
        for kind in ["Approved", "Denied", "Failed"] {
            if of(new, kind).len() < of(old, kind).len() {
                errors.forbidden(path, format!("updates may not remove a condition of type {kind:?}"));
            }
        }
        for kind in ["Approved", "Denied"].into_iter().filter(|_| part != Some(Subresource::Approval)) {
            let (now, before) = (of(new, kind), of(old, kind));
            if now.len() > before.len() {
                errors.forbidden(path, format!("updates may not add a condition of type {kind:?}"));
            } else if now.len() == before.len() && now != before {
                errors.forbidden(path, format!("updates may not modify a condition of type {kind:?}\n"));
            }
        }
        let certificate = |request: &Value| object::text(request, &["status", "certificate"]).to_owned();
        if certificate(new) != certificate(old) {
            if part != Some(Subresource::Status) {
                errors.forbidden("status.certificate", "updates may not set certificate content");
            } else if !certificate(old).is_empty() {
                let detail = "updates may not modify existing certificate content";
                errors.forbidden("status.certificate", detail);
            }
        }
        metadata::check_update(errors, update);
    }
}

/// Conditions of a kind are as they were, if there are as many.
fn keep_conditions(new: &mut Value, old: &Value, kind: &str) {
    let known: Vec<&Value> = object::list(old, &["status", "conditions"])
        .iter()
        .filter(|condition| condition["type"] == kind)
        .collect();
    let Some(conditions) = new["status"].get_mut("conditions").and_then(Value::as_array_mut) else { return };
    let mut found: Vec<&mut Value> =
        conditions.iter_mut().filter(|condition| condition["type"] == kind).collect();
    if found.len() == known.len() {
        for (condition, known) in found.iter_mut().zip(known) {
            **condition = known.clone();
        }
    }
}

fn set_condition_times(new: &mut Value, old: &Value, context: &Context<'_>) {
    let now = object::time(context.now);
    let known = object::list(old, &["status", "conditions"]);
    let conditions = new["status"].get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        if condition["lastUpdateTime"].is_null() {
            condition["lastUpdateTime"] = now.clone();
        }
        if condition["lastTransitionTime"].is_null() {
            let same = known.iter().find(|known| {
                known["type"] == condition["type"]
                    && known["status"] == condition["status"]
                    && known["lastTransitionTime"].is_string()
            });
            condition["lastTransitionTime"] =
                same.map_or_else(|| now.clone(), |same| same["lastTransitionTime"].clone());
        }
    }
}

fn check_request(errors: &mut Errors, request: &Value, old: Option<&Value>) {
    let spec = &request["spec"];
    if old.is_none() {
        let problem = match requested(request) {
            Ok(request) => request.signature_problem().map(str::to_owned),
            Err(error) => Some(error.to_string()),
        };
        if let Some(problem) = problem {
            errors.invalid("spec.request", &spec["request"], problem);
        }
    }
    let usages = object::list(spec, &["usages"]);
    if usages.is_empty() {
        errors.required("spec.usages", "");
    }
    if old.is_none() {
        for (index, usage) in usages.iter().enumerate() {
            let usage = usage.as_str().unwrap_or_default();
            if !USAGES.contains(&usage) {
                errors.not_supported(format_args!("spec.usages[{index}]"), Word(usage), &USAGES);
            }
        }
        for (index, usage) in usages.iter().enumerate() {
            if usages.iter().take(index).any(|other| other == usage) {
                let usage = Word(usage.as_str().unwrap_or_default());
                errors.duplicate(format_args!("spec.usages[{index}]"), usage);
            }
        }
    }
    let signer = object::text(spec, &["signerName"]);
    if signer == "kubernetes.io/legacy-unknown" && old.is_none() {
        let detail = "the legacy signerName is not allowed via this API version";
        errors.invalid("spec.signerName", signer, detail);
    } else {
        check_signer(errors, "spec.signerName", signer);
    }
    if let Some(seconds) = spec["expirationSeconds"].as_i64().filter(|seconds| *seconds < 600) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid("spec.expirationSeconds", seconds, detail);
    }
    check_conditions(errors, request);
    if old.is_none_or(|old| old["status"]["certificate"] != request["status"]["certificate"])
        && let Some(problem) = certificate_problem(&decoded(request, &["status", "certificate"]))
    {
        errors.invalid("status.certificate", "<certificate data>", problem);
    }
}

fn certificate_problem(text: &[u8]) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    let blocks = pem::blocks(text);
    for block in &blocks {
        if block.label != "CERTIFICATE" {
            return Some(format!("only CERTIFICATE PEM blocks are allowed, found {:?}", block.label));
        }
        if block.has_headers {
            return Some("no PEM block headers are permitted".to_owned());
        }
        if Certificate::from_der(&block.bytes).is_err() {
            return Some("x509: malformed certificate".to_owned());
        }
    }
    blocks.is_empty().then(|| "must contain at least one CERTIFICATE PEM block".to_owned())
}

fn check_conditions(errors: &mut Errors, request: &Value) {
    let conditions = object::list(request, &["status", "conditions"]);
    for (index, condition) in conditions.iter().enumerate() {
        let path = format!("status.conditions[{index}]");
        let text = |field: &str| object::text(condition, &[field]);
        let kind = text("type");
        if kind.is_empty() {
            errors.required(format_args!("{path}.type"), "");
        }
        let allowed: &[&str] = match kind {
            "Approved" | "Denied" | "Failed" => &["True"],
            _ => &["False", "True", "Unknown"],
        };
        match text("status") {
            "" => errors.required(format_args!("{path}.status"), ""),
            status if !allowed.contains(&status) => {
                errors.not_supported(format_args!("{path}.status"), Word(status), allowed);
            }
            _ => {}
        }
        let earlier = |kind: &str| conditions.iter().take(index).any(|other| other["type"] == kind);
        let opposite = match kind {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "\0",
        };
        if earlier(opposite) {
            let detail = "Approved and Denied conditions are mutually exclusive";
            errors.invalid("status.conditions", Word(kind), detail);
        }
        if earlier(kind) {
            errors.duplicate(format_args!("{path}.type"), Word(kind));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::checks::lines;
    use super::*;

    #[test]
    fn what_was_approved_is_not_denied() {
        let approved = json!({"status": {"conditions": [
            {"type": "Approved", "status": "True"},
            {"type": "Denied", "status": "False"},
        ]}});
        assert_eq!(
            lines(|errors| check_conditions(errors, &approved)),
            [
                r#"status.conditions[1].status: Unsupported value: "False": supported values: "True""#,
                r#"status.conditions: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive"#,
            ]
        );
    }
}
