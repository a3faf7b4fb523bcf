//! What is counted of evictions, under upstream's names.

use std::time::Duration;

use crablet_metrics::{Counter, DEFAULT_BUCKETS, Family, Histogram, RegisterError, Registry};

/// Counts pods that have to go because the node runs short of something, or they of what they may take.
#[derive(Clone)]
pub(crate) struct EvictionMetrics {
    evictions: Family<Counter, 1>,
    stats_age: Family<Histogram, 1>,
}

impl EvictionMetrics {
    pub(crate) fn register(registry: &Registry) -> Result<EvictionMetrics, RegisterError> {
        Ok(EvictionMetrics {
            evictions: registry.counter_family(
                "kubelet_evictions",
                "[ALPHA] Cumulative number of pod evictions by eviction signal",
                ["eviction_signal"],
            )?,
            stats_age: registry.histogram_family(
                "kubelet_eviction_stats_age_seconds",
                "[ALPHA] Time between when stats are collected, and when pod is evicted based on those stats by eviction signal",
                ["eviction_signal"],
                &DEFAULT_BUCKETS,
            )?,
        })
    }

    pub(crate) fn evicted(&self, signal: &str) {
        self.evictions.with([signal]).increment();
    }

    /// Pods were ranked by what was seen of a signal so long ago.
    pub(crate) fn ranked(&self, signal: &str, age: Duration) {
        self.stats_age.with([signal]).observe(age.as_secs_f64());
    }
}
