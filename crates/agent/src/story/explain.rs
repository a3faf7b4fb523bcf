//! A story to read: as a sentence and a table, or as JSON.

use std::fmt::{self, Write};
use std::time::Duration;

use crablet_api::core::PodIdentity;
use jiff::Timestamp;
use serde::{Serialize, Serializer, ser::SerializeStruct};

use super::headline::moment;
use super::{Entry, Headline};

/// What is to be said of a pod in one sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    pub pod: PodIdentity,
    /// What it is, and why; what it was last, if it is gone.
    pub headline: Headline,
    /// Since when it is gone.
    pub gone: Option<Timestamp>,
}

/// The story of a pod, as it stood when it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Story {
    /// What is to be said in one sentence.
    #[serde(flatten)]
    pub summary: Summary,
    /// What happened, by the time when it last did.
    pub entries: Vec<Entry>,
    /// How many older entries there is no room for.
    pub forgotten: u64,
}

impl Summary {
    /// The sentence, such as `default/web is not running yet: it waits for its volumes (for 12s).`
    pub fn sentence(&self, now: Timestamp) -> String {
        let Summary { pod, headline, gone } = self;
        match gone {
            Some(gone) => {
                format!("{pod} went {} ago; the last word on it was: it {headline}.", since(*gone, now))
            }
            None => format!("{pod} {headline} (for {}).", since(headline.since, now)),
        }
    }
}

impl Story {
    /// The whole story, for a person: the sentence, and a table of what happened, the latest last.
    pub fn explain(&self, now: Timestamp) -> String {
        let mut text = self.summary.sentence(now);
        text.push('\n');
        if self.entries.is_empty() {
            return text;
        }
        text.push('\n');
        let mut rows = vec![["WHEN", "AT", "TOOK", "WHAT"].map(str::to_owned)];
        rows.extend(self.entries.iter().map(|entry| row(entry, now)));
        write_table(&mut text, &rows);
        if self.forgotten > 0 {
            // Writing to a string never fails.
            _ = writeln!(text, "\n({} earlier entries are forgotten.)", self.forgotten);
        }
        text
    }
}

fn row(entry: &Entry, now: Timestamp) -> [String; 4] {
    let mut when = format!("{} ago", since(entry.last, now));
    if entry.count > 1 {
        // Writing to a string never fails.
        _ = write!(when, " (x{} over {})", entry.count, since(entry.first, now));
    }
    let took = entry.took.map_or_else(|| "-".to_owned(), |took| Short(took).to_string());
    let mark = if entry.is_warning { "! " } else { "" };
    [when, format!("{:.0}", entry.last), took, format!("{mark}{}: {}", entry.topic, entry.text)]
}

fn write_table<const N: usize>(text: &mut String, rows: &[[String; N]]) {
    let widths: [usize; N] = std::array::from_fn(|column| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    });
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            let width = if column + 1 < N { widths[column] + 2 } else { 0 };
            // Writing to a string never fails.
            _ = write!(text, "{cell:width$}");
        }
        text.push('\n');
    }
}

/// How long ago something was, in a person's words. What lies ahead, because the clock was set back, is now.
pub fn since(then: Timestamp, now: Timestamp) -> impl fmt::Display {
    Short(Duration::try_from(now.duration_since(then)).unwrap_or_default())
}

/// A duration as people say it: two units are enough.
struct Short(Duration);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
        let (large, small) = match (days, hours, minutes, seconds) {
            (0, 0, 0, 0) => return write!(f, "{}ms", self.0.as_millis()),
            (0, 0, 0, 1..10) => {
                let tenths = self.0.subsec_millis() / 100;
                return if tenths == 0 { write!(f, "{seconds}s") } else { write!(f, "{seconds}.{tenths}s") };
            }
            (0, 0, 0, _) => return write!(f, "{seconds}s"),
            (0, 0, ..) => ((minutes, 'm'), (seconds % 60, 's')),
            (0, ..) => ((hours, 'h'), (minutes % 60, 'm')),
            (..) => ((days, 'd'), (hours % 24, 'h')),
        };
        write!(f, "{}{}", large.0, large.1)?;
        if small.0 > 0 { write!(f, "{}{}", small.0, small.1) } else { Ok(()) }
    }
}

impl Serialize for Summary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Moment(#[serde(serialize_with = "moment")] Timestamp);

        let mut summary = serializer.serialize_struct("Summary", 3)?;
        summary.serialize_field("pod", &self.pod)?;
        summary.serialize_field("headline", &self.headline)?;
        match self.gone {
            Some(gone) => summary.serialize_field("gone", &Moment(gone))?,
            None => summary.skip_field("gone")?,
        }
        summary.end()
    }
}

