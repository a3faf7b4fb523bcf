//! Who the node is: a certificate with its key.

use std::fmt;
use std::sync::Arc;

use crablet_client::Https;
use crablet_host::clock::Clock;
use crablet_x509::{Certificate, CertificateError, pem};
use jiff::Timestamp;
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;
use tracing::warn;

use crate::template::Template;

/// A certificate with its key. Its `Debug` shows whom it is of and until when.
pub struct Identity {
    certificate: Box<str>,
    key: Box<str>,
    leaf: Certificate,
    /// When the first of the chain ends.
    ends: Timestamp,
    certified: Arc<CertifiedKey>,
}

/// Why a certificate and a key are no identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("there is no certificate in it")]
    NoCertificate,
    #[error("the certificate cannot be read")]
    Malformed(#[from] CertificateError),
    #[error("there is no private key in it")]
    NoKey,
    #[error("certificate and key cannot be used together: {0}")]
    Unusable(#[from] rustls::Error),
}

impl Identity {
    /// From PEMs, which may be one and the same. The first certificate is the node's own, the others lead to its
    /// authority.
    pub fn parse(certificate: &str, key: &str) -> Result<Identity, IdentityError> {
        let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|_| IdentityError::NoCertificate)?;
        let parsed = chain.iter().map(|der| Certificate::from_der(der)).collect::<Result<Vec<_>, _>>()?;
        let ends = parsed.iter().map(Certificate::not_after).min().ok_or(IdentityError::NoCertificate)?;
        let leaf = parsed.into_iter().next().ok_or(IdentityError::NoCertificate)?;
        let secret =
            pem::blocks(key.as_bytes()).into_iter().find(|block| block.label.ends_with("PRIVATE KEY"));
        let secret = secret.ok_or(IdentityError::NoKey)?;
        let secret = pem::encode(&secret.label, &secret.bytes);
        let der = PrivateKeyDer::from_pem_slice(secret.as_bytes()).map_err(|_| IdentityError::NoKey)?;
        let certificate: String = chain.iter().map(|der| pem::encode("CERTIFICATE", der)).collect();
        let certified = CertifiedKey::from_der(chain, der, &aws_lc_rs::default_provider())?;
        Ok(Identity {
            certificate: certificate.into(),
            key: secret.into(),
            leaf,
            ends,
            certified: Arc::new(certified),
        })
    }

    /// The PEM of the certificate and of those that lead to its authority.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The PEM of the key, for who has to prove to have it.
    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn leaf(&self) -> &Certificate {
        &self.leaf
    }

    pub fn not_after(&self) -> Timestamp {
        self.leaf.not_after()
    }

    pub fn has_ended(&self, now: Timestamp) -> bool {
        now > self.leaf.not_after()
    }

    /// Whether nothing of the chain has ended.
    pub(crate) fn is_whole_at(&self, now: Timestamp) -> bool {
        now <= self.ends
    }

    /// What TLS needs of it.
    pub fn certified_key(&self) -> &Arc<CertifiedKey> {
        &self.certified
    }

    /// Whether it says all that is wanted of it. It may say more.
    pub(crate) fn satisfies(&self, template: &Template) -> bool {
        let organizations = self.leaf.organizations();
        self.leaf.common_name() == template.common_name
            && template.organizations.iter().all(|wanted| organizations.contains(wanted))
            && self.leaf.has_all(&template.names)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Identity")
            .field("common_name", &self.leaf.common_name())
            .field("not_after", &self.leaf.not_after())
            .finish_non_exhaustive()
    }
}

/// The identity to use now. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Identities {
    latest: watch::Receiver<Option<Arc<Identity>>>,
    /// None for those that are used on when they have ended.
    clock: Option<Clock>,
}

impl Identities {
    pub(crate) fn new(latest: watch::Receiver<Option<Arc<Identity>>>, clock: Clock) -> Identities {
        Identities { latest, clock: Some(clock) }
    }

    /// Somebody else sees to it that they do not end.
    pub(crate) fn unending(latest: watch::Receiver<Option<Arc<Identity>>>) -> Identities {
        Identities { latest, clock: None }
    }

    /// None while there is none yet, and when it has ended.
    pub fn current(&self) -> Option<Arc<Identity>> {
        let latest = self.latest.borrow().clone();
        let has_ended =
            |identity: &Identity| self.clock.as_ref().is_some_and(|clock| identity.has_ended(clock.now()));
        latest.filter(|identity| !has_ended(identity))
    }

    /// Shows each to a server, from when it is there on, for as long as it is polled. What is under way is not disturbed.
    pub async fn hand_to(mut self, https: Https) {
        loop {
            if let Some(identity) = self.current()
                && let Err(error) =
                    https.set_client_certificate(identity.certificate().as_bytes(), identity.key().as_bytes())
            {
                warn!(err = %error, "A client certificate cannot be used; the one from before is used on");
            }
            if !self.changed().await {
                return;
            }
        }
    }

    /// Waits for another one than was seen last. None is to come if this says no.
    pub async fn changed(&mut self) -> bool {
        self.latest.changed().await.is_ok()
    }
}

impl ResolvesServerCert for Identities {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(self.current()?.certified_key()))
    }
}

impl ResolvesClientCert for Identities {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(self.current()?.certified_key()))
    }

    fn has_certs(&self) -> bool {
        true
    }
}
