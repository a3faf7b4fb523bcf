//! The certificate authority.

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};
use x509_cert::certificate::Version;
use x509_cert::der::asn1::{
    Any, BitString, ContextSpecific, GeneralizedTime, ObjectIdentifier, OctetString, UtcTime,
};
use x509_cert::der::{Decode, Encode, Tag, TagMode, TagNumber};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::{
    AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage, KeyUsages, SubjectAltName,
    SubjectKeyIdentifier,
};
use x509_cert::name::Name;
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};
use x509_cert::time::{Time, Validity};

use crate::certificate::{AlternativeName, Certificate, CertificateError, Purpose};
use crate::key_pair::KeyPair;
use crate::name::distinguished;
use crate::pem;
use crate::request::{CertificateRequest, ECDSA_WITH_SHA_256};

/// Clocks differ.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);
/// Certificates that last less are not ended earlier for that.
const SHORT: SignedDuration = SignedDuration::from_hours(8);
/// How long what is asked for by a request lasts, unless it asks for less.
const REQUESTED_LASTS: SignedDuration = SignedDuration::from_hours(365 * 24);
const REQUESTED_LASTS_AT_LEAST: SignedDuration = SignedDuration::from_mins(10);

/// Who a certificate is of.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'s> {
    pub name: &'s str,
    pub groups: &'s [&'s str],
}

/// Why something was not signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SigningError {
    #[error("unable to parse certificate request: {0}")]
    Malformed(String),
    #[error("unable to verify certificate request signature")]
    WrongSignature,
    #[error("unrecognized key usage: {0:?}")]
    UnknownUsage(String),
    #[error("the signer has expired: NotAfter={0}")]
    SignerExpired(Timestamp),
    #[error("failed to sign: {0}")]
    Failed(String),
}

/// Signs certificates.
pub struct Authority {
    /// In PEM.
    certificate: String,
    name: Name,
    key: KeyPair,
    /// What certificates say of the key that signed them.
    key_identifier: Vec<u8>,
    not_after: Timestamp,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Authority").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// All that is said in a certificate.
struct Contents {
    subject: Name,
    public: SubjectPublicKeyInfoOwned,
    usages: Usages,
    names: Option<SubjectAltName>,
    is_authority: bool,
    not_before: Timestamp,
    not_after: Timestamp,
}

#[derive(Default)]
struct Usages {
    key: Option<KeyUsage>,
    extended: Vec<ObjectIdentifier>,
}

impl Authority {
    /// A new one, which signs itself.
    pub fn make(
        key: KeyPair,
        name: &str,
        names: &[AlternativeName],
        now: Timestamp,
        lasts: SignedDuration,
    ) -> Result<Authority, CertificateError> {
        let name = distinguished(Subject { name, groups: &[] }).map_err(CertificateError::Encode)?;
        let not_after = add(now, lasts);
        let public =
            SubjectPublicKeyInfoOwned::from_der(key.public()).map_err(CertificateError::Malformed)?;
        let mut authority = Authority::with_key(key, name.clone(), not_after);
        let der = authority.sign(Contents {
            subject: name,
            public,
            usages: usages_of(Purpose::Authority),
            names: alternative(names)?,
            is_authority: true,
            not_before: add(now, -BACKDATE),
            not_after,
        })?;
        authority.certificate = pem::encode("CERTIFICATE", &der);
        Ok(authority)
    }

    /// The one of a certificate in PEM and its key.
    pub fn open(certificate: &str, key: KeyPair) -> Result<Authority, CertificateError> {
        let parsed = Certificate::parse(certificate)?;
        let mut authority = Authority::with_key(key, parsed.subject().clone(), parsed.not_after());
        authority.certificate = certificate.to_owned();
        Ok(authority)
    }

    fn with_key(key: KeyPair, name: Name, not_after: Timestamp) -> Authority {
        let key_identifier = key_identifier(key.public());
        Authority { certificate: String::new(), name, key, key_identifier, not_after }
    }

    /// In PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Whether a certificate is that of our key.
    pub fn is_of(&self, certificate: &Certificate) -> bool {
        certificate.is_of_key(self.key.public())
    }

    /// Whether a certificate says that we signed it.
    pub fn has_signed(&self, certificate: &Certificate) -> bool {
        certificate.authority_key().is_some_and(|key| key == self.key_identifier)
    }

