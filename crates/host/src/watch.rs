//! Learning that a file or directory changed, without asking over and over.
//!
//! What comes is a hint to look, not a record of what happened. A few things give no hint: a change on a network file
//! system made from elsewhere, something mounted over the directory, the target of a dangling symbolic link appearing.
//! Whoever must not miss those looks now and then anyway.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt;
use inotify::{Event, EventMask, EventStream, Inotify, WatchDescriptor, WatchMask, Watches};
use tokio::time::Instant;

/// How long it must be quiet before changes are told: an editor makes several at once. Files that were written and
/// closed, or moved in, are whole: where nothing else happened, they are told at once.
const QUIET: Duration = Duration::from_millis(20);
/// How long changes are held back at most where it never gets quiet.
const LONGEST_WAIT: Duration = Duration::from_millis(200);
/// How many names are told apart. More mean that everything may have changed.
const MOST_NAMES: usize = 1000;
/// How often setting up is tried while directories come and go under our hands.
const TRIES: usize = 100;

/// What a directory is asked to tell.
const CONTENT: WatchMask = WatchMask::CLOSE_WRITE
    .union(WatchMask::ATTRIB)
    .union(WatchMask::CREATE)
    .union(WatchMask::DELETE)
    .union(WatchMask::MOVED_FROM)
    .union(WatchMask::MOVED_TO);
/// What each watched thing is asked to tell of itself.
const ITSELF: WatchMask = WatchMask::DELETE_SELF.union(WatchMask::MOVE_SELF);

/// A watch on a directory or a file. It ends when it is dropped.
///
/// The path need not exist: that it appears, vanishes and comes back are changes like others.
#[derive(Debug)]
pub struct Watch {
    target: Target,
    armed: Armed,
    changes: Changes,
    /// When the first of the changes came that are not yet told.
    since: Option<Instant>,
    /// Whether what is not yet told may be a part of something larger.
    unrest: Unrest,
}

/// What speaks for waiting.
#[derive(Debug, Default)]
struct Unrest {
    /// Files that were made, and not yet written and closed.
    unwritten: BTreeSet<OsString>,
    /// Whether anything else than the arrival of files happened: something else may take the place of what went.
    other: bool,
}

/// What may have changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Names in the directory; or the file's own name.
    pub names: BTreeSet<OsString>,
    /// Those of them that were deleted in between, as far as it is known. They may be there again.
    pub deleted: BTreeSet<OsString>,
    /// Whether anything else may have changed too: the directory came or went, or there was too much to keep track of.
    pub everything: bool,
}

