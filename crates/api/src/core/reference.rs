//! References from one object to another.

use crate::object::object;

object! {
    /// An object of a known kind in the same namespace.
    pub struct LocalObjectReference {
        name: Box<str> = "name",
    }
}

object! {
    /// Any object, or a part of one.
    pub struct ObjectReference {
        kind: Box<str> = "kind",
        namespace: Box<str> = "namespace",
        name: Box<str> = "name",
        uid: Box<str> = "uid",
        api_version: Box<str> = "apiVersion",
        resource_version: Box<str> = "resourceVersion",
        field_path: Box<str> = "fieldPath",
    }
}

object! {
    /// An object of any kind in the same namespace.
    pub struct TypedLocalObjectReference {
        api_group: Option<Box<str>> = "apiGroup" always,
        kind: Box<str> = "kind" always,
        name: Box<str> = "name" always,
    }
}

object! {
    /// An object of any kind in any namespace.
    pub struct TypedObjectReference {
        api_group: Option<Box<str>> = "apiGroup" always,
        kind: Box<str> = "kind" always,
        name: Box<str> = "name" always,
        namespace: Option<Box<str>> = "namespace",
    }
}
