//! Whose right to an image that is there has to be proven.

use crablet_config::ImagePullCredentialsVerificationPolicy;

/// Whose right to an image that is there has to be proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VerificationPolicy {
    /// Nobody's.
    NeverVerify,
    /// Of those whose image the agent pulled.
    NeverVerifyPreloadedImages,
    /// Of those whose image is not on a list: of repositories, and of beginnings that end with `/*`.
    NeverVerifyAllowlistedImages(Vec<String>),
    /// Everybody's.
    AlwaysVerify,
}

impl VerificationPolicy {
    /// By the configuration's `imagePullCredentialsVerificationPolicy` and `preloadedImagesVerificationAllowlist`.
    pub fn new(
        policy: Option<&ImagePullCredentialsVerificationPolicy>,
        allowlist: impl IntoIterator<Item = String>,
    ) -> VerificationPolicy {
        use ImagePullCredentialsVerificationPolicy as Configured;
        match policy {
            Some(Configured::NeverVerify) => VerificationPolicy::NeverVerify,
            Some(Configured::NeverVerifyAllowlistedImages) => {
                VerificationPolicy::NeverVerifyAllowlistedImages(allowlist.into_iter().collect())
            }
            Some(Configured::AlwaysVerify) => VerificationPolicy::AlwaysVerify,
            // Validation lets no other word pass.
            Some(Configured::NeverVerifyPreloadedImages | Configured::Other(_)) | None => {
                VerificationPolicy::NeverVerifyPreloadedImages
            }
        }
    }

    /// Whether the right to an image has to be proven, which the agent pulled or not.
    pub(crate) fn asks(&self, image: &str, was_pulled: bool) -> bool {
        match self {
            VerificationPolicy::NeverVerify => false,
            VerificationPolicy::NeverVerifyPreloadedImages => was_pulled,
            VerificationPolicy::NeverVerifyAllowlistedImages(patterns) => {
                let name = without_tag_and_digest(image);
                !patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
                    Some(beginning) if beginning.ends_with('/') => name.starts_with(beginning),
                    Some(_) | None => name == pattern,
                })
            }
            VerificationPolicy::AlwaysVerify => true,
        }
    }
}

/// The name of an image as it was written, without its tag and its digest.
pub(crate) fn without_tag_and_digest(image: &str) -> &str {
    let name = image.split_once('@').map_or(image, |(name, _)| name);
    let last = name.rfind('/').map_or(0, |slash| slash + 1);
    match name[last..].find(':') {
        Some(colon) => &name[..last + colon],
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_loses_its_tag_and_its_digest_and_nothing_else() {
        for (image, expected) in [
            ("busybox", "busybox"),
            ("busybox:1", "busybox"),
            ("a.io:5000/b", "a.io:5000/b"),
            ("a.io:5000/b:1@sha256:abc", "a.io:5000/b"),
            ("a.io/b@sha256:abc", "a.io/b"),
        ] {
            assert_eq!(without_tag_and_digest(image), expected);
        }
    }

    #[test]
    fn a_policy_asks_as_upstreams_does() {
        use ImagePullCredentialsVerificationPolicy as Configured;
        let list = || ["a.io/b", "c.io/d/*", "busybox"].map(str::to_owned);
        let policy = |configured: Configured| VerificationPolicy::new(Some(&configured), list());
        for was_pulled in [false, true] {
            assert!(!policy(Configured::NeverVerify).asks("a.io/b", was_pulled));
            assert!(policy(Configured::AlwaysVerify).asks("a.io/b", was_pulled));
            assert_eq!(policy(Configured::NeverVerifyPreloadedImages).asks("a.io/b", was_pulled), was_pulled);
            assert_eq!(VerificationPolicy::new(None, []).asks("a.io/b", was_pulled), was_pulled);
            let listed = policy(Configured::NeverVerifyAllowlistedImages);
            for (image, asks) in [
                ("a.io/b", false),
                ("a.io/b:1", false),
                ("a.io/b@sha256:abc", false),
                ("a.io/b/c", true),
                ("a.io/bc", true),
                ("c.io/d/e:1", false),
                ("c.io/d/e/f", false),
                ("c.io/d", true),
                ("c.io/de", true),
                ("busybox:1", false),
                ("docker.io/library/busybox", true),
            ] {
                assert_eq!(listed.asks(image, was_pulled), asks, "{image}");
            }
        }
    }
}
