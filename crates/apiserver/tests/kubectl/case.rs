//! The files of cases.
//!
//! ```text
//! @ map.yaml
//! | kind: ConfigMap
//! …
//! ### what the case shows
//! $ kubectl create -f map.yaml
//! > configmap/a created
//! $ kubectl get pod b
//! ! Error from server (NotFound): pods "b" not found
//! = 1
//! ```
//!
//! A file (`@`) before the first case is there for all of them, and another for its own. A command goes on in lines that
//! begin with `+`. What follows is recorded: standard output (`>`), standard error (`!`), and the exit code, unless it is 0.

use std::path::Path;

#[derive(Default)]
pub struct File {
    heading: String,
    /// For all cases: names and contents.
    pub files: Vec<(String, String)>,
    pub cases: Vec<Case>,
}

#[derive(Default)]
pub struct Case {
    pub name: String,
    pub comment: Vec<String>,
    pub files: Vec<(String, String)>,
    pub steps: Vec<Step>,
}

#[derive(Clone)]
pub struct Step {
    pub command: String,
    pub printed: Printed,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Printed {
    pub output: String,
    pub error: String,
    pub code: i32,
}

impl File {
    pub fn read(path: &Path) -> File {
        let text = std::fs::read_to_string(path).unwrap();
        let mut file = File::default();
        for line in text.lines() {
            if !line.starts_with("### ") && file.cases.is_empty() {
                file.heading.push_str(line);
                file.heading.push('\n');
            }
            let (mark, rest) = match line.split_once(' ') {
                Some((mark, rest)) => (mark, rest),
                None => (line, ""),
            };
            if mark == "###" {
                file.cases.push(Case { name: rest.to_owned(), ..Case::default() });
                continue;
            }
            let files = match file.cases.last_mut() {
                Some(case) => &mut case.files,
                None => &mut file.files,
            };
            match mark {
                "@" => files.push((rest.to_owned(), String::new())),
                "|" => add(&mut files.last_mut().expect("a file begins with @").1, rest),
                _ => match file.cases.last_mut() {
                    Some(case) => case.take(mark, rest, line),
                    None => assert!(mark.is_empty() || mark.starts_with('#'), "{}: {line}", path.display()),
                },
            }
        }
        file
    }

    pub fn write(&self, path: &Path) {
        let mut text = self.heading.clone();
        for (position, case) in self.cases.iter().enumerate() {
            if position > 0 {
                text.push('\n');
            }
            text.push_str(&format!("### {}\n", case.name));
            for line in &case.comment {
                text.push_str(&format!("# {line}\n"));
            }
            for (name, content) in &case.files {
                text.push_str(&format!("@ {name}\n{}", marked("|", content)));
            }
            for step in &case.steps {
                text.push_str(&marked("+", &step.command).replacen('+', "$", 1));
                text.push_str(&marked(">", &step.printed.output));
                text.push_str(&marked("!", &step.printed.error));
                if step.printed.code != 0 {
                    text.push_str(&format!("= {}\n", step.printed.code));
                }
            }
        }
        std::fs::write(path, text).unwrap();
    }
}

impl Case {
    fn take(&mut self, mark: &str, rest: &str, line: &str) {
        if mark == "$" {
            return self.steps.push(Step { command: rest.to_owned(), printed: Printed::default() });
        }
        match (mark, self.steps.last_mut()) {
            ("#", None) => self.comment.push(rest.to_owned()),
            ("", _) => {}
            (_, None) => panic!("{line}: a step begins with $"),
            (_, Some(step)) => match mark {
                "+" => step.command.push_str(&format!("\n{rest}")),
                ">" => add(&mut step.printed.output, rest),
                "!" => add(&mut step.printed.error, rest),
                "=" => step.printed.code = rest.parse().unwrap(),
                _ => panic!("{line}: not a line of a case"),
            },
        }
    }
}

fn add(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

fn marked(mark: &str, text: &str) -> String {
    let line = |line: &str| if line.is_empty() { format!("{mark}\n") } else { format!("{mark} {line}\n") };
    text.lines().map(line).collect()
}
