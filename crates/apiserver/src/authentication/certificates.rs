//! Client certificates. The handshake proves that a client has its certificate's key; whether the certificate is one of
//! ours is asked afterwards, so that who has another's gets an answer that says so.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};

use super::{CREDENTIAL_ID, with_all};
use crate::pki::Certificate;
use crate::who::User;

/// Why a certificate is not believed.
#[derive(Debug, thiserror::Error)]
pub enum CertificateRefused {
    #[error("the client's certificate is not valid here")]
    NotValid(#[source] rustls::Error),
    #[error("the client's certificate is malformed")]
    Malformed(#[source] crate::pki::CertificateError),
    #[error("the client's certificate has ended on {0}")]
    Ended(Timestamp),
}

/// Tells whom certificates are of.
#[derive(Debug)]
pub struct ClientCertificates {
    ours: Arc<dyn ClientCertVerifier>,
    provider: Arc<CryptoProvider>,
}

/// Whom a certificate is of, and how long.
#[derive(Clone, Debug)]
pub struct CertifiedUser {
    user: Option<User>,
    until: Timestamp,
}

impl CertifiedUser {
    /// None for a certificate without a name.
    pub fn user(&self, now: Timestamp) -> Result<Option<User>, CertificateRefused> {
        match now > self.until {
            true => Err(CertificateRefused::Ended(self.until)),
            false => Ok(self.user.clone()),
        }
    }
}

impl ClientCertificates {
    /// Those that an authority has signed, which is given in PEM.
    pub fn of(
        authority: &str,
        provider: Arc<CryptoProvider>,
    ) -> Result<ClientCertificates, CertificateRefused> {
        let malformed = |_| CertificateRefused::Malformed(crate::pki::CertificateError::NotPem);
        let root = CertificateDer::from_pem_slice(authority.as_bytes()).map_err(malformed)?;
        let mut roots = RootCertStore::empty();
        roots.add(root).map_err(CertificateRefused::NotValid)?;
        let ours = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let ours = ours
            .build()
            .map_err(|error| CertificateRefused::NotValid(rustls::Error::General(error.to_string())))?;
        Ok(ClientCertificates { ours, provider })
    }

    /// Whom a chain of certificates is of.
    pub fn user(
        &self,
        chain: &[CertificateDer<'_>],
        now: Timestamp,
    ) -> Result<Option<CertifiedUser>, CertificateRefused> {
        let [own, others @ ..] = chain else { return Ok(None) };
        let since = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or_default());
        let verified = self.ours.verify_client_cert(own, others, UnixTime::since_unix_epoch(since));
        verified.map_err(CertificateRefused::NotValid)?;
        let certificate = Certificate::from_der(own).map_err(CertificateRefused::Malformed)?;
        let name = certificate.common_name();
        let user = (!name.is_empty()).then(|| {
            let mut user = User { name, groups: certificate.organizations(), ..User::default() };
            let id = format!("X509SHA256={}", certificate.fingerprint());
            user.extra.insert(CREDENTIAL_ID.to_owned(), vec![id]);
            with_all(user)
        });
        Ok(Some(CertifiedUser { user, until: certificate.not_after() }))
    }
}

/// In the handshake.
impl ClientCertVerifier for ClientCertificates {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.ours.root_hint_subjects()
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
