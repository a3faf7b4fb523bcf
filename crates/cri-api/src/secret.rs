//! `Debug` of messages that can hold a secret: it says that something is there, and not what.

use std::fmt;

use crate::v1::{AuthConfig, KeyValue};

impl fmt::Debug for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyValue").field("key", &self.key).field("value", &hidden(&self.value)).finish()
    }
}

impl fmt::Debug for AuthConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthConfig")
            .field("username", &self.username)
            .field("password", &hidden(&self.password))
            .field("auth", &hidden(&self.auth))
            .field("server_address", &self.server_address)
            .field("identity_token", &hidden(&self.identity_token))
            .field("registry_token", &hidden(&self.registry_token))
            .finish()
    }
}

fn hidden(value: impl AsRef<[u8]>) -> &'static str {
    if value.as_ref().is_empty() { "" } else { "<hidden>" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{ContainerConfig, PullImageRequest};

    #[test]
    fn a_message_in_a_log_shows_no_secret() {
        let container = ContainerConfig {
            envs: vec![KeyValue { key: "PASSWORD".to_owned(), value: b"hunter2".to_vec() }],
            ..ContainerConfig::default()
        };
        let pull = PullImageRequest {
            auth: Some(AuthConfig {
                username: "me".to_owned(),
                password: "hunter2".to_owned(),
                auth: "hunter2".to_owned(),
                server_address: "registry".to_owned(),
                identity_token: "hunter2".to_owned(),
                registry_token: "hunter2".to_owned(),
            }),
            ..PullImageRequest::default()
        };
        let text = format!("{container:?} {pull:?}");
        assert!(text.contains("PASSWORD") && text.contains("me") && text.contains("registry"));
        assert!(!text.contains("hunter2"), "{text}");
    }
}
