//! Which images go, and when: those that no container uses, the one first that was used least lately.
//!
//! Upstream forgets at each start what was used when, and takes an image that was never used for older than any other. Here
//! what is known outlives the agent ([`Records`]), time in which nobody watched does not count as time without use, and of
//! age for its own sake an image that was never used has no more than its presence on the node. To make room it goes before
//! all others, as upstream.

use std::collections::{BTreeMap, BTreeSet};

use crablet_cri_api::{Container, Image};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// When images go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// From so many hundredths of the disk in use on, images go.
    pub high_threshold_percent: i64,
    /// Until no more than so many are.
    pub low_threshold_percent: i64,
    /// One that is here for less than this stays: somebody may be about to use it.
    pub min_age: SignedDuration,
    /// One that nobody used for longer than this goes, however much room there is.
    pub max_age: Option<SignedDuration>,
}

/// How much is to be freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// How many hundredths of the disk are in use.
    pub usage_percent: i64,
    pub bytes: u64,
    pub capacity: u64,
}

/// A file system that holds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid capacity 0 on image filesystem")]
pub struct NoCapacity;

impl Policy {
    /// Whether no image ever goes but for want of room for pods.
    pub fn is_off(&self) -> bool {
        self.high_threshold_percent == 100 && self.max_age.is_none()
    }

    /// What is to be freed of a file system of which so much is left.
    pub fn need(&self, capacity: u64, available: u64) -> Result<Option<Need>, NoCapacity> {
        if capacity == 0 {
            return Err(NoCapacity);
        }
        let (all, left) = (i128::from(capacity), i128::from(available.min(capacity)));
        let usage_percent = 100 - i64::try_from(left * 100 / all).unwrap_or(100);
        if usage_percent < self.high_threshold_percent {
            return Ok(None);
        }
        let bytes = all * i128::from(100 - self.low_threshold_percent) / 100 - left;
        Ok(Some(Need { usage_percent, bytes: u64::try_from(bytes).unwrap_or(0), capacity }))
    }
}

impl Need {
    /// What the node is told when images did not free as much.
    pub fn not_met(&self, freed: u64) -> String {
        format!(
            "Insufficient free disk space on the node's image filesystem ({}% of {} used). Failed to free sufficient \
             space by deleting unused images (freed {freed} bytes). Investigate disk usage, as it could be used by active \
             images, logs, volumes, or other data.",
            self.usage_percent,
            size(self.capacity)
        )
    }
}

/// What is known of the images of a node. It is written down.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Records {
    images: BTreeMap<String, Record>,
    /// The names of the images that sandboxes are made from: not every runtime keeps these by itself.
    sandbox_images: BTreeSet<String>,
    /// When somebody looked last.
    looked: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    /// Since when it is here, as far as is known.
    first_detected: Timestamp,
    /// When it was used last, as far as is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    last_used: Option<Timestamp>,
    /// Whether a container used it when somebody looked last.
    is_in_use: bool,
    /// For how many seconds nobody watched since it is here, where it was not used in between.
    #[serde(skip_serializing_if = "is_zero", default)]
    unwatched: i64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(seconds: &i64) -> bool {
    *seconds == 0
}

impl Record {
    /// Since when nobody needs it.
    fn idle_since(&self) -> Timestamp {
        match self.last_used {
            Some(last_used) => last_used,
            None => later(self.first_detected, self.unwatched),
        }
    }
}

/// An image that nobody uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unused {
    /// The runtime's name for it.
    pub id: String,
    pub size: u64,
    last_used: Option<Timestamp>,
    first_detected: Timestamp,
    idle_since: Timestamp,
}

impl Records {
    /// An agent starts with what the one before knew. While nobody watched, images may have been used.
    pub fn resume(&mut self, now: Timestamp) {
        let Some(away) = self.looked.map(|looked| now.duration_since(looked)) else { return };
        if away.is_negative() {
            return;
        }
        for record in self.images.values_mut() {
            match &mut record.last_used {
                Some(last_used) => *last_used = later(*last_used, away.as_secs()).min(now),
                None => record.unwatched = record.unwatched.saturating_add(away.as_secs()),
            }
        }
    }

