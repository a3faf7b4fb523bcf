//! Files that are not there: a record of what the agent asked for, which can fail on command.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

use crate::pod_files::{Owner, Places, PodFiles};

/// Files in memory.
#[derive(Debug)]
pub struct Simulated {
    places: Places,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pods: BTreeSet<Owner>,
    users: BTreeMap<String, Vec<u8>>,
    /// The logs that a link was made to, since the runtime's own files are not seen here: whose they are, as links
    /// say it, and their names.
    logs: BTreeSet<(String, String)>,
    of_node: BTreeMap<PathBuf, Vec<u8>>,
    calls: u64,
    failing: BTreeSet<u64>,
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

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) -> io::Result<()> {
        let mut state = self.state();
        let call = state.calls;
        state.calls += 1;
        if state.failing.remove(&call) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        change(&mut state);
        Ok(())
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

    fn make_pod(&self, owner: &Owner) -> io::Result<()> {
        self.change(|state| {
            state.pods.insert(owner.clone());
        })
    }

    fn make_container(&self, _: &Owner, _: &str, _: u32) -> io::Result<()> {
        self.change(|_| {})
    }

    fn write_hosts(&self, _: &str, _: &[u8]) -> io::Result<()> {
        self.change(|_| {})
    }

    fn users(&self, uid: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.state().users.get(uid).cloned())
    }

    fn write_users(&self, uid: &str, text: &[u8]) -> io::Result<()> {
        self.change(|state| {
            state.users.insert(uid.to_owned(), text.to_owned());
        })
    }

    fn remove_users(&self, uid: &str) -> io::Result<()> {
        self.change(|state| {
            state.users.remove(uid);
        })
    }

    fn logs(&self, owner: &Owner, container: &str) -> io::Result<Vec<String>> {
        let whose = whose(owner, container);
        Ok(self.state().logs.iter().filter(|log| log.0 == whose).map(|log| log.1.clone()).collect())
    }

    fn link_log(&self, name: &str, log: &Path) -> io::Result<()> {
        self.change(|state| {
            if let (Some((whose, _)), Some(log)) = (name.rsplit_once('-'), log.file_name()) {
                state.logs.insert((whose.to_owned(), log.display().to_string()));
            }
        })
    }

    fn unlink_logs(&self, _: &Owner) -> io::Result<()> {
        Ok(())
    }

    async fn of_node(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        match self.state().of_node.get(path) {
            None => Err(io::ErrorKind::NotFound.into()),
            Some(content) if content.len() > limit => Err(io::ErrorKind::FileTooLarge.into()),
            Some(content) => Ok(content.clone()),
        }
    }

    fn head(&self, _: &Path, _: usize) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn tail(&self, _: &Path, _: usize) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn remove_container(&self, owner: &Owner, container: &str, attempt: u32, _: &Path) -> io::Result<()> {
        self.change(|state| {
            state.logs.remove(&(whose(owner, container), format!("{attempt}.log")));
        })
    }

    fn remove_pod(&self, owner: &Owner) -> io::Result<()> {
        let logs = whose(owner, "");
        self.change(|state| {
            state.logs.retain(|log| !log.0.starts_with(&logs));
            state.pods.retain(|other| other.uid != owner.uid);
            state.users.remove(&owner.uid);
        })
    }

    fn pods(&self) -> io::Result<Vec<String>> {
        Ok(self.state().pods.iter().map(|owner| owner.uid.clone()).collect())
    }
}

fn whose(owner: &Owner, container: &str) -> String {
    format!("{}_{}_{container}", owner.name, owner.namespace)
}
