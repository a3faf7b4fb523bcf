//! Certificates of pods, which signers of the cluster issue: what volumes show for `podCertificate`, where the gate
//! `PodCertificateRequest` is on.
//!
//! ```text
//!                 ┌──────── gone ────────┐
//!                 ▼                      │
//!   NotYet ──► request ────────────► answered ──► Issued ──► request, when it is time ──► Issued …
//!                                        └──────► Refused, for good
//! ```
//!
//! Each has a future that goes through this, in the task of its pod, which ends with the pod's interest. Keys are made
//! here, and are in memory and in the pod's volume alone. Nothing outlives the agent: the next one asks anew, and pods
//! keep what they were shown until then.

mod answer;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crablet_agent::objects::Interests;
use crablet_agent::recorder::{EventType, Involved, Recorder, reason};
use crablet_agent::tasks::Tasks;
use crablet_api::Text;
use crablet_api::certificates::{PodCertificateRequest, PodCertificateRequestSpec};
use crablet_api::core::{Pod, PodCertificateProjection, VolumeProjection, VolumeSource};
use crablet_api::meta::{ObjectMeta, OwnerReference};
use crablet_client::{Chance, Client, Error, Event, Follower, Selection};
use crablet_host::clock::Clock;
use crablet_metrics::{Kind, Registry as Metrics};
use crablet_volumes::{CertificateOf, NoCertificate, PodCertificate};
use crablet_x509::{CertificateError, KeyType, SubjectKey};
use futures_util::future::join_all;
use jiff::Timestamp;
use tokio::sync::{Semaphore, watch};
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{debug, info, warn};

use crate::node::Identity;
use crate::registry::Registry;
use crate::retry::Backoff;
use crate::service_accounts;
use answer::{Answer, Requests, State, answer_in};

/// A request that is not there so long after it was made was deleted, and not only not seen yet.
const ASSUMED_DELETED_AFTER: Duration = Duration::from_secs(600);
/// So much later at most, that not all nodes ask at once.
const JITTER: Duration = Duration::from_secs(300);
/// The clock may be set: it is looked at so often.
const MINUTE: Duration = Duration::from_secs(60);
/// The waits after a request could not be made.
const SHORTEST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(120);
/// How long somebody who asks waits for a signer.
const ISSUED_WITHIN: Duration = Duration::from_secs(1);

/// What is needed to have certificates issued.
pub(crate) struct Parts {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) chance: Chance,
    pub(crate) interests: Interests,
    pub(crate) tasks: Tasks,
    /// The node's name, and who it is once it is registered.
    pub(crate) node_name: Text,
    pub(crate) node: watch::Receiver<Option<Identity>>,
    pub(crate) recorder: Recorder,
}

/// The certificates of all pods.
pub(crate) struct PodCertificates {
    parts: Parts,
    chance: Mutex<Chance>,
    /// By the UIDs of the pods.
    pods: Registry<Text, OfPod>,
    /// What the server has of the node's requests, once a pod needs one.
    requests: OnceLock<watch::Receiver<Requests>>,
    /// Who makes keys, one after the other: large ones take a core for seconds.
    keys: Arc<Semaphore>,
}

/// The certificates of a pod, for as long as somebody has a hold of this.
pub(crate) struct OfPod {
    /// By the names of the volumes, and their places among the volumes' sources.
    certificates: BTreeMap<(Text, usize), Arc<Kept>>,
    _stop: DropGuard,
}

/// One certificate.
struct Kept {
    source: PodCertificateProjection,
    state: watch::Sender<State>,
}

/// A request that was made.
struct Request {
    key: String,
    namespace: Text,
    name: Text,
    assumed_deleted_from: Timestamp,
}

/// Why a request could not be made. The words are upstream's.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error("while fetching service account: {0}")]
    ServiceAccount(Error),
    #[error("while creating on API: {0}")]
    Create(Error),
    #[error("while generating keypair: {0}")]
    Key(#[from] CertificateError),
    #[error("while generating keypair: unknown key type {0:?}")]
    KeyType(String),
}

impl PodCertificates {
    pub(crate) fn new(mut parts: Parts) -> Arc<PodCertificates> {
        let chance = Mutex::new(parts.chance.split());
        Arc::new(PodCertificates {
            parts,
            chance,
            pods: Registry::new(),
            requests: OnceLock::new(),
            keys: Arc::new(Semaphore::new(1)),
        })
    }

