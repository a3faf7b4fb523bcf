//! Docker's configuration: which credentials go with which registry.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde_json::{Map, Value};

use crate::credential::Credential;

/// Credentials by registry, as docker's configuration and credential providers have them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DockerConfig(pub BTreeMap<String, Credential>);

/// A text is not docker's configuration. Nothing of it is told, not even the name of a registry: it may hold a
/// password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadDockerConfig {
    #[error("line {line}, column {column}: is not JSON")]
    NotJson { line: usize, column: usize },
    /// A field holds something of the wrong kind.
    #[error("{field}: expected {expected}, found {found}")]
    Kind {
        field: &'static str,
        /// What it holds.
        expected: &'static str,
        /// What it held.
        found: &'static str,
    },
    /// The name and the password of an entry cannot be read.
    #[error("the auth of an entry: expected base64 of username:password")]
    Auth,
}

impl DockerConfig {
    /// Reads a `config.json`, which is also what secrets of the type `kubernetes.io/dockerconfigjson` hold.
    pub fn from_config_json(bytes: &[u8]) -> Result<DockerConfig, BadDockerConfig> {
        let Some(fields) = object(parse(bytes)?, "the document")? else { return Ok(DockerConfig::default()) };
        entries(field(fields, "auths"), "auths")
    }

    /// Reads a `.dockercfg`, which is also what secrets of the type `kubernetes.io/dockercfg` hold: the entries alone.
    pub fn from_dockercfg(bytes: &[u8]) -> Result<DockerConfig, BadDockerConfig> {
        entries(parse(bytes)?, "the document")
    }
}

fn parse(bytes: &[u8]) -> Result<Value, BadDockerConfig> {
    serde_json::from_slice(bytes)
        .map_err(|error| BadDockerConfig::NotJson { line: error.line(), column: error.column() })
}

fn entries(value: Value, name: &'static str) -> Result<DockerConfig, BadDockerConfig> {
    let mut config = DockerConfig::default();
    for (registry, value) in object(value, name)?.unwrap_or_default() {
        config.0.insert(registry, credential(value)?);
    }
    Ok(config)
}

fn credential(value: Value) -> Result<Credential, BadDockerConfig> {
    let mut fields = object(value, "an entry")?.unwrap_or_default();
    let mut credential = Credential {
        username: text(&mut fields, "username")?,
        password: text(&mut fields, "password")?,
        email: text(&mut fields, "email")?,
    };
    let auth = text(&mut fields, "auth")?;
    if !auth.is_empty() {
        (credential.username, credential.password) = name_and_password(&auth).ok_or(BadDockerConfig::Auth)?;
    }
    Ok(credential)
}

/// With padding or without. Line ends do not count, as in Go.
fn name_and_password(auth: &str) -> Option<(String, String)> {
    let engine = if auth.trim().ends_with('=') { STANDARD } else { STANDARD_NO_PAD };
    let decoded = engine.decode(auth.replace(['\r', '\n'], "")).ok()?;
    let decoded = String::from_utf8(decoded).ok()?;
    let (username, password) = decoded.split_once(':')?;
    Some((username.to_owned(), password.to_owned()))
}

/// The fields, or nothing where there is null.
fn object(value: Value, name: &'static str) -> Result<Option<Map<String, Value>>, BadDockerConfig> {
    match value {
        Value::Object(fields) => Ok(Some(fields)),
        Value::Null => Ok(None),
        other => Err(BadDockerConfig::Kind { field: name, expected: "an object", found: kind(&other) }),
    }
}

/// A field's value. Go takes a name in other letter case too.
fn field(mut fields: Map<String, Value>, name: &str) -> Value {
    take(&mut fields, name)
}

fn take(fields: &mut Map<String, Value>, name: &str) -> Value {
    let key = match fields.contains_key(name) {
        true => Some(name.to_owned()),
        false => fields.keys().find(|key| key.eq_ignore_ascii_case(name)).cloned(),
    };
    key.and_then(|key| fields.remove(&key)).unwrap_or(Value::Null)
}

