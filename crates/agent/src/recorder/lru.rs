//! A map that forgets what was not used for longest.

use std::collections::BTreeMap;

/// A key: a digest of what it stands for, so that thousands of them stay small.
pub(super) type Key = u128;

/// A map with a bound.
#[derive(Debug)]
pub(super) struct Lru<V> {
    capacity: usize,
    /// With when each was used last: a number that grows.
    values: BTreeMap<Key, (u64, V)>,
    uses: u64,
}

impl<V> Lru<V> {
    pub(super) fn new(capacity: usize) -> Lru<V> {
        Lru { capacity, values: BTreeMap::new(), uses: 0 }
    }

    /// The value of a key, made first if there is none, and now the latest used.
    pub(super) fn entry(&mut self, key: Key, make: impl FnOnce() -> V) -> &mut V {
        if self.values.len() >= self.capacity && !self.values.contains_key(&key) {
            self.make_room();
        }
        self.uses += 1;
        let (last_use, value) = self.values.entry(key).or_insert_with(|| (0, make()));
        *last_use = self.uses;
        value
    }

    /// Forgets the eighth that was not used for longest: all at once, so that no order by use has to be kept.
    fn make_room(&mut self) {
        let mut uses: Vec<u64> = self.values.values().map(|(last_use, _)| *last_use).collect();
        let (_, last, _) = uses.select_nth_unstable(self.capacity / 8);
        self.values.retain(|_, (last_use, _)| *last_use > *last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let mut lru = Lru::new(3);
        for key in [1, 2, 3, 1] {
            *lru.entry(key, || 0) += 1;
        }
        lru.entry(4, || 0);
        assert_eq!(*lru.entry(1, || 0), 2, "1 was used again and stays");
        assert_eq!(*lru.entry(2, || 7), 7, "2 had to go and is made anew");
        assert_eq!(lru.values.len(), 3);
    }

    #[test]
    fn it_never_holds_more_than_it_may() {
        let mut lru = Lru::new(10);
        for key in 0..1000 {
            lru.entry(key % 37, || ());
            assert!((8..=10).contains(&lru.values.len()) || key < 8);
        }
    }
}
