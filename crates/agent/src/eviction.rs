//! What the node does when it runs short of memory, disk or process IDs: one owner, who looks at what is left, lets go of
//! what the node itself has, and then ends one pod at a time.
//!
//! ```text
//!   Signals ──look──► Monitor (core) ──► Pressure ──► admission, the node's object
//!      ▲  alarms         │ what is to be reclaimed
//!      │                 ├──► ContainerGc, ImageGc: what nobody needs
//!      │                 └──► UsageMeter ──► rank (core) ──► Evictor ──► the pod's worker
//!      └──────────────── once the pod is gone ───────────────────────────────┘
//! ```
//!
//! Pods are measured when something is short, or when what they take on disk is limited, and at no other time. The next look
//! is due when the first threshold could be met ([`next_look`]), when the kernel rings, or when a pod is gone.

mod alarms;
mod observe;
mod pressure;
mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crablet_api::Text;
use crablet_api::core::Pod;
use crablet_config::{EvictionSignal, KubeletConfiguration, NodeAllocatableEnforcement, Threshold as Given};
use crablet_core::eviction::{
    Amount, Configured, Disks, Explanation, LONGEST_WAIT, Monitor, Observations, Reclaim, Signal, Threshold,
    explain, grace, grace_over_limit, has_limits, next_look, over_limit, rank, reclaims, thresholds,
};
use crablet_core::qos::{PodLevel, is_critical};
use crablet_core::status::Failure;
use crablet_host::signals::{FileSystems, Places, Readings, Signals};
use crablet_logging::ErrorChain;
use jiff::SignedDuration;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tracing::{debug, info, warn};

use crate::metrics::EvictionMetrics;
use crate::pod_span::pod_span;
use crate::pods::Evictor;
use crate::recorder::{EventType, Involved, reason};
use crate::shared::Shared;
use alarms::Alarms;
use observe::observations;

pub use pressure::Pressure;
pub use usage::UsageMeter;

/// However often the kernel rings, looks are so far apart.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
/// How long the runtime has to tell where it keeps things.
const RUNTIME_TAKES: Duration = Duration::from_secs(2);
/// How long pods may take to be measured.
const MEASURING_TAKES: Duration = Duration::from_secs(20);
/// How long the removal of images may take before pods are looked at. The next turn goes on with it.
const REMOVALS_TAKE: Duration = Duration::from_secs(60);
/// How long disks may take to tell how much room they have.
const DISKS_TAKE: Duration = Duration::from_secs(5);
/// For how long something that cannot be told any more counts as it was.
const REMEMBERED_FOR: SignedDuration = SignedDuration::from_secs(60);
/// A pod whose containers should have stopped has so long until what it used is given back, as upstream.
const CLEANUP_TAKES: Duration = Duration::from_secs(30);
/// The least time that containers have to stop before nobody waits for them.
const LEAST_STOP_TAKES: u64 = 10;

/// When pods have to go.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    pub configured: Configured,
    /// How many seconds a pod has at most that a soft threshold sends away.
    pub max_pod_grace: i64,
    /// For how long a condition stays that is not seen any more.
    pub transition_period: SignedDuration,
    /// Whether pods are held to what they may take on disk.
    pub limits_local_storage: bool,
}

impl Settings {
    pub fn new(configuration: &KubeletConfiguration) -> Settings {
        let amounts = |given: &BTreeMap<EvictionSignal, crablet_api::Parsed<Given>>| {
            let known = given.iter().filter_map(|(signal, amount)| {
                let value = match &amount.value {
                    Given::Quantity(quantity) => Amount::Quantity(quantity.clone()),
                    Given::Percentage(share) => Amount::Percentage(*share),
                };
                Some((Signal::from_word(signal.as_str())?, value))
            });
            known.collect()
        };
        let soft_grace = configuration.eviction_soft_grace_period.iter().filter_map(|(signal, grace)| {
            let grace = SignedDuration::from_nanos(grace.value.as_nanos());
            Some((Signal::from_word(signal.as_str())?, grace))
        });
        let levels = &configuration.enforce_node_allocatable;
        Settings {
            configured: Configured {
                hard: amounts(&configuration.eviction_hard),
                soft: amounts(&configuration.eviction_soft),
                soft_grace: soft_grace.collect(),
                min_reclaim: amounts(&configuration.eviction_minimum_reclaim),
                enforces_allocatable: levels.contains(&NodeAllocatableEnforcement::Pods),
            },
            max_pod_grace: i64::from(configuration.eviction_max_pod_grace_period),
            transition_period: SignedDuration::from_nanos(
                configuration.eviction_pressure_transition_period.as_nanos(),
            ),
            limits_local_storage: configuration.local_storage_capacity_isolation,
        }
    }
}

