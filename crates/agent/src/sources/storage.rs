//! [`Storage`]: what each source wanted last, and what its next word changes. No I/O, no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crablet_api::Text;
use crablet_api::core::Pod;

use super::compare::{Difference, difference, introduced, succeeded};
use super::{Change, SourceKind, Wanted};

/// What each source wants, in the order of namespaces and names.
#[derive(Default)]
pub(super) struct Storage {
    pods: BTreeMap<SourceKind, Vec<Wanted>>,
}

/// What a source's word changes.
#[derive(Default)]
pub(super) struct Merged {
    /// The changes, in the order in which they are to be acted on.
    pub(super) changes: Vec<Change>,
    /// Pods that were refused, and why.
    pub(super) refused: Vec<Refused>,
}

/// A pod that was refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) origin: Arc<str>,
    pub(super) why: String,
}

impl Storage {
    /// Takes in that `wanted` is all that a source wants, at the time `now`.
    pub(super) fn merge(&mut self, source: SourceKind, wanted: Vec<Wanted>, now: &str) -> Merged {
        let known = self.pods.remove(&source).unwrap_or_default();
        let (mut found, mut refused, mut pods) =
            (Found::default(), Vec::new(), Vec::with_capacity(wanted.len()));
        if are_the_same(&known, &wanted) {
            for (known, Wanted { pod: given, origin }) in known.iter().zip(wanted) {
                pods.push(Wanted { pod: found.next(&known.pod, given), origin });
            }
        } else {
            let accepted;
            (accepted, refused) = without_clashes(source, wanted);
            let by_uid = |wanted: Wanted| (wanted.pod.metadata.uid.clone(), wanted.pod);
            let mut known: BTreeMap<Text, Arc<Pod>> = known.into_iter().map(by_uid).collect();
            for Wanted { pod: given, origin } in accepted {
                let pod = match known.remove(&given.metadata.uid) {
                    Some(pod) => found.next(&pod, given),
                    None => found.first(introduced(given, source, now)),
                };
                pods.push(Wanted { pod, origin });
            }
            found.removed.extend(known.into_values());
            pods.sort_by(|one, other| name(&one.pod).cmp(&name(&other.pod)));
        }
        self.pods.insert(source, pods);
        Merged { changes: found.into_changes(), refused }
    }

    /// Which of the sources that `which` accepts want a pod of that name, in the order of their kinds.
    pub(super) fn owners(
        &self,
        namespace: &str,
        name: &str,
        which: impl Fn(SourceKind) -> bool,
    ) -> impl Iterator<Item = (SourceKind, &Wanted)> {
        let asked = self.pods.iter().filter(move |(kind, _)| which(**kind));
        asked.filter_map(move |(kind, pods)| {
            let found = pods.binary_search_by(|wanted| self::name(&wanted.pod).cmp(&(namespace, name)));
            Some((*kind, pods.get(found.ok()?)?))
        })
    }
}

fn name(pod: &Pod) -> (&str, &str) {
    (&pod.metadata.namespace, &pod.metadata.name)
}

/// What changed, by what is to be done about it.
#[derive(Default)]
struct Found {
    removed: Vec<Arc<Pod>>,
    added: Vec<Arc<Pod>>,
    updated: Vec<Arc<Pod>>,
    deleted: Vec<Arc<Pod>>,
    reconciled: Vec<Arc<Pod>>,
}

impl Found {
    /// Takes in a pod that was not there before.
    fn first(&mut self, pod: Arc<Pod>) -> Arc<Pod> {
        self.added.push(Arc::clone(&pod));
        pod
    }

    /// Takes in what a pod was and is, and says what it is from now on.
    fn next(&mut self, pod: &Arc<Pod>, given: Arc<Pod>) -> Arc<Pod> {
        if Arc::ptr_eq(pod, &given) {
            return given;
        }
        let list = match difference(pod, &given) {
            Difference::Nothing => return Arc::clone(pod),
            Difference::Update => &mut self.updated,
            Difference::Delete => &mut self.deleted,
            Difference::Reconcile => &mut self.reconciled,
        };
        let pod = succeeded(pod, given);
        list.push(Arc::clone(&pod));
        pod
    }

    /// The changes, in the order in which they are to be acted on.
    fn into_changes(mut self) -> Vec<Change> {
        // Where they compete for the node, the oldest pod comes first.
        self.added.sort_by_key(|pod| pod.metadata.creation_timestamp);
        (self.removed.into_iter().map(Change::Remove))
            .chain(self.added.into_iter().map(Change::Add))
            .chain(self.updated.into_iter().map(Change::Update))
            .chain(self.deleted.into_iter().map(Change::Delete))
            .chain(self.reconciled.into_iter().map(Change::Reconcile))
            .collect()
    }
}

