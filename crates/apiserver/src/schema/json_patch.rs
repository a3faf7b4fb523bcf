//! JSON patches (RFC 6902) and merge patches (RFC 7386), as upstream's library does them.

use serde_json::Value;

/// How many bytes the copies of one patch may make.
const MOST_COPIED: usize = 3 << 20;

/// An operation could not be done. Upstream does not tell the client which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unfit;

/// Does the operations of a patch, one after the other.
pub(crate) fn apply(document: &mut Value, operations: &[Value]) -> Result<(), Unfit> {
    let mut copied = 0;
    for operation in operations {
        let text = |field: &str| operation[field].as_str().ok_or(Unfit);
        let value = || operation["value"].clone();
        match text("op")? {
            "add" => add(document, text("path")?, value())?,
            "remove" => drop(remove(document, text("path")?)?),
            "replace" => replace(document, text("path")?, value())?,
            "move" => {
                let value = remove(document, text("from")?)?;
                add(document, text("path")?, value)?;
            }
            "copy" => {
                let value = get(document, text("from")?)?.cloned().unwrap_or_default();
                copied += value.to_string().len();
                if copied > MOST_COPIED {
                    return Err(Unfit);
                }
                add(document, text("path")?, value)?;
            }
            "test" => test(document, text("path")?, &operation["value"])?,
            _ => return Err(Unfit),
        }
    }
    Ok(())
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<(), Unfit> {
    let (container, key) = container(document, path)?;
    match container {
        Value::Object(fields) => drop(fields.insert(key, value)),
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let index = index(&key, items.len() + 1)?;
            items.insert(index, value);
        }
        _ => return Err(Unfit),
    }
    Ok(())
}

fn remove(document: &mut Value, path: &str) -> Result<Value, Unfit> {
    let (container, key) = container(document, path)?;
    match container {
        Value::Object(fields) => fields.remove(&key).ok_or(Unfit),
        Value::Array(items) => {
            let index = index(&key, items.len())?;
            Ok(items.remove(index))
        }
        _ => Err(Unfit),
    }
}

/// Unlike the RFC, a field that is not there can be replaced.
fn replace(document: &mut Value, path: &str, value: Value) -> Result<(), Unfit> {
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return Err(Unfit);
        }
        *document = value;
        return Ok(());
    }
    let (container, key) = container(document, path)?;
    match container {
        Value::Object(fields) => drop(fields.insert(key, value)),
        Value::Array(items) => {
            let index = index(&key, items.len())?;
            items[index] = value;
        }
        _ => return Err(Unfit),
    }
    Ok(())
}

/// A value that is not there is as good as null.
fn test(document: &mut Value, path: &str, expected: &Value) -> Result<(), Unfit> {
    let is_equal = match path {
        "" => document == expected,
        path => get(document, path)?.unwrap_or(&Value::Null) == expected,
    };
    if is_equal { Ok(()) } else { Err(Unfit) }
}

fn get<'d>(document: &'d mut Value, path: &str) -> Result<Option<&'d Value>, Unfit> {
    let (container, key) = container(document, path)?;
    match container {
        Value::Object(fields) => Ok(fields.get(&key)),
        Value::Array(items) => {
            let index = index(&key, items.len())?;
            Ok(items.get(index))
        }
        _ => Err(Unfit),
    }
}

/// What a path's last part is in, and that part.
fn container<'d>(document: &'d mut Value, path: &str) -> Result<(&'d mut Value, String), Unfit> {
    // What stands before the first slash is not looked at.
    let mut parts = path.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~")).peekable();
    let mut container = document;
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return Ok((container, part));
        }
        container = match container {
            Value::Object(fields) => fields.get_mut(&part).ok_or(Unfit)?,
            Value::Array(items) => {
                let index = index(&part, items.len())?;
                items.get_mut(index).ok_or(Unfit)?
            }
            _ => return Err(Unfit),
        };
    }
    Err(Unfit)
}

/// An index into a list; one below zero counts from the end.
fn index(text: &str, length: usize) -> Result<usize, Unfit> {
    let index: i64 = text.parse().map_err(|_| Unfit)?;
    let length = i64::try_from(length).map_err(|_| Unfit)?;
    let index = if index < 0 { index + length } else { index };
    match (0..length).contains(&index) {
        true => usize::try_from(index).map_err(|_| Unfit),
        false => Err(Unfit),
    }
}

