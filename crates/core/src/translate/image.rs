//! Names of images.

use std::borrow::Cow;

use super::go_quote;

/// What a repository's name has at most, without its domain.
const MAX_REPOSITORY: usize = 255;

/// A text is not the name of an image. A container waits with [`InvalidImageName::REASON`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "Failed to apply default image tag {quoted}: couldn't parse image name {quoted}: {problem}",
    quoted = go_quote(image)
)]
pub struct InvalidImageName {
    /// The text.
    pub image: String,
    /// What is wrong with it.
    pub problem: ImageNameProblem,
}

impl InvalidImageName {
    /// Why the container waits, in one word.
    pub const REASON: &'static str = "InvalidImageName";
}

/// What is wrong with the name of an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageNameProblem {
    /// It is not made as names are.
    #[error("invalid reference format")]
    Format,
    /// A part has capital letters.
    #[error("invalid reference format: repository name ({0}) must be lowercase")]
    Uppercase(String),
    /// It would be a name if it had no capital letters.
    #[error("repository name must be lowercase")]
    MustBeLowercase,
    /// It is too long.
    #[error("repository name must not be more than {MAX_REPOSITORY} characters")]
    TooLong,
    /// It is an ID.
    #[error("invalid repository name ({0}), cannot specify 64-byte hexadecimal strings")]
    Identifier(String),
    /// Its digest is not made as digests are.
    #[error("invalid checksum digest format")]
    DigestFormat,
    /// Its digest is too short or too long.
    #[error("invalid checksum digest length")]
    DigestLength,
    /// Its digest was made in a way that is not known.
    #[error("unsupported digest algorithm")]
    DigestAlgorithm,
}

/// The name of an image as it is asked for: one without a tag and without a digest is that of the latest.
pub fn with_default_tag(image: &str) -> Result<Cow<'_, str>, InvalidImageName> {
    match parse(image) {
        Ok(true) => Ok(Cow::Borrowed(image)),
        Ok(false) => Ok(Cow::Owned(format!("{image}:latest"))),
        Err(problem) => Err(InvalidImageName { image: image.to_owned(), problem }),
    }
}

/// The repository that an image is in, with its registry and without tag and digest: `docker.io/library/busybox` for
/// `busybox`.
pub fn repository(image: &str) -> Result<String, InvalidImageName> {
    parse(image).map_err(|problem| InvalidImageName { image: image.to_owned(), problem })?;
    let (domain, remainder) = split_domain(image);
    let name = remainder.split('@').next().unwrap_or_default();
    let last = name.rfind('/').unwrap_or(0);
    let end = name[last..].find(':').map_or(name.len(), |colon| last + colon);
    Ok(format!("{domain}/{}", &name[..end]))
}

/// Whether the name has a tag or a digest.
fn parse(image: &str) -> Result<bool, ImageNameProblem> {
    if image.len() == 64 && image.bytes().all(is_lower_hex) {
        return Err(ImageNameProblem::Identifier(image.to_owned()));
    }
    let (domain, remainder) = split_domain(image);
    let remote = remainder.split(':').next().unwrap_or_default();
    if remote.to_lowercase() != remote {
        return Err(ImageNameProblem::Uppercase(remote.to_owned()));
    }
    let whole = format!("{domain}/{remainder}");
    let Some(reference) = Reference::of(&whole) else {
        return Err(match Reference::of(&whole.to_lowercase()) {
            Some(_) => ImageNameProblem::MustBeLowercase,
            None => ImageNameProblem::Format,
        });
    };
    if reference.path_length > MAX_REPOSITORY {
        return Err(ImageNameProblem::TooLong);
    }
    if let Some(digest) = reference.digest {
        check_digest(digest)?;
    }
    Ok(reference.tagged || reference.digest.is_some())
}

/// A name without a domain is one of Docker Hub's.
fn split_domain(image: &str) -> (&str, Cow<'_, str>) {
    const HUB: &str = "docker.io";
    let (domain, remainder) = match image.split_once('/') {
        Some((first, rest))
            if first == "localhost" || first.contains(['.', ':']) || first.to_lowercase() != first =>
        {
            (if first == "index.docker.io" { HUB } else { first }, rest)
        }
        Some(_) | None => (HUB, image),
    };
    match domain == HUB && !remainder.contains('/') {
        true => (domain, Cow::Owned(format!("library/{remainder}"))),
        false => (domain, Cow::Borrowed(remainder)),
    }
}

/// The parts of a whole name: `domain/path:tag@digest`.
struct Reference<'a> {
    path_length: usize,
    tagged: bool,
    digest: Option<&'a str>,
}

