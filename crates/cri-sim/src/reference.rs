//! Names of images, and the full form that containerd gives them: `busybox` is `docker.io/library/busybox:latest`.

use std::fmt;

/// The name of an image in its full form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reference {
    /// With the registry's host.
    pub(crate) repository: String,
    version: Version,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Version {
    Tag(String),
    Digest(String),
}

impl Reference {
    /// Reads a name. A tag beside a digest says nothing and is dropped.
    pub(crate) fn parse(text: &str) -> Result<Reference, String> {
        if is_hexadecimal(text, 64) {
            return Err(format!(
                "invalid repository name ({text}), cannot specify 64-byte hexadecimal strings"
            ));
        }
        let (host, rest) = split_host(text);
        let (rest, digest) = match rest.split_once('@') {
            Some((rest, digest)) => (rest.to_owned(), Some(digest)),
            None => (rest, None),
        };
        let (path, tag) = match rest.split_once(':') {
            Some((path, tag)) => (path, Some(tag)),
            None => (rest.as_str(), None),
        };
        if path.chars().any(char::is_uppercase) {
            return Err("invalid reference format: repository name must be lowercase".to_owned());
        }
        let valid = is_host(host)
            && path.split('/').all(is_path_component)
            && tag.is_none_or(is_tag)
            && digest.is_none_or(is_digest);
        if !valid {
            return Err("invalid reference format".to_owned());
        }
        let repository = format!("{host}/{path}");
        if repository.len() > 255 {
            return Err("repository name must not be more than 255 characters".to_owned());
        }
        let version = match (digest, tag) {
            (Some(digest), _) => Version::Digest(digest.to_owned()),
            (None, Some(tag)) => Version::Tag(tag.to_owned()),
            (None, None) => Version::Tag("latest".to_owned()),
        };
        Ok(Reference { repository, version })
    }

    /// The tag or the digest.
    pub(crate) fn version(&self) -> &str {
        match &self.version {
            Version::Tag(version) | Version::Digest(version) => version,
        }
    }

    /// The digest that it names the image by, if it does.
    pub(crate) fn digest(&self) -> Option<&str> {
        match &self.version {
            Version::Digest(digest) => Some(digest),
            Version::Tag(_) => None,
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Version::Tag(tag) => write!(f, "{}:{tag}", self.repository),
            Version::Digest(digest) => write!(f, "{}@{digest}", self.repository),
        }
    }
}

/// Whether a text is a digest, such as `sha256:` and 64 hexadecimal digits.
pub(crate) fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|digits| is_hexadecimal(digits, 64))
        || text.strip_prefix("sha512:").is_some_and(|digits| is_hexadecimal(digits, 128))
}

/// The host, and what follows it. What comes first is a host only when it cannot be part of a name.
fn split_host(text: &str) -> (&str, String) {
    const DEFAULT: &str = "docker.io";
    let (host, rest) = match text.split_once('/') {
        Some((first, rest))
            if first.contains(['.', ':'])
                || first == "localhost"
                || first.chars().any(char::is_uppercase) =>
        {
            (first, rest)
        }
        Some(_) | None => (DEFAULT, text),
    };
    match host {
        DEFAULT | "index.docker.io" if !rest.contains('/') => (DEFAULT, format!("library/{rest}")),
        "index.docker.io" => (DEFAULT, rest.to_owned()),
        host => (host, rest.to_owned()),
    }
}

fn is_hexadecimal(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_host(host: &str) -> bool {
    let (name, port) = match host.split_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (host, None),
    };
    let is_part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('-')
            && !part.ends_with('-')
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    name.split('.').all(is_part)
        && port.is_none_or(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Lower-case letters and digits, with single dots, one or two underscores, or any number of dashes between them.
fn is_path_component(text: &str) -> bool {
    let is_word = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    if !bytes.first().is_some_and(is_word) || !bytes.last().is_some_and(is_word) {
        return false;
    }
    text.split(|character: char| character.is_ascii_lowercase() || character.is_ascii_digit())
        .all(|between| matches!(between, "" | "." | "_" | "__") || between.bytes().all(|byte| byte == b'-'))
}

fn is_tag(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.len() <= 128
        && text.bytes().next().is_some_and(is_word)
        && text.bytes().all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_full_form_that_containerd_gives_them() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (text, expected) in [
            ("busybox", "docker.io/library/busybox:latest"),
            ("busybox:1.36", "docker.io/library/busybox:1.36"),
            ("me/busybox", "docker.io/me/busybox:latest"),
            ("index.docker.io/busybox", "docker.io/library/busybox:latest"),
            ("docker.io/a/b:c", "docker.io/a/b:c"),
            ("localhost/a", "localhost/a:latest"),
            ("localhost:5000/a:b", "localhost:5000/a:b"),
            ("crablet.test/a__b-c/d.e:1", "crablet.test/a__b-c/d.e:1"),
            (&format!("a:tag@{digest}"), &format!("docker.io/library/a@{digest}")),
        ] {
            assert_eq!(Reference::parse(text).unwrap().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_name_is_refused_in_containerds_words() {
        let hexadecimal = "a".repeat(64);
        for (text, expected) in [
            ("", "invalid reference format"),
            ("UPPER", "invalid reference format: repository name must be lowercase"),
            ("a b", "invalid reference format"),
            ("a..b", "invalid reference format"),
            ("-a", "invalid reference format"),
            ("a:", "invalid reference format"),
            ("a@sha256:12", "invalid reference format"),
            ("h.io//a", "invalid reference format"),
            (&"x".repeat(300), "repository name must not be more than 255 characters"),
            (
                &hexadecimal,
                &format!(
                    "invalid repository name ({hexadecimal}), cannot specify 64-byte hexadecimal strings"
                ),
            ),
        ] {
            assert_eq!(Reference::parse(text).unwrap_err(), expected, "{text}");
        }
    }
}
