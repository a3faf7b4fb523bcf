//! What the node's object says of it, from what is known: no I/O, no clock.

use std::collections::BTreeSet;

use crablet_agent::node_facts::Facts;
use crablet_agent::readiness::{NotReady, Ready};
use crablet_api::core::{
    ContainerImage, Node, NodeCondition, NodeConditionType, NodeRuntimeHandler, NodeRuntimeHandlerFeatures,
    NodeStatus,
};
use crablet_api::meta::{ConditionStatus, Time};
use crablet_api::resource_names::is_extended;
use crablet_api::{Map, Text};
use crablet_core::eviction::Condition as Pressure;
use crablet_cri_api::{Image, v1};

/// How many names of one image are told, as upstream.
const MOST_NAMES: usize = 5;

/// Says which addresses the node was started with.
const PROVIDED_IPS: &str = "alpha.kubernetes.io/provided-node-ip";

/// A cloud whose controllers look after the node: they tell which addresses it has, and when it may be used.
#[derive(Clone, Debug, Default)]
pub struct Cloud {
    /// The addresses that the node was started with, for the cloud to choose among its own.
    pub provided_ips: Option<Text>,
}

/// What a node's status is made from.
pub struct Input<'a> {
    pub facts: &'a Facts,
    /// The labels that the node has by itself, whatever others make of them.
    pub labels: &'a Map<Text>,
    pub ready: &'a Ready,
    /// What the node runs short of.
    pub pressure: &'a BTreeSet<Pressure>,
    /// Why volumes cannot be used yet, if they cannot.
    pub storage: Result<(), &'static str>,
    /// Whether it must be known how much of the disk there is.
    pub isolates_local_storage: bool,
    pub images: &'a [ContainerImage],
    /// The volumes that must not be detached from the node.
    pub volumes_in_use: Vec<Text>,
    pub cloud: Option<&'a Cloud>,
    pub now: Time,
}

/// The node with the status that it has now. What others have put there stays.
pub fn with_status(old: &Node, input: &Input<'_>) -> Node {
    let Input { facts, images, volumes_in_use, .. } = input;
    let mut node = old.clone();
    let ours = &facts.node;
    let status = &mut node.status;
    for (resource, quantity) in ours.status.capacity.iter() {
        status.capacity.insert(resource, quantity.clone());
    }
    for (resource, quantity) in ours.status.allocatable.iter() {
        status.allocatable.insert(resource, quantity.clone());
    }
    share_what_others_gave(status);
    // A cloud knows better, once it has said something; and who knows nothing takes nothing back.
    let says_the_cloud = input.cloud.is_some() && !status.addresses.is_empty();
    if !says_the_cloud && !ours.status.addresses.is_empty() {
        status.addresses = ours.status.addresses.clone();
    }
    match input.cloud.and_then(|cloud| cloud.provided_ips.clone()) {
        Some(ips) => drop(node.metadata.annotations.insert(PROVIDED_IPS, ips)),
        None => drop(node.metadata.annotations.remove(PROVIDED_IPS)),
    }
    status.daemon_endpoints = ours.status.daemon_endpoints.clone();
    status.node_info = ours.status.node_info.clone();
    // A runtime that was not asked yet may well have them.
    status.features = ours.status.features.clone().or(status.features.take());
    status.declared_features = ours.status.declared_features.clone();
    status.images = images.to_vec().into();
    status.volumes_in_use = volumes_in_use.clone().into();
    let mut handlers: Vec<_> = facts.handlers().iter().map(handler).collect();
    handlers.sort_by(|one, other| one.name.cmp(&other.name));
    status.runtime_handlers = handlers.into();
    let conditions = conditions(input);
    status.conditions = merge(&status.conditions, conditions);
    for label in ["kubernetes.io/os", "kubernetes.io/arch"] {
        if let Some(value) = input.labels.get(label) {
            node.metadata.labels.insert(label, value.clone());
        }
    }
    node
}

/// What somebody else says that the node has, such as `example.com/dongles`, is for pods; what it has no more, is not.
fn share_what_others_gave(status: &mut NodeStatus) {
    let gone: Vec<Text> = (status.allocatable.iter().map(|(name, _)| name))
        .filter(|name| is_extended(name) && status.capacity.get(name).is_none())
        .map(Text::from)
        .collect();
    for name in gone {
        status.allocatable.remove(&name);
    }
    for (name, quantity) in status.capacity.iter().filter(|(name, _)| is_extended(name)) {
        status.allocatable.insert(name, quantity.clone());
    }
}

