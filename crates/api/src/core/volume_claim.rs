//! The claim to a persistent volume that a pod brings with it.

use crate::meta::{LabelSelector, ObjectMeta};
use crate::object::{object, words};
use crate::text::Text;

use super::{ResourceList, TypedLocalObjectReference, TypedObjectReference};

object! {
    /// A claim that is made for a pod.
    pub struct PersistentVolumeClaimTemplate {
        metadata: ObjectMeta = "metadata",
        spec: PersistentVolumeClaimSpec = "spec",
    }
}

object! {
    /// What is asked of a persistent volume.
    pub struct PersistentVolumeClaimSpec {
        access_modes: Box<[PersistentVolumeAccessMode]> = "accessModes",
        selector: Option<Box<LabelSelector>> = "selector",
        resources: VolumeResourceRequirements = "resources",
        volume_name: Text = "volumeName",
        storage_class_name: Option<Text> = "storageClassName",
        volume_mode: Option<PersistentVolumeMode> = "volumeMode",
        data_source: Option<Box<TypedLocalObjectReference>> = "dataSource",
        data_source_ref: Option<Box<TypedObjectReference>> = "dataSourceRef",
        volume_attributes_class_name: Option<Text> = "volumeAttributesClassName",
    }
}

object! {
    /// How large a volume is to be.
    pub struct VolumeResourceRequirements {
        limits: ResourceList = "limits",
        requests: ResourceList = "requests",
    }
}

words! {
    /// How many nodes may use a volume, and for what.
    pub enum PersistentVolumeAccessMode {
        ReadWriteOnce = "ReadWriteOnce",
        ReadOnlyMany = "ReadOnlyMany",
        ReadWriteMany = "ReadWriteMany",
        ReadWriteOncePod = "ReadWriteOncePod",
    }
}

words! {
    /// Whether a volume is a file system or a bare device.
    pub enum PersistentVolumeMode {
        Block = "Block",
        Filesystem = "Filesystem",
    }
}
