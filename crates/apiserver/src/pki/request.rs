//! Certificate signing requests (PKCS #10).

use std::net::IpAddr;

use aws_lc_rs::signature::{self, ParsedPublicKey, VerificationAlgorithm};
use rustls::pki_types::CertificateSigningRequestDer;
use rustls::pki_types::pem::PemObject;
use x509_cert::der::asn1::{AnyRef, ObjectIdentifier};
use x509_cert::der::{Decode, Encode, Reader, SliceReader};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::Name;
use x509_cert::request::{CertReq, ExtensionReq};
use x509_cert::spki::SubjectPublicKeyInfoOwned;

use super::certificate;

const EXTENSION_REQUEST: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.14");
const SUBJECT_ALT_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");
const P_256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P_384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
const P_521: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.35");

/// A request for a certificate, read.
#[derive(Clone, Debug)]
pub struct CertificateRequest {
    parsed: CertReq,
    /// What the signature is of, as it came.
    signed: Vec<u8>,
    names: Vec<GeneralName>,
}

#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    NotPem,
    #[error("{0}")]
    Malformed(#[from] x509_cert::der::Error),
}

impl CertificateRequest {
    /// Reads the first request in a PEM. Whether its signature is right is another question.
    pub fn parse(pem: &str) -> Result<CertificateRequest, RequestError> {
        let der =
            CertificateSigningRequestDer::from_pem_slice(pem.as_bytes()).map_err(|_| RequestError::NotPem)?;
        let parsed = CertReq::from_der(&der)?;
        let whole = AnyRef::from_der(&der)?;
        let signed = SliceReader::new(whole.value())?.tlv_bytes()?.to_vec();
        let mut names = Vec::new();
        for attribute in parsed.info.attributes.iter().filter(|attribute| attribute.oid == EXTENSION_REQUEST)
        {
            for value in attribute.values.iter() {
                let ExtensionReq(extensions) = ExtensionReq::from_der(&value.to_der()?)?;
                for extension in extensions.iter().filter(|extension| extension.extn_id == SUBJECT_ALT_NAME) {
                    let SubjectAltName(found) = SubjectAltName::from_der(extension.extn_value.as_bytes())?;
                    names.extend(found);
                }
            }
        }
        Ok(CertificateRequest { parsed, signed, names })
    }

    /// Empty if there is none.
    pub fn common_name(&self) -> String {
        certificate::common_name(&self.parsed.info.subject)
    }

    pub fn organizations(&self) -> Vec<String> {
        certificate::organizations(&self.parsed.info.subject)
    }

    pub fn dns_names(&self) -> Vec<String> {
        let names = self.names.iter().filter_map(|name| match name {
            GeneralName::DnsName(name) => Some(name.as_str().to_owned()),
            _ => None,
        });
        names.collect()
    }

    pub fn ip_addresses(&self) -> Vec<IpAddr> {
        let addresses = self.names.iter().filter_map(|name| match name {
            GeneralName::IpAddress(bytes) => address(bytes.as_bytes()),
            _ => None,
        });
        addresses.collect()
    }

    pub fn email_addresses(&self) -> Vec<String> {
        let addresses = self.names.iter().filter_map(|name| match name {
            GeneralName::Rfc822Name(name) => Some(name.as_str().to_owned()),
            _ => None,
        });
        addresses.collect()
    }

    pub fn uris(&self) -> Vec<String> {
        let uris = self.names.iter().filter_map(|name| match name {
            GeneralName::UniformResourceIdentifier(uri) => Some(uri.as_str().to_owned()),
            _ => None,
        });
        uris.collect()
    }

    /// Whether whoever made it has the key that it is about.
    pub fn is_signed_by_its_key(&self) -> bool {
        let Some(algorithm) = self.algorithm() else { return false };
        let Some(key) = self.parsed.info.public_key.subject_public_key.as_bytes() else { return false };
        let Some(signature) = self.parsed.signature.as_bytes() else { return false };
        ParsedPublicKey::new(algorithm, key).is_ok_and(|key| key.verify_sig(&self.signed, signature).is_ok())
    }

    pub(super) fn subject(&self) -> &Name {
        &self.parsed.info.subject
    }

    pub(super) fn public_key(&self) -> &SubjectPublicKeyInfoOwned {
        &self.parsed.info.public_key
    }

    /// The names that go into a certificate: those of the kinds that Go knows.
    pub(super) fn alternative_names(&self) -> Vec<GeneralName> {
        let is_known = |name: &&GeneralName| {
            matches!(
                name,
                GeneralName::DnsName(_)
                    | GeneralName::IpAddress(_)
                    | GeneralName::Rfc822Name(_)
                    | GeneralName::UniformResourceIdentifier(_)
            )
        };
        self.names.iter().filter(is_known).cloned().collect()
    }