#[cfg(test)]
mod tests {
    use crablet_api::core::PodIdentity;

    use std::time::Duration;

    use super::Short;
    use crate::story::{State, Stories};
    use crablet_host::clock::Clock;
    use expect_test::expect;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn a_story_begins_with_the_answer() {
        let clock = Clock::simulated("2026-11-15T03:46:00Z".parse().unwrap());
        let stories = Stories::new(clock.clone());
        let teller = stories.open(&PodIdentity::new("default", "web", "u1"));
        teller.step("Sandbox", Duration::from_millis(1234), format_args!("made, as there was none"));
        advance(Duration::from_secs(12)).await;
        for _ in 0..3 {
            teller.failed("Pull", Duration::from_secs(75), format_args!("c: no such image"));
            advance(Duration::from_secs(30)).await;
        }
        teller.headline(State::Blocked, format_args!("image \"x\" cannot be pulled: no such image"));
        teller.note("Back-off", format_args!("the next pull is in 40s"));
        advance(Duration::from_millis(2500)).await;
        expect![[r#"
            default/web is not running: image "x" cannot be pulled: no such image (for 2.5s).

            WHEN                     AT                    TOOK   WHAT
            1m44s ago                2026-11-15T03:46:00Z  1.2s   Sandbox: made, as there was none
            32s ago (x3 over 1m32s)  2026-11-15T03:47:12Z  1m15s  ! Pull: c: no such image
            2.5s ago                 2026-11-15T03:47:42Z  -      Back-off: the next pull is in 40s
        "#]]
        .assert_eq(&teller.story().explain(clock.now()));
        stories.close("u1");
        advance(Duration::from_secs(5)).await;
        expect![[r#"default/web went 5s ago; the last word on it was: it is not running: image "x" cannot be pulled: no such image."#]]
            .assert_eq(&teller.story().summary.sentence(clock.now()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_story_says_how_much_it_has_forgotten() {
        let clock = Clock::simulated("2026-11-15T03:46:00Z".parse().unwrap());
        let teller = Stories::new(clock.clone()).open(&PodIdentity::new("default", "web", "u1"));
        assert_eq!(teller.story().explain(clock.now()).lines().count(), 1);
        for number in 0..1000 {
            teller.note("Note", format_args!("{number}"));
        }
        let text = teller.story().explain(clock.now());
        assert!(text.ends_with(" earlier entries are forgotten.)\n"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_story_is_json_too() {
        let clock = Clock::simulated("2026-11-15T03:46:00.5Z".parse().unwrap());
        let stories = Stories::new(clock.clone());
        let teller = stories.open(&PodIdentity::new("default", "web", "u1"));
        teller.headline(State::Running, format_args!(""));
        teller.step("Sandbox", Duration::from_millis(250), format_args!("made"));
        teller.note("Note", format_args!("n"));
        stories.close("u1");
        expect![[r#"
            {
              "pod": {
                "namespace": "default",
                "name": "web",
                "uid": "u1"
              },
              "headline": {
                "state": "Running",
                "because": "",
                "since": "2026-11-15T03:46:00.500Z"
              },
              "gone": "2026-11-15T03:46:00.500Z",
              "entries": [
                {
                  "first": "2026-11-15T03:46:00.500Z",
                  "last": "2026-11-15T03:46:00.500Z",
                  "count": 1,
                  "tookSeconds": 0.25,
                  "isWarning": false,
                  "topic": "Sandbox",
                  "text": "made"
                },
                {
                  "first": "2026-11-15T03:46:00.500Z",
                  "last": "2026-11-15T03:46:00.500Z",
                  "count": 1,
                  "isWarning": false,
                  "topic": "Note",
                  "text": "n"
                }
              ],
              "forgotten": 0
            }"#]]
        .assert_eq(&serde_json::to_string_pretty(&teller.story()).unwrap());
    }

    #[test]
    fn durations_are_said_in_two_units() {
        for (milliseconds, expected) in [
            (0, "0ms"),
            (999, "999ms"),
            (1000, "1s"),
            (9950, "9.9s"),
            (10_900, "10s"),
            (60_000, "1m"),
            (192_000, "3m12s"),
            (3_600_000, "1h"),
            (7_500_000, "2h5m"),
            (100_800_000, "1d4h"),
        ] {
            assert_eq!(Short(Duration::from_millis(milliseconds)).to_string(), expected);
        }
    }
}
