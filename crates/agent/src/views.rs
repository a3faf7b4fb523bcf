//! Every pod with its latest status: what `/pods`, the command line and, later, the API server are told from.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crablet_api::core::{Pod, PodStatus};
use tokio::sync::watch;

/// A pod and its latest status.
#[derive(Debug, Clone)]
pub struct View {
    /// What is wanted.
    pub pod: Arc<Pod>,
    /// What is.
    pub status: Arc<PodStatus>,
}

impl View {
    /// Both in one, as the API shows a pod.
    pub fn whole(&self) -> Pod {
        Pod { status: (*self.status).clone(), ..(*self.pod).clone() }
    }
}

/// The views of all pods, by UID. Clones show the same. Each pod's worker writes its own.
#[derive(Debug, Clone)]
pub struct Views {
    pods: Arc<Mutex<BTreeMap<String, View>>>,
    version: watch::Sender<u64>,
}

impl Default for Views {
    fn default() -> Views {
        Views { pods: Arc::default(), version: watch::Sender::new(0) }
    }
}

impl Views {
    /// No pods yet.
    pub fn new() -> Views {
        Views::default()
    }

    /// Shows a pod, in place of what was shown of it before.
    pub fn show(&self, view: View) {
        self.change(|pods| {
            pods.insert(view.pod.metadata.uid.to_string(), view);
        });
    }

    /// Takes a pod out.
    pub fn remove(&self, uid: &str) {
        self.change(|pods| {
            pods.remove(uid);
        });
    }

    /// All pods, in the order of their namespaces and names.
    pub fn list(&self) -> Vec<View> {
        let mut views: Vec<View> = self.lock().values().cloned().collect();
        views.sort_by(|a, b| {
            let key = |view: &View| (view.pod.metadata.namespace.clone(), view.pod.metadata.name.clone());
            key(a).cmp(&key(b))
        });
        views
    }

    /// One pod.
    pub fn get(&self, uid: &str) -> Option<View> {
        self.lock().get(uid).cloned()
    }

    /// A number that changes whenever a view does.
    pub fn version(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, View>)) {
        change(&mut self.lock());
        self.version.send_modify(|version| *version += 1);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, View>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(uid: &str, name: &str) -> View {
        let mut pod = Pod::default();
        pod.metadata.uid = uid.into();
        pod.metadata.name = name.into();
        View { pod: Arc::new(pod), status: Arc::default() }
    }

    #[test]
    fn the_latest_view_of_each_pod_is_shown_in_the_order_of_names() {
        let views = Views::new();
        let mut version = views.version();
        views.show(view("1", "b"));
        views.show(view("2", "a"));
        views.show(view("1", "c"));
        let names: Vec<_> = views.list().iter().map(|view| view.pod.metadata.name.to_string()).collect();
        assert_eq!(names, ["a", "c"]);
        assert!(version.has_changed().unwrap());
        version.mark_unchanged();
        views.remove("2");
        assert!(version.has_changed().unwrap() && views.get("2").is_none() && views.get("1").is_some());
    }
}
