//! An object without what nobody asks about: where only its status changes, most of its spec is neither decoded nor
//! encoded again.

use memchr::memchr2;
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
        let (_, spec) = Parts::of(json)?.find(|(name, _)| *name == b"\"spec\"")?;
        Some(Excerpt { object: decoded(json, wanted)?, spec })
    }
}

/// What is wanted of a value that was encoded by us, without spaces.
fn decoded(json: &[u8], wanted: &Wanted) -> Option<Value> {
    match (wanted, json.first()?) {
        (Wanted::Fields(fields), b'{') => {
            let known = |name: &[u8]| {
                let name = name.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
                fields.iter().find(|(known, _)| known.as_bytes() == name)
            };
            let mut object = Map::new();
            for (name, value) in Parts::of(json)? {
                if let Some((name, wanted)) = known(name) {
                    object.insert((*name).to_owned(), decoded(value, wanted)?);
                }
            }
            Some(Value::Object(object))
        }
        (Wanted::Fields(_), b'[') => {
            let items = Parts::of(json)?.map(|(_, item)| decoded(item, wanted));
            items.collect::<Option<_>>().map(Value::Array)
        }
        (Wanted::All | Wanted::Fields(_), _) => serde_json::from_slice(json).ok(),
    }
}
/// The members of an object, with their names as they are written, or the items of a list, without names.
struct Parts<'j> {
    rest: &'j [u8],
    have_names: bool,
}

impl<'j> Parts<'j> {
    fn of(json: &'j [u8]) -> Option<Parts<'j>> {
        let (rest, have_names) = match json {
            [b'{', rest @ .., b'}'] => (rest, true),
            [b'[', rest @ .., b']'] => (rest, false),
            _ => return None,
        };
        Some(Parts { rest, have_names })
    }

    fn part(&mut self) -> Option<(&'j [u8], &'j [u8])> {
        let (name, after) =
            self.rest.split_at_checked(if self.have_names { end_of_text(self.rest)? } else { 0 })?;
        let after = if self.have_names { after.strip_prefix(b":")? } else { after };
        let (value, after) = after.split_at_checked(end_of_value(after)?)?;
        self.rest = after.strip_prefix(b",").unwrap_or(after);
        Some((name, value))
    }
}

impl<'j> Iterator for Parts<'j> {
    type Item = (&'j [u8], &'j [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() { None } else { self.part() }
    }
}

/// Where a value ends that text begins with: at a comma, or with the text.
fn end_of_value(text: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(letter) = text.get(at) {
        match letter {
            b'"' => at += end_of_text(text.get(at..)?)?,
            b',' if depth == 0 => return Some(at),
            b'{' | b'[' => (at, depth) = (at + 1, depth + 1),
            b'}' | b']' => (at, depth) = (at + 1, depth.checked_sub(1)?),
            _ => at += 1,
        }
    }
    (at > 0 && depth == 0).then_some(at)
}

/// Where a string ends that text begins with.
fn end_of_text(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        at += memchr2(b'"', b'\\', text.get(at..)?)?;
        match text.get(at)? {
            b'"' => return Some(at + 1),
            _ => at += 2,
        }
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
