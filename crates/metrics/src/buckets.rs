//! Bucket bounds for histograms.
//!
//! They are computed step by step as Prometheus' own libraries do, because a bound is part of a time series'
//! identity down to the last digit.

/// The bounds that suit the seconds a network call takes.
pub const DEFAULT_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// `count` bounds, the first `start` and each `factor` times the one before.
pub fn exponential_buckets(start: f64, factor: f64, count: usize) -> Vec<f64> {
    std::iter::successors(Some(start), |bound| Some(bound * factor)).take(count).collect()
}

/// `count` bounds from `lowest` to about `highest`, each the same factor above the one before.
pub fn exponential_buckets_range(lowest: f64, highest: f64, count: usize) -> Vec<f64> {
    let steps = count.saturating_sub(1).max(1) as f64;
    let growth = (highest / lowest).powf(1.0 / steps);
    (0..count).map(|step| lowest * growth.powf(step as f64)).collect()
}

/// `count` bounds, the first `start` and each `width` above the one before.
pub fn linear_buckets(start: f64, width: f64, count: usize) -> Vec<f64> {
    std::iter::successors(Some(start), |bound| Some(bound + width)).take(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_computed_step_by_step() {
        assert_eq!(exponential_buckets(0.001, 2.0, 4), [0.001, 0.002, 0.004, 0.008]);
        assert_eq!(linear_buckets(1.0, 0.5, 3), [1.0, 1.5, 2.0]);
        // Not 0.3: the sum is carried, as upstream carries it.
        assert_eq!(linear_buckets(0.1, 0.1, 3)[2], 0.1 + 0.1 + 0.1);
        assert_eq!(exponential_buckets_range(1.0, 100.0, 3), [1.0, 10.0, 100.0]);
        assert!(exponential_buckets(1.0, 2.0, 0).is_empty());
    }
}
