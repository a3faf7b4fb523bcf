//! The cluster's objects that pods refer to: config maps, secrets, services and runtime classes.
//!
//! A worker registers its pod ([`Objects::register_pod`]) before it asks for any object, and its mailbox is told when
//! one of those changes that the pod refers to. Whoever has the objects keeps an account of that in [`Interests`].

mod interests;

use std::sync::Arc;

use async_trait::async_trait;
use crablet_api::core::{ConfigMap, Pod, Secret, Service};
use crablet_api::node::RuntimeClass;
use crablet_core::translate::Unavailable;

use crate::mailbox::Mailbox;

pub use interests::{Interest, Interests};

/// Who has the objects that pods refer to.
#[async_trait]
pub trait Objects: Send + Sync {
    async fn config_map(&self, namespace: &str, name: &str) -> Result<Arc<ConfigMap>, Unavailable>;

    /// A secret. Nothing of it may get into logs, errors or events.
    async fn secret(&self, namespace: &str, name: &str) -> Result<Arc<Secret>, Unavailable>;

    async fn runtime_class(&self, name: &str) -> Result<Arc<RuntimeClass>, Unavailable>;

    /// The services of the cluster; nothing before they were read for the first time.
    fn services(&self) -> Option<Vec<Arc<Service>>>;

    /// Has the mailbox of a pod told when a config map or secret changes that the pod refers to, for as long as the
    /// answer is kept. There is none where nothing can change.
    fn register_pod(&self, pod: &Pod, mailbox: &Mailbox) -> Option<Interest>;
}

/// The objects of a node that has no API server: there are none.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObjects;

#[async_trait]
impl Objects for NoObjects {
    async fn config_map(&self, _: &str, _: &str) -> Result<Arc<ConfigMap>, Unavailable> {
        Err(Unavailable::NoClient)
    }

    async fn secret(&self, _: &str, _: &str) -> Result<Arc<Secret>, Unavailable> {
        Err(Unavailable::NoClient)
    }

    async fn runtime_class(&self, _: &str) -> Result<Arc<RuntimeClass>, Unavailable> {
        Err(Unavailable::NoClient)
    }

    fn services(&self) -> Option<Vec<Arc<Service>>> {
        Some(Vec::new())
    }

    fn register_pod(&self, _: &Pod, _: &Mailbox) -> Option<Interest> {
        None
    }
}
