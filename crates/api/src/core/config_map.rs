//! [`ConfigMap`]: configuration that pods read.

use crate::Bytes;
use crate::map::Map;
use crate::meta::ObjectMeta;
use crate::object::object;

object! {
    /// Configuration that pods read.
    pub struct ConfigMap: "v1" "ConfigMap" {
        metadata: ObjectMeta = "metadata",
        immutable: Option<bool> = "immutable",
        data: Map<Box<str>> = "data",
        binary_data: Map<Bytes> = "binaryData",
    }
}
