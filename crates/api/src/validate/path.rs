//! The way to a field, made while walking an object and printed only where something is wrong; and back from the
//! printed form to the place in a document.

use std::fmt;

use crate::document::{Tree, Value};

/// The way from an object to one of its fields. It borrows from its parents: a valid object costs no text.
#[derive(Clone, Copy)]
pub(super) enum Path<'a> {
    /// A field of the object itself.
    Root(&'a str),
    /// A field of a mapping.
    Field(&'a Path<'a>, &'a str),
    /// An element of a list.
    Index(&'a Path<'a>, usize),
    /// A value of a map.
    Key(&'a Path<'a>, &'a str),
}

impl<'a> Path<'a> {
    pub(super) fn root(name: &'a str) -> Path<'a> {
        Path::Root(name)
    }

    pub(super) fn child(&'a self, name: &'a str) -> Path<'a> {
        Path::Field(self, name)
    }

    pub(super) fn index(&'a self, index: usize) -> Path<'a> {
        Path::Index(self, index)
    }

    pub(super) fn key(&'a self, key: &'a str) -> Path<'a> {
        Path::Key(self, key)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Upstream has one problem without a field, and prints it so.
            Path::Root("") => formatter.write_str("[]"),
            Path::Root(name) => formatter.write_str(name),
            Path::Field(parent, name) => write!(formatter, "{parent}.{name}"),
            Path::Index(parent, index) => write!(formatter, "{parent}[{index}]"),
            Path::Key(parent, key) => write!(formatter, "{parent}[{key}]"),
        }
    }
}

/// The node at the end of a printed path, or the last one on the way to it that is there. Upstream's paths are not
/// always exact: some lack an index, some differ in case from the field.
pub(super) fn locate<'a>(root: &'a Tree, path: &str) -> &'a Tree {
    let (mut node, mut rest) = (root, path);
    while let Some((next, after)) = step(node, rest) {
        (node, rest) = (next, after);
    }
    node
}

/// The node that the first part of a path leads to, and the rest of the path.
fn step<'a, 'p>(node: &'a Tree, path: &'p str) -> Option<(&'a Tree, &'p str)> {
    let bracketed = path.strip_prefix('[').and_then(|inner| inner.split_once(']'));
    match &node.value {
        Value::List(items) => {
            let (index, rest) = bracketed?;
            Some((items.get(index.parse::<usize>().ok()?)?, rest))
        }
        Value::Map(fields) => {
            if let Some((key, rest)) = bracketed {
                return Some((fields.get(key)?, rest));
            }
            let path = path.strip_prefix('.').unwrap_or(path);
            // A key may hold dots itself; the longest that fits is meant.
            let fitting =
                fields.iter().filter_map(|(name, node)| Some((name, node, rest_after(path, name)?)));
            fitting.max_by_key(|(name, _, _)| name.len()).map(|(_, node, rest)| (node, rest))
        }
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_) => None,
    }
}

fn rest_after<'p>(path: &'p str, name: &str) -> Option<&'p str> {
    let (start, rest) = path.split_at_checked(name.len())?;
    let ends = rest.is_empty() || rest.starts_with(['.', '[']);
    (!name.is_empty() && ends && start.eq_ignore_ascii_case(name)).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Limits, parse};

    #[test]
    fn a_printed_path_leads_back_to_its_line() {
        let text = "\
metadata:
  annotations:
    a.b/c: x
    a: y
spec:
  hostPID: true
  containers:
  - name: a
  - image: b
    resources:
      limits:
        nvidia.com/gpu: 1
";
        let (root, _) = parse("f", text, Limits::MANIFEST).unwrap();
        for (path, line) in [
            ("metadata.annotations", 2),
            ("metadata.annotations.a.b/c", 3),
            ("metadata.annotations[a.b/c]", 3),
            ("metadata.annotations.a", 4),
            ("metadata.name", 1),
            ("spec.HostPID", 6),
            ("spec.containers[0].name", 8),
            ("spec.containers[1].name", 9),
            ("spec.containers[1].resources.limits[nvidia.com/gpu]", 12),
            ("spec.containers[1].resources.requests", 10),
            ("spec.containers[7].name", 7),
            ("spec.containers.name", 7),
            ("spec.volumes[0].name", 5),
            ("[]", 1),
            ("", 1),
        ] {
            assert_eq!(locate(&root, path).place.line, line, "{path}");
        }
    }
}
