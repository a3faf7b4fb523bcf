//! [`WatchEvent`]: what a watch sends, one after the other.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, DeserializeOwned, DeserializeSeed, IgnoredAny, MapAccess, Visitor},
    ser::SerializeMap,
};

use super::{ObjectMeta, Status};
use crate::object::Object;

/// What a watch sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent<T> {
    /// An object was made, or was there when the watch began.
    Added(T),
    /// An object has changed.
    Modified(T),
    /// An object is gone; this is how it was last.
    Deleted(T),
    /// Nothing happened, but the watch can be taken up again from here.
    Bookmark(Box<ObjectMeta>),
    /// The watch cannot go on.
    Error(Box<Status>),
    /// Something that we do not know.
    Other(Box<str>),
}

impl<T> WatchEvent<T> {
    fn word(&self) -> &str {
        match self {
            WatchEvent::Added(_) => "ADDED",
            WatchEvent::Modified(_) => "MODIFIED",
            WatchEvent::Deleted(_) => "DELETED",
            WatchEvent::Bookmark(_) => "BOOKMARK",
            WatchEvent::Error(_) => "ERROR",
            WatchEvent::Other(word) => word,
        }
    }
}

#[derive(Deserialize)]
struct Bookmarked {
    #[serde(default)]
    metadata: Box<ObjectMeta>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkedRef<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: &'a ObjectMeta,
}

impl<T: Object + Serialize> Serialize for WatchEvent<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", self.word())?;
        match self {
            WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
                map.serialize_entry("object", object)?;
            }
            WatchEvent::Bookmark(metadata) => {
                let object = BookmarkedRef { api_version: T::API_VERSION, kind: T::KIND, metadata };
                map.serialize_entry("object", &object)?;
            }
            WatchEvent::Error(status) => map.serialize_entry("object", status)?,
            WatchEvent::Other(_) => {}
        }
        map.end()
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for WatchEvent<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WatchEvent<T>, D::Error> {
        deserializer.deserialize_map(EventVisitor(PhantomData))
    }
}

struct EventVisitor<T>(PhantomData<T>);

impl<'de, T: DeserializeOwned> Visitor<'de> for EventVisitor<T> {
    type Value = WatchEvent<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a watch event")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WatchEvent<T>, A::Error> {
        let mut word: Option<Box<str>> = None;
        let mut early: Option<serde_json::Value> = None;
        let mut event = None;
        while let Some(name) = map.next_key::<Box<str>>()? {
            match (&*name, &word) {
                ("type", _) => word = Some(map.next_value()?),
                ("object", Some(word)) => {
                    event = Some(map.next_value_seed(ObjectSeed { word, kind: self.0 })?)
                }
                // An API server writes the type first. From anyone else, the object has to wait for it.
                ("object", None) => early = Some(map.next_value()?),
                _ => map.next_value::<IgnoredAny>().map(drop)?,
            }
        }
        match (event, word, early) {
            (Some(event), ..) => Ok(event),
            (None, Some(word), Some(object)) => {
                let event = ObjectSeed { word: &word, kind: self.0 }.deserialize(object);
                event
                    .map_err(|_| de::Error::custom(format_args!("not an object for an event of type {word}")))
            }
            (None, Some(_), None) => Err(de::Error::missing_field("object")),
            (None, None, _) => Err(de::Error::missing_field("type")),
        }
    }
}

/// Reads the object of an event whose type is known.
struct ObjectSeed<'w, T> {
    word: &'w str,
    kind: PhantomData<T>,
}

impl<'de, T: DeserializeOwned> DeserializeSeed<'de> for ObjectSeed<'_, T> {
    type Value = WatchEvent<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<WatchEvent<T>, D::Error> {
        match self.word {
            "ADDED" => T::deserialize(deserializer).map(WatchEvent::Added),
            "MODIFIED" => T::deserialize(deserializer).map(WatchEvent::Modified),
            "DELETED" => T::deserialize(deserializer).map(WatchEvent::Deleted),
            "BOOKMARK" => {
                Bookmarked::deserialize(deserializer).map(|object| WatchEvent::Bookmark(object.metadata))
            }
            "ERROR" => Box::deserialize(deserializer).map(WatchEvent::Error),
            word => IgnoredAny::deserialize(deserializer).map(|_| WatchEvent::Other(word.into())),
        }
    }
}
