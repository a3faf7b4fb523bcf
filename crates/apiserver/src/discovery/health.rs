//! `/healthz`, `/livez` and `/readyz`. Who can be asked is up: what is not answers nothing.

use std::collections::BTreeSet;

use crate::answer::Document;
use crate::request::Query;

const CHECKS: [&str; 1] = ["ping"];

/// The answer to a path, or to the one of a check beneath it.
pub(super) fn answer(path: &str, check: &str, query: &Query) -> Document {
    match check {
        "" => Document::text(200, &in_all(path, query)),
        check if CHECKS.contains(&check) => Document::text(200, "ok"),
        _ => Document::text(404, "404 page not found\n"),
    }
}

fn in_all(path: &str, query: &Query) -> String {
    if query.get("verbose").is_none() {
        return "ok".to_owned();
    }
    let excluded: BTreeSet<&str> = query.all("exclude").collect();
    let mut lines = String::new();
    for check in CHECKS {
        match excluded.contains(check) {
            true => lines.push_str(&format!("[+]{check} excluded: ok\n")),
            false => lines.push_str(&format!("[+]{check} ok\n")),
        }
    }
    let unknown = excluded.iter().filter(|name| !CHECKS.contains(name)).map(|name| format!("{name:?}"));
    let unknown: Vec<String> = unknown.collect();
    if !unknown.is_empty() {
        let unknown = unknown.join(",");
        lines.push_str(&format!("warn: some health checks cannot be excluded: no matches for {unknown}\n"));
    }
    lines + path + " check passed\n"
}
