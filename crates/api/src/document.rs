//! A YAML or JSON text as a tree that knows where each value was written.
//!
//! Everything a person writes for the agent (configuration, manifests) goes through here, because a person wants
//! to be told the file, the line and the field. The tree is decoded into types by [`decode`]; what the types do
//! not know is reported, not lost. Several trees can be merged before that, and the values still know their place.

mod decode;
mod scalar;
mod write;
mod yaml;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub(crate) use decode::{DROPPED, decode_strictly};
pub use decode::{DecodeError, decode};
pub use write::write_yaml;
pub use yaml::{ParseError, parse};

/// A value and the place where it was written.
#[derive(Debug, Clone, PartialEq)]
pub struct Tree {
    /// The value itself.
    pub value: Value,
    /// Where it was written.
    pub place: Place,
}

/// What a tree can be: JSON's kinds, with whole numbers kept apart from fractions.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing: as good as not being there.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number; wide enough for every 64-bit one, signed or not.
    Int(i128),
    /// A number with a fraction or an exponent.
    Float(f64),
    Text(Box<str>),
    List(Vec<Tree>),
    /// A mapping from names to nodes.
    Map(BTreeMap<Box<str>, Tree>),
}

/// Where a value was written: a line of a file, or a flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file's path, or the flag's name with its dashes.
    pub source: Arc<str>,
    /// The line in the file, from 1; 0 where there are no lines.
    pub line: u32,
}

/// Something doubtful that does not stop the text from being understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where it is.
    pub place: Place,
    /// Which field it is about, as a path such as `logging.options` or `spec.containers[0].name`.
    pub path: String,
    /// What is doubtful.
    pub message: String,
}

/// How large a text may be: whatever is over the limit is an error, found before the memory is spent.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of text, and of what it holds, counting each again that an alias repeats or an anchor keeps.
    pub bytes: usize,
    /// Values, counted likewise.
    pub nodes: usize,
    /// Levels of nesting.
    pub depth: usize,
}

/// The way from the root of a document to one of its values.
#[derive(Clone, Copy)]
pub enum Path<'a> {
    /// The document itself.
    Root,
    /// A field of a mapping.
    Field(&'a Path<'a>, &'a str),
    /// An element of a list.
    Index(&'a Path<'a>, usize),
}

impl Limits {
    /// Enough for any configuration file or pod manifest that a person writes.
    pub const MANIFEST: Limits = Limits { bytes: 3 * 1024 * 1024, nodes: 200_000, depth: 100 };

    /// Enough for any answer of an API server that is not a list: what it stores is smaller by far.
    pub const API: Limits = Limits { bytes: 16 * 1024 * 1024, nodes: 1_000_000, depth: 100 };
}

impl Tree {
    /// The field of that name, where this is a mapping that has it and it is not null.
    pub fn get(&self, name: &str) -> Option<&Tree> {
        match &self.value {
            Value::Map(fields) => fields.get(name).filter(|node| node.value != Value::Null),
            Value::Null
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Float(_)
            | Value::Text(_)
            | Value::List(_) => None,
        }
    }

    /// The node at the end of a path of field names.
    pub fn at(&self, path: &[&str]) -> Option<&Tree> {
        path.iter().try_fold(self, |node, name| node.get(name))
    }

    /// The text, where it is one.
    pub fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            Value::Null
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Float(_)
            | Value::List(_)
            | Value::Map(_) => None,
        }
    }

    /// Lays `patch` over this node as a JSON merge patch (RFC 7386) does: mappings are merged field by field, a
    /// null removes, everything else replaces.
    pub fn merge(&mut self, patch: Tree) {
        match (&mut self.value, patch.value) {
            (Value::Map(fields), Value::Map(changes)) => {
                for (name, change) in changes {
                    if change.value == Value::Null {
                        fields.remove(&name);
                    } else if let Some(field) = fields.get_mut(&name) {
                        field.merge(change);
                    } else {
                        fields.insert(name, change.without_nulls());
                    }
                }
            }
            (_, value) => *self = Tree { value, place: patch.place }.without_nulls(),
        }
    }

    /// Puts `node` at the end of a path of field names, making the mappings on the way.
    pub fn set(&mut self, path: &[&str], node: Tree) {
        let patch = path.iter().rev().fold(node, |inner, name| Tree {
            place: inner.place.clone(),
            value: Value::Map(BTreeMap::from([((*name).into(), inner)])),
        });
        self.merge(patch);
    }

    fn without_nulls(mut self) -> Tree {
        if let Value::Map(fields) = &mut self.value {
            fields.retain(|_, field| field.value != Value::Null);
            for field in fields.values_mut() {
                let taken = std::mem::replace(&mut field.value, Value::Null);
                *field = Tree { value: taken, place: field.place.clone() }.without_nulls();
            }
        }
        self
    }
}

impl Value {
    /// The kind of value, in words for an error message.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "nothing",
            Value::Bool(_) => "a boolean",
            Value::Int(_) | Value::Float(_) => "a number",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.source),
            line => write!(f, "{}:{line}", self.source),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => write!(f, "{}: {}", self.place, self.message),
            path => write!(f, "{}: {path}: {}", self.place, self.message),
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Field(Path::Root, name) => f.write_str(name),
            Path::Field(parent, name) => write!(f, "{parent}.{name}"),
            Path::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> Tree {
        parse("f", text, Limits::MANIFEST).unwrap().0
    }

    #[test]
    fn a_merge_replaces_lists_merges_mappings_and_removes_nulls() {
        let mut base = tree("a: {b: 1, c: 2}\nlist: [1, 2]\ngone: 1\n");
        base.merge(tree("a: {c: 3, d: {e: null, f: 4}}\nlist: [9]\ngone: null\n"));
        assert_eq!(write_yaml(&base, &|_| None), "a:\n  b: 1\n  c: 3\n  d:\n    f: 4\nlist:\n- 9\n");
    }

    #[test]
    fn a_merged_value_keeps_the_place_it_was_written_at() {
        let mut base = tree("a:\n  b: 1\n");
        base.merge(parse("g", "x: 1\na:\n  c: 2\n", Limits::MANIFEST).unwrap().0);
        assert_eq!(base.at(&["a", "b"]).unwrap().place.to_string(), "f:2");
        assert_eq!(base.at(&["a", "c"]).unwrap().place.to_string(), "g:3");
    }
}
