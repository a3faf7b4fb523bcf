//! Certificate signing requests (PKCS #10).

use std::net::IpAddr;

use aws_lc_rs::signature::{self, VerificationAlgorithm};
use x509_cert::attr::Attribute;
use x509_cert::der::asn1::{AnyRef, BitString, ObjectIdentifier, OctetString, SetOfVec};
use x509_cert::der::{Decode, Encode, Header, Reader, SliceReader};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::Name;
use x509_cert::request::{CertReq, CertReqInfo, ExtensionReq, Version};
use x509_cert::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};

use crate::authority::Subject;
use crate::certificate::{AlternativeName, CertificateError};
use crate::key_pair::KeyPair;
use crate::name::{common_name, distinguished, organizations};
use crate::pem;
use crate::public_key::{Curve, KeyKind, PublicKey};

const EXTENSION_REQUEST: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.14");
pub(crate) const ECDSA_WITH_SHA_256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2");
const SUBJECT_ALT_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");

/// A request for a certificate, read.
#[derive(Clone, Debug)]
pub struct CertificateRequest {
    parsed: CertReq,
    /// What the signature is of, as it came.
    signed: Vec<u8>,
    names: Vec<GeneralName>,
}

/// Why something is no request, as Go says it.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    NotPem,
    #[error("{0}")]
    Malformed(String),
}

impl CertificateRequest {
    /// A new one, in PEM.
    pub fn make(
        key: &KeyPair,
        subject: Subject<'_>,
        names: &[AlternativeName],
    ) -> Result<String, CertificateError> {
        let info = info(key, subject, names).map_err(CertificateError::Encode)?;
        let signature = key.sign(&info.to_der().map_err(CertificateError::Encode)?)?;
        let whole = || {
            let algorithm = AlgorithmIdentifierOwned { oid: ECDSA_WITH_SHA_256, parameters: None };
            CertReq { info, algorithm, signature: BitString::from_bytes(&signature)? }.to_der()
        };
        Ok(pem::encode("CERTIFICATE REQUEST", &whole().map_err(CertificateError::Encode)?))
    }

    /// Reads the request that a PEM begins with. Whether its signature is right is another question.
    pub fn parse(pem: &str) -> Result<CertificateRequest, RequestError> {
        match pem::blocks(pem.as_bytes()).first() {
            Some(block) if block.label == "CERTIFICATE REQUEST" => CertificateRequest::from_der(&block.bytes),
            Some(_) | None => Err(RequestError::NotPem),
        }
    }

    pub fn from_der(der: &[u8]) -> Result<CertificateRequest, RequestError> {
        CertificateRequest::decode(der).map_err(|error| RequestError::Malformed(problem(der, &error)))
    }

    fn decode(der: &[u8]) -> x509_cert::der::Result<CertificateRequest> {
        let parsed = CertReq::from_der(der)?;
        let whole = AnyRef::from_der(der)?;
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
        common_name(&self.parsed.info.subject)
    }

    pub fn organizations(&self) -> Vec<String> {
        organizations(&self.parsed.info.subject)
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

    /// Why whoever made it does not seem to have the key that it is about, as Go says it.
    pub fn signature_problem(&self) -> Option<&'static str> {
        let Some(algorithm) = self.algorithm() else {
            return Some("x509: cannot verify signature: algorithm unimplemented");
        };
        let key = self.key();
        let signature = self.parsed.signature.as_bytes().unwrap_or_default();
        (!key.has_signed(algorithm, &self.signed, signature)).then(|| match key.kind() {
            KeyKind::Rsa { .. } => "crypto/rsa: verification error",
            KeyKind::Ed25519 => "x509: Ed25519 verification failure",
            KeyKind::Ecdsa(_) | KeyKind::Other => "x509: ECDSA verification failure",
        })
    }

    pub fn key(&self) -> PublicKey {
        PublicKey::new(&self.parsed.info.public_key)
    }

    pub(crate) fn subject(&self) -> &Name {
        &self.parsed.info.subject
    }

    pub(crate) fn public_key(&self) -> &SubjectPublicKeyInfoOwned {
        &self.parsed.info.public_key
    }

