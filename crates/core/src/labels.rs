//! The labels and annotations by which a kubelet finds its sandboxes and containers again: their names, how they are
//! made, and what is read back from them.

use std::collections::BTreeMap;

use crablet_api::core::{
    Container, ContainerPort, LifecycleHandler, Pod, PodIdentity, TerminationMessagePolicy,
};
use crablet_api::document::Limits;
use crablet_api::{OneOf, from_json};

use crate::hash::container_hash;
use crate::translate::go_json;

/// Labels or annotations in the runtime.
pub type Labels = BTreeMap<String, String>;

/// The name of a container's or a sandbox's pod.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
pub const POD_UID: &str = "io.kubernetes.pod.uid";
/// The name of the container within its pod.
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";

/// The hash of what the container was made from; see [`crate::hash`].
pub const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
/// How often the container had been restarted when this one was made.
pub const CONTAINER_RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
/// The file in the container that holds its termination message.
pub const CONTAINER_TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
/// Where else the termination message may come from.
pub const CONTAINER_TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
/// What runs before the container is stopped, as JSON.
pub const CONTAINER_PRE_STOP_HANDLER: &str = "io.kubernetes.container.preStopHandler";
/// The ports of the container, as JSON.
pub const CONTAINER_PORTS: &str = "io.kubernetes.container.ports";
/// The grace period that the pod was deleted with.
pub const POD_DELETION_GRACE_PERIOD: &str = "io.kubernetes.pod.deletionGracePeriod";
/// The grace period of the pod's spec.
pub const POD_TERMINATION_GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";

/// Where a pod came from: `api`, `file` or `http`. An annotation of the pod, which the source adds.
pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
/// When a pod was first seen. An annotation of the pod, which the source adds.
pub const CONFIG_SEEN: &str = "kubernetes.io/config.seen";
/// The hash of a static pod's manifest. An annotation of the pod, which the source adds.
pub const CONFIG_HASH: &str = "kubernetes.io/config.hash";
/// Marks the mirror of a static pod in the API.
pub const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";

/// The labels of a pod's sandbox: the pod's own, and who it is.
pub fn sandbox_labels(pod: &Pod) -> Labels {
    let mut labels = text_map(&pod.metadata.labels);
    add_pod(&mut labels, pod);
    labels
}

/// The annotations of a pod's sandbox: the pod's own.
pub fn sandbox_annotations(pod: &Pod) -> Labels {
    text_map(&pod.metadata.annotations)
}

/// The labels of a container: who it is.
pub fn container_labels(pod: &Pod, container: &Container) -> Labels {
    let mut labels = Labels::new();
    add_pod(&mut labels, pod);
    labels.insert(CONTAINER_NAME.to_owned(), container.name.to_string());
    labels
}

/// The annotations of a container: what must be known to stop it and to tell how it ended, even when its pod is gone
/// from everywhere else. `granted` are those that device plugins asked for; ours win over them.
pub fn container_annotations(
    pod: &Pod,
    container: &Container,
    restart_count: u32,
    granted: &[(String, String)],
) -> Labels {
    let mut annotations: Labels = granted.iter().cloned().collect();
    let mut add = |name: &str, value: String| annotations.insert(name.to_owned(), value);
    add(CONTAINER_HASH, container_hash(container));
    add(CONTAINER_RESTART_COUNT, restart_count.to_string());
    add(CONTAINER_TERMINATION_MESSAGE_PATH, container.termination_message_path.to_string());
    let policy = container.termination_message_policy.as_ref();
    add(CONTAINER_TERMINATION_MESSAGE_POLICY, policy.map_or_else(String::new, ToString::to_string));
    if let Some(seconds) = pod.metadata.deletion_grace_period_seconds {
        add(POD_DELETION_GRACE_PERIOD, seconds.to_string());
    }
    if let Some(seconds) = pod.spec.termination_grace_period_seconds {
        add(POD_TERMINATION_GRACE_PERIOD, seconds.to_string());
    }
    if let Some(handler) = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref()) {
        add(CONTAINER_PRE_STOP_HANDLER, go_json(handler));
    }
    if !container.ports.is_empty() {
        add(CONTAINER_PORTS, go_json(&container.ports));
    }
    annotations
}

/// The pod of a sandbox or a container, as its labels say. What a label is missing for is empty: the runtime has
/// containers that are not a kubelet's, too.
pub fn pod_identity(labels: &Labels) -> PodIdentity {
    let text = |name: &str| labels.get(name).map(String::as_str).unwrap_or_default();
    PodIdentity::new(text(POD_NAMESPACE), text(POD_NAME), text(POD_UID))
}

/// What a container's annotations say about it. What is missing, or what nobody could have written, is absent: a
/// container of an older kubelet must still be stopped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerRecord {
    /// The hash of what the container was made from; 0 where it is not known.
    pub hash: u64,
    /// How often the container had been restarted when this one was made.
    pub restart_count: u32,
    /// The grace period that the pod was deleted with.
    pub deletion_grace_period: Option<i64>,
    /// The grace period of the pod's spec.
    pub termination_grace_period: Option<i64>,
    /// The file in the container that holds its termination message.
    pub termination_message_path: String,
    /// Where else the termination message may come from.
    pub termination_message_policy: Option<TerminationMessagePolicy>,
    /// What runs before the container is stopped.
    pub pre_stop: Option<OneOf<LifecycleHandler>>,
    /// The ports of the container.
    pub ports: Vec<ContainerPort>,
}