/// Whether anything but the time of the last word is different.
pub fn differs(old: &Node, new: &Node) -> bool {
    let without_times = |node: &Node| {
        let mut node = node.clone();
        for condition in &mut node.status.conditions {
            condition.last_heartbeat_time = None;
        }
        node
    };
    without_times(old) != without_times(new)
}

/// What the machine's run is called now, where it was another one before.
pub fn rebooted<'a>(old: &Node, new: &'a Node) -> Option<&'a Text> {
    let (before, now) = (&old.status.node_info.boot_id, &new.status.node_info.boot_id);
    (!before.is_empty() && before != now).then_some(now)
}

/// The conditions that have another state than before, by the words of their events.
pub fn events(old: &Node, new: &Node) -> Vec<&'static str> {
    let state = |node: &Node, kind: &NodeConditionType| {
        let found = node.status.conditions.iter().find(|condition| condition.r#type == *kind);
        found.map(|condition| condition.status.clone())
    };
    let changed = new.status.conditions.iter().filter(|condition| {
        let before = state(old, &condition.r#type);
        match condition.r#type {
            // Of a node that is new nobody says that it became unready.
            NodeConditionType::Ready => before.is_some_and(|before| before != condition.status),
            _ => before.as_ref() != Some(&condition.status),
        }
    });
    changed.filter_map(event_of).collect()
}

fn event_of(condition: &NodeCondition) -> Option<&'static str> {
    let holds = condition.status == ConditionStatus::True;
    match (&condition.r#type, holds) {
        (NodeConditionType::Ready, true) => Some("NodeReady"),
        (NodeConditionType::Ready, false) => Some("NodeNotReady"),
        (NodeConditionType::MemoryPressure, true) => Some("NodeHasInsufficientMemory"),
        (NodeConditionType::MemoryPressure, false) => Some("NodeHasSufficientMemory"),
        (NodeConditionType::DiskPressure, true) => Some("NodeHasDiskPressure"),
        (NodeConditionType::DiskPressure, false) => Some("NodeHasNoDiskPressure"),
        (NodeConditionType::PidPressure, true) => Some("NodeHasInsufficientPID"),
        (NodeConditionType::PidPressure, false) => Some("NodeHasSufficientPID"),
        (NodeConditionType::NetworkUnavailable | NodeConditionType::Other(_), _) => None,
    }
}

/// The conditions that are ours, `Ready` last, as upstream.
fn conditions(input: &Input<'_>) -> Vec<NodeCondition> {
    let condition = |r#type, holds: bool, reason: &str, message: Text| NodeCondition {
        r#type,
        status: if holds { ConditionStatus::True } else { ConditionStatus::False },
        last_heartbeat_time: Some(input.now),
        last_transition_time: Some(input.now),
        reason: reason.into(),
        message,
    };
    let mut conditions: Vec<NodeCondition> = [
        (
            Pressure::MemoryPressure,
            NodeConditionType::MemoryPressure,
            ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
            ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ),
        (
            Pressure::DiskPressure,
            NodeConditionType::DiskPressure,
            ("KubeletHasDiskPressure", "kubelet has disk pressure"),
            ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ),
        (
            Pressure::PidPressure,
            NodeConditionType::PidPressure,
            ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
            ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ),
    ]
    .into_iter()
    .map(|(pressure, r#type, short, enough)| {
        let holds = input.pressure.contains(&pressure);
        let (reason, message) = if holds { short } else { enough };
        condition(r#type, holds, reason, message.into())
    })
    .collect();
    let reasons = not_ready(input);
    conditions.push(match reasons.is_empty() {
        true => condition(
            NodeConditionType::Ready,
            true,
            "KubeletReady",
            "kubelet is posting ready status".into(),
        ),
        false => condition(NodeConditionType::Ready, false, "KubeletNotReady", aggregate(&reasons).into()),
    });
    conditions
}

