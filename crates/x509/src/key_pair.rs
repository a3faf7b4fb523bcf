//! Keys that certificates are of.

use std::fmt;

use aws_lc_rs::encoding::{AsDer, EcPrivateKeyRfc5915Der, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};

use crate::certificate::CertificateError;
use crate::pem;

/// A key for ECDSA with P-256. Its `Debug` shows nothing of it.
pub struct KeyPair {
    pair: EcdsaKeyPair,
    /// The `SubjectPublicKeyInfo`.
    public: Box<[u8]>,
}

impl KeyPair {
    pub fn generate() -> Result<KeyPair, CertificateError> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING);
        KeyPair::of(pair.map_err(|_| CertificateError::Cryptography)?)
    }

    /// The first key in a PEM, whether it is one of OpenSSL's (`EC PRIVATE KEY`) or PKCS #8.
    pub fn parse(pem: &str) -> Result<KeyPair, CertificateError> {
        let blocks = pem::blocks(pem.as_bytes());
        let mut keys = blocks.iter().filter(|block| block.label.ends_with("PRIVATE KEY")).peekable();
        if keys.peek().is_none() {
            return Err(CertificateError::NotPem);
        }
        let read = |key: &pem::Block| {
            EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_ASN1_SIGNING, &key.bytes).ok()
        };
        KeyPair::of(keys.find_map(read).ok_or(CertificateError::Key)?)
    }

    fn of(pair: EcdsaKeyPair) -> Result<KeyPair, CertificateError> {
        let public: PublicKeyX509Der<'_> =
            pair.public_key().as_der().map_err(|_| CertificateError::Cryptography)?;
        let public = public.as_ref().into();
        Ok(KeyPair { pair, public })
    }

    /// In PEM, as `EC PRIVATE KEY`: what Go's tools write.
    pub fn to_pem(&self) -> Result<String, CertificateError> {
        let der: EcPrivateKeyRfc5915Der<'_> =
            self.pair.private_key().as_der().map_err(|_| CertificateError::Cryptography)?;
        Ok(pem::encode("EC PRIVATE KEY", der.as_ref()))
    }

    /// In PEM, as `PRIVATE KEY`: PKCS #8.
    pub fn to_pkcs8_pem(&self) -> Result<String, CertificateError> {
        let der = self.pair.to_pkcs8v1().map_err(|_| CertificateError::Cryptography)?;
        Ok(pem::encode("PRIVATE KEY", der.as_ref()))
    }

    /// The `SubjectPublicKeyInfo`.
    pub fn public(&self) -> &[u8] {
        &self.public
    }

    pub(crate) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, CertificateError> {
        let signature = self.pair.sign(&SystemRandom::new(), message);
        Ok(signature.map_err(|_| CertificateError::Cryptography)?.as_ref().to_vec())
    }
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("KeyPair").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_same_in_both_kinds_of_pem() {
        let key = KeyPair::generate().unwrap();
        let pem = key.to_pem().unwrap();
        assert!(pem.starts_with("-----BEGIN EC PRIVATE KEY-----\n"), "{}", pem.lines().next().unwrap());
        for pem in [pem, key.to_pkcs8_pem().unwrap()] {
            let beside_others =
                format!("-----BEGIN EC PARAMETERS-----\nYWJj\n-----END EC PARAMETERS-----\n{pem}");
            let read = KeyPair::parse(&beside_others).unwrap();
            assert_eq!(read.public(), key.public());
        }
    }

    #[test]
    fn what_is_no_key_is_refused_and_no_key_is_shown() {
        assert!(matches!(KeyPair::parse(""), Err(CertificateError::NotPem)));
        let torn = KeyPair::generate().unwrap().to_pem().unwrap();
        assert!(matches!(KeyPair::parse(&torn[..torn.len() / 2]), Err(CertificateError::NotPem)));
        let other = pem::encode("PRIVATE KEY", b"hunter2");
        let error = KeyPair::parse(&other).unwrap_err();
        assert_eq!(error.to_string(), "it is no key for ECDSA with P-256");
        assert_eq!(format!("{:?}", KeyPair::generate().unwrap()), "KeyPair { .. }");
    }
}
