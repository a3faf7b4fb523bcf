//! From a tree to YAML, as Kubernetes prints it: keys sorted, lists not indented; with a comment where one is wanted.

use super::{Path, Tree, Value, scalar};

/// Writes a tree as YAML. `comment` may give a remark for the value at a path.
pub fn write_yaml(node: &Tree, comment: &dyn Fn(&Path<'_>) -> Option<String>) -> String {
    let mut writer = Writer { text: String::new(), comment };
    match &node.value {
        Value::Map(fields) if !fields.is_empty() => writer.map(node, Path::Root, 0, false),
        Value::List(items) if !items.is_empty() => writer.list(items, Path::Root, 0),
        _ => {
            writer.text.push_str(&inline(&node.value));
            writer.text.push('\n');
        }
    }
    writer.text
}

/// YAML takes a key without a question mark only within 1024 characters.
const LONGEST_SIMPLE_KEY: usize = 1000;

struct Writer<'c> {
    text: String,
    comment: &'c dyn Fn(&Path<'_>) -> Option<String>,
}

impl Writer<'_> {
    fn map(&mut self, node: &Tree, path: Path<'_>, indent: usize, mut first_in_item: bool) {
        let Value::Map(fields) = &node.value else { return };
        for (name, field) in fields {
            if !first_in_item {
                self.indent(indent);
            }
            first_in_item = false;
            let path = Path::Field(&path, name);
            let key = quoted_if_needed(name);
            if key.len() > LONGEST_SIMPLE_KEY {
                self.text.push_str("? ");
                self.text.push_str(&key);
                self.text.push('\n');
                self.indent(indent);
            } else {
                self.text.push_str(&key);
            }
            self.text.push(':');
            self.value(field, path, indent, indent + 2);
        }
    }

    fn list(&mut self, items: &[Tree], path: Path<'_>, indent: usize) {
        for (index, item) in items.iter().enumerate() {
            let path = Path::Index(&path, index);
            self.indent(indent);
            self.text.push('-');
            match &item.value {
                Value::Map(fields) if !fields.is_empty() => {
                    self.text.push(' ');
                    self.map(item, path, indent + 2, true);
                }
                _ => self.value(item, path, indent + 2, indent + 2),
            }
        }
    }

    /// What follows a key or a dash: the value on the same line, or its parts on the next ones.
    fn value(&mut self, node: &Tree, path: Path<'_>, list_indent: usize, map_indent: usize) {
        let inline = match &node.value {
            Value::Map(fields) if !fields.is_empty() => None,
            Value::List(items) if !items.is_empty() => None,
            value => Some(inline(value)),
        };
        if let Some(text) = &inline {
            self.text.push(' ');
            self.text.push_str(text);
        }
        if let Some(comment) = (self.comment)(&path) {
            self.text.push_str("  # ");
            self.text.push_str(&comment);
        }
        self.text.push('\n');
        match &node.value {
            Value::Map(_) if inline.is_none() => self.map(node, path, map_indent, false),
            Value::List(items) if inline.is_none() => self.list(items, path, list_indent),
            _ => {}
        }
    }

    fn indent(&mut self, width: usize) {
        self.text.extend(std::iter::repeat_n(' ', width));
    }
}

fn inline(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::Text(text) => quoted_if_needed(text),
        Value::List(_) => "[]".into(),
        Value::Map(_) => "{}".into(),
    }
}

/// Text that YAML would read as anything but this text is written in double quotes, with JSON's escapes.
fn quoted_if_needed(text: &str) -> String {
    let plain = matches!(scalar::resolve(text), Value::Text(_))
        && text.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '/' | '_' | '.' | '(' | '+' | '^'))
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        // The end of a document, at the start of a line.
        && !text.starts_with("...")
        && text.chars().all(|c| c == ' ' || (!c.is_whitespace() && !c.is_control() && !is_awkward(c)));
    match plain {
        true => text.to_owned(),
        false => {
            let mut quoted = String::with_capacity(text.len() + 2);
            quoted.push('"');
            for c in text.chars() {
                match c {
                    '"' => quoted.push_str("\\\""),
                    '\\' => quoted.push_str("\\\\"),
                    '\n' => quoted.push_str("\\n"),
                    '\t' => quoted.push_str("\\t"),
                    c if c.is_control() || is_awkward(c) || (c.is_whitespace() && c != ' ') => {
                        match u32::from(c) {
                            code @ 0..=0xff => quoted.push_str(&format!("\\x{code:02x}")),
                            code @ 0x100..=0xffff => quoted.push_str(&format!("\\u{code:04x}")),
                            code => quoted.push_str(&format!("\\U{code:08x}")),
                        }
                    }
                    c => quoted.push(c),
                }
            }
            quoted.push('"');
            quoted
        }
    }
}

