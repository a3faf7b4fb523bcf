//! [`Problems`]: what is wrong with the manifests of a node, said once.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tracing::{info, warn};

use super::SourceKind;

/// The most files or addresses whose problems are kept.
const MOST_ENTRIES: usize = 1000;
/// The most problems that are kept of each.
const MOST_PROBLEMS: usize = 20;
/// The longest message that is kept, in bytes.
const LONGEST_MESSAGE: usize = 2000;

/// Something wrong with what a source gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub source: SourceKind,
    /// The file, the directory or the address.
    pub origin: String,
    /// The line, from 1; 0 where it is about no line.
    pub line: u32,
    /// What is wrong: the field, where it is about one, and what would be accepted.
    pub message: String,
    /// What the agent does about it.
    pub consequence: Consequence,
}

/// What the agent does about a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consequence {
    /// What it is about is not run.
    Ignored,
    /// What was read there before it went wrong stays in force.
    LastGoodKept,
    /// Nothing: the rest of it is in force.
    Noted,
}

impl Consequence {
    /// What happens next, in words.
    pub fn as_str(self) -> &'static str {
        match self {
            Consequence::Ignored => "ignored until it is fixed",
            Consequence::LastGoodKept => "what was read there before stays in force until it is fixed",
            Consequence::Noted => "in force all the same",
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(formatter, "{}: {}", self.origin, self.message),
            line => write!(formatter, "{}:{line}: {}", self.origin, self.message),
        }
    }
}

/// All problems there are now, shared by everyone who finds or shows them. A problem is logged when it is found, and
/// not again until something about it changes.
#[derive(Clone)]
pub struct Problems(Arc<Shared>);

struct Shared {
    kept: Mutex<Kept>,
    reports: watch::Sender<u64>,
}

#[derive(Default)]
struct Kept {
    entries: BTreeMap<(SourceKind, String), Entry>,
    is_full: bool,
}

struct Entry {
    problems: Vec<Problem>,
    /// What was looked at when they were found. The same text about other content is another problem.
    version: u64,
}

/// A problem as its finder tells it.
#[derive(Clone)]
pub(super) struct Found {
    pub(super) origin: String,
    pub(super) line: u32,
    pub(super) message: String,
}

impl Problems {
    /// No problems.
    pub fn new() -> Problems {
        Problems(Arc::new(Shared { kept: Mutex::default(), reports: watch::Sender::new(0) }))
    }

    /// All there are now, by source, file and line.
    pub fn list(&self) -> Vec<Problem> {
        self.lock().entries.values().flat_map(|entry| entry.problems.iter().cloned()).collect()
    }

    /// How often problems were reported or found to be gone so far, to wait for news.
    pub fn reports(&self) -> watch::Receiver<u64> {
        self.0.reports.subscribe()
    }

    /// Says what is wrong with one thing: all of it, in place of what was said before. `key` names the thing among
    /// those of its source.
    pub(super) fn set(&self, source: SourceKind, key: &str, consequence: Consequence, found: Vec<Found>) {
        self.set_version(source, key, 0, consequence, found);
    }

    /// The same for one of the versions of the thing, such as the content of a file: what is wrong with another
    /// version is said again.
    pub(super) fn set_version(
        &self,
        source: SourceKind,
        key: &str,
        version: u64,
        consequence: Consequence,
        found: Vec<Found>,
    ) {
        let problems = bounded(source, consequence, found);
        let mut kept = self.lock();
        let key = (source, key.to_owned());
        if problems.is_empty() {
            if kept.entries.remove(&key).is_some() {
                kept.is_full = false;
                info!(%source, origin = key.1, "What was wrong here is fixed");
                self.0.reports.send_modify(|count| *count += 1);
            }
            return;
        }
        let known = kept.entries.get(&key);
        if known.is_some_and(|entry| entry.problems == problems && entry.version == version) {
            return;
        }
        if known.is_none() && kept.entries.len() >= MOST_ENTRIES {
            if !std::mem::replace(&mut kept.is_full, true) {
                warn!(%source, origin = key.1, limit = MOST_ENTRIES, "More problems than are kept; further ones are dropped");
            }
            return;
        }
        report(source, consequence, &problems);
        kept.entries.insert(key, Entry { problems, version });
        self.0.reports.send_modify(|count| *count += 1);
    }

