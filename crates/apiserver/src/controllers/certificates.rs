//! Certificates for kubelets: requests that are what they say are approved, approved ones are signed, and old ones go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Controller, is_of};
use crate::access::attributes::{Attributes, ObjectAttributes};
use crate::access::authorize;
use crate::cluster::Cluster;
use crate::cluster::delete::DeleteOptions;
use crate::object::{self, list, text};
use crate::resources::CERTIFICATE_SIGNING_REQUESTS;
use crate::signing::RequestedNames;
use crate::state::{Change, ChangeKind, Key};
use crate::who::{NODE_PREFIX, NODES, User};

const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const LONGEST: SignedDuration = SignedDuration::from_hours(24 * 365);
const SHORTEST: SignedDuration = SignedDuration::from_mins(10);
/// How long requests are kept that were answered, and that were not.
const ANSWERED_STAYS: SignedDuration = SignedDuration::from_hours(1);
const PENDING_STAYS: SignedDuration = SignedDuration::from_hours(24);

#[derive(Debug, Default)]
pub(super) struct Certificates {
    changed: BTreeSet<Key>,
    /// When each request goes.
    ends: BTreeMap<Key, Timestamp>,
}

impl Controller for Certificates {
    fn note(&mut self, change: &Change, _now: Timestamp) {
        if is_of(change, &CERTIFICATE_SIGNING_REQUESTS) {
            self.changed.insert(change.key.clone());
            if change.kind == ChangeKind::Deleted {
                self.ends.remove(&change.key);
            }
        }
    }

    fn work(&mut self, cluster: &mut Cluster, now: Timestamp) {
        for key in std::mem::take(&mut self.changed) {
            let Some(request) = cluster.state.get(&key).map(|stored| stored.decode()) else { continue };
            self.ends.insert(key, end(&request, now));
            answer(cluster, request, now);
        }
        let due: Vec<Key> =
            self.ends.iter().filter(|(_, end)| **end <= now).map(|(key, _)| key.clone()).collect();
        for key in due {
            self.ends.remove(&key);
            cluster.delete_own(&key, &DeleteOptions::default(), now);
        }
    }

    fn next(&self) -> Option<Timestamp> {
        self.ends.values().min().copied()
    }
}

fn has(request: &Value, condition: &str) -> bool {
    let conditions = list(request, &["status", "conditions"]);
    conditions.iter().any(|own| own["type"] == condition && own["status"] != "False")
}

/// Approves and signs what is to be; what is signed already is done.
fn answer(cluster: &mut Cluster, mut request: Value, now: Timestamp) {
    let signer = Arc::clone(&cluster.settings.signer);
    if !text(&request, &["status", "certificate"]).is_empty()
        || has(&request, "Failed")
        || has(&request, "Denied")
    {
        return;
    }
    let Ok(encoded) = STANDARD.decode(text(&request, &["spec", "request"])) else { return };
    let Ok(encoded) = String::from_utf8(encoded) else { return };
    let Ok(asked) = signer.read_request(&encoded) else { return };
    if !has(&request, "Approved") {
        let Some(message) = approval(cluster, &request, &asked) else { return };
        add_condition(&mut request, "Approved", "AutoApproved", message, now);
        cluster.update_own(&CERTIFICATE_SIGNING_REQUESTS, request);
        return;
    }
    let usages = usages(&request);
    let is_fit = match text(&request, &["spec", "signerName"]) {
        KUBELET_CLIENT => check_kubelet_client(&asked, &usages),
        KUBELET_SERVING => check_kubelet_serving(&asked, &usages),
        CLIENT => check_client(&usages),
        // Others sign for the rest.
        _ => return,
    };
    if let Err(why) = is_fit {
        add_condition(&mut request, "Failed", "SignerValidationFailure", &why, now);
        cluster.update_own(&CERTIFICATE_SIGNING_REQUESTS, request);
        return;
    }
    let lasts = request["spec"]["expirationSeconds"].as_i64();
    let lasts = lasts.map_or(LONGEST, |seconds| SignedDuration::from_secs(seconds).clamp(SHORTEST, LONGEST));
    let usages: Vec<&str> = usages.into_iter().collect();
    match signer.sign_certificate(&encoded, &usages, Some(lasts.as_secs()), now) {
        Ok(certificate) => {
            if !request["status"].is_object() {
                request["status"] = json!({});
            }
            request["status"]["certificate"] = STANDARD.encode(certificate).into();
            cluster.update_own(&CERTIFICATE_SIGNING_REQUESTS, request);
        }
        Err(why) => tracing::warn!(name = object::name(&request), "a certificate could not be signed: {why}"),
    }
}

