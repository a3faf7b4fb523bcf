//! What is within PEM, as far as rules ask: blocks, and the subject of a request.

use base64::Engine as _;

pub(super) struct Block {
    pub(super) label: String,
    pub(super) has_headers: bool,
    pub(super) bytes: Vec<u8>,
}

/// The blocks of a PEM text. What is not one is passed over, as Go does.
pub(super) fn pem_blocks(text: &[u8]) -> Vec<Block> {
    let text = String::from_utf8_lossy(text);
    let mut blocks = Vec::new();
    let mut rest = text.as_ref();
    while let Some(start) = rest.find("-----BEGIN ") {
        let after = &rest[start + 11..];
        let Some((label, body)) = after.split_once("-----") else { break };
        let end = format!("-----END {label}-----");
        let Some((body, following)) = body.split_once(&end) else {
            rest = after;
            continue;
        };
        let has_headers = body.contains(':');
        let encoded: String = body.chars().filter(|character| !character.is_whitespace()).collect();
        let bytes = base64::engine::general_purpose::STANDARD.decode(&encoded);
        if has_headers || bytes.is_ok() {
            blocks.push(Block { label: label.to_owned(), has_headers, bytes: bytes.unwrap_or_default() });
        }
        rest = following;
    }
    blocks
}

/// Whether something is one sequence of ASN.1, and nothing after it.
pub(super) fn is_sequence(der: &[u8]) -> bool {
    element(der, 0x30).is_some_and(|(inner, rest)| !inner.is_empty() && rest.is_empty())
}

/// Who a request is for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) common_name: String,
    pub(crate) organizations: Vec<String>,
}

/// The subject of a request, which is PEM in base64; none if it is no request.
pub(crate) fn subject(encoded: &str) -> Option<Subject> {
    let pem = base64::engine::general_purpose::STANDARD.decode(encoded).ok()?;
    let blocks = pem_blocks(&pem);
    let block = blocks.first().filter(|block| block.label == "CERTIFICATE REQUEST")?;
    let (request, _) = element(&block.bytes, 0x30)?;
    let (information, _) = element(request, 0x30)?;
    let (_, rest) = element(information, 0x02)?;
    let (mut names, _) = element(rest, 0x30)?;
    let mut subject = Subject::default();
    while !names.is_empty() {
        let (set, rest) = element(names, 0x31)?;
        names = rest;
        let mut parts = set;
        while !parts.is_empty() {
            let (part, rest) = element(parts, 0x30)?;
            parts = rest;
            let (kind, value) = element(part, 0x06)?;
            let (text, _) = element(value, *value.first()?)?;
            let text = String::from_utf8_lossy(text).into_owned();
            match kind {
                [0x55, 0x04, 0x03] => subject.common_name = text,
                [0x55, 0x04, 0x0a] => subject.organizations.push(text),
                _ => {}
            }
        }
    }
    Some(subject)
}

/// What an element of ASN.1 with a tag has within, and what follows it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (first, rest) = der.split_first()?;
    if *first != tag {
        return None;
    }
    let (length, rest) = rest.split_first()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(*length), rest),
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(*length & 0x7f))?;
            (digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

pub(super) fn request_problem(pem: &[u8]) -> Option<String> {
    let blocks = pem_blocks(pem);
    let Some(block) = blocks.first().filter(|block| block.label == "CERTIFICATE REQUEST") else {
        return Some("PEM block type must be CERTIFICATE REQUEST".to_owned());
    };
    (!is_sequence(&block.bytes)).then(|| "asn1: structure error: tags don't match".to_owned())
}

pub(super) fn certificate_problem(pem: &[u8]) -> Option<String> {
    if pem.is_empty() {
        return None;
    }
    let blocks = pem_blocks(pem);
    for block in &blocks {
        if block.label != "CERTIFICATE" {
            return Some(format!("only CERTIFICATE PEM blocks are allowed, found {:?}", block.label));
        }
        if block.has_headers {
            return Some("no PEM block headers are permitted".to_owned());
        }
        if !is_sequence(&block.bytes) {
            return Some("x509: malformed certificate".to_owned());
        }
    }
    blocks.is_empty().then(|| "must contain at least one CERTIFICATE PEM block".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subject_of_a_request_is_read() {
        let name = |kind: u8, text: &str| {
            let mut part = vec![0x06, 3, 0x55, 0x04, kind, 0x0c, text.len() as u8];
            part.extend(text.bytes());
            let mut sequence = vec![0x30, part.len() as u8];
            sequence.extend(part);
            let mut set = vec![0x31, sequence.len() as u8];
            set.extend(sequence);
            set
        };
        let wrap = |tag: u8, inner: Vec<u8>| {
            let mut element = vec![tag, 0x81, inner.len() as u8];
            element.extend(inner);
            element
        };
        let names = [name(0x0a, "system:nodes"), name(0x03, "system:node:n1")].concat();
        let mut information = vec![0x02, 1, 0];
        information.extend(wrap(0x30, names));
        let engine = base64::engine::general_purpose::STANDARD;
        let der = engine.encode(wrap(0x30, wrap(0x30, information)));
        let pem = format!("-----BEGIN CERTIFICATE REQUEST-----\n{der}\n-----END CERTIFICATE REQUEST-----\n");
        let expected = Subject {
            common_name: "system:node:n1".to_owned(),
            organizations: vec!["system:nodes".to_owned()],
        };
        assert_eq!(subject(&engine.encode(pem)), Some(expected));
        assert_eq!(subject("eA=="), None);
    }
}
