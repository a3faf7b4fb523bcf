//! References to images, as `distribution/reference` reads them: `busybox` is `docker.io/library/busybox`.

/// What a repository's name has at most, without its domain.
const MAX_REPOSITORY: usize = 255;

/// The domain of a reference that names none, and where its images without a path are.
const DEFAULT_DOMAIN: &str = "docker.io";
const DEFAULT_PATH: &str = "library/";

/// The name of an image, in its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageReference<'a> {
    domain: &'a str,
    /// What the path begins with, though the name does not say it.
    implied: &'static str,
    path: &'a str,
    pub tag: Option<&'a str>,
    pub digest: Option<&'a str>,
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

impl<'a> ImageReference<'a> {
    /// Reads a name.
    pub fn parse(text: &'a str) -> Result<ImageReference<'a>, ImageNameProblem> {
        if text.len() == 64 && text.bytes().all(is_lower_hex) {
            return Err(ImageNameProblem::Identifier(text.to_owned()));
        }
        let (domain, rest) = split_domain(text);
        let implied = if domain == DEFAULT_DOMAIN && !rest.contains('/') { DEFAULT_PATH } else { "" };
        let remote = rest.split(':').next().unwrap_or_default();
        if remote.to_lowercase() != remote {
            return Err(ImageNameProblem::Uppercase(format!("{implied}{remote}")));
        }
        let (named, digest) = split_at(rest, '@');
        let last = named.rfind('/').map_or(0, |slash| slash + 1);
        let tag = split_at(&named[last..], ':').1;
        let path = &named[..named.len() - tag.map_or(0, |tag| tag.len() + 1)];
        let reference = ImageReference { domain, implied, path, tag, digest };
        let Some(length) = reference.path_length() else {
            return Err(match reference.is_well_formed_in_lowercase() {
                true => ImageNameProblem::MustBeLowercase,
                false => ImageNameProblem::Format,
            });
        };
        if length > MAX_REPOSITORY {
            return Err(ImageNameProblem::TooLong);
        }
        digest.map_or(Ok(()), check_digest)?;
        Ok(reference)
    }

    /// The repository that the image is in, with its registry and without tag and digest.
    pub fn repository(&self) -> String {
        format!("{}/{}{}", self.domain, self.implied, self.path)
    }

    /// How long the path is, or nothing where some part is not made as such parts are.
    fn path_length(&self) -> Option<usize> {
        let is_made_of_components = self.path.split('/').all(is_path_component);
        // What looks like a domain but cannot be one may still be the first component of the path.
        let first = match is_domain(self.domain) {
            true => 0,
            false if is_path_component(self.domain) => self.domain.len() + 1,
            false => return None,
        };
        (is_made_of_components && self.tag.is_none_or(is_tag) && self.digest.is_none_or(is_digest))
            .then(|| first + self.implied.len() + self.path.len())
    }

    fn is_well_formed_in_lowercase(&self) -> bool {
        let lower = |text: &str| text.to_lowercase();
        let (domain, path) = (lower(self.domain), lower(self.path));
        let (tag, digest) = (self.tag.map(lower), self.digest.map(lower));
        let reference = ImageReference {
            domain: &domain,
            path: &path,
            tag: tag.as_deref(),
            digest: digest.as_deref(),
            implied: self.implied,
        };
        reference.path_length().is_some()
    }
}

/// A first component is a domain where it could not be the name of a user.
fn split_domain(text: &str) -> (&str, &str) {
    match text.split_once('/') {
        Some(("index.docker.io", rest)) => (DEFAULT_DOMAIN, rest),
        Some((first, rest))
            if first == "localhost" || first.contains(['.', ':']) || first.to_lowercase() != first =>
        {
            (first, rest)
        }
        Some(_) | None => (DEFAULT_DOMAIN, text),
    }
}

fn split_at(text: &str, separator: char) -> (&str, Option<&str>) {
    match text.split_once(separator) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
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

    /// The tag of a reference, as far as it decides whether the image is pulled every time.
    fn tag(reference: &str) -> Option<&str> {
        let reference = ImageReference::parse(reference).ok()?;
        Some(reference.tag.unwrap_or(if reference.digest.is_some() { "" } else { "latest" }))
    }

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
