//! How upstream shows objects in messages: as its own memory holds them, where every field is there, under its name in
//! Go. What an update would change of a pod is a unified diff of that. `schema/internal.txt` has those names: a type, and
//! then its fields with their names in Go and in JSON, and their types.

use std::collections::HashMap;
use std::fmt::Write as _;

use crablet_api::validate::{Json, json_text};
use serde_json::Value;

const INTERNAL: &str = include_str!("../../schema/internal.txt");
/// Lines around a change.
const CONTEXT: usize = 3;
/// A diff of more than this is nobody's help, and would cost too much.
const MOST_LINES: usize = 20_000;

/// The difference between two objects of a type.
pub(crate) fn of(kind: &str, old: &Value, new: &Value) -> String {
    let (old, new) = (printed(kind, old), printed(kind, new));
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    if old.len() > MOST_LINES || new.len() > MOST_LINES {
        return String::new();
    }
    unified(&old, &new)
}

/// An object of a type as a message has it.
pub(crate) fn shown(kind: &str, value: &Value) -> Json {
    if !value.is_object() {
        return Json("null".to_owned());
    }
    let mut out = String::new();
    Printer::new(false).object(&mut out, kind, value, &Value::Null, 0);
    Json(out)
}

/// The same for a list of them.
pub(crate) fn shown_list(kind: &str, values: &[Value]) -> Json {
    let mut out = String::new();
    Printer::new(false).list(&mut out, kind, &values.into(), 0);
    Json(out)
}

/// An object as Go prints it with all its fields.
fn printed(kind: &str, value: &Value) -> String {
    let mut out = String::new();
    Printer::new(true).object(&mut out, kind, value, &Value::Null, 0);
    out
}

struct Printer {
    /// Whether each field has a line of its own.
    is_long: bool,
    types: HashMap<&'static str, Vec<Field>>,
}

struct Field {
    name: &'static str,
    json: &'static str,
    kind: &'static str,
}

impl Printer {
    fn new(is_long: bool) -> Printer {
        let mut types: HashMap<&str, Vec<Field>> = HashMap::new();
        let mut current = "";
        for line in INTERNAL.lines() {
            let mut words = line.split_whitespace();
            let (Some(name), json, kind) = (words.next(), words.next(), words.next()) else { continue };
            match (json, kind) {
                (Some(json), Some(kind)) => {
                    types.entry(current).or_default().push(Field { name, json, kind });
                }
                _ => current = name,
            }
        }
        Printer { is_long, types }
    }

    fn object(&self, out: &mut String, kind: &str, value: &Value, parent: &Value, depth: usize) {
        let fields = self.types.get(kind).map(Vec::as_slice).unwrap_or_default();
        out.push('{');
        let mut is_first = true;
        let mut begin = |out: &mut String, name: &str| {
            if !std::mem::take(&mut is_first) {
                out.push(',');
            }
            self.name(out, name, depth + 1);
        };
        for field in fields {
            // A pod's security context holds some of what the API has beside it.
            let inner = match field.json.strip_prefix('^') {
                Some(outer) => &parent[outer],
                None => &value[field.json],
            };
            if field.kind == "meta" {
                for (name, value) in inner.as_object().into_iter().flatten() {
                    begin(out, name);
                    self.plain(out, value, depth + 1);
                }
                continue;
            }
            begin(out, field.name);
            self.field(out, field.kind, inner, depth + 1, value);
        }
        self.new_line(out, depth);
        out.push('}');
    }

    fn field(&self, out: &mut String, kind: &str, value: &Value, depth: usize, parent: &Value) {
        match kind {
            "string" if value.is_null() => out.push_str("\"\""),
            "bool" if value.is_null() => out.push_str("false"),
            "int" if value.is_null() => out.push('0'),
            "quantity" if value.is_null() => out.push_str("\"0\""),
            "string" | "bool" | "int" | "quantity" | "?" => self.plain(out, value, depth),
            kind => {
                if let Some(kind) = kind.strip_prefix('*') {
                    match value.is_object() {
                        true => self.object(out, kind, value, parent, depth),
                        false => out.push_str("null"),
                    }
                } else if let Some(kind) = kind.strip_prefix("[]") {
                    self.list(out, kind, value, depth);
                } else {
                    self.object(out, kind, value, parent, depth);
                }
            }
        }
    }

