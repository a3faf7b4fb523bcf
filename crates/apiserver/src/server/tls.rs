//! What TLS needs of us.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, ServerConfig};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;

use crate::authentication::ClientCertificates;
use crate::pki::Identity;

/// The certificate that clients are shown. It can be replaced while others use it.
#[derive(Debug)]
pub(super) struct ServingCertificate {
    current: RwLock<Arc<CertifiedKey>>,
}

impl ServingCertificate {
    pub(super) fn new(
        identity: &Identity,
        provider: &CryptoProvider,
    ) -> Result<ServingCertificate, rustls::Error> {
        Ok(ServingCertificate { current: RwLock::new(certified(identity, provider)?) })
    }

    pub(super) fn set(&self, identity: &Identity, provider: &CryptoProvider) -> Result<(), rustls::Error> {
        let new = certified(identity, provider)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn certified(identity: &Identity, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, rustls::Error> {
    let (chain, key) = parts(identity)?;
    Ok(Arc::new(CertifiedKey::from_der(chain, key, provider)?))
}

/// A certificate chain and a key, as TLS wants them.
pub(super) fn parts(
    identity: &Identity,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), rustls::Error> {
    let malformed = |error: rustls::pki_types::pem::Error| rustls::Error::General(error.to_string());
    let chain = CertificateDer::pem_slice_iter(identity.certificate.as_bytes());
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(malformed)?;
    Ok((chain, PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).map_err(malformed)?))
}

pub(super) fn acceptor(
    serving: Arc<ServingCertificate>,
    clients: &ClientCertificates,
    provider: &Arc<CryptoProvider>,
) -> Result<TlsAcceptor, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(Arc::new(clients.in_handshake(provider)))
        .with_cert_resolver(serving);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // Who sees a session again would not see its certificate checked again.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Where the chance for names begins.
pub(super) fn random() -> u64 {
    let mut bytes = [0; 8];
    // Names that repeat those of the last start are found to be taken; nothing secret is made of it.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    u64::from_be_bytes(bytes)
}
