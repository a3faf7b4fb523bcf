//! What others need to verify tokens with: who issues them, and the public key.

use serde_json::{Value, json};

use crate::answer::Document;
use crate::cluster::Settings;

pub(crate) const CONFIGURATION_PATH: &str = "/.well-known/openid-configuration";
pub(crate) const KEYS_PATH: &str = "/openid/v1/jwks";

impl Settings {
    /// `/.well-known/openid-configuration`, of a server that is at a host and port.
    pub fn openid_configuration(&self, server: &str) -> Value {
        json!({
            "issuer": self.issuer,
            "jwks_uri": format!("https://{server}{KEYS_PATH}"),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [self.signer.token_key().algorithm],
        })
    }

    /// `/openid/v1/jwks`.
    pub fn token_keys(&self) -> Value {
        json!({"keys": [self.signer.token_key().public]})
    }
}

/// The document at one of these paths, if it is one.
pub(crate) fn answer(settings: &Settings, path: &str) -> Option<Document> {
    match path {
        CONFIGURATION_PATH => Some(Document::json(200, &settings.openid_configuration(&settings.address))),
        KEYS_PATH => {
            let mut document = Document::json(200, &settings.token_keys());
            document.content_type = "application/jwk-set+json";
            Some(document)
        }
        _ => None,
    }
}
