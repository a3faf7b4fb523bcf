//! How a pod's request for a certificate ends: issued, denied or failed, once.

use crablet_api::qualified_name_errors;
use crablet_api::validate::{Errors, Word};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use x509_cert::ext::pkix::name::GeneralName;

use super::super::Update;
use super::super::checks::is_repeated;
use super::super::metadata::{self, same};
use super::decoded;
use crate::object;
use crate::pki::{Certificate, CertificateRequest, PublicKey, pem};

const ENDS: [&str; 3] = ["Issued", "Denied", "Failed"];
const LARGEST_CHAIN: usize = 100 * 1024;
const CHAIN: &str = "status.certificateChain";
const SHORTEST: SignedDuration = SignedDuration::from_hours(1);
/// How far clocks may be apart.
const SKEW: SignedDuration = SignedDuration::from_mins(5);
/// How far a renewal is from either end.
const MARGIN: SignedDuration = SignedDuration::from_mins(10);

pub(super) fn check(errors: &mut Errors, update: &Update<'_>) {
    let mut found = Errors::default();
    metadata::check_update(&mut found, update);
    if found.is_empty() {
        check_conditions(&mut found, object::list(update.new, &["status", "conditions"]));
    }
    if found.is_empty() {
        check_end(&mut found, update);
    }
    errors.extend(found.into_list());
}

