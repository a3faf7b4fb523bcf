//! [`Volume`]: files or a device that the containers of a pod share.

use crate::Quantity;
use crate::map::Map;
use crate::object::{object, words};
use crate::one_of::{OneOf, one_of};
use crate::text::Text;

use super::{
    AWSElasticBlockStoreVolumeSource, AzureDiskVolumeSource, AzureFileVolumeSource, CephFSVolumeSource,
    CinderVolumeSource, FCVolumeSource, FlexVolumeSource, FlockerVolumeSource, GCEPersistentDiskVolumeSource,
    GitRepoVolumeSource, GlusterfsVolumeSource, ISCSIVolumeSource, LocalObjectReference, NFSVolumeSource,
    ObjectFieldSelector, PersistentVolumeClaimTemplate, PhotonPersistentDiskVolumeSource,
    PortworxVolumeSource, ProjectedVolumeSource, PullPolicy, QuobyteVolumeSource, RBDVolumeSource,
    ResourceFieldSelector, ScaleIOVolumeSource, StorageOSVolumeSource, VsphereVirtualDiskVolumeSource,
};

object! {
    /// Files or a device that the containers of a pod can mount.
    pub struct Volume {
        name: Text = "name" always,
        .. source: OneOf<VolumeSource>,
    }
}

one_of! {
    /// Where the content of a volume comes from.
    pub enum VolumeSource {
        HostPath(HostPathVolumeSource) = "hostPath",
        EmptyDir(EmptyDirVolumeSource) = "emptyDir",
        GcePersistentDisk(GCEPersistentDiskVolumeSource) = "gcePersistentDisk",
        AwsElasticBlockStore(AWSElasticBlockStoreVolumeSource) = "awsElasticBlockStore",
        GitRepo(GitRepoVolumeSource) = "gitRepo",
        Secret(SecretVolumeSource) = "secret",
        Nfs(NFSVolumeSource) = "nfs",
        Iscsi(ISCSIVolumeSource) = "iscsi",
        Glusterfs(GlusterfsVolumeSource) = "glusterfs",
        PersistentVolumeClaim(PersistentVolumeClaimVolumeSource) = "persistentVolumeClaim",
        Rbd(RBDVolumeSource) = "rbd",
        FlexVolume(FlexVolumeSource) = "flexVolume",
        Cinder(CinderVolumeSource) = "cinder",
        CephFs(CephFSVolumeSource) = "cephfs",
        Flocker(FlockerVolumeSource) = "flocker",
        DownwardApi(DownwardAPIVolumeSource) = "downwardAPI",
        Fc(FCVolumeSource) = "fc",
        AzureFile(AzureFileVolumeSource) = "azureFile",
        ConfigMap(ConfigMapVolumeSource) = "configMap",
        VsphereVolume(VsphereVirtualDiskVolumeSource) = "vsphereVolume",
        Quobyte(QuobyteVolumeSource) = "quobyte",
        AzureDisk(AzureDiskVolumeSource) = "azureDisk",
        PhotonPersistentDisk(PhotonPersistentDiskVolumeSource) = "photonPersistentDisk",
        Projected(ProjectedVolumeSource) = "projected",
        PortworxVolume(PortworxVolumeSource) = "portworxVolume",
        ScaleIo(ScaleIOVolumeSource) = "scaleIO",
        StorageOs(StorageOSVolumeSource) = "storageos",
        Csi(CSIVolumeSource) = "csi",
        Ephemeral(EphemeralVolumeSource) = "ephemeral",
        Image(ImageVolumeSource) = "image",
    }
}

object! {
    /// A file or directory of the node.
    pub struct HostPathVolumeSource {
        path: Text = "path" always,
        r#type: Option<HostPathType> = "type",
    }
}

object! {
    /// A directory that lives as long as the pod.
    pub struct EmptyDirVolumeSource {
        medium: Option<StorageMedium> = "medium" word,
        size_limit: Option<Quantity> = "sizeLimit",
    }
}

object! {
    /// The keys of a secret, as files.
    pub struct SecretVolumeSource {
        secret_name: Text = "secretName",
        items: Box<[KeyToPath]> = "items",
        default_mode: Option<i32> = "defaultMode",
        optional: Option<bool> = "optional",
    }
}

object! {
    /// The keys of a config map, as files.
    pub struct ConfigMapVolumeSource {
        name: Text = "name",
        items: Box<[KeyToPath]> = "items",
        default_mode: Option<i32> = "defaultMode",
        optional: Option<bool> = "optional",
    }
}

object! {
    /// Which key becomes which file.
    pub struct KeyToPath {
        key: Text = "key" always,
        path: Text = "path" always,
        mode: Option<i32> = "mode",
    }
}

object! {
    /// Facts about the pod, as files.
    pub struct DownwardAPIVolumeSource {
        items: Box<[DownwardAPIVolumeFile]> = "items",
        default_mode: Option<i32> = "defaultMode",
    }
}

object! {
    /// One fact about the pod, as a file.
    pub struct DownwardAPIVolumeFile {
        path: Text = "path" always,
        field_ref: Option<Box<ObjectFieldSelector>> = "fieldRef",
        resource_field_ref: Option<Box<ResourceFieldSelector>> = "resourceFieldRef",
        mode: Option<i32> = "mode",
    }
}

object! {
    /// A claim to a persistent volume.
    pub struct PersistentVolumeClaimVolumeSource {
        claim_name: Text = "claimName" always,
        read_only: bool = "readOnly",
    }
}

object! {
    /// A volume that a CSI driver makes for this pod alone.
    pub struct CSIVolumeSource {
        driver: Text = "driver" always,
        read_only: Option<bool> = "readOnly",
        fs_type: Option<Text> = "fsType",
        volume_attributes: Map<Text> = "volumeAttributes",
        node_publish_secret_ref: Option<LocalObjectReference> = "nodePublishSecretRef",
    }
}

object! {
    /// A persistent volume that lives as long as the pod.
    pub struct EphemeralVolumeSource {
        volume_claim_template: Option<Box<PersistentVolumeClaimTemplate>> = "volumeClaimTemplate",
    }
}

object! {
    /// The content of an image.
    pub struct ImageVolumeSource {
        reference: Text = "reference",
        pull_policy: Option<PullPolicy> = "pullPolicy" word,
    }
}

words! {
    /// What a path on the node must be.
    pub enum HostPathType {
        Unset = "",
        DirectoryOrCreate = "DirectoryOrCreate",
        Directory = "Directory",
        FileOrCreate = "FileOrCreate",
        File = "File",
        Socket = "Socket",
        CharDevice = "CharDevice",
        BlockDevice = "BlockDevice",
    }
}

words! {
    /// What an empty directory is kept on.
    pub enum StorageMedium {
        Memory = "Memory",
        HugePages = "HugePages",
    }
}
