//! What is known of the node and may change while the agent runs: its labels and taints, what it has for pods, its
//! addresses, and what its runtime can do.
//!
//! Who needs them asks for the newest each time. Whoever learns of something new ([`LiveFacts::change`]) says it of the
//! node's object, and what statuses and translations are made from follows. Who waits for such is told
//! ([`LiveFacts::subscribe`]), and all pods look when other statuses follow ([`Facts::show_pods_as`]).
//!
//! Who follows the node at an API server hears of a change some time after it was made. It can be asked to look there now
//! ([`LiveFacts::read_again`]).

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crablet_api::core::{Node, NodeAddress, NodeAddressType, NodeFeatures};
use crablet_core::declared_features::declared;
use crablet_core::{status, translate};
use crablet_cri_api::v1;
use crablet_host::cgroup::Limits;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::node_config::Sizes;

/// How long the API server has to say how it has the node now.
pub const READ_WITHIN: Duration = Duration::from_secs(10);

/// The newest facts. Clones tell the same.
#[derive(Debug, Clone)]
pub struct LiveFacts {
    newest: watch::Sender<Arc<Facts>>,
    reader: Arc<OnceLock<mpsc::Sender<Read>>>,
}

/// Somebody waits for the node to be read at the API server, until this is dropped.
pub type Read = oneshot::Sender<()>;

/// What is known of the node at one moment.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// As the API server would show it: what admission is decided from.
    pub node: Node,
    /// For the translation of pods.
    pub translation: translate::NodeContext,
    /// For the statuses of pods.
    pub status: status::NodeFacts,
    /// What all pods together are held to.
    pub held: Limits,
    /// The runtime's handlers, and what each can do: none where it does not tell, and nothing until it was asked.
    pub handlers: Option<Arc<[v1::RuntimeHandler]>>,
}

impl Facts {
    /// The runtime's handlers, as far as they are known.
    pub fn handlers(&self) -> &[v1::RuntimeHandler] {
        self.handlers.as_deref().unwrap_or_default()
    }

    /// Whether pods are shown as they were by others. What the machine has makes no difference.
    pub fn show_pods_as(&self, others: &Facts) -> bool {
        self.status == others.status && self.handlers == others.handlers
    }
}

impl LiveFacts {
    /// These, until somebody says otherwise.
    pub fn new(facts: Facts) -> LiveFacts {
        LiveFacts { newest: watch::Sender::new(Arc::new(facts)), reader: Arc::default() }
    }

    /// The newest facts.
    pub fn now(&self) -> Arc<Facts> {
        Arc::clone(&self.newest.borrow())
    }

