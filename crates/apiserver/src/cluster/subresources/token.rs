//! Tokens for service accounts, bound to what they are for.

use crablet_api::validate::{Errors, FieldError};
use jiff::SignedDuration;
use serde_json::Value;

use super::super::{Call, Cluster, body};
use crate::admission;
use crate::answer::Document;
use crate::authentication::tokens::{self, Claims, Reference};
use crate::object;
use crate::resources::{NODES, PODS, SECRETS, SERVICE_ACCOUNTS};
use crate::schema::Expected;
use crate::status::Refusal;

/// What a mounted token asks for: the server may let it live longer, and remarks on who uses it then.
const EXTENDED: i64 = 3607;
const LONGEST: i64 = 365 * 24 * 3600;

impl Cluster {
    pub(super) fn request_token(&mut self, call: &mut Call<'_>) -> Result<Document, Refusal> {
        let (version, kind) = ("authentication.k8s.io/v1", "TokenRequest");
        let mut request = body::of_type(
            call,
            &Expected { schema: "authentication.TokenRequest", api_version: version, kind },
        )?;
        if !request["spec"].is_object() {
            request["spec"] = Value::Object(serde_json::Map::new());
        }
        if request["spec"]["expirationSeconds"].is_null() {
            request["spec"]["expirationSeconds"] = 3600.into();
        }
        self.check_names(call, &request)?;
        // Admission sees what was asked for, before anything is filled in.
        admission::check_part(self, call, &mut request)?;
        let (name, namespace) = (call.target.name.clone(), call.target.namespace.clone());
        let Some(account) = self.state.read(&SERVICE_ACCOUNTS, &namespace, &name) else {
            return Err(Refusal::not_found(&SERVICE_ACCOUNTS, &name));
        };
        let uid = object::uid(&request);
        if !uid.is_empty() && uid != object::uid(&account) {
            let why = format!(
                "the UID in the token request ({uid}) does not match the UID of the service account ({})",
                object::uid(&account)
            );
            return Err(conflict(
                "TokenRequest.authentication.k8s.io",
                "authentication.k8s.io",
                "TokenRequest",
                &name,
                &why,
            ));
        }
        if object::list(&request, &["spec", "audiences"]).is_empty() {
            request["spec"]["audiences"] = vec![self.settings.issuer.as_str()].into();
        }
        request["metadata"]["name"] = name.as_str().into();
        request["metadata"]["namespace"] = namespace.as_str().into();
        request["metadata"]["uid"] = object::uid(&account).into();
        request["metadata"]["creationTimestamp"] = object::time(call.now);
        object::remove(&mut request, "status");
        let seconds = request["spec"]["expirationSeconds"].as_i64().unwrap_or(0);
        check_expiration(seconds)?;
        let (pod, node, secret) = self.bound_objects(call, &request)?;
        let audiences: Vec<String> = object::list(&request, &["spec", "audiences"])
            .iter()
            .filter_map(|audience| audience.as_str().map(str::to_owned))
            .collect();
        let is_extended = pod.is_some()
            && seconds == EXTENDED
            && audiences.iter().all(|audience| *audience == self.settings.issuer);
        let claims = Claims {
            namespace,
            service_account: reference(&account),
            pod,
            node,
            secret,
            audiences,
            expiration_seconds: if is_extended { LONGEST } else { seconds },
            warn_after_seconds: is_extended.then_some(seconds),
            id: self.chance.uid(),
        };
        let token = tokens::issue(&self.settings, &claims, call.now)
            .map_err(|error| Refusal::internal(format!("failed to generate token: {error}")))?;
        let ends = call.now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(call.now);
        request["status"] = serde_json::json!({"token": token, "expirationTimestamp": object::time(ends)});
        Ok(Document::json(201, &request))
    }

    fn check_names(&self, call: &Call<'_>, request: &Value) -> Result<(), Refusal> {
        for (field, wanted, what) in
            [("name", &call.target.name, "name"), ("namespace", &call.target.namespace, "namespace")]
        {
            let said = object::meta(request, field);
            if !said.is_empty() && said != wanted {
                let mut errors = Errors::default();
                let detail = format!("must match the service account {what} if specified");
                errors.invalid(format_args!("metadata.{field}"), said, detail);
                return Err(invalid(&call.target.name, &errors.into_list()));
            }
        }
        Ok(())
    }

    /// What a token is bound to: a pod with its node, a node, or a secret.
    #[allow(clippy::type_complexity, reason = "each is what the claims have of it")]
    fn bound_objects(
        &self,
        call: &Call<'_>,
        request: &Value,
    ) -> Result<(Option<Reference>, Option<Reference>, Option<Reference>), Refusal> {
        let bound = &request["spec"]["boundObjectRef"];
        if !bound.is_object() {
            return Ok((None, None, None));
        }
        let text = |field: &str| object::text(bound, &[field]);
        let (name, namespace) = (text("name"), call.target.namespace.as_str());
        let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
        let (resource, namespace) = match (group, text("kind")) {
            ("", "Pod") => (&PODS, namespace),
            ("", "Node") => (&NODES, ""),
            ("", "Secret") => (&SECRETS, namespace),
            (group, kind) => {
                let why = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
                return Err(Refusal::bad_request(why));
            }
        };
        let Some(found) = self.state.read(resource, namespace, name) else {
            return Err(Refusal::not_found(resource, name));
        };
        if resource.kind == "Pod" && object::text(&found, &["spec", "serviceAccountName"]) != call.target.name
        {
            return Err(Refusal::bad_request(format!(
                "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
                call.target.name
            )));
        }
        let uid = text("uid");
        if !uid.is_empty() && uid != object::uid(&found) {
            let why = format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            return Err(conflict(resource.kind, "", resource.kind, name, &why));
        }
        let bound = Some(reference(&found));
        match resource.kind {
            "Pod" => {
                let node = object::text(&found, &["spec", "nodeName"]);
                let node = (!node.is_empty()).then(|| match self.state.read(&NODES, "", node) {
                    Some(node) => reference(&node),
                    None => Reference { name: node.to_owned(), uid: String::new() },
                });
                Ok((bound, node, None))
            }
            "Node" => Ok((None, bound, None)),
            _ => Ok((None, None, bound)),
        }
    }
}

fn reference(object: &Value) -> Reference {
    Reference { name: object::name(object).to_owned(), uid: object::uid(object).to_owned() }
}

fn check_expiration(seconds: i64) -> Result<(), Refusal> {
    let mut errors = Errors::default();
    if seconds < 600 {
        let detail = "may not specify a duration less than 10 minutes";
        errors.invalid("spec.expirationSeconds", seconds, detail);
    }
    if seconds > 1 << 32 {
        let detail = "may not specify a duration larger than 2^32 seconds";
        errors.invalid("spec.expirationSeconds", seconds, detail);
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(invalid("", &errors.into_list())),
    }
}

fn invalid(name: &str, errors: &[FieldError]) -> Refusal {
    Refusal::invalid_kind("authentication.k8s.io", "TokenRequest", name, errors)
}

fn conflict(qualified: &str, group: &str, kind: &str, name: &str, why: &str) -> Refusal {
    let message = format!("Operation cannot be fulfilled on {qualified} {name:?}: {why}");
    let mut refusal = Refusal::new(409, "Conflict", message);
    let mut details = serde_json::json!({"name": name, "kind": kind});
    if !group.is_empty() {
        details["group"] = group.into();
    }
    refusal.details = Some(details);
    refusal
}
