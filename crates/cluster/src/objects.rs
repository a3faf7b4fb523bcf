//! The objects that pods refer to, from the API server.
//!
//! ```text
//!   worker ──register_pod──► ClusterObjects ──one watch each──► config maps, secrets
//!     ▲ │                       │    │    └────one watch──────► services; runtime classes and CSI drivers, once a pod needs one
//!     │ └──config_map, …──────► │    ├─────────TokenRequest───► tokens
//!     │                         │    └─PodCertificateRequest──► certificates
//!     └───── Input::Objects ◄───┘
//! ```
//!
//! Config maps and secrets are followed by name, which is all that a node may do: each by one watch that its pods share,
//! and that ends with the last of them. Other strategies ask instead ([`asked`]), and have all pods look now and then.

mod asked;
mod collection;
mod followed;
mod trust_bundles;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use crablet_agent::mailbox::Mailbox;
use crablet_agent::objects::{Interest, Interests, Objects};
use crablet_agent::recorder::Recorder;
use crablet_agent::tasks::Tasks;
use crablet_api::Text;
use crablet_api::certificates::ClusterTrustBundle;
use crablet_api::core::{
    ClusterTrustBundleProjection, ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service,
};
use crablet_api::meta::ObjectMeta;
use crablet_api::node::RuntimeClass;
use crablet_api::storage::{CsiDriver, VolumeAttachment};
use crablet_client::{Chance, Client, Error, PatchType, Resource, Selection};
use crablet_config::ChangeDetectionStrategy;
use crablet_core::translate::{ObjectKind, Unavailable, pod_references};
use crablet_host::clock::Clock;
use crablet_volumes::{CertificateOf, Contents, NoCertificate, PodCertificate, Token, TokenRequest};
use jiff::Timestamp;
use tokio::sync::watch;

use crate::memory::{Key, Memory};
use crate::node::Identity;
use crate::pod_certificates::{self, PodCertificates};
use crate::tokens::{PodTokens, Tokens};
pub use asked::ObjectTtl;
use asked::{Asked, KeepsFor};
use collection::{Collected, Collection};
use followed::Following;

/// How long somebody who asks for an object waits until it is known whether it is there, as upstream.
const KNOWN_WITHIN: Duration = Duration::from_secs(1);

/// What is needed to have objects.
pub struct Parts {
    pub client: Client,
    pub clock: Clock,
    pub chance: Chance,
    /// Where the watches run.
    pub tasks: Tasks,
    /// `configMapAndSecretChangeDetectionStrategy`.
    pub strategy: ChangeDetectionStrategy,
    /// `syncFrequency`: how often pods look at what they refer to where nobody tells of changes.
    pub sync_frequency: Duration,
    /// What the node's object says of how long they may be taken for current.
    pub ttl: ObjectTtl,
    /// Where what the server says is kept, if it is.
    pub memory: Option<Memory>,
}

/// The objects of a cluster.
pub struct ClusterObjects {
    interests: Interests,
    config_maps: Source<ConfigMap>,
    secrets: Source<Secret>,
    services: Collection<Service>,
    runtime_classes: OnceLock<Collection<RuntimeClass>>,
    csi_drivers: OnceLock<Collection<CsiDriver>>,
    /// Whether pods are shown whom to trust: the gate `ClusterTrustBundleProjection`.
    shows_trust_bundles: OnceLock<()>,
    trust_bundles: OnceLock<Collection<ClusterTrustBundle>>,
    /// The certificates of pods, where the node asks for some.
    certificates: OnceLock<Arc<PodCertificates>>,
    clock: Clock,
    tokens: Arc<Tokens>,
    client: Client,
    chance: Mutex<Chance>,
    tasks: Tasks,
    memory: Option<Memory>,
}

/// How the objects of a kind are had.
enum Source<T> {
    Followed(Following<T>),
    Asked(Asked<T>),
}

