//! Tokens of service accounts: JSON web tokens that are bound to the account, and to a pod, a node or a secret.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Authenticated, CREDENTIAL_ID};
use crate::cluster::Settings;
use crate::object;
use crate::resources::{NODES, PODS, Resource, SECRETS, SERVICE_ACCOUNTS};
use crate::signing::SigningError;
use crate::state::State;
use crate::who::User;

/// Clocks differ.
const LEEWAY: SignedDuration = SignedDuration::from_mins(1);
const PRIVATE: &str = "kubernetes.io";

/// An object that a token speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    pub name: String,
    pub uid: String,
}

/// What a new token is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    pub namespace: String,
    pub service_account: Reference,
    pub pod: Option<Reference>,
    /// The pod's node; without a pod, the node that the token is bound to.
    pub node: Option<Reference>,
    pub secret: Option<Reference>,
    pub audiences: Vec<String>,
    pub expiration_seconds: i64,
    /// After how many seconds its use is worth a remark.
    pub warn_after_seconds: Option<i64>,
    /// What tells this token from all others.
    pub id: String,
}

/// Why a token is not believed, in upstream's words where it has some.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is none of ours at all.
    #[error("invalid bearer token")]
    Unknown,
    #[error("invalid signature, no keys found")]
    OtherKey,
    #[error("square/go-jose: error in cryptographic primitive")]
    WrongSignature,
    #[error("token audiences {found:?} is invalid for the target audiences {wanted:?}")]
    OtherAudience { found: Vec<String>, wanted: Vec<String> },
    #[error("service account token has expired")]
    Expired,
    #[error("service account token is not valid yet")]
    NotYet,
    #[error("service account token is issued in the future")]
    FromTheFuture,
    #[error("serviceaccounts {0:?} not found")]
    NoAccount(String),
    #[error("{kind} UID ({found}) does not match {claim} ({said})")]
    OtherObject { kind: &'static str, claim: &'static str, found: String, said: String },
    #[error("service account {namespace}/{name} has been deleted")]
    AccountDeleted { namespace: String, name: String },
    /// What it is bound to is gone.
    #[error("service account token has been invalidated")]
    Invalidated,
}

