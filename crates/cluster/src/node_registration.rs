//! What goes with a node that is new, and what an agent puts right on one that was there before it. No I/O.

use crablet_api::core::Node;
use crablet_api::resource_names::is_huge_pages;
use crablet_api::storage::{CsiNode, CsiNodeSpec};
use crablet_api::{Taint, TaintEffect, Text};

use crate::node::{Identity, node_owner};

/// Says that volumes are attached by a controller.
const ATTACH_DETACH: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// The labels that are put right, as upstream. Others that the node is started with are for new nodes alone.
const DEFAULT_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// The plugins whose volumes CSI drivers serve now; schedulers ask for them.
const MIGRATED_PLUGINS: &str = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,\
                                kubernetes.io/cinder,kubernetes.io/gce-pd,kubernetes.io/portworx-volume,\
                                kubernetes.io/vsphere-volume";
pub(crate) const MIGRATED_ANNOTATION: &str = "storage.alpha.kubernetes.io/migrated-plugins";

/// What says that the node is there for CSI drivers, if only as one without any.
pub(crate) fn csi_node(node: &Identity) -> CsiNode {
    let mut object = CsiNode { spec: CsiNodeSpec::default(), ..CsiNode::default() };
    object.metadata.name = node.name.clone();
    object.metadata.annotations.insert(MIGRATED_ANNOTATION, MIGRATED_PLUGINS.into());
    object.metadata.owner_references = Box::new([node_owner(node)]);
    object
}

/// Keeps pods away until a cloud's controllers have looked at a new node.
pub(crate) fn uninitialized() -> Taint {
    Taint {
        key: "node.cloudprovider.kubernetes.io/uninitialized".to_owned(),
        value: "true".to_owned(),
        effect: TaintEffect::NoSchedule,
        time_added: None,
    }
}

/// A node that was there before, with what an agent puts right when it begins.
pub(crate) fn taken_over(found: &Node, new: &Node) -> Node {
    let mut node = found.clone();
    match new.metadata.annotations.get(ATTACH_DETACH) {
        Some(value) => drop(node.metadata.annotations.insert(ATTACH_DETACH, value.clone())),
        None => drop(node.metadata.annotations.remove(ATTACH_DETACH)),
    }
    for label in DEFAULT_LABELS {
        match new.metadata.labels.get(label) {
            Some(value) if value.is_empty() => drop(node.metadata.labels.remove(label)),
            Some(value) => drop(node.metadata.labels.insert(label, value.clone())),
            None => {}
        }
    }
    let ours = [
        (&mut node.status.capacity, &new.status.capacity),
        (&mut node.status.allocatable, &new.status.allocatable),
    ];
    for (known, now) in ours {
        let gone: Vec<Text> = known
            .iter()
            .map(|(name, _)| name)
            .filter(|name| is_huge_pages(name) && now.get(name).is_none())
            .map(Text::from)
            .collect();
        for name in gone {
            known.remove(&name);
        }
        for (name, quantity) in now.iter().filter(|(name, _)| is_huge_pages(name)) {
            known.insert(name, quantity.clone());
        }
    }
    node
}

#[cfg(test)]
mod tests {
    use crablet_api::Quantity;

    use super::*;

    #[test]
    fn labels_that_are_upstreams_annotations_and_huge_pages_are_put_right_and_nothing_else() {
        let (mut found, mut new) = (Node::default(), Node::default());
        for (label, there, wanted) in [
            ("topology.kubernetes.io/zone", "a", "b"),
            ("node.kubernetes.io/instance-type", "small", ""),
            ("example.com/mine", "a", "b"),
        ] {
            found.metadata.labels.insert(label, there.into());
            new.metadata.labels.insert(label, wanted.into());
        }
        found.metadata.annotations.insert(ATTACH_DETACH, "true".into());
        found.status.capacity.insert("hugepages-1Gi", Quantity::from_value(1 << 30));
        new.status.capacity.insert("hugepages-2Mi", Quantity::from_value(1 << 21));
        let node = taken_over(&found, &new);
        let labels: Vec<_> =
            node.metadata.labels.iter().map(|(label, value)| format!("{label}={value}")).collect();
        assert_eq!(labels, ["example.com/mine=a", "topology.kubernetes.io/zone=b"]);
        assert!(node.metadata.annotations.is_empty());
        let capacity: Vec<_> = node.status.capacity.iter().map(|(name, _)| name).collect();
        assert_eq!(capacity, ["hugepages-2Mi"]);
    }
}