    /// The names that go into a certificate: those of the kinds that Go knows.
    pub(crate) fn alternative_names(&self) -> Vec<GeneralName> {
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
        Some(match (self.parsed.algorithm.oid.to_string().as_str(), self.key().kind()) {
            ("1.2.840.10045.4.3.2", KeyKind::Ecdsa(Curve::P256)) => &signature::ECDSA_P256_SHA256_ASN1,
            ("1.2.840.10045.4.3.3", KeyKind::Ecdsa(Curve::P256)) => &signature::ECDSA_P256_SHA384_ASN1,
            ("1.2.840.10045.4.3.2", KeyKind::Ecdsa(Curve::P384)) => &signature::ECDSA_P384_SHA256_ASN1,
            ("1.2.840.10045.4.3.3", KeyKind::Ecdsa(Curve::P384)) => &signature::ECDSA_P384_SHA384_ASN1,
            ("1.2.840.10045.4.3.2", KeyKind::Ecdsa(Curve::P521)) => &signature::ECDSA_P521_SHA256_ASN1,
            ("1.2.840.10045.4.3.3", KeyKind::Ecdsa(Curve::P521)) => &signature::ECDSA_P521_SHA384_ASN1,
            ("1.2.840.10045.4.3.4", KeyKind::Ecdsa(Curve::P521)) => &signature::ECDSA_P521_SHA512_ASN1,
            ("1.2.840.113549.1.1.11", KeyKind::Rsa { .. }) => &signature::RSA_PKCS1_2048_8192_SHA256,
            ("1.2.840.113549.1.1.12", KeyKind::Rsa { .. }) => &signature::RSA_PKCS1_2048_8192_SHA384,
            ("1.2.840.113549.1.1.13", KeyKind::Rsa { .. }) => &signature::RSA_PKCS1_2048_8192_SHA512,
            ("1.3.101.112", KeyKind::Ed25519) => &signature::ED25519,
            _ => return None,
        })
    }
}

fn info(
    key: &KeyPair,
    subject: Subject<'_>,
    names: &[AlternativeName],
) -> x509_cert::der::Result<CertReqInfo> {
    let mut attributes = Vec::new();
    if !names.is_empty() {
        let names = names.iter().map(AlternativeName::general).collect::<Result<Vec<_>, _>>()?;
        let extension = Extension {
            extn_id: SUBJECT_ALT_NAME,
            critical: false,
            extn_value: OctetString::new(SubjectAltName(names).to_der()?)?,
        };
        attributes.push(Attribute::try_from(ExtensionReq(vec![extension]))?);
    }
    Ok(CertReqInfo {
        version: Version::V1,
        subject: distinguished(subject)?,
        public_key: SubjectPublicKeyInfoOwned::from_der(key.public())?,
        attributes: SetOfVec::try_from(attributes)?,
    })
}

/// What Go says of what is no request: exactly where it goes wrong at its beginning or end.
fn problem(der: &[u8], error: &x509_cert::der::Error) -> String {
    let mut der = der;
    for (place, structure) in ["certificateRequest", "tbsCertificateRequest"].into_iter().enumerate() {
        let Some(tag) = der.first().copied() else {
            return "asn1: syntax error: sequence truncated".to_owned();
        };
        let mut reader = match SliceReader::new(der) {
            Ok(reader) => reader,
            Err(error) => return format!("asn1: structure error: {error}"),
        };
        let Ok(header) = Header::decode(&mut reader) else {
            return "asn1: syntax error: data truncated".to_owned();
        };
        let length = u32::from(header.length());
        let Ok(inner) = reader.read_slice(header.length()) else {
            return "asn1: syntax error: data truncated".to_owned();
        };
        if tag != 0x30 {
            let (class, is_compound, number) = (tag >> 6, tag & 0x20 != 0, tag & 0x1f);
            return format!(
                "asn1: structure error: tags don't match (16 vs {{class:{class} tag:{number} length:{length} \
                 isCompound:{is_compound}}}) {{optional:false explicit:false application:false private:false \
                 defaultValue:<nil> tag:<nil> stringType:0 timeType:0 set:false omitEmpty:false}} {structure} @2"
            );
        }
        if place == 0 && !reader.is_finished() {
            return "asn1: syntax error: trailing data".to_owned();
        }
        der = inner;
    }
    format!("asn1: structure error: {error}")
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_made_and_read() {
        let key = KeyPair::generate().unwrap();
        let names = ["a.example", "192.0.2.1", "2001:db8::1"].map(AlternativeName::of);
        let subject = Subject { name: "system:node:n1", groups: &["system:nodes"] };
        let request = CertificateRequest::make(&key, subject, &names).unwrap();
        let request = CertificateRequest::parse(&request).unwrap();
        assert_eq!(request.common_name(), "system:node:n1");
        assert_eq!(request.organizations(), ["system:nodes"]);
        assert_eq!(request.dns_names(), ["a.example"]);
        let addresses: Vec<String> = request.ip_addresses().iter().map(IpAddr::to_string).collect();
        assert_eq!(addresses, ["192.0.2.1", "2001:db8::1"]);
        assert!(request.email_addresses().is_empty() && request.uris().is_empty());
        assert_eq!(request.signature_problem(), None);
        assert!(request.key() == PublicKey::from_der(key.public()).unwrap());
    }
}
