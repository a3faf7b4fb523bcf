//! What the API server said last, kept on the node's disk for an agent that starts while the server is away: after a
//! reboot it can start pods before anybody answers.
//!
//! Kept are pods without their statuses, the config maps, runtime classes and CSI drivers that they refer to, services, and the
//! node's labels and taints, by which pods are admitted. Each is a file that only the agent's user can read, written
//! when it changes, behind everybody's back. They are one cluster's: an agent that is sent to another starts with
//! nothing. **Secrets and tokens are never kept**: no kind has a [`Kept`] but those.
//!
//! ```text
//!   API server ──► pod_source, objects, node ──keep──► Memory ──► disk
//!                           ▲                            │ what an agent before kept, until the server has told of it
//!                           └─────────recalled───────────┘
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crablet_agent::checkpoints::{CheckpointWriter, Record};
use crablet_agent::sources::differ_semantically;
use crablet_agent::tasks::Tasks;
use crablet_api::certificates::ClusterTrustBundle;
use crablet_api::core::{ConfigMap, Node, NodeSpec, Pod, PodStatus, Service, ServiceStatus};
use crablet_api::document::Limits;
use crablet_api::meta::ObjectMeta;
use crablet_api::node::RuntimeClass;
use crablet_api::storage::CsiDriver;
use crablet_api::{JsonError, Text};
use crablet_client::Resource;
use crablet_core::translate::{ObjectKind, pod_references};
use crablet_host::checkpoint::{CheckpointError, Checkpoints};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tracing::{info, warn};

/// An object's namespace and name.
pub(crate) type Key = (Text, Text);

/// Objects of a kind.
pub(crate) type Shelf<T> = BTreeMap<Key, Arc<T>>;

/// The file that says whose the others are.
const CLUSTER: &str = "cluster";

/// What is kept. Clones are the same.
#[derive(Clone)]
pub struct Memory(Arc<Inner>);

struct Inner {
    writer: CheckpointWriter,
    recalled: Mutex<Recalled>,
    /// Since when the server does not answer, while pods are run from memory.
    away_since: watch::Sender<Option<Timestamp>>,
}

/// What an agent before this one kept, and what the server has not told of since.
#[derive(Default)]
pub(crate) struct Recalled {
    pods: Shelf<Pod>,
    config_maps: Shelf<ConfigMap>,
    services: Shelf<Service>,
    runtime_classes: Shelf<RuntimeClass>,
    csi_drivers: Shelf<CsiDriver>,
    trust_bundles: Shelf<ClusterTrustBundle>,
    nodes: Shelf<Node>,
}

/// A kind of object that is kept.
pub(crate) trait Kept: Resource {
    fn shelf(recalled: &mut Recalled) -> &mut Shelf<Self>;

    /// Whether the same is kept of both.
    fn is_kept_as(&self, other: &Self) -> bool;

    /// What is kept of it.
    fn kept(&self) -> Self;
}

impl Memory {
    /// What is kept of a cluster in a store, which nobody else writes to. Whatever the cluster is known by is told from
    /// that of others.
    pub async fn open(
        store: Arc<dyn Checkpoints>,
        cluster: &[u8],
        tasks: &Tasks,
    ) -> Result<Memory, CheckpointError> {
        let mut loaded = store.load_all().await?;
        let cluster = hex(cluster).into_bytes();
        let kept = loaded.checkpoints.remove(CLUSTER);
        if kept.as_ref() != Some(&cluster) {
            if kept.is_some() {
                info!("What another cluster's API server said is forgotten");
            }
            // Whose the rest is must not be said before nothing is left of the other's.
            for name in std::mem::take(&mut loaded.checkpoints).into_keys() {
                store.remove(&name).await?;
            }
            store.save(CLUSTER, &cluster).await?;
        }
        for error in &loaded.unreadable {
            warn!(%error, "Cannot read what the API server said; it is asked anew");
        }
        let writer = CheckpointWriter::new(store);
        let mut recalled = Recalled::default();
        for (name, bytes) in loaded.checkpoints {
            if let Err(error) = recalled.read(&name, &bytes) {
                warn!(name, %error, "Cannot understand what the API server said; it is asked anew");
                writer.remove_soon(&name);
            }
        }
        if !recalled.pods.is_empty() {
            info!(pods = recalled.pods.len(), "Remembering what the API server wanted");
        }
        tasks.spawn(writer.clone().run());
        let memory = Memory(Arc::new(Inner {
            writer,
            recalled: Mutex::new(recalled),
            away_since: watch::Sender::new(None),
        }));
        memory.forget_unreferenced();
        Ok(memory)
    }

