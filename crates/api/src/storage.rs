//! `storage.k8s.io/v1`: what nodes and drivers say of volumes.

use crate::meta::ObjectMeta;
use crate::object::object;
use crate::text::Text;

object! {
    /// Which CSI drivers a node has.
    pub struct CsiNode: "storage.k8s.io/v1" "CSINode" {
        metadata: ObjectMeta = "metadata",
        spec: CsiNodeSpec = "spec" always,
    }
}

object! {
    pub struct CsiNodeSpec {
        drivers: Box<[CsiNodeDriver]> = "drivers" always,
    }
}

object! {
    /// A driver, and what it calls the node.
    pub struct CsiNodeDriver {
        name: Text = "name" always,
        node_id: Text = "nodeID" always,
        topology_keys: Box<[Text]> = "topologyKeys" always,
        allocatable: Option<VolumeNodeResources> = "allocatable",
    }
}

object! {
    /// How many volumes of a driver a node can have.
    pub struct VolumeNodeResources {
        count: Option<i32> = "count",
    }
}
