//! Which handler of the runtime runs a pod.

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

#[cfg(test)]
mod tests {
    use super::*;

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
