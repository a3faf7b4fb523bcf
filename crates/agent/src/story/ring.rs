//! What happened to a pod, in the order of when it last did, within bounds.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::time::Duration;

use crablet_api::Text;
use jiff::Timestamp;
use serde::{Serialize, Serializer};

use super::headline::moment;

/// How many entries a story has at most.
const ENTRIES: usize = 128;
/// How many bytes its entries take at most. A settled pod's take some 1,500.
const BYTES: usize = 8 * 1024;
/// How long one text is at most.
const LONGEST: usize = 512;
/// What the heap takes beside a text that is not held in place.
const HEADER: usize = 16;

/// Something that happened, once or again and again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// When it happened first.
    #[serde(serialize_with = "moment")]
    pub first: Timestamp,
    /// When it happened last.
    #[serde(serialize_with = "moment")]
    pub last: Timestamp,
    /// How often it happened.
    pub count: u32,
    /// How long it took last, if it was a step.
    #[serde(rename = "tookSeconds", serialize_with = "seconds", skip_serializing_if = "Option::is_none")]
    pub took: Option<Duration>,
    /// Whether it is a reason for concern.
    pub is_warning: bool,
    /// What it is about, in a word.
    pub topic: Text,
    /// What happened and why.
    pub text: Text,
    /// Whether the text is only the latest one of several that were too many to keep apart.
    #[serde(skip)]
    is_combined: bool,
}

/// Something to add to a story.
pub(crate) struct Telling<'a> {
    pub(crate) topic: &'a str,
    pub(crate) text: fmt::Arguments<'a>,
    pub(crate) took: Option<Duration>,
    pub(crate) is_warning: bool,
    pub(crate) is_combined: bool,
}

/// The entries of a story.
#[derive(Debug, Default)]
pub(super) struct Ring {
    entries: VecDeque<Entry>,
    bytes: usize,
    forgotten: u64,
}

impl Ring {
    /// Adds what happened. What happened before is counted and moves to the end, so that a loop of the same five
    /// steps takes five entries and does not push out how it began.
    pub(super) fn tell(&mut self, telling: Telling<'_>, now: Timestamp) {
        let text = shortened(telling.text);
        let same = self.entries.iter().rposition(|entry| {
            entry.topic == telling.topic
                && entry.is_warning == telling.is_warning
                && (entry.text == text || (entry.is_combined && telling.is_combined))
        });
        let earlier = same.and_then(|place| self.entries.remove(place));
        let entry = Entry {
            first: earlier.as_ref().map_or(now, |entry| entry.first),
            last: now,
            count: earlier.as_ref().map_or(1, |entry| entry.count.saturating_add(1)),
            took: telling.took,
            is_warning: telling.is_warning,
            topic: telling.topic.into(),
            text,
            is_combined: telling.is_combined,
        };
        self.bytes = self.bytes.saturating_sub(earlier.as_ref().map_or(0, Entry::bytes)) + entry.bytes();
        if self.entries.len() == self.entries.capacity() {
            // Doubling would take more than the bound allows for.
            self.entries.reserve_exact(8);
        }
        self.entries.push_back(entry);
        while self.entries.len() > ENTRIES || self.bytes > BYTES {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.bytes = self.bytes.saturating_sub(oldest.bytes());
            self.forgotten += 1;
        }
    }

    /// The oldest first.
    pub(super) fn entries(&self) -> Vec<Entry> {
        self.entries.iter().cloned().collect()
    }

    /// How many entries had to go.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }
}

impl Entry {
    fn bytes(&self) -> usize {
        size_of::<Entry>() + heap(&self.topic) + heap(&self.text)
    }
}

fn heap(text: &Text) -> usize {
    if text.len() < size_of::<Text>() { 0 } else { text.len() + HEADER }
}

/// The text, cut at its longest.
pub(super) fn shortened(text: fmt::Arguments<'_>) -> Text {
    if let Some(text) = text.as_str().filter(|text| text.len() <= LONGEST) {
        return text.into();
    }
    let mut cut = Cut(String::new());
    // Ends early, and in error, when there is more than can be kept.
    let is_cut = cut.write_fmt(text).is_err();
    let Cut(mut kept) = cut;
    if is_cut {
        kept.push('…');
    }
    kept.into()
}

struct Cut(String);

