//! A text is refused, or becomes a tree within its limits that can be written and read again.
#![no_main]

use crablet_api::document::{Limits, Tree, Value, parse, write_yaml};
use libfuzzer_sys::fuzz_target;

/// Far below what the agent accepts, so that short texts reach them.
const LIMITS: Limits = Limits { bytes: 16 * 1024, nodes: 300, depth: 12 };

fuzz_target!(|text: &str| {
    let Ok((tree, _)) = parse("text", text, LIMITS) else { return };
    assert!(text.len() <= LIMITS.bytes);
    let size = Size::of(&tree);
    assert!(size.nodes <= LIMITS.nodes, "{} values", size.nodes);
    assert!(size.bytes <= LIMITS.bytes, "{} bytes in texts and keys", size.bytes);
    assert!(size.depth <= LIMITS.depth, "{} levels", size.depth);

    let written = write_yaml(&tree, &|_| None);
    // Indentation and quotes make the text longer; what it says is not larger.
    let limits = Limits { bytes: usize::MAX, ..LIMITS };
    let (again, problems) =
        parse("written", &written, limits).unwrap_or_else(|error| panic!("{error}, in:\n{written}"));
    assert!(problems.is_empty(), "{problems:?}, in:\n{written}");
    assert!(same(&tree, &again), "{tree:?}\n{again:?}\n{written}");
});

/// Whether two trees hold the same values. A number without a fraction is written without one, as Kubernetes
/// does, and so comes back as a whole number.
fn same(left: &Tree, right: &Tree) -> bool {
    match (&left.value, &right.value) {
        (Value::Float(left), Value::Int(right)) => left.fract() == 0.0 && *left == *right as f64,
        (Value::List(left), Value::List(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Value::Map(left), Value::Map(right)) => {
            left.len() == right.len()
                && left.iter().zip(right).all(|(left, right)| left.0 == right.0 && same(left.1, right.1))
        }
        (left, right) => left == right,
    }
}

struct Size {
    nodes: usize,
    bytes: usize,
    depth: usize,
}

impl Size {
    fn of(node: &Tree) -> Size {
        let mut size = Size { nodes: 1, bytes: 0, depth: 0 };
        match &node.value {
            Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {}
            Value::Text(text) => size.bytes = text.len(),
            Value::List(items) => items.iter().for_each(|item| size.contain(item)),
            Value::Map(fields) => fields.iter().for_each(|(name, field)| {
                size.bytes += name.len();
                size.contain(field);
            }),
        }
        if matches!(node.value, Value::List(_) | Value::Map(_)) {
            size.depth += 1;
        }
        size
    }

    fn contain(&mut self, node: &Tree) {
        let inner = Size::of(node);
        self.nodes += inner.nodes;
        self.bytes += inner.bytes;
        self.depth = self.depth.max(inner.depth);
    }
}