/// Why a request is approved without anybody being asked.
fn approval(cluster: &Cluster, request: &Value, asked: &RequestedNames) -> Option<&'static str> {
    let is_of_kubelet = text(request, &["spec", "signerName"]) == KUBELET_CLIENT
        && check_kubelet_client(asked, &usages(request)).is_ok();
    if !is_of_kubelet {
        return None;
    }
    let texts = |value: &Value| -> Vec<String> {
        let all = value.as_array().map(Vec::as_slice).unwrap_or_default();
        all.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let extra = request["spec"]["extra"].as_object().into_iter().flatten();
    let user = User {
        name: text(request, &["spec", "username"]).to_owned(),
        uid: text(request, &["spec", "uid"]).to_owned(),
        groups: texts(&request["spec"]["groups"]),
        extra: extra.map(|(key, values)| (key.clone(), texts(values))).collect(),
    };
    let may = |subresource: &str| {
        let object = ObjectAttributes {
            subresource: subresource.to_owned(),
            ..ObjectAttributes::new("certificates.k8s.io", "certificatesigningrequests", "", "")
        };
        authorize(&cluster.state, &Attributes::new(&user, "create", object)).allowed
    };
    if user.name == asked.common_name && may("selfnodeclient") {
        return Some("Auto approving self kubelet client certificate after SubjectAccessReview.");
    }
    may("nodeclient").then_some("Auto approving kubelet client certificate after SubjectAccessReview.")
}

fn usages(request: &Value) -> BTreeSet<&str> {
    list(request, &["spec", "usages"]).iter().filter_map(Value::as_str).collect()
}

fn check_node(asked: &RequestedNames) -> Result<(), String> {
    if asked.organizations != [NODES] {
        return Err("subject organization is not system:nodes".to_owned());
    }
    Ok(())
}

fn check_usages(usages: &BTreeSet<&str>, purpose: &str) -> Result<(), String> {
    let wanted = BTreeSet::from(["digital signature", "key encipherment", purpose]);
    let without = BTreeSet::from(["digital signature", purpose]);
    if *usages == wanted || *usages == without {
        return Ok(());
    }
    let mut wanted: Vec<&str> = wanted.into_iter().collect();
    wanted.sort_unstable();
    Err(format!("usages did not match [{}]", wanted.join(" ")))
}

fn check_name(asked: &RequestedNames) -> Result<(), String> {
    match asked.common_name.starts_with(NODE_PREFIX) {
        true => Ok(()),
        false => Err("subject common name does not begin with system:node:".to_owned()),
    }
}

fn forbid(names: &[String], what: &str) -> Result<(), String> {
    if names.is_empty() { Ok(()) } else { Err(format!("{what} subjectAltNames are not allowed")) }
}

fn check_kubelet_client(asked: &RequestedNames, usages: &BTreeSet<&str>) -> Result<(), String> {
    check_node(asked)?;
    forbid(&asked.dns_names, "DNS")?;
    forbid(&asked.email_addresses, "Email")?;
    forbid(&asked.ip_addresses, "IP")?;
    forbid(&asked.uris, "URI")?;
    check_name(asked)?;
    check_usages(usages, "client auth")
}

fn check_kubelet_serving(asked: &RequestedNames, usages: &BTreeSet<&str>) -> Result<(), String> {
    check_node(asked)?;
    if asked.dns_names.is_empty() && asked.ip_addresses.is_empty() {
        return Err("DNS or IP subjectAltName is required".to_owned());
    }
    forbid(&asked.email_addresses, "Email")?;
    forbid(&asked.uris, "URI")?;
    check_usages(usages, "server auth")?;
    check_name(asked)
}

