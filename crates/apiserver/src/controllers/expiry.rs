//! What only lasts for a time: events, and bootstrap tokens.

use std::collections::{BTreeMap, VecDeque};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::binder::usage::field;
use super::{Controller, is_of};
use crate::cluster::Cluster;
use crate::cluster::delete::DeleteOptions;
use crate::object::text;
use crate::resources::{EVENTS, SECRETS};
use crate::state::{Change, ChangeKind, Key, Stored};

const EVENTS_LAST: SignedDuration = SignedDuration::from_hours(1);
const BOOTSTRAP_TOKEN: &str = "bootstrap.kubernetes.io/token";

#[derive(Debug, Default)]
pub(super) struct Expiry {
    /// Events in the order in which they were last written, with the version of that; older entries of an event that
    /// was written again mean nothing.
    events: VecDeque<(Timestamp, Key, u64)>,
    tokens: BTreeMap<Key, Timestamp>,
}

impl Controller for Expiry {
    fn note(&mut self, change: &Change, now: Timestamp) {
        if is_of(change, &EVENTS) && change.kind != ChangeKind::Deleted {
            let ends = written(&change.object, now).checked_add(EVENTS_LAST).unwrap_or(now);
            // Nearly always it is the last; at a start, they come by name.
            let place = self.events.partition_point(|(other, _, _)| *other <= ends);
            self.events.insert(place, (ends, change.key.clone(), change.revision));
        } else if is_of(change, &SECRETS) {
            self.tokens.remove(&change.key);
            let is_token = change.kind != ChangeKind::Deleted
                && *change.key.namespace == *"kube-system"
                && field(&change.object, "type") == BOOTSTRAP_TOKEN;
            if is_token && let Some(ends) = expiration(&change.object.decode()) {
                self.tokens.insert(change.key.clone(), ends);
            }
        }
    }

    fn work(&mut self, cluster: &mut Cluster, now: Timestamp) {
        while let Some((_, key, revision)) = self.events.pop_front_if(|(ends, _, _)| *ends <= now) {
            if cluster.state.get(&key).is_some_and(|stored| stored.revision == revision) {
                cluster.state.remove(&EVENTS, &key);
            }
        }
        let due = self.tokens.iter().filter(|(_, ends)| **ends <= now);
        let due: Vec<Key> = due.map(|(key, _)| key.clone()).collect();
        for key in due {
            self.tokens.remove(&key);
            cluster.delete_own(&key, &DeleteOptions::default(), now);
        }
    }

    fn next(&self) -> Option<Timestamp> {
        let event = self.events.front().map(|(ends, _, _)| *ends);
        event.into_iter().chain(self.tokens.values().copied()).min()
    }
}

/// When an event was written last, as far as it says so itself.
fn written(stored: &Stored, now: Timestamp) -> Timestamp {
    let event = stored.decode();
    let times = [
        &event["lastTimestamp"],
        &event["series"]["lastObservedTime"],
        &event["eventTime"],
        &event["metadata"]["creationTimestamp"],
    ];
    let times = times.into_iter().filter_map(|time| time.as_str()?.parse::<Timestamp>().ok());
    // One that comes from a clock ahead of ours lasts no longer for it.
    times.max().unwrap_or(now).min(now)
}

fn expiration(secret: &Value) -> Option<Timestamp> {
    let text = STANDARD.decode(text(secret, &["data", "expiration"])).ok()?;
    std::str::from_utf8(&text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::Settings;
    use crate::state::State;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn cluster() -> Cluster {
        let mut cluster = Cluster::new(State::default(), Settings::default(), 1);
        cluster.tick(at(0));
        cluster
    }

    #[test]
    fn an_event_goes_an_hour_after_it_was_last_written() {
        let mut cluster = cluster();
        let event =
            |last: &str| json!({"metadata": {"name": "e", "namespace": "default"}, "lastTimestamp": last});
        let key = Key::new(&EVENTS, "default", "e");
        cluster.state.put(&EVENTS, event("1970-01-01T00:00:10Z"));
        assert_eq!(cluster.tick(at(10)), Some(at(3610)));
        cluster.state.put(&EVENTS, event("1970-01-01T00:30:00Z"));
        cluster.tick(at(1800));
        cluster.tick(at(3610));
        assert!(cluster.state.get(&key).is_some());
        // Nor does a new start give it more.
        cluster.controllers = super::super::Controllers::default();
        assert_eq!(cluster.tick(at(4000)), Some(at(5400)));
        cluster.tick(at(5400));
        assert!(cluster.state.get(&key).is_none());
    }

    #[test]
    fn a_bootstrap_token_goes_when_it_says() {
        let mut cluster = cluster();
        let token = |name: &str, expiration: &str| {
            json!({
                "metadata": {"name": name, "namespace": "kube-system"},
                "type": BOOTSTRAP_TOKEN,
                "data": {"expiration": STANDARD.encode(expiration)},
            })
        };
        cluster.state.put(&SECRETS, token("bootstrap-token-abcdef", "1970-01-01T01:00:00+00:30"));
        cluster.state.put(&SECRETS, token("bootstrap-token-unread", "soon"));
        assert_eq!(cluster.tick(at(0)), Some(at(1800)));
        cluster.tick(at(1800));
        let left: Vec<String> =
            cluster.state.list(&SECRETS, None).map(|(key, _)| key.name.to_string()).collect();
        assert_eq!(left, ["bootstrap-token-unread"]);
    }
}
