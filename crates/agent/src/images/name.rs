//! The names of images, by the rules of Docker's references, and why a text is none, in Go's words.

use std::borrow::Cow;

/// The domain of a name that has none, and where its images without a path are.
const DEFAULT_DOMAIN: &str = "docker.io";
const DEFAULT_PATH: &str = "library/";
/// The longest path of a repository.
const LONGEST_PATH: usize = 255;

/// Why a text is no name of an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NameError {
    #[error("invalid repository name ({0}), cannot specify 64-byte hexadecimal strings")]
    IsIdentifier(String),
    #[error("invalid reference format: repository name ({0}) must be lowercase")]
    UppercasePath(String),
    #[error("repository name must be lowercase")]
    UppercaseName,
    #[error("invalid reference format")]
    Format,
    #[error("repository name must not be more than {LONGEST_PATH} characters")]
    TooLong,
    #[error("unsupported digest algorithm")]
    DigestAlgorithm,
    #[error("invalid checksum digest length")]
    DigestLength,
    #[error("invalid checksum digest format")]
    DigestFormat,
}

/// The name with the tag `latest` where it has neither a tag nor a digest. Nothing else is added to it: what a short
/// name stands for is up to the runtime.
pub(super) fn with_default_tag(image: &str) -> Result<Cow<'_, str>, NameError> {
    if is_lower_hex(image) && image.len() == 64 {
        return Err(NameError::IsIdentifier(image.to_owned()));
    }
    let (domain, rest) = split_domain(image);
    let path = rest.split(':').next().unwrap_or_default();
    if path.chars().any(char::is_uppercase) {
        return Err(NameError::UppercasePath(path.to_owned()));
    }
    let Some(parts) = Parts::of(domain, &rest) else {
        let (domain, rest) = (domain.to_lowercase(), rest.to_lowercase());
        let is_case = Parts::of(&domain, &rest).is_some();
        return Err(if is_case { NameError::UppercaseName } else { NameError::Format });
    };
    if parts.path_length > LONGEST_PATH {
        return Err(NameError::TooLong);
    }
    match (parts.tag, parts.digest) {
        (_, Some((algorithm, encoded))) => check_digest(algorithm, encoded).map(|()| image.into()),
        (Some(_), None) => Ok(image.into()),
        (None, None) => Ok(format!("{image}:latest").into()),
    }
}

/// A name whose form is right.
struct Parts<'a> {
    path_length: usize,
    tag: Option<&'a str>,
    digest: Option<(&'a str, &'a str)>,
}

impl Parts<'_> {
    fn of<'a>(domain: &str, rest: &'a str) -> Option<Parts<'a>> {
        let (tagged, digest) = split_at(rest, '@');
        let (path, tag) = split_at(tagged, ':');
        // What looks like a domain but cannot be one may still be the first component of the path.
        let before = if is_domain(domain) { 0 } else { domain.len() + 1 };
        let digest = match digest {
            Some(digest) => Some(digest.split_once(':').filter(|(algorithm, encoded)| {
                is_algorithm(algorithm)
                    && encoded.len() >= 32
                    && encoded.bytes().all(|byte| byte.is_ascii_hexdigit())
            })?),
            None => None,
        };
        let is_right = (before == 0 || is_component(domain))
            && path.split('/').all(is_component)
            && tag.is_none_or(is_tag);
        is_right.then_some(Parts { path_length: before + path.len(), tag, digest })
    }
}

/// A first component is a domain where it could not be the name of a user.
fn split_domain(image: &str) -> (&str, Cow<'_, str>) {
    let (domain, rest) = match image.split_once('/') {
        Some(("index.docker.io", rest)) => (DEFAULT_DOMAIN, rest),
        Some((first, rest))
            if first == "localhost"
                || first.contains(['.', ':'])
                || first.chars().any(char::is_uppercase) =>
        {
            (first, rest)
        }
        Some(_) | None => (DEFAULT_DOMAIN, image),
    };
    match domain == DEFAULT_DOMAIN && !rest.contains('/') {
        true => (domain, format!("{DEFAULT_PATH}{rest}").into()),
        false => (domain, rest.into()),
    }
}