    /// Forgets what was wrong with something that is not there any more.
    pub(super) fn forget(&self, source: SourceKind, key: &str) {
        let mut kept = self.lock();
        if kept.entries.remove(&(source, key.to_owned())).is_some() {
            kept.is_full = false;
            self.0.reports.send_modify(|count| *count += 1);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Problems {
    fn default() -> Problems {
        Problems::new()
    }
}

/// One line for all problems of a file: they are one decision.
fn report(source: SourceKind, consequence: Consequence, problems: &[Problem]) {
    let problem: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let (problem, next) = (problem.join("; "), consequence.as_str());
    match consequence {
        Consequence::Ignored | Consequence::LastGoodKept => {
            warn!(%source, problem, next, "Pods cannot be read as they are written");
        }
        Consequence::Noted => info!(%source, problem, next, "Something about a manifest is doubtful"),
    }
}

fn bounded(source: SourceKind, consequence: Consequence, found: Vec<Found>) -> Vec<Problem> {
    let more = found.len().saturating_sub(MOST_PROBLEMS);
    let mut problems: Vec<Problem> = found
        .into_iter()
        .take(MOST_PROBLEMS)
        .map(|Found { origin, line, message }| Problem {
            source,
            origin,
            line,
            message: shortened(message),
            consequence,
        })
        .collect();
    if let (Some(last), 1..) = (problems.last_mut(), more) {
        last.message.push_str(&format!(" (and {more} more)"));
    }
    problems
}

fn shortened(mut message: String) -> String {
    if message.len() > LONGEST_MESSAGE {
        message.truncate(message.floor_char_boundary(LONGEST_MESSAGE));
        message.push('…');
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(message: &str) -> Vec<Found> {
        vec![Found { origin: "f".into(), line: 3, message: message.into() }]
    }

    #[test]
    fn a_problem_is_reported_once_and_again_when_it_changes() {
        let problems = Problems::new();
        let reports = problems.reports();
        let set = |version, text: &str| {
            let found = if text.is_empty() { vec![] } else { found(text) };
            problems.set_version(SourceKind::File, "f", version, Consequence::Ignored, found);
            *reports.borrow()
        };
        assert_eq!(set(1, "bad"), 1);
        assert_eq!(set(1, "bad"), 1);
        assert_eq!(problems.list()[0].to_string(), "f:3: bad");
        assert_eq!(set(2, "bad"), 2);
        assert_eq!(set(2, "worse"), 3);
        assert_eq!(problems.list().len(), 1);
        assert_eq!(set(3, ""), 4);
        assert_eq!(problems.list(), []);
        assert_eq!(set(3, ""), 4);
    }

    #[test]
    fn problems_of_different_things_stand_beside_each_other() {
        let problems = Problems::new();
        problems.set(SourceKind::Url, "f", Consequence::Noted, found("one"));
        problems.set(SourceKind::File, "f", Consequence::Ignored, found("two"));
        problems.set(SourceKind::File, "e", Consequence::Ignored, found("three"));
        let texts: Vec<String> = problems.list().iter().map(|problem| problem.message.clone()).collect();
        assert_eq!(texts, ["three", "two", "one"]);
        problems.forget(SourceKind::File, "f");
        assert_eq!(problems.list().len(), 2);
    }

    #[test]
    fn however_many_problems_there_are_a_bounded_number_is_kept() {
        let problems = Problems::new();
        for index in 0..MOST_ENTRIES + 10 {
            problems.set(SourceKind::File, &format!("{index:05}"), Consequence::Ignored, found("bad"));
        }
        assert_eq!(problems.list().len(), MOST_ENTRIES);
        problems.forget(SourceKind::File, "00000");
        problems.set(SourceKind::File, "new", Consequence::Ignored, found("bad"));
        assert_eq!(problems.list().len(), MOST_ENTRIES);

        let problems = Problems::new();
        let many = (0..30).flat_map(|_| found(&"ä".repeat(LONGEST_MESSAGE))).collect();
        problems.set(SourceKind::File, "f", Consequence::Ignored, many);
        let list = problems.list();
        assert_eq!(list.len(), MOST_PROBLEMS);
        assert!(list.iter().all(|problem| problem.message.len() < LONGEST_MESSAGE + 30));
        assert!(list.last().unwrap().message.ends_with("… (and 10 more)"));
    }
}