/// A merge patch: objects are merged, null removes, all else replaces.
pub(crate) fn merge(document: &mut Value, patch: Value) {
    let (fields, changes) = match (document, patch) {
        (Value::Object(fields), Value::Object(changes)) => (fields, changes),
        (document, patch) => {
            *document = without_nulls(patch);
            return;
        }
    };
    for (name, change) in changes {
        match fields.get_mut(&name) {
            _ if change.is_null() => drop(fields.remove(&name)),
            Some(field) if change.is_object() => merge(field, change),
            _ => drop(fields.insert(name, without_nulls(change))),
        }
    }
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, field)| !field.is_null());
            Value::Object(kept.map(|(name, field)| (name, without_nulls(field))).collect())
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn patched(operations: Value) -> Result<Value, Unfit> {
        let mut document = json!({"a": {"b": [1, 2, 3], "c/d": "x", "e~f": null}});
        apply(&mut document, operations.as_array().unwrap()).map(|()| document["a"].take())
    }

    #[test]
    fn operations_do_what_they_do_upstream() {
        for (operation, expected) in [
            (json!({"op": "add", "path": "/a/b/-", "value": 4}), Ok(json!([1, 2, 3, 4]))),
            (json!({"op": "add", "path": "/a/b/0", "value": 4}), Ok(json!([4, 1, 2, 3]))),
            (json!({"op": "add", "path": "/a/b/3", "value": 4}), Ok(json!([1, 2, 3, 4]))),
            (json!({"op": "add", "path": "/a/b/4", "value": 4}), Err(Unfit)),
            (json!({"op": "add", "path": "/a/b/-1", "value": 4}), Ok(json!([1, 2, 3, 4]))),
            (json!({"op": "add", "path": "/a/b/x", "value": 4}), Err(Unfit)),
            (json!({"op": "remove", "path": "/a/b/1"}), Ok(json!([1, 3]))),
            (json!({"op": "remove", "path": "/a/b/-1"}), Ok(json!([1, 2]))),
            (json!({"op": "remove", "path": "/a/b/3"}), Err(Unfit)),
            (json!({"op": "remove", "path": "/a/x"}), Err(Unfit)),
            (json!({"op": "replace", "path": "/a/b", "value": [9]}), Ok(json!([9]))),
            (json!({"op": "replace", "path": "/a/b/0", "value": 9}), Ok(json!([9, 2, 3]))),
            (json!({"op": "replace", "path": "/a/b/3", "value": 9}), Err(Unfit)),
            (json!({"op": "replace", "path": "/x/y", "value": 9}), Err(Unfit)),
            (json!({"op": "move", "from": "/a/b/0", "path": "/a/b/2"}), Ok(json!([2, 3, 1]))),
            (json!({"op": "copy", "from": "/a/b/0", "path": "/a/b/-"}), Ok(json!([1, 2, 3, 1]))),
            (json!({"op": "test", "path": "/a/b/0", "value": 1}), Ok(json!([1, 2, 3]))),
            (json!({"op": "test", "path": "/a/b/0", "value": 2}), Err(Unfit)),
            (json!({"op": "test", "path": "/a/nothing", "value": null}), Ok(json!([1, 2, 3]))),
            (json!({"op": "test", "path": "/a/c~1d", "value": "x"}), Ok(json!([1, 2, 3]))),
            (json!({"op": "test", "path": "/a/e~0f"}), Ok(json!([1, 2, 3]))),
            (json!({"op": "add", "path": "", "value": {}}), Err(Unfit)),
            (json!({"op": "mend", "path": "/a/b"}), Err(Unfit)),
            (json!({"op": "add"}), Err(Unfit)),
            (json!(null), Err(Unfit)),
        ] {
            let result = patched(json!([operation.clone()])).map(|mut a| a["b"].take());
            assert_eq!(result, expected, "{operation}");
        }
        // Unlike the RFC says.
        let added = patched(json!([{"op": "replace", "path": "/a/new", "value": 1}])).unwrap();
        assert_eq!(added["new"], 1);
    }

    #[test]
    fn copies_do_not_grow_without_end() {
        let doubling: Vec<Value> =
            (0..64).map(|_| json!({"op": "copy", "from": "/a", "path": "/a/b/-"})).collect();
        assert_eq!(patched(doubling.into()), Err(Unfit));
    }

    #[test]
    fn a_merge_patch_merges_objects_and_replaces_all_else() {
        for (document, patch, expected) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [1]}), json!({"a": [{"b": null}]}), json!({"a": [{}]})),
            (json!({"e": null}), json!({"a": {"bb": {"ccc": null}}}), json!({"e": null, "a": {"bb": {}}})),
            (json!({"a": 1}), json!({"a": {"b": null, "c": 1}}), json!({"a": {"c": 1}})),
        ] {
            let mut merged = document.clone();
            merge(&mut merged, patch.clone());
            assert_eq!(merged, expected, "{document} {patch}");
        }
    }

    proptest! {
        #[test]
        fn no_path_panics(path in "[/a-c~01x-]{0,12}", from in "[/a-c~01x-]{0,12}", index in 0..6usize) {
            let op = ["add", "remove", "replace", "move", "copy", "test"][index];
            let _ = patched(json!([{"op": op, "path": path, "from": from, "value": 1}]));
        }
    }
}
