//! Bodies of requests, decoded.

use serde_json::Value;

use super::Call;
use crate::event_conversion;
use crate::resources::Resource;
use crate::schema::{self, Decoded, Encoding};
use crate::status::Refusal;

const ACCEPTED: [&str; 4] =
    ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor"];

/// What is done with fields that are not known: `fieldValidation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

impl FieldValidation {
    pub(crate) fn of(call: &Call<'_>) -> Result<FieldValidation, Refusal> {
        match call.query.text("fieldValidation") {
            "Ignore" => Ok(FieldValidation::Ignore),
            "" | "Warn" => Ok(FieldValidation::Warn),
            "Strict" => Ok(FieldValidation::Strict),
            other => Err(Refusal::invalid_kind(
                "meta.k8s.io",
                "CreateOptions",
                "",
                &[crablet_api::validate::FieldError {
                    path: "fieldValidation".to_owned(),
                    kind: crablet_api::validate::ErrorKind::NotSupported,
                    value: Some(format!("{other:?}")),
                    detail: "supported values: \"Ignore\", \"Strict\", \"Warn\"".to_owned(),
                }],
            )),
        }
    }
}

/// The object in a body, of the kind that the path says, as it is kept.
pub(crate) fn object(call: &mut Call<'_>) -> Result<Value, Refusal> {
    let resource = call.target.resource;
    let object = of_type(call, resource, resource.schema, &resource.api_version(), resource.kind)?;
    Ok(event_conversion::kept(resource, object))
}

/// The object in a body, of another kind than the path's: a subresource often has its own.
pub(crate) fn of_type(
    call: &mut Call<'_>,
    resource: &'static Resource,
    schema: &str,
    api_version: &str,
    kind: &str,
) -> Result<Value, Refusal> {
    let encoding = encoding(&call.request.content_type)?;
    let decoded = schema::decode(schema, encoding, &call.request.body)
        .map_err(|error| error.refusal(api_version, kind))?;
    let Decoded { mut object, api_version: said_version, kind: said_kind, problems } = decoded;
    let is_said = |said: &str, wanted: &str| said.is_empty() || said == wanted;
    if !is_said(&said_kind, kind) || !is_said(&said_version, api_version) {
        return Err(wrong_kind(&said_version, &said_kind, api_version, kind));
    }
    check_fields(call, api_version, kind, problems)?;
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    let _ = resource;
    Ok(object)
}

/// Fields that are not known, or are there twice.
pub(crate) fn check_fields(
    call: &mut Call<'_>,
    api_version: &str,
    kind: &str,
    problems: Vec<String>,
) -> Result<(), Refusal> {
    match FieldValidation::of(call)? {
        FieldValidation::Ignore => Ok(()),
        FieldValidation::Warn => {
            call.warnings.extend(problems);
            Ok(())
        }
        FieldValidation::Strict if problems.is_empty() => Ok(()),
        FieldValidation::Strict => Err(Refusal::bad_request(format!(
            "{kind} in version {:?} cannot be handled as a {kind}: strict decoding error: {}",
            version_of(api_version),
            problems.join(", ")
        ))),
    }
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

fn version_of(api_version: &str) -> &str {
    api_version.rsplit('/').next().unwrap_or(api_version)
}

fn wrong_kind(said_version: &str, said_kind: &str, version: &str, kind: &str) -> Refusal {
    if said_version == version || said_version.is_empty() {
        return Refusal::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error"
        ));
    }
    Refusal::bad_request(format!(
        "the API version in the data ({said_version}) does not match the expected API version ({version})"
    ))
    .with_kind(said_kind)
}

impl Refusal {
    fn with_kind(self, _said: &str) -> Refusal {
        self
    }
}