    /// What an agent before this one kept of an object, if the server has not told of it since.
    pub(crate) fn recalled<T: Kept>(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        T::shelf(&mut self.lock()).get(&(namespace.into(), name.into())).cloned()
    }

    /// The same of all objects of a kind.
    pub(crate) fn all_recalled<T: Kept>(&self) -> Shelf<T> {
        T::shelf(&mut self.lock()).clone()
    }

    /// The server has told of an object that was known as `before`: from now on it is `now`, or gone. What says the same
    /// is not written again.
    pub(crate) fn keep<T: Kept>(&self, key: &Key, before: Option<&T>, now: Option<&T>) {
        T::shelf(&mut self.lock()).remove(key);
        match (before, now) {
            (Some(before), Some(now)) if before.is_kept_as(now) => {}
            (_, Some(now)) => {
                let record = Record { bytes: crablet_api::to_json(&now.kept()), synced: true };
                self.0.writer.write(&file_name::<T>(key), record);
            }
            (Some(_), None) => self.0.writer.remove_soon(&file_name::<T>(key)),
            (None, None) => {}
        }
    }

    /// The server has told of all objects of a kind.
    pub(crate) fn keep_all<T: Kept>(&self, before: &Shelf<T>, now: &Shelf<T>) {
        for (key, before) in before.iter().filter(|(key, _)| !now.contains_key(*key)) {
            self.keep(key, Some(&**before), None);
        }
        for (key, now) in now {
            self.keep(key, before.get(key).map(|before| &**before), Some(&**now));
        }
    }

    /// No pod refers to a config map any more.
    pub(crate) fn forget_config_map(&self, key: &Key) {
        ConfigMap::shelf(&mut self.lock()).remove(key);
        self.0.writer.remove_soon(&file_name::<ConfigMap>(key));
    }

    /// Since when the server does not answer, while pods are run from memory.
    pub(crate) fn away_since(&self) -> Option<Timestamp> {
        *self.0.away_since.borrow()
    }

    /// Tells when that changes.
    pub(crate) fn away(&self) -> watch::Receiver<Option<Timestamp>> {
        self.0.away_since.subscribe()
    }

    pub(crate) fn set_away(&self, since: Option<Timestamp>) {
        self.0.away_since.send_replace(since);
    }

