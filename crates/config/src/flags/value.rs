//! From the text of a flag to a value in a tree.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use crablet_api::document::{Place, Problem, Tree, Value};
use crablet_api::resource_names::is_huge_pages;
use crablet_api::{GoDuration, Quantity, Taint};

use super::{Flag, Kind};

/// The value of a flag that was given once or several times; `None` where it leaves things as they are.
pub(crate) fn node(flag: &Flag, texts: &[&str], earlier: Option<&Tree>) -> Result<Option<Tree>, Problem> {
    let place = Place { source: Arc::from(format!("--{}", flag.name)), line: 0 };
    let here = |value| Tree { value, place: place.clone() };
    match value(flag.kind, texts, earlier, &here) {
        Ok(value) => Ok(value.map(here)),
        Err(message) => Err(Problem { place, path: String::new(), message }),
    }
}

fn value(
    kind: Kind,
    texts: &[&str],
    earlier: Option<&Tree>,
    here: &dyn Fn(Value) -> Tree,
) -> Result<Option<Value>, String> {
    let last = texts.last().copied().unwrap_or_default();
    let text = |text: &str| Value::Text(text.into());
    Ok(Some(match kind {
        Kind::Bool => Value::Bool(boolean(last)?),
        Kind::Switch => return Ok(boolean(last)?.then_some(Value::Bool(true))),
        Kind::Int => Value::Int(integer(last)?),
        Kind::Text | Kind::Path => text(last),
        Kind::Version => match (last, boolean(last)) {
            ("raw", _) | (_, Ok(_)) => text(last),
            (_, Err(_)) => return Err(format!("expected true, false or raw, found {last:?}")),
        },
        Kind::Ip => match last.trim().parse::<IpAddr>() {
            Ok(address) => text(&address.to_string()),
            Err(_) => return Err(format!("failed to parse IP: {last:?}")),
        },
        Kind::Duration => match last.parse::<GoDuration>() {
            Ok(_) => text(last),
            Err(error) => return Err(error.to_string()),
        },
        Kind::Quantity => match last.parse::<Quantity>() {
            Ok(_) => text(last),
            Err(error) => return Err(error.to_string()),
        },
        Kind::List => Value::List(parts(texts).map(|part| here(text(part))).collect()),
        Kind::Map => map(parts(texts), '=', here)?,
        Kind::PairMap => map(texts.iter().copied(), '=', here)?,
        Kind::LessThanMap => map(parts(texts), '<', here)?,
        Kind::Labels => Value::Map(
            parts(texts)
                .map(|part| part.split_once('=').unwrap_or((part, "")))
                .map(|(key, value)| (key.trim().into(), here(text(value.trim()))))
                .collect(),
        ),
        Kind::BoolMap => {
            let mut fields = BTreeMap::new();
            for part in parts(texts) {
                let (key, value) = pair(part, '=').ok_or_else(|| malformed(part, "string=bool"))?;
                let on = boolean(value.trim())
                    .map_err(|error| format!("invalid value of {}: {error}", key.trim()))?;
                fields.insert(key.trim().into(), here(Value::Bool(on)));
            }
            Value::Map(fields)
        }
        Kind::Headers => {
            let mut fields: BTreeMap<Box<str>, Vec<Tree>> = BTreeMap::new();
            for part in parts(texts) {
                // Not quoted: it may be a secret.
                let (key, value) = pair(part, ':').ok_or("malformed pair, expect string:string")?;
                fields.entry(key.trim().into()).or_default().push(here(text(value.trim())));
            }
            Value::Map(fields.into_iter().map(|(key, values)| (key, here(Value::List(values)))).collect())
        }
        Kind::Taints => {
            let taints = Taint::parse_list(&texts.join(",")).map_err(|error| error.to_string())?;
            let fields = |taint: Taint| {
                here(Value::Map(BTreeMap::from([
                    ("key".into(), here(text(&taint.key))),
                    ("value".into(), here(text(&taint.value))),
                    ("effect".into(), here(text(taint.effect.as_str()))),
                ])))
            };
            Value::List(taints.into_iter().map(fields).collect())
        }
        Kind::ReservedMemory => {
            let items = texts.iter().flat_map(|text| text.split(';')).filter(|item| !item.is_empty());
            Value::List(items.map(|item| reserved_memory(item, here)).collect::<Result<_, _>>()?)
        }
        Kind::VModule => {
            let mut items = match earlier {
                Some(Tree { value: Value::List(items), .. }) => items.clone(),
                Some(_) | None => Vec::new(),
            };
            for part in parts(texts) {
                let (pattern, level) = part
                    .split_once('=')
                    .filter(|(pattern, level)| !pattern.is_empty() && !level.is_empty())
                    .ok_or_else(|| format!("{part:?} does not have the pattern=N format"))?;
                let level = level.parse::<u32>().ok().filter(|level| *level <= i32::MAX.unsigned_abs());
                let level =
                    level.ok_or_else(|| format!("the verbosity in {part:?} is not a whole number"))?;
                items.push(here(Value::Map(BTreeMap::from([
                    ("filePattern".into(), here(text(pattern))),
                    ("verbosity".into(), here(Value::Int(level.into()))),
                ]))));
            }
            Value::List(items)
        }
    }))
}

