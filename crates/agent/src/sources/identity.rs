//! What makes a manifest a pod of this node: its name, its UID, and what else the agent gives every static pod.

use std::fmt::Write as _;

use crablet_api::core::{Pod, PodPhase, PodStatus, Toleration, TolerationOperator};
use crablet_api::document::{Tree, Value};
use crablet_api::{FeatureGates, TaintEffect, Text};
use sha2::{Digest, Sha256};

use super::{CONFIG_HASH, SourceKind};
use crate::adoption::{Adoption, Candidate};

/// The longest UID that a manifest may give itself.
const LONGEST_UID: usize = 128;

/// How manifests become static pods on this node.
#[derive(Clone)]
pub struct StaticPods {
    pub(super) node_name: Text,
    pub(super) features: FeatureGates,
    adoption: Option<Adoption>,
}

/// Where a manifest came from, as far as it matters for the identity of its pod.
#[derive(Clone, Copy)]
pub(super) struct Origin<'a> {
    pub(super) source: SourceKind,
    /// The file or the address.
    pub(super) place: &'a str,
}

impl StaticPods {
    /// For a node of that name, with the defaults and checks of 1.36.
    pub fn new(node_name: &str) -> StaticPods {
        StaticPods { node_name: node_name.into(), features: FeatureGates::default(), adoption: None }
    }

    /// With the feature gates that are in force.
    pub fn with_features(self, features: &FeatureGates) -> StaticPods {
        StaticPods { features: *features, ..self }
    }

    /// With somebody who knows which pods another kubelet ran.
    pub fn with_adoption(self, adoption: Adoption) -> StaticPods {
        StaticPods { adoption: Some(adoption), ..self }
    }

    /// Gives all pods that a source wants now the UIDs that they are known by.
    pub(super) async fn adopt(&self, source: SourceKind, candidates: Vec<Candidate<'_>>) {
        if let Some(adoption) = &self.adoption {
            adoption.adopt(source, candidates).await;
        }
    }

    /// The name that a pod gets on this node.
    pub fn pod_name(&self, name: &str) -> Text {
        format!("{name}-{}", self.node_name.to_lowercase()).into()
    }

    /// Gives a pod from a manifest what makes it one of this node. `digest` is that of its manifest.
    pub(super) fn identify(&self, pod: &mut Pod, origin: Origin<'_>, digest: &Text) {
        pod.metadata.name = self.pod_name(&pod.metadata.name);
        if pod.metadata.namespace.is_empty() {
            pod.metadata.namespace = "default".into();
        }
        pod.spec.node_name = self.node_name.clone();
        if pod.metadata.uid.is_empty() {
            pod.metadata.uid = digest.clone();
        }
        pod.metadata.annotations.insert(CONFIG_HASH, pod.metadata.uid.clone());
        // Pods of the node's own are not driven from it by what is wrong with the node.
        match origin.source {
            SourceKind::File | SourceKind::Push => tolerate_everything(pod),
            SourceKind::Url | SourceKind::Api => {}
        }
        pod.status = PodStatus { phase: Some(PodPhase::Pending), ..PodStatus::default() };
    }

    /// What a manifest says, as 32 hexadecimal digits. They depend on what is written and where, and not on the order
    /// of fields, on comments, or on what the agent fills in: another version of the agent comes to the same.
    pub(super) fn digest(&self, origin: Origin<'_>, manifest: &Tree) -> Text {
        let mut hash = Sha256::new();
        for part in [origin.source.as_str(), &self.node_name, origin.place] {
            add_text(&mut hash, part);
        }
        add_value(&mut hash, &manifest.value);
        let mut digits = String::with_capacity(32);
        for byte in &hash.finalize()[..16] {
            let _ = write!(digits, "{byte:02x}");
        }
        digits.into()
    }
}

/// What is wrong with a UID that a manifest gives its pod. It becomes the name of directories.
pub(crate) fn uid_error(uid: &str) -> Option<String> {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let starts_well = uid.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    let fits = uid.len() <= LONGEST_UID && uid.bytes().all(is_fine) && starts_well;
    (!fits).then(|| {
        format!(
            "a UID must consist of letters, digits, '-', '_' or '.', start with a letter or digit, and have at \
             most {LONGEST_UID} characters; without one, the pod gets a UID that follows from its manifest"
        )
    })
}

/// Upstream puts a toleration in the place of one that differs from it only in how long it holds.
fn tolerate_everything(pod: &mut Pod) {
    let toleration = Toleration {
        operator: Some(TolerationOperator::Exists),
        effect: Some(TaintEffect::NoExecute),
        ..Toleration::default()
    };
    let is_same = |other: &Toleration| Toleration { toleration_seconds: None, ..other.clone() } == toleration;
    let mut tolerations = std::mem::take(&mut pod.spec.tolerations).into_vec();
    match tolerations.iter().position(is_same) {
        Some(index) => tolerations[index] = toleration,
        None => tolerations.push(toleration),
    }
    pod.spec.tolerations = tolerations.into();
}

/// Each value begins with its kind and its length, so that no two different ones hash the same bytes.
fn add_value(hash: &mut Sha256, value: &Value) {
    match value {
        Value::Null => hash.update(b"n"),
        Value::Bool(value) => hash.update(if *value { b"t" } else { b"f" }),
        Value::Int(number) => {
            hash.update(b"i");
            hash.update(number.to_be_bytes());
        }
        Value::Float(number) => {
            hash.update(b"d");
            hash.update(number.to_be_bytes());
        }
        Value::Text(text) => add_text(hash, text),
        Value::List(nodes) => {
            add_length(hash, b'l', nodes.len());
            nodes.iter().for_each(|node| add_value(hash, &node.value));
        }
        Value::Map(fields) => {
            // A field that is null is as good as not being there.
            let fields = || fields.iter().filter(|(_, node)| node.value != Value::Null);
            add_length(hash, b'm', fields().count());
            for (name, node) in fields() {
                add_text(hash, name);
                add_value(hash, &node.value);
            }
        }
    }
}

