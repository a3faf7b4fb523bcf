//! [`ConfigMap`]: configuration that pods read.

use crate::Bytes;
use crate::map::Map;
use crate::meta::ObjectMeta;
use crate::object::object;
use crate::text::Text;

object! {
    /// Configuration that pods read.
    pub struct ConfigMap: "v1" "ConfigMap" {
        metadata: ObjectMeta = "metadata",
        immutable: Option<bool> = "immutable",
        data: Map<Text> = "data",
        binary_data: Map<Bytes> = "binaryData",
    }
}
