//! What is kept for as long as somebody has a hold of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Things by their keys. Each goes with its last holder.
pub(crate) struct Registry<K, V>(Mutex<BTreeMap<K, Weak<V>>>);

impl<K: Ord + Clone, V> Registry<K, V> {
    pub(crate) fn new() -> Registry<K, V> {
        Registry(Mutex::new(BTreeMap::new()))
    }

    /// What is there.
    pub(crate) fn get(&self, key: &K) -> Option<Arc<V>> {
        self.lock().get(key)?.upgrade()
    }

    /// What is there, or what is made now.
    pub(crate) fn get_or_make(&self, key: K, make: impl FnOnce() -> V) -> Arc<V> {
        let mut all = self.lock();
        if let Some(there) = all.get(&key).and_then(Weak::upgrade) {
            return there;
        }
        all.retain(|_, held| held.strong_count() > 0);
        let made = Arc::new(make());
        all.insert(key, Arc::downgrade(&made));
        made
    }

    /// All that is there.
    pub(crate) fn all(&self) -> Vec<(K, Arc<V>)> {
        let all = self.lock();
        all.iter().filter_map(|(key, held)| Some((key.clone(), held.upgrade()?))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<K, Weak<V>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_holds_is_gone_and_forgotten() {
        let registry = Registry::new();
        let one = registry.get_or_make("a", || 1);
        let same = registry.get_or_make("a", || 2);
        assert_eq!((*same, registry.all().len()), (1, 1));
        drop((one, same));
        assert!(registry.get(&"a").is_none() && registry.all().is_empty());
        let _other = registry.get_or_make("b", || 3);
        assert_eq!(registry.lock().len(), 1);
    }
}
