//! The values that programs update: counters, gauges and histograms.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::text::{FamilyWriter, Kind};

/// A number that only goes up.
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Counts one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Counts several.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// What was counted so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<AtomicF64>);

impl Gauge {
    pub fn set(&self, value: f64) {
        self.0.set(value);
    }

    /// Adds to the value; what is negative is taken off.
    pub fn add(&self, amount: f64) {
        self.0.add(amount);
    }

    /// The value.
    pub fn get(&self) -> f64 {
        self.0.get()
    }
}

/// How many observations fell under each of a row of bounds, and their sum.
#[derive(Clone, Debug)]
pub struct Histogram(Arc<HistogramState>);

#[derive(Debug)]
struct HistogramState {
    bounds: Arc<[f64]>,
    /// Observations by the first bound that holds them, and last those above every bound.
    counts: Box<[AtomicU64]>,
    sum: AtomicF64,
}

impl Histogram {
    /// Takes in an observation.
    pub fn observe(&self, value: f64) {
        // A value that is not a number lies under no bound.
        let bucket = self.0.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.0.bounds.len());
        self.0.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.0.sum.add(value);
    }

    /// How many observations there were.
    pub fn count(&self) -> u64 {
        self.0.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// The sum of the observations.
    pub fn sum(&self) -> f64 {
        self.0.sum.get()
    }
}

/// What a family is made of.
pub trait Metric: Clone {
    #[doc(hidden)]
    const KIND: Kind;
    #[doc(hidden)]
    fn new(bounds: &Arc<[f64]>) -> Self;
    #[doc(hidden)]
    fn write(&self, labels: &str, out: &mut FamilyWriter<'_>);
}

impl Metric for Counter {
    const KIND: Kind = Kind::Counter;

    fn new(_: &Arc<[f64]>) -> Counter {
        Counter::default()
    }

    fn write(&self, labels: &str, out: &mut FamilyWriter<'_>) {
        out.sample("", labels, self.get() as f64, None);
    }
}

impl Metric for Gauge {
    const KIND: Kind = Kind::Gauge;

    fn new(_: &Arc<[f64]>) -> Gauge {
        Gauge::default()
    }

    fn write(&self, labels: &str, out: &mut FamilyWriter<'_>) {
        out.sample("", labels, self.get(), None);
    }
}

impl Metric for Histogram {
    const KIND: Kind = Kind::Histogram;

    fn new(bounds: &Arc<[f64]>) -> Histogram {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram(Arc::new(HistogramState { bounds: bounds.clone(), counts, sum: AtomicF64::default() }))
    }

    fn write(&self, labels: &str, out: &mut FamilyWriter<'_>) {
        // The count is the last running sum rather than a number of its own, so that the two always agree.
        let mut below = 0;
        let bounds = self.0.bounds.iter().copied().chain([f64::INFINITY]);
        for (bound, count) in bounds.zip(&self.0.counts) {
            below += count.load(Ordering::Relaxed);
            out.bucket(labels, bound, below as f64);
        }
        out.sample("_sum", labels, self.sum(), None);
        out.sample("_count", labels, below as f64, None);
    }
}

#[derive(Debug, Default)]
struct AtomicF64(AtomicU64);

impl AtomicF64 {
    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    fn add(&self, amount: f64) {
        // The closure always gives a new value, so this cannot fail.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bits| {
            Some((f64::from_bits(bits) + amount).to_bits())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_of_a_handle_update_the_same_value() {
        let counter = Counter::default();
        counter.clone().add(2);
        counter.increment();
        assert_eq!(counter.get(), 3);
        let gauge = Gauge::default();
        gauge.set(1.5);
        gauge.clone().add(-2.0);
        assert_eq!(gauge.get(), -0.5);
    }

    #[test]
    fn an_observation_on_a_bound_belongs_below_it() {
        let histogram = Histogram::new(&[1.0, 2.0].into());
        for value in [0.5, 1.0, 1.5, 2.0, 9.0, f64::NAN] {
            histogram.observe(value);
        }
        let counts: Vec<_> = histogram.0.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        assert_eq!(counts, [2, 2, 2]);
        assert_eq!(histogram.count(), 6);
    }

    #[test]
    fn no_update_is_lost_between_threads() {
        let gauge = Gauge::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1_000).for_each(|_| gauge.add(1.0)));
            }
        });
        assert_eq!(gauge.get(), 4_000.0);
    }
}