    /// The clock was set forward by so much, or back: nothing is older or younger for that.
    pub fn clock_was_set(&mut self, by: SignedDuration) {
        for record in self.images.values_mut() {
            record.first_detected = later(record.first_detected, by.as_secs());
            record.last_used = record.last_used.map(|last_used| later(last_used, by.as_secs()));
        }
    }

    /// The images that sandboxes are made from now: they stay.
    pub fn set_sandbox_images(&mut self, names: impl IntoIterator<Item = String>) {
        self.sandbox_images = names.into_iter().collect();
    }

    /// Takes in which images there are, and which of them are used. One that was used at the look before was used until now,
    /// as far as anybody knows.
    pub fn look(&mut self, images: &[Image], used: &BTreeSet<String>, now: Timestamp) {
        let mut before = std::mem::take(&mut self.images);
        for image in images {
            let known = before.remove(&image.id);
            let mut record = known.unwrap_or(Record {
                first_detected: now,
                last_used: None,
                is_in_use: false,
                unwatched: 0,
            });
            // The clock of an agent before may have been ahead.
            record.first_detected = record.first_detected.min(now);
            record.last_used = record.last_used.map(|last_used| last_used.min(now));
            let is_in_use = used.contains(&image.id);
            if is_in_use || record.is_in_use {
                record.last_used = Some(now);
            }
            record.is_in_use = is_in_use;
            self.images.insert(image.id.clone(), record);
        }
        self.looked = Some(now);
    }

    /// Whether the same images are there, and the same of them in use.
    pub fn tells_the_same_as(&self, other: &Records) -> bool {
        let outline = |records: &Records| -> Vec<(String, bool)> {
            records.images.iter().map(|(id, record)| (id.clone(), record.is_in_use)).collect()
        };
        self.sandbox_images == other.sandbox_images && outline(self) == outline(other)
    }

    /// An image is gone.
    pub fn forget(&mut self, id: &str) {
        self.images.remove(id);
    }

    /// The images that nobody uses and nobody keeps, the one first that goes first.
    pub fn unused(&self, images: &[Image]) -> Vec<Unused> {
        let is_free = |image: &&Image| !image.pinned && !self.is_of_sandboxes(image);
        let mut unused: Vec<Unused> = images
            .iter()
            .filter(is_free)
            .filter_map(|image| {
                let record = self.images.get(&image.id).filter(|record| !record.is_in_use)?;
                Some(Unused {
                    id: image.id.clone(),
                    size: image.size,
                    last_used: record.last_used,
                    first_detected: record.first_detected,
                    idle_since: record.idle_since(),
                })
            })
            .collect();
        unused.sort_by_key(|image| (image.last_used, image.first_detected));
        unused
    }

    fn is_of_sandboxes(&self, image: &Image) -> bool {
        let names = image.repo_tags.iter().chain(&image.repo_digests).chain([&image.id]);
        names.into_iter().any(|name| self.sandbox_images.contains(name))
    }
}

impl Unused {
    /// Whether it goes for its age alone.
    pub fn is_too_old(&self, policy: &Policy, now: Timestamp) -> bool {
        policy.max_age.is_some_and(|most| now.duration_since(self.idle_since) > most)
    }

    /// Whether it may go to make room.
    pub fn is_of_age(&self, policy: &Policy, now: Timestamp) -> bool {
        now.duration_since(self.first_detected) >= policy.min_age
    }
}

fn later(than: Timestamp, seconds: i64) -> Timestamp {
    let most = if seconds < 0 { Timestamp::MIN } else { Timestamp::MAX };
    than.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(most)
}

/// The image that a container was made from, as the runtime names images.
pub fn image_of(container: &Container) -> &str {
    match container.image_id.is_empty() {
        true => &container.image_ref,
        false => &container.image_id,
    }
}

