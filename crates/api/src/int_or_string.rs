//! [`IntOrString`]: a port by its number or its name, a share by its count or its percentage.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::object::Absent;
use crate::text::Text;

/// A number or text, such as a port's number or its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntOrString {
    /// A number.
    Int(i32),
    String(Text),
}

impl Default for IntOrString {
    fn default() -> IntOrString {
        IntOrString::Int(0)
    }
}

impl Absent for IntOrString {}

impl From<i32> for IntOrString {
    fn from(number: i32) -> IntOrString {
        IntOrString::Int(number)
    }
}

impl From<&str> for IntOrString {
    fn from(text: &str) -> IntOrString {
        IntOrString::String(text.into())
    }
}

impl fmt::Display for IntOrString {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IntOrString::Int(number) => number.fmt(formatter),
            IntOrString::String(text) => text.fmt(formatter),
        }
    }
}

impl Serialize for IntOrString {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            IntOrString::Int(number) => serializer.serialize_i32(*number),
            IntOrString::String(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for IntOrString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<IntOrString, D::Error> {
        deserializer.deserialize_any(IntOrStringVisitor)
    }
}

struct IntOrStringVisitor;

impl de::Visitor<'_> for IntOrStringVisitor {
    type Value = IntOrString;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "text or a whole number from {} to {}", i32::MIN, i32::MAX)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<IntOrString, E> {
        let fitting =
            i32::try_from(number).map_err(|_| E::invalid_value(de::Unexpected::Signed(number), &self));
        fitting.map(IntOrString::Int)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<IntOrString, E> {
        let fitting =
            i32::try_from(number).map_err(|_| E::invalid_value(de::Unexpected::Unsigned(number), &self));
        fitting.map(IntOrString::Int)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<IntOrString, E> {
        Ok(IntOrString::from(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stays_a_number_and_text_stays_text() {
        for json in ["0", "-1", "2147483647", r#""http""#, r#""80""#, r#""""#] {
            let value: IntOrString = serde_json::from_str(json).unwrap();
            assert_eq!(serde_json::to_string(&value).unwrap(), json);
        }
        for json in ["2147483648", "-2147483649", "18446744073709551616", "1.5", "true", "[]", "{}"] {
            assert!(serde_json::from_str::<IntOrString>(json).is_err(), "{json}");
        }
    }
}