/// What an owner works with, beside what all workers share.
pub(crate) struct Parts {
    pub(crate) node_name: Text,
    pub(crate) signals: Arc<dyn Signals>,
    pub(crate) meter: Arc<dyn UsageMeter>,
    pub(crate) evictor: Evictor,
    pub(crate) pressure: Pressure,
    pub(crate) metrics: EvictionMetrics,
}

/// The owner.
pub(crate) struct EvictionManager {
    node: Arc<Shared>,
    parts: Parts,
    settings: Settings,
    monitor: Monitor,
    places: Places,
    /// How file systems are spread, once that is known, and when to ask again until then.
    disks: Result<Disks, Instant>,
    alarms: Alarms,
    /// What was seen last.
    seen: Observations,
    /// Until when nothing more is done about something, since nobody could be ended for it.
    held: BTreeMap<Signal, Instant>,
    /// When pods are held to what they may take on disk again.
    limits_due: Instant,
    /// The pods that were told to go and are not gone.
    leaving: BTreeSet<String>,
}

impl EvictionManager {
    pub(crate) fn new(node: Arc<Shared>, parts: Parts, settings: Settings) -> EvictionManager {
        let watched = thresholds(&settings.configured, Disks::One);
        EvictionManager {
            monitor: Monitor::new(watched, settings.transition_period),
            node,
            parts,
            settings,
            places: Places::default(),
            disks: Err(Instant::now()),
            alarms: Alarms::default(),
            seen: Observations::new(),
            held: BTreeMap::new(),
            limits_due: Instant::now(),
            leaving: BTreeSet::new(),
        }
    }

    /// Looks after the node until it is dropped.
    pub(crate) async fn run(mut self) {
        let node = Arc::clone(&self.node);
        loop {
            let changed = node.admission.changed();
            let began = Instant::now();
            match self.look().await {
                Some(next) => tokio::select! {
                    biased;
                    () = self.alarms.ring() => sleep_until(began + BETWEEN_LOOKS).await,
                    () = sleep_until(next) => {}
                },
                None => changed.await,
            }
        }
    }

    /// Looks, and does what there is to do. Says when to look again: nothing where only another pod would change anything.
    async fn look(&mut self) -> Option<Instant> {
        let evicted = self.hold_to_limits().await;
        if !evicted.is_empty() {
            self.see_off(evicted).await;
            return Some(Instant::now());
        }
        let limits_due = self.has_limited_pods().then_some(self.limits_due);
        if self.monitor.thresholds().is_empty() {
            return limits_due;
        }
        self.find_disks().await;
        let (readings, seen) = self.observe().await;
        let now = self.node.clock.steady();
        let due = self.monitor.look(&seen, now);
        self.parts.pressure.set(self.monitor.conditions());
        self.alarms.set(&*self.parts.signals, self.monitor.thresholds(), &seen, &readings);
        if let Some(evicted) = self.relieve(&due, &seen).await {
            self.see_off(vec![evicted]).await;
            return Some(Instant::now());
        }
        let needs_none = |place| self.alarms.watch(place) || self.monitor.is_unresolved(place);
        let mut wait = next_look(self.monitor.thresholds(), &seen, needs_none);
        if let Some(change) = self.monitor.next_change(now) {
            wait = wait.min(Duration::try_from(change.duration_since(now)).unwrap_or_default());
        }
        let next = Instant::now() + wait;
        Some(limits_due.map_or(next, |due| due.min(next)))
    }

    /// What is left of everything now. What cannot be told for a moment is as it was, which nothing is done about.
    async fn observe(&mut self) -> (Readings, Observations) {
        let disks = timeout(DISKS_TAKE, self.parts.signals.read_disks(&self.places)).await;
        // After the disks, which may take their time.
        let (readings, now) = (self.parts.signals.read(), self.node.clock.steady());
        let mut seen = observations(&readings, &disks.unwrap_or_default(), now);
        for (signal, before) in &self.seen {
            if now.duration_since(before.at) < REMEMBERED_FOR {
                seen.entry(*signal).or_insert(*before);
            }
        }
        self.seen.clone_from(&seen);
        (readings, seen)
    }

