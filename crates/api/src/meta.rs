//! `meta/v1`: what objects of every group have in common.

mod condition;
mod delete_options;
mod label_selector;
mod list;
mod object_meta;
mod status;
mod time;
mod watch;

pub use condition::*;
pub use delete_options::*;
pub use label_selector::*;
pub use list::*;
pub use object_meta::*;
pub use status::*;
pub use time::*;
pub use watch::*;
