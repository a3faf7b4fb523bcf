//! A metric with labels: one value for each set of label values.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::text::{FamilyWriter, render_labels};
use crate::value::Metric;

/// How many sets of label values a family holds. Further ones are not reported, and counted.
pub const MAX_LABEL_SETS: usize = 10_000;

/// A metric with `N` labels.
#[derive(Clone, Debug)]
pub struct Family<M, const N: usize>(pub(crate) Arc<FamilyState<M>>);

impl<M: Metric, const N: usize> Family<M, N> {
    /// The value for these labels, in the order in which the labels were registered. It starts at zero.
    ///
    /// Beyond [`MAX_LABEL_SETS`] the value that is returned can be updated but is not reported.
    pub fn with(&self, values: [&str; N]) -> M {
        let key = self.0.key(&values);
        let mut members = self.0.members();
        if let Some(member) = members.get(key.as_str()) {
            return member.clone();
        }
        let member = M::new(&self.0.bounds);
        if members.len() < MAX_LABEL_SETS {
            members.insert(key.into(), member.clone());
        } else {
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
        }
        member
    }

    /// Stops reporting the value for these labels.
    pub fn remove(&self, values: [&str; N]) {
        let key = self.0.key(&values);
        self.0.members().remove(key.as_str());
    }

    /// Stops reporting all values so far.
    pub fn clear(&self) {
        self.0.members().clear();
    }
}

#[derive(Debug)]
pub(crate) struct FamilyState<M> {
    /// In the order in which their values are given.
    labels: Box<[Box<str>]>,
    bounds: Arc<[f64]>,
    /// By the labels as they are written, which makes the order of the map that of the output.
    members: Mutex<BTreeMap<Box<str>, M>>,
    dropped: AtomicU64,
}

impl<M: Metric> FamilyState<M> {
    pub(crate) fn new(labels: &[&str], bounds: &[f64]) -> FamilyState<M> {
        FamilyState {
            labels: labels.iter().map(|label| (*label).into()).collect(),
            bounds: bounds.into(),
            members: Mutex::default(),
            dropped: AtomicU64::new(0),
        }
    }

    pub(crate) fn has_shape(&self, labels: &[&str], bounds: &[f64]) -> bool {
        self.labels.iter().map(|label| &**label).eq(labels.iter().copied()) && *self.bounds == *bounds
    }

    /// How often a value was asked for that there was no room for.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn write(&self, out: &mut FamilyWriter<'_>) {
        self.members().iter().for_each(|(labels, member)| member.write(labels, out));
    }

    fn key(&self, values: &[&str]) -> String {
        render_labels(self.labels.iter().map(|label| &**label).zip(values.iter().copied()))
    }

    fn members(&self) -> MutexGuard<'_, BTreeMap<Box<str>, M>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
