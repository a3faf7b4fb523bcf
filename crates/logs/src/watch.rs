//! Learning that logs were written to or moved, for all who follow one.
//!
//! All share one inotify instance, since a user has but 128 of them, and one task that reads it. Both are there for as
//! long as somebody follows.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use inotify::{Event, EventMask, EventStream, Inotify, WatchDescriptor, WatchMask, Watches};
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::names::{TEMPORARY, is_rotated};

/// How long what happens is gathered: a log may be written to ten thousand times a second.
const GATHER: Duration = Duration::from_millis(10);
/// How often a log is looked at whose changes the kernel does not tell.
const LOOK_EVERY: Duration = Duration::from_secs(1);

const WANTED: WatchMask = WatchMask::MODIFY
    .union(WatchMask::CLOSE_WRITE)
    .union(WatchMask::CREATE)
    .union(WatchMask::MOVED_FROM)
    .union(WatchMask::MOVED_TO)
    .union(WatchMask::DELETE)
    .union(WatchMask::ONLYDIR);

/// Tells of changes to logs. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct LogWatcher {
    watched: Arc<Mutex<Option<Watched>>>,
}

/// What is watched, as long as somebody follows.
#[derive(Debug)]
struct Watched {
    watches: Watches,
    directories: BTreeMap<i32, Directory>,
    _task: DropGuard,
}

#[derive(Debug)]
struct Directory {
    descriptor: WatchDescriptor,
    followers: Vec<Weak<Follower>>,
}

#[derive(Debug)]
struct Follower {
    /// What the latest file of its log is called.
    name: String,
    changed: Notify,
    /// Whether a file that was moved away was closed by who wrote to it.
    closed: AtomicBool,
    /// Whether the kernel does not tell any more.
    is_untold: AtomicBool,
}

/// A watch on one log. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct LogWatch {
    follower: Arc<Follower>,
    /// Where it is registered; nowhere where the kernel does not tell.
    place: Option<(LogWatcher, i32)>,
}

impl LogWatcher {
    /// Watches the log `name` in a directory. Where that cannot be done, it is looked at again and again.
    pub(crate) fn watch(&self, directory: &Path, name: &str) -> LogWatch {
        let follower = Arc::new(Follower {
            name: name.to_owned(),
            changed: Notify::new(),
            closed: AtomicBool::new(false),
            is_untold: AtomicBool::new(false),
        });
        let place = self.register(directory, &follower);
        if let Err(error) = &place {
            tracing::debug!(%error, directory = %directory.display(), "A log cannot be watched; it is looked at");
        }
        LogWatch { follower, place: place.ok().map(|descriptor| (self.clone(), descriptor)) }
    }

    /// How many directories are watched.
    pub fn watched(&self) -> usize {
        self.lock().as_ref().map_or(0, |watched| watched.directories.len())
    }

    fn register(&self, directory: &Path, follower: &Arc<Follower>) -> io::Result<i32> {
        let mut watched = self.lock();
        if watched.is_none() {
            *watched = Some(self.start()?);
        }
        let Some(there) = &mut *watched else { return Err(io::ErrorKind::NotFound.into()) };
        let added = there.watches.add(directory, WANTED);
        let added = added.map(|descriptor| {
            let id = descriptor.get_watch_descriptor_id();
            let directory = there.directories.entry(id);
            let directory = directory.or_insert_with(|| Directory { descriptor, followers: Vec::new() });
            directory.followers.push(Arc::downgrade(follower));
            id
        });
        if there.directories.is_empty() {
            *watched = None;
        }
        added
    }

    fn start(&self) -> io::Result<Watched> {
        let inotify = Inotify::init()?;
        let watches = inotify.watches();
        let events = inotify.into_event_stream(vec![0; 4096])?;
        let stop = CancellationToken::new();
        let (stopped, watched) = (stop.clone().cancelled_owned(), Arc::downgrade(&self.watched));
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = stopped => {}
                () = distribute(events, watched) => {}
            }
        });
        Ok(Watched { watches, directories: BTreeMap::new(), _task: stop.drop_guard() })
    }

    fn unregister(&self, id: i32, follower: &Arc<Follower>) {
        let mut watched = self.lock();
        let Some(there) = &mut *watched else { return };
        let Some(directory) = there.directories.get_mut(&id) else { return };
        directory.followers.retain(|other| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(follower)));
        if directory.followers.is_empty() {
            // A directory that is gone is not watched any more.
            let _ = there.watches.remove(directory.descriptor.clone());
            there.directories.remove(&id);
        }
        if there.directories.is_empty() {
            *watched = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells followers what the kernel tells.
async fn distribute(mut events: EventStream<Vec<u8>>, watched: Weak<Mutex<Option<Watched>>>) {
    let mut next = events.next().await;
    loop {
        let Some(watched) = watched.upgrade() else { return };
        let Some(Ok(event)) = next else {
            let lost = watched.lock().unwrap_or_else(PoisonError::into_inner).take();
            return lost.iter().for_each(Watched::tell_no_more);
        };
        if let Some(watched) = &*watched.lock().unwrap_or_else(PoisonError::into_inner) {
            watched.tell(&event);
        }
        next = match events.next().now_or_never() {
            Some(next) => next,
            None => {
                tokio::time::sleep(GATHER).await;
                events.next().await
            }
        };
    }
}

impl Watched {
    /// From here on followers look by themselves.
    fn tell_no_more(&self) {
        let all = self.directories.values().flat_map(|directory| &directory.followers);
        for follower in all.filter_map(Weak::upgrade) {
            follower.is_untold.store(true, Ordering::Relaxed);
            follower.changed.notify_one();
        }
    }

    fn tell<Name: AsRef<OsStr>>(&self, event: &Event<Name>) {
        if event.mask.contains(EventMask::Q_OVERFLOW) {
            let all = self.directories.values().flat_map(|directory| &directory.followers);
            return all.filter_map(Weak::upgrade).for_each(|follower| follower.changed.notify_one());
        }
        let Some(directory) = self.directories.get(&event.wd.get_watch_descriptor_id()) else { return };
        let name = event.name.as_ref().and_then(|name| name.as_ref().to_str());
        let Some(name) = name.filter(|name| !name.ends_with(TEMPORARY)) else { return };
        for follower in directory.followers.iter().filter_map(Weak::upgrade) {
            let is_rotated = is_rotated(name, &follower.name);
            if is_rotated && event.mask.contains(EventMask::CLOSE_WRITE) {
                follower.closed.store(true, Ordering::Relaxed);
            }
            if is_rotated || name == follower.name {
                follower.changed.notify_one();
            }
        }
    }
}

impl LogWatch {
    /// Waits until something may have changed since it was last waited for.
    pub(crate) async fn changed(&self) {
        let changed = self.follower.changed.notified();
        match self.place {
            Some(_) if !self.follower.is_untold.load(Ordering::Relaxed) => changed.await,
            Some(_) | None => tokio::time::sleep(LOOK_EVERY).await,
        }
    }

    /// Waits until whoever wrote to a file that was moved away has closed it.
    pub(crate) async fn closed(&self) {
        while !self.follower.closed.load(Ordering::Relaxed) {
            self.changed().await;
        }
    }

    /// Another file is read from here on.
    pub(crate) fn goes_on(&self) {
        self.follower.closed.store(false, Ordering::Relaxed);
    }
}

impl Drop for LogWatch {
    fn drop(&mut self) {
        if let Some((watcher, id)) = &self.place {
            watcher.unregister(*id, &self.follower);
        }
    }
}