/// Everything that keeps the node from being ready, in upstream's order.
fn not_ready(input: &Input<'_>) -> Vec<String> {
    let capacity = &input.facts.node.status.capacity;
    let of_disk = input.isolates_local_storage.then_some("ephemeral-storage");
    let needed = ["cpu", "memory", "pods"].into_iter().chain(of_disk);
    let missing: Vec<&str> = needed.filter(|name| capacity.get(name).is_none()).collect();
    let of_runtime = input.ready.runtime.as_ref().err().map(|not_ready| match not_ready {
        // Why is in the log.
        NotReady::Down(_) => "container runtime is down".to_owned(),
        NotReady::NotAsked | NotReady::Said { .. } => not_ready.to_string(),
    });
    // What holds for both is said once.
    let of_network = input.ready.network.as_ref().err().map(ToString::to_string);
    let of_network = of_network.filter(|network| Some(network) != of_runtime.as_ref());
    let of_storage = input.storage.err().map(str::to_owned);
    let of_shutdown = input.ready.shuts_down.then(|| "node is shutting down".to_owned());
    let of_capacity =
        (!missing.is_empty()).then(|| format!("missing node capacity for resources: {}", missing.join(", ")));
    [of_runtime, of_network, of_storage, of_shutdown, of_capacity].into_iter().flatten().collect()
}

