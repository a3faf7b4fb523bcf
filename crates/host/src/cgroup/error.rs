//! What can go wrong with a cgroup.

use std::io;
use std::path::PathBuf;

/// Why something about a cgroup failed. Each says which file, and what was to be written to it.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// No cgroup file system is mounted.
    #[error("no cgroup file system is mounted")]
    NotMounted,
    /// The mount table could not be read.
    #[error("cannot read the mount table {}", path.display())]
    MountTable {
        /// The mount table.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The cgroup below which all is to be made is missing.
    #[error("the cgroup root {} does not exist", path.display())]
    RootMissing {
        /// Where it should be.
        path: PathBuf,
    },
    /// A cgroup that somebody else should have made is missing.
    #[error("the cgroup {} does not exist", path.display())]
    Missing {
        /// Where it should be.
        path: PathBuf,
    },
    /// The kernel does not offer a cgroup all controllers that the agent uses.
    #[error("the cgroup {} lacks the controllers {}", path.display(), missing.join(", "))]
    ControllersMissing {
        /// The cgroup.
        path: PathBuf,
        /// The controllers that it lacks.
        missing: Vec<String>,
    },
    /// A cgroup could not be made.
    #[error("cannot create the cgroup {}", path.display())]
    Create {
        /// The cgroup.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A value could not be written.
    #[error("cannot write {value:?} to {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        value: String,
        /// Why.
        source: io::Error,
    },
    /// A memory limit is below what is in use.
    #[error("cannot write {value:?} to {}: {usage} bytes are in use", path.display())]
    BelowUsage {
        /// The file.
        path: PathBuf,
        /// The limit.
        value: String,
        /// The bytes in use.
        usage: u64,
    },
    /// A file or directory could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file says something that is not of its form.
    #[error("{} holds {value:?}, which is not {expected}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What it holds.
        value: String,
        /// What it should hold.
        expected: &'static str,
    },
    /// Processes that were to be put into a cgroup come faster than they can be, or cannot be put there.
    #[error("the processes {processes:?} do not stay in the cgroup {}", path.display())]
    NotGathered {
        /// The cgroup.
        path: PathBuf,
        processes: Vec<u32>,
        /// Why the last of those that cannot be moved is not.
        source: Option<Box<CgroupError>>,
    },
    /// A process could not be killed.
    #[error("cannot kill process {process} of the cgroup {}", path.display())]
    Kill {
        process: u32,
        /// The cgroup.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A cgroup could not be removed.
    #[error("cannot remove the cgroup {}", path.display())]
    Remove {
        /// The cgroup.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Processes live on in a cgroup that is to be removed, though they were killed.
    #[error("cannot remove the cgroup {}: it is busy with the processes {processes:?}", path.display())]
    Busy {
        /// The cgroup.
        path: PathBuf,
        processes: Vec<u32>,
    },
    /// systemd could not be asked, or refused.
    #[error("cannot ask systemd about {unit}")]
    Systemd {
        /// The unit that it was asked about.
        unit: String,
        /// Why.
        source: crablet_dbus::Error,
    },
    /// systemd did not make a cgroup.
    #[error("error creating systemd unit {unit}: got {result:?}")]
    NotStarted {
        /// The unit that the cgroup is.
        unit: String,
        /// What became of it, in systemd's word.
        result: String,
    },
    /// The thread that did the work died.
    #[error("the work on cgroups was abandoned")]
    Abandoned,
}