impl Write for Cut {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = LONGEST - self.0.len();
        let end = if text.len() <= room { text.len() } else { text.floor_char_boundary(room) };
        self.0.push_str(&text[..end]);
        if end == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

fn seconds<S: Serializer>(took: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match took {
        Some(took) => serializer.serialize_f64(took.as_secs_f64()),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;
    use proptest::prelude::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    fn note<'a>(topic: &'a str, text: fmt::Arguments<'a>) -> Telling<'a> {
        Telling { topic, text, took: None, is_warning: false, is_combined: false }
    }

    fn shown(ring: &Ring) -> Vec<String> {
        let show = |entry: &Entry| format!("{} x{}: {}", entry.topic, entry.count, entry.text);
        ring.entries().iter().map(show).collect()
    }

    #[test]
    fn a_loop_takes_no_more_than_its_steps() {
        let mut ring = Ring::default();
        ring.tell(note("Admitted", format_args!("it fits")), at(0));
        for round in 1..=5 {
            ring.tell(note("Started", format_args!("c")), at(10 * round));
            ring.tell(note("BackOff", format_args!("c")), at(10 * round + 1));
        }
        assert_eq!(shown(&ring), ["Admitted x1: it fits", "Started x5: c", "BackOff x5: c"]);
        let started = &ring.entries()[1];
        assert_eq!((started.first, started.last), (at(10), at(50)));
    }

    #[test]
    fn events_that_were_combined_share_one_entry() {
        let mut ring = Ring::default();
        for number in 0..3 {
            ring.tell(note("Unhealthy", format_args!("{number}")), at(number));
        }
        for number in 3..9 {
            let text = format_args!("(combined) {number}");
            ring.tell(Telling { is_combined: true, ..note("Unhealthy", text) }, at(number));
        }
        let expected =
            ["Unhealthy x1: 0", "Unhealthy x1: 1", "Unhealthy x1: 2", "Unhealthy x6: (combined) 8"];
        assert_eq!(shown(&ring), expected);
    }

    #[test]
    fn the_oldest_goes_when_there_are_too_many() {
        let mut ring = Ring::default();
        for number in 0..1000 {
            ring.tell(note("t", format_args!("{number}")), at(number));
        }
        assert!(ring.entries.len() <= ENTRIES && ring.bytes <= BYTES);
        assert_eq!(ring.entries.back().map(|entry| &*entry.text), Some("999"));
        assert_eq!(ring.entries.len() as u64 + ring.forgotten(), 1000);
    }

    #[test]
    fn the_story_of_a_pod_that_settled_is_small() {
        let mut ring = Ring::default();
        let image = "registry.example.com/team/service:1.2.3";
        let present = "already present on machine and can be accessed by the pod";
        ring.tell(note("Admitted", format_args!("from the manifest, 100m of cpu and 64Mi of memory")), at(0));
        ring.tell(note("Volumes", format_args!("3 volumes are mounted")), at(0));
        ring.tell(note("Sandbox", format_args!("made, because the pod has none")), at(0));
        for container in ["init", "service", "proxy"] {
            ring.tell(
                note("Pulled", format_args!("{container}: Container image {image:?} {present}")),
                at(0),
            );
            ring.tell(note("Created", format_args!("{container}: Container created")), at(0));
            ring.tell(note("Started", format_args!("{container}: Container started")), at(0));
        }
        let room = ring.entries.capacity() * size_of::<Entry>();
        let texts: usize = ring.entries.iter().map(|entry| heap(&entry.topic) + heap(&entry.text)).sum();
        assert!(room + texts < 3000, "{room} and {texts} bytes");
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let text = shortened(format_args!("{}", "ü".repeat(400)));
        assert_eq!(&*text, format!("{}…", "ü".repeat(256)));
        assert_eq!(&*shortened(format_args!("short")), "short");
        assert_eq!(shortened(format_args!("{}{}", "x".repeat(500), "y".repeat(12))).len(), LONGEST);
    }

    proptest! {
        #[test]
        fn a_ring_stays_within_its_bounds_and_counts_its_bytes(texts in prop::collection::vec((0..8_u8, 0..700_usize), 0..300)) {
            let mut ring = Ring::default();
            for (moment, (topic, length)) in texts.into_iter().enumerate() {
                let topic = format!("topic number {topic}");
                ring.tell(note(&topic, format_args!("{}", "x".repeat(length))), at(moment as i64));
                let bytes: usize = ring.entries.iter().map(Entry::bytes).sum();
                prop_assert_eq!(ring.bytes, bytes);
                prop_assert!(bytes <= BYTES && ring.entries.len() <= ENTRIES);
                prop_assert!(ring.entries.iter().is_sorted_by_key(|entry| entry.last));
            }
        }
    }
}
