//! Every pod with its latest status: what `/pods`, the command line and, later, the API server are told from.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crablet_api::core::{Pod, PodStatus};
use crablet_api::meta::Time;
use jiff::Timestamp;
use tokio::sync::{Notify, watch};

/// A pod and its latest status.
#[derive(Debug, Clone)]
pub struct Reported {
    /// What is wanted.
    pub pod: Arc<Pod>,
    /// What is.
    pub status: Arc<PodStatus>,
    /// When it is to be over, if it is being stopped because nobody wants it any more.
    pub ends: Option<Time>,
    /// Whether nothing of it runs any more, and its volumes are not mounted.
    pub unmounted: bool,
    /// Whether it has terminated: nothing of it runs, what it used was given back, and this is the last word on it. One
    /// that is deleted at the API server may go there once that word was written.
    pub terminated: bool,
}

impl Reported {
    /// A pod and its latest status.
    pub fn new(pod: Arc<Pod>, status: Arc<PodStatus>) -> Reported {
        Reported { pod, status, ends: None, unmounted: false, terminated: false }
    }

    /// All in one, as the API shows a pod.
    pub fn whole(&self) -> Pod {
        let mut pod = Pod { status: (*self.status).clone(), ..(*self.pod).clone() };
        pod.metadata.deletion_timestamp = pod.metadata.deletion_timestamp.or(self.ends);
        pod
    }
}

/// The statuses of all pods, by UID. Clones show the same. Each pod's worker writes its own.
#[derive(Debug, Clone)]
pub struct Statuses {
    pods: Arc<Mutex<BTreeMap<String, Reported>>>,
    version: watch::Sender<u64>,
    followers: Arc<Mutex<Vec<Weak<Followed>>>>,
}

/// Which pods are shown otherwise than when one last asked, or have another object, or are gone.
#[derive(Debug)]
pub struct StatusNews(Arc<Followed>);

#[derive(Debug, Default)]
struct Followed {
    uids: Mutex<BTreeSet<String>>,
    arrived: Notify,
}

impl StatusNews {
    /// The UIDs of the next such pods. Dropping the future loses nothing.
    pub async fn next(&self) -> BTreeSet<String> {
        loop {
            let arrived = self.0.arrived.notified();
            let uids = std::mem::take(&mut *self.0.uids.lock().unwrap_or_else(PoisonError::into_inner));
            if !uids.is_empty() {
                return uids;
            }
            arrived.await;
        }
    }
}

impl Default for Statuses {
    fn default() -> Statuses {
        Statuses { pods: Arc::default(), version: watch::Sender::new(0), followers: Arc::default() }
    }
}

impl Statuses {
    /// No pods yet.
    pub fn new() -> Statuses {
        Statuses::default()
    }

    /// Shows a pod, in place of what was shown of it before.
    pub fn show(&self, mut view: Reported) {
        let uid = view.pod.metadata.uid.to_string();
        self.change(&uid, |pods| {
            view.ends = view.ends.or_else(|| pods.get(&uid).and_then(|known| known.ends));
            view.unmounted |= view.terminated || pods.get(&uid).is_some_and(|known| known.unmounted);
            pods.insert(uid.clone(), view);
        });
    }

    /// Shows a pod that is wanted in another form: what it is called and labelled, with the status that it had.
    pub fn show_pod(&self, pod: &Arc<Pod>) {
        self.keep_pod(pod);
        self.change(&pod.metadata.uid, |_| {});
    }

    /// Keeps the newer object of a pod. Only the status at its source has changed, which concerns nobody but who writes
    /// it there.
    pub fn keep_pod(&self, pod: &Arc<Pod>) {
        if let Some(view) = self.lock().get_mut(&*pod.metadata.uid) {
            view.pod = Arc::clone(pod);
        }
        self.tell(&pod.metadata.uid);
    }

    /// Shows that a pod is being stopped because nobody wants it any more, and when it is to be over.
    pub fn show_end(&self, uid: &str, at: Timestamp) {
        let ends = Some(Time::from_unix_seconds(at.as_second()));
        if self.lock().get(uid).is_some_and(|view| view.ends != ends) {
            self.change(uid, |pods| {
                if let Some(view) = pods.get_mut(uid) {
                    view.ends = ends;
                }
            });
        }
    }

    /// Shows that nothing of a pod runs any more, and its volumes are not mounted.
    pub fn show_unmounted(&self, uid: &str) {
        if self.lock().get(uid).is_some_and(|view| !view.unmounted) {
            self.change(uid, |pods| {
                if let Some(view) = pods.get_mut(uid) {
                    view.unmounted = true;
                }
            });
        }
    }

    /// Takes a pod out.
    pub fn remove(&self, uid: &str) {
        self.change(uid, |pods| {
            pods.remove(uid);
        });
    }