    /// Finds out how file systems are spread, by where the runtime keeps things. Until that is known they count as one.
    async fn find_disks(&mut self) {
        let Err(due) = self.disks else { return };
        if Instant::now() < due {
            return;
        }
        self.disks = Err(Instant::now() + LONGEST_WAIT);
        let told = match timeout(RUNTIME_TAKES, self.node.runtime.image_file_systems()).await {
            Ok(Ok(told)) => told,
            Ok(Err(error)) => {
                debug!(err = %ErrorChain(&error), "The runtime does not tell where it keeps images");
                return;
            }
            Err(_) => return,
        };
        let first = |file_systems: &[crablet_cri_api::v1::FilesystemUsage]| {
            let id = file_systems.first()?.fs_id.as_ref()?;
            Some(id.mountpoint.clone().into())
        };
        let images = first(&told.image_filesystems);
        let containers = first(&told.container_filesystems).or_else(|| images.clone());
        self.places = Places { images, containers };
        if let Some(FileSystems { node, images, containers }) =
            self.parts.signals.file_systems(&self.places).await
        {
            let disks = Disks::new(&node, &images, &containers);
            info!(?disks, "It is known which file systems there are");
            self.disks = Ok(disks);
            self.monitor.set_thresholds(thresholds(&self.settings.configured, disks));
        }
    }

    fn disks(&self) -> Disks {
        self.disks.unwrap_or(Disks::One)
    }

    fn level(&self) -> PodLevel {
        PodLevel::from(&self.node.facts.now().translation.features)
    }

    /// The pods that are on the node and were not told to go.
    fn candidates(&mut self) -> Vec<Arc<Pod>> {
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.retain(|uid| !self.is_gone(uid));
        self.leaving = leaving;
        let mut pods = self.node.admission.active();
        pods.retain(|pod| !self.leaving.contains(&*pod.metadata.uid));
        pods
    }

    fn has_limited_pods(&self) -> bool {
        self.settings.limits_local_storage && self.node.admission.active().iter().any(|pod| is_limited(pod))
    }

    /// Does something about the first of the thresholds that are met. Gives the pod that goes.
    async fn relieve(&mut self, due: &[Threshold], seen: &Observations) -> Option<String> {
        let now = Instant::now();
        self.held.retain(|_, until| *until > now);
        let first = due.iter().find(|threshold| !self.held.contains_key(&threshold.signal))?;
        // Unless somebody goes for it, it is as upstream's next turn.
        self.held.insert(first.signal, now + LONGEST_WAIT);
        let (signal, resource) = (first.signal, first.signal.resource());
        warn!(
            signal = signal.as_str(),
            "The node is short of {}; attempting to reclaim it",
            resource.as_str()
        );
        let node = Involved::node(self.parts.node_name.clone());
        let message = format!("Attempting to reclaim {}", resource.as_str());
        self.node.reports.recorder.event(&node, EventType::Warning, reason::EVICTION_THRESHOLD_MET, message);
        if self.reclaim(signal).await {
            info!(signal = signal.as_str(), "What the node let go of is enough; no pod has to go");
            return None;
        }
        let pods = self.candidates();
        if pods.is_empty() {
            debug!(signal = signal.as_str(), "There is no pod that could go");
            return None;
        }
        let measured = timeout(MEASURING_TAKES, self.parts.meter.of_all(resource)).await;
        let Some(usages) = measured.ok().flatten() else {
            warn!(signal = signal.as_str(), "It is not known what pods use; none is ended for now");
            return None;
        };
        let level = self.level();
        let mut ranked: Vec<&Pod> = pods.iter().map(|pod| &**pod).collect();
        rank(&mut ranked, signal, self.disks(), &usages, level);
        let now = self.node.clock.steady();
        for threshold in due {
            if let Some(seen) = seen.get(&threshold.signal) {
                let age = Duration::try_from(now.duration_since(seen.at)).unwrap_or_default();
                self.parts.metrics.ranked(threshold.signal.as_str(), age);
            }
        }
        // Critical pods stay, and who ranks behind them goes.
        let Some(pod) = ranked.into_iter().find(|pod| !is_critical(pod)) else {
            warn!(signal = signal.as_str(), "Only critical pods are left, and none of them is ended");
            return None;
        };
        let told = explain(pod, resource, usages.get(&*pod.metadata.uid), due, seen, level);
        let failure = Failure::evicted(pod, &told.message);
        self.evict(pod, failure, grace(pod, first, self.settings.max_pod_grace), told).await;
        self.parts.metrics.evicted(signal.as_str());
        self.held.remove(&signal);
        Some(pod.metadata.uid.to_string())
    }