/// Why there is no watch, or no more. Whoever gets this can still look at intervals.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The limit on watchers is reached.
    #[error("no more inotify instances can be had: fs.inotify.max_user_instances is too low")]
    TooManyInstances,
    /// The limit on watched files is reached.
    #[error("{} cannot be watched: fs.inotify.max_user_watches is too low", path.display())]
    TooManyWatches {
        /// What was to be watched.
        path: PathBuf,
    },
    /// Something else.
    #[error("cannot watch {}", path.display())]
    Failed {
        /// What was to be watched.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Watch {
    /// Watches a directory: which of its entries appear, vanish, or are written to and closed.
    pub fn directory(path: &Path) -> Result<Watch, WatchError> {
        Watch::start(path, |directory| Target { directory, file: None })
    }

    /// Watches a file: also one that is replaced by renaming another, and one that a symbolic link leads to.
    pub fn file(path: &Path) -> Result<Watch, WatchError> {
        Watch::start(path, |path| match (path.parent(), path.file_name()) {
            (Some(directory), Some(name)) => Target { directory: directory.into(), file: Some(name.into()) },
            (None, _) | (_, None) => Target { directory: path, file: None },
        })
    }

    fn start(path: &Path, target: impl FnOnce(PathBuf) -> Target) -> Result<Watch, WatchError> {
        let absolute = std::path::absolute(path);
        let absolute = absolute.map_err(|source| WatchError::Failed { path: path.to_owned(), source })?;
        let target = target(absolute);
        Ok(Watch {
            armed: Armed::new(&target)?,
            target,
            changes: Changes::default(),
            since: None,
            unrest: Unrest::default(),
        })
    }

    /// Waits for changes and tells those that came together. Nothing is lost if this is given up and called again.
    pub async fn changed(&mut self) -> Result<Changes, WatchError> {
        loop {
            let event = match self.since {
                None => Some(self.armed.events.next().await),
                // Not even another look: where there is always one more event, that would go on for ever.
                Some(since) if since.elapsed() >= LONGEST_WAIT => None,
                Some(since) => {
                    // Where there is no wait, what has come already still comes along.
                    let until = (Instant::now() + self.unrest.wait()).min(since + LONGEST_WAIT);
                    tokio::time::timeout_at(until, self.armed.events.next()).await.ok()
                }
            };
            match event {
                Some(Some(Ok(event))) => self.take(event)?,
                Some(Some(Err(source))) => return Err(self.target.failed(source)),
                Some(None) => {
                    return Err(self.target.failed(io::Error::other("the kernel's notifications ended")));
                }
                None => {
                    self.since = None;
                    self.unrest = Unrest::default();
                    return Ok(std::mem::take(&mut self.changes));
                }
            }
        }
    }

    fn take(&mut self, event: Event<OsString>) -> Result<(), WatchError> {
        match self.armed.meaning(&event) {
            Meaning::Nothing => return Ok(()),
            Meaning::Changed(name) => {
                self.unrest.note(event.mask, &name);
                if event.mask.contains(EventMask::DELETE) && self.changes.deleted.len() < MOST_NAMES {
                    self.changes.deleted.insert(name.clone());
                }
                self.changes.add(name);
            }
            Meaning::Everything => {
                self.unrest.other = true;
                self.changes.everything = true;
            }
            Meaning::Moved => {
                self.unrest.other = true;
                // What was watched may be elsewhere now. Starting over misses nothing: what happens meanwhile is part
                // of "everything".
                self.armed = Armed::new(&self.target)?;
                match &self.target.file {
                    Some(file) => self.changes.add(file.clone()),
                    None => self.changes.everything = true,
                }
            }
        }
        self.since.get_or_insert_with(Instant::now);
        Ok(())
    }
}

impl Unrest {
    fn note(&mut self, mask: EventMask, name: &OsStr) {
        if mask.intersects(EventMask::CLOSE_WRITE | EventMask::MOVED_TO) {
            self.unwritten.remove(name);
        } else if mask.contains(EventMask::CREATE) && self.unwritten.len() < MOST_NAMES {
            self.unwritten.insert(name.to_owned());
        } else {
            self.other = true;
        }
    }

    fn wait(&self) -> Duration {
        if self.other || !self.unwritten.is_empty() { QUIET } else { Duration::ZERO }
    }
}

impl Changes {
    /// Whether this may be about an entry of that name.
    pub fn concern(&self, name: impl AsRef<OsStr>) -> bool {
        self.everything || self.names.contains(name.as_ref())
    }

    fn add(&mut self, name: OsString) {
        match self.names.len() < MOST_NAMES {
            true => drop(self.names.insert(name)),
            false => self.everything = true,
        }
    }
}

/// What is to be watched.
#[derive(Debug)]
struct Target {
    directory: PathBuf,
    /// The one name in the directory that matters, for a file.
    file: Option<OsString>,
}

impl Target {
    fn failed(&self, source: io::Error) -> WatchError {
        WatchError::Failed { path: self.directory.clone(), source }
    }
}

/// What is watched with the kernel right now.
#[derive(Debug)]
struct Armed {
    events: EventStream<Vec<u8>>,
    roles: Vec<(WatchDescriptor, Role)>,
}

/// Why something is watched.
#[derive(Debug)]
enum Role {
    Directory(Relevant),
    /// It is the file, or what the file's name leads to.
    File,
    /// The directory is in it, or something that it is in: it must stay where it is.
    Above,
    /// The directory is missing, and this is the next part of the way to it.
    Missing {
        next: OsString,
    },
}

/// Which names in the directory matter.
#[derive(Debug)]
enum Relevant {
    /// Each for itself: it is the directory that is watched.
    Each,
    /// This one: it is the file that is watched.
    Only(OsString),
    /// Any: the file that is watched is a symbolic link, and its target is often swapped by way of another link beside
    /// it.
    Any,
}

/// What an event means.
enum Meaning {
    Nothing,
    Changed(OsString),
    Everything,
    Moved,
}

