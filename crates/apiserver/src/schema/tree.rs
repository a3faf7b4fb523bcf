//! What a body says before the schema has seen it: in the order in which it was written, with what is there twice.

use std::borrow::Cow;

use serde_json::{Map, Number, Value};

use super::problems::Problems;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tree<'t> {
    Null,
    Bool(bool),
    /// As it was written.
    Number(Cow<'t, str>),
    Text(Cow<'t, str>),
    List(Vec<Tree<'t>>),
    Object(Vec<(Cow<'t, str>, Tree<'t>)>),
}

impl Tree<'_> {
    /// What Go's errors call such a value.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Tree::Null => "null",
            Tree::Bool(_) => "bool",
            Tree::Number(_) => "number",
            Tree::Text(_) => "string",
            Tree::List(_) => "array",
            Tree::Object(_) => "object",
        }
    }

    /// The tree without a type, as Go decodes into an interface: of fields that are there twice, the last counts.
    pub(crate) fn into_value(self, problems: &mut Problems) -> Value {
        match self {
            Tree::Null => Value::Null,
            Tree::Bool(value) => value.into(),
            Tree::Number(text) => number(&text),
            Tree::Text(text) => Value::String(text.into_owned()),
            Tree::List(items) => {
                let mut values = Vec::with_capacity(items.len());
                for (index, item) in items.into_iter().enumerate() {
                    let outer = problems.enter_index(index);
                    values.push(item.into_value(problems));
                    problems.leave(outer);
                }
                Value::Array(values)
            }
            Tree::Object(fields) => {
                let mut object = Map::new();
                for (name, field) in fields {
                    if object.contains_key(name.as_ref()) {
                        problems.duplicate(&name);
                    }
                    let outer = problems.enter(&name);
                    let value = field.into_value(problems);
                    problems.leave(outer);
                    object.insert(name.into_owned(), value);
                }
                Value::Object(object)
            }
        }
    }
}

impl<'t> From<&'t Value> for Tree<'t> {
    fn from(value: &'t Value) -> Tree<'t> {
        match value {
            Value::Null => Tree::Null,
            Value::Bool(value) => Tree::Bool(*value),
            Value::Number(number) => Tree::Number(number.to_string().into()),
            Value::String(text) => Tree::Text(text.as_str().into()),
            Value::Array(items) => Tree::List(items.iter().map(Tree::from).collect()),
            Value::Object(fields) => {
                let fields = fields.iter().map(|(name, field)| (name.as_str().into(), field.into()));
                Tree::Object(fields.collect())
            }
        }
    }
}

/// A number as upstream keeps it where it has no type: an integer if it is written as one and fits.
fn number(text: &str) -> Value {
    if let Ok(integer) = text.parse::<i64>() {
        return integer.into();
    }
    // Past the largest that there is, JSON has no word for it.
    let float = text.parse::<f64>().ok().and_then(Number::from_f64);
    float.map_or(Value::Null, Value::Number)
}
