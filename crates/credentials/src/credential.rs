//! A name and a password for a registry, and where they come from.

use std::fmt;

use serde::Serialize;
use sha2::{Digest, Sha256};

/// A name and a password. Its `Debug` shows neither: some registries take a token for a name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
pub struct Credential {
    /// The name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub username: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub password: String,
    /// An address that goes with the name. No registry asks for it, but upstream's hash covers it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub email: String,
}

impl Credential {
    /// Upstream's hash of it, which is written down with the images that it was good for.
    pub fn hash(&self) -> String {
        // Text and nothing else cannot fail to be written.
        let json = serde_json::to_string(self).unwrap_or_default();
        hex(&Sha256::digest(as_go_writes(&json).as_bytes()))
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(<hidden>)")
    }
}

/// Go's JSON may stand within HTML.
fn as_go_writes(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => text.push_str(&format!("\\u{:04x}", u32::from(c))),
            other => text.push(other),
        }
    }
    text
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An object of the API, in whatever version it had.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Coordinates {
    pub uid: String,
    pub namespace: String,
    pub name: String,
}

/// Whose a credential is that not every pod of the node may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Of those who name this secret.
    Secret(Coordinates),
    /// Of those who run as this service account.
    ServiceAccount(Coordinates),
}

/// A credential, and whose it is. Its `Debug` shows whose alone.
#[derive(Clone, PartialEq, Eq)]
pub struct TrackedCredential {
    pub credential: Credential,
    /// Its [hash](Credential::hash).
    pub hash: String,
    /// Whose it is; the whole node's, if nobody's.
    pub source: Option<Source>,
}

impl TrackedCredential {
    pub(crate) fn new(credential: Credential, source: Option<Source>) -> TrackedCredential {
        TrackedCredential { hash: credential.hash(), credential, source }
    }
}

impl fmt::Debug for TrackedCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrackedCredential").field("source", &self.source).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(username: &str, password: &str, email: &str) -> Credential {
        Credential { username: username.into(), password: password.into(), email: email.into() }
    }

    #[test]
    fn what_is_hashed_is_what_go_would_write() {
        for (credential, expected) in [
            (credential("", "", ""), "{}"),
            (credential("me", "", ""), r#"{"username":"me"}"#),
            (
                credential("me", "a<b>&\u{2028}\u{7f}é", ""),
                "{\"username\":\"me\",\"password\":\"a\\u003cb\\u003e\\u0026\\u2028\u{7f}é\"}",
            ),
            (
                credential("me", "\u{8}\u{c}\n\r\t\u{1}\"\\/", "m@e"),
                r#"{"username":"me","password":"\b\f\n\r\t\u0001\"\\/","email":"m@e"}"#,
            ),
        ] {
            assert_eq!(as_go_writes(&serde_json::to_string(&credential).unwrap()), expected);
            assert_eq!(credential.hash(), hex(&Sha256::digest(expected.as_bytes())));
        }
        assert_eq!(
            credential("", "", "").hash(),
            "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
        );
    }

    #[test]
    fn a_credential_in_a_log_shows_nothing_of_itself() {
        let credential = credential("token-as-name", "hunter2", "m@e");
        let source = Coordinates { uid: "u".into(), namespace: "ns".into(), name: "pull".into() };
        let tracked = TrackedCredential::new(credential.clone(), Some(Source::Secret(source)));
        let text = format!("{credential:?} {tracked:?}");
        assert!(text.contains("pull"), "{text}");
        for hidden in ["token-as-name", "hunter2", "m@e", tracked.hash.as_str()] {
            assert!(!text.contains(hidden), "{text}");
        }
    }
}