impl Armed {
    fn new(target: &Target) -> Result<Armed, WatchError> {
        let inotify = Inotify::init().map_err(|error| match too_many_files(&error) {
            true => WatchError::TooManyInstances,
            false => target.failed(error),
        })?;
        let roles = arm(&inotify.watches(), target)?;
        let events = inotify.into_event_stream(vec![0; 4096]).map_err(|source| target.failed(source))?;
        Ok(Armed { events, roles })
    }

    fn meaning(&self, event: &Event<OsString>) -> Meaning {
        if event.mask.contains(EventMask::Q_OVERFLOW) {
            return Meaning::Everything;
        }
        let itself = EventMask::DELETE_SELF | EventMask::MOVE_SELF | EventMask::UNMOUNT | EventMask::IGNORED;
        let role = self.roles.iter().find(|(descriptor, _)| *descriptor == event.wd).map(|(_, role)| role);
        match (role, &event.name) {
            (None, _) => Meaning::Nothing,
            (Some(_), _) if event.mask.intersects(itself) => Meaning::Moved,
            (Some(Role::Directory(Relevant::Each)), Some(name)) => Meaning::Changed(name.clone()),
            (Some(Role::Directory(Relevant::Each)), None) => Meaning::Everything,
            (Some(Role::Directory(Relevant::Only(only))), name) => match name.as_ref() == Some(only) {
                true => Meaning::Moved,
                false => Meaning::Nothing,
            },
            // The name may stand for another file now.
            (Some(Role::Directory(Relevant::Any) | Role::File), _) => Meaning::Moved,
            (Some(Role::Missing { next }), name) => match name.as_ref() == Some(next) {
                true => Meaning::Moved,
                false => Meaning::Nothing,
            },
            (Some(Role::Above), _) => Meaning::Nothing,
        }
    }
}

/// Watches what there is on the way to the target.
fn arm(watches: &Watches, target: &Target) -> Result<Vec<(WatchDescriptor, Role)>, WatchError> {
    for _ in 0..TRIES {
        let mut watches = Arming { watches: watches.clone(), roles: Vec::new() };
        for above in target.directory.ancestors().skip(1) {
            watches.add(above, ITSELF, Role::Above)?;
        }
        // Last, since it takes the place of what was asked of the same directory before.
        if watches.add(&target.directory, CONTENT | ITSELF | WatchMask::ONLYDIR, target.role())? {
            if let Some(file) = &target.file {
                let asked = WatchMask::CLOSE_WRITE | WatchMask::ATTRIB | ITSELF;
                watches.add(&target.directory.join(file), asked, Role::File)?;
            }
            return Ok(watches.roles);
        }
        // The nearest directory that is there will tell when the way goes on.
        let mut next = target.directory.as_path();
        for above in target.directory.ancestors().skip(1) {
            let name = next.file_name().unwrap_or_default().to_owned();
            let asked = WatchMask::CREATE | WatchMask::MOVED_TO | ITSELF | WatchMask::ONLYDIR;
            if watches.add(above, asked, Role::Missing { next: name })? {
                break;
            }
            next = above;
        }
        // It may have appeared between the two.
        if !std::fs::metadata(next).is_ok_and(|there| there.is_dir()) {
            return Ok(watches.roles);
        }
    }
    Err(target.failed(io::Error::other("it comes and goes too fast")))
}

impl Target {
    fn role(&self) -> Role {
        let Some(file) = &self.file else { return Role::Directory(Relevant::Each) };
        match std::fs::symlink_metadata(self.directory.join(file)).is_ok_and(|is| is.is_symlink()) {
            true => Role::Directory(Relevant::Any),
            false => Role::Directory(Relevant::Only(file.clone())),
        }
    }
}

struct Arming {
    watches: Watches,
    roles: Vec<(WatchDescriptor, Role)>,
}

impl Arming {
    /// Watches something in a role, if it is there.
    fn add(&mut self, path: &Path, asked: WatchMask, role: Role) -> Result<bool, WatchError> {
        match self.watches.add(path, asked) {
            Ok(descriptor) => {
                // The kernel gives one file one descriptor, and what it was last asked counts.
                self.roles.retain(|(there, _)| *there != descriptor);
                self.roles.push((descriptor, role));
                Ok(true)
            }
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(false),
                // What is above the target may be closed to us as long as the target is not.
                io::ErrorKind::PermissionDenied if matches!(role, Role::Above) => Ok(false),
                io::ErrorKind::StorageFull => Err(WatchError::TooManyWatches { path: path.to_owned() }),
                _ => Err(WatchError::Failed { path: path.to_owned(), source: error }),
            },
        }
    }
}

