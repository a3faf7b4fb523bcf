//! What tests of several modules share.

use std::path::{Path, PathBuf};

use crablet_host::mounts::{MountTable, PROC_SELF_MOUNTINFO, UnmountMode, unmount};

/// A directory in which everything is unmounted when the test ends, however it ends.
pub(crate) struct Place {
    path: PathBuf,
    _directory: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        let directory = tempfile::tempdir().unwrap();
        Place { path: directory.path().canonicalize().unwrap(), _directory: directory }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let path = self.path.join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    pub(crate) fn mounts(&self) -> Vec<PathBuf> {
        let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).unwrap();
        table.under(&self.path).into_iter().map(|mount| mount.mount_point.clone()).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for mount in self.mounts() {
            let _ = unmount(&mount, UnmountMode::Detach);
        }
    }
}
