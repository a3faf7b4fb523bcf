//! What every object carries: its name, its labels, its owners.

use crate::map::Map;
use crate::meta::Time;
use crate::object::object;
use crate::text::Text;

object! {
    /// What every object carries. `managedFields` is read past: nothing here asks who set which field, and it is the
    /// larger half of many objects.
    pub struct ObjectMeta {
        name: Text = "name",
        generate_name: Text = "generateName",
        namespace: Text = "namespace",
        self_link: Text = "selfLink",
        uid: Text = "uid",
        resource_version: Text = "resourceVersion",
        generation: i64 = "generation",
        creation_timestamp: Option<Time> = "creationTimestamp",
        deletion_timestamp: Option<Time> = "deletionTimestamp",
        deletion_grace_period_seconds: Option<i64> = "deletionGracePeriodSeconds",
        labels: Map<Text> = "labels",
        annotations: Map<Text> = "annotations",
        owner_references: Box<[OwnerReference]> = "ownerReferences",
        finalizers: Box<[Text]> = "finalizers",
        _ = "managedFields",
    }
}

object! {
    /// An object of any kind, of which only the metadata is told. What else there is, is read past.
    pub struct PartialObjectMetadata {
        metadata: ObjectMeta = "metadata",
    }
}

object! {
    /// An object that this one belongs to, and with which it is deleted.
    pub struct OwnerReference {
        api_version: Text = "apiVersion" always,
        kind: Text = "kind" always,
        name: Text = "name" always,
        uid: Text = "uid" always,
        controller: Option<bool> = "controller",
        block_owner_deletion: Option<bool> = "blockOwnerDeletion",
    }
}
