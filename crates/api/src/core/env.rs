//! A container's environment, and where its values come from.

use crate::Quantity;
use crate::object::object;
use crate::one_of::{OneOf, one_of};
use crate::text::Text;

object! {
    /// A variable of a container's environment.
    pub struct EnvVar {
        name: Text = "name" always,
        value: Text = "value",
        value_from: Option<OneOf<EnvVarSource>> = "valueFrom",
    }
}

one_of! {
    /// Where the value of a variable comes from.
    pub enum EnvVarSource {
        FieldRef(ObjectFieldSelector) = "fieldRef",
        ResourceFieldRef(ResourceFieldSelector) = "resourceFieldRef",
        ConfigMapKeyRef(ConfigMapKeySelector) = "configMapKeyRef",
        SecretKeyRef(SecretKeySelector) = "secretKeyRef",
        FileKeyRef(FileKeySelector) = "fileKeyRef",
    }
}

object! {
    /// A config map or a secret whose every key becomes a variable.
    pub struct EnvFromSource {
        prefix: Text = "prefix",
        config_map_ref: Option<ConfigMapEnvSource> = "configMapRef",
        secret_ref: Option<SecretEnvSource> = "secretRef",
    }
}

object! {
    /// A config map as a source of variables.
    pub struct ConfigMapEnvSource {
        name: Text = "name",
        optional: Option<bool> = "optional",
    }
}

object! {
    /// A secret as a source of variables.
    pub struct SecretEnvSource {
        name: Text = "name",
        optional: Option<bool> = "optional",
    }
}

object! {
    /// A field of the pod itself.
    pub struct ObjectFieldSelector {
        api_version: Text = "apiVersion",
        field_path: Text = "fieldPath" always,
    }
}

object! {
    /// A resource of one of the pod's containers.
    pub struct ResourceFieldSelector {
        container_name: Text = "containerName",
        resource: Text = "resource" always,
        divisor: Quantity = "divisor",
    }
}

object! {
    /// A key of a config map.
    pub struct ConfigMapKeySelector {
        name: Text = "name",
        key: Text = "key" always,
        optional: Option<bool> = "optional",
    }
}

object! {
    /// A key of a secret.
    pub struct SecretKeySelector {
        name: Text = "name",
        key: Text = "key" always,
        optional: Option<bool> = "optional",
    }
}

object! {
    /// A key in a file of variables that a volume holds.
    pub struct FileKeySelector {
        volume_name: Text = "volumeName" always,
        path: Text = "path" always,
        key: Text = "key" always,
        optional: Option<bool> = "optional",
    }
}
