//! What a real kube-apiserver 1.36 answered, request by request, and whether the embedded one answers the same.
//!
//! Each file in `cases/` has cases: requests that a person wrote, and the answers of a real server, which nobody wrote.
//! Times, UIDs and versions are replaced. The suite runs on the embedded server, and where `KUBEBUILDER_ASSETS` names a
//! directory with `kube-apiserver` and `etcd` (and `openssl` and `curl` are there), on the real one as well; with
//! `RECORD=1` the real one's answers are written into the files.
//!
//! `differences.txt` names the cases that must differ, each with its reason.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test it is the assertion")]

mod case;
mod embedded;
mod neutral;
mod real;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use case::{Case, Step};
use serde_json::Value;

/// Somebody who answers requests.
trait Server {
    fn ask(&mut self, step: &Asked) -> (u16, Body);
}

/// A request with all that depends on earlier answers filled in.
struct Asked {
    method: String,
    path: String,
    query: String,
    headers: Vec<(String, String)>,
    body: String,
}

#[derive(Clone, Debug, PartialEq)]
enum Body {
    Json(Value),
    /// One document a line, as watches have it.
    Lines(Vec<Value>),
    Text(String),
}

fn cases_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/behaviour/cases")
}

fn files() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(cases_directory()).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "http"));
    files.sort();
    files
}

/// Plays a case; what was answered, step by step, as it compares.
fn play(server: &mut dyn Server, case: &Case, namespace: &str) -> Vec<(u16, Body)> {
    let mut raw: Vec<Value> = Vec::new();
    let mut answers = Vec::new();
    for step in &case.steps {
        let asked = fill_in(step, namespace, &raw);
        let (code, body) = server.ask(&asked);
        raw.push(match &body {
            Body::Json(value) => value.clone(),
            Body::Lines(lines) => lines.clone().into(),
            Body::Text(text) => text.clone().into(),
        });
        answers.push((code, neutral::body(body, namespace)));
    }
    answers
}

/// Puts in the namespace, and parts of earlier answers: `{{1.metadata.uid}}` is of the first step's.
fn fill_in(step: &Step, namespace: &str, answers: &[Value]) -> Asked {
    let fill = |text: &str| {
        let mut text = text.replace("{ns}", namespace);
        while let Some((before, rest)) = text.split_once("{{") {
            let (place, after) = rest.split_once("}}").expect("a place ends with }}");
            let mut parts = place.split('.');
            let number: usize = parts.next().unwrap().parse().expect("a place begins with a step's number");
            let value = parts.fold(&answers[number - 1], |value, part| match part.parse::<usize>() {
                Ok(index) => &value[index],
                Err(_) => &value[part],
            });
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            text = format!("{before}{value}{after}");
        }
        text
    };
    let (path, query) = step.target.split_once('?').unwrap_or((&step.target, ""));
    Asked {
        method: step.method.clone(),
        path: fill(path),
        query: fill(query),
        headers: step.headers.iter().map(|(name, value)| (name.clone(), fill(value))).collect(),
        body: fill(&step.body),
    }
}

fn namespace_of(position: usize) -> String {
    format!("case-{position:03}")
}

/// Cases that must differ, and why.
fn differences() -> BTreeMap<String, String> {
    let text = include_str!("differences.txt");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (case, reason) = line.split_once(": ").expect("a case, a colon and the reason");
            (case.to_owned(), reason.to_owned())
        })
        .collect()
}

fn compare(server_name: &str, server: &mut dyn Server, skipped: &BTreeMap<String, String>) {
    let (mut count, mut wrong) = (0, Vec::new());
    for file in files() {
        for case in case::read(&file) {
            count += 1;
            let namespace = namespace_of(count);
            if skipped.contains_key(&case.name) {
                continue;
            }
            prepare(server, &namespace);
            let answers = play(server, &case, &namespace);
            for (position, (step, (code, body))) in case.steps.iter().zip(answers).enumerate() {
                let expected = step.answer.as_ref().map(|(code, body)| (*code, body.clone()));
                if expected.as_ref() == Some(&(code, body.clone())) {
                    continue;
                }
                wrong.push(format!(
                    "### {} (step {}: {} {})\n{}",
                    case.name,
                    position + 1,
                    step.method,
                    step.target,
                    neutral::difference(expected.as_ref(), code, &body)
                ));
                break;
            }
        }
    }
    let filter = std::env::var("CASE").unwrap_or_default();
    let shown: Vec<&String> = wrong.iter().filter(|text| text.contains(&filter)).take(400).collect();
    for text in &shown {
        eprintln!("{text}");
    }
    assert!(wrong.is_empty(), "{server_name}: {} of {count} cases are answered otherwise", wrong.len());
}

/// Every case has a namespace of its own, with the account that pods run as.
fn prepare(server: &mut dyn Server, namespace: &str) {
    for (path, body) in [
        ("/api/v1/namespaces".to_owned(), format!("{{\"metadata\":{{\"name\":\"{namespace}\"}}}}")),
        (
            format!("/api/v1/namespaces/{namespace}/serviceaccounts"),
            "{\"metadata\":{\"name\":\"default\"}}".to_owned(),
        ),
    ] {
        let asked =
            Asked { method: "POST".to_owned(), path, query: String::new(), headers: Vec::new(), body };
        let (code, answer) = server.ask(&asked);
        assert!(matches!(code, 201 | 409), "cannot prepare {namespace}: {code} {answer:?}");
    }
}

#[test]
fn the_embedded_server_answers_as_a_real_one_did() {
    let differences = differences();
    assert!(differences.len() <= 10, "at most ten cases may differ");
    compare("embedded", &mut embedded::Embedded::start(), &differences);
}

#[test]
fn a_real_server_still_answers_as_it_did() {
    let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS") else {
        eprintln!("KUBEBUILDER_ASSETS names no kube-apiserver and etcd: nothing to compare with");
        return;
    };
    let mut server = real::Real::start(Path::new(&assets), &[]);
    if std::env::var_os("RECORD").is_some() {
        record(&mut server);
    } else {
        compare("real", &mut server, &BTreeMap::new());
    }
}

fn record(server: &mut dyn Server) {
    let mut count = 0;
    for file in files() {
        let mut cases = case::read(&file);
        for case in &mut cases {
            count += 1;
            let namespace = namespace_of(count);
            prepare(server, &namespace);
            let answers = play(server, case, &namespace);
            for (step, answer) in case.steps.iter_mut().zip(answers) {
                step.answer = Some(answer);
            }
        }
        case::write(&file, &cases);
    }
    eprintln!("recorded {count} cases");
}
