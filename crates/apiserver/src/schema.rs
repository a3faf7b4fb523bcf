//! The fields of the kinds, as data: `schema/*.txt` has one line for each, with its name, its number in protobuf, its
//! type, and how Go writes and patches it. From it come decoding with its warnings, strategic merge patches, protobuf
//! bodies and OpenAPI.
//!
//! - [`decode`]: a body, in JSON (`json`), YAML or protobuf (`protobuf`), becomes a tree, which goes through the schema
//!   (`types`) once (`normalise`), whatever it was written in.
//! - [`Patch`]: a JSON patch, a merge patch or a strategic merge patch (`strategic`), and then the same way.
//! - [`openapi`]: what `kubectl explain` shows and `kubectl apply` trusts.
//!
//! What is refused is refused in upstream's words; `go` has how Go prints things.

mod decode;
mod go;
mod json;
mod json_patch;
mod normalise;
pub mod openapi;
mod patch;
mod problems;
mod protobuf;
mod strategic;
mod time;
mod tree;
mod types;

use serde_json::Value;

pub use decode::{DecodeError, decode};
pub use normalise::TypeError;
pub use patch::{PATCH_TYPES, Patch, PatchError};

use problems::Problems;
use tree::Tree;

/// How many values a body may have. A few bytes say an object that takes a thousand in memory; upstream has no such
/// limit, and no object that its store takes comes near.
const MOST_VALUES: usize = 200_000;

fn too_many_values() -> String {
    format!("too many values: limit is {MOST_VALUES}")
}

/// What a body is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Json,
    Yaml,
    Protobuf,
}

/// What is done with fields that are not known or are there twice: `fieldValidation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// The object that a request is to have.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'e> {
    /// The type, as the schema names it: `core.Pod`.
    pub schema: &'e str,
    pub api_version: &'e str,
    pub kind: &'e str,
}

/// An object as it was sent, in the form that Go would write it.
#[derive(Clone, Debug, Default)]
pub struct Decoded {
    /// Without `apiVersion` and `kind`.
    pub object: Value,
    pub api_version: String,
    pub kind: String,
    /// `unknown field "spec.x"`, `duplicate field "spec.x"`, in upstream's words.
    pub problems: Vec<String>,
}

/// Brings a tree into the form that Go would write it in.
pub fn normalise(schema: &str, object: &Value) -> Result<Decoded, TypeError> {
    let mut problems = Problems::default();
    let mut object =
        normalise::object(type_of(schema)?, normalise::Origin::Json, Tree::from(object), &mut problems)?;
    let (api_version, kind) = take_kind(&mut object);
    Ok(Decoded { object, api_version, kind, problems: problems.into_found() })
}

fn type_of(schema: &str) -> Result<&'static types::Type, TypeError> {
    types::find(schema).ok_or_else(|| TypeError(format!("no type {schema} is known")))
}

/// Takes `apiVersion` and `kind` out of an object.
fn take_kind(object: &mut Value) -> (String, String) {
    let mut take = |field: &str| match crate::object::remove(object, field) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    (take("apiVersion"), take("kind"))
}

/// An object in JSON that has no schema, or null.
pub(crate) fn untyped(text: &[u8]) -> Result<Value, String> {
    Ok(json::parse_object(text)?.into_value(&mut Problems::default()))
}
