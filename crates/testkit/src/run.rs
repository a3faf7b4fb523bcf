//! Runs: which numbers are taken, and what a number stands for.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::cleanup;

/// Everything lies in here. It is short, because the path of a unix socket may have 107 characters.
pub(crate) const BASE: &str = "/run/crablet-test";

/// A run's number is the third part of its subnet.
const NUMBERS: std::ops::RangeInclusive<u8> = 1..=254;

/// A number that this process holds.
///
/// The lock files stay when a run ends: to remove one would let two processes lock two files of the same name.
pub(crate) struct Run {
    names: Names,
    _lock: File,
}

impl Run {
    /// Removes what dead runs left behind, and takes the first free number.
    pub(crate) async fn claim() -> Result<Run> {
        fs::create_dir_all(BASE).with_context(|| format!("cannot create {BASE}"))?;
        for number in NUMBERS {
            let names = Names { number };
            if names.directory().exists()
                && let Some(run) = Run::lock(names)?
                && let Err(error) = cleanup::remove(run.names()).await
            {
                eprintln!("cannot remove what a dead run left in {}: {error:#}", names.directory().display());
            }
        }
        for number in NUMBERS {
            let names = Names { number };
            if let Some(run) = Run::lock(names)?
                && !names.directory().exists()
            {
                fs::create_dir_all(names.directory())?;
                return Ok(run);
            }
        }
        bail!("all {} runs in {BASE} are taken", NUMBERS.len())
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// `None` while another process holds this number.
    fn lock(names: Names) -> Result<Option<Run>> {
        let path = Path::new(BASE).join(format!("{}.lock", names.number));
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Run { names, _lock: file })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
        }
    }
}

/// What belongs to a run, by name.
#[derive(Clone, Copy)]
pub(crate) struct Names {
    number: u8,
}

impl Names {
    #[cfg(test)]
    pub(crate) fn of(number: u8) -> Names {
        Names { number }
    }

    pub(crate) fn directory(&self) -> PathBuf {
        Path::new(BASE).join(self.number.to_string())
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory().join("containerd.sock")
    }

    pub(crate) fn configuration(&self) -> PathBuf {
        self.directory().join("config.toml")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.directory().join("containerd.log")
    }

    pub(crate) fn cni_configuration(&self) -> PathBuf {
        self.directory().join("cni/conf")
    }

    pub(crate) fn runc_root(&self) -> PathBuf {
        self.directory().join("runc")
    }

    /// Where containerd keeps one directory per namespace, and in it one per container that runs.
    pub(crate) fn bundles(&self) -> PathBuf {
        self.directory().join("state/io.containerd.runtime.v2.task")
    }

    /// The name of the CNI network, which is also in the comments of the rules that CNI plugins add.
    pub(crate) fn network(&self) -> String {
        format!("crablet-test-{}", self.number)
    }

    pub(crate) fn bridge(&self) -> String {
        format!("crablet{}", self.number)
    }

    pub(crate) fn subnet(&self) -> String {
        format!("10.213.{}.0/24", self.number)
    }

    pub(crate) fn cgroup(&self) -> String {
        format!("/crablet-test-{}", self.number)
    }
}
