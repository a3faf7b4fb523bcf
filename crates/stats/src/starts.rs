//! When cgroups were made.
//!
//! A cgroup's directory changes with each cgroup that is made in it, so the time of a file counts too that does not. That is
//! looked up once for each cgroup, which is known again by its inode: the kernel gives none to another.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

/// For how long what nobody asked about is remembered, in nanoseconds.
const KEPT: i128 = 600_000_000_000;

/// When a cgroup was made, and which it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) inode: u64,
    pub(crate) at: Timestamp,
}

/// By cgroup, with when each was asked about last.
#[derive(Debug, Default)]
pub(crate) struct KnownStarts(Mutex<HashMap<Box<str>, (Timestamp, Start)>>);

impl KnownStarts {
    pub(crate) fn of(&self, cgroup: &str) -> Option<Start> {
        self.lock().get(cgroup).map(|(_, start)| *start)
    }

    pub(crate) fn keep(&self, cgroup: &str, now: Timestamp, start: Start) {
        let mut known = self.lock();
        match known.get_mut(cgroup) {
            Some(known) => *known = (now, start),
            None => drop(known.insert(cgroup.into(), (now, start))),
        }
    }

    pub(crate) fn forget_old(&self, now: Timestamp) {
        let age = |at: &Timestamp| now.as_nanosecond() - at.as_nanosecond();
        self.lock().retain(|_, (at, _)| (-KEPT..=KEPT).contains(&age(at)));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, (Timestamp, Start)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_is_forgotten() {
        let at = |second: i64| Timestamp::from_second(1_794_763_000 + second).unwrap();
        let known = KnownStarts::default();
        let start = Start { inode: 7, at: at(0) };
        known.keep("/a", at(0), start);
        known.keep("/a", at(100), start);
        assert_eq!((known.of("/a"), known.of("/b")), (Some(start), None));
        known.forget_old(at(650));
        assert_eq!(known.lock().len(), 1);
        known.forget_old(at(701));
        assert!(known.lock().is_empty());
    }
}