fn check_client(usages: &BTreeSet<&str>) -> Result<(), String> {
    let allowed = ["client auth", "digital signature", "key encipherment"];
    if let Some(other) = usages.iter().find(|usage| !allowed.contains(usage)) {
        return Err(format!("invalid usage for client certificate: {other}"));
    }
    match usages.contains("client auth") {
        true => Ok(()),
        false => Err("missing required usage for client certificate: client auth".to_owned()),
    }
}

fn add_condition(request: &mut Value, kind: &str, reason: &str, message: &str, now: Timestamp) {
    let condition = json!({
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastUpdateTime": object::time(now),
        "lastTransitionTime": object::time(now),
    });
    if !request["status"].is_object() {
        request["status"] = json!({});
    }
    match request["status"]["conditions"].as_array_mut() {
        Some(conditions) => conditions.push(condition),
        None => request["status"]["conditions"] = json!([condition]),
    }
}

/// When a request goes.
fn end(request: &Value, now: Timestamp) -> Timestamp {
    let time = |value: &Value| value.as_str().and_then(|text| text.parse::<Timestamp>().ok()).unwrap_or(now);
    let since = |kind: &str| {
        let conditions = list(request, &["status", "conditions"]);
        conditions.iter().find(|own| own["type"] == kind).map(|own| time(&own["lastUpdateTime"]))
    };
    let is_issued = !text(request, &["status", "certificate"]).is_empty();
    let (since, stays) = match (since("Denied").or(since("Failed")), since("Approved")) {
        (Some(refused), _) => (refused, ANSWERED_STAYS),
        (None, Some(approved)) if is_issued => (approved, ANSWERED_STAYS),
        (None, Some(approved)) => (approved, PENDING_STAYS),
        (None, None) => (time(&request["metadata"]["creationTimestamp"]), PENDING_STAYS),
    };
    since.checked_add(stays).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Settings;
    use crate::state::State;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn cluster() -> Cluster {
        let mut cluster = Cluster::new(State::default(), Settings::default(), 1);
        cluster.tick(at(0));
        cluster
    }

    fn put(cluster: &mut Cluster, signer: &str, user: (&str, &[&str]), request: &str, usages: &[&str]) {
        let spec = json!({
            "signerName": signer,
            "username": user.0,
            "groups": user.1,
            "request": STANDARD.encode(request),
            "usages": usages,
            "expirationSeconds": 3600,
        });
        let metadata = json!({"name": "csr", "uid": "csr", "creationTimestamp": "1970-01-01T00:00:00Z"});
        cluster.state.put(&CERTIFICATE_SIGNING_REQUESTS, json!({"metadata": metadata, "spec": spec}));
    }

    fn told(cluster: &Cluster) -> (Vec<String>, String) {
        let request = cluster.state.read(&CERTIFICATE_SIGNING_REQUESTS, "", "csr").unwrap_or_default();
        let conditions = list(&request, &["status", "conditions"]).iter();
        let conditions =
            conditions.map(|own| format!("{} {}", text(own, &["type"]), text(own, &["message"]))).collect();
        let certificate = STANDARD.decode(text(&request, &["status", "certificate"])).unwrap();
        if certificate.is_empty() {
            return (conditions, String::new());
        }
        // The simulated signer says what it signs.
        let pem = String::from_utf8(certificate).unwrap();
        let lines: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        let said: Value = serde_json::from_slice(&STANDARD.decode(lines).unwrap()).unwrap();
        let signed = format!("signed for {}: {}", said["expirationSeconds"], text(&said, &["request"]));
        (conditions, signed)
    }

    const USAGES: [&str; 2] = ["digital signature", "client auth"];
    const BOOTSTRAPPER: (&str, &[&str]) =
        ("system:bootstrap:abc", &["system:bootstrappers", "system:authenticated"]);

    #[test]
    fn kubelets_get_client_certificates() {
        for (user, message) in [
            (BOOTSTRAPPER, "Approved Auto approving kubelet client certificate after SubjectAccessReview."),
            (
                ("system:node:n1", &["system:nodes"][..]),
                "Approved Auto approving self kubelet client certificate after SubjectAccessReview.",
            ),
        ] {
            let mut cluster = cluster();
            put(&mut cluster, KUBELET_CLIENT, user, "system:node:n1;system:nodes", &USAGES);
            cluster.tick(at(1));
            let expected = "signed for 3600: system:node:n1;system:nodes".to_owned();
            assert_eq!(told(&cluster), (vec![message.to_owned()], expected));
        }
    }

    #[test]
    fn what_is_not_a_kubelets_waits_for_a_person() {
        for (signer, user, request) in [
            (KUBELET_CLIENT, BOOTSTRAPPER, "system:node:n1;system:masters"),
            (KUBELET_CLIENT, BOOTSTRAPPER, "jane;system:nodes"),
            (KUBELET_CLIENT, BOOTSTRAPPER, "system:node:n1;system:nodes;n1"),
            (KUBELET_CLIENT, ("jane", &["system:authenticated"][..]), "system:node:n1;system:nodes"),
            (KUBELET_CLIENT, ("system:node:n2", &["system:nodes"][..]), "system:node:n1;system:nodes"),
            (KUBELET_SERVING, ("system:node:n1", &["system:nodes"][..]), "system:node:n1;system:nodes;n1"),
        ] {
            let mut cluster = cluster();
            put(&mut cluster, signer, user, request, &USAGES);
            cluster.tick(at(1));
            assert_eq!(told(&cluster), (Vec::new(), String::new()), "{signer} {request}");
        }
    }

    #[test]
    fn what_a_person_approves_is_signed_if_it_is_what_the_signer_signs() {
        for (request, usages, expected) in [
            ("system:node:n1;system:nodes;n1", ["digital signature", "server auth"], Ok(())),
            (
                "system:node:n1;system:nodes",
                ["digital signature", "server auth"],
                Err("DNS or IP subjectAltName is required"),
            ),
            (
                "system:node:n1;system:nodes;n1",
                ["digital signature", "client auth"],
                Err("usages did not match [digital signature key encipherment server auth]"),
            ),
        ] {
            let mut cluster = cluster();
            put(&mut cluster, KUBELET_SERVING, ("x", &[]), request, &usages);
            let mut approved = cluster.state.read(&CERTIFICATE_SIGNING_REQUESTS, "", "csr").unwrap();
            add_condition(&mut approved, "Approved", "KubectlApprove", "yes", at(0));
            cluster.state.put(&CERTIFICATE_SIGNING_REQUESTS, approved);
            cluster.tick(at(1));
            let (conditions, certificate) = told(&cluster);
            match expected {
                Ok(()) => assert_eq!(certificate, format!("signed for 3600: {request}")),
                Err(why) => assert_eq!(conditions[1], format!("Failed {why}")),
            }
        }
    }

    #[test]
    fn requests_go_when_they_are_old() {
        let mut cluster = cluster();
        put(&mut cluster, KUBELET_CLIENT, BOOTSTRAPPER, "system:node:n1;system:nodes", &USAGES);
        cluster.tick(at(1));
        let key = Key::new(&CERTIFICATE_SIGNING_REQUESTS, "", "csr");
        assert_eq!(cluster.next_tick(), Some(at(3601)));
        cluster.tick(at(3600));
        assert!(cluster.state.get(&key).is_some());
        cluster.tick(at(3601));
        assert!(cluster.state.get(&key).is_none());
        put(&mut cluster, KUBELET_CLIENT, ("jane", &[]), "system:node:n1;system:nodes", &USAGES);
        cluster.tick(at(24 * 3600 - 1));
        assert!(cluster.state.get(&key).is_some());
        cluster.tick(at(24 * 3600));
        assert!(cluster.state.get(&key).is_none());
    }
}