impl Reference<'_> {
    fn of(whole: &str) -> Option<Reference<'_>> {
        let (rest, digest) = match whole.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (whole, None),
        };
        let last = rest.rfind('/').unwrap_or(0);
        let (name, tag) = match rest[last..].find(':') {
            Some(colon) => (&rest[..last + colon], Some(&rest[last + colon + 1..])),
            None => (rest, None),
        };
        let (first, path) = name.split_once('/')?;
        let path_length = match (is_domain(first), path.split('/').all(is_path_component)) {
            (true, true) => path.len(),
            (false, true) if is_path_component(first) => name.len(),
            (_, _) => return None,
        };
        (tag.is_none_or(is_tag) && digest.is_none_or(is_digest)).then_some(Reference {
            path_length,
            tagged: tag.is_some(),
            digest,
        })
    }
}

fn is_domain(text: &str) -> bool {
    let (host, port) = match text.rfind(':') {
        Some(colon) if !text.ends_with(']') => (&text[..colon], Some(&text[colon + 1..])),
        Some(_) | None => (text, None),
    };
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match address {
        Some(address) => {
            !address.is_empty() && address.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':')
        }
        None => host.split('.').all(|part| {
            !part.is_empty()
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && !part.starts_with('-')
                && !part.ends_with('-')
        }),
    };
    is_host && port.is_none_or(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Letters and digits, with `.`, `_`, `__` or any number of `-` between them.
fn is_path_component(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let mut rest = text.as_bytes();
    loop {
        let letters = rest.iter().take_while(|byte| is_letter(**byte)).count();
        if letters == 0 {
            return false;
        }
        rest = &rest[letters..];
        rest = match rest {
            [] => return true,
            [b'_', b'_', after @ ..] | [b'.' | b'_', after @ ..] => after,
            [b'-', ..] => &rest[rest.iter().take_while(|byte| **byte == b'-').count()..],
            _ => return false,
        };
    }
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=128).contains(&tag.len())
        && tag
            .bytes()
            .enumerate()
            .all(|(index, byte)| is_word(byte) || (index > 0 && matches!(byte, b'.' | b'-')))
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    hex.len() >= 32
        && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
        && algorithm.split(['-', '_', '+', '.']).all(|part| {
            part.starts_with(|first: char| first.is_ascii_alphabetic())
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
        })
}

fn check_digest(digest: &str) -> Result<(), ImageNameProblem> {
    let (algorithm, hex) = digest.split_once(':').unwrap_or((digest, ""));
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        other if other.bytes().any(|byte| byte.is_ascii_uppercase()) => {
            return Err(ImageNameProblem::DigestFormat);
        }
        _ => return Err(ImageNameProblem::DigestAlgorithm),
    };
    if hex.len() != length {
        Err(ImageNameProblem::DigestLength)
    } else if hex.bytes().all(is_lower_hex) {
        Ok(())
    } else {
        Err(ImageNameProblem::DigestFormat)
    }
}

