//! The configuration in force, for a person: YAML that can be used as a file, with remarks on where values are from.

use std::sync::Arc;

use crablet_api::document::{Path, Place, Tree, Value, write_yaml};

use crate::acted_on;
use crate::defaults::{DEFAULT_SOURCE, DEVIATIONS, Deviation};
use crate::load::Effective;

impl Effective {
    /// The configuration as YAML, each value that somebody set with where, and each default that differs from the
    /// Go kubelet's with how.
    pub fn to_yaml(&self) -> String {
        write_yaml(&self.to_node(), &|path| self.remark(path))
    }

    /// The configuration as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(&self.configuration).expect("the configuration has text keys and finite numbers")
    }

    fn to_node(&self) -> Tree {
        let place = Place { source: Arc::from("configuration"), line: 0 };
        let mut json = self.to_json();
        // Upstream leaves a zero out; a person should see that there is no such port.
        json["readOnlyPort"] = self.configuration.read_only_port.into();
        tree(json, &place)
    }

    fn remark(&self, path: &Path<'_>) -> Option<String> {
        let text = path.to_string();
        if text == "apiVersion" || text == "kind" {
            return None;
        }
        match self.place(path) {
            Some(place) if place.source.as_ref() != DEFAULT_SOURCE => {
                Some(match acted_on::field(&text) || has_parent_remark(path) {
                    true => place.to_string(),
                    false => format!("{place}; not acted on yet"),
                })
            }
            Some(_) | None => {
                let with_file = !self.flags.config.is_empty();
                let applies = |deviation: &&Deviation| !(deviation.only_without_file && with_file);
                let deviation = DEVIATIONS.iter().filter(applies).find(|deviation| deviation.path == text);
                deviation.map(|deviation| format!("crablet's default; upstream's is {}", deviation.upstream))
            }
        }
    }

    /// Where a value was set: only for values themselves, not for the mappings around them.
    fn place(&self, path: &Path<'_>) -> Option<Place> {
        fn find<'n>(root: &'n Tree, path: &Path<'_>) -> Option<&'n Tree> {
            match path {
                Path::Root => Some(root),
                Path::Field(parent, name) => find(root, parent)?.get(name),
                Path::Index(parent, index) => match &find(root, parent)?.value {
                    Value::List(items) => items.get(*index),
                    _ => None,
                },
            }
        }
        let node = find(&self.tree, path)?;
        match &node.value {
            Value::Map(fields) if !fields.is_empty() => None,
            _ => Some(node.place.clone()),
        }
    }
}

/// JSON as a tree. Reading it as YAML would not do: YAML has no long keys and no unescaped control characters.
fn tree(json: serde_json::Value, place: &Place) -> Tree {
    let value = match json {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(value) => Value::Bool(value),
        serde_json::Value::Number(number) => match (number.as_i128(), number.as_f64()) {
            (Some(number), _) => Value::Int(number),
            (None, Some(number)) => Value::Float(number),
            (None, None) => Value::Text(number.to_string().into()),
        },
        serde_json::Value::String(text) => Value::Text(text.into()),
        serde_json::Value::Array(items) => {
            Value::List(items.into_iter().map(|item| tree(item, place)).collect())
        }
        serde_json::Value::Object(fields) => {
            Value::Map(fields.into_iter().map(|(name, field)| (name.into(), tree(field, place))).collect())
        }
    };
    Tree { value, place: place.clone() }
}

/// An element's remark need not repeat what the list's own says.
fn has_parent_remark(path: &Path<'_>) -> bool {
    matches!(path, Path::Index(..))
}
