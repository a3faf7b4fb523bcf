//! Which handler of the runtime runs a pod.

use crablet_cri_api::v1;

use super::environment::Unavailable;
use super::go_quote;

/// Why it is not known which handler of the runtime runs a pod.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeClassError {
    /// There is no class of that name.
    #[error("runtimeclass.node.k8s.io {} not found", go_quote(.0))]
    NotFound(String),
    /// It could not be looked up.
    #[error("failed to lookup RuntimeClass {name}: {reason}")]
    Unavailable {
        /// The class.
        name: String,
        /// Why.
        reason: String,
    },
}

impl RuntimeClassError {
    /// The class of that name could not be had.
    pub fn new(name: &str, why: Unavailable) -> RuntimeClassError {
        let unavailable = |reason: String| RuntimeClassError::Unavailable { name: name.to_owned(), reason };
        match why {
            Unavailable::NotFound => RuntimeClassError::NotFound(name.to_owned()),
            // Upstream's kubelet panics: to run the pod by another handler than it asks for could be worse.
            Unavailable::NoClient => unavailable("no kubeClient defined".to_owned()),
            Unavailable::Other(reason) => unavailable(reason),
        }
    }
}

/// Whether one of the handlers that a runtime tells of can mount read-only all the way down. An old one tells of none,
/// and then none can.
pub fn mounts_read_only_recursively(handlers: &[v1::RuntimeHandler], runtime_handler: &str) -> bool {
    let handler = handlers.iter().find(|handler| handler.name == runtime_handler);
    handler.and_then(|handler| handler.features).is_some_and(|can| can.recursive_read_only_mounts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_must_say_that_it_can_mount_read_only_all_the_way_down() {
        let handler = |name: &str, recursive_read_only_mounts| v1::RuntimeHandler {
            name: name.to_owned(),
            features: Some(v1::RuntimeHandlerFeatures {
                recursive_read_only_mounts,
                ..v1::RuntimeHandlerFeatures::default()
            }),
        };
        let silent = v1::RuntimeHandler { name: "silent".to_owned(), features: None };
        let handlers = [handler("", true), handler("kata", false), silent];
        for (name, expected) in [("", true), ("kata", false), ("silent", false), ("unknown", false)] {
            assert_eq!(mounts_read_only_recursively(&handlers, name), expected, "{name}");
        }
        assert!(!mounts_read_only_recursively(&[], ""));
    }

    #[test]
    fn a_class_that_cannot_be_had_is_told_of_in_upstreams_words() {
        for (why, expected) in [
            (Unavailable::NotFound, "runtimeclass.node.k8s.io \"kata\" not found"),
            (Unavailable::NoClient, "failed to lookup RuntimeClass kata: no kubeClient defined"),
            (Unavailable::Other("away".into()), "failed to lookup RuntimeClass kata: away"),
        ] {
            assert_eq!(RuntimeClassError::new("kata", why).to_string(), expected);
        }
    }
}
