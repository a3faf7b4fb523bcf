//! Whom a client's certificate is of.

use std::sync::Arc;

use crablet_x509::{AnyClientCertificate, ClientAuthorities, ClientAuthoritiesError, ClientCertificateError};
use jiff::Timestamp;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;

use super::{CREDENTIAL_ID, with_all};
use crate::who::User;

/// Why a certificate is not believed.
#[derive(Debug, thiserror::Error)]
pub enum CertificateRefused {
    #[error(transparent)]
    NotOurs(#[from] ClientCertificateError),
    #[error("the client's certificate has ended on {0}")]
    Ended(Timestamp),
}

/// Tells whom certificates are of.
#[derive(Debug)]
pub struct ClientCertificates(ClientAuthorities);

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
        provider: &Arc<CryptoProvider>,
    ) -> Result<ClientCertificates, ClientAuthoritiesError> {
        ClientAuthorities::of(authority.as_bytes(), provider).map(ClientCertificates)
    }

    /// The handshake's part.
    pub fn in_handshake(&self, provider: &Arc<CryptoProvider>) -> AnyClientCertificate {
        AnyClientCertificate::new(Arc::clone(provider), self.0.names())
    }

    /// Whom a chain of certificates is of.
    pub fn user(
        &self,
        chain: &[CertificateDer<'_>],
        now: Timestamp,
    ) -> Result<Option<CertifiedUser>, CertificateRefused> {
        let Some(certificate) = self.0.check(chain, now)? else { return Ok(None) };
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