fn check_conditions(errors: &mut Errors, conditions: &[Value]) {
    let mut count = 0;
    for (index, condition) in conditions.iter().enumerate() {
        let path = format!("status.conditions.[{index}]");
        let kind = object::text(condition, &["type"]);
        if !ENDS.contains(&kind) {
            errors.not_supported(format_args!("{path}.type"), kind, &ENDS);
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
    for (index, condition) in conditions.iter().enumerate() {
        let path = format!("status.conditions[{index}]");
        let text = |field: &str| object::text(condition, &[field]);
        if is_repeated(conditions, index, "type") {
            errors.duplicate(format_args!("{path}.type"), text("type"));
        }
        errors.invalid_each(format_args!("{path}.type"), text("type"), qualified_name_errors(text("type")));
        let statuses = ["False", "True", "Unknown"];
        if !statuses.contains(&text("status")) {
            errors.not_supported(format_args!("{path}.status"), Word(text("status")), &statuses);
        }
        if condition["lastTransitionTime"].is_null() {
            errors.required(format_args!("{path}.lastTransitionTime"), "");
        }
        match text("reason") {
            "" => errors.required(format_args!("{path}.reason"), ""),
            reason if !is_reason(reason) => errors.invalid(format_args!("{path}.reason"), reason, REASON),
            reason if reason.len() > 1024 => errors.too_long(format_args!("{path}.reason"), 1024),
            _ => {}
        }
        if text("message").len() > 32 * 1024 {
            errors.too_long(format_args!("{path}.message"), 32 * 1024);
        }
    }
}

const REASON: &str = "a condition reason must start with alphabetic character, optionally followed by a string of \
    alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or \
    'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is \
    '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";

fn is_reason(text: &str) -> bool {
    let is_within = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | ',' | ':');
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(is_within)
        && !text.ends_with([',', ':'])
}

fn check_end(errors: &mut Errors, update: &Update<'_>) {
    let (status, known) = (&update.new["status"], &update.old["status"]);
    let has = |status: &Value, kind: &str| {
        let mut conditions = object::list(status, &["conditions"]).iter();
        conditions.any(|condition| condition["type"] == kind && condition["status"] == "True")
    };
    if ENDS.iter().any(|end| has(known, end)) {
        if !same(status, known) {
            let detail = "immutable after PodCertificateRequest is issued, denied, or failed";
            errors.invalid_unshown("status", detail);
        }
    } else if has(status, "Denied") || has(status, "Failed") {
        if !same(status, &json!({"conditions": status["conditions"]})) {
            let detail =
                "non-condition status fields must be empty when denying or failing the PodCertificateRequest";
            errors.invalid_unshown("status", detail);
        }
    } else if has(status, "Issued") {
        check_issued(errors, update);
    } else if !same(status, known) {
        let detail = "status is immutable unless transitioning to \"Issued\", \"Denied\", or \"Failed\"";
        errors.invalid_unshown("status", detail);
    }
}

/// The first problem counts.
fn check_issued(errors: &mut Errors, update: &Update<'_>) {
    let status = &update.new["status"];
    let chain = object::text(status, &["certificateChain"]);
    if chain.len() > LARGEST_CHAIN {
        return errors.too_long(CHAIN, LARGEST_CHAIN);
    }
    let blocks = pem::blocks(chain.as_bytes());
    let Some((leaf, others)) = blocks.split_first() else {
        return errors.invalid(
            CHAIN,
            chain,
            "issued certificate chain must contain at least one certificate",
        );
    };
    if leaf.label != "CERTIFICATE" {
        let detail = "issued certificate chain must consist entirely of CERTIFICATE PEM blocks";
        return errors.invalid(CHAIN, chain, detail);
    }
    let Ok(leaf) = Certificate::from_der(&leaf.bytes) else {
        return errors.invalid(CHAIN, chain, "leaf certificate does not parse as valid X.509");
    };
    let before = errors.len();
    check_names(errors, &leaf);
    if requested_key(&update.old["spec"]).is_none_or(|key| key != leaf.key()) {
        let detail = "leaf certificate was not issued to the requested public key";
        return errors.invalid(CHAIN, chain, detail);
    }
    for (field, detail) in [
        ("notBefore", "must be present and consistent with the issued certificate"),
        ("notAfter", "must be present and consistent with the issued certificate"),
        ("beginRefreshAt", "must be present and in the range [notbefore+10min, notafter-10min]"),
    ] {
        if status[field].is_null() {
            errors.required(format_args!("status.{field}"), detail);
        }
    }
    if errors.len() > before {
        return;
    }
    if let Some((path, value, detail)) = time_problem(update, &leaf) {
        return errors.invalid(path, &value, detail);
    }
    for block in others {
        if block.label != "CERTIFICATE" {
            // Upstream has it so.
            let detail = "issued certificate chain must consist entirely of CERTFICATE PEM blocks";
            return errors.invalid(CHAIN, chain, detail);
        }
        if Certificate::from_der(&block.bytes).is_err() {
            let detail = "intermediate certificate does not parse as valid X.509";
            return errors.invalid(CHAIN, chain, detail);
        }
    }
}

fn check_names(errors: &mut Errors, leaf: &Certificate) {
    for name in leaf.alternative_names() {
        match &name {
            GeneralName::DnsName(name) => {
                let name = name.as_str();
                if name.is_empty() {
                    errors.invalid(CHAIN, name, "leaf certificate should not contain empty DNSName");
                }
                if name.contains("..") {
                    errors.invalid(CHAIN, name, "leaf certificate's DNSName should not contain '..'");
                }
                if name.starts_with('.') || name.ends_with('.') {
                    let detail = "leaf certificate's DNSName should not start or end with '.'";
                    errors.invalid(CHAIN, name, detail);
                }
            }
            GeneralName::Rfc822Name(address) => {
                let parts = address.as_str().split_once('@');
                if !parts.is_some_and(|(name, domain)| !name.is_empty() && !domain.is_empty()) {
                    let detail = "leaf certificate should not contain invalid EmailAddress";
                    errors.invalid(CHAIN, address.as_str(), detail);
                }
            }
            _ => {}
        }
    }
}

fn requested_key(spec: &Value) -> Option<PublicKey> {
    match object::text(spec, &["stubPKCS10Request"]) {
        "" => PublicKey::from_der(&decoded(spec, &["pkixPublicKey"])),
        _ => CertificateRequest::from_der(&decoded(spec, &["stubPKCS10Request"]))
            .ok()
            .map(|request| request.key()),
    }
}

/// What is wrong with when a certificate begins and ends: where, the value, and why.
fn time_problem(update: &Update<'_>, leaf: &Certificate) -> Option<(&'static str, Value, String)> {
    let status = &update.new["status"];
    let time =
        |field: &str| object::text(status, &[field]).parse::<Timestamp>().unwrap_or(Timestamp::UNIX_EPOCH);
    let (not_before, not_after, refresh) = (time("notBefore"), time("notAfter"), time("beginRefreshAt"));
    let problem = |path, field: &str, detail: &str| Some((path, status[field].clone(), detail.to_owned()));
    if not_before != leaf.not_before() {
        let detail = "must be set to the NotBefore time encoded in the leaf certificate";
        return problem("status.notBefore", "notBefore", detail);
    }
    if not_before.duration_since(update.now).abs() >= SKEW {
        let detail = "must be set to within 5 minutes of kube-apiserver's current time";
        return problem("status.notBefore", "notBefore", detail);
    }
    if not_after != leaf.not_after() {
        let detail = "must be set to the NotAfter time encoded in the leaf certificate";
        return problem("status.notAfter", "notAfter", detail);
    }
    let lasts = not_after.duration_since(not_before);
    let nanoseconds = json!(i64::try_from(lasts.as_nanos()).unwrap_or(i64::MAX));
    if lasts < SHORTEST {
        return Some((CHAIN, nanoseconds, "leaf certificate lifetime must be >= 1 hour".to_owned()));
    }
    let longest = update.new["spec"]["maxExpirationSeconds"].as_i64().unwrap_or(0);
    if lasts > SignedDuration::from_secs(longest) {
        let detail = format!("leaf certificate lifetime must be <= spec.maxExpirationSeconds ({longest})");
        return Some((CHAIN, nanoseconds, detail));
    }
    if refresh.duration_since(not_before) < MARGIN {
        let detail = "must be at least 10 minutes after status.notBefore";
        return problem("status.beginRefreshAt", "beginRefreshAt", detail);
    }
    if not_after.duration_since(refresh) < MARGIN {
        let detail = "must be at least 10 minutes before status.notAfter";
        return problem("status.beginRefreshAt", "beginRefreshAt", detail);
    }
    None
}