pub(super) fn parts<'a>(texts: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    texts.iter().flat_map(|text| text.split(',')).filter(|part| !part.is_empty())
}

fn map<'a>(
    pairs: impl Iterator<Item = &'a str>,
    separator: char,
    here: &dyn Fn(Value) -> Tree,
) -> Result<Value, String> {
    let mut fields = BTreeMap::new();
    for part in pairs {
        let (key, value) =
            pair(part, separator).ok_or_else(|| malformed(part, &format!("string{separator}string")))?;
        fields.insert(key.trim().into(), here(Value::Text(value.trim().into())));
    }
    Ok(Value::Map(fields))
}

/// A key, which is not empty, and its value.
fn pair(part: &str, separator: char) -> Option<(&str, &str)> {
    part.split_once(separator).filter(|(key, _)| !key.trim().is_empty())
}

fn malformed(part: &str, expected: &str) -> String {
    format!("malformed pair {part:?}, expect {expected}")
}

fn reserved_memory(item: &str, here: &dyn Fn(Value) -> Tree) -> Result<Tree, String> {
    let (node, limits) = item.split_once(':').ok_or_else(|| {
        format!("the reserved memory has incorrect format, expected numaNodeID:type=quantity[,type=quantity...], got {item}")
    })?;
    let node: i32 = node
        .parse()
        .map_err(|_| format!("failed to convert the NUMA node ID, expected integer, got {node}"))?;
    let mut fields = BTreeMap::new();
    for limit in limits.split(',') {
        let (name, quantity) = limit.split_once('=').ok_or_else(|| {
            format!("the reserved limit has incorrect value, expected type=quantity, got {limit}")
        })?;
        if name != "memory" && !is_huge_pages(name) {
            return Err(format!(
                "memory type conversion error, unknown type: {name:?}; expected memory or hugepages-<size>"
            ));
        }
        quantity.parse::<Quantity>().map_err(|_| {
            format!("failed to parse the quantity: {quantity}; expected one such as \"10Mi\"")
        })?;
        fields.insert(name.into(), here(Value::Text(quantity.into())));
    }
    Ok(here(Value::Map(BTreeMap::from([
        ("numaNode".into(), here(Value::Int(node.into()))),
        ("limits".into(), here(Value::Map(fields))),
    ]))))
}

/// What Go takes for a boolean.
pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        other => Err(format!("expected true or false, found {other:?}")),
    }
}

/// A whole number, with Go's prefixes for other bases.
fn integer(text: &str) -> Result<i128, String> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Err(format!("expected a whole number, found {text:?}"));
    }
    match u64::from_str_radix(digits, radix).map(|number| i128::from(number) * sign) {
        Ok(number) if i64::try_from(number).is_ok() => Ok(number),
        Ok(_) | Err(_) => Err(format!("expected a whole number of at most 64 bits, found {text}")),
    }
}