    /// Tells when the node has other addresses, handlers or sizes than before.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Facts>> {
        self.newest.subscribe()
    }

    /// Whoever keeps the node at an API server reads it there when somebody asks for that here.
    pub fn reads(&self) -> mpsc::Receiver<Read> {
        let (reader, reads) = mpsc::channel(1);
        let _ = self.reader.set(reader);
        reads
    }

    /// Whether the node is kept at an API server, and can be read there.
    pub fn can_be_read(&self) -> bool {
        self.reader.get().is_some()
    }

    /// Completes when the node was read at the API server, and what was found is known here; or cannot be within a time.
    pub async fn read_again(&self) {
        let Some(reader) = self.reader.get() else { return };
        let (read, is_done) = oneshot::channel();
        let reading = async {
            if reader.send(read).await.is_ok() {
                let _ = is_done.await;
            }
        };
        let _ = timeout(READ_WITHIN, reading).await;
    }

    /// Takes in that the node is different from now on. What is decided next is decided from that.
    pub fn change(&self, change: impl FnOnce(&mut Node)) {
        self.newest.send_if_modified(|facts| {
            let facts = Arc::make_mut(facts);
            let addresses = facts.node.status.addresses.clone();
            change(&mut facts.node);
            facts.translation.facts.allocatable = facts.node.status.allocatable.clone();
            facts.translation.facts.labels = facts.node.metadata.labels.clone();
            let have_moved = facts.node.status.addresses != addresses;
            if have_moved {
                let ips = host_ips(&facts.node.status.addresses);
                facts.status.prefers_ipv6 = ips.first().is_some_and(IpAddr::is_ipv6);
                facts.status.host_ips.clone_from(&ips);
                facts.translation.facts.node_ips.clone_from(&ips);
                facts.translation.facts.host_ips = ips;
            }
            have_moved
        });
    }

    /// Takes in what the machine has by now. Says whether that is something else than before.
    pub fn measure(&self, sizes: &Sizes) -> bool {
        self.newest.send_if_modified(|facts| {
            let Sizes { capacity, allocatable, swap, held, .. } = sizes;
            let mut changed = Facts::clone(facts);
            changed.held.clone_from(held);
            let status = &mut changed.node.status;
            // What others have put there stays.
            for (list, sizes) in [(&mut status.capacity, capacity), (&mut status.allocatable, allocatable)] {
                for (name, quantity) in sizes.iter() {
                    list.insert(name, quantity.clone());
                }
            }
            status.node_info.swap.clone_from(swap);
            let of_pods = &mut changed.translation.facts;
            of_pods.allocatable.clone_from(&changed.node.status.allocatable);
            (of_pods.memory_capacity, of_pods.swap_capacity) = (sizes.memory, sizes.swap_capacity);
            of_pods.enforced_memory = sizes.enforced_memory;
            of_pods.huge_page_sizes.clone_from(&sizes.huge_page_sizes);
            let is_other = changed.node.status != facts.node.status || changed.held != facts.held;
            if is_other {
                *facts = Arc::new(changed);
            }
            is_other
        })
    }

    /// Takes in what the runtime says that it can do.
    pub fn tell_runtime(&self, handlers: Vec<v1::RuntimeHandler>, features: Option<v1::RuntimeFeatures>) {
        self.newest.send_if_modified(|facts| {
            let declared = declared(&facts.translation.features, features);
            if facts.node.status.declared_features != declared {
                Arc::make_mut(facts).node.status.declared_features = declared;
            }
            let features = features.map(|can| {
                let supplemental_groups_policy = Some(can.supplemental_groups_policy);
                NodeFeatures { supplemental_groups_policy }
            });
            if facts.node.status.features != features {
                Arc::make_mut(facts).node.status.features = features;
            }
            let is_other = facts.handlers.as_deref() != Some(&*handlers);
            if is_other {
                Arc::make_mut(facts).handlers = Some(handlers.into());
            }
            is_other
        });
    }
}

/// The addresses that pods in the host's network have: internal ones before external ones, and one of each family.
fn host_ips(addresses: &[NodeAddress]) -> Vec<IpAddr> {
    let of = |wanted: NodeAddressType| {
        let of_type = addresses.iter().filter(move |address| address.r#type == wanted);
        of_type.filter_map(|address| address.address.parse::<IpAddr>().ok())
    };
    let mut all = of(NodeAddressType::InternalIp).chain(of(NodeAddressType::ExternalIp));
    let Some(first) = all.next() else { return Vec::new() };
    let second = all.find(|other| other.is_ipv6() != first.is_ipv6());
    [first].into_iter().chain(second).collect()
}

/// How the node's object tells of addresses that it is reached by.
pub fn node_addresses(name: &str, ips: &[IpAddr]) -> Box<[NodeAddress]> {
    let address = |r#type, address: String| NodeAddress { r#type, address: address.into() };
    let internal = ips.iter().map(|ip| address(NodeAddressType::InternalIp, ip.to_string()));
    internal.chain([address(NodeAddressType::Hostname, name.to_owned())]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_have_an_address_of_each_family_and_internal_ones_first() {
        let address =
            |r#type: NodeAddressType, address: &str| NodeAddress { r#type, address: address.into() };
        let (internal, external) = (NodeAddressType::InternalIp, NodeAddressType::ExternalIp);
        for (addresses, expected) in [
            (vec![], ""),
            (vec![address(NodeAddressType::Hostname, "10.0.0.1")], ""),
            (vec![address(external.clone(), "1.2.3.4"), address(internal.clone(), "10.0.0.1")], "10.0.0.1"),
            (vec![address(external.clone(), "1.2.3.4")], "1.2.3.4"),
            (
                vec![
                    address(internal.clone(), "fd00::1"),
                    address(external, "1.2.3.4"),
                    address(internal, "10.0.0.1"),
                ],
                "fd00::1 10.0.0.1",
            ),
        ] {
            let found: Vec<String> = host_ips(&addresses).iter().map(ToString::to_string).collect();
            assert_eq!(found.join(" "), expected, "{addresses:?}");
        }
    }

    #[test]
    fn what_the_node_is_told_of_itself_it_tells_pods() {
        let ips = ["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
        assert_eq!(host_ips(&node_addresses("node", &ips)), ips);
    }
}