    fn algorithm(&self) -> Option<&'static dyn VerificationAlgorithm> {
        let key = &self.parsed.info.public_key.algorithm;
        let curve = key.parameters.as_ref().and_then(|curve| curve.decode_as::<ObjectIdentifier>().ok());
        Some(match (self.parsed.algorithm.oid.to_string().as_str(), curve) {
            ("1.2.840.10045.4.3.2", Some(P_256)) => &signature::ECDSA_P256_SHA256_ASN1,
            ("1.2.840.10045.4.3.3", Some(P_256)) => &signature::ECDSA_P256_SHA384_ASN1,
            ("1.2.840.10045.4.3.2", Some(P_384)) => &signature::ECDSA_P384_SHA256_ASN1,
            ("1.2.840.10045.4.3.3", Some(P_384)) => &signature::ECDSA_P384_SHA384_ASN1,
            ("1.2.840.10045.4.3.2", Some(P_521)) => &signature::ECDSA_P521_SHA256_ASN1,
            ("1.2.840.10045.4.3.3", Some(P_521)) => &signature::ECDSA_P521_SHA384_ASN1,
            ("1.2.840.10045.4.3.4", Some(P_521)) => &signature::ECDSA_P521_SHA512_ASN1,
            ("1.2.840.113549.1.1.11", _) => &signature::RSA_PKCS1_2048_8192_SHA256,
            ("1.2.840.113549.1.1.12", _) => &signature::RSA_PKCS1_2048_8192_SHA384,
            ("1.2.840.113549.1.1.13", _) => &signature::RSA_PKCS1_2048_8192_SHA512,
            ("1.3.101.112", _) => &signature::ED25519,
            _ => return None,
        })
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod testing {
    use std::str::FromStr;

    use aws_lc_rs::rand::SystemRandom;
    use x509_cert::attr::Attribute;
    use x509_cert::der::asn1::{BitString, OctetString, SetOfVec};
    use x509_cert::ext::Extension;
    use x509_cert::request::{CertReqInfo, Version};
    use x509_cert::spki::AlgorithmIdentifierOwned;

    use super::certificate::{AlternativeName, key_pair, public_key};
    use super::*;

    /// A request in PEM for a key, a subject and other names.
    pub(in crate::pki) fn request(key: &str, subject: &str, names: &[&str]) -> String {
        signed(key, subject, names, |_| {})
    }

    pub(in crate::pki) fn with_wrong_signature(key: &str, subject: &str) -> String {
        signed(key, subject, &[], |info| info.subject = Name::from_str("CN=mallory").unwrap())
    }

    fn signed(key: &str, subject: &str, names: &[&str], then: impl Fn(&mut CertReqInfo)) -> String {
        let names: Vec<_> = names.iter().map(|name| AlternativeName::of(name).general().unwrap()).collect();
        let extension = Extension {
            extn_id: SUBJECT_ALT_NAME,
            critical: false,
            extn_value: OctetString::new(SubjectAltName(names.clone()).to_der().unwrap()).unwrap(),
        };
        let attributes = match names.is_empty() {
            true => Vec::new(),
            false => vec![Attribute::try_from(ExtensionReq(vec![extension])).unwrap()],
        };
        let mut info = CertReqInfo {
            version: Version::V1,
            subject: Name::from_str(subject).unwrap(),
            public_key: SubjectPublicKeyInfoOwned::from_der(&public_key(key).unwrap()).unwrap(),
            attributes: SetOfVec::try_from(attributes).unwrap(),
        };
        let signature = key_pair(key).unwrap().sign(&SystemRandom::new(), &info.to_der().unwrap()).unwrap();
        then(&mut info);
        let request = CertReq {
            info,
            algorithm: AlgorithmIdentifierOwned {
                oid: ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2"),
                parameters: None,
            },
            signature: BitString::from_bytes(signature.as_ref()).unwrap(),
        };
        crate::pki::pem("CERTIFICATE REQUEST", &request.to_der().unwrap())
    }
}

#[cfg(test)]
mod tests {
    use super::testing::request;
    use super::*;

    #[test]
    fn a_request_is_read() {
        let key = certificate::new_key().unwrap();
        let names = ["a.example", "192.0.2.1", "2001:db8::1"];
        let request =
            CertificateRequest::parse(&request(&key, "CN=system:node:n1,O=system:nodes", &names)).unwrap();
        assert_eq!(request.common_name(), "system:node:n1");
        assert_eq!(request.organizations(), ["system:nodes"]);
        assert_eq!(request.dns_names(), ["a.example"]);
        let addresses: Vec<String> = request.ip_addresses().iter().map(IpAddr::to_string).collect();
        assert_eq!(addresses, ["192.0.2.1", "2001:db8::1"]);
        assert!(request.email_addresses().is_empty() && request.uris().is_empty());
        assert!(request.is_signed_by_its_key());
    }
}
