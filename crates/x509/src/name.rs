//! Distinguished names: whom a certificate is of.

use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::{Any, ObjectIdentifier, PrintableStringRef, SetOfVec};
use x509_cert::der::{Decode, Encode, Tag, Tagged as _};
use x509_cert::name::Name;

use crate::authority::Subject;

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");

/// As Go writes it: organizations before the common name, and all of them in one part.
pub(crate) fn distinguished(subject: Subject<'_>) -> x509_cert::der::Result<Name> {
    let mut parts = Vec::new();
    for (id, values) in [(ORGANIZATION, subject.groups), (COMMON_NAME, &[subject.name])] {
        if !values.is_empty() {
            let values = values.iter().map(|value| attribute(id, value)).collect::<Result<Vec<_>, _>>()?;
            SetOfVec::try_from(values)?.encode_to_vec(&mut parts)?;
        }
    }
    Name::from_der(&Any::new(Tag::Sequence, parts)?.to_der()?)
}

fn attribute(oid: ObjectIdentifier, value: &str) -> x509_cert::der::Result<AttributeTypeAndValue> {
    let tag = match PrintableStringRef::new(value) {
        Ok(_) => Tag::PrintableString,
        Err(_) => Tag::Utf8String,
    };
    Ok(AttributeTypeAndValue { oid, value: Any::new(tag, value.as_bytes())? })
}

/// Empty if there is none.
pub(crate) fn common_name(name: &Name) -> String {
    // As Go does: the last counts.
    texts(name, COMMON_NAME).pop().unwrap_or_default()
}

pub(crate) fn organizations(name: &Name) -> Vec<String> {
    texts(name, ORGANIZATION)
}

fn texts(name: &Name, wanted: ObjectIdentifier) -> Vec<String> {
    let parts = name.iter_rdn().flat_map(|relative| relative.iter());
    parts.filter(|part| part.oid == wanted).filter_map(|part| text(&part.value)).collect()
}

/// What a value says, by the alphabet that it is in. In one that is not known here it says nothing: bytes that spell
/// another name in ASCII than the signer saw must not count.
fn text(value: &Any) -> Option<String> {
    let bytes = value.value();
    match value.tag() {
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String | Tag::NumericString | Tag::VisibleString => {
            String::from_utf8(bytes.to_vec()).ok()
        }
        Tag::TeletexString => Some(bytes.iter().map(|byte| char::from(*byte)).collect()),
        Tag::BmpString => {
            let (pairs, []) = bytes.as_chunks::<2>() else { return None };
            let units: Vec<u16> = pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect();
            String::from_utf16(&units).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_what_go_writes_whatever_it_holds() {
        let of = |name: &str, groups: &[&str]| distinguished(Subject { name, groups }).unwrap();
        let node = of("system:node:gold36", &["system:nodes"]);
        assert_eq!(
            (common_name(&node).as_str(), organizations(&node)),
            ("system:node:gold36", vec!["system:nodes".to_owned()])
        );
        // The beginning of what the Go kubelet sent.
        let der = node.to_der().unwrap();
        assert_eq!(&der[..14], b"\x30\x34\x31\x15\x30\x13\x06\x03\x55\x04\x0a\x13\x0csy".get(..14).unwrap());
        let odd = of("a,CN=b+c\\é", &["two", "one"]);
        assert_eq!(common_name(&odd), "a,CN=b+c\\é");
        assert_eq!(organizations(&odd).len(), 2);
        assert_eq!(common_name(&of("", &[])), "");
    }

    #[test]
    fn a_value_says_what_its_alphabet_makes_of_it() {
        for (tag, bytes, expected) in [
            (Tag::PrintableString, b"ab".as_slice(), Some("ab")),
            (Tag::Utf8String, "é".as_bytes(), Some("é")),
            (Tag::Utf8String, b"\xe9", None),
            (Tag::TeletexString, b"\xe9", Some("é")),
            (Tag::BmpString, b"\0a\0b", Some("ab")),
            (Tag::BmpString, b"system:masters", Some("獹獴敭㩭慳瑥牳")),
            (Tag::BmpString, b"odd", None),
            (Tag::OctetString, b"system:masters", None),
        ] {
            assert_eq!(text(&Any::new(tag, bytes).unwrap()).as_deref(), expected, "{tag:?} {bytes:?}");
        }
    }
}