/// Bytes, for people.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    #[allow(clippy::cast_precision_loss)]
    let (mut size, mut unit) = (bytes as f64, 0);
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ => format!("{size:.1} {}", UNITS[unit]),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::at;

    const POLICY: Policy = Policy {
        high_threshold_percent: 85,
        low_threshold_percent: 80,
        min_age: SignedDuration::from_mins(2),
        max_age: None,
    };

    fn image(id: &str) -> Image {
        Image {
            id: id.to_owned(),
            repo_tags: vec![format!("example.com/{id}:1")],
            repo_digests: Vec::new(),
            size: 100,
            user: None,
            pinned: id.starts_with("pinned"),
        }
    }

    fn images(ids: &str) -> Vec<Image> {
        ids.split_whitespace().map(image).collect()
    }

    fn used(ids: &str) -> BTreeSet<String> {
        ids.split_whitespace().map(str::to_owned).collect()
    }

    fn ids(unused: &[Unused]) -> String {
        unused.iter().map(|image| &*image.id).collect::<Vec<_>>().join(" ")
    }

    /// Looks: when, which images there were, which of them were used.
    fn records(looks: &[(i64, &str, &str)]) -> Records {
        let mut records = Records::default();
        for (second, there, in_use) in looks {
            records.look(&images(there), &used(in_use), at(*second));
        }
        records
    }

    #[test]
    fn images_go_from_the_high_threshold_on_and_down_to_the_low_one() {
        for (capacity, available, expected) in [
            (1000, 200, None),
            (1000, 160, None),
            // Less than a hundredth is not counted as free.
            (1000, 159, Some((85, 41))),
            (1000, 150, Some((85, 50))),
            (1000, 0, Some((100, 200))),
            (1000, 5000, None),
        ] {
            let need = POLICY.need(capacity, available).unwrap();
            assert_eq!(need.map(|need| (need.usage_percent, need.bytes)), expected, "{available} left");
        }
        assert_eq!(POLICY.need(0, 0), Err(NoCapacity));
        assert_eq!(NoCapacity.to_string(), "invalid capacity 0 on image filesystem");
        let (huge, left) = (u64::MAX, u64::MAX / 10);
        assert_eq!(POLICY.need(huge, left).unwrap().unwrap().usage_percent, 91);
    }

    #[test]
    fn a_policy_is_off_where_nothing_would_ever_go() {
        let off = Policy { high_threshold_percent: 100, ..POLICY };
        assert!(off.is_off() && !POLICY.is_off());
        assert!(!Policy { max_age: Some(SignedDuration::from_hours(1)), ..off }.is_off());
        assert!(off.need(1000, 0).unwrap().is_some(), "a disk that is full is full");
    }

    #[test]
    fn who_was_used_least_lately_goes_first_and_who_never_was_before_all_others() {
        let records = records(&[
            (0, "a b c", "a b"),
            (10, "a b c d", "b"),
            (20, "a b c d e", ""),
            (30, "a b c d e f", "f"),
        ]);
        assert_eq!(ids(&records.unused(&images("f e d c b a"))), "c d e a b");
    }

    #[test]
    fn what_is_used_pinned_or_of_sandboxes_stays() {
        let there = "used pinned-1 pause free";
        let mut records = records(&[(0, there, "used")]);
        assert_eq!(ids(&records.unused(&images(there))), "pause free");
        records.set_sandbox_images(["example.com/pause:1".to_owned()]);
        assert_eq!(ids(&records.unused(&images(there))), "free");
    }

    #[test]
    fn what_just_came_may_be_about_to_be_used() {
        let records = records(&[(0, "old", ""), (60, "old new", "")]);
        let of_age = |second: i64| {
            let mut unused = records.unused(&images("old new"));
            unused.retain(|image| image.is_of_age(&POLICY, at(second)));
            ids(&unused)
        };
        assert_eq!((&*of_age(119), &*of_age(120), &*of_age(180)), ("", "old", "old new"));
    }

    #[test]
    fn what_nobody_used_for_long_goes_for_its_age_alone() {
        let policy = Policy { max_age: Some(SignedDuration::from_secs(100)), ..POLICY };
        let records = records(&[(0, "never once now", "once now"), (50, "never once now", "now")]);
        let too_old = |second: i64| {
            let mut unused = records.unused(&images("never once now"));
            unused.retain(|image| image.is_too_old(&policy, at(second)));
            ids(&unused)
        };
        assert_eq!((&*too_old(100), &*too_old(101), &*too_old(151)), ("", "never", "never once"));
        let unused = records.unused(&images("never"));
        assert!(!unused[0].is_too_old(&POLICY, at(1_000_000)), "nothing is too old without a limit");
    }

    #[test]
    fn an_image_that_was_used_at_the_look_before_was_used_until_now() {
        let records = records(&[(0, "a b", "a b"), (5_000, "a b", "b")]);
        let unused = records.unused(&images("a b"));
        assert_eq!((ids(&unused), unused[0].last_used), ("a".to_owned(), Some(at(5_000))));
    }

    #[test]
    fn images_are_as_old_as_they_are_whatever_the_clock_was_set_to() {
        let policy = Policy { max_age: Some(SignedDuration::from_secs(1_000)), ..POLICY };
        let going = |records: &mut Records, second: i64| {
            records.look(&images("a b"), &used(""), at(second));
            let unused = records.unused(&images("a b"));
            let ids = |goes: &dyn Fn(&Unused) -> bool| {
                let found = unused.iter().filter(|image| goes(image));
                found.map(|image| &*image.id).collect::<Vec<_>>().join(" ")
            };
            let now = at(second);
            (ids(&|image| image.is_of_age(&policy, now)), ids(&|image| image.is_too_old(&policy, now)))
        };
        // An agent before had a clock that was ahead.
        let mut known = records(&[(1_000_000, "a b", "a"), (1_000_010, "a b", "")]);
        known.resume(at(10));
        assert_eq!(going(&mut known, 10), (String::new(), String::new()));
        assert_eq!(going(&mut known, 130), ("b a".to_owned(), String::new()));
        // This one's is put right.
        known.clock_was_set(SignedDuration::from_secs(500_000));
        assert_eq!(going(&mut known, 500_140), ("b a".to_owned(), String::new()));
        known.clock_was_set(SignedDuration::from_secs(-400_000));
        assert_eq!(going(&mut known, 100_150), ("b a".to_owned(), String::new()));
        assert_eq!(going(&mut known, 101_200), ("b a".to_owned(), "b a".to_owned()));
    }

    #[test]
    fn what_is_gone_is_forgotten_and_comes_back_as_new() {
        let mut records = records(&[(0, "a b", "a"), (10, "b", ""), (20, "a b", "")]);
        let unused = records.unused(&images("a"));
        assert_eq!((unused[0].first_detected, unused[0].last_used), (at(20), None));
        records.forget("a");
        assert!(records.unused(&images("a")).is_empty());
    }

    #[test]
    fn time_in_which_nobody_watched_is_not_time_without_use() {
        let policy = Policy { max_age: Some(SignedDuration::from_secs(1_000)), ..POLICY };
        let mut records = records(&[(0, "a b", "b"), (900, "a b", "b")]);
        let text = serde_json::to_string(&records).unwrap();
        assert_eq!(serde_json::from_str::<Records>(&text).unwrap(), records);
        // An agent that was away for a week.
        records.resume(at(600_900));
        records.look(&images("a b"), &used(""), at(600_900));
        let unused = records.unused(&images("a b"));
        assert_eq!(ids(&unused), "a b");
        assert!(!unused[0].is_too_old(&policy, at(600_999)));
        assert!(unused[0].is_too_old(&policy, at(601_001)) && !unused[1].is_too_old(&policy, at(601_001)));
        assert!(unused[0].is_of_age(&policy, at(600_900)), "it is here since long ago");
        let mut records_of_two = super::Records::default();
        records_of_two.look(&images("used never"), &used("used"), at(0));
        records_of_two.look(&images("used never"), &used(""), at(10));
        records_of_two.resume(at(11));
        assert_eq!(ids(&records_of_two.unused(&images("used never"))), "never used", "it keeps its place");
        // A clock that was set back.
        let before = records.clone();
        records.resume(at(0));
        assert_eq!(records, before);
    }

    #[test]
    fn a_record_that_says_little_is_read_all_the_same() {
        assert_eq!(serde_json::from_str::<Records>("{}").unwrap(), Records::default());
        assert!(serde_json::from_str::<Records>("{\"images\": {\"a\": {\"firstDetected\": 7}}}").is_err());
    }

    #[test]
    fn a_container_names_its_image_by_what_the_runtime_tells() {
        let mut container = Container {
            id: String::new(),
            sandbox_id: String::new(),
            name: String::new(),
            attempt: 0,
            image: "busybox".to_owned(),
            image_ref: "sha256:ref".to_owned(),
            image_id: String::new(),
            state: crablet_cri_api::ContainerState::Running,
            created_at: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        };
        assert_eq!(image_of(&container), "sha256:ref");
        container.image_id = "sha256:id".to_owned();
        assert_eq!(image_of(&container), "sha256:id");
    }

    #[test]
    fn people_are_told_how_much_could_not_be_freed() {
        let need = Need { usage_percent: 91, bytes: 7, capacity: 32 << 30 };
        assert_eq!(
            need.not_met(1_234),
            "Insufficient free disk space on the node's image filesystem (91% of 32.0 GiB used). Failed to free \
             sufficient space by deleting unused images (freed 1234 bytes). Investigate disk usage, as it could be used \
             by active images, logs, volumes, or other data."
        );
        for (bytes, expected) in [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_024, "1.0 KiB"),
            (1_536, "1.5 KiB"),
            (5 << 20, "5.0 MiB"),
            (3 << 40, "3.0 TiB"),
            (3 << 50, "3072.0 TiB"),
        ] {
            assert_eq!(size(bytes), expected);
        }
    }

    proptest! {
        #[test]
        fn what_is_freed_brings_use_to_the_low_threshold_and_not_below(
            capacity in 1_u64..1 << 50,
            share in 0_u64..=1000,
            low in 0_i64..=100,
            above in 0_i64..=100,
        ) {
            let high = (low + above).min(100);
            let policy = Policy { high_threshold_percent: high, low_threshold_percent: low, ..POLICY };
            let available = u64::try_from(u128::from(capacity) * u128::from(share) / 1000).unwrap();
            let used = 100 - i64::try_from(u128::from(available) * 100 / u128::from(capacity)).unwrap();
            match policy.need(capacity, available).unwrap() {
                None => prop_assert!(used < high),
                Some(need) => {
                    prop_assert!(used >= high && need.usage_percent == used);
                    let left = u128::from(available) + u128::from(need.bytes);
                    let wanted = u128::from(capacity) * u128::try_from(100 - low).unwrap() / 100;
                    prop_assert_eq!(left, wanted.max(u128::from(available)));
                }
            }
        }

        #[test]
        fn no_image_that_is_used_is_ever_offered(
            looks in prop::collection::vec((0_usize..64, 0_usize..64), 1..12),
        ) {
            const NAMES: [&str; 6] = ["a", "b", "c", "d", "pinned-e", "f"];
            let pick = |bits: usize| {
                let names = NAMES.iter().enumerate().filter(|(place, _)| bits & (1 << place) != 0);
                names.map(|(_, name)| *name).collect::<Vec<_>>().join(" ")
            };
            let mut records = Records::default();
            for (second, (there, in_use)) in looks.iter().enumerate() {
                let (there, in_use) = (images(&pick(*there)), used(&pick(*in_use)));
                records.look(&there, &in_use, at(second as i64));
                let unused = records.unused(&there);
                prop_assert!(unused.iter().all(|image| !in_use.contains(&image.id) && image.id != "pinned-e"));
                let expected = there.iter().filter(|image| !in_use.contains(&image.id) && !image.pinned).count();
                prop_assert_eq!(unused.len(), expected);
                prop_assert!(unused.windows(2).all(|pair| pair[0].last_used <= pair[1].last_used));
            }
        }
    }
}
