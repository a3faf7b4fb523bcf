//! Names of images, and the full form that containerd gives them: `busybox` is `docker.io/library/busybox:latest`.

use std::fmt;

use crablet_api::{ImageNameProblem, ImageReference};

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
        let read = ImageReference::parse(text).map_err(|problem| match problem {
            // containerd's library is older than Kubernetes' and does not repeat the name.
            ImageNameProblem::Uppercase(_) => {
                "invalid reference format: repository name must be lowercase".to_owned()
            }
            other => other.to_string(),
        })?;
        let repository = read.repository();
        let version = match (read.digest, read.tag) {
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

fn is_hexadecimal(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
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
