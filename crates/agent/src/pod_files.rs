//! The directories and files that a pod has on the node, at upstream's paths.
//!
//! ```text
//! <root>/pods/<uid>/                      the pod's own
//!                   etc-hosts             its /etc/hosts
//!                   userns                which users of the node are its own, if it asks for some
//!                   containers/<name>/…   a termination log per attempt
//! <logs>/<namespace>_<name>_<uid>/<container>/<attempt>.log
//! <links>/<pod>_<namespace>_<container>-<id>.log → the log above
//! ```
//!
//! They stand behind a trait, so that a simulated run can let them fail or take their time.

mod on_disk;
#[cfg(any(test, feature = "simulated"))]
mod simulated;

use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use crablet_api::core::PodIdentity;
use crablet_core::translate::container_log_link;

pub use on_disk::OnDisk;
#[cfg(any(test, feature = "simulated"))]
pub use simulated::Simulated;

/// Where files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// `--root-dir`.
    pub root: PathBuf,
    /// `podLogsDir`.
    pub logs: PathBuf,
    /// Where links to all logs are, for those who collect them.
    pub links: PathBuf,
}

impl Places {
    /// A pod's own directory.
    pub fn pod(&self, uid: &str) -> PathBuf {
        self.root.join("pods").join(uid)
    }

    /// What containers of a pod see as `/etc/hosts`.
    pub fn hosts(&self, uid: &str) -> PathBuf {
        self.pod(uid).join("etc-hosts")
    }

    /// What says which users of the node are the pod's own.
    pub fn users(&self, uid: &str) -> PathBuf {
        self.pod(uid).join("userns")
    }

    /// The file that one attempt of a container may leave its termination message in.
    pub fn termination_log(&self, uid: &str, container: &str, attempt: u32) -> PathBuf {
        self.pod(uid).join("containers").join(container).join(format!("{attempt:08x}"))
    }

    /// The link to an attempt's log.
    pub fn log_link(&self, owner: &PodIdentity, attempt: &Attempt<'_>) -> PathBuf {
        self.links.join(container_log_link(&owner.name, &owner.namespace, attempt.container, attempt.id))
    }

    /// The directory of a pod's logs.
    pub fn pod_logs(&self, owner: &PodIdentity) -> PathBuf {
        self.logs.join(format!("{}_{}_{}", owner.namespace, owner.name, owner.uid))
    }
}

/// One attempt of a container, which the runtime has made.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    pub container: &'a str,
    pub number: u32,
    /// What the runtime calls it.
    pub id: &'a str,
    pub log: &'a Path,
}

/// What the agent does to a pod's files. Everything can be done again. What is given up half-way may still take effect, and
/// until then other changes of the same pod's files wait. Nobody waits for the files of another pod.
#[async_trait]
pub trait PodFiles: Send + Sync {
    /// Where they are.
    fn places(&self) -> &Places;

    /// Makes the pod's directories.
    async fn make_pod(&self, owner: &PodIdentity) -> io::Result<()>;

    /// Makes what one attempt of a container needs: the directory of its logs, and an empty termination log.
    async fn make_container(&self, owner: &PodIdentity, container: &str, attempt: u32) -> io::Result<()>;

    /// Writes the pod's `/etc/hosts`. Containers that have it mounted see the change.
    async fn write_hosts(&self, uid: &str, text: &[u8]) -> io::Result<()>;

    /// The record of which users of the node are the pod's own, if there is one.
    async fn users(&self, uid: &str) -> io::Result<Option<Vec<u8>>>;

    /// Writes down which users of the node are the pod's own. It is on disk when this returns.
    async fn write_users(&self, uid: &str, text: &[u8]) -> io::Result<()>;

    /// Removes the record of the pod's users.
    async fn remove_users(&self, uid: &str) -> io::Result<()>;

    /// The names of the log files that a container has.
    async fn logs(&self, owner: &PodIdentity, container: &str) -> io::Result<Vec<String>>;

    /// Puts a link to the log of an attempt where log collectors look.
    async fn link_log(&self, owner: &PodIdentity, attempt: Attempt<'_>) -> io::Result<()>;

    /// Removes the links to logs of pods that have none any more: whoever removes a pod knows nothing of containers that
    /// the runtime had forgotten. The links of all pods are looked at.
    async fn remove_dead_links(&self) -> io::Result<()>;

    /// A file of the node's own, such as its `/etc/hosts`. What its administrator put there is followed where it is a
    /// link. One that is longer than `limit` is an error.
    async fn of_node(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>>;

    /// The end of a file, if it is there. It may be a container's: a link is not followed.
    async fn tail(&self, path: &Path, limit: usize) -> io::Result<Option<Vec<u8>>>;

    /// Removes the log, the link to it and the termination log of one attempt.
    async fn remove_container(&self, owner: &PodIdentity, attempt: Attempt<'_>) -> io::Result<()>;

    /// Removes everything that a pod has, once nothing is mounted in it any more.
    async fn remove_pod(&self, owner: &PodIdentity) -> io::Result<()>;

    /// The same, but for its logs.
    async fn remove_pod_but_logs(&self, owner: &PodIdentity) -> io::Result<()>;

    /// The UIDs that have a directory.
    async fn pods(&self) -> io::Result<Vec<String>>;

    /// The end of a container's log. It is the runtime's, and may be a link, as with cri-dockerd.
    async fn log_end(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>>;
}
