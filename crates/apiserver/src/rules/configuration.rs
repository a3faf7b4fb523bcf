//! Config maps and secrets.

use base64::Engine as _;
use crablet_api::validate::{Errors, Word, config_key_errors};
use serde_json::Value;

use super::metadata::{self, IMMUTABLE, same};
use super::{Context, NameForm, Rules, Update};
use crate::object;
use crate::resources::Subresource;
use crate::schema;

/// All values together, in bytes.
const LIMIT: usize = 1 << 20;
const IMMUTABLE_WHEN_SET: &str = "field is immutable when `immutable` is set";

pub struct ConfigMaps;
pub struct Secrets;

impl Rules for ConfigMaps {
    fn validate_create(&self, errors: &mut Errors, object: &Value, _context: &Context<'_>) {
        check_config_map(errors, object);
    }

    fn validate_update(&self, errors: &mut Errors, update: &Update<'_>) {
        let Update { new, old, .. } = *update;
        metadata::check_update(errors, update);
        check_kept(errors, new, old, &["data", "binaryData"]);
        metadata::check(errors, update.resource, NameForm::Subdomain, new);
        check_config_map(errors, new);
    }
}

impl Rules for Secrets {
    fn default(&self, secret: &mut Value, _part: Option<Subresource>) {
        object::fill_text(secret, "type", "Opaque");
        // What was said in plain wins, and is never shown again.
        let Some(plain) = object::remove(secret, "stringData") else { return };
        let Some(plain) = plain.as_object().filter(|plain| !plain.is_empty()) else { return };
        let data = object::holder(secret, "data");
        for (key, value) in plain {
            let encoded =
                base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or_default());
            data[key] = encoded.into();
        }
    }

    fn validate_create(&self, errors: &mut Errors, object: &Value, _context: &Context<'_>) {
        check_secret(errors, object);
    }

    fn validate_update(&self, errors: &mut Errors, update: &Update<'_>) {
        let Update { new, old, .. } = *update;
        metadata::check_update(errors, update);
        if new["type"] != old["type"] {
            errors.invalid("type", Word(object::text(new, &["type"])), IMMUTABLE);
        }
        check_kept(errors, new, old, &["data"]);
        metadata::check(errors, update.resource, NameForm::Subdomain, new);
        check_secret(errors, new);
    }
}

fn check_kept(errors: &mut Errors, new: &Value, old: &Value, fields: &[&str]) {
    if old["immutable"] != true {
        return;
    }
    if new["immutable"] != true {
        errors.forbidden("immutable", IMMUTABLE_WHEN_SET);
    }
    for field in fields {
        if !same(&new[*field], &old[*field]) {
            errors.forbidden(*field, IMMUTABLE_WHEN_SET);
        }
    }
}

fn check_config_map(errors: &mut Errors, object: &Value) {
    let mut size = 0;
    for (key, value) in metadata::entries(&object["data"]) {
        errors.invalid_each(format_args!("data[{key}]"), key, config_key_errors(key));
        if object["binaryData"].get(key).is_some() {
            errors.invalid(format_args!("data[{key}]"), key, "duplicate of key present in binaryData");
        }
        size += value.len();
    }
    for (key, value) in metadata::entries(&object["binaryData"]) {
        errors.invalid_each(format_args!("binaryData[{key}]"), key, config_key_errors(key));
        size += decoded_length(value);
    }
    if size > LIMIT {
        errors.too_long("[]", LIMIT);
    }
}

fn check_secret(errors: &mut Errors, secret: &Value) {
    let data = &secret["data"];
    let mut size = 0;
    for (key, value) in metadata::entries(data) {
        errors.invalid_each(format_args!("data[{key}]"), key, config_key_errors(key));
        size += decoded_length(value);
    }
    if size > LIMIT {
        errors.too_long("data", LIMIT);
    }
    let has = |key: &str| data.get(key).is_some();
    let account = "kubernetes.io/service-account.name";
    match object::text(secret, &["type"]) {
        "kubernetes.io/service-account-token" => {
            let account_name = secret["metadata"]["annotations"][account].as_str().unwrap_or_default();
            if account_name.is_empty() {
                errors.required(format_args!("metadata.annotations[{account}]"), "");
            }
        }
        "kubernetes.io/dockercfg" => check_json(errors, data, ".dockercfg"),
        "kubernetes.io/dockerconfigjson" => check_json(errors, data, ".dockerconfigjson"),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            errors.required("data[username]", "");
            errors.required("data[password]", "");
        }
        "kubernetes.io/ssh-auth" if object::text(data, &["ssh-privatekey"]).is_empty() => {
            errors.required("data[ssh-privatekey]", "");
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"] {
                if !has(key) {
                    errors.required(format_args!("data[{key}]"), "");
                }
            }
        }
        _ => {}
    }
}

fn check_json(errors: &mut Errors, data: &Value, key: &str) {
    let Some(value) = data.get(key).and_then(Value::as_str) else {
        return errors.required(format_args!("data[{key}]"), "");
    };
    let decoded = base64::engine::general_purpose::STANDARD.decode(value).unwrap_or_default();
    if let Err(problem) = schema::untyped(&decoded) {
        errors.invalid(format_args!("data[{key}]"), "<secret contents redacted>", problem);
    }
}

/// How long what is in base64 is.
fn decoded_length(text: &str) -> usize {
    let padding = text.bytes().rev().take_while(|byte| *byte == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::checks::lines;
    use super::*;

    #[test]
    fn what_is_said_in_plain_becomes_data() {
        let mut secret =
            json!({"metadata": {"name": "a"}, "data": {"a": "eA=="}, "stringData": {"a": "y", "b": "z"}});
        Secrets.default(&mut secret, None);
        assert_eq!(secret["data"], json!({"a": "eQ==", "b": "eg=="}));
        assert_eq!((secret["type"].as_str(), secret.get("stringData")), (Some("Opaque"), None));
    }

    #[test]
    fn secrets_have_what_their_type_wants() {
        for (secret, expected) in [
            (
                json!({"type": "kubernetes.io/tls", "data": {"tls.crt": ""}}),
                vec!["data[tls.key]: Required value"],
            ),
            (
                json!({"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "W10="}}),
                vec![
                    "data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\": json: cannot unmarshal array into Go value of type map[string]interface {}",
                ],
            ),
            (
                json!({"type": "kubernetes.io/basic-auth"}),
                vec!["data[username]: Required value", "data[password]: Required value"],
            ),
            (json!({"type": "anything", "data": {"a": "eA=="}}), vec![]),
        ] {
            assert_eq!(lines(|errors| check_secret(errors, &secret)), expected, "{secret}");
        }
    }

    #[test]
    fn what_is_immutable_stays() {
        let old = json!({"immutable": true, "data": {"a": "b"}});
        let new = json!({"data": {"a": "c"}});
        assert_eq!(
            lines(|errors| check_kept(errors, &new, &old, &["data", "binaryData"])),
            [
                "immutable: Forbidden: field is immutable when `immutable` is set",
                "data: Forbidden: field is immutable when `immutable` is set",
            ]
        );
    }
}