fn is_lower_hex(byte: u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_has_its_registry_and_neither_tag_nor_digest() {
        let digest = format!("@sha256:{}", "a".repeat(64));
        for (image, expected) in [
            ("busybox", "docker.io/library/busybox"),
            ("busybox:1", "docker.io/library/busybox"),
            ("team/app", "docker.io/team/app"),
            ("index.docker.io/app:1", "docker.io/library/app"),
            ("docker.io/app", "docker.io/library/app"),
            ("docker.io/team/app", "docker.io/team/app"),
            ("host.io/app", "host.io/app"),
            ("localhost/app", "localhost/app"),
            ("localhost:5000/team/app:1", "localhost:5000/team/app"),
            (&format!("gcr.io/team/app:1{digest}"), "gcr.io/team/app"),
            (&format!("app{digest}"), "docker.io/library/app"),
        ] {
            assert_eq!(repository(image).unwrap(), expected);
        }
        assert!(repository("UPPER").is_err());
    }

    #[test]
    fn a_name_without_tag_and_digest_is_the_latest() {
        let hex = "a".repeat(64);
        for (image, expected) in [
            ("busybox", "busybox:latest"),
            ("busybox:1.36", "busybox:1.36"),
            ("busybox:latest", "busybox:latest"),
            ("localhost/x", "localhost/x:latest"),
            ("host:5000/x", "host:5000/x:latest"),
            ("host:5000/x:5000", "host:5000/x:5000"),
            ("Host/x", "Host/x:latest"),
            ("[fd00::1]:5000/x", "[fd00::1]:5000/x:latest"),
            ("[fd00::1]/x", "[fd00::1]/x:latest"),
            ("a/b__c/d--e.f_g:T.a-g_1", "a/b__c/d--e.f_g:T.a-g_1"),
            ("index.docker.io/x", "index.docker.io/x:latest"),
            ("a_b.c/d", "a_b.c/d:latest"),
            ("registry:5000", "registry:5000"),
            ("Registry/a:V_1", "Registry/a:V_1"),
            ("a-b.c-d/x", "a-b.c-d/x:latest"),
            (&format!("a:{}", "t".repeat(128)), &format!("a:{}", "t".repeat(128))),
            (&"a".repeat(247), &format!("{}:latest", "a".repeat(247))),
            (&hex[1..], &format!("{}:latest", &hex[1..])),
            (&"g".repeat(64), &format!("{}:latest", "g".repeat(64))),
            (&format!("x@sha384:{hex}{}", &hex[32..]), &format!("x@sha384:{hex}{}", &hex[32..])),
            (&format!("x@sha256:{hex}"), &format!("x@sha256:{hex}")),
            (&format!("x:t@sha256:{hex}"), &format!("x:t@sha256:{hex}")),
            (&format!("x@sha512:{hex}{hex}"), &format!("x@sha512:{hex}{hex}")),
        ] {
            assert_eq!(with_default_tag(image).unwrap(), expected);
        }
    }

    #[test]
    fn what_is_no_name_is_refused_in_the_usual_words() {
        let hex = "a".repeat(64);
        let format = "invalid reference format";
        for (image, expected) in [
            ("", format),
            ("a b", format),
            ("/a", format),
            ("a/", format),
            ("a//b", format),
            ("-a/b:c", format),
            ("a:", format),
            ("a:-t", format),
            (&format!("a:{}", "t".repeat(129)), format),
            ("a___b", format),
            ("a..b", format),
            ("-a.b/c", format),
            ("http://host/a", format),
            ("a@sha256:abc", format),
            ("host:x5/a", format),
            ("host:/a", format),
            ("a.b-/c", format),
            ("a..b/c", format),
            ("a.b!/c", format),
            ("[]/a", format),
            ("[]:5/a", format),
            ("[g::1]/a", format),
            ("[fd00::1/a", format),
            ("a_", format),
            ("a-", format),
            ("a._b", format),
            ("a:t!", format),
            ("a:.t", format),
            (&format!("a@sha256:{}", &hex[33..]), format),
            (&format!("a@sha256:{}g", &hex[1..]), format),
            (&format!("a@9a:{hex}"), format),
            (&format!("a@a+:{hex}"), format),
            (&format!("a@a!:{hex}"), format),
            (&format!("a:@sha256:{hex}"), format),
            (&format!("a@a+b.c_d-e:{hex}"), "unsupported digest algorithm"),
            (&format!("a@sha256:{}", &hex[32..]), "invalid checksum digest length"),
            (&format!("a@sha512:{hex}"), "invalid checksum digest length"),
            (&format!("a@sha384:{hex}"), "invalid checksum digest length"),
            ("Foo", "invalid reference format: repository name (library/Foo) must be lowercase"),
            ("host.io/Foo:T", "invalid reference format: repository name (Foo) must be lowercase"),
            ("A_b.c/d", "repository name must be lowercase"),
            ("host.io/A/b:1", "invalid reference format: repository name (A/b) must be lowercase"),
            ("Foo_bar/x", "repository name must be lowercase"),
            (&format!("a:1@SHA256:{hex}"), "invalid checksum digest format"),
            (&"a".repeat(248), "repository name must not be more than 255 characters"),
            (&"a".repeat(256), "repository name must not be more than 255 characters"),
            (&hex, &format!("invalid repository name ({hex}), cannot specify 64-byte hexadecimal strings")),
            (&format!("x@sha256:{}", &hex[1..]), "invalid checksum digest length"),
            (&format!("x@sha256:{}", hex.to_uppercase()), "invalid checksum digest format"),
            (&format!("x@md5:{hex}"), "unsupported digest algorithm"),
        ] {
            let error = with_default_tag(image).unwrap_err();
            let problem = error.problem.to_string();
            assert_eq!(problem, expected, "{image}");
            let full = error.to_string();
            assert!(full.starts_with("Failed to apply default image tag \""), "{full}");
            assert!(full.contains(": couldn't parse image name \""), "{full}");
        }
        assert_eq!(InvalidImageName::REASON, "InvalidImageName");
    }

    proptest::proptest! {
        #[test]
        fn a_name_that_is_accepted_is_accepted_again_and_stays(image in "[a-zA-Z0-9:/@._-]{0,30}|\\PC{0,30}") {
            if let Ok(tagged) = with_default_tag(&image) {
                proptest::prop_assert_eq!(with_default_tag(&tagged).unwrap(), tagged.clone());
                proptest::prop_assert!(tagged.starts_with(&image));
            }
        }
    }
}