    /// Has the certificates of a pod issued and renewed for as long as the answer is kept.
    pub(crate) fn register(self: &Arc<Self>, pod: &Pod) -> Option<Arc<OfPod>> {
        let wanted: Vec<_> = projections(pod).collect();
        if wanted.is_empty() {
            return None;
        }
        let make = || {
            let kept = |(key, source): ((Text, usize), &PodCertificateProjection)| {
                (key, Arc::new(Kept { source: source.clone(), state: watch::Sender::new(State::NotYet) }))
            };
            let certificates: BTreeMap<_, _> = wanted.into_iter().map(kept).collect();
            let stop = CancellationToken::new();
            let all: Vec<Arc<Kept>> = certificates.values().cloned().collect();
            let (own, pod, stopped) = (Arc::clone(self), Arc::new(pod.clone()), stop.clone());
            self.parts.tasks.spawn(async move {
                let keep = join_all(all.iter().map(|kept| own.keep(&pod, kept)));
                stopped.run_until_cancelled(keep).await;
            });
            OfPod { certificates, _stop: stop.drop_guard() }
        };
        Some(self.pods.get_or_make(pod.metadata.uid.clone(), make))
    }

    /// A certificate and its key, as far as they are issued.
    pub(crate) async fn get(&self, wanted: &CertificateOf<'_>) -> Result<PodCertificate, NoCertificate> {
        let CertificateOf { pod, volume, index } = wanted;
        let of_pod = self.pods.get(&pod.metadata.uid);
        let kept = of_pod.and_then(|of_pod| of_pod.certificates.get(&(Text::from(*volume), *index)).cloned());
        let Some(kept) = kept else {
            let ObjectMeta { namespace, name, uid, .. } = &pod.metadata;
            return Err(NoCertificate::NotYet(format!(
                "no credentials yet for key={{{namespace} {name} {uid} {volume} {index}}}"
            )));
        };
        let mut state = kept.state.subscribe();
        let known = state.wait_for(|state| !matches!(state, State::NotYet));
        let _ = tokio::time::timeout(ISSUED_WITHIN, known).await;
        let state = kept.state.borrow();
        state.certificate()
    }

    /// Has it told how many certificates there are, and how they are.
    pub(crate) fn count_in(self: &Arc<Self>, metrics: &Metrics) {
        let own = Arc::clone(self);
        metrics.collector(move |samples| {
            let name = "kubelet_podcertificate_states";
            let help = "[ALPHA] Gauge vector reporting the number of pod certificate projected volume sources, faceted by signer_name and state.";
            for ((signer, state), count) in own.states() {
                let labels = [("signer_name", &*signer), ("state", state)];
                samples.add(name, help, Kind::Gauge, &labels, f64::from(count));
            }
        });
    }

    /// How many there are, by their signers and how they are.
    fn states(&self) -> BTreeMap<(Text, &'static str), u32> {
        let (now, mut counts) = (self.parts.clock.now(), BTreeMap::new());
        for (_, of_pod) in self.pods.all() {
            for kept in of_pod.certificates.values() {
                let state = kept.state.borrow().word(now);
                *counts.entry((kept.source.signer_name.clone(), state)).or_default() += 1;
            }
        }
        counts
    }

    async fn keep(&self, pod: &Pod, kept: &Kept) {
        tokio::join!(self.renew(pod, kept), self.warn_when_late(pod, kept));
    }

