//! Bodies of requests, decoded.

use crablet_api::validate::{ErrorKind, FieldError};
use serde_json::Value;

use super::Call;
use crate::event_conversion;
use crate::request::Verb;
use crate::schema::{self, Decoded, Encoding, Expected, FieldValidation};
use crate::status::Refusal;

const ACCEPTED: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// What is done with fields that are not known or are there twice.
pub(crate) fn field_validation(call: &Call<'_>) -> Result<FieldValidation, Refusal> {
    match call.query.text("fieldValidation") {
        "Ignore" => Ok(FieldValidation::Ignore),
        "" | "Warn" => Ok(FieldValidation::Warn),
        "Strict" => Ok(FieldValidation::Strict),
        other => {
            let options = match call.verb {
                Verb::Update => "UpdateOptions",
                Verb::Patch => "PatchOptions",
                _ => "CreateOptions",
            };
            let error = FieldError {
                path: "fieldValidation".to_owned(),
                kind: ErrorKind::NotSupported,
                value: Some(format!("{other:?}")),
                detail: "supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"".to_owned(),
            };
            Err(Refusal::invalid_kind("meta.k8s.io", options, "", &[error]))
        }
    }
}

/// The object in a body, of the kind that the path says, as it is kept.
pub(crate) fn object(call: &mut Call<'_>) -> Result<Value, Refusal> {
    let resource = call.target.resource;
    let api_version = resource.api_version();
    let expected = Expected { schema: resource.schema, api_version: &api_version, kind: resource.kind };
    let object = of_type(call, &expected)?;
    Ok(event_conversion::kept(resource, object))
}

/// The object in a body, of another kind than the path's: a subresource often has its own.
pub(crate) fn of_type(call: &mut Call<'_>, expected: &Expected<'_>) -> Result<Value, Refusal> {
    let encoding = encoding(&call.request.content_type)?;
    let validation = field_validation(call)?;
    let decoded = schema::decode(expected, encoding, &call.request.body);
    let Decoded { mut object, problems, .. } =
        decoded.and_then(|decoded| decoded.checked(expected, validation)).map_err(|error| error.refusal())?;
    call.warnings.extend(problems);
    object["apiVersion"] = expected.api_version.into();
    object["kind"] = expected.kind.into();
    Ok(object)
}

pub(crate) fn encoding(content_type: &str) -> Result<Encoding, Refusal> {
    let media = content_type.split(';').next().unwrap_or_default().trim();
    match media {
        "" | "application/json" => Ok(Encoding::Json),
        "application/yaml" => Ok(Encoding::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(Encoding::Protobuf),
        _ => Err(Refusal::unsupported_media_type(&ACCEPTED)),
    }
}
