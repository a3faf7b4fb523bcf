//! Volumes of particular storage systems. Most have moved out to CSI drivers; the types remain.

use crate::map::Map;
use crate::object::{object, words};

use super::LocalObjectReference;

object! {
    /// A directory on an NFS server.
    pub struct NFSVolumeSource {
        server: Box<str> = "server" always,
        path: Box<str> = "path" always,
        read_only: bool = "readOnly",
    }
}

object! {
    /// An iSCSI disk.
    pub struct ISCSIVolumeSource {
        target_portal: Box<str> = "targetPortal" always,
        iqn: Box<str> = "iqn" always,
        lun: i32 = "lun" always,
        iscsi_interface: Box<str> = "iscsiInterface",
        fs_type: Box<str> = "fsType",
        read_only: bool = "readOnly",
        portals: Box<[Box<str>]> = "portals",
        chap_auth_discovery: bool = "chapAuthDiscovery",
        chap_auth_session: bool = "chapAuthSession",
        secret_ref: Option<LocalObjectReference> = "secretRef",
        initiator_name: Option<Box<str>> = "initiatorName",
    }
}

object! {
    /// A Fibre Channel disk.
    pub struct FCVolumeSource {
        target_wwns: Box<[Box<str>]> = "targetWWNs",
        lun: Option<i32> = "lun",
        fs_type: Box<str> = "fsType",
        read_only: bool = "readOnly",
        wwids: Box<[Box<str>]> = "wwids",
    }
}

object! {
    /// A volume made by an executable.
    pub struct FlexVolumeSource {
        driver: Box<str> = "driver" always,
        fs_type: Box<str> = "fsType",
        secret_ref: Option<LocalObjectReference> = "secretRef",
        read_only: bool = "readOnly",
        options: Map<Box<str>> = "options",
    }
}

object! {
    /// A clone of a Git repository.
    pub struct GitRepoVolumeSource {
        repository: Box<str> = "repository" always,
        revision: Box<str> = "revision",
        directory: Box<str> = "directory",
    }
}

object! {
    /// A Google Compute Engine disk.
    pub struct GCEPersistentDiskVolumeSource {
        pd_name: Box<str> = "pdName" always,
        fs_type: Box<str> = "fsType",
        partition: i32 = "partition",
        read_only: bool = "readOnly",
    }
}

object! {
    /// An AWS disk.
    pub struct AWSElasticBlockStoreVolumeSource {
        volume_id: Box<str> = "volumeID" always,
        fs_type: Box<str> = "fsType",
        partition: i32 = "partition",
        read_only: bool = "readOnly",
    }
}

object! {
    /// An Azure file share.
    pub struct AzureFileVolumeSource {
        secret_name: Box<str> = "secretName" always,
        share_name: Box<str> = "shareName" always,
        read_only: bool = "readOnly",
    }
}

object! {
    /// An Azure disk.
    pub struct AzureDiskVolumeSource {
        disk_name: Box<str> = "diskName" always,
        disk_uri: Box<str> = "diskURI" always,
        caching_mode: Option<AzureDataDiskCachingMode> = "cachingMode",
        fs_type: Option<Box<str>> = "fsType",
        read_only: Option<bool> = "readOnly",
        kind: Option<AzureDataDiskKind> = "kind",
    }
}

object! {
    /// An OpenStack disk.
    pub struct CinderVolumeSource {
        volume_id: Box<str> = "volumeID" always,
        fs_type: Box<str> = "fsType",
        read_only: bool = "readOnly",
        secret_ref: Option<LocalObjectReference> = "secretRef",
    }
}

object! {
    /// A vSphere disk.
    pub struct VsphereVirtualDiskVolumeSource {
        volume_path: Box<str> = "volumePath" always,
        fs_type: Box<str> = "fsType",
        storage_policy_name: Box<str> = "storagePolicyName",
        storage_policy_id: Box<str> = "storagePolicyID",
    }
}

object! {
    /// A Gluster volume.
    pub struct GlusterfsVolumeSource {
        endpoints: Box<str> = "endpoints" always,
        path: Box<str> = "path" always,
        read_only: bool = "readOnly",
    }
}

object! {
    /// A directory on CephFS.
    pub struct CephFSVolumeSource {
        monitors: Box<[Box<str>]> = "monitors" always,
        path: Box<str> = "path",
        user: Box<str> = "user",
        secret_file: Box<str> = "secretFile",
        secret_ref: Option<LocalObjectReference> = "secretRef",
        read_only: bool = "readOnly",
    }
}

object! {
    /// A Ceph block device.
    pub struct RBDVolumeSource {
        monitors: Box<[Box<str>]> = "monitors" always,
        image: Box<str> = "image" always,
        fs_type: Box<str> = "fsType",
        pool: Box<str> = "pool",
        user: Box<str> = "user",
        keyring: Box<str> = "keyring",
        secret_ref: Option<LocalObjectReference> = "secretRef",
        read_only: bool = "readOnly",
    }
}

object! {
    /// A Quobyte volume.
    pub struct QuobyteVolumeSource {
        registry: Box<str> = "registry" always,
        volume: Box<str> = "volume" always,
        read_only: bool = "readOnly",
        user: Box<str> = "user",
        group: Box<str> = "group",
        tenant: Box<str> = "tenant",
    }
}

object! {
    /// A Flocker volume.
    pub struct FlockerVolumeSource {
        dataset_name: Box<str> = "datasetName",
        dataset_uuid: Box<str> = "datasetUUID",
    }
}

object! {
    /// A Photon Controller disk.
    pub struct PhotonPersistentDiskVolumeSource {
        pd_id: Box<str> = "pdID" always,
        fs_type: Box<str> = "fsType",
    }
}

object! {
    /// A Portworx volume.
    pub struct PortworxVolumeSource {
        volume_id: Box<str> = "volumeID" always,
        fs_type: Box<str> = "fsType",
        read_only: bool = "readOnly",
    }
}

object! {
    /// A ScaleIO volume.
    pub struct ScaleIOVolumeSource {
        gateway: Box<str> = "gateway" always,
        system: Box<str> = "system" always,
        secret_ref: Option<LocalObjectReference> = "secretRef" always,
        ssl_enabled: bool = "sslEnabled",
        protection_domain: Box<str> = "protectionDomain",
        storage_pool: Box<str> = "storagePool",
        storage_mode: Box<str> = "storageMode",
        volume_name: Box<str> = "volumeName",
        fs_type: Box<str> = "fsType",
        read_only: bool = "readOnly",
    }
}

object! {
    /// A StorageOS volume.
    pub struct StorageOSVolumeSource {
        volume_name: Box<str> = "volumeName",
        volume_namespace: Box<str> = "volumeNamespace",
        fs_type: Box<str> = "fsType",
        read_only: bool = "readOnly",
        secret_ref: Option<LocalObjectReference> = "secretRef",
    }
}

words! {
    /// How an Azure disk is cached.
    pub enum AzureDataDiskCachingMode {
        None = "None",
        ReadOnly = "ReadOnly",
        ReadWrite = "ReadWrite",
    }
}

words! {
    /// What kind of Azure disk it is.
    pub enum AzureDataDiskKind {
        Shared = "Shared",
        Dedicated = "Dedicated",
        Managed = "Managed",
    }
}
