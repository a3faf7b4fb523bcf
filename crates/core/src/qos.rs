//! How a pod is treated when resources run short, and how much it asks for in all.

mod class;
mod resources;

pub use class::{is_critical, is_node_critical, is_static, qos_class, qos_class_for_status};
pub use crablet_cgroup_names::QosClass;
pub use resources::{
    Overhead, PodLevel, aggregated_requests, pod_level_resources_set, pod_limits, pod_requests, quantity,
};
