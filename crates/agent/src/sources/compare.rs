//! What counts as a change of a pod. Functions of data alone.

use std::sync::Arc;

use crablet_api::core::Pod;
use crablet_api::{Map, Text};

use super::{CONFIG_MIRROR, CONFIG_SEEN, CONFIG_SOURCE, SourceKind};

/// Annotations that the agent itself adds: sources do not say them, so they are no difference.
const LOCAL_ANNOTATIONS: [&str; 3] = [CONFIG_SOURCE, CONFIG_MIRROR, CONFIG_SEEN];

/// What a pod that is known already has become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Difference {
    Nothing,
    Update,
    Delete,
    /// The status alone differs. The agent is the one who knows it, so it will say it again.
    Reconcile,
}

pub(super) fn difference(known: &Pod, given: &Pod) -> Difference {
    if differ_semantically(known, given) {
        return match given.metadata.deletion_timestamp {
            Some(_) => Difference::Delete,
            None => Difference::Update,
        };
    }
    match known.status == given.status {
        true => Difference::Nothing,
        false => Difference::Reconcile,
    }
}

/// Whether two forms of a pod differ in what a source wants of it.
pub fn differ_semantically(known: &Pod, given: &Pod) -> bool {
    let (old, new) = (&known.metadata, &given.metadata);
    known.spec != given.spec
        || old.labels != new.labels
        || old.deletion_timestamp != new.deletion_timestamp
        || old.deletion_grace_period_seconds != new.deletion_grace_period_seconds
        || !same_annotations(&old.annotations, &new.annotations)
}

fn same_annotations(one: &Map<Text>, other: &Map<Text>) -> bool {
    let said =
        |annotations| Map::<Text>::iter(annotations).filter(|(key, _)| !LOCAL_ANNOTATIONS.contains(key));
    said(one).eq(said(other))
}

/// The pod as it is handed on when it is new: with its source, and the time it is now.
pub(super) fn introduced(mut pod: Arc<Pod>, source: SourceKind, now: &str) -> Arc<Pod> {
    let annotations = &pod.metadata.annotations;
    let is_marked = SourceKind::of(&pod) == Some(source) && annotations.contains_key(CONFIG_SEEN);
    if !is_marked {
        mark(Arc::make_mut(&mut pod), source, now);
    }
    pod
}

/// Marks a pod with its source and the time it was first seen. A source that does so itself saves a copy of the pod.
pub(super) fn mark(pod: &mut Pod, source: SourceKind, now: &str) {
    pod.metadata.annotations.insert(CONFIG_SOURCE, source.as_str().into());
    pod.metadata.annotations.insert(CONFIG_SEEN, now.into());
}

