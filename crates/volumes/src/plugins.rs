//! The kinds of volumes.

mod config_map;
mod downward_api;
mod empty_dir;
mod files;
mod host_path;
mod image;
mod keys;
pub(crate) mod local;
mod mount_command;
mod nfs;
mod projected;
mod secret;

pub use config_map::ConfigMap;
pub use downward_api::DownwardApi;
pub use empty_dir::EmptyDir;
pub use host_path::HostPath;
pub use image::Image;
pub use local::Local;
pub use nfs::Nfs;
pub use projected::Projected;
pub use secret::Secret;

#[cfg(any(test, feature = "simulated"))]
pub(crate) use files::collect;
