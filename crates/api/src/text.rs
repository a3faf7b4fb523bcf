//! [`Text`]: short text in place, long text shared.

use std::{borrow::Borrow, fmt, ops::Deref};

use ecow::EcoString;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{object::Absent, word::read_word};

/// Text in 16 bytes. Up to 15 bytes are held in place, which is most of the text in an object; what is longer is
/// shared between copies. A pod has some 150 texts, and an allocation for each of them would take more memory than
/// what they say.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(EcoString);

impl Text {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        self
    }
}

impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        self
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text(text.into())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text(text.into())
    }
}

impl From<&String> for Text {
    fn from(text: &String) -> Text {
        text.as_str().into()
    }
}

impl From<Box<str>> for Text {
    fn from(text: Box<str>) -> Text {
        text.as_ref().into()
    }
}

impl From<Text> for String {
    fn from(text: Text) -> String {
        text.0.into()
    }
}

impl From<Text> for Box<str> {
    fn from(text: Text) -> Box<str> {
        text.as_str().into()
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl PartialEq<Text> for str {
    fn eq(&self, other: &Text) -> bool {
        self == other.as_str()
    }
}

impl PartialEq<Text> for &str {
    fn eq(&self, other: &Text) -> bool {
        *self == other.as_str()
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(formatter)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(formatter)
    }
}

impl Absent for Text {
    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
        read_word(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_takes_sixteen_bytes() {
        assert_eq!(size_of::<Text>(), 16);
    }

    #[test]
    fn short_and_long_texts_are_the_same_to_a_reader() {
        for text in ["", "cpu", "fifteen bytes..", "sixteen bytes...", &"größe ".repeat(1000)] {
            let made = Text::from(text);
            assert_eq!(made, text);
            assert_eq!(made.clone().to_string(), text);
            assert_eq!(format!("{made:?}"), format!("{text:?}"));
            let json = serde_json::to_string(&made).unwrap();
            assert_eq!(serde_json::from_str::<Text>(&json).unwrap(), made);
        }
    }
}
