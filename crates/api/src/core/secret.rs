//! [`Secret`]: what pods need to know and nobody else may.

use std::fmt;

use crate::bytes::Bytes;
use crate::map::Map;
use crate::meta::ObjectMeta;
use crate::object::{object, words};
use crate::text::Text;

object! {
    /// What pods need to know and nobody else may. Its `Debug` names the keys and hides the values.
    opaque pub struct Secret: "v1" "Secret" {
        metadata: ObjectMeta = "metadata",
        immutable: Option<bool> = "immutable",
        data: Map<Bytes> = "data",
        string_data: Map<Text> = "stringData",
        r#type: Option<SecretType> = "type" word,
    }
}

/// Of the metadata it shows the name alone: an annotation may hold the whole secret as it was applied.
impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<&str> = self.data.keys().chain(self.string_data.keys()).collect();
        formatter
            .debug_struct("Secret")
            .field("namespace", &self.metadata.namespace)
            .field("name", &self.metadata.name)
            .field("resource_version", &self.metadata.resource_version)
            .field("keys", &keys)
            .finish_non_exhaustive()
    }
}

words! {
    /// What a secret is for, which says what keys it has.
    pub enum SecretType {
        Opaque = "Opaque",
        ServiceAccountToken = "kubernetes.io/service-account-token",
        Dockercfg = "kubernetes.io/dockercfg",
        DockerConfigJson = "kubernetes.io/dockerconfigjson",
        BasicAuth = "kubernetes.io/basic-auth",
        SshAuth = "kubernetes.io/ssh-auth",
        Tls = "kubernetes.io/tls",
        BootstrapToken = "bootstrap.kubernetes.io/token",
    }
}
