//! Keeping the logs of containers small: one that has grown large is moved away, and its container begins another; what
//! was moved away before is compressed, and what is too many is removed.
//!
//! Files are looked at once in an interval. Nothing is remembered: whoever is cut off leaves files from which the next
//! one goes on.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crablet_cri::Error;
use crablet_host::clock::Clock;
use crablet_logging::ErrorChain;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::{StreamExt, stream};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use tracing::{debug, warn};

use crate::names::{COMPRESSED, Rotated, TEMPORARY};
use crate::runtime::LogRuntime;

/// The time in the name of a log that was moved away.
const TIME_IN_NAME: &str = "%Y%m%d-%H%M%S";

/// How large logs may become, and how many are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RotationPolicy {
    /// `containerLogMaxSize`: how large a log becomes before it is moved away.
    pub max_size: u64,
    /// `containerLogMaxFiles`: how many files a container's log may have.
    pub max_files: usize,
    /// `containerLogMaxWorkers`: how many logs are rotated at the same time.
    pub max_workers: usize,
    /// `containerLogMonitorInterval`: how often logs are looked at.
    pub interval: Duration,
}

/// A container that runs, and where its log should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningContainer {
    /// The runtime's name for it.
    pub id: String,
    /// Where its log should be. Where there is none, the runtime is asked.
    pub log_path: PathBuf,
}

/// Rotates the logs of containers.
pub struct LogRotation {
    /// Who writes the logs.
    pub runtime: Arc<dyn LogRuntime>,
    /// The time, which goes into names.
    pub clock: Clock,
    /// What is to be kept.
    pub policy: RotationPolicy,
}

