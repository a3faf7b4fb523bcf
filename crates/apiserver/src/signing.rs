//! What only the server's own keys can do: certificates and tokens that others believe. The keys are behind a trait, so
//! that the core has none.

use std::fmt;

use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub use crablet_x509::SigningError;

/// Who signs for the cluster.
pub trait Signer: fmt::Debug + Send + Sync {
    /// What a request in PEM asks for.
    fn read_request(&self, request: &str) -> Result<RequestedNames, SigningError>;

    /// The certificate for a request, both in PEM: with the request's names and key, for the usages that the API calls
    /// `client auth` and so on, for as many seconds as were asked for, within bounds.
    fn sign_certificate(
        &self,
        request: &str,
        usages: &[&str],
        expiration_seconds: Option<i64>,
        now: Timestamp,
    ) -> Result<String, SigningError>;

    /// The signature of a token's first two parts.
    fn sign_token(&self, message: &[u8]) -> Result<Vec<u8>, SigningError>;

    fn is_token_signature(&self, message: &[u8], signature: &[u8]) -> bool;

    /// What tokens say they were signed with.
    fn token_key(&self) -> TokenKey;
}

/// Whom a certificate is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedNames {
    pub common_name: String,
    pub organizations: Vec<String>,
    pub dns_names: Vec<String>,
    pub email_addresses: Vec<String>,
    pub ip_addresses: Vec<String>,
    pub uris: Vec<String>,
}

/// The key that tokens are signed with, as others may know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenKey {
    pub algorithm: &'static str,
    pub id: String,
    /// The public key, as a JSON web key.
    pub public: Value,
}

/// For clusters within a process: it signs the same thing the same way each time, and nobody outside believes it.
#[derive(Clone, Debug, Default)]
pub struct SimulatedSigner {
    seed: u64,
}

impl SimulatedSigner {
    pub fn new(seed: u64) -> SimulatedSigner {
        SimulatedSigner { seed }
    }

    fn digest(&self, message: &[u8]) -> Vec<u8> {
        let mut hash = Sha256::new();
        hash.update(self.seed.to_be_bytes());
        hash.update(message);
        hash.finalize().to_vec()
    }
}

impl Signer for SimulatedSigner {
    /// `CN;O,O;DNS,DNS`
    fn read_request(&self, request: &str) -> Result<RequestedNames, SigningError> {
        let mut parts = request.split(';');
        let mut part = || parts.next().unwrap_or_default();
        let many = |text: &str| text.split(',').filter(|one| !one.is_empty()).map(str::to_owned).collect();
        Ok(RequestedNames {
            common_name: part().to_owned(),
            organizations: many(part()),
            dns_names: many(part()),
            ..RequestedNames::default()
        })
    }

    fn sign_certificate(
        &self,
        request: &str,
        usages: &[&str],
        expiration_seconds: Option<i64>,
        now: Timestamp,
    ) -> Result<String, SigningError> {
        let said = json!({
            "request": request,
            "usages": usages,
            "expirationSeconds": expiration_seconds,
            "now": now.to_string(),
            "seed": self.seed,
        });
        Ok(crablet_x509::pem::encode("CERTIFICATE", said.to_string().as_bytes()))
    }

    fn sign_token(&self, message: &[u8]) -> Result<Vec<u8>, SigningError> {
        Ok(self.digest(message))
    }

    fn is_token_signature(&self, message: &[u8], signature: &[u8]) -> bool {
        self.digest(message) == signature
    }

    fn token_key(&self) -> TokenKey {
        let id = format!("simulated-{}", self.seed);
        TokenKey { algorithm: "ES256", public: json!({"kty": "oct", "kid": id}), id }
    }
}
