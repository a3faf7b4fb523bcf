//! Files that are not there: a record of what the agent asked for, which can fail or take its time on command.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use crablet_api::core::PodIdentity;

use crate::pod_files::{Attempt, Places, PodFiles};

/// Files in memory.
#[derive(Debug)]
pub struct Simulated {
    places: Places,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pods: BTreeSet<PodIdentity>,
    users: BTreeMap<String, Vec<u8>>,
    /// The logs that a link was made to, since the runtime's own files are not seen here: whose they are, as links
    /// say it, and their names.
    logs: BTreeSet<(String, String)>,
    /// Links to logs, and the UIDs of the pods whose they are.
    links: BTreeMap<PathBuf, String>,
    of_node: BTreeMap<PathBuf, Vec<u8>>,
    calls: u64,
    failing: BTreeSet<u64>,
    /// How many of the next removals of a container's files fail.
    failing_removals: u32,
    slow: BTreeMap<String, Duration>,
}

impl Simulated {
    /// No files of pods yet; the node's own are there.
    pub fn new() -> Simulated {
        let places = Places {
            root: "/simulated/root".into(),
            logs: "/simulated/logs".into(),
            links: "/simulated/links".into(),
        };
        let files = Simulated { places, state: Mutex::default() };
        files.write_of_node("/etc/hosts", "127.0.0.1 localhost\n");
        files.write_of_node("/etc/resolv.conf", "nameserver 192.0.2.53\n");
        files
    }

    /// Writes a file of the node's own.
    pub fn write_of_node(&self, path: impl Into<PathBuf>, text: impl Into<Vec<u8>>) {
        self.state().of_node.insert(path.into(), text.into());
    }

    /// Removes a file of the node's own.
    pub fn remove_of_node(&self, path: impl AsRef<Path>) {
        self.state().of_node.remove(path.as_ref());
    }

    /// Lets the nth change from now on fail, as on a full disk. The first is 0.
    pub fn fail(&self, nth: u64) {
        let mut state = self.state();
        let call = state.calls + nth;
        state.failing.insert(call);
    }

    /// Lets the next removals of containers' files fail.
    pub fn fail_removals(&self, count: u32) {
        self.state().failing_removals = count;
    }

    /// The UIDs that have a directory.
    pub fn uids(&self) -> Vec<String> {
        self.state().pods.iter().map(|owner| owner.uid.to_string()).collect()
    }

    /// The links to logs, and the UIDs of the pods whose they are.
    pub fn links(&self) -> BTreeMap<PathBuf, String> {
        self.state().links.clone()
    }

    /// Lets everything that is done to the files of a pod take so long.
    pub fn slow_down(&self, uid: &str, by: Duration) {
        self.state().slow.insert(uid.to_owned(), by);
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives way once, as a real disk would, and takes as long as it was told to.
    async fn take_time(&self, uid: &str) {
        let time = self.state().slow.get(uid).copied();
        match time {
            Some(time) => tokio::time::sleep(time).await,
            None => tokio::task::yield_now().await,
        }
    }

    async fn change(&self, uid: &str, change: impl FnOnce(&mut State)) -> io::Result<()> {
        self.take_time(uid).await;
        let mut state = self.state();
        let call = state.calls;
        state.calls += 1;
        if state.failing.remove(&call) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        change(&mut state);
        Ok(())
    }

    /// Of which pod a file is: its directories are named after it.
    async fn read(&self, path: &Path) {
        let path = path.to_string_lossy();
        let uid = self.state().slow.keys().find(|uid| path.contains(uid.as_str())).cloned();
        self.take_time(&uid.unwrap_or_default()).await;
    }
}

impl Default for Simulated {
    fn default() -> Simulated {
        Simulated::new()
    }
}

#[async_trait]
impl PodFiles for Simulated {
    fn places(&self) -> &Places {
        &self.places
    }

    async fn make_pod(&self, owner: &PodIdentity) -> io::Result<()> {
        let make = |state: &mut State| _ = state.pods.insert(owner.clone());
        self.change(&owner.uid, make).await
    }

