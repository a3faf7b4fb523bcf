//! Client certificates. The handshake proves that a client has its certificate's key; whether the certificate is one of
//! ours is asked afterwards, so that who has another's gets an answer that says so.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};

use crate::certificate::{Certificate, CertificateError};

/// Why a client's certificate is not believed.
#[derive(Debug, thiserror::Error)]
pub enum ClientCertificateError {
    #[error("the client's certificate is not valid here")]
    NotValid(#[source] rustls::Error),
    #[error("the client's certificate is malformed")]
    Malformed(#[source] CertificateError),
}

/// Why nobody's certificate can be checked.
#[derive(Debug, thiserror::Error)]
pub enum ClientAuthoritiesError {
    #[error("there is no certificate in it")]
    None,
    #[error("a certificate of an authority cannot be used")]
    Unusable(#[source] rustls::Error),
}

/// Those whose signature makes a client's certificate one of ours.
#[derive(Debug)]
pub struct ClientAuthorities(Arc<dyn ClientCertVerifier>);

impl ClientAuthorities {
    /// In PEM, one or more.
    pub fn of(
        pem: &[u8],
        provider: &Arc<CryptoProvider>,
    ) -> Result<ClientAuthorities, ClientAuthoritiesError> {
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(pem) {
            let root = root.map_err(|_| ClientAuthoritiesError::None)?;
            roots.add(root).map_err(ClientAuthoritiesError::Unusable)?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
        Ok(ClientAuthorities(verifier.build().map_err(|_| ClientAuthoritiesError::None)?))
    }

    /// The certificate of who has shown a chain of them; none if nothing was shown.
    pub fn check(
        &self,
        chain: &[CertificateDer<'_>],
        now: Timestamp,
    ) -> Result<Option<Certificate>, ClientCertificateError> {
        let [own, others @ ..] = chain else { return Ok(None) };
        let since = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or_default());
        let verified = self.0.verify_client_cert(own, others, UnixTime::since_unix_epoch(since));
        verified.map_err(ClientCertificateError::NotValid)?;
        Certificate::from_der(own).map(Some).map_err(ClientCertificateError::Malformed)
    }

    /// What clients are told that they may show.
    pub fn names(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }
}

/// The handshake's part: a client may show any certificate whose key it has.
#[derive(Debug)]
pub struct AnyClientCertificate {
    provider: Arc<CryptoProvider>,
    names: Vec<DistinguishedName>,
}

impl AnyClientCertificate {
    /// Clients are told that certificates of these authorities are wanted; if none are named, any.
    pub fn new(provider: Arc<CryptoProvider>, names: &[DistinguishedName]) -> AnyClientCertificate {
        AnyClientCertificate { provider, names: names.to_vec() }
    }
}

impl ClientCertVerifier for AnyClientCertificate {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.names
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
