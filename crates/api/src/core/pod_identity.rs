//! [`PodIdentity`]: which pod something is about.

use std::fmt;

use serde::Serialize;

use super::Pod;
use crate::text::Text;

/// Which pod something is about. Copies share their text with each other and with the pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct PodIdentity {
    /// The pod's namespace.
    pub namespace: Text,
    /// The pod's name.
    pub name: Text,
    /// The pod's UID.
    pub uid: Text,
}

impl PodIdentity {
    /// The pod of this name that has this UID.
    pub fn new(namespace: impl Into<Text>, name: impl Into<Text>, uid: impl Into<Text>) -> PodIdentity {
        PodIdentity { namespace: namespace.into(), name: name.into(), uid: uid.into() }
    }
}

impl Pod {
    /// Which pod it is.
    pub fn identity(&self) -> PodIdentity {
        let metadata = &self.metadata;
        PodIdentity::new(metadata.namespace.clone(), metadata.name.clone(), metadata.uid.clone())
    }
}

/// The pod as a person names it.
impl fmt::Display for PodIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
