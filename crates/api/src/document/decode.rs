//! From a tree to types, through serde: whatever the types skip is an unknown field, and every error says where.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{
    self, Deserialize, DeserializeSeed, EnumAccess, Expected, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, VariantAccess, Visitor,
};

use super::{Path, Place, Problem, Tree, Value};

/// The name of the newtype that stands for a value which is known but not kept, and so not reported either.
pub(crate) const DROPPED: &str = "\u{0}dropped";

/// A value that does not fit its field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DecodeError(pub Problem);

/// Decodes a tree. The second part of the answer names the fields that the type does not know; they are ignored.
pub fn decode<'de, T: Deserialize<'de>>(node: &'de Tree) -> Result<(T, Vec<Problem>), DecodeError> {
    let (value, unknown) = decode_strictly(node)?;
    Ok((value, unknown.into_iter().map(|unknown| unknown.problem).collect()))
}

/// A field that the type does not know.
pub(crate) struct Unknown {
    pub(crate) problem: Problem,
    /// The fields that it knows in that place.
    pub(crate) known: &'static [&'static str],
}

/// Decodes a tree, and tells of each unknown field which ones are known in its place.
pub(crate) fn decode_strictly<'de, T: Deserialize<'de>>(
    node: &'de Tree,
) -> Result<(T, Vec<Unknown>), DecodeError> {
    let unknown = RefCell::new(Vec::new());
    let decoder = Decoder { node, path: &Path::Root, unknown: &unknown, known: &[], null_is_empty: false };
    match T::deserialize(decoder) {
        Ok(value) => Ok((value, unknown.into_inner())),
        Err(error) => Err(DecodeError(error.into_problem(node))),
    }
}

#[derive(Clone, Copy)]
struct Decoder<'de, 'p> {
    node: &'de Tree,
    path: &'p Path<'p>,
    unknown: &'p RefCell<Vec<Unknown>>,
    /// The fields that are known in the mapping around this value, where it is a struct.
    known: &'static [&'static str],
    /// Whether a null stands for the empty value of whatever is wanted: it does behind a key of a map, as in Go.
    null_is_empty: bool,
}

/// An error on its way out: the innermost decoder that sees it says where it happened.
#[derive(Debug)]
struct Error {
    message: String,
    place: Option<(Place, String)>,
}

impl Error {
    fn into_problem(self, root: &Tree) -> Problem {
        let (place, path) = self.place.unwrap_or_else(|| (root.place.clone(), String::new()));
        Problem { place, path, message: self.message }
    }
}

impl<'de, 'p> Decoder<'de, 'p> {
    fn locate<T>(self, result: Result<T, Error>) -> Result<T, Error> {
        result.map_err(|error| match error.place {
            Some(_) => error,
            None => Error { place: Some((self.node.place.clone(), self.path.to_string())), ..error },
        })
    }

    fn visit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Int(value) => match (i64::try_from(*value), u64::try_from(*value)) {
                (Ok(signed), _) => visitor.visit_i64(signed),
                (Err(_), Ok(unsigned)) => visitor.visit_u64(unsigned),
                (Err(_), Err(_)) => visitor.visit_i128(*value),
            },
            Value::Float(value) => visitor.visit_f64(*value),
            Value::Text(text) => visitor.visit_borrowed_str(text),
            Value::List(items) => visitor.visit_seq(Items { parent: self, items: items.iter().enumerate() }),
            Value::Map(fields) => visitor.visit_map(self.fields(fields, &[])),
        }
    }

    /// `known` are the fields of the struct that these are read into, if it is one.
    fn fields(
        self,
        fields: &'de BTreeMap<Box<str>, Tree>,
        known: &'static [&'static str],
    ) -> Fields<'de, 'p> {
        Fields { parent: self, fields: fields.iter(), next: None, known, of_a_struct: false }
    }

    fn is_empty(self) -> bool {
        self.null_is_empty && self.node.value == Value::Null
    }
}

/// A mapping without fields.
static NOTHING: BTreeMap<Box<str>, Tree> = BTreeMap::new();

/// `5.0` and `1e3` are whole numbers to Kubernetes, which reads YAML by way of JSON.
macro_rules! whole_numbers {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match self.node.value {
                Value::Float(number) if number.fract() == 0.0 && number.abs() < 9e18 => {
                    self.locate(visitor.visit_i64(number as i64))
                }
                Value::Null if self.null_is_empty => visitor.visit_i64(0),
                _ => self.deserialize_any(visitor),
            }
        })*
    };
}