    /// A certificate of our own making, in PEM.
    pub fn issue(
        &self,
        public: &[u8],
        subject: Subject<'_>,
        names: &[AlternativeName],
        purpose: Purpose,
        now: Timestamp,
        lasts: SignedDuration,
    ) -> Result<String, CertificateError> {
        let public = SubjectPublicKeyInfoOwned::from_der(public).map_err(CertificateError::Malformed)?;
        let der = self.sign(Contents {
            subject: distinguished(subject).map_err(CertificateError::Encode)?,
            public,
            usages: usages_of(purpose),
            names: alternative(names)?,
            is_authority: false,
            not_before: add(now, -BACKDATE),
            not_after: add(now, lasts).min(self.not_after),
        })?;
        Ok(pem::encode("CERTIFICATE", &der))
    }

    /// The certificate for somebody's request, both in PEM, as upstream's signers make it.
    pub fn sign_request(
        &self,
        request: &str,
        usages: &[&str],
        expiration_seconds: Option<i64>,
        now: Timestamp,
    ) -> Result<String, SigningError> {
        let request =
            CertificateRequest::parse(request).map_err(|error| SigningError::Malformed(error.to_string()))?;
        if request.signature_problem().is_some() {
            return Err(SigningError::WrongSignature);
        }
        if now >= self.not_after {
            return Err(SigningError::SignerExpired(self.not_after));
        }
        let usages = usages_named(usages)?;
        let lasts = expiration_seconds.map_or(REQUESTED_LASTS, |seconds| {
            SignedDuration::from_secs(seconds).clamp(REQUESTED_LASTS_AT_LEAST, REQUESTED_LASTS)
        });
        let lasts = if lasts < SHORT { lasts } else { lasts - BACKDATE };
        let names = request.alternative_names();
        let der = self.sign(Contents {
            subject: request.subject().clone(),
            public: request.public_key().clone(),
            usages,
            names: (!names.is_empty()).then_some(SubjectAltName(names)),
            is_authority: false,
            not_before: add(now, -BACKDATE),
            not_after: add(now, lasts).min(self.not_after),
        });
        Ok(pem::encode("CERTIFICATE", &der.map_err(|error| SigningError::Failed(error.to_string()))?))
    }

    fn sign(&self, contents: Contents) -> Result<Vec<u8>, CertificateError> {
        let algorithm = AlgorithmIdentifierOwned { oid: ECDSA_WITH_SHA_256, parameters: None };
        let signed = self.signed_part(contents, &algorithm).map_err(CertificateError::Encode)?;
        let signature = self.key.sign(&signed)?;
        let whole = || {
            let mut whole = signed;
            algorithm.encode_to_vec(&mut whole)?;
            BitString::from_bytes(&signature)?.encode_to_vec(&mut whole)?;
            Any::new(Tag::Sequence, whole)?.to_der()
        };
        whole().map_err(CertificateError::Encode)
    }

    fn signed_part(
        &self,
        contents: Contents,
        algorithm: &AlgorithmIdentifierOwned,
    ) -> x509_cert::der::Result<Vec<u8>> {
        let mut serial = [0; 16];
        // Without chance there would be no keys either.
        aws_lc_rs::rand::fill(&mut serial).map_err(|_| x509_cert::der::ErrorKind::Failed)?;
        serial[0] = (serial[0] & 0x7f) | 0x40;
        let public = contents.public.to_der()?;
        let mut part = Vec::new();
        explicit(0, Version::V3).encode_to_vec(&mut part)?;
        SerialNumber::<x509_cert::certificate::Rfc5280>::new(&serial)?.encode_to_vec(&mut part)?;
        algorithm.encode_to_vec(&mut part)?;
        self.name.encode_to_vec(&mut part)?;
        let validity: Validity = Validity::new(time(contents.not_before)?, time(contents.not_after)?);
        validity.encode_to_vec(&mut part)?;
        contents.subject.encode_to_vec(&mut part)?;
        part.extend_from_slice(&public);
        explicit(3, self.extensions(contents, &public)?).encode_to_vec(&mut part)?;
        Any::new(Tag::Sequence, part)?.to_der()
    }

