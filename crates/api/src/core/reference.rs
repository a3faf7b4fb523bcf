//! References from one object to another.

use crate::object::object;
use crate::text::Text;

object! {
    /// An object of a known kind in the same namespace.
    pub struct LocalObjectReference {
        name: Text = "name",
    }
}

object! {
    /// A secret of any namespace.
    pub struct SecretReference {
        name: Text = "name",
        namespace: Text = "namespace",
    }
}

object! {
    /// Any object, or a part of one.
    pub struct ObjectReference {
        kind: Text = "kind",
        namespace: Text = "namespace",
        name: Text = "name",
        uid: Text = "uid",
        api_version: Text = "apiVersion",
        resource_version: Text = "resourceVersion",
        field_path: Text = "fieldPath",
    }
}

object! {
    /// An object of any kind in the same namespace.
    pub struct TypedLocalObjectReference {
        api_group: Option<Text> = "apiGroup" always,
        kind: Text = "kind" always,
        name: Text = "name" always,
    }
}

object! {
    /// An object of any kind in any namespace.
    pub struct TypedObjectReference {
        api_group: Option<Text> = "apiGroup" always,
        kind: Text = "kind" always,
        name: Text = "name" always,
        namespace: Option<Text> = "namespace",
    }
}
