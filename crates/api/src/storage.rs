//! `storage.k8s.io/v1`: what nodes and drivers say of volumes.

use crate::map::Map;
use crate::meta::{ObjectMeta, Time};
use crate::object::{object, words};
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

object! {
    /// A CSI driver of the cluster, and what it needs of nodes.
    pub struct CsiDriver: "storage.k8s.io/v1" "CSIDriver" {
        metadata: ObjectMeta = "metadata",
        spec: CsiDriverSpec = "spec" always,
    }
}

object! {
    /// What a driver needs.
    pub struct CsiDriverSpec {
        attach_required: Option<bool> = "attachRequired",
        pod_info_on_mount: Option<bool> = "podInfoOnMount",
        volume_lifecycle_modes: Box<[VolumeLifecycleMode]> = "volumeLifecycleModes",
        storage_capacity: Option<bool> = "storageCapacity",
        fs_group_policy: Option<FsGroupPolicy> = "fsGroupPolicy",
        token_requests: Box<[StorageTokenRequest]> = "tokenRequests",
        requires_republish: Option<bool> = "requiresRepublish",
        se_linux_mount: Option<bool> = "seLinuxMount",
        node_allocatable_update_period_seconds: Option<i64> = "nodeAllocatableUpdatePeriodSeconds",
        service_account_token_in_secrets: Option<bool> = "serviceAccountTokenInSecrets",
    }
}

words! {
    /// Whether volumes of a driver outlive pods.
    pub enum VolumeLifecycleMode {
        Persistent = "Persistent",
        Ephemeral = "Ephemeral",
    }
}

words! {
    /// Which volumes of a driver are given to a pod's group by the node.
    pub enum FsGroupPolicy {
        ReadWriteOnceWithFSType = "ReadWriteOnceWithFSType",
        File = "File",
        None = "None",
    }
}

object! {
    /// A token that a driver wants of each pod.
    pub struct StorageTokenRequest {
        audience: Text = "audience" always,
        expiration_seconds: Option<i64> = "expirationSeconds",
    }
}

object! {
    /// That a volume is, or is to be, attached to a node.
    pub struct VolumeAttachment: "storage.k8s.io/v1" "VolumeAttachment" {
        metadata: ObjectMeta = "metadata",
        spec: VolumeAttachmentSpec = "spec" always,
        status: VolumeAttachmentStatus = "status",
    }
}

object! {
    pub struct VolumeAttachmentSpec {
        attacher: Text = "attacher" always,
        source: VolumeAttachmentSource = "source" always,
        node_name: Text = "nodeName" always,
    }
}

object! {
    pub struct VolumeAttachmentSource {
        persistent_volume_name: Option<Text> = "persistentVolumeName",
    }
}

object! {
    /// Whether it is attached, and what came of that.
    pub struct VolumeAttachmentStatus {
        attached: bool = "attached" always,
        attachment_metadata: Map<Text> = "attachmentMetadata",
        attach_error: Option<Box<VolumeAttachmentError>> = "attachError",
        detach_error: Option<Box<VolumeAttachmentError>> = "detachError",
    }
}

object! {
    pub struct VolumeAttachmentError {
        time: Option<Time> = "time",
        message: Text = "message",
        error_code: Option<i32> = "errorCode",
    }
}
