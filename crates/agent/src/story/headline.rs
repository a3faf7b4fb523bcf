//! The one sentence on a pod that answers "why is it not running".

use std::fmt::{self, Write};

use crablet_api::Text;
use jiff::Timestamp;
use serde::{Serialize, Serializer};

use super::ring::shortened;

/// What a pod is, in the words of a headline. What follows the words is the reason that the worker gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum State {
    /// "is not running yet: it waits for …": for what will come by itself, such as an image, or an init container.
    Waiting,
    /// "is not running: …": something is wrong, such as an image that cannot be pulled, or a crash loop.
    Blocked,
    /// "runs but is not ready: …"
    Unready,
    /// "runs", and all is well.
    Running,
    /// "is being stopped: …", and on which step that is.
    Terminating,
    /// "has finished".
    Succeeded,
    /// "has failed: …", for good.
    Failed,
}

impl State {
    fn words(self) -> (&'static str, &'static str) {
        match self {
            State::Waiting => ("is not running yet", ": it waits for "),
            State::Blocked => ("is not running", ": "),
            State::Unready => ("runs but is not ready", ": "),
            State::Running => ("runs", ": "),
            State::Terminating => ("is being stopped", ": "),
            State::Succeeded => ("has finished", ": "),
            State::Failed => ("has failed", ": "),
        }
    }
}

/// What a pod is, why, and since when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Headline {
    /// What it is.
    pub state: State,
    /// Why it is that, or what it waits for. Empty where there is nothing to say.
    pub because: Text,
    /// Since when that holds.
    #[serde(serialize_with = "moment")]
    pub since: Timestamp,
}

impl Headline {
    /// What is said until a worker says more.
    pub(super) fn first(now: Timestamp) -> Headline {
        Headline::new(State::Waiting, format_args!("its worker to begin"), now)
    }

    pub(super) fn new(state: State, because: fmt::Arguments<'_>, since: Timestamp) -> Headline {
        Headline { state, because: shortened(because), since }
    }

    /// Whether it says just that already. Nothing is allocated to find out.
    pub(super) fn says(&self, state: State, because: fmt::Arguments<'_>) -> bool {
        let mut compared = Compared { rest: &self.because };
        self.state == state && compared.write_fmt(because).is_ok() && compared.rest.is_empty()
    }
}

impl fmt::Display for Headline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (words, link) = self.state.words();
        let link = if self.because.is_empty() { "" } else { link };
        write!(f, "{words}{link}{}", self.because)
    }
}

/// Takes what is written off the text that is expected.
struct Compared<'a> {
    rest: &'a str,
}

impl Write for Compared<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.rest = self.rest.strip_prefix(text).ok_or(fmt::Error)?;
        Ok(())
    }
}

/// Writes a time to the millisecond.
pub(super) fn moment<S: Serializer>(moment: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{moment:.3}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_headline_is_a_sentence() {
        for (state, because, expected) in [
            (State::Waiting, "its volumes", "is not running yet: it waits for its volumes"),
            (State::Waiting, "", "is not running yet"),
            (State::Blocked, "back-off 20s", "is not running: back-off 20s"),
            (State::Unready, "the readiness probe fails", "runs but is not ready: the readiness probe fails"),
            (State::Running, "", "runs"),
            (State::Terminating, "container c has 12s left", "is being stopped: container c has 12s left"),
            (State::Succeeded, "", "has finished"),
            (State::Failed, "OutOfcpu", "has failed: OutOfcpu"),
        ] {
            let headline = Headline::new(state, format_args!("{because}"), Timestamp::UNIX_EPOCH);
            assert_eq!(headline.to_string(), expected);
        }
    }

    #[test]
    fn only_the_very_same_words_are_the_same() {
        let headline = Headline::new(State::Waiting, format_args!("image {}", "a"), Timestamp::UNIX_EPOCH);
        assert!(headline.says(State::Waiting, format_args!("{} a", "image")));
        assert!(!headline.says(State::Blocked, format_args!("image a")));
        assert!(!headline.says(State::Waiting, format_args!("image ab")));
        assert!(!headline.says(State::Waiting, format_args!("image ")));
        assert!(!headline.says(State::Waiting, format_args!("")));
    }
}
