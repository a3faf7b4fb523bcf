//! Kinds of volumes that are refused: what has a CSI driver is the driver's.

/// A driver that has volumes of a kind, by what manifests call it. Upstream makes the clouds' own kinds volumes of their
/// drivers; here, whoever writes a manifest does.
pub(crate) fn driver_for(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "awsElasticBlockStore" => "ebs.csi.aws.com",
        "azureDisk" => "disk.csi.azure.com",
        "azureFile" => "file.csi.azure.com",
        "cephfs" => "cephfs.csi.ceph.com",
        "cinder" => "cinder.csi.openstack.org",
        "fc" => "fc.csi.k8s.io",
        "flexVolume" => "that of its vendor",
        "gcePersistentDisk" => "pd.csi.storage.gke.io",
        "glusterfs" => "org.gluster.glusterfs",
        "iscsi" => "iscsi.csi.k8s.io",
        "photonPersistentDisk" | "vsphereVolume" => "csi.vsphere.vmware.com",
        "portworxVolume" => "pxd.portworx.com",
        "quobyte" => "csi.quobyte.com",
        "rbd" => "rbd.csi.ceph.com",
        "scaleIO" => "csi-vxflexos.dellemc.com",
        "storageos" => "csi.storageos.com",
        _ => return None,
    })
}
