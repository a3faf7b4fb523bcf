//! [`Map`]: text to values, sorted, in one block of memory.

use std::{borrow::Borrow, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
};

use crate::object::Absent;
use crate::text::Text;

/// A map from text to values, sorted by key as Kubernetes writes maps. It is small and rarely changed, so it is
/// one sorted slice.
#[derive(Clone, PartialEq, Eq)]
pub struct Map<V>(Box<[(Text, V)]>);

impl<V> Map<V> {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&V> {
        self.position(key).ok().map(|index| &self.0[index].1)
    }

    /// The value of a key.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut V> {
        self.position(key).ok().map(|index| &mut self.0[index].1)
    }

    /// Whether there is such a key.
    pub fn contains_key(&self, key: &str) -> bool {
        self.position(key).is_ok()
    }

    /// The keys with their values, sorted by key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &V)> + DoubleEndedIterator {
        self.0.iter().map(|(key, value)| (key.as_ref(), value))
    }

    /// The keys, sorted.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> + DoubleEndedIterator {
        self.iter().map(|(key, _)| key)
    }

    /// The values, sorted by key.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &V> + DoubleEndedIterator {
        self.iter().map(|(_, value)| value)
    }

    /// The values, sorted by key.
    pub fn values_mut(&mut self) -> impl ExactSizeIterator<Item = &mut V> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets the value of a key; the answer is the value it had.
    pub fn insert(&mut self, key: impl Into<Text>, value: V) -> Option<V> {
        let key = key.into();
        match self.position(&key) {
            Ok(index) => Some(std::mem::replace(&mut self.0[index].1, value)),
            Err(index) => {
                let mut entries = std::mem::take(&mut self.0).into_vec();
                entries.reserve_exact(1);
                entries.insert(index, (key, value));
                self.0 = entries.into_boxed_slice();
                None
            }
        }
    }

    /// Removes a key; the answer is the value it had.
    pub fn remove(&mut self, key: &str) -> Option<V> {
        let index = self.position(key).ok()?;
        let mut entries = std::mem::take(&mut self.0).into_vec();
        let (_, value) = entries.remove(index);
        self.0 = entries.into_boxed_slice();
        Some(value)
    }

    /// Keeps the keys for which `keep` says so.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &V) -> bool) {
        let mut entries = std::mem::take(&mut self.0).into_vec();
        entries.retain(|(key, value)| keep(key, value));
        self.0 = entries.into_boxed_slice();
    }

    fn position(&self, key: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| other.as_ref().cmp(key))
    }

    /// Of the same key twice, the last counts.
    fn from_entries(mut entries: Vec<(Text, V)>) -> Map<V> {
        if !entries.is_sorted_by(|(a, _), (b, _)| a < b) {
            entries.sort_by(|(a, _), (b, _)| a.cmp(b));
            entries.dedup_by(|later, earlier| {
                let same = later.0 == earlier.0;
                if same {
                    std::mem::swap(later, earlier);
                }
                same
            });
        }
        Map(entries.into_boxed_slice())
    }
}

impl<V> Default for Map<V> {
    fn default() -> Map<V> {
        Map(Box::default())
    }
}

impl<V> Absent for Map<V> {
    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

impl<V: fmt::Debug> fmt::Debug for Map<V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Into<Text>, V> FromIterator<(K, V)> for Map<V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Map<V> {
        Map::from_entries(entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
    }
}

impl<V> IntoIterator for Map<V> {
    type Item = (Text, V);
    type IntoIter = std::vec::IntoIter<(Text, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_vec().into_iter()
    }
}

impl<V, Q: Borrow<str>> std::ops::Index<Q> for Map<V> {
    type Output = V;

    /// Panics where there is no such key, as every map's index does.
    fn index(&self, key: Q) -> &V {
        let key = key.borrow();
        self.get(key).unwrap_or_else(|| panic!("no key {key:?}"))
    }
}

impl<V: Serialize> Serialize for Map<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de, V: Deserialize<'de> + Default> Deserialize<'de> for Map<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Map<V>, D::Error> {
        deserializer.deserialize_map(MapVisitor(PhantomData))
    }
}

struct MapVisitor<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de> + Default> Visitor<'de> for MapVisitor<V> {
    type Value = Map<V>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a mapping")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Map<V>, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, value)) = map.next_entry::<Text, Option<V>>()? {
            entries.push((key, value.unwrap_or_default()));
        }
        Ok(Map::from_entries(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_sorted_and_the_last_of_equal_keys_counts() {
        let map: Map<i32> = [("b", 1), ("a", 2), ("b", 3), ("c", 4), ("b", 5)].into_iter().collect();
        assert_eq!(map.iter().collect::<Vec<_>>(), [("a", &2), ("b", &5), ("c", &4)]);
        assert_eq!((map.get("b"), map.get("z"), map["c"]), (Some(&5), None, 4));
    }

    #[test]
    fn keys_come_and_go() {
        let mut map = Map::default();
        assert_eq!(map.insert("b", 1), None);
        assert_eq!(map.insert("a", 2), None);
        assert_eq!(map.insert("b", 3), Some(1));
        assert_eq!(map.remove("x"), None);
        assert_eq!(map.remove("a"), Some(2));
        map.insert("c", 4);
        map.retain(|_, value| *value > 3);
        assert_eq!(map.into_iter().collect::<Vec<_>>(), [("c".into(), 4)]);
    }

    #[test]
    fn a_null_value_is_an_empty_one() {
        let map: Map<Text> = serde_json::from_str(r#"{"a":null,"b":"x"}"#).unwrap();
        assert_eq!(serde_json::to_string(&map).unwrap(), r#"{"a":"","b":"x"}"#);
    }
}
