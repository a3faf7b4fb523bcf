//! Volumes of particular storage systems. Most have moved out to CSI drivers; the types remain.

use crate::map::Map;
use crate::object::{object, words};
use crate::text::Text;

use super::LocalObjectReference;

object! {
    /// A directory on an NFS server.
    pub struct NFSVolumeSource {
        server: Text = "server" always,
        path: Text = "path" always,
        read_only: bool = "readOnly",
    }
}

object! {
    /// An iSCSI disk.
    pub struct ISCSIVolumeSource {
        target_portal: Text = "targetPortal" always,
        iqn: Text = "iqn" always,
        lun: i32 = "lun" always,
        iscsi_interface: Text = "iscsiInterface",
        fs_type: Text = "fsType",
        read_only: bool = "readOnly",
        portals: Box<[Text]> = "portals",
        chap_auth_discovery: bool = "chapAuthDiscovery",
        chap_auth_session: bool = "chapAuthSession",
        secret_ref: Option<LocalObjectReference> = "secretRef",
        initiator_name: Option<Text> = "initiatorName",
    }
}

object! {
    /// A Fibre Channel disk.
    pub struct FCVolumeSource {
        target_wwns: Box<[Text]> = "targetWWNs",
        lun: Option<i32> = "lun",
        fs_type: Text = "fsType",
        read_only: bool = "readOnly",
        wwids: Box<[Text]> = "wwids",
    }
}

object! {
    /// A volume made by an executable.
    pub struct FlexVolumeSource {
        driver: Text = "driver" always,
        fs_type: Text = "fsType",
        secret_ref: Option<LocalObjectReference> = "secretRef",
        read_only: bool = "readOnly",
        options: Map<Text> = "options",
    }
}

object! {
    /// A clone of a Git repository.
    pub struct GitRepoVolumeSource {
        repository: Text = "repository" always,
        revision: Text = "revision",
        directory: Text = "directory",
    }
}

object! {
    /// A Google Compute Engine disk.
    pub struct GCEPersistentDiskVolumeSource {
        pd_name: Text = "pdName" always,
        fs_type: Text = "fsType",
        partition: i32 = "partition",
        read_only: bool = "readOnly",
    }
}

object! {
    /// An AWS disk.
    pub struct AWSElasticBlockStoreVolumeSource {
        volume_id: Text = "volumeID" always,
        fs_type: Text = "fsType",
        partition: i32 = "partition",
        read_only: bool = "readOnly",
    }
}

object! {
    /// An Azure file share.
    pub struct AzureFileVolumeSource {
        secret_name: Text = "secretName" always,
        share_name: Text = "shareName" always,
        read_only: bool = "readOnly",
    }
}

object! {
    /// An Azure disk.
    pub struct AzureDiskVolumeSource {
        disk_name: Text = "diskName" always,
        disk_uri: Text = "diskURI" always,
        caching_mode: Option<AzureDataDiskCachingMode> = "cachingMode",
        fs_type: Option<Text> = "fsType",
        read_only: Option<bool> = "readOnly",
        kind: Option<AzureDataDiskKind> = "kind",
    }
}

object! {
    /// An OpenStack disk.
    pub struct CinderVolumeSource {
        volume_id: Text = "volumeID" always,
        fs_type: Text = "fsType",
        read_only: bool = "readOnly",
        secret_ref: Option<LocalObjectReference> = "secretRef",
    }
}

object! {
    /// A vSphere disk.
    pub struct VsphereVirtualDiskVolumeSource {
        volume_path: Text = "volumePath" always,
        fs_type: Text = "fsType",
        storage_policy_name: Text = "storagePolicyName",
        storage_policy_id: Text = "storagePolicyID",
    }
}

object! {
    /// A Gluster volume.
    pub struct GlusterfsVolumeSource {
        endpoints: Text = "endpoints" always,
        path: Text = "path" always,
        read_only: bool = "readOnly",
    }
}

object! {
    /// A directory on CephFS.
    pub struct CephFSVolumeSource {
        monitors: Box<[Text]> = "monitors" always,
        path: Text = "path",
        user: Text = "user",
        secret_file: Text = "secretFile",
        secret_ref: Option<LocalObjectReference> = "secretRef",
        read_only: bool = "readOnly",
    }
}

object! {
    /// A Ceph block device.
    pub struct RBDVolumeSource {
        monitors: Box<[Text]> = "monitors" always,
        image: Text = "image" always,
        fs_type: Text = "fsType",
        pool: Text = "pool",
        user: Text = "user",
        keyring: Text = "keyring",
        secret_ref: Option<LocalObjectReference> = "secretRef",
        read_only: bool = "readOnly",
    }
}

object! {
    /// A Quobyte volume.
    pub struct QuobyteVolumeSource {
        registry: Text = "registry" always,
        volume: Text = "volume" always,
        read_only: bool = "readOnly",
        user: Text = "user",
        group: Text = "group",
        tenant: Text = "tenant",
    }
}

object! {
    /// A Flocker volume.
    pub struct FlockerVolumeSource {
        dataset_name: Text = "datasetName",
        dataset_uuid: Text = "datasetUUID",
    }
}

object! {
    /// A Photon Controller disk.
    pub struct PhotonPersistentDiskVolumeSource {
        pd_id: Text = "pdID" always,
        fs_type: Text = "fsType",
    }
}

object! {
    /// A Portworx volume.
    pub struct PortworxVolumeSource {
        volume_id: Text = "volumeID" always,
        fs_type: Text = "fsType",
        read_only: bool = "readOnly",
    }
}

object! {
    /// A ScaleIO volume.
    pub struct ScaleIOVolumeSource {
        gateway: Text = "gateway" always,
        system: Text = "system" always,
        secret_ref: Option<LocalObjectReference> = "secretRef" always,
        ssl_enabled: bool = "sslEnabled",
        protection_domain: Text = "protectionDomain",
        storage_pool: Text = "storagePool",
        storage_mode: Text = "storageMode",
        volume_name: Text = "volumeName",
        fs_type: Text = "fsType",
        read_only: bool = "readOnly",
    }
}

object! {
    /// A StorageOS volume.
    pub struct StorageOSVolumeSource {
        volume_name: Text = "volumeName",
        volume_namespace: Text = "volumeNamespace",
        fs_type: Text = "fsType",
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
