//! What an event is about.

use std::fmt;

use crablet_api::Text;

/// The kind of an object that events are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InvolvedKind {
    /// A pod, or a part of it.
    Pod,
    /// The node itself.
    Node,
}

impl InvolvedKind {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            InvolvedKind::Pod => "Pod",
            InvolvedKind::Node => "Node",
        }
    }
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
    /// The kind of the object.
    pub kind: InvolvedKind,
    /// Its namespace, if it is in one.
    pub namespace: Text,
    pub name: Text,
    pub uid: Text,
    /// Which part of it, such as `spec.containers{web}`; empty for all of it.
    pub field_path: Text,
}

impl Involved {
    pub fn pod(namespace: impl Into<Text>, name: impl Into<Text>, uid: impl Into<Text>) -> Involved {
        Involved {
            kind: InvolvedKind::Pod,
            namespace: namespace.into(),
            name: name.into(),
            uid: uid.into(),
            field_path: Text::default(),
        }
    }

    /// The node. Upstream gives its name for its UID, and that is how its events are found.
    pub fn node(name: impl Into<Text>) -> Involved {
        let name = name.into();
        Involved {
            kind: InvolvedKind::Node,
            namespace: Text::default(),
            uid: name.clone(),
            name,
            field_path: Text::default(),
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
        match &*self.namespace {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_a_path_within_its_pod() {
        let pod = Involved::pod("default", "web", "u1");
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
        assert_eq!((&*node.uid, node.to_string(), node.kind.as_str()), ("n1", "n1".to_owned(), "Node"));
    }
}
