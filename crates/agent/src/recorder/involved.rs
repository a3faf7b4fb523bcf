//! What an event is about.

use std::fmt;

use crablet_api::Text;
use crablet_api::core::{PersistentVolumeClaim, Pod, PodIdentity};

/// An object that events are about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum InvolvedObject {
    Pod(PodIdentity),
    /// The node of this name.
    Node(Text),
    /// A claim of a pod.
    Claim {
        namespace: Text,
        name: Text,
        uid: Text,
    },
}

/// Where in a pod's spec a container is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerKind {
    /// Among the containers.
    Main,
    /// Among the init containers, sidecars too.
    Init,
    /// Among the ephemeral containers.
    Ephemeral,
}

/// What an event is about: an object, or a part of it. Copies share their text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Involved {
    pub object: InvolvedObject,
    /// Which part of it, such as `spec.containers{web}`; empty for all of it.
    pub field_path: Text,
    /// Which version of it was known; empty of what no API server has.
    pub version: Text,
}

impl Involved {
    pub fn pod(pod: PodIdentity) -> Involved {
        Involved::whole(InvolvedObject::Pod(pod))
    }

    /// A pod in the form that is at hand.
    pub fn version_of(pod: &Pod) -> Involved {
        Involved { version: pod.metadata.resource_version.clone(), ..Involved::pod(pod.identity()) }
    }

    pub fn node(name: impl Into<Text>) -> Involved {
        Involved::whole(InvolvedObject::Node(name.into()))
    }

    /// A claim in the form that is at hand.
    pub fn version_of_claim(claim: &PersistentVolumeClaim) -> Involved {
        let metadata = &claim.metadata;
        let object = InvolvedObject::Claim {
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
        };
        Involved { version: metadata.resource_version.clone(), ..Involved::whole(object) }
    }

    fn whole(object: InvolvedObject) -> Involved {
        Involved { object, field_path: Text::default(), version: Text::default() }
    }

    /// The kind of the object, as the word on the wire.
    pub fn kind(&self) -> &'static str {
        match &self.object {
            InvolvedObject::Pod(_) => "Pod",
            InvolvedObject::Node(_) => "Node",
            InvolvedObject::Claim { .. } => "PersistentVolumeClaim",
        }
    }

    /// By what the object is known here: its UID, or the name of the node.
    pub fn uid(&self) -> &Text {
        match &self.object {
            InvolvedObject::Pod(pod) => &pod.uid,
            InvolvedObject::Node(name) => name,
            InvolvedObject::Claim { uid, .. } => uid,
        }
    }

    /// A container of this pod.
    pub fn in_container(&self, kind: ContainerKind, name: &str) -> Involved {
        let list = match kind {
            ContainerKind::Main => "containers",
            ContainerKind::Init => "initContainers",
            ContainerKind::Ephemeral => "ephemeralContainers",
        };
        Involved { field_path: format!("spec.{list}{{{name}}}").into(), ..self.clone() }
    }

    /// The name of the container, if it is about one.
    pub fn container(&self) -> Option<&str> {
        let (_, name) = self.field_path.split_once('{')?;
        name.strip_suffix('}')
    }
}

/// The object as the log names it: `namespace/name`, or the name alone.
impl fmt::Display for Involved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.object {
            InvolvedObject::Pod(pod) => pod.fmt(f),
            InvolvedObject::Node(name) => f.write_str(name),
            InvolvedObject::Claim { namespace, name, .. } => write!(f, "{namespace}/{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_a_path_within_its_pod() {
        let pod = Involved::pod(PodIdentity::new("default", "web", "u1"));
        assert_eq!((pod.container(), pod.to_string()), (None, "default/web".to_owned()));
        for (kind, expected) in [
            (ContainerKind::Main, "spec.containers{c}"),
            (ContainerKind::Init, "spec.initContainers{c}"),
            (ContainerKind::Ephemeral, "spec.ephemeralContainers{c}"),
        ] {
            let container = pod.in_container(kind, "c");
            assert_eq!((&*container.field_path, container.container()), (expected, Some("c")));
        }
    }

    #[test]
    fn a_nodes_uid_is_its_name() {
        let node = Involved::node("n1");
        assert_eq!((&**node.uid(), node.to_string(), node.kind()), ("n1", "n1".to_owned(), "Node"));
    }
}
