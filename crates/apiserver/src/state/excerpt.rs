//! An object without what nobody asks about: where only its status changes, most of its spec is neither decoded nor
//! encoded again.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// What of a value is decoded.
#[derive(Debug)]
pub enum Wanted {
    All,
    /// Some fields of an object, or of each object of a list.
    Fields(&'static [(&'static str, Wanted)]),
}

/// An object with a part of its spec, and the JSON of the whole spec.
#[derive(Debug)]
pub struct Excerpt<'j> {
    pub object: Value,
    pub spec: &'j [u8],
}

impl<'j> Excerpt<'j> {
    /// Decodes what is wanted of an object that was encoded by us. None if it has no spec.
    pub fn of(json: &'j [u8], wanted: &'static Wanted) -> Option<Excerpt<'j>> {
        let spec = member(json, b"spec")?;
        let object = wanted.deserialize(&mut serde_json::Deserializer::from_slice(json)).ok()?;
        Some(Excerpt { object, spec })
    }
}

/// The JSON of a member of an object, which was encoded without spaces.
fn member<'j>(json: &'j [u8], wanted: &[u8]) -> Option<&'j [u8]> {
    let mut rest = json.strip_prefix(b"{")?;
    loop {
        let name = rest.get(..end_of_text(rest)?)?;
        rest = rest.get(name.len()..)?.strip_prefix(b":")?;
        let value = rest.get(..end_of_value(rest)?)?;
        if name.strip_prefix(b"\"").and_then(|name| name.strip_suffix(b"\"")) == Some(wanted) {
            return Some(value);
        }
        rest = rest.get(value.len()..)?.strip_prefix(b",")?;
    }
}

/// Where a value ends that text begins with.
fn end_of_value(text: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0, 0_usize);
    loop {
        match text.get(at)? {
            b'"' => at += end_of_text(&text[at..])?,
            b'{' | b'[' => (at, depth) = (at + 1, depth + 1),
            b'}' | b']' | b',' if depth == 0 => return Some(at),
            b'}' | b']' => (at, depth) = (at + 1, depth - 1),
            _ => at += 1,
        }
    }
}

/// Where a string ends that text begins with.
fn end_of_text(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

impl<'j> DeserializeSeed<'j> for &'static Wanted {
    type Value = Value;

    fn deserialize<D: Deserializer<'j>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self {
            Wanted::All => serde::Deserialize::deserialize(deserializer),
            Wanted::Fields(fields) => deserializer.deserialize_any(Fields(self, fields)),
        }
    }
}

struct Fields(&'static Wanted, &'static [(&'static str, Wanted)]);

impl<'j> Visitor<'j> for Fields {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object or a list of objects")
    }

    fn visit_map<A: MapAccess<'j>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(known) = members.next_key_seed(Name(self.1))? {
            match known {
                Some((name, wanted)) => {
                    object.insert((*name).to_owned(), members.next_value_seed(wanted)?);
                }
                None => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Value::Object(object))
    }

    fn visit_seq<A: SeqAccess<'j>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self.0)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

/// The name of a field, if it is one of those.
struct Name(&'static [(&'static str, Wanted)]);

impl<'j> DeserializeSeed<'j> for Name {
    type Value = Option<&'static (&'static str, Wanted)>;

    fn deserialize<D: Deserializer<'j>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Option<&'static (&'static str, Wanted)>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().find(|(known, _)| *known == name))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    static WANTED: Wanted = Wanted::Fields(&[
        ("metadata", Wanted::All),
        (
            "spec",
            Wanted::Fields(&[
                ("node", Wanted::All),
                ("containers", Wanted::Fields(&[("name", Wanted::All)])),
            ]),
        ),
        ("status", Wanted::All),
    ]);

    #[test]
    fn what_is_not_wanted_of_an_object_is_left_out_and_the_spec_is_there_as_it_is() {
        let whole = json!({
            "data": [{"spec": 1}],
            "metadata": {"name": "\"spec\":{", "spec": "}"},
            "spec": {
                "containers": [{"env": [{"name": "}]\\"}], "name": "\"c\""}, null],
                "node": {"n": [1]},
                "x": [{"node": 1}],
            },
            "status": {"spec": {"x": 1}},
        });
        let text = whole.to_string();
        let excerpt = Excerpt::of(text.as_bytes(), &WANTED).unwrap();
        assert_eq!(String::from_utf8_lossy(excerpt.spec), whole["spec"].to_string());
        let expected = json!({
            "metadata": whole["metadata"],
            "spec": {"node": {"n": [1]}, "containers": [{"name": "\"c\""}, null]},
            "status": whole["status"],
        });
        assert_eq!(excerpt.object, expected);
    }

    #[test]
    fn what_has_no_spec_has_no_excerpt() {
        for text in [r#"{"metadata":{"spec":1}}"#, "{}", "{", "", r#"{"spec"#, r#"{"spec":"#, r#"{"a":"\"#] {
            assert!(Excerpt::of(text.as_bytes(), &WANTED).is_none(), "{text}");
        }
    }
}
