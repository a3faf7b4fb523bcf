//! Whether an image is pulled every time: it is where its reference names something that moves.

use crate::core::PullPolicy;

/// The longest path of a repository.
const LONGEST_PATH: usize = 255;

/// The domain of a reference that names none, and where its images without a path are.
const DEFAULT_DOMAIN: &str = "docker.io";
const DEFAULT_PATH: &str = "library/";

/// When to pull an image, by its reference. `latest` moves, and so does what names neither a tag nor a digest. A
/// reference that cannot be understood names nothing that could move; whether it is valid is not decided here.
pub(super) fn pull_policy(reference: &str) -> PullPolicy {
    match tag(reference) {
        Some("latest") => PullPolicy::Always,
        Some(_) | None => PullPolicy::IfNotPresent,
    }
}

/// The tag of a reference: `latest` where it has neither tag nor digest, empty where it has only a digest. Nothing
/// where the reference is not a valid one.
fn tag(reference: &str) -> Option<&str> {
    if is_lower_hex(reference, 64) {
        // This is the identifier of an image that the runtime has, not the name of one.
        return None;
    }
    let (domain, remainder) = split_domain(reference);
    let (tagged, digest) = split_at(remainder, '@');
    let (path, tag) = split_at(tagged, ':');
    let valid =
        is_valid_name(domain, path) && tag.is_none_or(is_valid_tag) && digest.is_none_or(is_valid_digest);
    valid.then(|| tag.unwrap_or(if digest.is_some() { "" } else { "latest" }))
}

/// A first component is a domain where it could not be the name of a user.
fn split_domain(reference: &str) -> (&str, &str) {
    match reference.split_once('/') {
        Some((first, rest))
            if first == "localhost"
                || first.contains(['.', ':'])
                || first.contains(|character: char| character.is_uppercase()) =>
        {
            (first, rest)
        }
        Some(_) | None => (DEFAULT_DOMAIN, reference),
    }
}

fn split_at(text: &str, separator: char) -> (&str, Option<&str>) {
    match text.split_once(separator) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

fn is_valid_name(domain: &str, path: &str) -> bool {
    let implied = match domain {
        DEFAULT_DOMAIN | "index.docker.io" if !path.contains('/') => DEFAULT_PATH.len(),
        _ => 0,
    };
    // What looks like a domain but cannot be one may still be the first component of the path.
    let as_path = if is_valid_domain(domain) { 0 } else { domain.len() + 1 };
    path.split('/').all(is_valid_component)
        && (as_path == 0 || is_valid_component(domain))
        && as_path + implied + path.len() <= LONGEST_PATH
}

/// A host name, an IPv4 address or an IPv6 address in brackets, and a port.
fn is_valid_domain(domain: &str) -> bool {
    if let Some(bracketed) = domain.strip_prefix('[') {
        let Some((address, port)) = bracketed.split_once(']') else { return false };
        return !address.is_empty()
            && address.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':')
            && (port.is_empty() || port.strip_prefix(':').is_some_and(is_number));
    }
    let (host, port) = split_at(domain, ':');
    host.split('.').all(is_valid_label) && port.is_none_or(is_number)
}

fn is_valid_label(label: &str) -> bool {
    !label.is_empty()
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Small letters and digits, with a dot, one or two underscores or any number of dashes in between.
fn is_valid_component(component: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = component.as_bytes();
    bytes.first().is_some_and(|first| is_inner(*first))
        && bytes.last().is_some_and(|last| is_inner(*last))
        && bytes.split(|byte| is_inner(*byte)).all(|separator| match separator {
            b"" | b"." | b"_" | b"__" => true,
            dashes => dashes.iter().all(|byte| *byte == b'-'),
        })
}

fn is_valid_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= 128
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

fn is_valid_digest(digest: &str) -> bool {
    match digest.split_once(':') {
        Some(("sha256", encoded)) => is_lower_hex(encoded, 64),
        Some(("sha384", encoded)) => is_lower_hex(encoded, 96),
        Some(("sha512", encoded)) => is_lower_hex(encoded, 128),
        Some(_) | None => false,
    }
}

fn is_lower_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    #[test]
    fn a_reference_without_tag_and_digest_is_the_latest() {
        for image in [
            "busybox",
            "library/busybox",
            "registry:5000/busybox",
            "localhost/a",
            "10.0.0.1/a/b",
            "[::1]:80/a",
        ] {
            assert_eq!(tag(image), Some("latest"), "{image}");
        }
    }

    #[test]
    fn a_tag_is_what_follows_the_last_component() {
        for (image, expected) in [
            ("busybox:1.36", "1.36"),
            ("busybox:latest", "latest"),
            ("registry:5000", "5000"),
            ("registry:5000/busybox:v1", "v1"),
            ("[fd00::1]:5000/a:v1", "v1"),
            ("Registry/a:V_1.2-x", "V_1.2-x"),
            ("index.docker.io/a:1", "1"),
            ("a_b.c/d:1", "1"),
            ("a__b/c--d/e.f:1", "1"),
            ("a:latests", "latests"),
        ] {
            assert_eq!(tag(image), Some(expected), "{image}");
        }
    }

    #[test]
    fn a_digest_stands_for_a_tag_but_does_not_hide_one() {
        assert_eq!(tag(&format!("busybox@sha256:{HEX}")), Some(""));
        assert_eq!(tag(&format!("r:5000/busybox@sha512:{HEX}{HEX}")), Some(""));
        assert_eq!(tag(&format!("busybox:1@sha256:{HEX}")), Some("1"));
        assert_eq!(tag(&format!("busybox:latest@sha256:{HEX}")), Some("latest"));
    }

    #[test]
    fn an_invalid_reference_has_no_tag() {
        let long = "a".repeat(300);
        let invalid = [
            "",
            "/",
            "a/",
            "/a",
            "a:",
            "a:-",
            "A",
            "a/B",
            "a b",
            "-a",
            "a-",
            "a..b",
            "a___b",
            "a.-b",
            "a//b",
            "ä",
            ":tag",
            "a:b:c",
            "a:b/c",
            "a@",
            "a@sha256:",
            "a@sha256:abc",
            "a@b@c",
            "[::1/a",
            "[]/a",
            "-x.y/a",
            ".x/a",
            "x:/a",
            "x:y/a",
            HEX,
            &long,
            &format!("a@sha1:{HEX}"),
            &format!("a@sha256:{}", HEX.to_uppercase()),
            &format!("a@sha256:{HEX}/b"),
            &format!("a:{}", &long[..129]),
            "http://a/b",
        ];
        for image in invalid {
            assert_eq!(tag(image), None, "{image}");
        }
    }

    #[test]
    fn a_path_has_at_most_255_characters_with_what_is_implied() {
        let path = "a".repeat(247);
        assert_eq!(tag(&path), Some("latest"));
        assert_eq!(tag(&format!("{path}a")), None);
        assert_eq!(tag(&format!("docker.io/{path}a")), None);
        assert_eq!(tag(&format!("r.io/{path}12345678")), Some("latest"));
        assert_eq!(tag(&format!("r.io/{path}123456789")), None);
        assert_eq!(tag(&format!("r_.io/{path}1234")), None);
        assert_eq!(tag(&format!("r_o.io/{path}1")), Some("latest"));
        assert_eq!(tag(&format!("r_o.io/{path}12")), None);
    }
}