/// The pod as it is handed on when it has changed: what the source says now, with the annotations that the agent
/// added when it was known already.
pub(super) fn succeeded(known: &Pod, mut given: Arc<Pod>) -> Arc<Pod> {
    for key in LOCAL_ANNOTATIONS {
        let Some(value) = known.metadata.annotations.get(key) else { continue };
        if given.metadata.annotations.get(key) != Some(value) {
            Arc::make_mut(&mut given).metadata.annotations.insert(key, value.clone());
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;
    use crablet_api::core::{PodPhase, RestartPolicy};
    use crablet_api::meta::Time;
    use crablet_api::testing::pod;

    fn check(edit: impl FnOnce(&mut Pod), expected: Difference) {
        let known = pod("p").label("a", "1").annotation("x", "1").container("c", "busybox").build();
        let mut given = known.clone();
        edit(&mut given);
        assert_eq!(difference(&known, &given), expected);
    }

    #[test]
    fn a_pod_that_says_the_same_has_not_changed() {
        check(|_| {}, Difference::Nothing);
        check(|pod| pod.metadata.resource_version = "5".into(), Difference::Nothing);
        check(|pod| pod.metadata.generation = 3, Difference::Nothing);
    }

    #[test]
    fn another_spec_is_an_update() {
        check(|pod| pod.spec.containers[0].image = "other".into(), Difference::Update);
        check(|pod| pod.spec.restart_policy = Some(RestartPolicy::Never), Difference::Update);
        check(|pod| pod.spec.active_deadline_seconds = Some(5), Difference::Update);
    }

    #[test]
    fn other_labels_and_annotations_are_an_update() {
        check(|pod| drop(pod.metadata.labels.remove("a")), Difference::Update);
        check(|pod| drop(pod.metadata.labels.insert("a", "2".into())), Difference::Update);
        check(|pod| drop(pod.metadata.annotations.remove("x")), Difference::Update);
        check(|pod| drop(pod.metadata.annotations.insert("x", "2".into())), Difference::Update);
        check(|pod| drop(pod.metadata.annotations.insert("y", "2".into())), Difference::Update);
    }

    #[test]
    fn annotations_that_the_agent_adds_are_no_difference() {
        for key in LOCAL_ANNOTATIONS {
            check(|pod| drop(pod.metadata.annotations.insert(key, "x".into())), Difference::Nothing);
        }
        check(
            |pod| drop(pod.metadata.annotations.insert(super::super::CONFIG_HASH, "x".into())),
            Difference::Update,
        );
    }

    #[test]
    fn a_deletion_timestamp_is_a_graceful_deletion_and_so_is_a_new_grace_period() {
        let deleted = |pod: &mut Pod| pod.metadata.deletion_timestamp = Some(Time::from_unix_seconds(5));
        check(deleted, Difference::Delete);
        check(
            |pod| {
                deleted(pod);
                pod.spec.containers[0].image = "other".into();
            },
            Difference::Delete,
        );
        let mut known = pod("p").build();
        deleted(&mut known);
        let mut given = known.clone();
        assert_eq!(difference(&known, &given), Difference::Nothing);
        given.metadata.deletion_grace_period_seconds = Some(1);
        assert_eq!(difference(&known, &given), Difference::Delete);
        // A deletion that was taken back is no deletion.
        given.metadata.deletion_timestamp = None;
        assert_eq!(difference(&known, &given), Difference::Update);
    }

    #[test]
    fn another_status_alone_is_to_be_reconciled() {
        check(|pod| pod.status.phase = Some(PodPhase::Failed), Difference::Reconcile);
        check(
            |pod| {
                pod.status.phase = Some(PodPhase::Failed);
                pod.metadata.labels.remove("a");
            },
            Difference::Update,
        );
    }

    #[test]
    fn a_pod_that_is_marked_already_is_handed_on_without_a_copy() {
        let plain = Arc::new(pod("p").build());
        let new = introduced(plain.clone(), SourceKind::File, "now");
        assert!(!Arc::ptr_eq(&plain, &new));
        assert_eq!(new.metadata.annotations[CONFIG_SOURCE], "file");
        assert_eq!(new.metadata.annotations[CONFIG_SEEN], "now");
        assert!(Arc::ptr_eq(&new, &introduced(new.clone(), SourceKind::File, "later")));
        // A pod that claims to come from elsewhere does not.
        assert_eq!(introduced(new, SourceKind::Url, "later").metadata.annotations[CONFIG_SOURCE], "http");
    }

    #[test]
    fn a_changed_pod_keeps_the_time_it_was_first_seen() {
        let known = introduced(Arc::new(pod("p").build()), SourceKind::Api, "first");
        let given = Arc::new(pod("p").annotation("x", "1").annotation(CONFIG_SEEN, "bogus").build());
        let changed = succeeded(&known, given);
        assert_eq!(changed.metadata.annotations[CONFIG_SEEN], "first");
        assert_eq!(changed.metadata.annotations[CONFIG_SOURCE], "api");
        assert_eq!(changed.metadata.annotations["x"], "1");
    }
}
