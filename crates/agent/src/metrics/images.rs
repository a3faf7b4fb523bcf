//! What is counted of images, under upstream's names.

use std::time::Duration;

use crablet_metrics::{Counter, Family, Histogram, RegisterError, Registry};

/// The upper bounds of pulls, in seconds.
const PULLS: [f64; 18] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0,
    2700.0, 3600.0,
];
/// Sizes of images that pulls are told apart by, in bytes.
const SIZES: [(u64, &str); 11] = [
    (10 << 20, "0-10MB"),
    (100 << 20, "10MB-100MB"),
    (500 << 20, "100MB-500MB"),
    (1 << 30, "500MB-1GB"),
    (5 << 30, "1GB-5GB"),
    (10 << 30, "5GB-10GB"),
    (20 << 30, "10GB-20GB"),
    (30 << 30, "20GB-30GB"),
    (40 << 30, "30GB-40GB"),
    (60 << 30, "40GB-60GB"),
    (100 << 30, "60GB-100GB"),
];

/// Counters of images.
#[derive(Clone)]
pub(crate) struct ImageMetrics {
    requests: Family<Counter, 3>,
    pulls: Family<Histogram, 1>,
}

impl ImageMetrics {
    pub(crate) fn register(registry: &Registry) -> Result<ImageMetrics, RegisterError> {
        Ok(ImageMetrics {
            requests: registry.counter_family(
                "kubelet_image_manager_ensure_image_requests_total",
                "[ALPHA] Number of ensure-image requests processed by the kubelet.",
                ["pull_policy", "present_locally", "pull_required"],
            )?,
            pulls: registry.histogram_family(
                "kubelet_image_pull_duration_seconds",
                "[ALPHA] Duration in seconds to pull an image.",
                ["image_size_in_bytes"],
                &PULLS,
            )?,
        })
    }

    /// An image was asked for. Words that are not known stay empty.
    pub(crate) fn ensured(&self, policy: &str, is_present: Option<bool>, is_pulled: Option<bool>) {
        let word = |value| match value {
            None => "unknown",
            Some(true) => "true",
            Some(false) => "false",
        };
        self.requests.with([policy, word(is_present), word(is_pulled)]).increment();
    }

    pub(crate) fn pulled(&self, size: u64, took: Duration) {
        self.pulls.with([size_name(size)]).observe(took.as_secs_f64());
    }
}

fn size_name(size: u64) -> &'static str {
    match SIZES.iter().find(|(bound, _)| size <= *bound) {
        _ if size == 0 => "N/A",
        Some((_, name)) => name,
        None => "GT100GB",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_images_are_few() {
        assert_eq!(size_name(0), "N/A");
        assert_eq!(size_name(10 << 20), "0-10MB");
        assert_eq!(size_name((10 << 20) + 1), "10MB-100MB");
        assert_eq!(size_name(31 << 30), "30GB-40GB");
        assert_eq!(size_name(101 << 30), "GT100GB");
    }
}