fn text(fields: &mut Map<String, Value>, name: &'static str) -> Result<String, BadDockerConfig> {
    match take(fields, name) {
        Value::String(text) => Ok(text),
        Value::Null => Ok(String::new()),
        other => Err(BadDockerConfig::Kind { field: name, expected: "text", found: kind(&other) }),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `registry=username:password:email` of each entry.
    fn shown(config: Result<DockerConfig, BadDockerConfig>) -> String {
        let entry = |(registry, c): (&String, &Credential)| {
            format!("{registry}={}:{}:{}", c.username, c.password, c.email)
        };
        match config {
            Ok(config) => config.0.iter().map(entry).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn both_forms_are_read() {
        for (text, expected) in [
            ("{}", ""),
            ("null", ""),
            (r#"{"auths":null,"credsStore":"pass"}"#, ""),
            (r#"{"auths":{"gcr.io":{}}}"#, "gcr.io=::"),
            (r#"{"auths":{"gcr.io":null}}"#, "gcr.io=::"),
            (r#"{"auths":{"gcr.io":{"username":"me","password":"pw","email":"m@e"}}}"#, "gcr.io=me:pw:m@e"),
            // In base64, with padding, without, and with line ends; it wins over the plain fields.
            (r#"{"auths":{"gcr.io":{"auth":"bWU6cHc="}}}"#, "gcr.io=me:pw:"),
            (r#"{"auths":{"gcr.io":{"auth":"bWU6cHc"}}}"#, "gcr.io=me:pw:"),
            (
                r#"{"auths":{"gcr.io":{"auth":"bWU6\ncHc=\r\n","username":"x","password":"y"}}}"#,
                "gcr.io=me:pw:",
            ),
            (r#"{"auths":{"gcr.io":{"auth":"bWU6cDp3","email":"m@e"}}}"#, "gcr.io=me:p:w:m@e"),
            (r#"{"auths":{"gcr.io":{"auth":"Og=="}}}"#, "gcr.io=::"),
            // Letter case does not count.
            (r#"{"Auths":{"gcr.io":{"Username":"me","PASSWORD":"pw"}}}"#, "gcr.io=me:pw:"),
            // What is not known is passed by.
            (
                r#"{"auths":{"b":{"identitytoken":"t"},"a":{"username":"me"}},"HttpHeaders":{"A":"B"}}"#,
                "a=me:: b=::",
            ),
        ] {
            assert_eq!(shown(DockerConfig::from_config_json(text.as_bytes())), expected, "{text}");
        }
        for (text, expected) in [
            ("{}", ""),
            (
                r#"{"https://gcr.io/v1/":{"auth":"bWU6cHc="},"b":{"username":"x"}}"#,
                "b=x:: https://gcr.io/v1/=me:pw:",
            ),
        ] {
            assert_eq!(shown(DockerConfig::from_dockercfg(text.as_bytes())), expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_read_says_what_is_wrong_and_shows_nothing_of_it() {
        for (text, expected) in [
            ("", "line 1, column 0: is not JSON"),
            ("{\"hunter2\":\n x}", "line 2, column 2: is not JSON"),
            (r#""hunter2""#, "the document: expected an object, found text"),
            (r#"{"auths":["hunter2"]}"#, "auths: expected an object, found a list"),
            (r#"{"auths":{"hunter2":"hunter2"}}"#, "an entry: expected an object, found text"),
            (r#"{"auths":{"hunter2":{"password":1}}}"#, "password: expected text, found a number"),
            (r#"{"auths":{"hunter2":{"username":{}}}}"#, "username: expected text, found an object"),
            (r#"{"auths":{"hunter2":{"auth":true}}}"#, "auth: expected text, found a boolean"),
            (
                r#"{"auths":{"hunter2":{"auth":"hunter2!"}}}"#,
                "the auth of an entry: expected base64 of username:password",
            ),
            (
                r#"{"auths":{"hunter2":{"auth":"bWU="}}}"#,
                "the auth of an entry: expected base64 of username:password",
            ),
            (
                r#"{"auths":{"hunter2":{"auth":"bWU6cHc= "}}}"#,
                "the auth of an entry: expected base64 of username:password",
            ),
            (
                r#"{"auths":{"hunter2":{"auth":"/zr/"}}}"#,
                "the auth of an entry: expected base64 of username:password",
            ),
        ] {
            assert_eq!(shown(DockerConfig::from_config_json(text.as_bytes())), expected, "{text}");
        }
        assert_eq!(
            shown(DockerConfig::from_dockercfg(b"[]")),
            "the document: expected an object, found a list"
        );
        assert_eq!(shown(DockerConfig::from_dockercfg(b"\xff")), "line 1, column 1: is not JSON");
        let deep = "[".repeat(100_000);
        assert!(DockerConfig::from_dockercfg(deep.as_bytes()).is_err());
    }
}
