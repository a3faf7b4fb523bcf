//! [`PersistentVolume`] and [`PersistentVolumeClaim`]: storage that outlives pods, and who may use it.

use crate::map::Map;
use crate::meta::{ObjectMeta, Time};
use crate::object::{object, words};
use crate::one_of::{OneOf, one_of};
use crate::text::Text;

use super::{
    AWSElasticBlockStoreVolumeSource, AzureDiskVolumeSource, AzureFileVolumeSource, CephFSVolumeSource,
    CinderVolumeSource, FCVolumeSource, FlexVolumeSource, FlockerVolumeSource, GCEPersistentDiskVolumeSource,
    GlusterfsVolumeSource, HostPathVolumeSource, ISCSIVolumeSource, NFSVolumeSource, NodeSelector,
    ObjectReference, PersistentVolumeAccessMode, PersistentVolumeClaimSpec, PersistentVolumeMode,
    PhotonPersistentDiskVolumeSource, PortworxVolumeSource, QuobyteVolumeSource, RBDVolumeSource,
    ResourceList, ScaleIOVolumeSource, SecretReference, StorageOSVolumeSource,
    VsphereVirtualDiskVolumeSource,
};

object! {
    /// A piece of storage.
    pub struct PersistentVolume: "v1" "PersistentVolume" {
        metadata: ObjectMeta = "metadata",
        spec: PersistentVolumeSpec = "spec",
        status: PersistentVolumeStatus = "status",
    }
}

object! {
    /// What a piece of storage is.
    pub struct PersistentVolumeSpec {
        capacity: ResourceList = "capacity",
        access_modes: Box<[PersistentVolumeAccessMode]> = "accessModes",
        claim_ref: Option<Box<ObjectReference>> = "claimRef",
        persistent_volume_reclaim_policy: Text = "persistentVolumeReclaimPolicy",
        storage_class_name: Text = "storageClassName",
        mount_options: Box<[Text]> = "mountOptions",
        volume_mode: Option<PersistentVolumeMode> = "volumeMode",
        node_affinity: Option<Box<VolumeNodeAffinity>> = "nodeAffinity",
        volume_attributes_class_name: Option<Text> = "volumeAttributesClassName",
        .. source: OneOf<PersistentVolumeSource>,
    }
}

one_of! {
    /// Where a piece of storage is. Of what no plugin is there for, only the kind is of interest.
    pub enum PersistentVolumeSource {
        HostPath(HostPathVolumeSource) = "hostPath",
        Nfs(NFSVolumeSource) = "nfs",
        Local(LocalVolumeSource) = "local",
        Csi(CSIPersistentVolumeSource) = "csi",
        GcePersistentDisk(GCEPersistentDiskVolumeSource) = "gcePersistentDisk",
        AwsElasticBlockStore(AWSElasticBlockStoreVolumeSource) = "awsElasticBlockStore",
        Glusterfs(GlusterfsVolumeSource) = "glusterfs",
        Rbd(RBDVolumeSource) = "rbd",
        Iscsi(ISCSIVolumeSource) = "iscsi",
        Cinder(CinderVolumeSource) = "cinder",
        CephFs(CephFSVolumeSource) = "cephfs",
        Fc(FCVolumeSource) = "fc",
        Flocker(FlockerVolumeSource) = "flocker",
        FlexVolume(FlexVolumeSource) = "flexVolume",
        AzureFile(AzureFileVolumeSource) = "azureFile",
        VsphereVolume(VsphereVirtualDiskVolumeSource) = "vsphereVolume",
        Quobyte(QuobyteVolumeSource) = "quobyte",
        AzureDisk(AzureDiskVolumeSource) = "azureDisk",
        PhotonPersistentDisk(PhotonPersistentDiskVolumeSource) = "photonPersistentDisk",
        PortworxVolume(PortworxVolumeSource) = "portworxVolume",
        ScaleIo(ScaleIOVolumeSource) = "scaleIO",
        StorageOs(StorageOSVolumeSource) = "storageos",
    }
}

object! {
    /// A directory, a disk or a partition of one node.
    pub struct LocalVolumeSource {
        path: Text = "path" always,
        fs_type: Option<Text> = "fsType",
    }
}

object! {
    /// Storage that a CSI driver has.
    pub struct CSIPersistentVolumeSource {
        driver: Text = "driver" always,
        volume_handle: Text = "volumeHandle" always,
        read_only: bool = "readOnly",
        fs_type: Text = "fsType",
        volume_attributes: Map<Text> = "volumeAttributes",
        controller_publish_secret_ref: Option<SecretReference> = "controllerPublishSecretRef",
        node_stage_secret_ref: Option<SecretReference> = "nodeStageSecretRef",
        node_publish_secret_ref: Option<SecretReference> = "nodePublishSecretRef",
        controller_expand_secret_ref: Option<SecretReference> = "controllerExpandSecretRef",
        node_expand_secret_ref: Option<SecretReference> = "nodeExpandSecretRef",
    }
}

object! {
    /// The nodes that can reach a piece of storage.
    pub struct VolumeNodeAffinity {
        required: Option<NodeSelector> = "required",
    }
}

object! {
    /// How a piece of storage is.
    pub struct PersistentVolumeStatus {
        phase: Option<PersistentVolumePhase> = "phase",
        message: Text = "message",
        reason: Text = "reason",
        last_phase_transition_time: Option<Time> = "lastPhaseTransitionTime",
    }
}

words! {
    /// Whether somebody has a piece of storage.
    pub enum PersistentVolumePhase {
        Pending = "Pending",
        Available = "Available",
        Bound = "Bound",
        Released = "Released",
        Failed = "Failed",
    }
}

object! {
    /// A claim to a piece of storage, by which pods use it.
    pub struct PersistentVolumeClaim: "v1" "PersistentVolumeClaim" {
        metadata: ObjectMeta = "metadata",
        spec: PersistentVolumeClaimSpec = "spec",
        status: PersistentVolumeClaimStatus = "status",
    }
}

object! {
    /// What became of a claim.
    pub struct PersistentVolumeClaimStatus {
        phase: Option<PersistentVolumeClaimPhase> = "phase",
        access_modes: Box<[PersistentVolumeAccessMode]> = "accessModes",
        capacity: ResourceList = "capacity",
        conditions: Box<[PersistentVolumeClaimCondition]> = "conditions",
        allocated_resources: ResourceList = "allocatedResources",
        allocated_resource_statuses: Map<Text> = "allocatedResourceStatuses",
    }
}

words! {
    /// Whether a claim has a piece of storage.
    pub enum PersistentVolumeClaimPhase {
        Pending = "Pending",
        Bound = "Bound",
        Lost = "Lost",
    }
}

object! {
    /// Something that is so of a claim, or not.
    pub struct PersistentVolumeClaimCondition {
        r#type: Text = "type" always,
        status: Text = "status" always,
        last_probe_time: Option<Time> = "lastProbeTime",
        last_transition_time: Option<Time> = "lastTransitionTime",
        reason: Text = "reason",
        message: Text = "message",
    }
}
