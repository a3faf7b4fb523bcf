//! Public keys of others: what kind they are, and whether they signed something.

use aws_lc_rs::signature::{self, ParsedPublicKey, VerificationAlgorithm};
use x509_cert::der::asn1::{AnyRef, ObjectIdentifier, UintRef};
use x509_cert::der::{Decode, Reader, SliceReader};
use x509_cert::spki::SubjectPublicKeyInfoOwned;

#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey(SubjectPublicKeyInfoOwned);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    Ed25519,
    Ecdsa(Curve),
    Rsa { bits: usize },
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    P224,
    P256,
    P384,
    P521,
}

impl PublicKey {
    pub(crate) fn new(key: &SubjectPublicKeyInfoOwned) -> PublicKey {
        PublicKey(key.clone())
    }

    pub fn from_der(der: &[u8]) -> Option<PublicKey> {
        SubjectPublicKeyInfoOwned::from_der(der).ok().map(PublicKey)
    }

    pub fn kind(&self) -> KeyKind {
        let algorithm = &self.0.algorithm;
        match algorithm.oid.to_string().as_str() {
            "1.3.101.112" => KeyKind::Ed25519,
            "1.2.840.113549.1.1.1" => KeyKind::Rsa { bits: self.modulus_bytes().unwrap_or(0) * 8 },
            "1.2.840.10045.2.1" => {
                let curve = algorithm.parameters.as_ref().and_then(|curve| curve.decode_as().ok());
                match curve.map(|curve: ObjectIdentifier| curve.to_string()).as_deref() {
                    Some("1.3.132.0.33") => KeyKind::Ecdsa(Curve::P224),
                    Some("1.2.840.10045.3.1.7") => KeyKind::Ecdsa(Curve::P256),
                    Some("1.3.132.0.34") => KeyKind::Ecdsa(Curve::P384),
                    Some("1.3.132.0.35") => KeyKind::Ecdsa(Curve::P521),
                    Some(_) | None => KeyKind::Other,
                }
            }
            _ => KeyKind::Other,
        }
    }

    pub fn has_signed(
        &self,
        algorithm: &'static dyn VerificationAlgorithm,
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        let key = self.0.subject_public_key.as_bytes().unwrap_or_default();
        ParsedPublicKey::new(algorithm, key).is_ok_and(|key| key.verify_sig(message, signature).is_ok())
    }

    /// Whether it signed a message in the way that pods prove to have their key.
    pub fn has_proved(&self, message: &[u8], signature: &[u8]) -> bool {
        let algorithm: &'static dyn VerificationAlgorithm = match self.kind() {
            KeyKind::Ed25519 => &signature::ED25519,
            KeyKind::Ecdsa(Curve::P256) => &signature::ECDSA_P256_SHA256_ASN1,
            KeyKind::Ecdsa(Curve::P384) => &signature::ECDSA_P384_SHA256_ASN1,
            KeyKind::Ecdsa(Curve::P521) => &signature::ECDSA_P521_SHA256_ASN1,
            KeyKind::Rsa { .. } => &signature::RSA_PSS_2048_8192_SHA256,
            KeyKind::Ecdsa(Curve::P224) | KeyKind::Other => return false,
        };
        self.has_signed(algorithm, message, signature)
    }

    fn modulus_bytes(&self) -> Option<usize> {
        let key = AnyRef::from_der(self.0.subject_public_key.as_bytes()?).ok()?;
        let modulus: UintRef<'_> = SliceReader::new(key.value()).ok()?.decode().ok()?;
        Some(modulus.as_bytes().len())
    }
}