    fn list(&self, out: &mut String, kind: &str, value: &Value, depth: usize) {
        match value.as_array().map(Vec::as_slice) {
            None => out.push_str("null"),
            Some([]) => out.push_str("[]"),
            Some(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    self.new_line(out, depth + 1);
                    self.object(out, kind, item, &Value::Null, depth + 1);
                }
                self.new_line(out, depth);
                out.push(']');
            }
        }
    }

    fn plain(&self, out: &mut String, value: &Value, depth: usize) {
        match value {
            Value::String(text) => out.push_str(&json_text(text)),
            Value::Array(items) if !items.is_empty() => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    self.new_line(out, depth + 1);
                    self.plain(out, item, depth + 1);
                }
                self.new_line(out, depth);
                out.push(']');
            }
            Value::Object(fields) if !fields.is_empty() => {
                out.push('{');
                for (index, (name, value)) in fields.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    self.name(out, name, depth + 1);
                    self.plain(out, value, depth + 1);
                }
                self.new_line(out, depth);
                out.push('}');
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                let _ = write!(out, "{value}");
            }
        }
    }

    fn name(&self, out: &mut String, name: &str, depth: usize) {
        self.new_line(out, depth);
        let _ = write!(out, "{}:", json_text(name));
        if self.is_long {
            out.push(' ');
        }
    }

    fn new_line(&self, out: &mut String, depth: usize) {
        if self.is_long {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', depth));
        }
    }
}

/// A stretch of both sides: the same, or one in place of the other.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    is_same: bool,
    old: (usize, usize),
    new: (usize, usize),
}

fn unified(old: &[&str], new: &[&str]) -> String {
    let mut out = String::new();
    for group in groups(stretches(old, new)) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let (of_old, of_new) = (range(first.old.0, last.old.1), range(first.new.0, last.new.1));
        let _ = writeln!(out, "@@ -{of_old} +{of_new} @@");
        for stretch in group {
            let lines = |sign: char, lines: &[&str], out: &mut String| {
                for line in lines {
                    let _ = writeln!(out, "{sign}{line}");
                }
            };
            let removed = &old[stretch.old.0..stretch.old.1];
            if stretch.is_same {
                lines(' ', removed, &mut out);
            } else {
                lines('-', removed, &mut out);
                lines('+', &new[stretch.new.0..stretch.new.1], &mut out);
            }
        }
    }
    out
}

fn range(start: usize, end: usize) -> String {
    match end - start {
        1 => format!("{}", start + 1),
        0 => format!("{start},0"),
        length => format!("{},{length}", start + 1),
    }
}

fn stretches(old: &[&str], new: &[&str]) -> Vec<Stretch> {
    let (mut all, mut at, mut at_new) = (Vec::new(), 0, 0);
    for (start, start_new, size) in matches(old, new).into_iter().chain([(old.len(), new.len(), 0)]) {
        if at < start || at_new < start_new {
            all.push(Stretch { is_same: false, old: (at, start), new: (at_new, start_new) });
        }
        (at, at_new) = (start + size, start_new + size);
        if size > 0 {
            all.push(Stretch { is_same: true, old: (start, at), new: (start_new, at_new) });
        }
    }
    all
}

/// Changes with the lines around them; those that are close to each other together.
fn groups(mut stretches: Vec<Stretch>) -> Vec<Vec<Stretch>> {
    if let Some(first) = stretches.first_mut().filter(|first| first.is_same) {
        first.old.0 = first.old.0.max(first.old.1.saturating_sub(CONTEXT));
        first.new.0 = first.new.0.max(first.new.1.saturating_sub(CONTEXT));
    }
    if let Some(last) = stretches.last_mut().filter(|last| last.is_same) {
        last.old.1 = last.old.1.min(last.old.0 + CONTEXT);
        last.new.1 = last.new.1.min(last.new.0 + CONTEXT);
    }
    let (mut all, mut group) = (Vec::new(), Vec::new());
    for mut stretch in stretches {
        if stretch.is_same && stretch.old.1 - stretch.old.0 > 2 * CONTEXT {
            let mut end = stretch;
            end.old.1 = end.old.1.min(end.old.0 + CONTEXT);
            end.new.1 = end.new.1.min(end.new.0 + CONTEXT);
            group.push(end);
            all.push(std::mem::take(&mut group));
            stretch.old.0 = stretch.old.0.max(stretch.old.1.saturating_sub(CONTEXT));
            stretch.new.0 = stretch.new.0.max(stretch.new.1.saturating_sub(CONTEXT));
        }
        group.push(stretch);
    }
    if group.iter().any(|stretch| !stretch.is_same) {
        all.push(group);
    }
    all
}

