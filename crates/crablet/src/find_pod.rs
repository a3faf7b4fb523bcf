//! Which pod a person means.

use crablet_api::core::Pod;

/// How many names are listed at most.
const MOST_NAMES: usize = 20;

/// Why it is not clear which pod is meant.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FindError {
    #[error("there is no pod {text:?}; {known}")]
    Unknown { text: String, known: String },
    #[error("{text:?} may be several pods; {found}")]
    Several { text: String, found: String },
}

/// The pod that a text means: a UID, `namespace/name`, or a name; a name may lack the node's, as in a manifest. Of two
/// pods of one name, where one takes the other's place, it is the one that stays.
pub(crate) fn find_pod<'a>(
    pods: &'a [Pod],
    text: &str,
    namespace: Option<&str>,
) -> Result<&'a Pod, FindError> {
    let in_namespace = |pod: &&Pod| namespace.is_none_or(|namespace| *pod.metadata.namespace == *namespace);
    let matching = |is_meant: &dyn Fn(&Pod) -> bool| -> Vec<&'a Pod> {
        pods.iter().filter(in_namespace).filter(|pod| is_meant(pod)).collect()
    };
    let (wanted_namespace, wanted_name) = match text.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, text),
    };
    let is_there = |pod: &Pod| wanted_namespace.is_none_or(|wanted| *pod.metadata.namespace == *wanted);
    let mut found = matching(&|pod| *pod.metadata.uid == *text);
    if found.is_empty() {
        found = matching(&|pod| is_there(pod) && *pod.metadata.name == *wanted_name);
    }
    if found.is_empty() {
        found = matching(&|pod| is_there(pod) && own_name(pod) == Some(wanted_name));
    }
    if found.len() > 1 && found.iter().any(|pod| pod.metadata.deletion_timestamp.is_none()) {
        found.retain(|pod| pod.metadata.deletion_timestamp.is_none());
    }
    match found[..] {
        [pod] => Ok(pod),
        [] => {
            let known: Vec<&Pod> = pods.iter().filter(in_namespace).collect();
            Err(FindError::Unknown { text: text.to_owned(), known: names(&known) })
        }
        _ => Err(FindError::Several { text: text.to_owned(), found: names(&found) }),
    }
}

/// The name of a static pod in its manifest.
fn own_name(pod: &Pod) -> Option<&str> {
    pod.metadata.name.strip_suffix(&*pod.spec.node_name.to_lowercase())?.strip_suffix('-')
}

/// A pod as it is called without doubt.
pub(crate) fn full_name(pod: &Pod) -> String {
    format!("{}/{}", pod.metadata.namespace, pod.metadata.name)
}

fn names(pods: &[&Pod]) -> String {
    let mut names: Vec<String> = pods.iter().map(|pod| full_name(pod)).collect();
    names.sort();
    let is_ambiguous = names.windows(2).any(|pair| pair[0] == pair[1]);
    if is_ambiguous {
        names = pods.iter().map(|pod| format!("{} (UID {})", full_name(pod), pod.metadata.uid)).collect();
    }
    match names.len() {
        0 => "there are none".to_owned(),
        count if count > MOST_NAMES => {
            format!("there are {} and {} more", names[..MOST_NAMES].join(", "), count - MOST_NAMES)
        }
        1 => format!("there is {}", names[0]),
        _ => format!("there are {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(namespace: &str, name: &str, uid: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.namespace = namespace.into();
        pod.metadata.name = name.into();
        pod.metadata.uid = uid.into();
        pod.spec.node_name = "Node-1".into();
        pod
    }

    #[test]
    fn a_pod_is_found_by_each_of_its_names() {
        let mut leaving = pod("default", "db-node-1", "u4");
        leaving.metadata.deletion_timestamp = Some(crablet_api::meta::Time::from_unix_seconds(1));
        let pods = [
            pod("default", "web-node-1", "u1"),
            pod("kube-system", "web-node-1", "u2"),
            pod("default", "web", "u3"),
            leaving,
            pod("default", "db-node-1", "u5"),
        ];
        for (text, namespace, expected) in [
            ("u2", None, "u2"),
            ("web", None, "u3"),
            ("db", None, "u5"),
            ("default/web-node-1", None, "u1"),
            ("kube-system/web", None, "u2"),
            ("web-node-1", Some("kube-system"), "u2"),
            (
                "web-node-1",
                None,
                "\"web-node-1\" may be several pods; there are default/web-node-1, kube-system/web-node-1",
            ),
            ("x", Some("kube-system"), "there is no pod \"x\"; there is kube-system/web-node-1"),
            ("x", Some("other"), "there is no pod \"x\"; there are none"),
        ] {
            let found = find_pod(&pods, text, namespace);
            let found = found.map_or_else(|error| error.to_string(), |pod| pod.metadata.uid.to_string());
            assert_eq!(found, expected, "{text}");
        }
    }
}
