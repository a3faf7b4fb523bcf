//! Questions about who somebody is and what they may do, asked by creating what is never kept.

use std::borrow::Cow;

use crablet_api::selector::{FieldSelector, FieldTerm};
use crablet_api::validate::{ErrorKind, FieldError};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::attributes::{About, Attributes, ObjectAttributes};
use super::rbac;
use crate::authentication::Authenticated;
use crate::cluster::{Call, Cluster, body};
use crate::object::{self, text};
use crate::request::Verb;
use crate::state::State;
use crate::status::Refusal;
use crate::who::User;

/// Answers a review. Nothing else can be done with one than to create it.
pub(crate) fn answer(cluster: &Cluster, call: &mut Call<'_>) -> Result<Value, Refusal> {
    match call.verb {
        Verb::Create => {}
        Verb::Get
        | Verb::List
        | Verb::Watch
        | Verb::Update
        | Verb::Patch
        | Verb::Delete
        | Verb::DeleteCollection => return Err(Refusal::unknown_method()),
    }
    let mut review = body::object(call)?;
    if !review["metadata"].is_object() {
        review["metadata"] = json!({});
    }
    let user = &call.request.user;
    match call.target.resource.plural {
        "selfsubjectreviews" => {
            let metadata = json!({"creationTimestamp": object::time(call.now)});
            review["metadata"] = metadata;
            review["status"] = json!({"userInfo": user_info(user)});
        }
        "selfsubjectaccessreviews" => {
            validate(&review, None)?;
            review["status"] = decide(&cluster.state, Cow::Borrowed(user), &review["spec"]);
        }
        "subjectaccessreviews" => {
            validate(&review, Some(Whose::Anybody))?;
            review["status"] = decide(&cluster.state, Cow::Owned(subject(&review["spec"])), &review["spec"]);
        }
        "localsubjectaccessreviews" => {
            let namespace = call.target.namespace.as_str();
            let said = object::namespace(&review);
            if !said.is_empty() && said != namespace {
                return Err(Refusal::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
            review["metadata"]["namespace"] = namespace.into();
            validate(&review, Some(Whose::OfNamespace))?;
            review["status"] = decide(&cluster.state, Cow::Owned(subject(&review["spec"])), &review["spec"]);
        }
        "selfsubjectrulesreviews" => {
            let namespace = text(&review, &["spec", "namespace"]);
            if namespace.is_empty() {
                return Err(Refusal::bad_request("no namespace on request"));
            }
            review["status"] = rules(&cluster.state, user, namespace);
            review["spec"] = json!({});
        }
        "tokenreviews" => review["status"] = token(cluster, &review["spec"], call.now)?,
        _ => return Err(Refusal::no_such_path()),
    }
    Ok(review)
}

fn user_info(user: &User) -> Value {
    let mut info = Map::new();
    let texts = [("username", &user.name), ("uid", &user.uid)];
    info.extend(
        texts
            .into_iter()
            .filter(|(_, text)| !text.is_empty())
            .map(|(field, text)| (field.to_owned(), text.as_str().into())),
    );
    if !user.groups.is_empty() {
        info.insert("groups".to_owned(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        info.insert("extra".to_owned(), json!(user.extra));
    }
    info.into()
}

fn subject(spec: &Value) -> User {
    let texts = |value: &Value| -> Vec<String> {
        let all = value.as_array().map(Vec::as_slice).unwrap_or_default();
        all.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let extra = spec["extra"].as_object().into_iter().flatten();
    User {
        name: text(spec, &["user"]).to_owned(),
        uid: text(spec, &["uid"]).to_owned(),
        groups: texts(&spec["groups"]),
        extra: extra.map(|(key, values)| (key.clone(), texts(values))).collect(),
    }
}

fn decide(state: &State, user: Cow<'_, User>, spec: &Value) -> Value {
    let (about, problem) = about(spec);
    let verb = spec["resourceAttributes"]["verb"].as_str().or(spec["nonResourceAttributes"]["verb"].as_str());
    let verb = verb.unwrap_or_default().to_owned();
    let decision = super::authorize(state, &Attributes { user, verb, about });
    let mut status = json!({"allowed": decision.allowed});
    if !decision.reason.is_empty() {
        status["reason"] = decision.reason.into();
    }
    if let Some(problem) = problem {
        status["evaluationError"] = problem.into();
    }
    status
}

/// What is asked about, and what of it could not be read.
fn about(spec: &Value) -> (About, Option<&'static str>) {
    let asked = &spec["resourceAttributes"];
    if asked.is_null() {
        return (About::Path(text(spec, &["nonResourceAttributes", "path"]).to_owned()), None);
    }
    let (fields, problem) = fields(&asked["fieldSelector"]);
    let part = |field| text(asked, &[field]);
    let object = ObjectAttributes {
        subresource: part("subresource").to_owned(),
        fields,
        ..ObjectAttributes::new(part("group"), part("resource"), part("namespace"), part("name"))
    };
    (About::Object(object), problem)
}

fn fields(selector: &Value) -> (Vec<FieldTerm>, Option<&'static str>) {
    const IGNORED: &str = "spec.resourceAttributes.fieldSelector ignored due to parse error";
    const PARTIALLY: &str = "spec.resourceAttributes.fieldSelector partially ignored due to parse error";
    let raw = text(selector, &["rawSelector"]);
    if !raw.is_empty() {
        return match raw.parse::<FieldSelector>() {
            Ok(selector) => (selector.0.to_vec(), None),
            Err(_) => (Vec::new(), Some(IGNORED)),
        };
    }
    let requirements = object::list(selector, &["requirements"]);
    let term = |requirement: &Value| {
        let [value] = object::list(requirement, &["values"]) else { return None };
        let equal = match text(requirement, &["operator"]) {
            "In" => true,
            "NotIn" => false,
            _ => return None,
        };
        let field = text(requirement, &["key"]).into();
        Some(FieldTerm { field, equal, value: value.as_str().unwrap_or_default().into() })
    };
    let terms: Vec<FieldTerm> = requirements.iter().filter_map(term).collect();
    let problem = match terms.len() {
        all if all == requirements.len() => None,
        0 => Some(IGNORED),
        _ => Some(PARTIALLY),
    };
    (terms, problem)
}

/// Whose rights a review asks for that is not about the asker's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Anybody,
    OfNamespace,
}

fn validate(review: &Value, whose: Option<Whose>) -> Result<(), Refusal> {
    let mut errors = Vec::new();
    let mut invalid = |path: &str, value: String, detail: &str| {
        errors.push(FieldError {
            path: path.to_owned(),
            kind: ErrorKind::Invalid,
            value: Some(value),
            detail: detail.to_owned(),
        });
    };
    let spec = &review["spec"];
    let (objects, paths) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    match (objects.is_null(), paths.is_null()) {
        (false, false) => invalid(
            "spec.nonResourceAttributes",
            paths.to_string(),
            "cannot be specified in combination with resourceAttributes",
        ),
        (true, true) => invalid(
            "spec.resourceAttributes",
            "null".to_owned(),
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
        (true, false) | (false, true) => {}
    }
    if whose.is_some() && text(spec, &["user"]).is_empty() && object::list(spec, &["groups"]).is_empty() {
        invalid("spec.user", "\"\"".to_owned(), "at least one of user or group must be specified");
    }
    let mut metadata = review["metadata"].clone();
    object::remove(&mut metadata, "managedFields");
    let is_local = whose == Some(Whose::OfNamespace);
    if is_local {
        object::remove(&mut metadata, "namespace");
    }
    if metadata.as_object().is_some_and(|metadata| !metadata.is_empty()) {
        let detail = if is_local { "must be empty except for namespace" } else { "must be empty" };
        invalid("metadata", review["metadata"].to_string(), detail);
    }
    if is_local && !objects.is_null() && text(objects, &["namespace"]) != object::namespace(review) {
        let said = format!("{:?}", text(objects, &["namespace"]));
        invalid("spec.resourceAttributes.namespace", said, "must match metadata.namespace");
    }
    if is_local && !paths.is_null() {
        invalid("spec.nonResourceAttributes", paths.to_string(), "disallowed on this kind of request");
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(Refusal::invalid_kind("authorization.k8s.io", "", "", &errors)),
    }
}

/// All that somebody may do in a namespace, as far as it can be listed.
fn rules(state: &State, user: &User, namespace: &str) -> Value {
    let (rules, errors) = rbac::rules_for(state, user, namespace);
    let mut problems: Vec<String> = Vec::new();
    let is_node = user.node().is_some();
    if is_node {
        problems.push("node authorizer does not support user rule resolution".to_owned());
    }
    if !errors.is_empty() {
        problems.push(super::aggregate(&errors));
    }
    let as_value = |rule: &rbac::Rule| serde_json::to_value(rule).unwrap_or_default();
    let of_objects = rules
        .iter()
        .filter(|rule| !rule.resources.is_empty())
        .map(|rule| as_value(&rbac::Rule { non_resource_urls: Vec::new(), ..rule.clone() }));
    let of_paths = rules.iter().filter(|rule| !rule.non_resource_urls.is_empty()).map(|rule| {
        as_value(&rbac::Rule {
            verbs: rule.verbs.clone(),
            non_resource_urls: rule.non_resource_urls.clone(),
            ..rbac::Rule::default()
        })
    });
    let mut status = json!({
        "resourceRules": of_objects.collect::<Vec<_>>(),
        "nonResourceRules": of_paths.collect::<Vec<_>>(),
        "incomplete": is_node,
    });
    match problems.as_slice() {
        [] => {}
        [one] => status["evaluationError"] = one.as_str().into(),
        many => status["evaluationError"] = format!("[{}]", many.join(", ")).into(),
    }
    status
}

fn token(cluster: &Cluster, spec: &Value, now: Timestamp) -> Result<Value, Refusal> {
    let token = text(spec, &["token"]);
    if token.is_empty() {
        return Err(Refusal::bad_request("token is required for TokenReview in authentication"));
    }
    let audiences = object::list(spec, &["audiences"]).iter();
    let audiences: Vec<String> = audiences.filter_map(Value::as_str).map(str::to_owned).collect();
    Ok(match cluster.authenticate_token(token, &audiences, now) {
        Ok(Authenticated { user, audiences }) => {
            let mut status = json!({"authenticated": true, "user": user_info(&user)});
            if !audiences.is_empty() {
                status["audiences"] = audiences.into();
            }
            status
        }
        Err(error) => json!({"user": {}, "error": error.to_string()}),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authentication::tokens::{Claims, Reference, issue};
    use crate::cluster::Settings;
    use crate::request::Request;
    use crate::resources::SERVICE_ACCOUNTS;
    use crate::who::MASTERS;

    fn cluster() -> Cluster {
        let mut cluster = Cluster::new(State::default(), Settings::default(), 1);
        cluster.tick(Timestamp::UNIX_EPOCH);
        cluster
    }

    fn ask(user: User, path: &str, body: Value) -> Value {
        let request = Request {
            method: http::Method::POST,
            path: path.to_owned(),
            query: String::new(),
            accept: String::new(),
            content_type: String::new(),
            user,
            body: body.to_string().into_bytes(),
        };
        match cluster().handle(&request, Timestamp::UNIX_EPOCH) {
            crate::answer::Answer::Document(document) => serde_json::from_slice(&document.body).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn jane() -> User {
        User::new("jane", &["system:authenticated"])
    }

    #[test]
    fn everybody_may_ask_who_they_are() {
        let review = ask(jane(), "/apis/authentication.k8s.io/v1/selfsubjectreviews", json!({}));
        assert_eq!(review["kind"], "SelfSubjectReview");
        assert_eq!(review["metadata"], json!({"creationTimestamp": "1970-01-01T00:00:00Z"}));
        let info = json!({"username": "jane", "groups": ["system:authenticated"]});
        assert_eq!(review["status"], json!({"userInfo": info}));
    }

    #[test]
    fn everybody_may_ask_what_they_may() {
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let pods = json!({"spec": {"resourceAttributes": {"verb": "list", "resource": "pods", "namespace": "default"}}});
        assert_eq!(ask(jane(), path, pods.clone())["status"], json!({"allowed": false}));
        assert_eq!(ask(User::new("admin", &[MASTERS]), path, pods)["status"], json!({"allowed": true}));
        let version = json!({"spec": {"nonResourceAttributes": {"verb": "get", "path": "/version"}}});
        assert_eq!(
            ask(jane(), path, version)["status"],
            json!({
                "allowed": true,
                "reason": r#"RBAC: allowed by ClusterRoleBinding "system:discovery" of ClusterRole "system:discovery" to Group "system:authenticated""#,
            })
        );
        assert_eq!(
            ask(jane(), path, json!({"spec": {}}))["message"],
            r#".authorization.k8s.io "" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"#
        );
    }

    #[test]
    fn only_some_may_ask_what_others_may() {
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let body = json!({"spec": {
            "user": "system:node:n1",
            "groups": ["system:nodes"],
            "resourceAttributes": {"verb": "list", "resource": "pods", "fieldSelector": {"requirements": [
                {"key": "spec.nodeName", "operator": "In", "values": ["n1"]},
            ]}},
        }});
        assert_eq!(
            ask(User::new("admin", &[MASTERS]), path, body.clone())["status"],
            json!({"allowed": true})
        );
        assert_eq!(
            ask(jane(), path, body)["message"],
            r#"subjectaccessreviews.authorization.k8s.io is forbidden: User "jane" cannot create resource "subjectaccessreviews" in API group "authorization.k8s.io" at the cluster scope"#
        );
        let local = "/apis/authorization.k8s.io/v1/namespaces/a/localsubjectaccessreviews";
        let body = json!({"spec": {"user": "joe", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "b"}}});
        assert_eq!(
            ask(User::new("admin", &[MASTERS]), local, body)["message"],
            r#".authorization.k8s.io "" is invalid: spec.resourceAttributes.namespace: Invalid value: "b": must match metadata.namespace"#
        );
    }

    #[test]
    fn rules_are_listed_as_far_as_they_can_be() {
        let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
        let review = ask(User::new("admin", &[MASTERS]), path, json!({"spec": {"namespace": "default"}}));
        assert_eq!(
            review["status"],
            json!({
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "incomplete": false,
            })
        );
        let node = User::new("system:node:n1", &["system:nodes", "system:authenticated"]);
        let review = ask(node, path, json!({"spec": {"namespace": "default"}}));
        assert_eq!(review["status"]["incomplete"], true);
        assert_eq!(ask(jane(), path, json!({"spec": {}}))["message"], "no namespace on request");
    }

    #[test]
    fn tokens_are_reviewed() {
        let review = |token: &str| {
            let path = "/apis/authentication.k8s.io/v1/tokenreviews";
            ask(User::new("admin", &[MASTERS]), path, json!({"spec": {"token": token, "audiences": ["x"]}}))
        };
        let cluster = cluster();
        let account = cluster.state.read(&SERVICE_ACCOUNTS, "default", "default").unwrap();
        let issue = |expiration_seconds| {
            let claims = Claims {
                namespace: "default".to_owned(),
                service_account: Reference {
                    name: "default".to_owned(),
                    uid: object::uid(&account).to_owned(),
                },
                pod: None,
                node: None,
                secret: None,
                audiences: vec!["x".to_owned(), "y".to_owned()],
                expiration_seconds,
                warn_after_seconds: None,
                id: "id".to_owned(),
            };
            issue(&cluster.settings, &claims, Timestamp::UNIX_EPOCH).unwrap()
        };
        let status = review(&issue(600))["status"].clone();
        assert_eq!(status["authenticated"], true);
        assert_eq!(status["user"]["username"], "system:serviceaccount:default:default");
        assert_eq!(status["audiences"], json!(["x"]));
        assert_eq!(review("bad")["status"], json!({"user": {}, "error": "invalid bearer token"}));
        let expired = json!({"user": {}, "error": "service account token has expired"});
        assert_eq!(review(&issue(-600))["status"], expired);
        assert_eq!(review("")["message"], "token is required for TokenReview in authentication");
    }
}