    async fn make_container(&self, owner: &PodIdentity, _: &str, _: u32) -> io::Result<()> {
        self.change(&owner.uid, |_| {}).await
    }

    async fn write_hosts(&self, uid: &str, _: &[u8]) -> io::Result<()> {
        self.change(uid, |_| {}).await
    }

    async fn users(&self, uid: &str) -> io::Result<Option<Vec<u8>>> {
        self.take_time(uid).await;
        Ok(self.state().users.get(uid).cloned())
    }

    async fn write_users(&self, uid: &str, text: &[u8]) -> io::Result<()> {
        self.change(uid, |state| _ = state.users.insert(uid.to_owned(), text.to_owned())).await
    }

    async fn remove_users(&self, uid: &str) -> io::Result<()> {
        self.change(uid, |state| _ = state.users.remove(uid)).await
    }

    async fn logs(&self, owner: &PodIdentity, container: &str) -> io::Result<Vec<String>> {
        self.take_time(&owner.uid).await;
        let whose = whose(owner, container);
        Ok(self.state().logs.iter().filter(|log| log.0 == whose).map(|log| log.1.clone()).collect())
    }

    async fn link_log(&self, owner: &PodIdentity, attempt: Attempt<'_>) -> io::Result<()> {
        let link = |state: &mut State| {
            if let Some(log) = attempt.log.file_name() {
                state.logs.insert((whose(owner, attempt.container), log.display().to_string()));
            }
            state.links.insert(self.places.log_link(owner, &attempt), owner.uid.to_string());
        };
        self.change(&owner.uid, link).await
    }

    async fn remove_dead_links(&self) -> io::Result<()> {
        let mut state = self.state();
        let State { links, pods, .. } = &mut *state;
        links.retain(|_, uid| pods.iter().any(|owner| *owner.uid == **uid));
        Ok(())
    }

    async fn of_node(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        match self.state().of_node.get(path) {
            None => Err(io::ErrorKind::NotFound.into()),
            Some(content) if content.len() > limit => Err(io::ErrorKind::FileTooLarge.into()),
            Some(content) => Ok(content.clone()),
        }
    }

    async fn tail(&self, path: &Path, _: usize) -> io::Result<Option<Vec<u8>>> {
        self.read(path).await;
        Ok(None)
    }

    async fn remove_container(&self, owner: &PodIdentity, attempt: Attempt<'_>) -> io::Result<()> {
        {
            let mut state = self.state();
            if state.failing_removals > 0 {
                state.failing_removals -= 1;
                return Err(io::ErrorKind::ReadOnlyFilesystem.into());
            }
        }
        let log = (whose(owner, attempt.container), format!("{}.log", attempt.number));
        let remove = |state: &mut State| {
            state.logs.remove(&log);
            state.links.remove(&self.places.log_link(owner, &attempt));
        };
        self.change(&owner.uid, remove).await
    }

    async fn remove_pod(&self, owner: &PodIdentity) -> io::Result<()> {
        let logs = whose(owner, "");
        let remove = |state: &mut State| {
            state.logs.retain(|log| !log.0.starts_with(&logs));
            state.pods.retain(|other| other.uid != owner.uid);
            state.users.remove(&*owner.uid);
        };
        self.change(&owner.uid, remove).await
    }

    async fn remove_pod_but_logs(&self, owner: &PodIdentity) -> io::Result<()> {
        let remove = |state: &mut State| {
            state.pods.retain(|other| other.uid != owner.uid);
            state.users.remove(&*owner.uid);
        };
        self.change(&owner.uid, remove).await
    }

    async fn pods(&self) -> io::Result<Vec<String>> {
        Ok(self.uids())
    }

    async fn log_end(&self, path: &Path, _: usize) -> io::Result<Vec<u8>> {
        self.read(path).await;
        Ok(Vec::new())
    }
}

fn whose(owner: &PodIdentity, container: &str) -> String {
    format!("{}_{}_{container}", owner.name, owner.namespace)
}