/// Whether a source wants the pods that it wanted before, whatever became of them: nobody comes, goes or clashes. That
/// is what an API server mostly says, for each status that it is told, and it says so in order.
fn are_the_same(known: &[Wanted], wanted: &[Wanted]) -> bool {
    let is_same = |(known, wanted): (&Wanted, &Wanted)| {
        let (known, wanted) = (&known.pod, &wanted.pod);
        let is_alike = || known.metadata.uid == wanted.metadata.uid && name(known) == name(wanted);
        Arc::ptr_eq(known, wanted) || is_alike()
    };
    wanted.len() == known.len() && known.iter().zip(wanted).all(is_same)
}

/// Of pods of one source with the same name or UID, the first counts.
fn without_clashes(source: SourceKind, wanted: Vec<Wanted>) -> (Vec<Wanted>, Vec<Refused>) {
    let mut refused = BTreeMap::new();
    let (mut names, mut uids) = (BTreeSet::new(), BTreeMap::<&str, &Arc<Pod>>::new());
    for (number, Wanted { pod, .. }) in wanted.iter().enumerate() {
        let metadata = &pod.metadata;
        let (namespace, name, uid) = (&*metadata.namespace, &*metadata.name, &*metadata.uid);
        let described = format_args!("{name}_{namespace}({uid})");
        let why = if !names.insert((namespace, name)) {
            format!(
                "Error validating pod {described} from {source} due to duplicate pod name {name:?}, ignoring"
            )
        } else if uid.is_empty() {
            format!("Error validating pod {described} from {source}: it has no UID, ignoring")
        } else if let Some(other) = uids.get(uid) {
            let other = other.identity();
            format!(
                "Error validating pod {described} from {source}: its UID is that of pod {other}, ignoring"
            )
        } else {
            uids.insert(uid, pod);
            continue;
        };
        refused.insert(number, why);
    }
    let (mut accepted, mut told) = (Vec::with_capacity(wanted.len()), Vec::new());
    for (number, wanted) in wanted.into_iter().enumerate() {
        match refused.remove(&number) {
            Some(why) => told.push(Refused { origin: wanted.origin, why }),
            None => accepted.push(wanted),
        }
    }
    (accepted, told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::{CONFIG_SEEN, CONFIG_SOURCE};
    use crablet_api::core::PodPhase;
    use crablet_api::meta::Time;
    use crablet_api::testing::{PodBuilder, pod};

    fn wanted(pod: PodBuilder) -> Wanted {
        Wanted { pod: Arc::new(pod.build()), origin: "here".into() }
    }

    /// The changes that the word of a source makes, as `ADD ns/name(uid)`.
    fn say(storage: &mut Storage, source: SourceKind, pods: Vec<PodBuilder>) -> Vec<String> {
        let merged = storage.merge(source, pods.into_iter().map(wanted).collect(), "now");
        assert_eq!(merged.refused, []);
        merged.changes.iter().map(|change| format!("{change:?}")).collect()
    }

    #[test]
    fn pods_come_change_and_go() {
        let mut storage = Storage::default();
        let mut file = |pods| say(&mut storage, SourceKind::File, pods);
        assert_eq!(file(vec![]), [""; 0]);
        assert_eq!(file(vec![pod("a"), pod("b")]), ["ADD default/a(uid-a)", "ADD default/b(uid-b)"]);
        assert_eq!(file(vec![pod("b"), pod("a")]), [""; 0]);
        assert_eq!(file(vec![pod("b").label("x", "y"), pod("a")]), ["UPDATE default/b(uid-b)"]);
        assert_eq!(file(vec![pod("b").label("x", "y")]), ["REMOVE default/a(uid-a)"]);
        assert_eq!(file(vec![]), ["REMOVE default/b(uid-b)"]);
        assert_eq!(file(vec![]), [""; 0]);
    }

    #[test]
    fn a_pod_that_is_wanted_twice_is_refused_though_as_many_are_wanted_as_before() {
        let mut storage = Storage::default();
        say(&mut storage, SourceKind::Api, vec![pod("a"), pod("b")]);
        let twice = vec![wanted(pod("a")), wanted(pod("a"))];
        let merged = storage.merge(SourceKind::Api, twice, "now");
        assert_eq!(merged.refused.len(), 1);
        let changes: Vec<String> = merged.changes.iter().map(|change| format!("{change:?}")).collect();
        assert_eq!(changes, ["REMOVE default/b(uid-b)"]);
        let renamed = vec![pod("a"), pod("b").uid("uid-a")];
        assert_eq!(
            storage.merge(SourceKind::Api, renamed.into_iter().map(wanted).collect(), "now").refused.len(),
            1
        );
    }

    #[test]
    fn a_pod_with_a_new_uid_replaces_the_one_of_its_name() {
        let mut storage = Storage::default();
        let mut file = |pods| say(&mut storage, SourceKind::File, pods);
        file(vec![pod("a")]);
        assert_eq!(file(vec![pod("a").uid("new")]), ["REMOVE default/a(uid-a)", "ADD default/a(new)"]);
    }

    #[test]
    fn all_kinds_of_changes_come_in_the_order_to_act_on_them() {
        let mut storage = Storage::default();
        let edited = |name: &str, edit: fn(&mut Pod)| {
            let mut pod = pod(name).build();
            edit(&mut pod);
            Wanted { pod: Arc::new(pod), origin: "here".into() }
        };
        let before = ["status", "deleted", "updated", "removed", "same"];
        storage.merge(SourceKind::Api, before.map(|name| edited(name, |_| {})).into(), "now");
        let merged = storage.merge(
            SourceKind::Api,
            vec![
                edited("status", |pod| pod.status.phase = Some(PodPhase::Running)),
                edited("deleted", |pod| pod.metadata.deletion_timestamp = Some(Time::default())),
                edited("updated", |pod| pod.spec.host_network = true),
                edited("same", |_| {}),
                edited("added", |_| {}),
            ],
            "now",
        );
        let changes: Vec<String> = merged.changes.iter().map(|change| format!("{change:?}")).collect();
        assert_eq!(
            changes,
            [
                "REMOVE default/removed(uid-removed)",
                "ADD default/added(uid-added)",
                "UPDATE default/updated(uid-updated)",
                "DELETE default/deleted(uid-deleted)",
                "RECONCILE default/status(uid-status)",
            ]
        );
        assert_eq!(merged.changes[4].pod().status.phase, Some(PodPhase::Running));
    }

    #[test]
    fn the_oldest_of_new_pods_comes_first() {
        let mut storage = Storage::default();
        let pods = vec![pod("c").created(3), pod("b").created(2), pod("z"), pod("a").created(2)];
        let names: Vec<String> = say(&mut storage, SourceKind::Api, pods);
        assert_eq!(
            names.iter().map(|line| line.split('(').next().unwrap()).collect::<Vec<_>>(),
            ["ADD default/z", "ADD default/b", "ADD default/a", "ADD default/c"]
        );
    }

    #[test]
    fn sources_do_not_touch_the_pods_of_others() {
        let mut storage = Storage::default();
        say(&mut storage, SourceKind::File, vec![pod("a")]);
        assert_eq!(say(&mut storage, SourceKind::Url, vec![pod("a").uid("u")]), ["ADD default/a(u)"]);
        assert_eq!(say(&mut storage, SourceKind::Url, vec![]), ["REMOVE default/a(u)"]);
        assert_eq!(say(&mut storage, SourceKind::File, vec![pod("a")]), [""; 0]);
    }

    #[test]
    fn a_pod_is_marked_with_its_source_and_the_time_it_was_first_seen() {
        let mut storage = Storage::default();
        let added = storage.merge(SourceKind::Url, vec![wanted(pod("a"))], "first").changes;
        let annotations = &added[0].pod().metadata.annotations;
        assert_eq!((&*annotations[CONFIG_SOURCE], &*annotations[CONFIG_SEEN]), ("http", "first"));
        let updated = storage.merge(SourceKind::Url, vec![wanted(pod("a").label("x", "y"))], "later").changes;
        assert_eq!(updated[0].pod().metadata.annotations[CONFIG_SEEN], "first");
        storage.merge(SourceKind::Url, vec![], "later");
        let again = storage.merge(SourceKind::Url, vec![wanted(pod("a"))], "later").changes;
        assert_eq!(again[0].pod().metadata.annotations[CONFIG_SEEN], "later");
    }

    #[test]
    fn of_pods_with_the_same_name_the_first_counts() {
        let mut storage = Storage::default();
        let pods = vec![
            pod("a").uid("1"),
            pod("a").uid("2"),
            pod("a").namespace("other").uid("3"),
            pod("b").uid("1"),
            pod("c").uid(""),
        ];
        let merged = storage.merge(SourceKind::File, pods.into_iter().map(wanted).collect(), "now");
        let changes: Vec<String> = merged.changes.iter().map(|change| format!("{change:?}")).collect();
        assert_eq!(changes, ["ADD default/a(1)", "ADD other/a(3)"]);
        let refused: Vec<&str> = merged.refused.iter().map(|refused| refused.why.as_str()).collect();
        assert_eq!(
            refused,
            [
                "Error validating pod a_default(2) from file due to duplicate pod name \"a\", ignoring",
                "Error validating pod b_default(1) from file: its UID is that of pod default/a, ignoring",
                "Error validating pod c_default() from file: it has no UID, ignoring",
            ]
        );
    }

    #[test]
    fn the_same_pod_again_is_not_copied() {
        let mut storage = Storage::default();
        let added = storage.merge(SourceKind::File, vec![wanted(pod("a"))], "now").changes;
        let pod = added[0].pod().clone();
        let same = Wanted { pod: pod.clone(), origin: "here".into() };
        assert_eq!(storage.merge(SourceKind::File, vec![same], "now").changes, []);
        let (_, held) = storage.owners("default", "a", |_| true).next().unwrap();
        assert!(Arc::ptr_eq(&held.pod, &pod));
    }
}