    fn extensions(&self, contents: Contents, public: &[u8]) -> x509_cert::der::Result<Vec<Extension>> {
        let mut extensions = Vec::new();
        if let Some(usage) = &contents.usages.key {
            extensions.push(extension("2.5.29.15", true, usage)?);
        }
        if !contents.usages.extended.is_empty() {
            extensions.push(extension("2.5.29.37", false, &ExtendedKeyUsage(contents.usages.extended))?);
        }
        let constraints = BasicConstraints { ca: contents.is_authority, path_len_constraint: None };
        extensions.push(extension("2.5.29.19", true, &constraints)?);
        if contents.is_authority {
            let own = SubjectKeyIdentifier(OctetString::new(key_identifier(public))?);
            extensions.push(extension("2.5.29.14", false, &own)?);
        } else {
            let authority = AuthorityKeyIdentifier {
                key_identifier: Some(OctetString::new(self.key_identifier.as_slice())?),
                ..AuthorityKeyIdentifier::default()
            };
            extensions.push(extension("2.5.29.35", false, &authority)?);
        }
        if let Some(names) = &contents.names {
            // Who has no other name has this one for sure.
            extensions.push(extension("2.5.29.17", contents.subject.is_empty(), names)?);
        }
        Ok(extensions)
    }
}

fn extension(id: &str, critical: bool, value: &impl Encode) -> x509_cert::der::Result<Extension> {
    let extn_id = ObjectIdentifier::new(id).map_err(|_| x509_cert::der::ErrorKind::Failed)?;
    Ok(Extension { extn_id, critical, extn_value: OctetString::new(value.to_der()?)? })
}

fn explicit<T>(number: u32, value: T) -> ContextSpecific<T> {
    ContextSpecific { tag_number: TagNumber(number), tag_mode: TagMode::Explicit, value }
}

fn key_identifier(public: &[u8]) -> Vec<u8> {
    Sha256::digest(public)[..20].to_vec()
}

fn alternative(names: &[AlternativeName]) -> Result<Option<SubjectAltName>, CertificateError> {
    let names = names.iter().map(AlternativeName::general).collect::<Result<Vec<_>, _>>();
    let names = names.map_err(CertificateError::Encode)?;
    Ok((!names.is_empty()).then_some(SubjectAltName(names)))
}

fn time(at: Timestamp) -> x509_cert::der::Result<Time> {
    let since = std::time::Duration::from_secs(u64::try_from(at.as_second()).unwrap_or_default());
    match UtcTime::from_unix_duration(since) {
        Ok(time) => Ok(Time::UtcTime(time)),
        // From 2050 on.
        Err(_) => Ok(Time::GeneralTime(GeneralizedTime::from_unix_duration(since)?)),
    }
}

fn add(at: Timestamp, duration: SignedDuration) -> Timestamp {
    at.checked_add(duration).unwrap_or(Timestamp::MAX)
}

fn usages_of(purpose: Purpose) -> Usages {
    let (key, extended) = match purpose {
        Purpose::Authority => (vec!["digital signature", "key encipherment", "cert sign"], None),
        Purpose::Server => (vec!["digital signature", "key encipherment"], Some("server auth")),
        Purpose::Client => (vec!["digital signature", "key encipherment"], Some("client auth")),
    };
    let all: Vec<&str> = key.into_iter().chain(extended).collect();
    usages_named(&all).unwrap_or_default()
}

/// Usages as the API names them.
fn usages_named(names: &[&str]) -> Result<Usages, SigningError> {
    let mut usages = Usages::default();
    for name in names {
        if let Some(flag) = key_usage(name) {
            let mut flags = usages.key.unwrap_or(KeyUsage(Default::default()));
            flags.0 |= flag;
            usages.key = Some(flags);
        } else if let Some(id) = extended_key_usage(name) {
            let id = ObjectIdentifier::new(id).map_err(|error| SigningError::Failed(error.to_string()))?;
            usages.extended.push(id);
        } else {
            return Err(SigningError::UnknownUsage((*name).to_owned()));
        }
    }
    Ok(usages)
}

fn key_usage(name: &str) -> Option<KeyUsages> {
    Some(match name {
        "signing" | "digital signature" => KeyUsages::DigitalSignature,
        "content commitment" => KeyUsages::NonRepudiation,
        "key encipherment" => KeyUsages::KeyEncipherment,
        "key agreement" => KeyUsages::KeyAgreement,
        "data encipherment" => KeyUsages::DataEncipherment,
        "cert sign" => KeyUsages::KeyCertSign,
        "crl sign" => KeyUsages::CRLSign,
        "encipher only" => KeyUsages::EncipherOnly,
        "decipher only" => KeyUsages::DecipherOnly,
        _ => return None,
    })
}

fn extended_key_usage(name: &str) -> Option<&'static str> {
    Some(match name {
        "any" => "2.5.29.37.0",
        "server auth" => "1.3.6.1.5.5.7.3.1",
        "client auth" => "1.3.6.1.5.5.7.3.2",
        "code signing" => "1.3.6.1.5.5.7.3.3",
        "email protection" | "s/mime" => "1.3.6.1.5.5.7.3.4",
        "ipsec end system" => "1.3.6.1.5.5.7.3.5",
        "ipsec tunnel" => "1.3.6.1.5.5.7.3.6",
        "ipsec user" => "1.3.6.1.5.5.7.3.7",
        "timestamping" => "1.3.6.1.5.5.7.3.8",
        "ocsp signing" => "1.3.6.1.5.5.7.3.9",
        "microsoft sgc" => "1.3.6.1.4.1.311.10.3.3",
        "netscape sgc" => "2.16.840.1.113730.4.1",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LASTS: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);

    fn request(key: &KeyPair, name: &str, groups: &[&str], names: &[&str]) -> String {
        let names: Vec<_> = names.iter().map(|name| AlternativeName::of(name)).collect();
        CertificateRequest::make(key, Subject { name, groups }, &names).unwrap()
    }

    fn now() -> Timestamp {
        "2026-11-15T12:00:00Z".parse().unwrap()
    }

    fn authority() -> Authority {
        Authority::make(KeyPair::generate().unwrap(), "kubernetes", &[], now(), LASTS).unwrap()
    }

    #[test]
    fn a_request_is_signed_with_its_names_and_key() {
        let authority = authority();
        let key = KeyPair::generate().unwrap();
        let request = request(&key, "alice", &["one", "two"], &["node.example", "192.0.2.7"]);
        let usages = ["digital signature", "client auth"];
        let signed = authority.sign_request(&request, &usages, Some(3600), now()).unwrap();
        let signed = Certificate::parse(&signed).unwrap();
        assert_eq!(signed.common_name(), "alice");
        let mut groups = signed.organizations();
        groups.sort();
        assert_eq!(groups, ["one", "two"]);
        assert!(signed.has_exactly(&[AlternativeName::of("node.example"), AlternativeName::of("192.0.2.7")]));
        assert!(signed.is_of_key(key.public()) && authority.has_signed(&signed));
        assert_eq!(signed.not_after(), add(now(), SignedDuration::from_hours(1)));
    }

    #[test]
    fn a_certificate_lasts_as_long_as_asked_within_bounds() {
        let authority = authority();
        let request = request(&KeyPair::generate().unwrap(), "alice", &[], &[]);
        for (asked, minutes) in [
            (None, 365 * 24 * 60 - 5),
            (Some(1), 10),
            (Some(i64::MAX), 365 * 24 * 60 - 5),
            (Some(8 * 3600), 8 * 60 - 5),
            (Some(8 * 3600 - 60), 8 * 60 - 1),
        ] {
            let signed = authority.sign_request(&request, &["client auth"], asked, now()).unwrap();
            let ends = Certificate::parse(&signed).unwrap().not_after();
            assert_eq!(ends, add(now(), SignedDuration::from_mins(minutes)), "{asked:?}");
        }
        let late = add(now(), LASTS - SignedDuration::from_hours(1));
        let signed = authority.sign_request(&request, &["client auth"], None, late).unwrap();
        assert_eq!(Certificate::parse(&signed).unwrap().not_after(), authority.not_after);
        let error = authority.sign_request(&request, &[], None, add(now(), LASTS)).unwrap_err();
        assert_eq!(error, SigningError::SignerExpired(authority.not_after));
    }

    #[test]
    fn bad_requests_are_refused() {
        let authority = authority();
        let sign = |request: &str, usages: &[&str]| {
            authority.sign_request(request, usages, None, now()).unwrap_err()
        };
        let good = request(&KeyPair::generate().unwrap(), "alice", &[], &[]);
        assert_eq!(sign(&good, &["fly"]), SigningError::UnknownUsage("fly".to_owned()));
        assert!(matches!(sign("junk", &[]), SigningError::Malformed(_)));
        let certificate = authority.certificate().replace("CERTIFICATE", "CERTIFICATE REQUEST");
        assert!(matches!(sign(&certificate, &[]), SigningError::Malformed(_)));
        // What it says is not what was signed.
        let mut other = pem::blocks(good.as_bytes()).remove(0).bytes;
        let place = other.windows(5).position(|part| part == b"alice").unwrap();
        other[place..place + 5].copy_from_slice(b"malle");
        let other = pem::encode("CERTIFICATE REQUEST", &other);
        assert_eq!(sign(&other, &[]), SigningError::WrongSignature);
    }
}
