//! A map that forgets what was not used for longest.

use std::collections::BTreeMap;

/// A key: a digest of what it stands for, so that thousands of them stay small.
pub(super) type Key = u128;

/// A map with a bound.
#[derive(Debug)]
pub(super) struct Lru<V> {
    capacity: usize,
    values: BTreeMap<Key, (u64, V)>,
    by_use: BTreeMap<u64, Key>,
    uses: u64,
}

impl<V> Lru<V> {
    pub(super) fn new(capacity: usize) -> Lru<V> {
        Lru { capacity, values: BTreeMap::new(), by_use: BTreeMap::new(), uses: 0 }
    }

    /// The value of a key, made first if there is none, and now the latest used.
    pub(super) fn entry(&mut self, key: Key, make: impl FnOnce() -> V) -> &mut V {
        self.uses += 1;
        let uses = self.uses;
        match self.values.get(&key) {
            Some((last_use, _)) => _ = self.by_use.remove(last_use),
            None if self.values.len() >= self.capacity => {
                if let Some((_, oldest)) = self.by_use.pop_first() {
                    self.values.remove(&oldest);
                }
            }
            None => {}
        }
        self.by_use.insert(uses, key);
        let (last_use, value) = self.values.entry(key).or_insert_with(|| (uses, make()));
        *last_use = uses;
        value
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
        assert_eq!((lru.values.len(), lru.by_use.len()), (3, 3));
    }

    #[test]
    fn it_never_holds_more_than_it_may() {
        let mut lru = Lru::new(10);
        for key in 0..1000 {
            lru.entry(key % 37, || ());
            assert!(lru.values.len() <= 10 && lru.values.len() == lru.by_use.len());
        }
    }
}