fn too_many_files(error: &io::Error) -> bool {
    let errno = rustix::io::Errno::from_io_error(error);
    matches!(errno, Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    async fn changes(watch: &mut Watch) -> Changes {
        tokio::time::timeout(Duration::from_secs(10), watch.changed()).await.unwrap().unwrap()
    }

    async fn names(watch: &mut Watch) -> Vec<OsString> {
        let changes = changes(watch).await;
        assert!(!changes.everything);
        changes.names.into_iter().collect()
    }

    /// Nothing comes, for longer than changes are ever held back.
    async fn assert_quiet(watch: &mut Watch) {
        let waited = tokio::time::timeout(LONGEST_WAIT * 2, watch.changed()).await;
        assert!(waited.is_err(), "{waited:?}");
    }

    fn place() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        (directory, path)
    }

    #[tokio::test]
    async fn changes_that_come_together_are_told_together() {
        let (_guard, path) = place();
        let mut watch = Watch::directory(&path).unwrap();
        fs::write(path.join("a"), "1").unwrap();
        fs::write(path.join("b"), "1").unwrap();
        fs::rename(path.join("b"), path.join("c")).unwrap();
        assert_eq!(names(&mut watch).await, ["a", "b", "c"]);
        assert_quiet(&mut watch).await;
        fs::write(path.join("a"), "2").unwrap();
        assert_eq!(names(&mut watch).await, ["a"]);
        fs::remove_file(path.join("a")).unwrap();
        assert_eq!(names(&mut watch).await, ["a"]);
        for name in ["a", "c"] {
            fs::write(path.join("new"), "3").unwrap();
            if name == "a" {
                fs::write(path.join("a"), "3").unwrap();
                fs::remove_file(path.join("a")).unwrap();
            }
            fs::rename(path.join("new"), path.join(name)).unwrap();
        }
        let changed = changes(&mut watch).await;
        assert!(changed.deleted.iter().eq(["a"]), "what takes another's place deletes nothing: {changed:?}");
        assert!(changed.names.iter().eq(["a", "c", "new"]));
        std::os::unix::fs::symlink("c", path.join("link")).unwrap();
        assert_eq!(names(&mut watch).await, ["link"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_whole_is_told_at_once_and_anything_else_when_it_is_quiet() {
        let (_guard, path) = place();
        let elsewhere = tempfile::tempdir_in(path.parent().unwrap()).unwrap();
        let mut watch = Watch::directory(&path).unwrap();
        let mut took = async |change: &dyn Fn()| {
            let began = Instant::now();
            change();
            changes(&mut watch).await;
            began.elapsed()
        };
        let file = elsewhere.path().join("a");
        fs::write(&file, "1").unwrap();
        assert_eq!(took(&|| fs::rename(&file, path.join("a")).unwrap()).await, Duration::ZERO);
        assert_eq!(took(&|| fs::write(path.join("b"), "1").unwrap()).await, Duration::ZERO);
        assert!(took(&|| fs::remove_file(path.join("b")).unwrap()).await >= QUIET);
        assert!(took(&|| drop(fs::hard_link(path.join("a"), path.join("c")))).await >= QUIET);
    }

    #[tokio::test]
    async fn a_change_is_not_lost_when_nobody_waits_for_it_to_the_end() {
        let (_guard, path) = place();
        fs::write(path.join("a"), "1").unwrap();
        let mut watch = Watch::directory(&path).unwrap();
        // A file that came would be told at once; one that went may come back, and is told a little later.
        fs::remove_file(path.join("a")).unwrap();
        for _ in 0..3 {
            // On a busy machine it may be told in so short a time, too.
            let told = tokio::time::timeout(Duration::from_millis(1), watch.changed()).await;
            if let Ok(changes) = told {
                return assert!(changes.unwrap().concern("a"));
            }
        }
        assert_eq!(names(&mut watch).await, ["a"]);
    }

    #[tokio::test]
    async fn where_it_never_gets_quiet_changes_are_told_all_the_same() {
        let (_guard, path) = place();
        let mut watch = Watch::directory(&path).unwrap();
        let busy = async {
            loop {
                fs::write(path.join("a"), "1").unwrap();
                tokio::time::sleep(QUIET / 4).await;
            }
        };
        tokio::select! {
            changes = changes(&mut watch) => assert!(changes.concern("a")),
            () = busy => {}
        }
    }

    #[tokio::test]
    async fn a_directory_may_come_later_and_go_and_come_back() {
        let (_guard, path) = place();
        let target = path.join("one/two/three");
        let mut watch = Watch::directory(&target).unwrap();
        fs::write(path.join("unrelated"), "").unwrap();
        assert_quiet(&mut watch).await;
        fs::create_dir_all(&target).unwrap();
        assert!(changes(&mut watch).await.everything);
        fs::write(target.join("a"), "").unwrap();
        assert_eq!(names(&mut watch).await, ["a"]);
        fs::remove_dir_all(path.join("one")).unwrap();
        assert!(changes(&mut watch).await.everything);
        fs::create_dir_all(&target).unwrap();
        assert!(changes(&mut watch).await.everything);
        fs::write(target.join("b"), "").unwrap();
        assert!(changes(&mut watch).await.concern("b"));
    }

    #[tokio::test]
    async fn a_directory_that_is_moved_away_is_missed_and_its_successor_watched() {
        let (_guard, path) = place();
        let target = path.join("above/target");
        fs::create_dir_all(&target).unwrap();
        let mut watch = Watch::directory(&target).unwrap();
        fs::rename(path.join("above"), path.join("elsewhere")).unwrap();
        assert!(changes(&mut watch).await.everything);
        fs::write(path.join("elsewhere/target/a"), "").unwrap();
        assert_quiet(&mut watch).await;
        fs::create_dir_all(&target).unwrap();
        assert!(changes(&mut watch).await.everything);
    }

    #[tokio::test]
    async fn a_file_in_place_of_the_directory_is_waited_out() {
        let (_guard, path) = place();
        let target = path.join("target");
        fs::write(&target, "").unwrap();
        let mut watch = Watch::directory(&target).unwrap();
        fs::remove_file(&target).unwrap();
        fs::create_dir(&target).unwrap();
        assert!(changes(&mut watch).await.everything);
    }

    #[tokio::test]
    async fn a_file_is_followed_when_it_is_written_replaced_removed_and_made_again() {
        let (_guard, path) = place();
        let file = path.join("file");
        let mut watch = Watch::file(&file).unwrap();
        for step in 0..5 {
            match step {
                0 | 4 => fs::write(&file, "1").unwrap(),
                1 => fs::write(&file, "2").unwrap(),
                2 => {
                    fs::write(path.join("other"), "3").unwrap();
                    fs::rename(path.join("other"), &file).unwrap();
                }
                _ => fs::remove_file(&file).unwrap(),
            }
            assert_eq!(names(&mut watch).await, ["file"], "{step}");
            // Nothing of the neighbours.
            fs::write(path.join("neighbour"), "").unwrap();
            assert_quiet(&mut watch).await;
        }
    }

    #[tokio::test]
    async fn a_file_behind_links_is_followed_when_they_are_swapped() {
        let (_guard, path) = place();
        for version in ["v1", "v2"] {
            fs::create_dir(path.join(version)).unwrap();
            fs::write(path.join(version).join("file"), version).unwrap();
        }
        std::os::unix::fs::symlink("v1", path.join("..data")).unwrap();
        std::os::unix::fs::symlink("..data/file", path.join("file")).unwrap();
        let mut watch = Watch::file(&path.join("file")).unwrap();
        fs::write(path.join("v1/file"), "in place").unwrap();
        assert_eq!(names(&mut watch).await, ["file"]);
        std::os::unix::fs::symlink("v2", path.join("..new")).unwrap();
        fs::rename(path.join("..new"), path.join("..data")).unwrap();
        assert_eq!(names(&mut watch).await, ["file"]);
        assert_eq!(fs::read_to_string(path.join("file")).unwrap(), "v2");
    }

    #[tokio::test]
    async fn too_many_changes_mean_everything() {
        let (_guard, path) = place();
        let mut watch = Watch::directory(&path).unwrap();
        for number in 0..=MOST_NAMES {
            fs::write(path.join(number.to_string()), "").unwrap();
        }
        let changes = changes(&mut watch).await;
        assert!(changes.everything && changes.names.len() == MOST_NAMES);
    }
}
