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
//! is due when the first threshold could be met ([`next_look`]), when the kernel rings, or when a pod is gone. Memory comes
//! first: what is done for anything else is let go of when memory runs short ([`MemoryWatch`]), and measured beside the looks
//! ([`DiskUse`]).

mod alarms;
mod disk_use;
mod disks;
mod leavers;
mod limits;
mod memory_watch;
mod observe;
mod pressure;
mod settings;
mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crablet_api::Text;
use crablet_api::core::Pod;
use crablet_core::eviction::{
    Disks, Explanation, LONGEST_WAIT, Monitor, Observations, Reclaim, Signal, Threshold, explain, grace,
    next_look, rank, reclaims, thresholds,
};
use crablet_core::qos::{PodLevel, is_critical};
use crablet_core::status::Failure;
use crablet_host::signals::{Places, Readings, Signals};
use futures_util::FutureExt as _;
use jiff::SignedDuration;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info, warn};

use crate::metrics::EvictionMetrics;
use crate::pod_span::pod_span;
use crate::pods::Evictor;
use crate::recorder::{EventType, Involved, reason};
use crate::shared::Shared;
use alarms::Alarms;
use disk_use::DiskUse;
use leavers::{Departures, Leaver, Slower, is_gone, left_by_agent_before, see_off};
use memory_watch::MemoryWatch;
use observe::observations;

pub use pressure::Pressure;
pub use settings::{Settings, hard_thresholds};
pub use usage::UsageMeter;

/// However often the kernel rings, looks are so far apart.
const BETWEEN_LOOKS: Duration = Duration::from_millis(25);
/// How long pods may take to be measured.
const MEASURING_TAKES: Duration = Duration::from_secs(20);
/// How long the removal of images may take before pods are looked at. The next turn goes on with it.
const REMOVALS_TAKE: Duration = Duration::from_secs(60);
/// How long a runtime may take to give back what containers took that it has removed: containerd does so when it comes to it,
/// which it puts off for longer the more it keeps.
const GIVES_BACK_WITHIN: Duration = Duration::from_secs(10);
/// Between two looks at whether it has.
const BETWEEN_LOOKS_AT_DISKS: Duration = Duration::from_millis(500);
/// For how long something that cannot be told any more counts as it was.
const REMEMBERED_FOR: SignedDuration = SignedDuration::from_secs(60);

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
    /// Whether people were told that it is not known.
    told_of_disks: bool,
    alarms: Alarms,
    /// What was seen last.
    seen: Observations,
    /// Until when nothing more is done about something, since nobody could be ended for it.
    held: BTreeMap<Signal, Instant>,
    /// What limited pods take on disk.
    disk_use: DiskUse,
    /// The pods that were told to go and are not gone, by this agent or the one before.
    leaving: BTreeSet<String>,
    /// Those of them that go while something else is looked after: memory came first, or the agent is another.
    departures: Departures,
}

/// Who goes, and why.
struct Chosen {
    pod: Arc<Pod>,
    told: Explanation,
}

/// Whether something was done, so that it is time to look again.
#[derive(PartialEq, Eq)]
enum Relief {
    Sought,
    NotSought,
}

impl EvictionManager {
    pub(crate) fn new(node: Arc<Shared>, parts: Parts, settings: Settings) -> EvictionManager {
        let watched = thresholds(&settings.configured, Disks::One);
        let (mut leaving, mut departures) = (BTreeSet::new(), Departures::default());
        for leaver in left_by_agent_before(&node) {
            leaving.insert(leaver.uid().to_owned());
            departures.add(Some(leaver.told()), see_off(Arc::clone(&node), vec![leaver]).boxed());
        }
        EvictionManager {
            monitor: Monitor::new(watched, settings.transition_period),
            node,
            parts,
            settings,
            places: Places::default(),
            disks: Err(Instant::now()),
            told_of_disks: false,
            alarms: Alarms::default(),
            seen: Observations::new(),
            held: BTreeMap::new(),
            disk_use: DiskUse::new(),
            leaving,
            departures,
        }
    }

    /// Looks after the node until it is dropped.
    pub(crate) async fn run(mut self) {
        let node = Arc::clone(&self.node);
        loop {
            let changed = node.admission.changed();
            let began = Instant::now();
            let next = self.look().await;
            self.measure_limited();
            tokio::select! {
                biased;
                usages = self.disk_use.measured() => {
                    self.hold_to_limits(usages).await;
                }
                () = self.departures.one_is_over() => {}
                () = self.alarms.ring() => sleep_until(began + BETWEEN_LOOKS).await,
                () = until(next) => {}
                () = changed, if next.is_none() => {}
            }
        }
    }

