//! Images: garbage collection, pulls and their credentials.

use crablet_api::{FeatureGates, Gate, GoDuration};

use super::{Check, one_of};
use crate::kubelet_configuration::*;
use crate::words::*;

impl Check {
    pub(super) fn images(&mut self, c: &KubeletConfiguration, gates: &FeatureGates) {
        let (low, high) = (c.image_gc_low_threshold_percent, c.image_gc_high_threshold_percent);
        self.in_range(&["imageGCHighThresholdPercent"], "image-gc-high-threshold", high, (0, 100));
        self.in_range(&["imageGCLowThresholdPercent"], "image-gc-low-threshold", low, (0, 100));
        if low >= high {
            let message = format!(
                "imageGCLowThresholdPercent (--image-gc-low-threshold) {low} must be less than \
                 imageGCHighThresholdPercent (--image-gc-high-threshold) {high}"
            );
            self.invalid_pair(&["imageGCLowThresholdPercent"], &["imageGCHighThresholdPercent"], message);
        }
        let (minimum, maximum) = (c.image_minimum_gc_age, c.image_maximum_gc_age);
        if !maximum.is_zero() && !gates.enabled(Gate::ImageMaximumGCAge) {
            let message = "ImageMaximumGCAge feature gate is required for Kubelet configuration option imageMaximumGCAge";
            self.invalid(&["imageMaximumGCAge"], message.into());
        }
        if minimum.is_negative() {
            self.invalid(&["imageMinimumGCAge"], format!("imageMinimumGCAge {minimum} must not be negative"));
        }
        if maximum.is_negative() {
            self.invalid(&["imageMaximumGCAge"], format!("imageMaximumGCAge {maximum} must not be negative"));
        }
        if maximum > GoDuration::ZERO && maximum <= minimum {
            let message =
                format!("imageMaximumGCAge {maximum} must be greater than imageMinimumGCAge {minimum}");
            self.invalid(&["imageMaximumGCAge"], message);
        }
        if let Some(pulls) = c.max_parallel_image_pulls {
            if pulls < 1 {
                let message = format!("maxParallelImagePulls {pulls} must be a positive number");
                self.invalid(&["maxParallelImagePulls"], message);
            }
            if c.serialize_image_pulls && pulls > 1 {
                let message = "maxParallelImagePulls cannot be larger than 1 unless serializeImagePulls \
                               (--serialize-image-pulls) is set to false";
                self.invalid(&["maxParallelImagePulls"], message.into());
            }
        }
        self.pull_credentials(c, gates);
    }

    fn pull_credentials(&mut self, c: &KubeletConfiguration, gates: &FeatureGates) {
        const POLICY: &[&str] = &["imagePullCredentialsVerificationPolicy"];
        const ALLOWLIST: &[&str] = &["preloadedImagesVerificationAllowlist"];
        let policy = &c.image_pull_credentials_verification_policy;
        let allowlist = &c.preloaded_images_verification_allowlist;
        if !gates.enabled(Gate::KubeletEnsureSecretPulledImages) {
            for (path, is_set) in [(POLICY, policy.is_some()), (ALLOWLIST, !allowlist.is_empty())] {
                if is_set {
                    let message = format!(
                        "`{}` must not be set if KubeletEnsureSecretPulledImages feature gate is not enabled",
                        path[0]
                    );
                    self.invalid(path, message);
                }
            }
            return;
        }
        if let Some(ImagePullCredentialsVerificationPolicy::Other(other)) = policy {
            let message = format!(
                "option {other:?} specified for imagePullCredentialsVerificationPolicy. Valid options are {}",
                one_of(ImagePullCredentialsVerificationPolicy::WORDS)
            );
            self.invalid(POLICY, message);
        }
        if allowlist.is_empty() {
        } else if *policy != Some(ImagePullCredentialsVerificationPolicy::NeverVerifyAllowlistedImages) {
            let message = "can't set `preloadedImagesVerificationAllowlist` if \
                           `imagePullCredentialsVerificationPolicy` is not \"NeverVerifyAllowlistedImages\"";
            self.invalid(ALLOWLIST, message.into());
        } else if let Some(reason) = allowlist.iter().find_map(|pattern| image_pattern_problem(pattern)) {
            let message =
                format!("invalid image pattern in `preloadedImagesVerificationAllowlist`: {reason}");
            self.invalid(ALLOWLIST, message);
        }
    }
}

fn image_pattern_problem(pattern: &str) -> Option<String> {
    let (stem, wildcard) = match pattern.strip_suffix('*') {
        Some(stem) if stem.ends_with('/') => (stem, true),
        Some(_) | None => (pattern, false),
    };
    if pattern.trim() != pattern {
        Some(format!("leading/trailing spaces are not allowed: {pattern}"))
    } else if stem.is_empty() {
        Some(format!("the supplied pattern is too short: {pattern}"))
    } else if stem.contains('*') {
        Some(format!("not a valid wildcard pattern, only patterns ending with '/*' are allowed: {pattern}"))
    } else if wildcard {
        (stem.len() == 1).then(|| "at least registry hostname is required".into())
    } else {
        let last = stem.rsplit('/').next().unwrap_or(stem);
        last.contains(['@', ':'])
            .then(|| format!("neither tag nor digest is accepted in an image reference: {pattern}"))
    }
}
