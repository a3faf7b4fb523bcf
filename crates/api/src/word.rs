//! Words of closed sets, and those that are not in their set.

use std::{fmt, marker::PhantomData, ops::Deref};

use serde::{Deserializer, de};

/// A word that is not in its set: a newer API server knows more than we do, and a person may misspell one. It is
/// rare, so it takes the place of a pointer.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OtherWord(Box<Box<str>>);

impl Deref for OtherWord {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for OtherWord {
    fn from(text: &str) -> OtherWord {
        OtherWord(Box::new(text.into()))
    }
}

impl fmt::Debug for OtherWord {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl fmt::Display for OtherWord {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Reads a word without copying it first.
#[doc(hidden)]
pub fn read_word<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: for<'t> From<&'t str>,
    D: Deserializer<'de>,
{
    deserializer.deserialize_str(WordVisitor(PhantomData))
}

struct WordVisitor<T>(PhantomData<T>);

impl<T: for<'t> From<&'t str>> de::Visitor<'_> for WordVisitor<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        Ok(T::from(text))
    }
}
