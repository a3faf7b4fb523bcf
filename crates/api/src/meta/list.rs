//! [`List`]: several objects of one kind.

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeOwned, MapAccess},
    ser::SerializeMap,
};

use crate::object::{self, Fields, Object, object};
use crate::text::Text;

object! {
    /// What a list carries: the version to watch from, and where it goes on.
    pub struct ListMeta {
        self_link: Text = "selfLink",
        resource_version: Text = "resourceVersion",
        r#continue: Text = "continue",
        remaining_item_count: Option<i64> = "remainingItemCount",
        shard_info: Option<Box<ShardInfo>> = "shardInfo",
    }
}

object! {
    /// Which part of a list this is.
    pub struct ShardInfo {
        selector: Text = "selector" always,
    }
}

/// Several objects of one kind, such as a `PodList`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List<T> {
    /// The version to watch from, and where the list goes on.
    pub metadata: ListMeta,
    /// The objects.
    pub items: Vec<T>,
}

impl<T> Default for List<T> {
    fn default() -> List<T> {
        List { metadata: ListMeta::default(), items: Vec::new() }
    }
}

impl<T: Object> Object for List<T> {
    const API_VERSION: &'static str = T::API_VERSION;
    const KIND: &'static str = T::LIST_KIND;
    /// Lists hold objects, never lists.
    const LIST_KIND: &'static str = T::LIST_KIND;
}

impl<T: Object + Serialize + DeserializeOwned> Fields for List<T> {
    const NAMES: &'static [&'static str] = &["apiVersion", "kind", "metadata", "items"];

    fn read_field<'de, A: MapAccess<'de>>(&mut self, index: usize, map: &mut A) -> Result<(), A::Error> {
        match index {
            0 | 1 => object::read_type::<Self, A>(index, map),
            2 => object::read(map, &mut self.metadata),
            3 => object::read(map, &mut self.items),
            _ => object::read_nothing(map),
        }
    }

    fn write_fields<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        map.serialize_entry("apiVersion", T::API_VERSION)?;
        map.serialize_entry("kind", T::LIST_KIND)?;
        map.serialize_entry("metadata", &self.metadata)?;
        map.serialize_entry("items", &self.items)
    }
}

impl<'de, T: Object + Serialize + DeserializeOwned> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<List<T>, D::Error> {
        object::deserialize(deserializer)
    }
}

impl<T: Object + Serialize + DeserializeOwned> Serialize for List<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        object::serialize(self, serializer)
    }
}
