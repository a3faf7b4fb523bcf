//! The cluster's objects that pods refer to: config maps, secrets, tokens, certificates, trust bundles, services and
//! runtime classes.
//!
//! A worker registers its pod ([`Objects::register_pod`]) before it asks for any object, and its mailbox is told when
//! one of those changes that the pod refers to, or a token of its is to be renewed. Whoever has the objects keeps an
//! account of that in [`Interests`]. What volumes show of them is the part of it that volumes know: [`Contents`].

mod interests;

use std::sync::Arc;

use async_trait::async_trait;
use crablet_api::core::{Pod, Service};
use crablet_api::node::RuntimeClass;
use crablet_core::translate::Unavailable;
use crablet_volumes::Contents;

use crate::mailbox::Mailbox;

pub use interests::{Interest, Interests};

/// The objects of a node that has no API server: there are none.
pub use crablet_volumes::NoContents as NoObjects;

/// Who has the objects that pods refer to.
#[async_trait]
pub trait Objects: Contents {
    async fn runtime_class(&self, name: &str) -> Result<Arc<RuntimeClass>, Unavailable>;

    /// The services of the cluster; nothing before they were read for the first time.
    fn services(&self) -> Option<Vec<Arc<Service>>>;

    /// Has the mailbox of a pod told when a config map, a secret or a trust bundle changes that the pod refers to, and when
    /// a token or a certificate is to be renewed, for as long as the answer is kept. There is none where nothing can
    /// change.
    fn register_pod(&self, pod: &Pod, mailbox: &Mailbox) -> Option<Interest>;

    /// Who keeps volumes for pods came or went: those who wait for one need not wait any longer.
    fn storage_may_be_there(&self) {}
}

#[async_trait]
impl Objects for NoObjects {
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