    /// Looks, and does what there is to do. Says when to look again: nothing where only another pod would change anything.
    async fn look(&mut self) -> Option<Instant> {
        let mut next = None;
        if !self.monitor.thresholds().is_empty() {
            let (readings, seen) = self.observe().await;
            let now = self.node.clock.steady();
            let mut due = self.monitor.look(&seen, now);
            self.parts.pressure.set(self.monitor.conditions());
            self.alarms.set(&*self.parts.signals, self.monitor.thresholds(), &seen, &readings);
            // Nobody knows yet whom that would help.
            due.retain(|threshold| self.disks.is_ok() || !threshold.signal.is_of_disk());
            if self.relieve(&due, &seen).await == Relief::Sought {
                return Some(Instant::now());
            }
            let needs_none = |place| self.alarms.watch(place) || self.monitor.is_unresolved(place);
            let mut wait = next_look(self.monitor.thresholds(), &seen, needs_none);
            if let Some(change) = self.monitor.next_change(now) {
                wait = wait.min(Duration::try_from(change.duration_since(now)).unwrap_or_default());
            }
            // With much left of everything it comes with what else is looked at then.
            next = Some(match wait == LONGEST_WAIT {
                true => self.node.clock.next_beat(wait),
                false => Instant::now() + wait,
            });
        } else if !self.has_limited_pods() {
            return None;
        }
        if self.find_disks().await {
            return Some(Instant::now());
        }
        let limits = match self.disks {
            Ok(_) => self.disk_use.due(),
            Err(due) => Some(due),
        };
        let limits = limits.filter(|_| self.has_limited_pods());
        limits.into_iter().chain(next).min()
    }