/// What an interest keeps.
enum Held {
    ConfigMap(#[expect(dead_code, reason = "held, not read")] Hold<ConfigMap>),
    Secret(#[expect(dead_code, reason = "held, not read")] Hold<Secret>),
    Tokens(#[expect(dead_code, reason = "held, not read")] Arc<PodTokens>),
    Certificates(#[expect(dead_code, reason = "held, not read")] Arc<pod_certificates::OfPod>),
}

/// An object that somebody refers to.
enum Hold<T> {
    Followed(#[expect(dead_code, reason = "held, not read")] Arc<followed::Followed<T>>),
    Asked(#[expect(dead_code, reason = "held, not read")] Arc<asked::Entry<T>>),
}

impl ClusterObjects {
    pub fn new(parts: Parts) -> Arc<ClusterObjects> {
        let Parts { client, clock, mut chance, tasks, strategy, sync_frequency, ttl, memory } = parts;
        let interests = Interests::new();
        let tokens =
            Tokens::new(client.clone(), clock.clone(), chance.split(), interests.clone(), memory.clone());
        tasks.spawn(Arc::clone(&tokens).run());
        // Of one without an address no pod is told.
        let with_addresses = Selection { fields: "spec.clusterIP!=None".to_owned(), ..Selection::default() };
        let services =
            Collection::follow(client.clone(), &with_addresses, chance.split(), &tasks, memory.clone());
        let keeps_for = match &strategy {
            ChangeDetectionStrategy::Watch | ChangeDetectionStrategy::Other(_) => None,
            ChangeDetectionStrategy::Cache => Some(KeepsFor::Ttl(ttl)),
            ChangeDetectionStrategy::Get => Some(KeepsFor::NoTime),
        };
        if keeps_for.is_some() {
            tasks.spawn(have_all_look(interests.clone(), sync_frequency, chance.split()));
        }
        Arc::new(ClusterObjects {
            config_maps: Source::new(&client, &interests, &tasks, &mut chance, &memory, keeps_for.clone()),
            secrets: Source::new(&client, &interests, &tasks, &mut chance, &memory, keeps_for),
            services,
            runtime_classes: OnceLock::new(),
            csi_drivers: OnceLock::new(),
            shows_trust_bundles: OnceLock::new(),
            trust_bundles: OnceLock::new(),
            certificates: OnceLock::new(),
            clock,
            interests,
            tokens,
            client,
            chance: Mutex::new(chance),
            tasks,
            memory,
        })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    fn runtime_classes(&self) -> &Collection<RuntimeClass> {
        self.runtime_classes.get_or_init(|| self.follow_all())
    }

    fn csi_drivers(&self) -> &Collection<CsiDriver> {
        self.csi_drivers.get_or_init(|| self.follow_all())
    }

    /// Has pods shown whom to trust.
    pub fn show_trust_bundles(&self) {
        self.shows_trust_bundles.get_or_init(|| ());
    }

    /// Has certificates issued for pods that come from now on.
    pub(crate) fn issue_certificates(
        &self,
        node_name: Text,
        node: watch::Receiver<Option<Identity>>,
        recorder: Recorder,
    ) -> Arc<PodCertificates> {
        let make = || {
            PodCertificates::new(pod_certificates::Parts {
                client: self.client.clone(),
                clock: self.clock.clone(),
                chance: self.chance.lock().unwrap_or_else(PoisonError::into_inner).split(),
                interests: self.interests.clone(),
                tasks: self.tasks.clone(),
                node_name,
                node,
                recorder,
            })
        };
        Arc::clone(self.certificates.get_or_init(make))
    }

    fn trust_bundles(&self) -> &Collection<ClusterTrustBundle> {
        self.trust_bundles.get_or_init(|| {
            let all = self.follow_all();
            let interests = self.interests.clone();
            all.on_change(&self.tasks, move || interests.trust_bundles_may_have_changed());
            all
        })
    }

    fn follow_all<T: Collected>(&self) -> Collection<T> {
        let chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner).split();
        let all = Selection::default();
        Collection::follow(self.client.clone(), &all, chance, &self.tasks, self.memory.clone())
    }
}

/// Has all pods look at what they refer to, now and then.
async fn have_all_look(interests: Interests, every: Duration, mut chance: Chance) {
    loop {
        tokio::time::sleep(every + chance.below(every / 2)).await;
        interests.all_may_have_changed();
    }
}

#[async_trait]
impl Contents for ClusterObjects {
    async fn config_map(&self, namespace: &str, name: &str) -> Result<Arc<ConfigMap>, Unavailable> {
        self.config_maps.get(namespace, name).await
    }

    async fn secret(&self, namespace: &str, name: &str) -> Result<Arc<Secret>, Unavailable> {
        self.secrets.get(namespace, name).await
    }

    async fn claim(&self, namespace: &str, name: &str) -> Result<Arc<PersistentVolumeClaim>, Unavailable> {
        let found = self.client.get::<PersistentVolumeClaim>(namespace, name).await;
        found.map(Arc::new).map_err(|error| unavailable(&error))
    }

    async fn patch_claim_status(
        &self,
        namespace: &str,
        name: &str,
        patch: String,
    ) -> Result<Arc<PersistentVolumeClaim>, Unavailable> {
        let kind = PatchType::StrategicMerge;
        let patched =
            self.client.patch::<PersistentVolumeClaim>(namespace, name, "/status", kind, patch.into());
        patched.await.map(Arc::new).map_err(|error| unavailable(&error))
    }

    async fn persistent_volume(&self, name: &str) -> Result<Arc<PersistentVolume>, Unavailable> {
        let found = self.client.get::<PersistentVolume>("", name).await;
        found.map(Arc::new).map_err(|error| unavailable(&error))
    }

    async fn csi_driver(&self, name: &str) -> Result<Option<Arc<CsiDriver>>, Unavailable> {
        match self.csi_drivers().get("", name).await {
            Ok(found) => Ok(Some(found)),
            Err(Unavailable::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn csi_driver_other_than(&self, name: &str, known: Option<&CsiDriver>) {
        self.csi_drivers().other_than("", name, known).await;
    }

    async fn volume_attachment(&self, name: &str) -> Result<Arc<VolumeAttachment>, Unavailable> {
        let found = self.client.get::<VolumeAttachment>("", name).await;
        found.map(Arc::new).map_err(|error| unavailable(&error))
    }

    async fn secret_of_storage(&self, namespace: &str, name: &str) -> Result<Arc<Secret>, Unavailable> {
        let found = self.client.get::<Secret>(namespace, name).await;
        found.map(Arc::new).map_err(|error| unavailable(&error))
    }

    async fn trust_anchors(&self, wanted: &ClusterTrustBundleProjection) -> Result<String, Unavailable> {
        if self.shows_trust_bundles.get().is_none() {
            return Err(Unavailable::NoClient);
        }
        trust_bundles::trust_anchors(&self.trust_bundles().known().await?, wanted)
    }

    async fn pod_certificate(&self, wanted: &CertificateOf<'_>) -> Result<PodCertificate, NoCertificate> {
        match self.certificates.get() {
            Some(certificates) => certificates.get(wanted).await,
            None => Err(NoCertificate::Unimplemented),
        }
    }

    async fn service_account_token(&self, request: &TokenRequest) -> Result<Option<Token>, Unavailable> {
        self.tokens.get(request).await
    }
}

#[async_trait]
impl Objects for ClusterObjects {
    async fn runtime_class(&self, name: &str) -> Result<Arc<RuntimeClass>, Unavailable> {
        self.runtime_classes().get("", name).await
    }

    fn services(&self) -> Option<Vec<Arc<Service>>> {
        self.services.all()
    }

    fn storage_may_be_there(&self) {
        self.interests.storage_may_be_there();
    }

    fn register_pod(&self, pod: &Pod, mailbox: &Mailbox) -> Option<Interest> {
        let interest = self.interests.register(pod, mailbox)?;
        let namespace = &pod.metadata.namespace;
        let mut held: Vec<Held> = vec![Held::Tokens(self.tokens.register(&pod.metadata.uid))];
        for (kind, name) in pod_references(pod) {
            held.push(match kind {
                ObjectKind::ConfigMap => Held::ConfigMap(self.config_maps.hold(namespace, name)),
                ObjectKind::Secret => Held::Secret(self.secrets.hold(namespace, name)),
            });
        }
        let certificates = self.certificates.get().and_then(|certificates| certificates.register(pod));
        held.extend(certificates.map(Held::Certificates));
        Some(interest.with(held))
    }
}

impl<T: Referred> Source<T> {
    fn new(
        client: &Client,
        interests: &Interests,
        tasks: &Tasks,
        chance: &mut Chance,
        memory: &Option<Memory>,
        keeps_for: Option<KeepsFor>,
    ) -> Source<T> {
        match keeps_for {
            None => Source::Followed(Following::new(
                client.clone(),
                interests.clone(),
                tasks.clone(),
                chance.split(),
                memory.clone(),
            )),
            Some(keeps_for) => Source::Asked(Asked::new(client.clone(), keeps_for, memory.clone())),
        }
    }

    async fn get(&self, namespace: &str, name: &str) -> Result<Arc<T>, Unavailable> {
        match self {
            Source::Followed(following) => following.get(namespace, name).await,
            Source::Asked(asked) => asked.get(namespace, name).await,
        }
    }

    fn hold(&self, namespace: &str, name: &str) -> Hold<T> {
        match self {
            Source::Followed(following) => Hold::Followed(following.hold(namespace, name)),
            Source::Asked(asked) => Hold::Asked(asked.hold(namespace, name)),
        }
    }
}

/// A kind of object that pods refer to by name.
trait Referred: Resource {
    const REFERENCE: ObjectKind;

    /// Whether it can never change.
    fn is_immutable(&self) -> bool;

    /// Whether pods would see no difference.
    fn says_the_same_as(&self, other: &Self) -> bool;

    /// Drops what no pod sees: it may be larger than the rest.
    fn strip(&mut self);

    /// What an agent before this one kept of one, if any are kept.
    fn recalled(memory: &Memory, key: &Key) -> Option<Arc<Self>>;

    /// Has one kept as it is now, or forgotten, if any are kept.
    fn keep(memory: &Memory, key: &Key, before: Option<&Self>, now: Option<&Self>);
}

impl Referred for ConfigMap {
    const REFERENCE: ObjectKind = ObjectKind::ConfigMap;

    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }

    fn says_the_same_as(&self, other: &ConfigMap) -> bool {
        (&self.data, &self.binary_data) == (&other.data, &other.binary_data)
    }

    fn strip(&mut self) {
        strip(&mut self.metadata);
    }

    fn recalled(memory: &Memory, (namespace, name): &Key) -> Option<Arc<ConfigMap>> {
        memory.recalled(namespace, name)
    }

    fn keep(memory: &Memory, key: &Key, before: Option<&ConfigMap>, now: Option<&ConfigMap>) {
        memory.keep(key, before, now);
    }
}

impl Referred for Secret {
    const REFERENCE: ObjectKind = ObjectKind::Secret;

    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }

    fn says_the_same_as(&self, other: &Secret) -> bool {
        (&self.data, &self.r#type) == (&other.data, &other.r#type)
    }

    fn strip(&mut self) {
        strip(&mut self.metadata);
    }

    /// Secrets never reach a disk.
    fn recalled(_: &Memory, _: &Key) -> Option<Arc<Secret>> {
        None
    }

    fn keep(_: &Memory, _: &Key, _: Option<&Secret>, _: Option<&Secret>) {}
}

/// Leaves of what an object is called no more than its name and its version.
fn strip(metadata: &mut ObjectMeta) {
    *metadata = ObjectMeta {
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone(),
        uid: metadata.uid.clone(),
        resource_version: metadata.resource_version.clone(),
        ..ObjectMeta::default()
    };
}

/// Why an object that was asked for is not there.
fn unavailable(error: &Error) -> Unavailable {
    match error.is_not_found() {
        true => Unavailable::NotFound,
        false => Unavailable::Other(error.to_string()),
    }
}

/// What is said of an object that is not kept, before the server has answered.
fn not_kept(kind: ObjectKind, (_, name): &Key, since: Timestamp) -> Unavailable {
    let (kind, name) = (kind.lower(), name.as_str());
    Unavailable::Other(format!(
        "{kind} {name:?} is not kept on the node, and the API server has not answered since {since:.0}"
    ))
}

/// What is said where it is not known in time whether an object is there: upstream's words, and why, if somebody knows.
fn not_known(what: &str, trouble: Option<&str>) -> Unavailable {
    let words = format!("failed to sync {what} cache: timed out waiting for the condition");
    Unavailable::Other(match trouble {
        Some(trouble) => format!("{words}: {trouble}"),
        None => words,
    })
}

#[cfg(test)]
mod tests;
