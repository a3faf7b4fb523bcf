//! `node.k8s.io/v1`: the ways in which a node can run containers.

use crate::core::{ResourceList, Toleration};
use crate::map::Map;
use crate::meta::ObjectMeta;
use crate::object::object;
use crate::text::Text;

object! {
    /// A way to run containers that pods may choose.
    pub struct RuntimeClass: "node.k8s.io/v1" "RuntimeClass" {
        metadata: ObjectMeta = "metadata",
        handler: Text = "handler" always,
        overhead: Option<Box<Overhead>> = "overhead",
        scheduling: Option<Box<Scheduling>> = "scheduling",
    }
}

object! {
    /// What a pod takes beside its containers.
    pub struct Overhead {
        pod_fixed: ResourceList = "podFixed",
    }
}

object! {
    /// Which nodes have this way.
    pub struct Scheduling {
        node_selector: Map<Text> = "nodeSelector",
        tolerations: Box<[Toleration]> = "tolerations",
    }
}
