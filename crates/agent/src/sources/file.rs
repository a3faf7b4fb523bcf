//! [`FileSource`]: pods from the manifests of a directory, or from one file.

mod folder;
mod look;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crablet_host::clock::Clock;
use crablet_host::watch::{Changes, Watch, WatchError};
use tokio::time::{Instant, sleep_until};
use tracing::info;

use super::problems::{Consequence, Found};
use super::{Feed, Problems, SourceKind, StaticPods};
use folder::{Folder, Haste};
use look::Shape;

/// How long a manifest that was just written may be broken before it is reported: whoever writes it may be in the
/// middle of it.
const WRITING: Duration = Duration::from_secs(1);
/// Under what name it is kept among the problems that changes are not told.
const WATCH: &str = "(watch)";
/// The shortest time between two checks of everything.
const SHORTEST_PERIOD: Duration = Duration::from_millis(100);

/// Pods from the manifests of a directory, or from one file. Changes are told by the kernel; what it does not tell
/// (a changed target of a link, another machine's write to a shared disk) is found by looking now and then.
pub struct FileSource {
    path: PathBuf,
    period: Duration,
    pods: StaticPods,
    problems: Problems,
    clock: Clock,
}

impl FileSource {
    /// A source that reads `path` when it changes, and looks every `period` whether it has.
    pub fn new(
        path: impl AsRef<Path>,
        period: Duration,
        pods: StaticPods,
        problems: Problems,
        clock: Clock,
    ) -> FileSource {
        // However it is spelled, the pods are the same ones.
        let path = path.as_ref().components().collect();
        FileSource { path, period: period.max(SHORTEST_PERIOD), pods, problems, clock }
    }

    /// Works for as long as it is polled.
    pub async fn run(self, feed: Feed) {
        info!(path = %self.path.display(), "Watching path for manifests of pods");
        let mut watching = Watching { path: self.path.clone(), problems: self.problems.clone(), watch: None };
        let mut folder = Folder::new(self.path, self.pods.clone(), self.problems, self.clock.clone());
        let mut unsettled = Unsettled::default();
        let mut task = Task::Everything;
        loop {
            folder = match task {
                Task::Everything => {
                    let shape;
                    (folder, shape) = blocking(folder, |folder| folder.shape()).await;
                    // First, so that nothing happens between looking and listening.
                    watching.follow(shape);
                    blocking(folder, |folder| folder.check_everything()).await.0
                }
                Task::Names { names, deleted, haste } => {
                    let broken;
                    (folder, broken) = blocking(folder, move |folder| {
                        folder.forget(&deleted);
                        folder.check_names(&names, haste)
                    })
                    .await;
                    unsettled.add(broken);
                    folder
                }
            };
            if folder.has_news() {
                self.pods.adopt(SourceKind::File, folder.candidates()).await;
                feed.set_anew(folder.wanted(), folder.forgotten());
            }
            task = tokio::select! {
                biased;
                task = watching.changed() => task,
                names = unsettled.due() => {
                    Task::Names { names, deleted: BTreeSet::new(), haste: Haste::SayIt }
                }
                () = sleep_until(self.clock.next_beat(self.period)) => Task::Everything,
            };
        }
    }
}

/// What to look at.
enum Task {
    Everything,
    Names { names: BTreeSet<OsString>, deleted: BTreeSet<OsString>, haste: Haste },
}

/// Files that are broken and may just be in the middle of being written.
#[derive(Default)]
struct Unsettled {
    names: BTreeSet<OsString>,
    until: Option<Instant>,
}

impl Unsettled {
    fn add(&mut self, names: BTreeSet<OsString>) {
        if !names.is_empty() {
            self.names.extend(names);
            // Somebody who writes all the time does not put it off.
            self.until.get_or_insert_with(|| Instant::now() + WRITING);
        }
    }

    /// Those whose time is up, when it is.
    async fn due(&mut self) -> BTreeSet<OsString> {
        match self.until {
            Some(until) => sleep_until(until).await,
            None => std::future::pending().await,
        }
        self.until = None;
        std::mem::take(&mut self.names)
    }
}

/// What the kernel tells of the path, as far as it does.
struct Watching {
    path: PathBuf,
    problems: Problems,
    watch: Option<(bool, Watch)>,
}

impl Watching {
    /// Listens to what there is now.
    fn follow(&mut self, shape: Shape) {
        let is_file = match shape {
            Shape::File => true,
            Shape::Directory | Shape::Missing | Shape::Other => false,
        };
        if self.watch.as_ref().is_some_and(|(was_file, _)| *was_file == is_file) {
            return;
        }
        let watch = if is_file { Watch::file(&self.path) } else { Watch::directory(&self.path) };
        match watch {
            Ok(watch) => {
                self.watch = Some((is_file, watch));
                self.problems.set(SourceKind::File, WATCH, Consequence::Noted, vec![]);
            }
            Err(error) => self.lose(&error),
        }
    }

    async fn changed(&mut self) -> Task {
        let Some((_, watch)) = &mut self.watch else { return std::future::pending().await };
        match watch.changed().await {
            Ok(changes) if changes.everything => Task::Everything,
            Ok(Changes { names, deleted, .. }) => Task::Names { names, deleted, haste: Haste::MayBeWriting },
            Err(error) => {
                self.lose(&error);
                Task::Everything
            }
        }
    }

    fn lose(&mut self, error: &WatchError) {
        self.watch = None;
        let message = format!("{error}; changes are noticed at the next periodic check");
        let found = Found { origin: self.path.display().to_string(), line: 0, message };
        self.problems.set(SourceKind::File, WATCH, Consequence::Noted, vec![found]);
    }
}

/// Lets a disk take its time without holding up anybody else.
async fn blocking<T: Send + 'static>(
    mut folder: Folder,
    work: impl FnOnce(&mut Folder) -> T + Send + 'static,
) -> (Folder, T) {
    let worked = tokio::task::spawn_blocking(move || {
        let answer = work(&mut folder);
        (folder, answer)
    });
    match worked.await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is being shut down.
            Err(_) => std::future::pending().await,
        },
    }
}
