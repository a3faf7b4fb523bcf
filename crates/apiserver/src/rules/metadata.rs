//! Rules for what all objects have.

use crablet_api::validate::FieldError;
use serde_json::Value;

use super::NameForm;
use crate::resources::Resource;

/// What is wrong with the metadata of an object that is to be created.
pub fn validate_create(resource: &Resource, form: NameForm, object: &Value) -> Vec<FieldError> {
    let _ = (resource, form, object);
    Vec::new()
}

/// What an update changes of the metadata that it cannot.
pub fn validate_update(resource: &Resource, new: &Value, old: &Value) -> Vec<FieldError> {
    let _ = (resource, new, old);
    Vec::new()
}
