//! Names of images.

use std::borrow::Cow;

use crablet_api::{ImageNameProblem, ImageReference};

use super::go_quote;

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

/// The name of an image as it is asked for: one without a tag and without a digest is that of the latest.
pub fn with_default_tag(image: &str) -> Result<Cow<'_, str>, InvalidImageName> {
    let reference = parse(image)?;
    match (reference.tag, reference.digest) {
        (None, None) => Ok(Cow::Owned(format!("{image}:latest"))),
        (Some(_), _) | (_, Some(_)) => Ok(Cow::Borrowed(image)),
    }
}

/// The repository that an image is in, with its registry and without tag and digest: `docker.io/library/busybox` for
/// `busybox`.
pub fn repository(image: &str) -> Result<String, InvalidImageName> {
    Ok(parse(image)?.repository())
}

fn parse(image: &str) -> Result<ImageReference<'_>, InvalidImageName> {
    ImageReference::parse(image).map_err(|problem| InvalidImageName { image: image.to_owned(), problem })
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
