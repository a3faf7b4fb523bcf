//! Refusals, as upstream words them: each becomes a `Status` object with an HTTP code.

use crablet_api::validate::{ErrorKind, FieldError};
use serde_json::{Map, Value, json};

use crate::resources::Resource;

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    pub details: Option<Value>,
    /// `Retry-After`, in seconds.
    pub retry_after: Option<u32>,
}

impl Refusal {
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { code, reason, message: message.into(), details: None, retry_after: None }
    }

    fn about(mut self, resource: &Resource, name: &str) -> Refusal {
        self.details = Some(details(resource.group, resource.plural, name));
        self
    }

    /// An object that is not there. It is called as it is kept, whichever way it was asked for.
    pub fn not_found(resource: &Resource, name: &str) -> Refusal {
        let resource = resource.storage();
        let message = format!("{} {name:?} not found", resource.qualified_name());
        Refusal::new(404, "NotFound", message).about(resource, name)
    }

    /// A path that nothing is at.
    pub fn no_such_path() -> Refusal {
        let mut refusal = Refusal::new(404, "NotFound", "the server could not find the requested resource");
        refusal.details = Some(json!({}));
        refusal
    }

    /// A method that a path does not have.
    pub fn no_such_method() -> Refusal {
        let mut refusal = Refusal::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        );
        refusal.details = Some(json!({}));
        refusal
    }

    pub fn already_exists(resource: &Resource, name: &str) -> Refusal {
        let resource = resource.storage();
        let message = format!("{} {name:?} already exists", resource.qualified_name());
        Refusal::new(409, "AlreadyExists", message).about(resource, name)
    }

    /// Somebody else was faster, or something forbids it now.
    pub fn conflict(resource: &Resource, name: &str, why: &str) -> Refusal {
        let resource = resource.storage();
        let message =
            format!("Operation cannot be fulfilled on {} {name:?}: {why}", resource.qualified_name());
        Refusal::new(409, "Conflict", message).about(resource, name)
    }

    /// The object was changed since it was read.
    pub fn outdated(resource: &Resource, name: &str) -> Refusal {
        Refusal::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub fn forbidden(resource: &Resource, name: &str, why: impl std::fmt::Display) -> Refusal {
        let message = match name {
            "" => format!("{} is forbidden: {why}", resource.qualified_name()),
            name => format!("{} {name:?} is forbidden: {why}", resource.qualified_name()),
        };
        Refusal::new(403, "Forbidden", message).about(resource, name)
    }

    /// The same for what need not be a kind that is served; empty is what is not said.
    pub fn forbidden_named(group: &str, plural: &str, name: &str, why: impl std::fmt::Display) -> Refusal {
        let qualified = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
        let message = match (qualified.as_str(), name) {
            ("", _) => format!("forbidden: {why}"),
            (qualified, "") => format!("{qualified} is forbidden: {why}"),
            (qualified, name) => format!("{qualified} {name:?} is forbidden: {why}"),
        };
        Refusal { details: Some(details(group, plural, name)), ..Refusal::new(403, "Forbidden", message) }
    }

    /// A method that nothing at a path knows.
    pub fn unknown_method() -> Refusal {
        let message = "the server does not allow this method on the requested resource";
        Refusal { details: Some(json!({})), ..Refusal::new(405, "MethodNotAllowed", message) }
    }

    pub fn bad_request(message: impl Into<String>) -> Refusal {
        Refusal::new(400, "BadRequest", message)
    }

    pub fn unauthorized() -> Refusal {
        Refusal::new(401, "Unauthorized", "Unauthorized")
    }

    pub fn internal(message: impl std::fmt::Display) -> Refusal {
        let message = format!("Internal error occurred: {message}");
        let mut refusal = Refusal::new(500, "InternalError", message.clone());
        let why = message.strip_prefix("Internal error occurred: ").unwrap_or_default();
        refusal.details = Some(json!({"causes": [{"message": why}]}));
        refusal
    }

    pub fn method_not_allowed(resource: &Resource, verb: &str) -> Refusal {
        let message =
            format!("{verb} is not supported on resources of kind \"{}\"", resource.qualified_name());
        let mut refusal = Refusal::new(405, "MethodNotAllowed", message);
        refusal.details = Some(details(resource.group, resource.plural, ""));
        refusal
    }

    pub fn not_acceptable(accepted: &[&str]) -> Refusal {
        let message = format!("only the following media types are accepted: {}", accepted.join(", "));
        Refusal::new(406, "NotAcceptable", message)
    }

    pub fn unsupported_media_type(accepted: &[&str]) -> Refusal {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Refusal::new(415, "UnsupportedMediaType", message)
    }

    pub fn too_large(limit: usize) -> Refusal {
        Refusal::new(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {limit}"))
    }

    /// A version that is not remembered any more.
    pub fn expired(message: impl Into<String>) -> Refusal {
        Refusal::new(410, "Expired", message)
    }

    pub fn gone(message: impl Into<String>) -> Refusal {
        Refusal::new(410, "Gone", message)
    }

    pub fn too_many_requests(message: impl Into<String>, retry_after: u32) -> Refusal {
        let mut refusal = Refusal::new(429, "TooManyRequests", message);
        refusal.retry_after = Some(retry_after);
        refusal.details = Some(json!({"retryAfterSeconds": retry_after}));
        refusal
    }

    /// An object that breaks rules.
    pub fn invalid(resource: &Resource, name: &str, errors: &[FieldError]) -> Refusal {
        Refusal::invalid_kind(resource.group, resource.kind, name, errors)
    }

    /// The same for what is no object of its own, such as the options of a deletion.
    pub fn invalid_kind(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Refusal {
        let mut lines: Vec<String> = Vec::new();
        for line in errors.iter().map(FieldError::to_string) {
            // What was found twice is said once, but has two causes.
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        let listed = match lines.as_slice() {
            [] => "<nil>".to_owned(),
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let causes: Vec<Value> = errors
            .iter()
            .map(|error| {
                let reason = cause_reason(error.kind);
                json!({"reason": reason, "message": error.message(), "field": error.path})
            })
            .collect();
        let mut details = details(group, kind, name);
        details["causes"] = causes.into();
        Refusal {
            details: Some(details),
            ..Refusal::new(422, "Invalid", format!("{qualified} {name:?} is invalid: {listed}"))
        }
    }

    /// The `Status` object.
    pub fn body(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        // An error that upstream did not foresee has none.
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        if self.reason.is_empty() {
            crate::object::remove(&mut status, "reason");
        }
        status
    }
}

/// What went well without an object to show.
pub fn success(resource: &Resource, name: &str, uid: &str) -> Value {
    let mut details = details(resource.group, resource.plural, name);
    if !uid.is_empty() {
        details["uid"] = uid.into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

fn details(group: &str, kind: &str, name: &str) -> Value {
    let parts = [("name", name), ("group", group), ("kind", kind)];
    let said = parts.into_iter().filter(|(_, value)| !value.is_empty());
    Value::Object(said.map(|(field, value)| (field.to_owned(), value.into())).collect::<Map<_, _>>())
}

fn cause_reason(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Required => "FieldValueRequired",
        ErrorKind::Invalid => "FieldValueInvalid",
        ErrorKind::NotSupported => "FieldValueNotSupported",
        ErrorKind::Duplicate => "FieldValueDuplicate",
        ErrorKind::NotFound => "FieldValueNotFound",
        ErrorKind::Forbidden => "FieldValueForbidden",
        ErrorKind::TooLong => "FieldValueTooLong",
        ErrorKind::TooMany => "FieldValueTooMany",
    }
}