    /// All pods, in the order of their namespaces and names.
    pub fn list(&self) -> Vec<Reported> {
        let mut statuses: Vec<Reported> = self.lock().values().cloned().collect();
        statuses.sort_by(|a, b| {
            let key = |view: &Reported| (view.pod.metadata.namespace.clone(), view.pod.metadata.name.clone());
            key(a).cmp(&key(b))
        });
        statuses
    }

    /// One pod.
    pub fn get(&self, uid: &str) -> Option<Reported> {
        self.lock().get(uid).cloned()
    }

    /// A number that changes whenever a view does.
    pub fn version(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Tells from now on which pods are news. All that are there now are.
    pub fn news(&self) -> StatusNews {
        let followed = Arc::new(Followed::default());
        self.followers().push(Arc::downgrade(&followed));
        let all: BTreeSet<String> = self.lock().keys().cloned().collect();
        followed.uids.lock().unwrap_or_else(PoisonError::into_inner).extend(all);
        StatusNews(followed)
    }

    fn change(&self, uid: &str, change: impl FnOnce(&mut BTreeMap<String, Reported>)) {
        change(&mut self.lock());
        self.version.send_modify(|version| *version += 1);
        self.tell(uid);
    }

    fn tell(&self, uid: &str) {
        self.followers().retain(|followed| {
            let Some(followed) = followed.upgrade() else { return false };
            followed.uids.lock().unwrap_or_else(PoisonError::into_inner).insert(uid.to_owned());
            followed.arrived.notify_waiters();
            true
        });
    }

    fn followers(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Followed>>> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Reported>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(uid: &str, name: &str) -> Reported {
        let mut pod = Pod::default();
        pod.metadata.uid = uid.into();
        pod.metadata.name = name.into();
        Reported::new(Arc::new(pod), Arc::default())
    }

    #[test]
    fn the_latest_view_of_each_pod_is_shown_in_the_order_of_names() {
        let statuses = Statuses::new();
        let mut version = statuses.version();
        statuses.show(view("1", "b"));
        statuses.show(view("2", "a"));
        statuses.show(view("1", "c"));
        let names: Vec<_> = statuses.list().iter().map(|view| view.pod.metadata.name.to_string()).collect();
        assert_eq!(names, ["a", "c"]);
        assert!(version.has_changed().unwrap());
        version.mark_unchanged();
        statuses.remove("2");
        assert!(version.has_changed().unwrap() && statuses.get("2").is_none() && statuses.get("1").is_some());
    }

    #[test]
    fn another_form_of_a_pod_is_shown_and_another_status_of_its_source_is_no_news() {
        let statuses = Statuses::new();
        statuses.show(view("1", "a"));
        let mut version = statuses.version();
        let mut pod = (*statuses.get("1").unwrap().pod).clone();
        pod.metadata.resource_version = "2".into();
        statuses.keep_pod(&Arc::new(pod.clone()));
        assert!(!version.has_changed().unwrap());
        assert_eq!(statuses.get("1").unwrap().pod.metadata.resource_version, "2");
        pod.metadata.labels.insert("a", "b".into());
        statuses.show_pod(&Arc::new(pod));
        assert!(version.has_changed().unwrap());
        version.mark_unchanged();
        assert_eq!(statuses.get("1").unwrap().pod.metadata.labels["a"], "b");
        statuses.keep_pod(&view("2", "b").pod);
        assert!(statuses.get("2").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn who_follows_is_told_which_pods_are_news_once_each() {
        let statuses = Statuses::new();
        statuses.show(view("1", "a"));
        let news = statuses.news();
        statuses.show(view("2", "b"));
        statuses.keep_pod(&view("2", "b").pod);
        assert_eq!(news.next().await, ["1", "2"].map(str::to_owned).into());
        let waited = tokio::time::timeout(std::time::Duration::from_secs(1), news.next());
        assert!(waited.await.is_err());
        statuses.remove("1");
        assert_eq!(news.next().await, ["1".to_owned()].into());
    }

    #[test]
    fn a_pod_that_is_being_stopped_shows_when_it_is_to_be_over() {
        let statuses = Statuses::new();
        statuses.show(view("1", "a"));
        let mut version = statuses.version();
        statuses.show_end("1", Timestamp::constant(1_790_000_000, 0));
        assert!(version.has_changed().unwrap());
        version.mark_unchanged();
        statuses.show_end("1", Timestamp::constant(1_790_000_000, 5));
        statuses.show_end("2", Timestamp::constant(1_790_000_000, 0));
        assert!(!version.has_changed().unwrap());
        statuses.show(view("1", "a"));
        let deleted = statuses.get("1").unwrap().whole().metadata.deletion_timestamp;
        assert_eq!(deleted, Some(Time::from_unix_seconds(1_790_000_000)));
    }
}