impl<'de> de::Deserializer<'de> for Decoder<'de, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.locate(self.visit(visitor))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.node.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        match name {
            DROPPED => visitor.visit_unit(),
            _ => self.locate(visitor.visit_newtype_struct(self)),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.locate(visitor.visit_enum(Variant { decoder: self }))
    }

    /// serde would take a list for a struct's fields in order; nobody writes that, and Kubernetes does not read it.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match &self.node.value {
            Value::List(_) => self.locate(Err(de::Error::invalid_type(Unexpected::Seq, &visitor))),
            Value::Map(fields) => {
                self.locate(visitor.visit_map(Fields { of_a_struct: true, ..self.fields(fields, known) }))
            }
            Value::Null if self.null_is_empty => self.locate(visitor.visit_map(self.fields(&NOTHING, known))),
            _ => self.locate(self.visit(visitor)),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.is_empty() {
            true => self.locate(visitor.visit_map(self.fields(&NOTHING, &[]))),
            false => self.deserialize_any(visitor),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.is_empty() {
            true => self.locate(visitor.visit_seq(Items { parent: self, items: [].iter().enumerate() })),
            false => self.deserialize_any(visitor),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.is_empty() {
            true => self.locate(visitor.visit_borrowed_str("")),
            false => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.is_empty() {
            true => visitor.visit_bool(false),
            false => self.deserialize_any(visitor),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let problem = Problem {
            place: self.node.place.clone(),
            path: self.path.to_string(),
            message: "unknown field".into(),
        };
        self.unknown.borrow_mut().push(Unknown { problem, known: self.known });
        visitor.visit_unit()
    }

    whole_numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
    }

    serde::forward_to_deserialize_any! {
        i128 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct identifier
    }
}

struct Items<'de, 'p> {
    parent: Decoder<'de, 'p>,
    items: std::iter::Enumerate<std::slice::Iter<'de, Tree>>,
}

impl<'de> SeqAccess<'de> for Items<'de, '_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some((index, node)) = self.items.next() else { return Ok(None) };
        let path = Path::Index(self.parent.path, index);
        let decoder =
            Decoder { node, path: &path, unknown: self.parent.unknown, known: &[], null_is_empty: false };
        decoder.locate(seed.deserialize(decoder)).map(Some)
    }
}

struct Fields<'de, 'p> {
    parent: Decoder<'de, 'p>,
    fields: std::collections::btree_map::Iter<'de, Box<str>, Tree>,
    next: Option<(&'de str, &'de Tree)>,
    known: &'static [&'static str],
    of_a_struct: bool,
}

impl<'de> Fields<'de, '_> {
    fn decoder<'p>(&'p self, node: &'de Tree, path: &'p Path<'p>) -> Decoder<'de, 'p> {
        let (unknown, known) = (self.parent.unknown, self.known);
        Decoder { node, path, unknown, known, null_is_empty: !self.of_a_struct }
    }
}

impl<'de> MapAccess<'de> for Fields<'de, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        // A null is as good as an absent field to Kubernetes, whatever the field's type; but a key is a key.
        let skip_nulls = self.of_a_struct;
        let mut fields = self.fields.by_ref().filter(|(_, node)| !skip_nulls || node.value != Value::Null);
        let Some((name, node)) = fields.next() else { return Ok(None) };
        self.next = Some((name, node));
        let path = Path::Field(self.parent.path, name);
        let decoder = self.decoder(node, &path);
        decoder.locate(seed.deserialize(de::value::BorrowedStrDeserializer::new(name))).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let Some((name, node)) = self.next.take() else {
            return Err(de::Error::custom("a value before its key"));
        };
        let path = Path::Field(self.parent.path, name);
        let decoder = self.decoder(node, &path);
        decoder.locate(seed.deserialize(decoder))
    }
}

struct Variant<'de, 'p> {
    decoder: Decoder<'de, 'p>,
}

impl<'de, 'p> EnumAccess<'de> for Variant<'de, 'p> {
    type Error = Error;
    type Variant = Unit;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Unit), Error> {
        match &self.decoder.node.value {
            Value::Text(text) => {
                let name: de::value::StrDeserializer<'_, Error> = text.as_ref().into_deserializer();
                Ok((seed.deserialize(name)?, Unit))
            }
            other => Err(de::Error::custom(format_args!("expected text, found {}", other.kind()))),
        }
    }
}

/// Our enums have no data: Kubernetes writes closed sets as text.
struct Unit;

