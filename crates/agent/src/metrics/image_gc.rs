//! What is counted of images that go, under upstream's names.

use crablet_metrics::{Counter, Family, RegisterError, Registry};

/// Counts images that were removed because nobody used them.
#[derive(Clone)]
pub(crate) struct ImageGcMetrics(Family<Counter, 1>);

impl ImageGcMetrics {
    pub(crate) fn register(registry: &Registry) -> Result<ImageGcMetrics, RegisterError> {
        Ok(ImageGcMetrics(registry.counter_family(
            "kubelet_image_garbage_collected_total",
            "[ALPHA] Total number of images garbage collected by the kubelet, whether through disk usage or image age.",
            ["reason"],
        )?))
    }

    pub(crate) fn collected(&self, reason: &str) {
        self.0.with([reason]).increment();
    }
}
