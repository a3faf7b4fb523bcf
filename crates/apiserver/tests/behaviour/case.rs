//! The files of cases.
//!
//! ```text
//! ### what the case shows
//! > POST /api/v1/namespaces/{ns}/configmaps?dryRun=All
//! Accept: application/json
//! {"metadata": {"name": "a"}}
//! < 201
//! {
//!   "kind": "ConfigMap",
//! …
//! ```
//!
//! Headers and body may be left out. What follows `<` is recorded: JSON, lines of JSON after `< 200 lines`, or text after
//! `< 200 text`.

use std::path::Path;

use serde_json::Value;

use crate::Body;

pub struct Case {
    pub name: String,
    pub steps: Vec<Step>,
}

#[derive(Default)]
pub struct Step {
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
    pub answer: Option<(u16, Body)>,
}

pub fn read(path: &Path) -> Vec<Case> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut cases: Vec<Case> = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("### ") {
            cases.push(Case { name: name.to_owned(), steps: Vec::new() });
        } else if let Some(request) = line.strip_prefix("> ") {
            let (method, target) = request.split_once(' ').expect("a method and a path");
            let mut step = Step { method: method.to_owned(), target: target.to_owned(), ..Step::default() };
            while let Some(line) = lines.next_if(|line| is_within(line) && !line.starts_with("< ")) {
                match line.split_once(": ").filter(|_| step.body.is_empty() && is_header(line)) {
                    Some((name, value)) => step.headers.push((name.to_owned(), value.to_owned())),
                    None => {
                        if !step.body.is_empty() {
                            step.body.push('\n');
                        }
                        step.body.push_str(line);
                    }
                }
            }
            if let Some(answer) = lines.next_if(|line| line.starts_with("< ")) {
                let mut words = answer[2..].split(' ');
                let code: u16 = words.next().unwrap().parse().unwrap();
                let mut body = String::new();
                while let Some(line) = lines.next_if(|line| is_within(line)) {
                    body.push_str(line);
                    body.push('\n');
                }
                let body = match words.next() {
                    Some("text") => Body::Text(body.trim_end().to_owned()),
                    Some("lines") => {
                        Body::Lines(body.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
                    }
                    Some(_) | None => Body::Json(serde_json::from_str(&body).unwrap_or(Value::Null)),
                };
                step.answer = Some((code, body));
            }
            let case = cases.last_mut().expect("a case begins with ###");
            case.steps.push(step);
        } else {
            assert!(line.is_empty() || line.starts_with('#'), "{}: {line:?}", path.display());
        }
    }
    cases
}

pub fn write(path: &Path, cases: &[Case]) {
    let old = std::fs::read_to_string(path).unwrap();
    let heading: Vec<&str> = old.lines().take_while(|line| !line.starts_with("### ")).collect();
    let mut text = heading.join("\n");
    text.push('\n');
    for (position, case) in cases.iter().enumerate() {
        if position > 0 {
            text.push('\n');
        }
        text.push_str(&format!("### {}\n", case.name));
        for step in &case.steps {
            text.push_str(&format!("> {} {}\n", step.method, step.target));
            for (name, value) in &step.headers {
                text.push_str(&format!("{name}: {value}\n"));
            }
            if !step.body.is_empty() {
                text.push_str(&step.body);
                text.push('\n');
            }
            match &step.answer {
                None => {}
                Some((code, Body::Json(value))) => {
                    text.push_str(&format!("< {code}\n{}\n", serde_json::to_string_pretty(value).unwrap()));
                }
                Some((code, Body::Lines(lines))) => {
                    text.push_str(&format!("< {code} lines\n"));
                    for line in lines {
                        text.push_str(&format!("{line}\n"));
                    }
                }
                Some((code, Body::Text(body))) => text.push_str(&format!("< {code} text\n{body}\n")),
            }
        }
    }
    std::fs::write(path, text).unwrap();
}

fn is_within(line: &str) -> bool {
    !line.is_empty() && !line.starts_with("### ") && !line.starts_with("> ")
}

fn is_header(line: &str) -> bool {
    line.starts_with(|first: char| first.is_ascii_uppercase())
        && line
            .split(": ")
            .next()
            .is_some_and(|name| name.chars().all(|c| c.is_ascii_alphabetic() || c == '-'))
}