/// The stretches that are the same on both sides, longest first found and then what lies beside it, as Python's
/// `difflib` does it. Of many lines, those that are everywhere do not count.
fn matches(old: &[&str], new: &[&str]) -> Vec<(usize, usize, usize)> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, line) in new.iter().enumerate() {
        places.entry(line).or_default().push(index);
    }
    if new.len() >= 200 {
        let most = new.len() / 100 + 1;
        places.retain(|_, places| places.len() <= most);
    }
    let mut found = Vec::new();
    let mut open = vec![(0, old.len(), 0, new.len())];
    while let Some((low, high, low_new, high_new)) = open.pop() {
        let (start, start_new, size) = longest(old, new, &places, (low, high), (low_new, high_new));
        if size == 0 {
            continue;
        }
        found.push((start, start_new, size));
        if low < start && low_new < start_new {
            open.push((low, start, low_new, start_new));
        }
        if start + size < high && start_new + size < high_new {
            open.push((start + size, high, start_new + size, high_new));
        }
    }
    found.sort_unstable();
    let mut joined: Vec<(usize, usize, usize)> = Vec::new();
    for (start, start_new, size) in found {
        match joined.last_mut() {
            Some(last) if last.0 + last.2 == start && last.1 + last.2 == start_new => last.2 += size,
            _ => joined.push((start, start_new, size)),
        }
    }
    joined
}

fn longest(
    old: &[&str],
    new: &[&str],
    places: &HashMap<&str, Vec<usize>>,
    (low, high): (usize, usize),
    (low_new, high_new): (usize, usize),
) -> (usize, usize, usize) {
    let (mut start, mut start_new, mut size) = (low, low_new, 0);
    let mut lengths: HashMap<usize, usize> = HashMap::new();
    for (index, line) in old.iter().enumerate().take(high).skip(low) {
        let mut next = HashMap::new();
        let places = places.get(line).map(Vec::as_slice).unwrap_or_default();
        for place in places.iter().copied().filter(|place| (low_new..high_new).contains(place)) {
            let before = place.checked_sub(1).and_then(|before| lengths.get(&before)).copied().unwrap_or(0);
            next.insert(place, before + 1);
            if before + 1 > size {
                (start, start_new, size) = (index - before, place - before, before + 1);
            }
        }
        lengths = next;
    }
    while start > low && start_new > low_new && old[start - 1] == new[start_new - 1] {
        (start, start_new, size) = (start - 1, start_new - 1, size + 1);
    }
    while start + size < high && start_new + size < high_new && old[start + size] == new[start_new + size] {
        size += 1;
    }
    (start, start_new, size)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_diff_has_three_lines_around_each_change() {
        let old: Vec<String> = (1..=12).map(|line| line.to_string()).collect();
        let mut new = old.clone();
        new[5] = "six".to_owned();
        new.push("13".to_owned());
        let old: Vec<&str> = old.iter().map(String::as_str).collect();
        let new: Vec<&str> = new.iter().map(String::as_str).collect();
        assert_eq!(
            unified(&old, &new),
            "@@ -3,10 +3,11 @@\n 3\n 4\n 5\n-6\n+six\n 7\n 8\n 9\n 10\n 11\n 12\n+13\n"
        );
    }

    #[test]
    fn a_value_in_a_message_has_all_its_fields() {
        let Json(taint) = shown("Taint", &json!({"key": "a", "effect": "NoSchedule"}));
        assert_eq!(taint, r#"{"Key":"a","Value":"","Effect":"NoSchedule","TimeAdded":null}"#);
        let Json(addresses) = shown_list("PodIP", &[json!({"ip": "1.2.3.4"})]);
        assert_eq!(addresses, r#"[{"IP":"1.2.3.4"}]"#);
    }

    #[test]
    fn a_changed_field_is_shown_under_its_name_in_go() {
        let spec = |name: &str, host: bool| {
            json!({
                "containers": [{"name": name, "image": "i", "resources": {}}],
                "restartPolicy": "Always",
                "hostNetwork": host,
                "securityContext": {},
            })
        };
        let shown = of("PodSpec", &spec("a", false), &spec("b", true));
        assert!(shown.starts_with("@@ -3,7 +3,7 @@\n  \"InitContainers\": null,\n  \"Containers\": [\n   {\n-   \"Name\": \"a\",\n+   \"Name\": \"b\",\n    \"Image\": \"i\",\n    \"Command\": null,\n    \"Args\": null,\n"), "{shown}");
        assert!(shown.contains("-  \"HostNetwork\": false,\n+  \"HostNetwork\": true,\n"), "{shown}");
    }
}