    /// What is left of everything now. What cannot be told for a moment is as it was, which nothing is done about.
    async fn observe(&mut self) -> (Readings, Observations) {
        let disks = self.memory_watch().meanwhile(self.parts.signals.read_disks(&self.places)).await;
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

    /// A look at memory for the time that something takes which is not done for its sake.
    fn memory_watch(&self) -> MemoryWatch {
        let now = Instant::now();
        let hard =
            self.monitor.thresholds().iter().filter(|known| known.signal.is_memory() && known.is_hard());
        let with_start =
            |known: &Threshold| (known.clone(), self.held.get(&known.signal).copied().unwrap_or(now));
        MemoryWatch {
            signals: Arc::clone(&self.parts.signals),
            clock: self.node.clock.clone(),
            thresholds: hard.map(with_start).collect(),
        }
    }

    fn level(&self) -> PodLevel {
        PodLevel::from(&self.node.facts.now().translation.features)
    }

    /// The pods that are on the node and were not told to go, by this agent or the one before.
    fn candidates(&mut self) -> Vec<Arc<Pod>> {
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.retain(|uid| !is_gone(&self.node, uid));
        self.leaving = leaving;
        let mut pods = self.node.admission.active();
        pods.retain(|pod| !self.leaving.contains(&*pod.metadata.uid));
        pods
    }

    /// Does something about the first of the thresholds that are met. What is done for anything but memory is let go of when
    /// memory runs short.
    async fn relieve(&mut self, due: &[Threshold], seen: &Observations) -> Relief {
        let now = Instant::now();
        self.held.retain(|_, until| *until > now);
        let can_be_helped = |threshold: &&Threshold| {
            !self.held.contains_key(&threshold.signal) && !self.departures.hold_up(threshold)
        };
        let Some(first) = due.iter().find(can_be_helped) else {
            return Relief::NotSought;
        };
        let (signal, resource) = (first.signal, first.signal.resource());
        if signal.is_of_disk() && self.any_over_limit_goes().await {
            return Relief::Sought;
        }
        warn!(
            signal = signal.as_str(),
            "The node is short of {}; attempting to reclaim it",
            resource.as_str()
        );
        let node = Involved::node(self.parts.node_name.clone());
        let message = format!("Attempting to reclaim {}", resource.as_str());
        self.node.reports.recorder.event(&node, EventType::Warning, reason::EVICTION_THRESHOLD_MET, message);
        let mut watch = self.memory_watch();
        // Where one is met that comes first, it would only be found again and again.
        if signal.is_memory() && first.is_hard() {
            watch.thresholds.clear();
        }
        let Slower { known, to_come } = self.departures.take_slower(first, |uid| {
            // Nobody stops it before it has a worker.
            !self.node.restored.left().contains_key(uid)
        });
        for (pod, failure) in to_come {
            let grace = grace(&pod, first, self.settings.max_pod_grace);
            self.hasten(pod, failure, grace).await;
        }
        if !known.is_empty() {
            let mut leaving = Vec::new();
            for (pod, failure) in known {
                // Whoever goes for the same thing, and has more time, has no more than others would have now.
                let grace = grace(&pod, first, self.settings.max_pod_grace);
                leaving.push(self.hasten(pod, failure, grace).await);
            }
            // Nothing comes before a hard threshold of memory, so that they are waited for to the end.
            self.see_off(None, leaving, &watch).await;
            return Relief::Sought;
        }
        let for_memory = |leaver: &Leaver| signal.is_memory().then(|| leaver.told());
        let Some(chosen) = watch.meanwhile(self.choose(first, due, seen)).await else {
            info!(signal = signal.as_str(), "Memory runs short meanwhile, which comes first");
            return Relief::Sought;
        };
        let Some(Chosen { pod, told }) = chosen else {
            // As upstream's next turn.
            self.held.insert(signal, Instant::now() + LONGEST_WAIT);
            return Relief::NotSought;
        };
        let failure = Failure::evicted(&pod, &told.message);
        let grace = grace(&pod, first, self.settings.max_pod_grace);
        let leaver = self.evict(pod, failure, grace, told).await;
        self.parts.metrics.evicted(signal.as_str());
        self.see_off(for_memory(&leaver), vec![leaver], &watch).await;
        Relief::Sought
    }

    /// Waits until pods are gone that were told to go. Where memory comes first, somebody else waits, and it is remembered
    /// who goes for the sake of memory.
    async fn see_off(
        &mut self,
        for_memory: Option<(Arc<Pod>, Failure)>,
        leaving: Vec<Leaver>,
        watch: &MemoryWatch,
    ) {
        let mut gone = see_off(Arc::clone(&self.node), leaving).boxed();
        if watch.meanwhile(&mut gone).await.is_none() {
            self.departures.add(for_memory, gone);
        }
    }

    /// Lets go of what the node itself can let go of, and where that is not enough, says which pod goes.
    async fn choose(&mut self, first: &Threshold, due: &[Threshold], seen: &Observations) -> Option<Chosen> {
        let (signal, resource) = (first.signal, first.signal.resource());
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
        let pod = pods.iter().find(|known| known.metadata.uid == pod.metadata.uid)?;
        Some(Chosen { pod: Arc::clone(pod), told })
    }

    /// Lets go of what the node itself can let go of, and says whether that was enough.
    async fn reclaim(&mut self, signal: Signal) -> bool {
        let reclaims = reclaims(signal, self.disks());
        for reclaim in reclaims {
            match reclaim {
                Reclaim::DeadContainers => {
                    let statuses = &self.node.reports.statuses;
                    let is_over = |uid: &str| statuses.get(uid).is_some_and(|shown| shown.terminated);
                    self.node.container_gc.reclaim(is_over).await;
                }
                Reclaim::UnusedImages => {
                    let _ = timeout(REMOVALS_TAKE, self.node.image_gc.delete_unused()).await;
                }
            }
        }
        if reclaims.is_empty() {
            return false;
        }
        let began = self.node.clock.steady();
        let given_back = self.node.container_gc.last_removal().map(|removed| removed + GIVES_BACK_WITHIN);
        loop {
            let (_, seen) = self.observe().await;
            let is_known = seen.get(&signal).is_some_and(|seen| seen.at >= began);
            if is_known && self.monitor.is_relieved(&seen) {
                return true;
            }
            let next = Instant::now() + BETWEEN_LOOKS_AT_DISKS;
            if given_back.is_none_or(|by| by < next) {
                return false;
            }
            sleep_until(next).await;
        }
    }

    /// Tells a pod to go within so many seconds.
    async fn evict(&mut self, pod: Arc<Pod>, failure: Failure, grace: i64, told: Explanation) -> Leaver {
        let uid = pod.metadata.uid.to_string();
        let grace = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
        {
            let _span = pod_span(&pod.identity()).entered();
            warn!(?grace, reason = told.message, "Evicting a pod");
            let involved = Involved::version_of(&pod);
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
        self.parts.evictor.evict(&uid, failure.clone(), Some(grace)).await;
        Leaver::new(pod, failure, grace)
    }

    /// Tells a pod that goes to go within so many seconds.
    async fn hasten(&mut self, pod: Arc<Pod>, failure: Failure, grace: i64) -> Leaver {
        let grace = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
        {
            let _span = pod_span(&pod.identity()).entered();
            warn!(?grace, "A pod that is evicted has less time");
        }
        self.parts.evictor.evict(&pod.metadata.uid, failure.clone(), Some(grace)).await;
        Leaver::new(pod, failure, grace)
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
