//! What volumes show that is not the node's own: config maps, secrets and tokens of the cluster.

use std::fmt;
use std::future::pending;
use std::sync::Arc;

use async_trait::async_trait;
use crablet_api::Text;
use crablet_api::core::{
    ClusterTrustBundleProjection, ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, Secret,
};
use crablet_api::storage::{CsiDriver, VolumeAttachment};
use crablet_core::translate::Unavailable;

/// Who has the content of volumes that is not the node's own. Nobody has to know of storage that outlives pods.
#[async_trait]
pub trait Contents: Send + Sync {
    async fn config_map(&self, namespace: &str, name: &str) -> Result<Arc<ConfigMap>, Unavailable>;

    /// A secret. Nothing of it may get into logs, errors or events.
    async fn secret(&self, namespace: &str, name: &str) -> Result<Arc<Secret>, Unavailable>;

    /// A claim to a piece of storage, as it is now.
    async fn claim(&self, _namespace: &str, _name: &str) -> Result<Arc<PersistentVolumeClaim>, Unavailable> {
        Err(Unavailable::NoClient)
    }

    /// Changes the status of a claim by a strategic merge patch, and gives the claim as it is then.
    async fn patch_claim_status(
        &self,
        _namespace: &str,
        _name: &str,
        _patch: String,
    ) -> Result<Arc<PersistentVolumeClaim>, Unavailable> {
        Err(Unavailable::NoClient)
    }

    /// A piece of storage, as it is now.
    async fn persistent_volume(&self, _name: &str) -> Result<Arc<PersistentVolume>, Unavailable> {
        Err(Unavailable::NoClient)
    }

    /// What the cluster knows of a CSI driver, if it is told of it.
    async fn csi_driver(&self, _name: &str) -> Result<Option<Arc<CsiDriver>>, Unavailable> {
        Err(Unavailable::NoClient)
    }

    /// Waits until what the cluster knows of a CSI driver is something else.
    async fn csi_driver_other_than(&self, _name: &str, _known: Option<&CsiDriver>) {
        pending().await
    }

    /// Whether a volume is attached to the node, as it is now.
    async fn volume_attachment(&self, _name: &str) -> Result<Arc<VolumeAttachment>, Unavailable> {
        Err(Unavailable::NoClient)
    }

    /// A secret that storage refers to, as it is now.
    async fn secret_of_storage(&self, _namespace: &str, _name: &str) -> Result<Arc<Secret>, Unavailable> {
        Err(Unavailable::NoClient)
    }

    /// Whom a pod may trust, as PEM: the certificates of the bundles that a volume names. There is nothing where no bundle
    /// is meant, and no client where that is not done.
    async fn trust_anchors(&self, _wanted: &ClusterTrustBundleProjection) -> Result<String, Unavailable> {
        Err(Unavailable::NoClient)
    }

    /// A certificate of a pod and its key, which are renewed: whoever shows them asks again when told so.
    async fn pod_certificate(&self, _wanted: &CertificateOf<'_>) -> Result<PodCertificate, NoCertificate> {
        Err(NoCertificate::Unimplemented)
    }

    /// A token that is valid for some time to come. Whoever shows it asks again before that is over. There is none for a
    /// pod that is run from memory before the API server answers: it does without until then.
    async fn service_account_token(&self, request: &TokenRequest) -> Result<Option<Token>, Unavailable>;
}

/// What a token of a service account is asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenRequest {
    pub namespace: Text,
    pub service_account: Text,
    /// Another one of that name does not do, if this is said.
    pub service_account_uid: Option<Text>,
    /// Whom it is for: the API server, if nobody is named.
    pub audiences: Vec<Text>,
    /// How long it should be valid.
    pub expiration_seconds: Option<i64>,
    /// The name of the pod that it is bound to: when that is gone, the token is worth nothing.
    pub pod: Text,
    pub pod_uid: Text,
}

/// A token of a service account. Its `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    token: Arc<str>,
    expires: Option<Arc<str>>,
}

impl Token {
    pub fn new(token: &str) -> Token {
        Token { token: token.into(), expires: None }
    }

    /// One of which the server says when it is worth nothing any more.
    #[must_use]
    pub fn until(self, time: &str) -> Token {
        Token { expires: Some(time.into()), ..self }
    }

    /// When it is worth nothing any more.
    pub fn expires(&self) -> Option<&str> {
        self.expires.as_deref()
    }

    /// The token itself.
    pub fn reveal(&self) -> &str {
        &self.token
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "<{} bytes>", self.token.len())
    }
}

/// Which certificate is meant: that of a source of a pod's volume.
#[derive(Debug, Clone, Copy)]
pub struct CertificateOf<'a> {
    pub pod: &'a Pod,
    /// The volume's name in the pod.
    pub volume: &'a str,
    /// The source's place among those of the volume.
    pub index: usize,
}

/// A certificate of a pod, with those that lead to whom others trust, and its key. Its `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct PodCertificate {
    key: Arc<str>,
    chain: Arc<str>,
}

impl PodCertificate {
    /// Both in PEM.
    pub fn new(key: &str, chain: &str) -> PodCertificate {
        PodCertificate { key: key.into(), chain: chain.into() }
    }

    pub fn reveal_key(&self) -> &str {
        &self.key
    }

    pub fn chain(&self) -> &str {
        &self.chain
    }
}

impl fmt::Debug for PodCertificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "<{} bytes>", self.key.len() + self.chain.len())
    }
}

/// Why there is no certificate. The words are upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoCertificate {
    /// A signer may still issue it.
    #[error("{0}")]
    NotYet(String),
    /// None is issued.
    #[error("{0}")]
    Refused(String),
    /// The node does not ask for any: the gate `PodCertificateRequest` is off.
    #[error("unimplemented")]
    Unimplemented,
}

/// Where there is no API server, there is nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoContents;

#[async_trait]
impl Contents for NoContents {
    async fn config_map(&self, _: &str, _: &str) -> Result<Arc<ConfigMap>, Unavailable> {
        Err(Unavailable::NoClient)
    }

    async fn secret(&self, _: &str, _: &str) -> Result<Arc<Secret>, Unavailable> {
        Err(Unavailable::NoClient)
    }

    async fn service_account_token(&self, _: &TokenRequest) -> Result<Option<Token>, Unavailable> {
        Err(Unavailable::NoClient)
    }
}
