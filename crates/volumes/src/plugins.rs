//! The kinds of volumes that need nobody but the node.

mod downward_api;
mod empty_dir;
mod files;
mod host_path;
mod image;
mod projected;

pub use downward_api::DownwardApi;
pub use empty_dir::EmptyDir;
pub use files::show;
pub use host_path::HostPath;
pub use image::Image;
pub use projected::Projected;
