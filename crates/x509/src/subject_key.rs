//! Keys of the kinds that pods ask for, and the proof that somebody has one.

use std::fmt;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P521_SHA512_ASN1_SIGNING,
    EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use x509_cert::der::asn1::{Any, BitString, ObjectIdentifier, SetOfVec};
use x509_cert::der::{Decode as _, Encode as _};
use x509_cert::name::Name;
use x509_cert::request::{CertReq, CertReqInfo, Version};
use x509_cert::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};

use crate::certificate::CertificateError;
use crate::pem;
use crate::request::ECDSA_WITH_SHA_256;

const ECDSA_WITH_SHA_384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.3");
const ECDSA_WITH_SHA_512: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.4");
const RSA_WITH_SHA_256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.11");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");

/// A kind of key. Its words are Kubernetes'.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyType {
    Rsa3072,
    Rsa4096,
    EcdsaP256,
    EcdsaP384,
    EcdsaP521,
    Ed25519,
}

impl KeyType {
    pub const ALL: [KeyType; 6] = [
        KeyType::Rsa3072,
        KeyType::Rsa4096,
        KeyType::EcdsaP256,
        KeyType::EcdsaP384,
        KeyType::EcdsaP521,
        KeyType::Ed25519,
    ];

    pub fn word(self) -> &'static str {
        match self {
            KeyType::Rsa3072 => "RSA3072",
            KeyType::Rsa4096 => "RSA4096",
            KeyType::EcdsaP256 => "ECDSAP256",
            KeyType::EcdsaP384 => "ECDSAP384",
            KeyType::EcdsaP521 => "ECDSAP521",
            KeyType::Ed25519 => "ED25519",
        }
    }

    /// The kind that a word means.
    pub fn of(word: &str) -> Option<KeyType> {
        KeyType::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

/// A key that certificates are asked for. Its `Debug` shows nothing of it.
pub struct SubjectKey(Pair);

enum Pair {
    Rsa(RsaKeyPair),
    Ecdsa(EcdsaKeyPair, ObjectIdentifier),
    Ed25519(Ed25519KeyPair),
}

impl SubjectKey {
    /// A new one. One for RSA takes seconds.
    pub fn generate(kind: KeyType) -> Result<SubjectKey, CertificateError> {
        let ecdsa = |curve: &'static EcdsaSigningAlgorithm, signature| {
            EcdsaKeyPair::generate(curve).map(|pair| Pair::Ecdsa(pair, signature))
        };
        let pair = match kind {
            KeyType::Rsa3072 => RsaKeyPair::generate(KeySize::Rsa3072).map(Pair::Rsa),
            KeyType::Rsa4096 => RsaKeyPair::generate(KeySize::Rsa4096).map(Pair::Rsa),
            KeyType::EcdsaP256 => ecdsa(&ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_WITH_SHA_256),
            KeyType::EcdsaP384 => ecdsa(&ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_WITH_SHA_384),
            KeyType::EcdsaP521 => ecdsa(&ECDSA_P521_SHA512_ASN1_SIGNING, ECDSA_WITH_SHA_512),
            KeyType::Ed25519 => Ed25519KeyPair::generate().map(Pair::Ed25519),
        };
        pair.map(SubjectKey).map_err(|_| CertificateError::Cryptography)
    }

    /// In PEM, as `PRIVATE KEY`: PKCS #8.
    pub fn to_pkcs8_pem(&self) -> Result<String, CertificateError> {
        let encoded = match &self.0 {
            Pair::Rsa(pair) => {
                AsDer::<Pkcs8V1Der<'_>>::as_der(pair).map(|der| pem::encode("PRIVATE KEY", der.as_ref()))
            }
            Pair::Ecdsa(pair, _) => pair.to_pkcs8v1().map(|der| pem::encode("PRIVATE KEY", der.as_ref())),
            Pair::Ed25519(pair) => pair.to_pkcs8v1().map(|der| pem::encode("PRIVATE KEY", der.as_ref())),
        };
        encoded.map_err(|_| CertificateError::Cryptography)
    }

    /// A request for a certificate that names nobody, in DER: it only proves that whoever made it has the key.
    pub fn stub_request(&self) -> Result<Vec<u8>, CertificateError> {
        let public = self.public().map_err(|_| CertificateError::Cryptography)?;
        let public =
            SubjectPublicKeyInfoOwned::from_der(public.as_ref()).map_err(CertificateError::Encode)?;
        let info = CertReqInfo {
            version: Version::V1,
            subject: Name::default(),
            public_key: public,
            attributes: SetOfVec::new(),
        };
        let signed = info.to_der().map_err(CertificateError::Encode)?;
        let signature = self.sign(&signed).map_err(|_| CertificateError::Cryptography)?;
        let whole = || {
            CertReq { info, algorithm: self.algorithm(), signature: BitString::from_bytes(&signature)? }
                .to_der()
        };
        whole().map_err(CertificateError::Encode)
    }

    fn public(&self) -> Result<PublicKeyX509Der<'static>, Unspecified> {
        match &self.0 {
            Pair::Rsa(pair) => pair.public_key().as_der(),
            Pair::Ecdsa(pair, _) => pair.public_key().as_der(),
            Pair::Ed25519(pair) => pair.public_key().as_der(),
        }
    }

    /// By what it signs, as Go chooses it.
    fn algorithm(&self) -> AlgorithmIdentifierOwned {
        let (oid, parameters) = match &self.0 {
            Pair::Rsa(_) => (RSA_WITH_SHA_256, Some(Any::null())),
            Pair::Ecdsa(_, oid) => (*oid, None),
            Pair::Ed25519(_) => (ED25519, None),
        };
        AlgorithmIdentifierOwned { oid, parameters }
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Unspecified> {
        match &self.0 {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature)?;
                Ok(signature)
            }
            Pair::Ecdsa(pair, _) => Ok(pair.sign(&SystemRandom::new(), message)?.as_ref().to_vec()),
            Pair::Ed25519(pair) => Ok(pair.sign(message).as_ref().to_vec()),
        }
    }
}

