//! Any files and flags are refused or come to a configuration, and that one, printed and used as a file, comes to
//! itself.
//!
//! The text is flags, one on each line that begins with two dashes, then the file of `--config`, then, after a line
//! `# drop-in`, a file of `--config-dir`.
#![no_main]

use std::cell::RefCell;
use std::fs;
use std::path::PathBuf;

use crablet_api::GoDuration;
use crablet_config::{Effective, FLAGS, Flag, GivenFlag, load};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tempfile::TempDir;

#[path = "../loss.rs"]
mod loss;

const SEPARATOR: &str = "# drop-in\n";

thread_local! {
    static FILES: RefCell<Files> = RefCell::new(Files::new());
}

fuzz_target!(|text: &str| FILES.with_borrow_mut(|files| check(files, text)));

fn check(files: &mut Files, text: &str) {
    let (flags, text) = split_flags(text);
    let (file, drop_in) = match text.split_once(SEPARATOR) {
        Some((file, drop_in)) => (file, Some(drop_in)),
        None => (text, None),
    };
    let Some(first) = files.load(&flags, Some(file).filter(|file| !file.is_empty()), drop_in) else { return };
    if loss::has_unwritable_quantity(&first.configuration) {
        return;
    }
    let printed = first.to_yaml();

    // A drop-in is laid over nothing here, and so says what it says.
    let over_nothing = files.load(&[], None, Some(&printed));
    expect_same(&first, over_nothing, &printed, !flags.is_empty(), false);

    let as_file = files.load(&[], Some(&printed), None);
    let only_a_file = flags.is_empty() && drop_in.is_none();
    expect_same(&first, as_file, &printed, !flags.is_empty(), !only_a_file);
}

/// What differs after printing and loading may only be what a file has no words for: a zero that a flag set where a
/// file's zero means the default, and, in the file of `--config` alone, a relative path and thresholds beside
/// `mergeDefaultEvictionSettings`.
fn expect_same(first: &Effective, again: Option<Effective>, printed: &str, zeros: bool, paths: bool) {
    let Some(again) = again else {
        // The default in place of a flag's zero may be at odds with another field.
        assert!(zeros, "what was printed is refused:\n{printed}");
        return;
    };
    let (left, right) = (first.to_json(), again.to_json());
    let mut differences = Vec::new();
    compare(&left, &right, String::new(), &mut differences);
    differences.retain(|(path, value)| {
        let excused = (zeros && is_zero(value))
            || (paths && is_relative_path(value))
            || (paths && first.configuration.merge_default_eviction_settings && path == ".evictionHard");
        !excused
    });
    assert!(differences.is_empty(), "{differences:?}\n{left}\n{right}\n{printed}");
    if left == right {
        assert_eq!(first.configuration, again.configuration, "{printed}");
        assert_eq!(first.gates, again.gates, "{printed}");
    }
}

/// The paths where two values differ, with what the left one has there.
fn compare(left: &Value, right: &Value, path: String, differences: &mut Vec<(String, Value)>) {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) if path != ".evictionHard" => {
            for (name, value) in left {
                let right = right.get(name).unwrap_or(&Value::Null);
                compare(value, right, format!("{path}.{name}"), differences);
            }
            for name in right.keys().filter(|name| !left.contains_key(*name)) {
                differences.push((format!("{path}.{name}"), Value::Null));
            }
        }
        (left, right) if left == right => {}
        (left, _) => differences.push((path, left.clone())),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(_) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || text.parse() == Ok(GoDuration::ZERO),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

fn is_relative_path(value: &Value) -> bool {
    value.as_str().is_some_and(|path| !path.starts_with('/'))
}

/// The flags at the top of a text, and the rest of it.
fn split_flags(text: &str) -> (Vec<GivenFlag<'_>>, &str) {
    let mut flags = Vec::new();
    let mut rest = text;
    while let Some((line, after)) = rest.strip_prefix("--").and_then(|flag| flag.split_once('\n')) {
        if line.starts_with('-') {
            break;
        }
        let (name, value) = line.split_once('=').unwrap_or((line, "true"));
        let flag = Flag::find(name).unwrap_or_else(|| any_flag(name));
        // These two are set below: any other file would be somebody's.
        if !matches!(flag.name, "config" | "config-dir") {
            flags.push((flag, value));
        }
        rest = after;
    }
    (flags, rest)
}

/// A name that is no flag's stands for some flag all the same, so that a change of one byte finds another one.
fn any_flag(name: &str) -> &'static Flag {
    let number = name.bytes().fold(0_usize, |number, byte| number.wrapping_mul(31).wrapping_add(byte.into()));
    &FLAGS[number % FLAGS.len()]
}

/// The two files, in a directory that lasts as long as the process.
struct Files {
    file: PathBuf,
    drop_in: PathBuf,
    directory: TempDir,
}

impl Files {
    fn new() -> Files {
        let directory = TempDir::new().expect("the directory for temporary files can be written to");
        let drop_ins = directory.path().join("conf.d");
        fs::create_dir(&drop_ins).expect("and a directory made in it");
        Files { file: directory.path().join("kubelet.yaml"), drop_in: drop_ins.join("1.conf"), directory }
    }

    fn load(&self, flags: &[GivenFlag<'_>], file: Option<&str>, drop_in: Option<&str>) -> Option<Effective> {
        let conf_d = self.directory.path().join("conf.d");
        let mut given = flags.to_vec();
        for (name, path, text, argument) in
            [("config", &self.file, file, &self.file), ("config-dir", &self.drop_in, drop_in, &conf_d)]
        {
            if let Some(text) = text {
                fs::write(path, text).expect("the files can be written");
                let argument = argument.to_str().expect("the directory's name is text");
                given.push((Flag::find(name).expect("this is a flag"), argument));
            }
        }
        load(&given).ok()
    }
}