    /// Lets go of what the node itself can let go of, and says whether that was enough.
    async fn reclaim(&mut self, signal: Signal) -> bool {
        let reclaims = reclaims(signal, self.disks());
        for reclaim in reclaims {
            match reclaim {
                Reclaim::DeadContainers => self.node.container_gc.reclaim().await,
                Reclaim::UnusedImages => {
                    let _ = timeout(REMOVALS_TAKE, self.node.image_gc.delete_unused()).await;
                }
            }
        }
        if reclaims.is_empty() {
            return false;
        }
        let began = self.node.clock.steady();
        let (_, seen) = self.observe().await;
        let is_known = seen.get(&signal).is_some_and(|seen| seen.at >= began);
        is_known && self.monitor.is_relieved(&seen)
    }

    /// Ends pods that take more of the disk than they may. Gives those that go.
    async fn hold_to_limits(&mut self) -> Vec<String> {
        if !self.settings.limits_local_storage || self.limits_due > Instant::now() {
            return Vec::new();
        }
        self.limits_due = Instant::now() + LONGEST_WAIT;
        let mut pods = self.candidates();
        pods.retain(|pod| is_limited(pod));
        if pods.is_empty() {
            return Vec::new();
        }
        let uids = pods.iter().map(|pod| pod.metadata.uid.to_string()).collect();
        let measured = timeout(MEASURING_TAKES, self.parts.meter.on_disk(&uids)).await;
        let Some(usages) = measured.ok().flatten() else { return Vec::new() };
        let mut evicted = Vec::new();
        for pod in &pods {
            let usage = usages.get(&*pod.metadata.uid);
            let Some(over) = usage.and_then(|usage| over_limit(pod, usage, self.disks())) else { continue };
            let told = Explanation { message: over.message, annotations: Vec::new() };
            self.evict(pod, Failure::over_limit(&told.message), grace_over_limit(), told).await;
            self.parts.metrics.evicted(over.limit.signal());
            evicted.push(pod.metadata.uid.to_string());
        }
        evicted
    }

    async fn evict(&mut self, pod: &Pod, failure: Failure, grace: i64, told: Explanation) {
        let uid = pod.metadata.uid.to_string();
        let grace = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
        {
            let _span = pod_span(&pod.identity()).entered();
            warn!(?grace, reason = told.message, "Evicting a pod");
            let involved = Involved::version_of(pod);
            let annotations = told.annotations.into_iter().map(|(key, value)| (key, Text::from(value)));
            self.node.reports.recorder.annotated_event(
                &involved,
                annotations.collect(),
                EventType::Warning,
                reason::EVICTED,
                told.message,
            );
        }
        self.leaving.insert(uid.clone());
        self.parts.evictor.evict(&uid, failure, Some(grace)).await;
    }

    /// Waits until pods that were told to go have given back what they used, though not for ever.
    async fn see_off(&mut self, evicted: Vec<String>) {
        let graces = evicted.iter().filter_map(|uid| {
            let pod = self.node.reports.statuses.get(uid)?.pod;
            pod.spec.termination_grace_period_seconds
        });
        let longest = graces.max().unwrap_or(0).clamp(0, self.settings.max_pod_grace.max(1)).unsigned_abs();
        let stop_takes = Duration::from_secs(longest.saturating_add(longest / 2).max(LEAST_STOP_TAKES));
        let deadline = Instant::now() + stop_takes + CLEANUP_TAKES;
        let mut shown = self.node.reports.statuses.version();
        loop {
            shown.mark_unchanged();
            if evicted.iter().all(|uid| self.is_gone(uid)) {
                return;
            }
            if timeout_at(deadline, shown.changed()).await.is_err() {
                warn!(pods = evicted.join(", "), "Evicted pods have not gone in time");
                return;
            }
        }
    }

    /// Whether what a pod used was given back.
    fn is_gone(&self, uid: &str) -> bool {
        match self.node.reports.statuses.get(uid) {
            Some(shown) => shown.terminated,
            None => !self.node.admission.knows(uid),
        }
    }
}

/// Whether it has to be known what a pod takes on disk, so that it can be ended for that.
fn is_limited(pod: &Pod) -> bool {
    has_limits(pod) && !is_critical(pod)
}
