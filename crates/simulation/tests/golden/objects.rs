//! The objects of the recordings' cluster, as an agent asks for them.

use std::sync::Arc;

use async_trait::async_trait;
use crablet_agent::mailbox::Mailbox;
use crablet_agent::objects::{Interest, Objects};
use crablet_api::core::{ConfigMap, Pod, Secret, Service};
use crablet_api::node::RuntimeClass;
use crablet_core::translate::Unavailable;
use crablet_volumes::{Contents, Token, TokenRequest};

use super::node::Cluster;

/// What every namespace has, so that pods know the API server.
const ROOT_CA: &str = "kube-root-ca.crt";

#[async_trait]
impl Contents for Cluster {
    async fn config_map(&self, namespace: &str, name: &str) -> Result<Arc<ConfigMap>, Unavailable> {
        if name == ROOT_CA {
            let data = [("ca.crt", "-----BEGIN CERTIFICATE-----".into())].into_iter().collect();
            return Ok(Arc::new(ConfigMap { data, ..ConfigMap::default() }));
        }
        let found = self.config_maps.iter().find(|map| is_it(&map.metadata, namespace, name));
        found.cloned().map(Arc::new).ok_or(Unavailable::NotFound)
    }

    async fn secret(&self, namespace: &str, name: &str) -> Result<Arc<Secret>, Unavailable> {
        let found = self.secrets.iter().find(|secret| is_it(&secret.metadata, namespace, name));
        found.cloned().map(Arc::new).ok_or(Unavailable::NotFound)
    }

    async fn service_account_token(&self, _: &TokenRequest) -> Result<Option<Token>, Unavailable> {
        Ok(Some(Token::new("a token")))
    }
}

#[async_trait]
impl Objects for Cluster {
    async fn runtime_class(&self, _: &str) -> Result<Arc<RuntimeClass>, Unavailable> {
        Err(Unavailable::NotFound)
    }

    fn services(&self) -> Option<Vec<Arc<Service>>> {
        Some(self.services.iter().cloned().map(Arc::new).collect())
    }

    fn register_pod(&self, _: &Pod, _: &Mailbox) -> Option<Interest> {
        None
    }
}

fn is_it(metadata: &crablet_api::meta::ObjectMeta, namespace: &str, name: &str) -> bool {
    metadata.namespace == *namespace && metadata.name == *name
}