    /// Has a certificate issued, and again when it is time. Ends when a signer says no.
    async fn renew(&self, pod: &Pod, kept: &Kept) {
        let mut backoff = Backoff::new(SHORTEST_WAIT, LONGEST_WAIT);
        loop {
            let request = match self.request(pod, &kept.source).await {
                Ok(request) => request,
                Err(error) => {
                    warn!(namespace = %pod.metadata.namespace, pod = %pod.metadata.name, %error, "Cannot ask for a pod's certificate");
                    match error {
                        RequestError::ServiceAccount(error) | RequestError::Create(error) => {
                            sleep(backoff.after(&error)).await;
                        }
                        RequestError::Key(_) => sleep(LONGEST_WAIT).await,
                        // Nothing would be otherwise the next time.
                        RequestError::KeyType(_) => {
                            self.set(pod, kept, State::Impossible(error.to_string()));
                            return;
                        }
                    }
                    continue;
                }
            };
            backoff.reset();
            let Request { namespace, name, .. } = &request;
            match self.answer(&request).await {
                None => {
                    warn!(%namespace, request = %name, "A request for a pod's certificate was deleted; it is made anew")
                }
                Some(Answer::Refused(refusal)) => {
                    let message = refusal.in_words(namespace, name);
                    let involved = Involved::version_of(pod);
                    self.parts.recorder.event(&involved, EventType::Warning, refusal.event(), message);
                    self.set(pod, kept, State::Refused(refusal));
                    return;
                }
                Some(Answer::Issued { chain, begin_refresh_at, not_after }) => {
                    info!(%namespace, pod = %pod.metadata.name, request = %name, until = %not_after, "A pod's certificate is issued");
                    let certificate = PodCertificate::new(&request.key, &chain);
                    let refreshed_from = begin_refresh_at.saturating_add(self.jitter()).unwrap_or(not_after);
                    self.set(pod, kept, State::Issued { certificate, refreshed_from, not_after });
                    // A clock that is ahead must not have one made after the other.
                    let next = self.parts.clock.now().saturating_add(MINUTE).unwrap_or(not_after);
                    self.until(refreshed_from.max(next)).await;
                }
            }
        }
    }

    fn set(&self, pod: &Pod, kept: &Kept, state: State) {
        kept.state.send_replace(state);
        self.parts.interests.certificate_changed(&pod.metadata.uid);
    }

    fn jitter(&self) -> Duration {
        self.chance.lock().unwrap_or_else(PoisonError::into_inner).below(JITTER)
    }

    /// Makes a key, and a request for a certificate of it.
    async fn request(&self, pod: &Pod, source: &PodCertificateProjection) -> Result<Request, RequestError> {
        let ObjectMeta { namespace, name, uid, .. } = &pod.metadata;
        let Some(kind) = KeyType::of(&source.key_type) else {
            return Err(RequestError::KeyType(source.key_type.to_string()));
        };
        let mut known = self.parts.node.clone();
        let node = known.wait_for(Option::is_some).await.ok().and_then(|node| node.clone());
        // Nobody keeps the node any more.
        let Some(node) = node else { return std::future::pending().await };
        let account = &pod.spec.service_account_name;
        let found = service_accounts::metadata(&self.parts.client, namespace, account).await;
        let found = found.map_err(RequestError::ServiceAccount)?;
        // Nobody closes it.
        let turn = Arc::clone(&self.keys).acquire_owned().await.ok();
        let made = tokio::task::spawn_blocking(move || {
            // Also where nobody waits for the key any more.
            let _turn = turn;
            let key = SubjectKey::generate(kind)?;
            Ok::<_, CertificateError>((key.to_pkcs8_pem()?, key.stub_request()?))
        });
        let (key, proof) = made.await.unwrap_or(Err(CertificateError::Cryptography))?;
        let request = PodCertificateRequest {
            metadata: ObjectMeta {
                namespace: namespace.clone(),
                generate_name: "req-".into(),
                owner_references: [OwnerReference {
                    api_version: "v1".into(),
                    kind: "Pod".into(),
                    name: name.clone(),
                    uid: uid.clone(),
                    ..OwnerReference::default()
                }]
                .into(),
                ..ObjectMeta::default()
            },
            spec: PodCertificateRequestSpec {
                signer_name: source.signer_name.clone(),
                pod_name: name.clone(),
                pod_uid: uid.clone(),
                service_account_name: account.clone(),
                service_account_uid: found.uid,
                node_name: node.name,
                node_uid: node.uid,
                max_expiration_seconds: source.max_expiration_seconds,
                stub_pkcs10_request: Some((&*proof).into()),
                unverified_user_annotations: source.user_annotations.clone(),
                ..PodCertificateRequestSpec::default()
            },
            ..PodCertificateRequest::default()
        };
        // It is followed before it is there.
        self.requests();
        let made = self.parts.client.create(&request).await.map_err(RequestError::Create)?.metadata;
        debug!(%namespace, pod = %name, request = %made.name, "Asked for a pod's certificate");
        let made_at =
            made.creation_timestamp.map(answer::timestamp).unwrap_or_else(|| self.parts.clock.now());
        let patience = ASSUMED_DELETED_AFTER + self.jitter();
        let assumed_deleted_from = made_at.saturating_add(patience).unwrap_or(Timestamp::MAX);
        Ok(Request { key, namespace: namespace.clone(), name: made.name, assumed_deleted_from })
    }