    /// Forgets config maps that no pod refers to: they stayed when an agent ended in between.
    fn forget_unreferenced(&self) {
        let unreferenced: Vec<Key> = {
            let recalled = self.lock();
            let config_maps = recalled.config_maps.keys();
            config_maps.filter(|key| !is_referred_to(recalled.pods.values(), key)).cloned().collect()
        };
        for key in unreferenced {
            self.forget_config_map(&key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Recalled> {
        self.0.recalled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether one of these pods refers to a config map.
pub(crate) fn is_referred_to<'a>(mut pods: impl Iterator<Item = &'a Arc<Pod>>, config_map: &Key) -> bool {
    let (namespace, name) = config_map;
    pods.any(|pod| {
        pod.metadata.namespace == *namespace
            && pod_references(pod).contains(&(ObjectKind::ConfigMap, name.as_str()))
    })
}

impl Recalled {
    /// Takes in a file.
    fn read(&mut self, name: &str, bytes: &[u8]) -> Result<(), Unusable> {
        let kind = name.split('.').next().unwrap_or_default();
        match kind {
            Pod::PLURAL => self.add::<Pod>(bytes),
            ConfigMap::PLURAL => self.add::<ConfigMap>(bytes),
            Service::PLURAL => self.add::<Service>(bytes),
            RuntimeClass::PLURAL => self.add::<RuntimeClass>(bytes),
            CsiDriver::PLURAL => self.add::<CsiDriver>(bytes),
            ClusterTrustBundle::PLURAL => self.add::<ClusterTrustBundle>(bytes),
            Node::PLURAL => self.add::<Node>(bytes),
            _ => Err(Unusable::Kind),
        }
    }

    fn add<T: Kept>(&mut self, bytes: &[u8]) -> Result<(), Unusable> {
        let object: T = crablet_api::from_json(bytes, Limits::API)?;
        let ObjectMeta { namespace, name, .. } = object.metadata();
        T::shelf(self).insert((namespace.clone(), name.clone()), Arc::new(object));
        Ok(())
    }
}

/// Why a file is of no use.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("it is not of a kind that is kept")]
    Kind,
    #[error(transparent)]
    Content(#[from] JsonError),
}

/// A name can be longer than the name of a file.
fn file_name<T: Resource>((namespace, name): &Key) -> String {
    format!("{}.{}", T::PLURAL, hex(format!("{namespace}/{name}").as_bytes()))
}

/// What stands for something of any length.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in Sha256::digest(bytes) {
        // Writing to a string never fails.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

impl Kept for Pod {
    fn shelf(recalled: &mut Recalled) -> &mut Shelf<Pod> {
        &mut recalled.pods
    }

    fn is_kept_as(&self, other: &Pod) -> bool {
        let (one, two) = (&self.metadata, &other.metadata);
        one.uid == two.uid
            && one.owner_references == two.owner_references
            && !differ_semantically(self, other)
    }

    /// The status is the agent's own to know, and changes all the time.
    fn kept(&self) -> Pod {
        Pod { status: PodStatus::default(), ..self.clone() }
    }
}

impl Kept for ConfigMap {
    fn shelf(recalled: &mut Recalled) -> &mut Shelf<ConfigMap> {
        &mut recalled.config_maps
    }

    fn is_kept_as(&self, other: &ConfigMap) -> bool {
        (&self.data, &self.binary_data) == (&other.data, &other.binary_data)
    }

    fn kept(&self) -> ConfigMap {
        self.clone()
    }
}

impl Kept for Service {
    fn shelf(recalled: &mut Recalled) -> &mut Shelf<Service> {
        &mut recalled.services
    }

    fn is_kept_as(&self, other: &Service) -> bool {
        self.spec == other.spec
    }

    fn kept(&self) -> Service {
        Service { status: ServiceStatus::default(), ..self.clone() }
    }
}

impl Kept for ClusterTrustBundle {
    fn shelf(recalled: &mut Recalled) -> &mut Shelf<ClusterTrustBundle> {
        &mut recalled.trust_bundles
    }

    fn is_kept_as(&self, other: &ClusterTrustBundle) -> bool {
        self.spec == other.spec && self.metadata.labels == other.metadata.labels
    }

    fn kept(&self) -> ClusterTrustBundle {
        self.clone()
    }
}

impl Kept for CsiDriver {
    fn shelf(recalled: &mut Recalled) -> &mut Shelf<CsiDriver> {
        &mut recalled.csi_drivers
    }

    fn is_kept_as(&self, other: &CsiDriver) -> bool {
        self.spec == other.spec
    }

    fn kept(&self) -> CsiDriver {
        self.clone()
    }
}

impl Kept for RuntimeClass {
    fn shelf(recalled: &mut Recalled) -> &mut Shelf<RuntimeClass> {
        &mut recalled.runtime_classes
    }

    fn is_kept_as(&self, other: &RuntimeClass) -> bool {
        self.handler == other.handler
    }

    fn kept(&self) -> RuntimeClass {
        self.clone()
    }
}

impl Kept for Node {
    fn shelf(recalled: &mut Recalled) -> &mut Shelf<Node> {
        &mut recalled.nodes
    }

    fn is_kept_as(&self, other: &Node) -> bool {
        self.kept() == other.kept()
    }

    /// What pods are admitted by.
    fn kept(&self) -> Node {
        let ObjectMeta { name, uid, labels, .. } = self.metadata.clone();
        let metadata = ObjectMeta { name, uid, labels, ..ObjectMeta::default() };
        let spec = NodeSpec { taints: self.spec.taints.clone(), ..NodeSpec::default() };
        Node { metadata, spec, ..Node::default() }
    }
}

#[cfg(test)]
mod tests;