/// Why a log was not rotated. It is tried again after the interval.
#[derive(Debug, thiserror::Error)]
enum RotationError {
    #[error("the runtime does not say where the log is")]
    Path(#[source] Error),
    #[error("the runtime does not begin another file")]
    Reopen(#[source] Error),
    #[error("cannot {step} {}", path.display())]
    File { step: &'static str, path: PathBuf, source: io::Error },
}

impl LogRotation {
    /// Looks at the logs of the containers that run, once in each interval.
    pub async fn run(self, running: impl Fn() -> Vec<RunningContainer>) {
        loop {
            self.look(running()).await;
            tokio::time::sleep_until(self.clock.next_beat(self.policy.interval)).await;
        }
    }

    /// Rotates the logs that are too large.
    async fn look(&self, containers: Vec<RunningContainer>) {
        let most = self.policy.max_size;
        let is_due = move |container: &RunningContainer| match fs::metadata(&container.log_path) {
            Ok(log) => log.len() >= most,
            // Somebody closer finds out why.
            Err(_) => true,
        };
        let due = blocking(move || containers.into_iter().filter(is_due).collect::<Vec<_>>()).await;
        let rotate = async |container: RunningContainer| {
            let RunningContainer { id, log_path } = container;
            if let Err(error) = self.rotate_if_due(&id, log_path.clone()).await {
                let path = log_path.display();
                warn!(container = id, %path, err = %ErrorChain(&error), "Cannot rotate the log of a container");
            }
        };
        stream::iter(due.unwrap_or_default())
            .for_each_concurrent(self.policy.max_workers.max(1), rotate)
            .await;
    }

    async fn rotate_if_due(&self, id: &str, mut path: PathBuf) -> Result<(), RotationError> {
        if size(&path)?.is_none() {
            path = match self.runtime.log_path(id).await {
                // It has gone meanwhile, and its log with it.
                Err(error) if error.is_not_found() => return Ok(()),
                path => path.map_err(RotationError::Path)?,
            };
        }
        let size = match size(&path)? {
            Some(size) => size,
            // Somebody was cut off after he had moved it away, or somebody has removed it.
            None => {
                self.runtime.reopen_container_log(id).await.map_err(RotationError::Reopen)?;
                size(&path)?.unwrap_or_default()
            }
        };
        match size < self.policy.max_size {
            true => Ok(()),
            false => self.rotate(id, path).await,
        }
    }

    /// Moves a log away, after what was moved away before has been tidied.
    async fn rotate(&self, id: &str, log: PathBuf) -> Result<(), RotationError> {
        // The log itself, and the new one.
        let kept = self.policy.max_files.saturating_sub(2);
        let (now, from) = (self.clock.now(), log.clone());
        let moved = blocking(move || {
            let newest = tidy(&from, kept)?;
            let to = with_suffix(&from, &format!(".{}", time_after(now, newest.as_deref())));
            rename(&from, &to, "move away")?;
            Ok(to)
        });
        let moved = match moved.await {
            Some(moved) => moved?,
            // The process ends.
            None => return Ok(()),
        };
        if let Err(error) = self.runtime.reopen_container_log(id).await {
            // Unless it took effect all the same, so that another one is there.
            if let Err(error) = rename(&moved, &log, "move back") {
                debug!(container = id, err = %ErrorChain(&error), "The log of a container was not moved back");
            }
            return Err(RotationError::Reopen(error));
        }
        debug!(container = id, path = %moved.display(), "Rotated the log of a container");
        Ok(())
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

fn size(path: &Path) -> Result<Option<u64>, RotationError> {
    match fs::metadata(path) {
        Ok(log) => Ok(Some(log.len())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(RotationError::File { step: "look at", path: path.to_owned(), source }),
    }
}

/// Removes what was left behind and what is too many, compresses what is kept, and gives the name of the newest.
fn tidy(log: &Path, kept: usize) -> Result<Option<String>, RotationError> {
    let directory = log.parent().unwrap_or(log);
    let name = log.file_name().unwrap_or_default().to_string_lossy();
    let failed = |step: &'static str| {
        move |path: &Path| {
            let path = path.to_owned();
            move |source| RotationError::File { step, path, source }
        }
    };
    let rotated = Rotated::list(directory, &name).map_err(failed("list the files of")(log))?;
    // The oldest first, so that nobody misses one who reads them in their order.
    let surplus = rotated.in_use.len().saturating_sub(kept);
    for name in rotated.unused.iter().chain(&rotated.in_use[..surplus]) {
        let path = directory.join(name);
        fs::remove_file(&path).map_err(failed("remove")(&path))?;
    }
    for name in rotated.in_use[surplus..].iter().filter(|name| !name.ends_with(COMPRESSED)) {
        let path = directory.join(name);
        compress(&path).map_err(failed("compress")(&path))?;
    }
    Ok(rotated.in_use.last().and_then(|newest| Some(newest.strip_prefix(&*name)?.get(1..)?.to_owned())))
}

/// Compresses a log, so that there is always one of the two, whole.
fn compress(log: &Path) -> io::Result<()> {
    let temporary = with_suffix(log, TEMPORARY);
    let written =
        write_compressed(log, &temporary).and_then(|()| fs::rename(&temporary, with_suffix(log, COMPRESSED)));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written?;
    fs::remove_file(log)
}

fn write_compressed(log: &Path, target: &Path) -> io::Result<()> {
    let mut source = File::open(log)?;
    let mode = source.metadata()?.mode() & 0o7777;
    let target = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(target)?;
    // The mask of the process may have taken some of it.
    target.set_permissions(source.metadata()?.permissions())?;
    let mut encoder = GzEncoder::new(target, Compression::default());
    io::copy(&mut source, &mut encoder)?;
    encoder.finish()?;
    Ok(())
}

/// The time for the name of a log that is moved away. It sorts behind that of the newest one, whatever was done to the
/// clock: names are all that tells in which order logs were written.
fn time_after(now: Timestamp, newest: Option<&str>) -> String {
    let time = now.to_zoned(TimeZone::system()).strftime(TIME_IN_NAME).to_string();
    let newest = newest.and_then(|newest| newest.get(..time.len()));
    match newest.filter(|newest| **newest >= *time) {
        None => time,
        Some(newest) => {
            let parsed = DateTime::strptime(TIME_IN_NAME, newest).ok();
            let later = parsed.and_then(|newest| newest.checked_add(Span::new().seconds(1)).ok());
            later.map_or(time, |later| later.strftime(TIME_IN_NAME).to_string())
        }
    }
}

/// Never onto a file that is there.
fn rename(from: &Path, to: &Path, step: &'static str) -> Result<(), RotationError> {
    let exclusively = |from: &Path, to: &Path| renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE);
    rename_by(exclusively, from, to).map_err(|source| RotationError::File {
        step,
        path: from.to_owned(),
        source,
    })
}

/// Some file systems (NFS) cannot do that at once; there, nobody but us makes files of such names.
fn rename_by(
    exclusively: impl Fn(&Path, &Path) -> Result<(), Errno>,
    from: &Path,
    to: &Path,
) -> io::Result<()> {
    match exclusively(from, to) {
        Err(Errno::INVAL | Errno::NOSYS) if !to.try_exists()? => fs::rename(from, to),
        renamed => Ok(renamed?),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    PathBuf::from(path)
}

#[cfg(test)]
#[path = "rotation_tests.rs"]
mod tests;