/// Several reasons as upstream puts them into one sentence.
fn aggregate(reasons: &[String]) -> String {
    match reasons {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// New conditions in the place of old ones of their type. One that says the same as before has changed when that did.
fn merge(old: &[NodeCondition], new: Vec<NodeCondition>) -> Box<[NodeCondition]> {
    let mut merged = old.to_vec();
    for mut condition in new {
        match merged.iter_mut().find(|other| other.r#type == condition.r#type) {
            Some(other) => {
                if other.status == condition.status {
                    condition.last_transition_time = other.last_transition_time;
                }
                *other = condition;
            }
            None => merged.push(condition),
        }
    }
    merged.into()
}

fn handler(handler: &v1::RuntimeHandler) -> NodeRuntimeHandler {
    // What a handler does not tell of itself it has not.
    let features = handler.features.unwrap_or_default();
    let features = NodeRuntimeHandlerFeatures {
        recursive_read_only_mounts: Some(features.recursive_read_only_mounts),
        user_namespaces: Some(features.user_namespaces),
    };
    NodeRuntimeHandler { name: handler.name.as_str().into(), features: Some(features) }
}

/// The images that the node has, the largest first, no more than `most` where that is not negative.
pub fn images(found: &[Image], most: i32) -> Vec<ContainerImage> {
    let mut images: Vec<ContainerImage> = found
        .iter()
        .map(|image| {
            let names = image.repo_digests.iter().chain(&image.repo_tags);
            ContainerImage {
                names: names.take(MOST_NAMES).map(|name| name.as_str().into()).collect(),
                size_bytes: i64::try_from(image.size).unwrap_or(i64::MAX),
            }
        })
        .collect();
    images.sort_by(|a, b| b.size_bytes.cmp(&a.size_bytes).then_with(|| a.names.cmp(&b.names)));
    if let Ok(most) = usize::try_from(most) {
        images.truncate(most);
    }
    images
}

#[cfg(test)]
mod tests {
    use crablet_api::Quantity;
    use crablet_api::core::{NodeAddress, NodeAddressType, NodeFeatures};

    use super::*;

    fn facts() -> Facts {
        let mut facts = Facts::default();
        for resource in ["cpu", "memory", "pods", "ephemeral-storage"] {
            facts.node.status.capacity.insert(resource, Quantity::from_value(2));
        }
        facts
    }

    fn own_labels() -> Map<Text> {
        let mut labels = Map::default();
        labels.insert("kubernetes.io/os", "linux".into());
        labels
    }

    fn ready() -> Ready {
        Ready { runtime: Ok(()), network: Ok(()), shuts_down: false }
    }

    fn made(old: &Node, facts: &Facts, ready: &Ready, storage: Result<(), &'static str>, now: i64) -> Node {
        let now = Time::from_unix_seconds(now);
        with_status(
            old,
            &Input {
                facts,
                labels: &own_labels(),
                ready,
                pressure: &BTreeSet::new(),
                storage,
                isolates_local_storage: true,
                images: &[],
                volumes_in_use: Vec::new(),
                cloud: None,
                now,
            },
        )
    }

    /// What is said of readiness, and since when.
    fn told(node: &Node) -> (String, i64) {
        let ready = node.status.conditions.iter().find(|known| known.r#type == NodeConditionType::Ready);
        let NodeCondition { status, reason, message, last_transition_time, .. } = ready.unwrap();
        let since = last_transition_time.unwrap().unix_seconds();
        (format!("{} {reason}: {message}", status.as_str()), since)
    }

    #[test]
    fn everything_that_keeps_a_node_from_being_ready_is_said_in_upstreams_words() {
        let down = Err(NotReady::Down("gone".to_owned()));
        let no_network = Err(NotReady::Said {
            what: "runtime network",
            condition: "NetworkReady",
            reason: "NetworkPluginNotReady".to_owned(),
            message: "cni plugin not initialized".to_owned(),
        });
        let network = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady \
                       message:cni plugin not initialized";
        let uninitialized = Err("CSINode is not yet initialized");
        for (ready, storage, expected) in [
            (ready(), Ok(()), "True KubeletReady: kubelet is posting ready status".to_owned()),
            (
                Ready { shuts_down: true, ..ready() },
                Ok(()),
                "False KubeletNotReady: node is shutting down".to_owned(),
            ),
            (
                Ready { shuts_down: true, ..ready() },
                uninitialized,
                "False KubeletNotReady: [CSINode is not yet initialized, node is shutting down]".to_owned(),
            ),
            (ready(), uninitialized, "False KubeletNotReady: CSINode is not yet initialized".to_owned()),
            (
                Ready { network: no_network.clone(), ..ready() },
                Ok(()),
                format!("False KubeletNotReady: {network}"),
            ),
            (
                Ready { network: no_network, ..ready() },
                uninitialized,
                format!("False KubeletNotReady: [{network}, CSINode is not yet initialized]"),
            ),
            (
                Ready { runtime: down, ..ready() },
                Ok(()),
                "False KubeletNotReady: container runtime is down".to_owned(),
            ),
        ] {
            assert_eq!(told(&made(&Node::default(), &facts(), &ready, storage, 0)).0, expected);
        }
        let none = made(&Node::default(), &Facts::default(), &ready(), Ok(()), 0);
        let missing = "False KubeletNotReady: missing node capacity for resources: cpu, memory, pods, ephemeral-storage";
        assert_eq!(told(&none).0, missing);
    }

    #[test]
    fn a_condition_has_changed_when_its_state_did_and_only_that_is_an_event() {
        let not_yet = Err("CSINode is not yet initialized");
        let first = made(&Node::default(), &facts(), &ready(), not_yet, 10);
        let pressures = ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"];
        assert_eq!(events(&Node::default(), &first), pressures);
        let second = made(&first, &facts(), &ready(), Ok(()), 20);
        assert_eq!((told(&second).1, events(&first, &second)), (20, vec!["NodeReady"]));
        let third = made(&second, &facts(), &ready(), Ok(()), 30);
        assert_eq!((told(&third).1, events(&second, &third), differs(&second, &third)), (20, vec![], false));
        let fourth = made(&third, &facts(), &ready(), not_yet, 40);
        assert_eq!((told(&fourth).1, events(&third, &fourth)), (40, vec!["NodeNotReady"]));
        assert!(differs(&third, &fourth));
    }

    #[test]
    fn a_node_was_rebooted_where_its_run_was_another_before() {
        let node = |boot: &str| {
            let mut node = Node::default();
            node.status.node_info.boot_id = boot.into();
            node
        };
        for (old, new, expected) in [("", "b", None), ("b", "b", None), ("a", "b", Some("b"))] {
            let (old, new) = (node(old), node(new));
            assert_eq!(rebooted(&old, &new).map(|boot| &**boot), expected);
        }
    }

    #[test]
    fn what_a_handler_does_not_tell_of_itself_it_has_not() {
        let able = v1::RuntimeHandlerFeatures { recursive_read_only_mounts: true, user_namespaces: true };
        let handler = |name: &str, features| v1::RuntimeHandler { name: name.to_owned(), features };
        let handlers = vec![handler("silent", None), handler("able", Some(able))];
        let facts = Facts { handlers: Some(handlers.into()), ..facts() };
        let node = made(&Node::default(), &facts, &ready(), Ok(()), 0);
        assert_eq!(
            serde_json::to_string(&node.status.runtime_handlers).unwrap(),
            r#"[{"name":"able","features":{"recursiveReadOnlyMounts":true,"userNamespaces":true}},"#
                .to_owned()
                + r#"{"name":"silent","features":{"recursiveReadOnlyMounts":false,"userNamespaces":false}}]"#
        );
    }

    #[test]
    fn what_others_put_into_the_status_stays() {
        let mut old = Node::default();
        old.metadata.labels.insert("kubernetes.io/os", "windows".into());
        old.metadata.labels.insert("zone", "a".into());
        old.status.capacity.insert("example.com/gpu", Quantity::from_value(4));
        let theirs = NodeCondition {
            r#type: NodeConditionType::NetworkUnavailable,
            status: ConditionStatus::False,
            ..NodeCondition::default()
        };
        old.status.conditions = Box::new([theirs.clone()]);
        old.status.allocatable.insert("example.com/gone", Quantity::from_value(1));
        old.status.features = Some(NodeFeatures { supplemental_groups_policy: Some(true) });
        let node = made(&old, &facts(), &ready(), Ok(()), 0);
        assert_eq!(node.status.capacity["example.com/gpu"], Quantity::from_value(4));
        assert_eq!(node.status.allocatable["example.com/gpu"], Quantity::from_value(4));
        assert!(node.status.allocatable.get("example.com/gone").is_none());
        assert_eq!(node.status.features, old.status.features, "the runtime was not asked yet");
        assert_eq!(node.status.conditions[0], theirs);
        assert_eq!(node.status.conditions.last().map(|last| &last.r#type), Some(&NodeConditionType::Ready));
        assert_eq!(node.metadata.labels["zone"], "a");
        assert_eq!(node.metadata.labels["kubernetes.io/os"], "linux", "that is not for others to say");
    }

    #[test]
    fn a_cloud_tells_the_addresses_and_is_told_which_ones_were_given() {
        let address = |address: &str| -> Box<[NodeAddress]> {
            Box::new([NodeAddress { r#type: NodeAddressType::InternalIp, address: address.into() }])
        };
        let (mut facts, ready, now) = (facts(), ready(), Time::from_unix_seconds(0));
        facts.node.status.addresses = address("10.0.0.1");
        let made = |old: &Node, facts: &Facts, cloud: Option<&Cloud>| {
            let (storage, images) = (Ok(()), &[][..]);
            let input = Input {
                facts,
                labels: &own_labels(),
                ready: &ready,
                pressure: &BTreeSet::new(),
                storage,
                isolates_local_storage: true,
                images,
                volumes_in_use: Vec::new(),
                cloud,
                now,
            };
            let node = with_status(old, &input);
            let provided = node.metadata.annotations.get(PROVIDED_IPS).cloned();
            (node.status.addresses.clone(), provided.unwrap_or_default(), node)
        };
        let cloud = Cloud { provided_ips: Some("10.0.0.1".into()) };
        let (addresses, provided, mut node) = made(&Node::default(), &facts, Some(&cloud));
        assert_eq!((addresses, &*provided), (address("10.0.0.1"), "10.0.0.1"), "until it says something");
        node.status.addresses = address("192.0.2.1");
        let (addresses, _, mut node) = made(&node, &facts, Some(&cloud));
        assert_eq!(addresses, address("192.0.2.1"));
        let (addresses, provided, _) = made(&node, &facts, None);
        assert_eq!((addresses, &*provided), (address("10.0.0.1"), ""), "there is no cloud any more");
        facts.node.status.addresses = Box::default();
        node.status.addresses = address("10.0.0.1");
        assert_eq!(made(&node, &facts, None).0, address("10.0.0.1"), "nothing is known");
    }

    #[test]
    fn the_largest_images_are_told_with_five_names_each() {
        let image = |name: &str, size, tags: usize| Image {
            repo_digests: vec![format!("{name}@sha256:0")],
            repo_tags: (0..tags).map(|tag| format!("{name}:{tag}")).collect(),
            size,
            id: name.to_owned(),
            user: None,
            pinned: false,
        };
        let found = [image("small", 1, 1), image("large", 9, 9), image("middle", 5, 0)];
        let told = |most| {
            let told = images(&found, most).into_iter();
            told.map(|image| (image.names.len(), image.size_bytes)).collect::<Vec<_>>()
        };
        assert_eq!(told(2), [(5, 9), (1, 5)]);
        assert_eq!(told(-1), [(5, 9), (1, 5), (2, 1)]);
        assert_eq!(told(0), []);
    }
}
