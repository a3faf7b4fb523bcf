//! One small file that outlives the agent, and that others read too.

use std::io;
use std::path::PathBuf;
#[cfg(any(test, feature = "simulated"))]
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;

use crate::files::{read_bounded, write_atomically};

/// No such file is larger.
const LARGEST: usize = 64 << 10;

/// A file whose content is replaced as a whole.
#[async_trait]
pub trait StateFile: Send + Sync {
    /// What it holds, if it is there.
    async fn read(&self) -> io::Result<Option<Vec<u8>>>;
    /// Replaces what it holds. It is on disk when this returns.
    async fn write(&self, bytes: Vec<u8>) -> io::Result<()>;
}

/// A file on disk.
#[derive(Debug, Clone)]
pub struct FileOnDisk(PathBuf);

impl FileOnDisk {
    pub fn new(path: PathBuf) -> FileOnDisk {
        FileOnDisk(path)
    }
}

#[async_trait]
impl StateFile for FileOnDisk {
    async fn read(&self) -> io::Result<Option<Vec<u8>>> {
        let path = self.0.clone();
        blocking(move || match read_bounded(&path, LARGEST) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(io::Error::other(error)),
        })
        .await
    }

    async fn write(&self, bytes: Vec<u8>) -> io::Result<()> {
        let path = self.0.clone();
        blocking(move || write_atomically(&path, &bytes, 0o644).map_err(io::Error::other)).await
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// A file in memory. Clones are the same one.
#[cfg(any(test, feature = "simulated"))]
#[derive(Debug, Clone, Default)]
pub struct SimulatedStateFile {
    content: Arc<Mutex<Option<Vec<u8>>>>,
    hangs: Arc<AtomicBool>,
}

#[cfg(any(test, feature = "simulated"))]
impl SimulatedStateFile {
    /// What it holds, if it is there.
    pub fn content(&self) -> Option<Vec<u8>> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Nobody who reads or writes it from now on gets an answer.
    pub fn hang(&self) {
        self.hangs.store(true, Ordering::Relaxed);
    }

    async fn answer(&self) {
        if self.hangs.load(Ordering::Relaxed) {
            std::future::pending().await
        }
    }
}

#[cfg(any(test, feature = "simulated"))]
#[async_trait]
impl StateFile for SimulatedStateFile {
    async fn read(&self) -> io::Result<Option<Vec<u8>>> {
        self.answer().await;
        Ok(self.content())
    }

    async fn write(&self, bytes: Vec<u8>) -> io::Result<()> {
        self.answer().await;
        *self.content.lock().unwrap_or_else(PoisonError::into_inner) = Some(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    async fn check(file: impl StateFile) {
        assert_eq!(file.read().await.unwrap(), None);
        file.write(b"one".to_vec()).await.unwrap();
        file.write(b"two".to_vec()).await.unwrap();
        assert_eq!(file.read().await.unwrap().unwrap(), b"two");
    }

    #[tokio::test]
    async fn a_file_on_disk_and_one_in_memory_keep_what_was_written_last() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        check(FileOnDisk::new(path.clone())).await;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        check(SimulatedStateFile::default()).await;
        let nowhere = FileOnDisk::new(directory.path().join("no/such/state"));
        assert_eq!(nowhere.read().await.unwrap(), None);
        assert!(nowhere.write(Vec::new()).await.is_err());
    }
}
