//! Certificates, read and written.

use std::collections::BTreeSet;
use std::net::IpAddr;

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use sha2::{Digest, Sha256};
use x509_cert::der::asn1::{Ia5String, OctetString};
use x509_cert::der::{Decode, Encode};
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{AuthorityKeyIdentifier, BasicConstraints, SubjectAltName};
use x509_cert::name::Name;

use crate::name::{common_name, organizations};
use crate::public_key::PublicKey;

#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("it is no PEM of the expected kind")]
    NotPem,
    #[error("it is malformed")]
    Malformed(#[source] x509_cert::der::Error),
    #[error("it is no key for ECDSA with P-256")]
    Key,
    #[error("cannot encode it")]
    Encode(#[source] x509_cert::der::Error),
    #[error("cannot make a key, or sign")]
    Cryptography,
}

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Authority,
    Server,
    Client,
}

/// Another name of a subject.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlternativeName {
    Dns(String),
    Ip(IpAddr),
}

impl AlternativeName {
    pub fn of(text: &str) -> AlternativeName {
        match text.parse() {
            Ok(address) => AlternativeName::Ip(address),
            Err(_) => AlternativeName::Dns(text.to_owned()),
        }
    }

    pub fn general(&self) -> x509_cert::der::Result<GeneralName> {
        Ok(match self {
            AlternativeName::Dns(name) => GeneralName::DnsName(Ia5String::new(name)?),
            AlternativeName::Ip(IpAddr::V4(address)) => {
                GeneralName::IpAddress(OctetString::new(address.octets())?)
            }
            AlternativeName::Ip(IpAddr::V6(address)) => {
                GeneralName::IpAddress(OctetString::new(address.octets())?)
            }
        })
    }
}

/// A certificate that can be asked.
#[derive(Clone, Debug)]
pub struct Certificate {
    parsed: x509_cert::Certificate,
    fingerprint: [u8; 32],
}

impl Certificate {
    /// The first in a PEM.
    pub fn parse(pem: &str) -> Result<Certificate, CertificateError> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|_| CertificateError::NotPem)?;
        Certificate::from_der(&der)
    }

    pub fn from_der(der: &[u8]) -> Result<Certificate, CertificateError> {
        let parsed = x509_cert::Certificate::from_der(der).map_err(CertificateError::Malformed)?;
        Ok(Certificate { parsed, fingerprint: Sha256::digest(der).into() })
    }

    /// Empty if there is none.
    pub fn common_name(&self) -> String {
        common_name(self.parsed.tbs_certificate().subject())
    }

    pub fn organizations(&self) -> Vec<String> {
        organizations(self.parsed.tbs_certificate().subject())
    }

    pub fn not_before(&self) -> Timestamp {
        timestamp(self.parsed.tbs_certificate().validity().not_before)
    }

    pub fn not_after(&self) -> Timestamp {
        timestamp(self.parsed.tbs_certificate().validity().not_after)
    }

    /// Whether it says that it may sign others.
    pub fn is_authority(&self) -> bool {
        let constraints = self.parsed.tbs_certificate().get_extension::<BasicConstraints>();
        matches!(constraints, Ok(Some((_, BasicConstraints { ca: true, .. }))))
    }

    pub fn key(&self) -> PublicKey {
        PublicKey::new(self.parsed.tbs_certificate().subject_public_key_info())
    }

    pub fn alternative_names(&self) -> Vec<GeneralName> {
        match self.parsed.tbs_certificate().get_extension::<SubjectAltName>() {
            Ok(Some((_, SubjectAltName(names)))) => names,
            Ok(None) | Err(_) => Vec::new(),
        }
    }

    /// The SHA-256 of the whole.
    pub fn fingerprint(&self) -> String {
        self.fingerprint.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn subject(&self) -> &Name {
        self.parsed.tbs_certificate().subject()
    }

    pub fn is_of_key(&self, public: &[u8]) -> bool {
        let own = self.parsed.tbs_certificate().subject_public_key_info().to_der();
        own.is_ok_and(|own| own == public)
    }

    /// What it says of the key that signed it.
    pub(crate) fn authority_key(&self) -> Option<Vec<u8>> {
        let found = self.parsed.tbs_certificate().get_extension::<AuthorityKeyIdentifier>();
        Some(found.ok()??.1.key_identifier?.as_bytes().to_vec())
    }

    pub fn has_exactly(&self, names: &[AlternativeName]) -> bool {
        encoded(names).is_some_and(|wanted| self.encoded_names() == wanted)
    }

    /// Whether these are among its names.
    pub fn has_all(&self, names: &[AlternativeName]) -> bool {
        encoded(names).is_some_and(|wanted| self.encoded_names().is_superset(&wanted))
    }

    fn encoded_names(&self) -> BTreeSet<Vec<u8>> {
        self.alternative_names().iter().filter_map(|name| name.to_der().ok()).collect()
    }
}

fn encoded(names: &[AlternativeName]) -> Option<BTreeSet<Vec<u8>>> {
    names.iter().map(|name| name.general().and_then(|name| name.to_der()).ok()).collect()
}

fn timestamp(time: x509_cert::time::Time) -> Timestamp {
    let seconds = i64::try_from(time.to_unix_duration().as_secs()).ok();
    seconds.and_then(|seconds| Timestamp::from_second(seconds).ok()).unwrap_or(Timestamp::MAX)
}
