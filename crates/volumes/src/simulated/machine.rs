//! A machine in memory: files, directories, and what is mounted on them.

use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crablet_api::core::SELinuxOptions;
use crablet_host::files::{ReadError, WriteError};
use futures_util::future::{BoxFuture, pending};

use crate::error::{FileError, failed};
use crate::machine::Machine;

/// Whether the agent of the moment lives to do one thing more.
type MayGoOn = Arc<dyn Fn() -> bool + Send + Sync>;

/// A machine in memory. Clones are the same one, so that it outlives agents.
#[derive(Clone, Default)]
pub struct SimulatedMachine(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    agent: Mutex<Option<MayGoOn>>,
}

#[derive(Default)]
struct State {
    /// What is on the disk: the content of a file, or nothing for a directory.
    disk: BTreeMap<PathBuf, Option<Vec<u8>>>,
    /// Which volume is mounted where.
    mounts: BTreeMap<PathBuf, String>,
    /// What was done to files that are in a volume.
    trespasses: Vec<String>,
    /// Whether the mount table says of nothing that it is mounted in several places.
    hides_others: bool,
    /// How often the whole mount table was read.
    readings: usize,
}

/// What the work of an agent ends by that dies during it.
struct Death;

impl SimulatedMachine {
    /// Asks before each thing that is done to files from here on whether the agent that does it is still alive.
    pub fn set_agent(&self, may_go_on: impl Fn() -> bool + Send + Sync + 'static) {
        *self.agent() = Some(Arc::new(may_go_on));
    }

    /// Nobody asks, until there is another agent.
    pub fn forget_agent(&self) {
        *self.agent() = None;
    }

    fn agent(&self) -> MutexGuard<'_, Option<MayGoOn>> {
        self.0.agent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a directory, as whoever installs an agent does.
    pub fn make(&self, path: &Path) {
        self.state().disk.extend(path.ancestors().map(|path| (path.to_owned(), None)));
    }

    pub fn exists(&self, path: &Path) -> bool {
        self.state().disk.contains_key(path)
    }

    /// Mounts a volume, as a driver does: where nothing is, it makes the place.
    pub fn mount(&self, at: &Path, volume: &str) {
        let mut state = self.state();
        state.disk.entry(at.to_owned()).or_insert(None);
        state.mounts.insert(at.to_owned(), volume.to_owned());
    }

    /// Takes back what is mounted somewhere, if something is.
    pub fn unmount(&self, at: &Path) {
        self.state().mounts.remove(at);
    }

    /// Removes a place that a driver has made, if it is there.
    pub fn remove_place(&self, at: &Path) {
        self.state().disk.remove(at);
    }

    /// Lets the mount table say of nothing that it is mounted in several places.
    pub fn hide_others(&self) {
        self.state().hides_others = true;
    }

    /// Which volume is mounted where.
    pub fn mounts(&self) -> BTreeMap<PathBuf, String> {
        self.state().mounts.clone()
    }

    /// How often the whole mount table was read.
    pub fn readings(&self) -> usize {
        self.state().readings
    }

    /// What is on the disk below a directory.
    pub fn below(&self, directory: &Path) -> Vec<PathBuf> {
        let state = self.state();
        state.disk.keys().filter(|path| path.starts_with(directory) && *path != directory).cloned().collect()
    }

    /// What was done to files that are in a volume, since this was asked last.
    pub fn take_trespasses(&self) -> Vec<String> {
        std::mem::take(&mut self.state().trespasses)
    }

    /// Lets the machine start again: nothing is mounted any more.
    pub fn reboot(&self) {
        self.state().mounts.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before the agent does something.
    fn step(&self) {
        let agent = self.agent().clone();
        if agent.is_some_and(|may_go_on| !may_go_on()) {
            resume_unwind(Box::new(Death));
        }
    }

    /// The state, for doing something to a file or directory.
    fn change(&self, what: &str, path: &Path) -> MutexGuard<'_, State> {
        self.step();
        let mut state = self.state();
        if path.ancestors().skip(1).any(|above| state.mounts.contains_key(above)) {
            state.trespasses.push(format!("{what} {}", path.display()));
        }
        state
    }
}

impl State {
    fn is_empty(&self, directory: &Path) -> bool {
        !self.disk.keys().any(|path| path.parent() == Some(directory))
    }
}

impl Machine for SimulatedMachine {
    fn work(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(()) => Box::pin(tokio::task::yield_now()),
            Err(why) if why.is::<Death>() => Box::pin(pending()),
            Err(why) => resume_unwind(why),
        }
    }

    fn make_directories(&self, path: &Path) -> Result<(), FileError> {
        let mut missing: Vec<&Path> = path.ancestors().collect();
        missing.retain(|path| path.parent().is_some() && !self.state().disk.contains_key(*path));
        for directory in missing.into_iter().rev() {
            self.change("mkdir", directory).disk.insert(directory.to_owned(), None);
        }
        match self.state().disk.get(path) {
            Some(Some(_)) => Err(failed("mkdir", path)(io::Error::from(io::ErrorKind::NotADirectory))),
            Some(None) | None => Ok(()),
        }
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.change("rmdir", path);
        match state.disk.get(path) {
            None => Err(io::ErrorKind::NotFound.into()),
            Some(Some(_)) => Err(io::ErrorKind::NotADirectory.into()),
            Some(None) if state.mounts.contains_key(path) => Err(io::ErrorKind::ResourceBusy.into()),
            Some(None) if !state.is_empty(path) => Err(io::ErrorKind::DirectoryNotEmpty.into()),
            Some(None) => {
                state.disk.remove(path);
                Ok(())
            }
        }
    }

    fn read(&self, path: &Path, _: usize) -> Result<Vec<u8>, ReadError> {
        let found = self.state().disk.get(path).cloned().flatten();
        let missing = || ReadError::Failed { path: path.to_owned(), source: io::ErrorKind::NotFound.into() };
        found.ok_or_else(missing)
    }

    fn write(&self, path: &Path, content: &[u8]) -> Result<(), WriteError> {
        self.change("write", path).disk.insert(path.to_owned(), Some(content.to_owned()));
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let removed = self.change("unlink", path).disk.remove(path);
        removed.map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn children(&self, directory: &Path) -> Result<Vec<PathBuf>, FileError> {
        let state = self.state();
        Ok(state.disk.keys().filter(|path| path.parent() == Some(directory)).cloned().collect())
    }

    fn is_mount_point(&self, path: &Path) -> io::Result<bool> {
        let state = self.state();
        match path.parent().is_some_and(|parent| state.disk.contains_key(parent)) {
            true => Ok(state.mounts.contains_key(path)),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn has_selinux(&self) -> bool {
        false
    }

    fn file_label(&self, _: &SELinuxOptions) -> io::Result<Option<String>> {
        Ok(None)
    }

    fn has_labels(&self, _: &Path) -> io::Result<bool> {
        Ok(false)
    }

    fn mounted_elsewhere(&self, paths: &[PathBuf]) -> Vec<io::Result<Vec<PathBuf>>> {
        let mut state = self.state();
        state.readings += 1;
        let elsewhere = |path: &PathBuf| {
            let Some(volume) = state.mounts.get(path).filter(|_| !state.hides_others) else {
                return Ok(Vec::new());
            };
            let elsewhere = state.mounts.iter().filter(|(at, mounted)| *mounted == volume && *at != path);
            Ok(elsewhere.map(|(at, _)| at.clone()).collect())
        };
        paths.iter().map(elsewhere).collect()
    }
}
