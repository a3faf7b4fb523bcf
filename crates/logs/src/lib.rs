//! The logs of containers, read, followed and rotated, and those of the node.
//!
//! - [`read_logs`] gives a container's log as a stream, as upstream would show it. It is read in small pieces, on
//!   threads for that, when somebody asks for more: a client that does not read costs a file that is open. `render` says
//!   what of the log is shown, `file` which file of it comes next. [`last_lines`] does the same for what was read.
//! - [`LogWatcher`] tells all who follow that something was written. One task reads one inotify instance, for as long as
//!   somebody follows.
//! - [`LogRotation`] keeps the logs of containers that run small.
//! - [`NodeLogs`] gives the node's own logs: files below `/var/log`, and nothing outside, and what a [`NodeLogQuery`] asks
//!   of services.
//! - [`LogRuntime`] is what is asked of a runtime.

mod file;
mod names;
mod node_files;
mod node_logs;
mod node_query;
mod pattern;
mod read;
mod render;
mod rotation;
mod runtime;
mod watch;

pub use node_files::{DirectoryEntry, NodeFile, NodeFileError, OpenDirectory, OpenFile};
pub use node_logs::NodeLogs;
pub use node_query::{InvalidQuery, NodeLogQuery};
pub use read::{Followed, LogError, LogOptions, read_logs};
pub use render::{FormatError, LogEnd, LogStream, LogText, last_lines};
pub use rotation::{LogRotation, RotationPolicy, RunningContainer};
pub use runtime::LogRuntime;
pub use watch::LogWatcher;