impl<'de> VariantAccess<'de> for Unit {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, Error> {
        Err(de::Error::custom("expected text"))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Error> {
        Err(de::Error::custom("expected text"))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, Error> {
        Err(de::Error::custom("expected text"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Error {
        Error { message: message.to_string(), place: None }
    }

    /// Says the kind that was found but not the value: a field put in the wrong place may hold a secret.
    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Error {
        let found = match found {
            Unexpected::Bool(_) => "a boolean",
            Unexpected::Unsigned(_) | Unexpected::Signed(_) => "a whole number",
            Unexpected::Float(number) if number.abs() >= i64::MAX as f64 => "a number of more than 64 bits",
            Unexpected::Float(_) => "a number with a fraction",
            Unexpected::Char(_) | Unexpected::Str(_) => "text",
            Unexpected::Unit | Unexpected::Option => "nothing",
            Unexpected::Seq => "a list",
            Unexpected::Map => "a mapping",
            _ => "something else",
        };
        Error::custom(format_args!("expected {}, found {found}", in_words(expected)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Error {
        let expected = in_words(expected);
        match found {
            Unexpected::Unsigned(value) => Error::custom(format_args!("expected {expected}, found {value}")),
            Unexpected::Signed(value) => Error::custom(format_args!("expected {expected}, found {value}")),
            other => Error::invalid_type(other, &expected.as_str()),
        }
    }
}

/// serde names Rust's types; a person who writes a file knows other words.
fn in_words(expected: &dyn Expected) -> String {
    let name = expected.to_string();
    match name.as_str() {
        "i8" | "i16" | "u8" | "u16" => "a whole number that fits the field".into(),
        "i32" => format!("a whole number from {} to {}", i32::MIN, i32::MAX),
        "u32" => format!("a whole number from 0 to {}", u32::MAX),
        "i64" => format!("a whole number from {} to {}", i64::MIN, i64::MAX),
        "u64" => format!("a whole number from 0 to {}", u64::MAX),
        "f32" | "f64" => "a number".into(),
        "a boolean" => "true or false".into(),
        "a string" | "a borrowed string" | "a character" => "text".into(),
        "a sequence" => "a list".into(),
        "a map" => "a mapping".into(),
        name if name.starts_with("struct ") => "a mapping".into(),
        name => name.into(),
    }
}

#[cfg(test)]
mod tests {

    use serde::Deserialize;

    use super::*;
    use crate::document::{Limits, parse};

    #[derive(Debug, Deserialize, Default, PartialEq)]
    #[serde(default)]
    struct Sample {
        count: i32,
        ratio: Option<f64>,
        enabled: bool,
        name: String,
        list: Vec<Inner>,
        map: BTreeMap<String, bool>,
    }

    #[derive(Debug, Deserialize, Default, PartialEq)]
    #[serde(default)]
    struct Inner {
        port: u16,
    }

    fn read(text: &str) -> Result<(Sample, Vec<String>), String> {
        let (node, _) = parse("f", text, Limits::MANIFEST).unwrap();
        match decode(&node) {
            Ok((value, unknown)) => Ok((value, unknown.iter().map(Problem::to_string).collect())),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_document_becomes_a_type_and_nulls_are_as_if_absent() {
        let (sample, unknown) =
            read("count: 3.0\nratio: 1\nenabled: yes\nname: null\nlist: [{port: 1}]\nmap: {a: on}\n")
                .unwrap();
        let expected = Sample {
            count: 3,
            ratio: Some(1.0),
            enabled: true,
            name: String::new(),
            list: vec![Inner { port: 1 }],
            map: BTreeMap::from([("a".into(), true)]),
        };
        assert_eq!((sample, unknown), (expected, vec![]));
    }

    #[test]
    fn a_null_behind_a_key_of_a_map_is_the_empty_value_as_in_go() {
        let (sample, _) = read("list: [{port: null}]\nmap: {a: , b: null}\n").unwrap();
        assert_eq!(sample.list, [Inner { port: 0 }]);
        assert_eq!(sample.map, BTreeMap::from([("a".into(), false), ("b".into(), false)]));
    }

    #[test]
    fn every_unknown_field_is_named_with_its_line_and_path() {
        let (_, unknown) = read("cuont: 3\nlist:\n- port: 1\n  prot: TCP\n").unwrap();
        assert_eq!(unknown, ["f:1: cuont: unknown field", "f:4: list[0].prot: unknown field"]);
    }

    #[test]
    fn a_mistyped_field_is_an_error_that_says_what_is_accepted_and_not_what_was_written() {
        for (text, expected) in [
            (
                "count: abc\n",
                "f:1: count: expected a whole number from -2147483648 to 2147483647, found text",
            ),
            (
                "count: 3000000000\n",
                "f:1: count: expected a whole number from -2147483648 to 2147483647, found 3000000000",
            ),
            (
                "count: 1.5\n",
                "f:1: count: expected a whole number from -2147483648 to 2147483647, found a number with a fraction",
            ),
            ("enabled: 1\n", "f:1: enabled: expected true or false, found a whole number"),
            ("name: 5\n", "f:1: name: expected text, found a whole number"),
            ("name: [5]\n", "f:1: name: expected text, found a list"),
            ("list: 5\n", "f:1: list: expected a list, found a whole number"),
            ("list:\n- 5\n", "f:2: list[0]: expected a mapping, found a whole number"),
            (
                "list:\n- port: x\n",
                "f:2: list[0].port: expected a whole number that fits the field, found text",
            ),
            ("map:\n  a: x\n", "f:2: map.a: expected true or false, found text"),
            ("- 1\n", "f:1: expected a mapping, found a list"),
        ] {
            assert_eq!(read(text).unwrap_err(), expected, "{text:?}");
        }
    }
}