fn add_text(hash: &mut Sha256, text: &str) {
    add_length(hash, b's', text.len());
    hash.update(text);
}

fn add_length(hash: &mut Sha256, kind: u8, length: usize) {
    hash.update([kind]);
    hash.update((length as u64).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crablet_api::document::{Limits, parse};
    use crablet_api::testing::pod;

    const FILE: Origin<'_> = Origin { source: SourceKind::File, place: "/m/a.yaml" };
    const URL: Origin<'_> = Origin { source: SourceKind::Url, place: "http://a/b" };

    fn digest(origin: Origin<'_>, node: &str, text: &str) -> Text {
        StaticPods::new(node).digest(origin, &parse("f", text, Limits::MANIFEST).unwrap().0)
    }

    fn identified(origin: Origin<'_>, mut pod: Pod) -> Pod {
        StaticPods::new("Node-1").identify(&mut pod, origin, &"0123".into());
        pod
    }

    #[test]
    fn a_pod_gets_its_nodes_name_and_a_namespace() {
        let pod = identified(FILE, pod("web").namespace("").uid("").build());
        assert_eq!((&*pod.metadata.name, &*pod.metadata.namespace), ("web-node-1", "default"));
        assert_eq!(pod.spec.node_name, "Node-1");
        assert_eq!((&*pod.metadata.uid, &*pod.metadata.annotations[CONFIG_HASH]), ("0123", "0123"));
        assert_eq!(pod.status.phase, Some(PodPhase::Pending));
    }

    #[test]
    fn a_pod_keeps_the_namespace_and_uid_that_its_manifest_gives_it() {
        let pod = identified(FILE, pod("web").namespace("kube-system").uid("mine").build());
        assert_eq!((&*pod.metadata.namespace, &*pod.metadata.uid), ("kube-system", "mine"));
        assert_eq!(pod.metadata.annotations[CONFIG_HASH], "mine");
    }

    #[test]
    fn pods_of_the_nodes_own_are_not_evicted_by_taints() {
        let tolerations = |origin, yaml: &str| -> Vec<String> {
            let text = format!("metadata: {{name: a}}\nspec:\n  containers: []\n  tolerations: {yaml}\n");
            let pod = identified(origin, crablet_api::testing::pod_yaml(&text));
            let shown = |it: &Toleration| format!("{}:{:?}:{:?}", it.key, it.effect, it.toleration_seconds);
            pod.spec.tolerations.iter().map(shown).collect()
        };
        let push = Origin { source: SourceKind::Push, ..FILE };
        assert_eq!(tolerations(FILE, "[]"), [":Some(NoExecute):None"]);
        assert_eq!(tolerations(push, "[]"), [":Some(NoExecute):None"]);
        assert_eq!(tolerations(URL, "[]"), [""; 0]);
        assert_eq!(
            tolerations(FILE, "[{key: a, operator: Exists}]"),
            ["a:None:None", ":Some(NoExecute):None"]
        );
        assert_eq!(
            tolerations(FILE, "[{operator: Exists, effect: NoExecute, tolerationSeconds: 5}, {key: b}]"),
            [":Some(NoExecute):None", "b:None:None"]
        );
    }

    #[test]
    fn the_uid_follows_from_what_is_written_and_where() {
        let text = "kind: Pod\nmetadata:\n  name: a\n";
        let uid = digest(FILE, "n", text);
        assert_eq!(uid.len(), 32);
        // It must stay the same from version to version: a pod that runs is found by it.
        assert_eq!(uid, "f3109269bb8013fe8b78aa0da1b8a439");
        for same in [
            "metadata: {name: a} # a comment\nkind: Pod\n",
            "{\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\",\"labels\":null}}",
        ] {
            assert_eq!(digest(FILE, "n", same), uid, "{same}");
        }
        for other in
            ["kind: Pod\nmetadata:\n  name: b\n", "kind: Pod\nmetadata:\n  name: [a]\n", "kind: Pod\n"]
        {
            assert_ne!(digest(FILE, "n", other), uid, "{other}");
        }
        assert_ne!(digest(FILE, "other", text), uid);
        assert_ne!(digest(URL, "n", text), uid);
        assert_ne!(digest(Origin { place: "/m/b.yaml", ..FILE }, "n", text), uid);
    }

    #[test]
    fn a_uid_that_the_manifest_gives_is_the_pods() {
        let pod = identified(FILE, pod("web").uid("mine").build());
        assert_eq!((&*pod.metadata.uid, &*pod.metadata.annotations[CONFIG_HASH]), ("mine", "mine"));
    }

    #[test]
    fn a_uid_that_could_lead_out_of_a_directory_is_refused() {
        for uid in ["a", "0f8fad5b-d9cd-469f-a165-70867728950e", "a.b_c"] {
            assert_eq!(uid_error(uid), None, "{uid}");
        }
        for uid in ["..", ".", "../x", "a/b", "a b", "-a", "ä", "a\0", &"a".repeat(129)] {
            assert!(uid_error(uid).is_some(), "{uid}");
        }
    }
}
