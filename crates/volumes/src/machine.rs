//! What volumes of CSI drivers ask of the machine: its files, its mount table, and a thread to wait for them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crablet_api::core::SELinuxOptions;
use crablet_host::files::{self, ReadError, WriteError};
use crablet_host::mounts::{self, Mount, MountTable};
use crablet_host::selinux;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use crate::error::{FileError, PluginError, failed};
use crate::files::make_all;

/// A machine. Whatever a driver mounts on it, its table shows.
pub trait Machine: Send + Sync {
    /// Does work that may wait for a disk, at once and where it keeps nobody else waiting. It goes on if nobody waits
    /// for its end.
    fn work(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()>;

    /// Makes a directory and those above it, for nobody but us and our group.
    fn make_directories(&self, path: &Path) -> Result<(), FileError>;

    /// Removes a directory in which nothing is, and on which nothing is mounted.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;

    fn read(&self, path: &Path, limit: usize) -> Result<Vec<u8>, ReadError>;

    /// Writes a file for nobody but us, such that it is there whole or not at all, whatever dies.
    fn write(&self, path: &Path, content: &[u8]) -> Result<(), WriteError>;

    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// What is in a directory; nothing where there is none.
    fn children(&self, directory: &Path) -> Result<Vec<PathBuf>, FileError>;

    fn is_mount_point(&self, path: &Path) -> io::Result<bool>;

    /// Whether files have SELinux labels here.
    fn has_selinux(&self) -> bool;

    /// The label of files that processes with these options may use, where their level is known.
    fn file_label(&self, options: &SELinuxOptions) -> io::Result<Option<String>>;

    /// Whether the file system at a path has SELinux labels for its files.
    fn has_labels(&self, path: &Path) -> io::Result<bool>;

    /// Where else what is at each of these paths is mounted, by one reading of the table. It is nowhere where there is
    /// nothing.
    fn mounted_elsewhere(&self, paths: &[PathBuf]) -> Vec<io::Result<Vec<PathBuf>>>;
}

/// The machine that we run on.
pub(crate) struct Host;

impl Machine for Host {
    fn work(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        let done = tokio::task::spawn_blocking(work);
        Box::pin(async { drop(done.await) })
    }

    fn make_directories(&self, path: &Path) -> Result<(), FileError> {
        make_all(path, 0o750)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn read(&self, path: &Path, limit: usize) -> Result<Vec<u8>, ReadError> {
        files::read_bounded(path, limit)
    }

    fn write(&self, path: &Path, content: &[u8]) -> Result<(), WriteError> {
        files::write_atomically(path, content, 0o600)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn children(&self, directory: &Path) -> Result<Vec<PathBuf>, FileError> {
        let entries = match fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed("open", directory))?,
        };
        entries.map(|entry| Ok(entry.map_err(failed("readdirent", directory))?.path())).collect()
    }

    fn is_mount_point(&self, path: &Path) -> io::Result<bool> {
        mounts::is_mount_point(path)
    }

    fn has_selinux(&self) -> bool {
        Path::new("/sys/fs/selinux/enforce").exists()
    }

    fn file_label(&self, options: &SELinuxOptions) -> io::Result<Option<String>> {
        if options.level.is_empty() {
            return Ok(None);
        }
        selinux::file_label(Path::new("/"), &options.user, &options.level).map(Some)
    }

    fn has_labels(&self, path: &Path) -> io::Result<bool> {
        // Without SELinux nothing has any, and the table may be long.
        if !self.has_selinux() {
            return Ok(false);
        }
        let path = mounts::resolved(path)?;
        Ok(MountTable::shared()?.of(&path).is_some_and(Mount::has_labels))
    }

    fn mounted_elsewhere(&self, paths: &[PathBuf]) -> Vec<io::Result<Vec<PathBuf>>> {
        let table = MountTable::shared();
        let elsewhere = |path: &PathBuf| {
            let table = table.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
            let path = match mounts::resolved(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                resolved => resolved?,
            };
            Ok(table.elsewhere(&path).into_iter().map(|mount| mount.mount_point.clone()).collect())
        };
        paths.iter().map(elsewhere).collect()
    }
}

/// Does work on a machine and waits for what comes of it.
pub(crate) async fn work_on<T: Send + 'static>(
    machine: &Arc<dyn Machine>,
    work: impl FnOnce(&dyn Machine) -> Result<T, PluginError> + Send + 'static,
) -> Result<T, PluginError> {
    let (done, mut result) = oneshot::channel();
    let here = Arc::clone(machine);
    machine.work(Box::new(move || drop(done.send(work(&*here))))).await;
    result.try_recv().unwrap_or(Err(PluginError::Panicked))
}