/// Characters outside what YAML calls printable, and the byte order mark.
fn is_awkward(c: char) -> bool {
    matches!(u32::from(c), 0xfeff | 0xfffe | 0xffff | 0x2028 | 0x2029)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::document::{Limits, Place, parse};

    fn node(value: Value) -> Tree {
        Tree { value, place: Place { source: Arc::from("f"), line: 0 } }
    }

    fn any_node() -> impl Strategy<Value = Tree> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(|number| Value::Int(number.into())),
            any::<u64>().prop_map(|number| Value::Int(number.into())),
            (-1e9..1e9f64).prop_map(|number| Value::Float(number + 0.5)).prop_filter("whole", |value| {
                matches!(value, Value::Float(number) if number.fract() != 0.0)
            }),
            any::<String>().prop_map(|text| Value::Text(text.into())),
            "[a-z0-9:#\\- ]{0,8}".prop_map(|text| Value::Text(text.into())),
            prop::sample::select(vec![
                "yes", "null", "0644", "~", "-", "- a", "a: b", "1e3", "<<", "*a", "&a", "!a", "%a", "---",
                "a #b",
            ])
            .prop_map(|text| Value::Text(text.into())),
        ]
        .prop_map(node);
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(|items| node(Value::List(items))),
                prop::collection::btree_map(
                    any::<String>().prop_map(|key| key.into_boxed_str()),
                    inner,
                    0..5
                )
                .prop_map(|fields| node(Value::Map(fields))),
            ]
        })
    }

    fn without_places(mut node: Tree) -> Tree {
        node.place.line = 0;
        match &mut node.value {
            Value::List(items) => items.iter_mut().for_each(|item| *item = without_places(item.clone())),
            Value::Map(fields) => {
                fields.values_mut().for_each(|field| *field = without_places(field.clone()))
            }
            Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_) => {}
        }
        node
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_the_same(tree in any_node()) {
            let text = write_yaml(&tree, &|_| None);
            let read = parse("f", &text, Limits::MANIFEST);
            let read = read.map(|(node, problems)| (without_places(node), problems));
            prop_assert_eq!(read, Ok((tree, vec![])), "{}", text);
        }
    }

    #[test]
    fn what_yaml_would_take_for_something_else_is_written_another_way() {
        let long = "k".repeat(1100);
        for (key, written) in [
            ("...", "\"...\": []\n"),
            ("... a", "\"... a\": []\n"),
            ("<<", "\"<<\": []\n"),
            (&long, &format!("? {long}\n: []\n")),
        ] {
            let tree = node(Value::Map([(key.into(), node(Value::List(Vec::new())))].into()));
            assert_eq!(write_yaml(&tree, &|_| None), written);
            let read = parse("f", written, Limits::MANIFEST).map(|(tree, _)| without_places(tree));
            assert_eq!(read, Ok(tree), "{written}");
        }
        let root = node(Value::Text("...".into()));
        assert_eq!(write_yaml(&root, &|_| None), "\"...\"\n");
    }

    #[test]
    fn comments_stand_behind_their_values() {
        let (tree, _) = parse("f", "a: 1\nb: {c: [x, {d: 2}], e: []}\n", Limits::MANIFEST).unwrap();
        let text = write_yaml(&tree, &|path| (path.to_string().len() % 2 == 1).then(|| path.to_string()));
        assert_eq!(text, "a: 1  # a\nb:  # b\n  c:  # b.c\n  - x\n  - d: 2\n  e: []  # b.e\n");
    }
}
