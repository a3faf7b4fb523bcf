//! The keys of the cluster: those of its certificate authority and of its service accounts' tokens.

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{Authority, CertificateError, CertificateRequest};
use crate::signing::{RequestedNames, Signer, SigningError, TokenKey};

pub struct Keys {
    authority: Authority,
    tokens: EcdsaKeyPair,
    id: String,
}

impl Keys {
    /// With the key of tokens in PEM.
    pub(super) fn new(authority: Authority, tokens: &str) -> Result<Keys, CertificateError> {
        let key =
            PrivatePkcs8KeyDer::from_pem_slice(tokens.as_bytes()).map_err(|_| CertificateError::NotPem)?;
        let tokens = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.secret_pkcs8_der())
            .map_err(|_| CertificateError::Key)?;
        let public: PublicKeyX509Der<'_> =
            tokens.public_key().as_der().map_err(|_| CertificateError::Cryptography)?;
        let id = URL_SAFE_NO_PAD.encode(Sha256::digest(public.as_ref()));
        Ok(Keys { authority, tokens, id })
    }

    pub fn authority(&self) -> &Authority {
        &self.authority
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Keys").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The same if they sign the same.
impl PartialEq for Keys {
    fn eq(&self, other: &Keys) -> bool {
        self.id == other.id && self.authority.certificate() == other.authority.certificate()
    }
}

impl Signer for Keys {
    fn read_request(&self, request: &str) -> Result<RequestedNames, SigningError> {
        let request =
            CertificateRequest::parse(request).map_err(|error| SigningError::Malformed(error.to_string()))?;
        Ok(RequestedNames {
            common_name: request.common_name(),
            organizations: request.organizations(),
            dns_names: request.dns_names(),
            email_addresses: request.email_addresses(),
            ip_addresses: request.ip_addresses().iter().map(ToString::to_string).collect(),
            uris: request.uris(),
        })
    }

    fn sign_certificate(
        &self,
        request: &str,
        usages: &[&str],
        expiration_seconds: Option<i64>,
        now: Timestamp,
    ) -> Result<String, SigningError> {
        self.authority.sign_request(request, usages, expiration_seconds, now)
    }

    fn sign_token(&self, message: &[u8]) -> Result<Vec<u8>, SigningError> {
        let signature = self.tokens.sign(&SystemRandom::new(), message);
        let signature = signature.map_err(|_| SigningError::Failed("the key refused".to_owned()))?;
        Ok(signature.as_ref().to_vec())
    }

    fn is_token_signature(&self, message: &[u8], signature: &[u8]) -> bool {
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.tokens.public_key().as_ref());
        key.verify(message, signature).is_ok()
    }

    fn token_key(&self) -> TokenKey {
        // A point that is not compressed: a byte that says so, and two numbers of 32 bytes.
        let point = self.tokens.public_key().as_ref();
        let number = |from: usize| URL_SAFE_NO_PAD.encode(point.get(from..from + 32).unwrap_or_default());
        let public = json!({
            "use": "sig",
            "kty": "EC",
            "kid": self.id,
            "crv": "P-256",
            "alg": "ES256",
            "x": number(1),
            "y": number(33),
        });
        TokenKey { algorithm: "ES256", id: self.id.clone(), public }
    }
}
