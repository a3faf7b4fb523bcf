//! The config maps and secrets that pods name, wherever they come from.

use std::sync::Arc;

use async_trait::async_trait;
use crablet_api::core::{ConfigMap, Secret};
use crablet_core::translate::Unavailable;

/// Where config maps and secrets are.
#[async_trait]
pub trait Objects: Send + Sync {
    /// A secret.
    async fn secret(&self, namespace: &str, name: &str) -> Result<Arc<Secret>, Unavailable>;
    /// A config map.
    async fn config_map(&self, namespace: &str, name: &str) -> Result<Arc<ConfigMap>, Unavailable>;
}

/// A node without an API server, where there are none.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObjects;

#[async_trait]
impl Objects for NoObjects {
    async fn secret(&self, _: &str, _: &str) -> Result<Arc<Secret>, Unavailable> {
        Err(Unavailable::NoClient)
    }

    async fn config_map(&self, _: &str, _: &str) -> Result<Arc<ConfigMap>, Unavailable> {
        Err(Unavailable::NoClient)
    }
}