impl fmt::Debug for SubjectKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SubjectKey").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::public_key::{Curve, KeyKind};
    use crate::request::CertificateRequest;

    #[test]
    fn every_kind_of_key_can_be_made_kept_and_proved() {
        for (kind, expected) in [
            (KeyType::Rsa3072, KeyKind::Rsa { bits: 3072 }),
            (KeyType::EcdsaP256, KeyKind::Ecdsa(Curve::P256)),
            (KeyType::EcdsaP384, KeyKind::Ecdsa(Curve::P384)),
            (KeyType::EcdsaP521, KeyKind::Ecdsa(Curve::P521)),
            (KeyType::Ed25519, KeyKind::Ed25519),
        ] {
            let key = SubjectKey::generate(kind).unwrap();
            let request = CertificateRequest::from_der(&key.stub_request().unwrap()).unwrap();
            assert_eq!(request.signature_problem(), None, "{kind:?}");
            assert_eq!(request.key().kind(), expected, "{kind:?}");
            assert!(request.common_name().is_empty() && request.dns_names().is_empty());
            let pem = key.to_pkcs8_pem().unwrap();
            let blocks = pem::blocks(pem.as_bytes());
            assert!(blocks.len() == 1 && blocks[0].label == "PRIVATE KEY", "{kind:?}");
            let der = &blocks[0].bytes;
            let read = match kind {
                KeyType::Rsa3072 | KeyType::Rsa4096 => RsaKeyPair::from_pkcs8(der).map(Pair::Rsa).ok(),
                KeyType::EcdsaP256 => read_ecdsa(&ECDSA_P256_SHA256_ASN1_SIGNING, der),
                KeyType::EcdsaP384 => read_ecdsa(&ECDSA_P384_SHA384_ASN1_SIGNING, der),
                KeyType::EcdsaP521 => read_ecdsa(&ECDSA_P521_SHA512_ASN1_SIGNING, der),
                KeyType::Ed25519 => Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).map(Pair::Ed25519).ok(),
            };
            let public = |key: &SubjectKey| key.public().unwrap().as_ref().to_vec();
            assert_eq!(public(&SubjectKey(read.unwrap())), public(&key), "{kind:?}");
            assert_eq!(format!("{key:?}"), "SubjectKey { .. }");
        }
    }

    fn read_ecdsa(curve: &'static EcdsaSigningAlgorithm, der: &[u8]) -> Option<Pair> {
        EcdsaKeyPair::from_pkcs8(curve, der).map(|pair| Pair::Ecdsa(pair, ECDSA_WITH_SHA_256)).ok()
    }

    #[test]
    fn kinds_are_found_by_their_words() {
        for kind in KeyType::ALL {
            assert_eq!(KeyType::of(kind.word()), Some(kind));
        }
        assert_eq!(KeyType::of("RSA2048"), None);
    }
}