impl ContainerRecord {
    /// Reads the annotations of a container.
    pub fn from_annotations(annotations: &Labels) -> ContainerRecord {
        let get = |name: &str| annotations.get(name).map(String::as_str);
        let seconds = |name: &str| get(name).and_then(|value| value.parse().ok());
        let limits = Limits::MANIFEST;
        ContainerRecord {
            hash: get(CONTAINER_HASH).and_then(|value| u64::from_str_radix(value, 16).ok()).unwrap_or(0),
            restart_count: get(CONTAINER_RESTART_COUNT).and_then(|value| value.parse().ok()).unwrap_or(0),
            deletion_grace_period: seconds(POD_DELETION_GRACE_PERIOD),
            termination_grace_period: seconds(POD_TERMINATION_GRACE_PERIOD),
            termination_message_path: text(annotations, CONTAINER_TERMINATION_MESSAGE_PATH),
            termination_message_policy: get(CONTAINER_TERMINATION_MESSAGE_POLICY)
                .filter(|policy| !policy.is_empty())
                .map(TerminationMessagePolicy::from),
            pre_stop: get(CONTAINER_PRE_STOP_HANDLER)
                .and_then(|json| from_json(json.as_bytes(), limits).ok()),
            ports: get(CONTAINER_PORTS)
                .and_then(|json| from_json(json.as_bytes(), limits).ok())
                .unwrap_or_default(),
        }
    }
}

fn add_pod(labels: &mut Labels, pod: &Pod) {
    labels.insert(POD_NAME.to_owned(), pod.metadata.name.to_string());
    labels.insert(POD_NAMESPACE.to_owned(), pod.metadata.namespace.to_string());
    labels.insert(POD_UID.to_owned(), pod.metadata.uid.to_string());
}

fn text_map(map: &crablet_api::Map<crablet_api::Text>) -> Labels {
    map.iter().map(|(key, value)| (key.to_owned(), value.to_string())).collect()
}

fn text(labels: &Labels, name: &str) -> String {
    labels.get(name).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use crablet_api::testing::{pod, pod_yaml};

    use super::*;

    #[test]
    fn the_labels_of_a_sandbox_win_over_those_of_its_pod() {
        let pod = pod("web").label("app", "web").label(POD_NAME, "liar").annotation("note", "x").build();
        let labels = sandbox_labels(&pod);
        assert_eq!(labels["app"], "web");
        assert_eq!(labels[POD_NAME], "web");
        assert_eq!(pod_identity(&labels), pod.identity());
        assert_eq!(labels.get(CONTAINER_NAME), None);
        assert_eq!(sandbox_annotations(&pod), Labels::from([("note".to_owned(), "x".to_owned())]));
    }

    #[test]
    fn what_is_written_into_annotations_is_read_back() {
        let mut pod = pod_yaml(
            "
metadata: {name: p, namespace: ns, uid: u}
spec:
  terminationGracePeriodSeconds: 7
  containers:
  - name: c
    image: i
    terminationMessagePath: /dev/termination-log
    terminationMessagePolicy: File
    ports: [{containerPort: 80, hostPort: 8080, name: http, protocol: TCP}]
    lifecycle: {preStop: {exec: {command: [sh, -c, 'a && b <c>']}}}
            ",
        );
        pod.metadata.deletion_grace_period_seconds = Some(3);
        let container = &pod.spec.containers[0];
        let granted =
            [("vendor/x".to_owned(), "1".to_owned()), (CONTAINER_HASH.to_owned(), "liar".to_owned())];
        let annotations = container_annotations(&pod, container, 4, &granted);
        assert_eq!(annotations["vendor/x"], "1");
        assert_eq!(
            annotations[CONTAINER_PRE_STOP_HANDLER],
            r#"{"exec":{"command":["sh","-c","a \u0026\u0026 b \u003cc\u003e"]}}"#
        );
        assert_eq!(
            annotations[CONTAINER_PORTS],
            r#"[{"name":"http","hostPort":8080,"containerPort":80,"protocol":"TCP"}]"#
        );
        let record = ContainerRecord::from_annotations(&annotations);
        assert_eq!(format!("{:x}", record.hash), container_hash(container));
        assert_eq!(record.restart_count, 4);
        assert_eq!((record.deletion_grace_period, record.termination_grace_period), (Some(3), Some(7)));
        assert_eq!(record.termination_message_path, "/dev/termination-log");
        assert_eq!(record.termination_message_policy, Some(TerminationMessagePolicy::File));
        assert_eq!(record.pre_stop.as_ref(), container.lifecycle.as_ref().unwrap().pre_stop.as_ref());
        assert_eq!(record.ports, container.ports.to_vec());
        let labels = container_labels(&pod, container);
        assert_eq!((pod_identity(&labels), &*labels[CONTAINER_NAME]), (pod.identity(), "c"));
    }

    #[test]
    fn annotations_that_make_no_sense_are_as_good_as_absent() {
        let annotations: Labels = [
            (CONTAINER_HASH, "xyz"),
            (CONTAINER_RESTART_COUNT, "-1"),
            (POD_TERMINATION_GRACE_PERIOD, "soon"),
            (CONTAINER_PRE_STOP_HANDLER, "{"),
            (CONTAINER_PORTS, "7"),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
        assert_eq!(ContainerRecord::from_annotations(&annotations), ContainerRecord::default());
    }
}