/// A new token.
pub fn issue(settings: &Settings, claims: &Claims, now: Timestamp) -> Result<String, SigningError> {
    let key = settings.signer.token_key();
    let since = now.as_second();
    let reference = |reference: &Reference| json!({"name": reference.name, "uid": reference.uid});
    let mut private = json!({
        "namespace": claims.namespace,
        "serviceaccount": reference(&claims.service_account),
    });
    for (field, value) in [("pod", &claims.pod), ("node", &claims.node), ("secret", &claims.secret)] {
        if let Some(value) = value {
            private[field] = reference(value);
        }
    }
    if let Some(seconds) = claims.warn_after_seconds {
        private["warnafter"] = since.saturating_add(seconds).into();
    }
    let public = json!({
        "aud": claims.audiences,
        "exp": since.saturating_add(claims.expiration_seconds),
        "iat": since,
        "iss": settings.issuer,
        "jti": claims.id,
        "nbf": since,
        "sub": user_name(&claims.namespace, &claims.service_account.name),
        PRIVATE: private,
    });
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", encode(&json!({"alg": key.algorithm, "kid": key.id})), encode(&public));
    let signature = settings.signer.sign_token(message.as_bytes())?;
    Ok(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

/// Whom a token is of, if it is for one of these audiences and what it is bound to is still there.
pub(super) fn verify(
    state: &State,
    settings: &Settings,
    token: &str,
    audiences: &[String],
    now: Timestamp,
) -> Result<Authenticated, TokenError> {
    let claims = read(settings, token)?;
    let said: Vec<String> = match &claims["aud"] {
        Value::String(one) => vec![one.clone()],
        Value::Array(many) => many.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    let matching: Vec<String> =
        said.iter().filter(|audience| audiences.contains(audience)).cloned().collect();
    if matching.is_empty() {
        return Err(TokenError::OtherAudience { found: said, wanted: audiences.to_vec() });
    }
    check_times(&claims, now)?;
    let user = bound_user(state, &claims, now)?;
    Ok(Authenticated { user, audiences: matching })
}

/// What a token says, if it is signed by us.
fn read(settings: &Settings, token: &str) -> Result<Value, TokenError> {
    let mut parts = token.split('.');
    let (Some(header), Some(claims), Some(signature), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(TokenError::Unknown);
    };
    let bytes = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Unknown);
    let tree = |part: &str| serde_json::from_slice::<Value>(&bytes(part)?).map_err(|_| TokenError::Unknown);
    let (read_header, read_claims) = (tree(header)?, tree(claims)?);
    if read_claims["iss"] != *settings.issuer {
        return Err(TokenError::Unknown);
    }
    let key = settings.signer.token_key();
    if read_header["alg"] != key.algorithm || read_header.get("crit").is_some() {
        return Err(TokenError::WrongSignature);
    }
    if read_header.get("kid").is_some_and(|id| *id != *key.id) {
        return Err(TokenError::OtherKey);
    }
    let message = &token[..header.len() + 1 + claims.len()];
    match settings.signer.is_token_signature(message.as_bytes(), &bytes(signature)?) {
        true => Ok(read_claims),
        false => Err(TokenError::WrongSignature),
    }
}

fn check_times(claims: &Value, now: Timestamp) -> Result<(), TokenError> {
    let seconds = |name: &str| claims[name].as_f64().map(|seconds| seconds as i64);
    let (now, leeway) = (now.as_second(), LEEWAY.as_secs());
    if seconds("nbf").is_some_and(|at| now + leeway < at) {
        return Err(TokenError::NotYet);
    }
    // One without an end is none of ours: we make no such tokens.
    if seconds("exp").is_none_or(|at| now - leeway > at) {
        return Err(TokenError::Expired);
    }
    match seconds("iat").is_some_and(|at| now + leeway < at) {
        true => Err(TokenError::FromTheFuture),
        false => Ok(()),
    }
}

/// The service account, if it and all that the token is bound to are still the same.
fn bound_user(state: &State, claims: &Value, now: Timestamp) -> Result<User, TokenError> {
    let private = &claims[PRIVATE];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let namespace = text(&private["namespace"]);
    let reference = |field: &str| {
        let reference = private.get(field).filter(|reference| reference.is_object())?;
        Some(Reference { name: text(&reference["name"]), uid: text(&reference["uid"]) })
    };
    let account =
        reference("serviceaccount").unwrap_or(Reference { name: String::new(), uid: String::new() });
    let Some(found) = state.read(&SERVICE_ACCOUNTS, &namespace, &account.name) else {
        return Err(TokenError::NoAccount(account.name));
    };
    check_uid("service account", "claim", &found, &account)?;
    if is_deleted(&found, now) {
        return Err(TokenError::AccountDeleted { namespace, name: account.name });
    }
    let (pod, node) = (reference("pod"), reference("node"));
    if let Some(secret) = reference("secret") {
        check_bound(state, &SECRETS, &namespace, &secret, now)?;
    }
    if let Some(pod) = &pod {
        check_bound(state, &PODS, &namespace, pod, now)?;
    }
    if let (None, Some(node)) = (&pod, &node) {
        check_bound(state, &NODES, "", node, now)?;
    }
    let mut user = User {
        name: user_name(&namespace, &account.name),
        uid: account.uid,
        groups: vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")],
        ..User::default()
    };
    let mut extra = |name: &str, value: String| {
        if !value.is_empty() {
            user.extra.insert(format!("authentication.kubernetes.io/{name}"), vec![value]);
        }
    };
    if let Some(pod) = pod {
        extra("pod-name", pod.name);
        extra("pod-uid", pod.uid);
    }
    if let Some(node) = node {
        extra("node-name", node.name);
        extra("node-uid", node.uid);
    }
    if let Some(id) = claims["jti"].as_str().filter(|id| !id.is_empty()) {
        user.extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
    }
    Ok(user)
}

fn check_bound(
    state: &State,
    resource: &'static Resource,
    namespace: &str,
    said: &Reference,
    now: Timestamp,
) -> Result<(), TokenError> {
    let Some(found) = state.read(resource, namespace, &said.name) else {
        return Err(TokenError::Invalidated);
    };
    let claim = match resource.plural {
        "pods" => "service account pod ref claim",
        "nodes" => "service account node ref claim",
        _ => "service account secret ref claim",
    };
    check_uid(resource.singular, claim, &found, said)?;
    match is_deleted(&found, now) {
        true => Err(TokenError::Invalidated),
        false => Ok(()),
    }
}

fn check_uid(
    kind: &'static str,
    claim: &'static str,
    found: &Value,
    said: &Reference,
) -> Result<(), TokenError> {
    let found = object::uid(found).to_owned();
    match found == said.uid {
        true => Ok(()),
        false => Err(TokenError::OtherObject { kind, claim, found, said: said.uid.clone() }),
    }
}

/// Whether an object's time was up a while ago.
fn is_deleted(found: &Value, now: Timestamp) -> bool {
    let at = object::meta(found, "deletionTimestamp").parse::<Timestamp>();
    at.is_ok_and(|at| at.as_second() < now.as_second() - LEEWAY.as_secs())
}

fn user_name(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cluster::Cluster;
    use crate::signing::{Signer, SimulatedSigner};

    const NOW: &str = "2026-11-15T12:00:00Z";

    fn now() -> Timestamp {
        NOW.parse().unwrap()
    }

    fn later(seconds: i64) -> Timestamp {
        now() + SignedDuration::from_secs(seconds)
    }

    fn settings(seed: u64) -> Settings {
        Settings { signer: Arc::new(SimulatedSigner::new(seed)), ..Settings::default() }
    }

    fn reference(name: &str) -> Reference {
        Reference { name: name.to_owned(), uid: format!("{name}-uid") }
    }

    fn claims() -> Claims {
        Claims {
            namespace: "default".to_owned(),
            service_account: reference("robot"),
            pod: Some(reference("web")),
            node: Some(reference("n1")),
            secret: None,
            audiences: vec![Settings::default().issuer, "vault".to_owned()],
            expiration_seconds: 3600,
            warn_after_seconds: Some(60),
            id: "token-1".to_owned(),
        }
    }

    fn cluster() -> Cluster {
        let mut state = State::default();
        for (resource, name) in [(&SERVICE_ACCOUNTS, "robot"), (&PODS, "web"), (&SECRETS, "s")] {
            let uid = format!("{name}-uid");
            state.put(resource, json!({"metadata": {"name": name, "namespace": "default", "uid": uid}}));
        }
        state.put(&NODES, json!({"metadata": {"name": "n1", "uid": "n1-uid"}}));
        Cluster::new(state, settings(1), 1)
    }

    fn check(cluster: &Cluster, token: &str, at: Timestamp) -> Result<User, TokenError> {
        cluster.authenticate_token(token, &[], at).map(|authenticated| authenticated.user)
    }

    #[test]
    fn a_token_is_of_its_service_account_and_says_which_pod_has_it() {
        let cluster = cluster();
        let token = issue(&settings(1), &claims(), now()).unwrap();
        let user = check(&cluster, &token, later(3660)).unwrap();
        assert_eq!(
            (user.name.as_str(), user.uid.as_str()),
            ("system:serviceaccount:default:robot", "robot-uid")
        );
        let groups = ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"];
        assert_eq!(user.groups, groups);
        let extra: Vec<String> =
            user.extra.iter().map(|(key, values)| format!("{key}={}", values.join(","))).collect();
        assert_eq!(
            extra,
            [
                "authentication.kubernetes.io/credential-id=JTI=token-1",
                "authentication.kubernetes.io/node-name=n1",
                "authentication.kubernetes.io/node-uid=n1-uid",
                "authentication.kubernetes.io/pod-name=web",
                "authentication.kubernetes.io/pod-uid=web-uid",
            ]
        );
        let audiences = ["vault".to_owned(), "other".to_owned()];
        assert_eq!(cluster.authenticate_token(&token, &audiences, now()).unwrap().audiences, ["vault"]);
    }

    #[test]
    fn a_token_out_of_its_time_or_for_others_is_refused() {
        let cluster = cluster();
        let token = issue(&settings(1), &claims(), now()).unwrap();
        assert_eq!(check(&cluster, &token, later(3661)), Err(TokenError::Expired));
        assert_eq!(check(&cluster, &token, later(-61)), Err(TokenError::NotYet));
        let for_others = Claims { audiences: vec!["vault".to_owned()], ..claims() };
        let token = issue(&settings(1), &for_others, now()).unwrap();
        assert_eq!(
            check(&cluster, &token, now()).unwrap_err().to_string(),
            r#"token audiences ["vault"] is invalid for the target audiences ["https://kubernetes.default.svc.cluster.local"]"#
        );
        let token = issue(&settings(1), &Claims { audiences: vec![], ..claims() }, now()).unwrap();
        assert!(matches!(check(&cluster, &token, now()), Err(TokenError::OtherAudience { .. })));
    }

    #[test]
    fn a_token_whose_objects_are_gone_or_are_others_is_refused() {
        let issued = |change: fn(&mut Claims)| {
            let mut claims = claims();
            change(&mut claims);
            issue(&settings(1), &claims, now()).unwrap()
        };
        let other = |claims: &mut Claims| claims.pod.as_mut().unwrap().uid = "old".to_owned();
        for (token, expected) in [
            (
                issued(|claims| claims.service_account.name = "x".to_owned()),
                "serviceaccounts \"x\" not found",
            ),
            (
                issued(|claims| claims.service_account.uid = "old".to_owned()),
                "service account UID (robot-uid) does not match claim (old)",
            ),
            (
                issued(|claims| claims.pod = Some(reference("gone"))),
                "service account token has been invalidated",
            ),
            (issued(other), "pod UID (web-uid) does not match service account pod ref claim (old)"),
            (
                issued(|claims| (claims.pod, claims.node) = (None, Some(reference("gone")))),
                "service account token has been invalidated",
            ),
            (
                issued(|claims| (claims.pod, claims.secret) = (None, Some(reference("gone")))),
                "service account token has been invalidated",
            ),
        ] {
            assert_eq!(check(&cluster(), &token, now()).unwrap_err().to_string(), expected);
        }
        // The node of a pod's token is only told.
        let token = issued(|claims| claims.node = Some(reference("gone")));
        assert!(check(&cluster(), &token, now()).is_ok());
        let mut cluster = cluster();
        let mut pod = cluster.state.read(&PODS, "default", "web").unwrap();
        pod["metadata"]["deletionTimestamp"] = NOW.into();
        cluster.state.put(&PODS, pod);
        assert!(check(&cluster, &issued(|_| {}), later(60)).is_ok());
        assert_eq!(check(&cluster, &issued(|_| {}), later(61)), Err(TokenError::Invalidated));
    }

    #[test]
    fn a_token_that_is_not_signed_as_ours_is_refused() {
        let cluster = cluster();
        let good = issue(&settings(1), &claims(), now()).unwrap();
        let parts: Vec<&str> = good.split('.').collect();
        let header = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let id = settings(1).signer.token_key().id;
        let none = format!("{}.{}.", header(json!({"alg": "none", "kid": id})), parts[1]);
        let other_algorithm =
            format!("{}.{}.{}", header(json!({"alg": "HS256", "kid": id})), parts[1], parts[2]);
        let critical = json!({"alg": "ES256", "kid": id, "crit": ["exp"]});
        let critical = format!("{}.{}.{}", header(critical), parts[1], parts[2]);
        let changed = format!("{}.{}.{}", parts[0], parts[1], URL_SAFE_NO_PAD.encode("no"));
        let other_cluster = issue(&settings(2), &claims(), now()).unwrap();
        let elsewhere = Settings { issuer: "https://elsewhere".to_owned(), ..settings(1) };
        let other_issuer = issue(&elsewhere, &claims(), now()).unwrap();
        let unsigned = format!("{}.{}.", parts[0], parts[1]);
        for (token, expected) in [
            (none.as_str(), TokenError::WrongSignature),
            (&other_algorithm, TokenError::WrongSignature),
            (&critical, TokenError::WrongSignature),
            (&changed, TokenError::WrongSignature),
            (&unsigned, TokenError::WrongSignature),
            (&other_cluster, TokenError::OtherKey),
            (&other_issuer, TokenError::Unknown),
            ("", TokenError::Unknown),
            ("a.b.c", TokenError::Unknown),
            ("a.b.c.d", TokenError::Unknown),
        ] {
            assert_eq!(check(&cluster, token, now()), Err(expected), "{token}");
        }
    }

    #[test]
    fn real_keys_sign_what_they_verify() {
        let directory = tempfile::tempdir().unwrap();
        let pki = crate::pki::Pki::open(directory.path(), &Default::default(), now()).unwrap();
        let signature = pki.keys.sign_token(b"message").unwrap();
        assert!(pki.keys.is_token_signature(b"message", &signature));
        assert!(!pki.keys.is_token_signature(b"messages", &signature));
        let settings = Settings { signer: Arc::new(pki.keys), ..Settings::default() };
        let token = issue(&settings, &claims(), now()).unwrap();
        let cluster = Cluster::new(cluster().state, settings, 1);
        assert!(check(&cluster, &token, now()).is_ok());
        let ours = issue(&self::settings(1), &claims(), now()).unwrap();
        assert_eq!(check(&cluster, &ours, now()), Err(TokenError::OtherKey));
    }
}