    /// What a signer says to a request; nothing if the request is gone.
    async fn answer(&self, request: &Request) -> Option<Answer> {
        let mut requests = self.requests().clone();
        let key = (request.namespace.clone(), request.name.clone());
        loop {
            let found = match &*requests.borrow_and_update() {
                Some(found) => found.get(&key).map(|status| answer_in(status)),
                None => Some(None),
            };
            match found {
                Some(Some(answer)) => return Some(answer),
                None if self.parts.clock.now() >= request.assumed_deleted_from => return None,
                Some(None) | None => {}
            }
            tokio::select! {
                Ok(()) = requests.changed() => {}
                () = sleep(MINUTE) => {}
            }
        }
    }

    /// Says when a certificate should long have been renewed, and when it is worth nothing any more.
    async fn warn_when_late(&self, pod: &Pod, kept: &Kept) {
        let mut state = kept.state.subscribe();
        loop {
            let times = state.borrow_and_update().late_from();
            let warn = async {
                let Some((overdue_from, expired_from)) = times else { return std::future::pending().await };
                let tell = async |from: Timestamp, reason: &'static str, message: &'static str| {
                    self.until(from).await;
                    let involved = Involved::version_of(pod);
                    self.parts.recorder.event(&involved, EventType::Warning, reason, message);
                };
                tokio::join!(
                    tell(
                        overdue_from,
                        reason::CERTIFICATE_OVERDUE_FOR_REFRESH,
                        "PodCertificate refresh overdue"
                    ),
                    tell(expired_from, reason::CERTIFICATE_EXPIRED, "PodCertificate expired")
                );
                std::future::pending().await
            };
            tokio::select! {
                changed = state.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                () = warn => {}
            }
        }
    }

    async fn until(&self, at: Timestamp) {
        loop {
            let left = Duration::try_from(at.duration_since(self.parts.clock.now())).unwrap_or_default();
            if left.is_zero() {
                return;
            }
            sleep(left.min(MINUTE)).await;
        }
    }

    /// What the server has of the node's requests.
    fn requests(&self) -> &watch::Receiver<Requests> {
        self.requests.get_or_init(|| {
            let fields = format!("spec.nodeName={}", self.parts.node_name);
            let of_node = Selection { fields, ..Selection::default() };
            let chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner).split();
            let follower = Follower::new(self.parts.client.clone(), &of_node, chance);
            let (sender, requests) = watch::channel(None);
            self.parts.tasks.spawn(follow(follower, sender));
            requests
        })
    }
}

/// Follows the requests of a node. What was asked is known by who asked: only the answers are kept.
async fn follow(mut follower: Follower<PodCertificateRequest>, requests: watch::Sender<Requests>) {
    let entry = |request: PodCertificateRequest| {
        ((request.metadata.namespace, request.metadata.name), Arc::new(request.status))
    };
    let mut is_told = false;
    loop {
        match follower.next().await {
            Event::All(all) => drop(requests.send_replace(Some(all.into_iter().map(entry).collect()))),
            Event::Set(request) => requests.send_modify(|requests| {
                requests.get_or_insert_default().extend([entry(request)]);
            }),
            Event::Gone(request) => requests.send_modify(|requests| {
                requests.get_or_insert_default().remove(&entry(request).0);
            }),
            Event::Trouble { error, again_in } if is_told => {
                debug!(err = %error, ?again_in, "Cannot follow requests for pods' certificates");
                continue;
            }
            Event::Trouble { error, again_in } => {
                warn!(err = %error, ?again_in, "Cannot follow requests for pods' certificates: who waits for one goes on waiting");
                is_told = true;
                continue;
            }
            Event::Resumed => {}
        }
        is_told = false;
    }
}

/// The certificates that a pod shows, by the names of its volumes and their places among the volumes' sources.
fn projections(pod: &Pod) -> impl Iterator<Item = ((Text, usize), &PodCertificateProjection)> {
    pod.spec.volumes.iter().flat_map(|volume| {
        let sources = match volume.source.one() {
            Some(VolumeSource::Projected(projected)) => &*projected.sources,
            Some(_) | None => &[],
        };
        sources.iter().enumerate().filter_map(|(index, source)| match source.one() {
            Some(VolumeProjection::PodCertificate(source)) => Some(((volume.name.clone(), index), &**source)),
            Some(_) | None => None,
        })
    })
}
