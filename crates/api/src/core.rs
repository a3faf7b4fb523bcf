//! `v1`: pods, nodes and what they are made of.

mod affinity;
mod all_containers;
mod config_map;
mod container;
mod container_status;
mod env;
mod event;
mod node;
mod pod;
mod pod_identity;
mod pod_status;
mod probe;
mod projected;
mod reference;
mod resources;
mod secret;
mod security;
mod service;
mod toleration;
mod volume;
mod volume_claim;
mod volume_in_tree;

pub use affinity::*;
pub use config_map::*;
pub use container::*;
pub use container_status::*;
pub use env::*;
pub use event::*;
pub use node::*;
pub use pod::*;
pub use pod_identity::*;
pub use pod_status::*;
pub use probe::*;
pub use projected::*;
pub use reference::*;
pub use resources::*;
pub use secret::*;
pub use security::*;
pub use service::*;
pub use toleration::*;
pub use volume::*;
pub use volume_claim::*;
pub use volume_in_tree::*;

pub use crate::taint::{Taint, TaintEffect};
