//! What every object carries: its name, its labels, its owners.

use crate::map::Map;
use crate::meta::Time;
use crate::object::object;

object! {
    /// What every object carries. `managedFields` is read past: nothing here asks who set which field, and it is the
    /// larger half of many objects.
    pub struct ObjectMeta {
        name: Box<str> = "name",
        generate_name: Box<str> = "generateName",
        namespace: Box<str> = "namespace",
        self_link: Box<str> = "selfLink",
        uid: Box<str> = "uid",
        resource_version: Box<str> = "resourceVersion",
        generation: i64 = "generation",
        creation_timestamp: Option<Time> = "creationTimestamp",
        deletion_timestamp: Option<Time> = "deletionTimestamp",
        deletion_grace_period_seconds: Option<i64> = "deletionGracePeriodSeconds",
        labels: Map<Box<str>> = "labels",
        annotations: Map<Box<str>> = "annotations",
        owner_references: Box<[OwnerReference]> = "ownerReferences",
        finalizers: Box<[Box<str>]> = "finalizers",
        _ = "managedFields",
    }
}

object! {
    /// An object that this one belongs to, and with which it is deleted.
    pub struct OwnerReference {
        api_version: Box<str> = "apiVersion" always,
        kind: Box<str> = "kind" always,
        name: Box<str> = "name" always,
        uid: Box<str> = "uid" always,
        controller: Option<bool> = "controller",
        block_owner_deletion: Option<bool> = "blockOwnerDeletion",
    }
}
