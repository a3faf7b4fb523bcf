//! The volumes of pods.
//!
//! - [`Volumes`] is what the agent asks for: set a pod's volumes up, keep them current, make sub paths ready, read a
//!   file, take all of it away. [`HostVolumes`] does it on this machine; `SimulatedVolumes` keeps everything in memory and fails
//!   when told to.
//! - [`Plugin`] is a kind of volume. [`EmptyDir`], [`HostPath`], [`DownwardApi`] and [`Image`] need nobody but the node.
//!   [`ConfigMap`], [`Secret`] and [`Projected`] show what [`Contents`] has. A kind that shows files collects them as a
//!   [`Payload`].
//! - [`atomic_writer`]: files that change all at once.
//! - [`ownership`]: giving a volume's files to the pod's group.
//! - [`Places`]: where all of it is under the root directory.
//!
//! No task runs here. A call works on a thread that may block, one thread for each pod and call, and no call of one
//! pod waits for another pod. Nothing is remembered but on the disk and in the kernel's mount table, so that the agent
//! may die at any point and the next call carries on.
//!
//! **A path that a container can change is never followed by name**: sub paths and files are opened such that
//! they cannot be outside their volume, and what was opened is what is mounted or read. **Nothing is removed across a mount point.**
//! **Secrets and tokens are in memory, never on disk**, and in no `Debug`, log or error.

pub mod atomic_writer;
mod attachments;
mod beneath;
mod claims;
mod contents;
mod csi;
mod device_map;
mod disk_usage;
mod error;
mod events;
mod expand;
mod files;
mod inventory;
mod machine;
mod metrics;
mod nested;
pub mod ownership;
mod places;
mod plugin;
mod plugins;
mod refused;
mod remove_tree;
#[cfg(any(test, feature = "simulated"))]
mod simulated;
mod stats;
mod sub_path;
mod tear_down;
#[cfg(test)]
mod testing;
mod tools;
mod volume_file;
mod volumes;

pub use atomic_writer::{Payload, PayloadError, ProjectedFile};
pub use attachments::Attachments;
pub use claims::{Broken, ClaimError, Claimed};
pub use contents::{CertificateOf, Contents, NoCertificate, NoContents, PodCertificate, Token, TokenRequest};
pub use csi::Csi;
pub use error::{
    FailureKind, FileError, LocalPathError, PluginError, SubPathCause, SubPathError, TearDownError,
    VolumeError,
};
pub use events::{Occurrence, VolumeEvent};
pub use expand::{ExpandError, Moment};
pub use machine::Machine;
pub use places::Places;
pub use plugin::{Plugin, Request, kind, persistent_kind};
pub use plugins::{ConfigMap, DownwardApi, EmptyDir, HostPath, Image, Local, Nfs, Projected, Secret};
pub use remove_tree::remove_directory;
#[cfg(any(test, feature = "simulated"))]
pub use simulated::{Operation, SimulatedMachine, SimulatedVolumes, Trouble};
pub use stats::{VolumeStats, VolumeUsage};
pub use sub_path::SubPath;
pub use tools::{Ending, ToolError};
pub use volume_file::VolumeFile;
pub use volumes::{DEADLINE, HostVolumes, Measuring, Volumes, used_volumes};