fn split_at(text: &str, separator: char) -> (&str, Option<&str>) {
    match text.split_once(separator) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

/// A host name, an IPv4 address or an IPv6 address in brackets, and a port.
fn is_domain(domain: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(bracketed) = domain.strip_prefix('[') {
        let Some((address, port)) = bracketed.split_once(']') else { return false };
        return !address.is_empty()
            && address.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':')
            && (port.is_empty() || port.strip_prefix(':').is_some_and(is_number));
    }
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let (host, port) = split_at(domain, ':');
    host.split('.').all(is_label) && port.is_none_or(is_number)
}

/// Small letters and digits, with a dot, one or two underscores or any number of dashes in between.
fn is_component(component: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = component.as_bytes();
    bytes.first().is_some_and(|first| is_inner(*first))
        && bytes.last().is_some_and(|last| is_inner(*last))
        && bytes.split(|byte| is_inner(*byte)).all(|separator| match separator {
            b"" | b"." | b"_" | b"__" => true,
            dashes => dashes.iter().all(|byte| *byte == b'-'),
        })
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= 128
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

/// Words that begin with a letter, joined by `-`, `_`, `+` or `.`.
fn is_algorithm(algorithm: &str) -> bool {
    algorithm.split(['-', '_', '+', '.']).all(|word| {
        word.starts_with(|first: char| first.is_ascii_alphabetic())
            && word.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

fn check_digest(algorithm: &str, encoded: &str) -> Result<(), NameError> {
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        other if other.bytes().any(|byte| byte.is_ascii_uppercase()) => return Err(NameError::DigestFormat),
        _ => return Err(NameError::DigestAlgorithm),
    };
    if encoded.len() != length {
        Err(NameError::DigestLength)
    } else if is_lower_hex(encoded) {
        Ok(())
    } else {
        Err(NameError::DigestFormat)
    }
}

fn is_lower_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEX: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    #[test]
    fn a_name_without_tag_and_digest_gets_one_and_is_else_left_alone() {
        let digested = format!("busybox@sha256:{HEX}");
        let both = format!("r:5000/busybox:1@sha256:{HEX}");
        for (image, expected) in [
            ("busybox", "busybox:latest"),
            ("library/busybox", "library/busybox:latest"),
            ("registry:5000/busybox", "registry:5000/busybox:latest"),
            ("[fd00::1]:5000/a", "[fd00::1]:5000/a:latest"),
            ("a_b.c/d", "a_b.c/d:latest"),
            ("busybox:1.36", "busybox:1.36"),
            ("registry:5000", "registry:5000"),
            ("busybox:latest", "busybox:latest"),
            ("Registry/a:V_1", "Registry/a:V_1"),
            (&digested, &digested),
            (&both, &both),
        ] {
            assert_eq!(with_default_tag(image).unwrap(), expected);
        }
    }

    #[test]
    fn what_is_no_name_is_refused_in_gos_words() {
        let upper = format!("a@sha256:{}", HEX.to_uppercase());
        for (image, expected) in [
            ("", "invalid reference format"),
            (":invalid", "invalid reference format"),
            ("a b", "invalid reference format"),
            ("a@b", "invalid reference format"),
            ("http://a/b", "invalid reference format"),
            ("a:b:c", "invalid reference format"),
            ("ä", "invalid reference format"),
            ("Busybox", "invalid reference format: repository name (library/Busybox) must be lowercase"),
            ("r.io/A/b:1", "invalid reference format: repository name (A/b) must be lowercase"),
            ("Foo_bar/x", "repository name must be lowercase"),
            (HEX, &format!("invalid repository name ({HEX}), cannot specify 64-byte hexadecimal strings")),
            (&"a".repeat(248), "repository name must not be more than 255 characters"),
            (&format!("a@sha1:{HEX}"), "unsupported digest algorithm"),
            (&format!("a:1@SHA256:{HEX}"), "invalid checksum digest format"),
            (&format!("a@sha256:{}", &HEX[..40]), "invalid checksum digest length"),
            ("a@sha256:abc", "invalid reference format"),
            (&upper, "invalid checksum digest format"),
        ] {
            assert_eq!(with_default_tag(image).unwrap_err().to_string(), expected, "{image}");
        }
    }

    proptest! {
        #[test]
        fn a_name_that_is_accepted_is_accepted_again_and_stays(image in "[a-zA-Z0-9:/@._-]{0,30}|\\PC{0,30}") {
            if let Ok(tagged) = with_default_tag(&image) {
                prop_assert_eq!(with_default_tag(&tagged).unwrap(), tagged.clone());
                prop_assert!(tagged.starts_with(&image));
            }
        }
    }
}
