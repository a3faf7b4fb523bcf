//! Which pods the node takes: one owner of what has been granted to whom, who decides in an order.
//!
//! ```text
//!                 ┌─ something of it lives ────────────────► Granted, without being asked
//!   enter ─► line ┼─ it is over ───────────────────────────► Late ── its worker asks ──┐
//!                 ├─ it left something dead ─► Asked ── its worker asks, in its turn ──┤
//!                 └─ nothing of it is there ─────────────────────────── in its turn ──┐ │
//!                                                                                     ▼ ▼
//!               Rejected ◄── no ── does it fit? ── yes ──► Granted      MakesRoom ── room ──► Granted
//!                                               └── it is critical, and others have to go ──┘
//! ```
//!
//! What runs when the agent begins is taken over first, wherever it comes from. Everything else waits until the
//! runtime has told what that is and all sources were heard (or should have been), and is then decided in an order: what
//! ran before comes first, as after a reboot, and then the oldest. A pod that ran may be over, which its worker finds
//! out; those behind it wait for that, though not for ever. From then on pods are decided in the order in which their
//! sources gave them.
//!
//! Whoever is decided about is told to look. A verdict stays until the pod is released. A pod that was taken may ask for
//! other resources: [`resize`].

mod resize;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crablet_api::core::Pod;
use crablet_core::admission::{self, Input, Rejection, admit, failures};
use crablet_core::eviction;
use crablet_core::qos::{Overhead, PodLevel, QosClass, pod_requests, qos_class, quantity};
use crablet_core::resize::decision::Exclusive;
use crablet_core::shutdown;
use crablet_core::status::Failure;
use crablet_core::translate::{ForbiddenSysctl, SysctlAllowlist, needs_app_armor};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::info_span;

use crate::allocations::Allocations;
use crate::eviction::Pressure;
use crate::mailbox::{End, Input as Told, Mailbox};
use crate::metrics::AdmissionMetrics;
use crate::node_facts::LiveFacts;
use crate::pod_span::pod_span;
use crate::recorder::{EventType, Involved, Recorder, reason};
use resize::{Trigger, Waiting};

/// The least time that pods have to make room for a critical one. It does not wait for longer than one and a half times
/// their grace period.
const LEAST_TIME_TO_MAKE_ROOM: u64 = 10;

/// The owner. Clones are the same.
#[derive(Clone)]
pub struct Admission {
    facts: LiveFacts,
    pressure: Pressure,
    sysctls: Arc<SysctlAllowlist>,
    app_armor: bool,
    exclusive: Exclusive,
    recorder: Recorder,
    allocations: Allocations,
    books: Arc<Mutex<Books>>,
    changes: Arc<Notify>,
    metrics: Option<AdmissionMetrics>,
}

/// What a pod that wants in is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing yet.
    Undecided,
    /// The node takes it.
    Granted {
        /// Whether something of it lived when the agent began.
        was_there: bool,
    },
    /// The node takes it when others have made room, but at this time at the latest.
    MakesRoom {
        /// That time.
        until: Instant,
    },
    /// The node does not take it.
    Rejected(Rejection),
}

/// What the pods on the node ask for together, by class of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Asked {
    /// Thousandths of a CPU.
    pub burstable_milli_cpu: i64,
    /// Bytes of memory.
    pub burstable_memory: i64,
    pub guaranteed_memory: i64,
}

/// What the runtime had of a pod when the agent began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Remains {
    /// Only what is dead.
    Dead,
    /// A sandbox that is ready, or a container that did not end.
    Live,
}

#[derive(Default)]
struct Books {
    stage: Stage,
    pods: BTreeMap<String, Entry>,
    /// Those that ask for other resources than they have.
    resizes: BTreeMap<String, Waiting>,
    /// Those that wait for their turn, as they came.
    line: Vec<String>,
    /// Whether nobody is taken, since the machine is about to be shut down.
    is_closed: bool,
}

/// How far the beginning of the agent has come, and what the runtime had of pods that were not asked for yet.
#[derive(Default)]
enum Stage {
    /// The runtime has not told yet what it has.
    #[default]
    Beginning,
    /// Sources may still want what runs.
    Gathering(BTreeMap<String, Remains>),
    /// Everybody is decided about in the order of the line, which waits for the workers of those that ran.
    Asking(BTreeMap<String, Remains>),
    /// Everybody is decided about when they come.
    Open(BTreeMap<String, Remains>),
}

struct Entry {
    /// With the resources that it has, or is to have.
    pod: Arc<Pod>,
    mailbox: Mailbox,
    state: State,
}

enum State {
    Waits,
    /// Those behind it in the line wait until its worker finds that it is over, or that it is not.
    Asked,
    /// Decided when its worker finds that it is not over. Nobody waits for that.
    Late,
    Granted {
        was_there: bool,
    },
    MakesRoom(Box<MakesRoom>),
    /// It makes room for another pod, and counts no more.
    Leaves,
    Rejected(Box<Rejection>),
}

struct MakesRoom {
    leaving: BTreeSet<String>,
    until: Instant,
}

impl Entry {
    /// Whether what it asks for is taken.
    fn counts(&self) -> bool {
        match self.state {
            State::Granted { .. } | State::MakesRoom(_) => true,
            State::Waits | State::Asked | State::Late | State::Leaves | State::Rejected(_) => false,
        }
    }

    fn decided(&mut self, state: State) {
        self.state = state;
        self.mailbox.tell(Told::Look);
    }

    fn take_over(&mut self) {
        self.decided(State::Granted { was_there: true });
    }
}

impl Admission {
    /// Nothing has been granted yet. Beside what the node says of itself it has a list of kernel parameters that pods
    /// may set, and AppArmor or not.
    pub fn new(
        facts: LiveFacts,
        sysctls: SysctlAllowlist,
        app_armor: bool,
        recorder: Recorder,
        allocations: Allocations,
    ) -> Admission {
        let sysctls = Arc::new(sysctls);
        Admission {
            facts,
            pressure: Pressure::default(),
            sysctls,
            app_armor,
            exclusive: Exclusive::default(),
            recorder,
            allocations,
            books: Arc::default(),
            changes: Arc::default(),
            metrics: None,
        }
    }

    /// Has it counted who is not taken, and who has to leave.
    pub(crate) fn counted_in(self, metrics: AdmissionMetrics) -> Admission {
        Admission { metrics: Some(metrics), ..self }
    }

    /// Has it take what a node takes that runs short of something.
    pub(crate) fn under(self, pressure: Pressure) -> Admission {
        Admission { pressure, ..self }
    }

    /// Has it refuse to change what the node hands out one by one.
    pub(crate) fn with_exclusive(self, exclusive: Exclusive) -> Admission {
        Admission { exclusive, ..self }
    }

    /// A pod wants in. One that `is_over` is not decided about unless its worker finds that it is not.
    pub fn enter(&self, pod: &Arc<Pod>, mailbox: &Mailbox, is_over: bool) {
        let uid = pod.metadata.uid.to_string();
        let state = if is_over { State::Late } else { State::Waits };
        let allocated = self.granted_before(pod);
        let mut books = self.books();
        if !Arc::ptr_eq(&allocated, pod) {
            books.resizes.insert(uid.clone(), Waiting::new(pod));
        }
        let entry = Entry { pod: allocated, mailbox: mailbox.clone(), state };
        books.pods.insert(uid.clone(), entry);
        books.line.push(uid);
        self.move_on(&mut books);
    }

    /// The runtime has told what it has: what lives is taken over from here on.
    pub fn take_over(&self, found: BTreeMap<String, Remains>) {
        let mut books = self.books();
        books.stage = Stage::Gathering(found);
        self.move_on(&mut books);
    }

    /// All sources were heard, or should have been: the others are decided about from here on.
    pub fn open(&self) {
        let mut books = self.books();
        let found = match std::mem::take(&mut books.stage) {
            Stage::Beginning => BTreeMap::new(),
            Stage::Gathering(found) | Stage::Asking(found) | Stage::Open(found) => found,
        };
        // Where they compete for the node, what ran before comes first, and then the oldest.
        let Books { line, pods, .. } = &mut *books;
        line.sort_by_key(|uid| {
            let created = pods.get(uid).and_then(|entry| entry.pod.metadata.creation_timestamp);
            (!found.contains_key(uid), created)
        });
        books.stage = Stage::Asking(found);
        self.move_on(&mut books);
    }

    /// The workers of those that ran had their time to ask: nobody waits for them any longer.
    pub fn wait_no_longer(&self) {
        let mut books = self.books();
        if let Stage::Asking(found) = &mut books.stage {
            books.stage = Stage::Open(std::mem::take(found));
            self.move_on(&mut books);
        }
    }

    /// Completes when somebody may have come, been decided about, or gone since this was called. Those who wait are woken
    /// in the order in which they began to, so that a simulated run replays.
    pub fn changed(&self) -> impl Future<Output = ()> + '_ {
        self.changes.notified()
    }

    /// What the pods on the node ask for together; nothing while it is not known who runs.
    pub fn asked(&self) -> Option<Asked> {
        let books = self.books();
        match books.stage {
            Stage::Beginning | Stage::Gathering(_) => return None,
            Stage::Asking(_) | Stage::Open(_) => {}
        }
        let pod_level = PodLevel::from(&self.facts.now().translation.features);
        let runs = |entry: &&Entry| match entry.state {
            State::Granted { .. } | State::Leaves => true,
            State::Waits | State::Asked | State::Late | State::MakesRoom(_) | State::Rejected(_) => false,
        };
        let mut asked = Asked::default();
        for entry in books.pods.values().filter(runs) {
            let class = qos_class(&entry.pod);
            let requests = match class {
                QosClass::BestEffort => continue,
                QosClass::Guaranteed | QosClass::Burstable => {
                    pod_requests(&entry.pod, pod_level, Overhead::Included)
                }
            };
            let memory = match class {
                QosClass::Burstable => {
                    asked.burstable_milli_cpu += quantity(&requests, "cpu").milli_value();
                    &mut asked.burstable_memory
                }
                QosClass::Guaranteed | QosClass::BestEffort => &mut asked.guaranteed_memory,
            };
            *memory = memory.saturating_add(quantity(&requests, "memory").value());
        }
        Some(asked)
    }

    /// Nobody is taken from now on: the machine is about to be shut down. What lives when the agent begins is taken over all
    /// the same.
    pub fn close(&self) {
        self.books().is_closed = true;
    }

    /// The machine stays up: pods are taken again.
    pub fn reopen(&self) {
        self.books().is_closed = false;
    }

    /// Completes when it is known who runs, as far as sources told within their time.
    pub async fn knows_who_runs(&self) {
        loop {
            let changed = self.changed();
            match self.books().stage {
                Stage::Beginning | Stage::Gathering(_) => {}
                Stage::Asking(_) | Stage::Open(_) => return,
            }
            changed.await;
        }
    }

    /// The pods that the node has taken and that may still run.
    pub fn taken(&self) -> Vec<Arc<Pod>> {
        let books = self.books();
        let may_run = |entry: &&Entry| match entry.state {
            // The end of one that is late may have begun under an agent before this one.
            State::Granted { .. } | State::MakesRoom(_) | State::Leaves | State::Late => true,
            State::Waits | State::Asked | State::Rejected(_) => false,
        };
        books.pods.values().filter(may_run).map(|entry| Arc::clone(&entry.pod)).collect()
    }

    /// The pods that the node took and that have not come to their end, with what they were given.
    pub fn active(&self) -> Vec<Arc<Pod>> {
        let books = self.books();
        let is_active = |entry: &&Entry| match entry.state {
            State::Granted { .. } => true,
            State::Waits
            | State::Asked
            | State::Late
            | State::MakesRoom(_)
            | State::Leaves
            | State::Rejected(_) => false,
        };
        books.pods.values().filter(is_active).map(|entry| Arc::clone(&entry.pod)).collect()
    }

    /// Whether a pod wants in, or is in.
    pub fn knows(&self, uid: &str) -> bool {
        self.books().pods.contains_key(uid)
    }

    /// A worker found that its pod is over: nobody waits for it.
    pub fn found_over(&self, uid: &str) {
        let mut books = self.books();
        if let Some(entry @ Entry { state: State::Asked, .. }) = books.pods.get_mut(uid) {
            entry.state = State::Late;
            self.move_on(&mut books);
        }
    }

    /// What was decided about a pod. One that was to be decided when its worker asks is decided now, or in its turn.
    pub fn verdict(&self, uid: &str) -> Verdict {
        let mut books = self.books();
        let is_open = matches!(books.stage, Stage::Asking(_) | Stage::Open(_));
        match books.pods.get_mut(uid) {
            Some(entry @ Entry { state: State::Asked, .. }) => {
                entry.state = State::Waits;
                self.move_on(&mut books);
            }
            Some(Entry { state: State::Late, .. }) if is_open => {
                self.decide(&mut books, uid);
                self.changes.notify_waiters();
            }
            Some(_) | None => {}
        }
        self.grant_if_there_is_room(&mut books, uid);
        let Some(entry) = books.pods.get(uid) else { return Verdict::Undecided };
        match &entry.state {
            State::Waits | State::Asked | State::Late | State::Leaves => Verdict::Undecided,
            State::Granted { was_there } => {
                self.write_down(&entry.pod);
                Verdict::Granted { was_there: *was_there }
            }
            State::MakesRoom(room) => Verdict::MakesRoom { until: room.until },
            State::Rejected(rejection) => Verdict::Rejected((**rejection).clone()),
        }
    }

    /// A pod that has what it asks for is another object by now, which asks for the same.
    pub fn replace(&self, pod: &Arc<Pod>) {
        if let Some(entry) = self.books().pods.get_mut(&*pod.metadata.uid) {
            entry.pod = Arc::clone(pod);
        }
    }

    /// A pod counts no more: its source does not want it, or nothing of it is left.
    pub fn release(&self, uid: &str) {
        self.free(uid, Trigger::PodsRemoved);
    }

    /// A pod counts no more: it has terminated.
    pub fn release_terminated(&self, uid: &str) {
        self.free(uid, Trigger::PodTerminated);
    }

    fn free(&self, uid: &str, trigger: Trigger) {
        self.allocations.forget(uid);
        let mut books = self.books();
        match &mut books.stage {
            Stage::Beginning => {}
            Stage::Gathering(found) | Stage::Asking(found) | Stage::Open(found) => drop(found.remove(uid)),
        }
        if books.pods.remove(uid).is_none() {
            return;
        }
        books.resizes.remove(uid);
        books.resizes.values_mut().for_each(|waiting| waiting.leaves(uid));
        for entry in books.pods.values_mut() {
            if let State::MakesRoom(room) = &mut entry.state
                && room.leaving.remove(uid)
                && room.leaving.is_empty()
            {
                entry.mailbox.tell(Told::Look);
            }
        }
        self.move_on(&mut books);
        self.retry(&mut books, trigger, None);
    }

    /// Decides about those in the line whose turn it is.
    fn move_on(&self, books: &mut Books) {
        let mut still = Vec::new();
        let mut is_held_up = false;
        for uid in std::mem::take(&mut books.line) {
            let Some(entry) = books.pods.get_mut(&uid) else { continue };
            let is_deleted = entry.pod.metadata.deletion_timestamp.is_some();
            let (remains, waits_for_workers) = match &mut books.stage {
                Stage::Gathering(found) if found.get(&uid) == Some(&Remains::Live) => {
                    (found.remove(&uid), true)
                }
                Stage::Beginning | Stage::Gathering(_) => {
                    still.push(uid);
                    continue;
                }
                Stage::Asking(found) => (found.remove(&uid), true),
                Stage::Open(found) => (found.remove(&uid), false),
            };
            let is_asked = remains == Some(Remains::Dead) || matches!(entry.state, State::Asked);
            if remains == Some(Remains::Live) {
                entry.take_over();
            } else if matches!(entry.state, State::Late) || is_deleted || (is_asked && !waits_for_workers) {
                // It is over, it is not going to run, or nobody waits for it any longer.
                entry.decided(State::Late);
            } else if is_asked {
                if remains.is_some() {
                    entry.decided(State::Asked);
                }
                is_held_up = true;
                still.push(uid);
            } else if is_held_up {
                still.push(uid);
            } else {
                self.decide(books, &uid);
            }
        }
        books.line = still;
        self.decide_resizes(books);
        self.changes.notify_waiters();
    }

    fn decide(&self, books: &mut Books, uid: &str) {
        let Some(pod) = books.pods.get(uid).map(|entry| Arc::clone(&entry.pod)) else { return };
        let others: Vec<&Pod> = books
            .pods
            .iter()
            .filter(|(other, entry)| *other != uid && entry.counts())
            .map(|(_, entry)| &*entry.pod)
            .collect();
        let admitted = self.admit(&pod, &others).and_then(|victims| match books.is_closed {
            true => Err(Rejection::new(shutdown::NOT_ADMITTED_REASON, shutdown::NOT_ADMITTED_MESSAGE)),
            false => Ok(victims),
        });
        let state = match admitted {
            Err(rejection) => {
                if let Some(metrics) = &self.metrics {
                    metrics.rejected(&rejection.reason);
                }
                State::Rejected(Box::new(rejection))
            }
            Ok(victims) if victims.is_empty() => State::Granted { was_there: false },
            Ok(victims) => {
                self.count_preemptions(&pod, &others, victims.len());
                State::MakesRoom(Box::new(self.preempt(books, &pod, victims)))
            }
        };
        if let Some(entry) = books.pods.get_mut(uid) {
            entry.decided(state);
        }
    }

    /// Whether a pod fits, and the UIDs of those that have to go for it.
    fn admit(&self, pod: &Pod, others: &[&Pod]) -> Result<BTreeSet<String>, Rejection> {
        let facts = self.facts.now();
        eviction::admit(pod, &self.pressure.now(), &facts.translation.features)?;
        self.sysctls
            .admit(pod)
            .map_err(|forbidden| Rejection::new(ForbiddenSysctl::REASON, forbidden.to_string()))?;
        let victims =
            admit(&Input { pod, node: &facts.node, others, features: &facts.translation.features })?;
        if !self.app_armor && needs_app_armor(pod) {
            let message = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
            return Err(Rejection::new("AppArmor", message));
        }
        Ok(victims.iter().map(|victim| victim.metadata.uid.to_string()).collect())
    }

    /// Counts pods that have to leave, by the first resource that there is not enough of.
    fn count_preemptions(&self, pod: &Pod, others: &[&Pod], victims: usize) {
        let Some(metrics) = &self.metrics else { return };
        let facts = self.facts.now();
        let input = Input { pod, node: &facts.node, others, features: &facts.translation.features };
        let failures = failures(&input);
        let resource = failures.iter().find_map(|failure| match failure {
            admission::Failure::Insufficient(insufficient) => Some(&*insufficient.resource),
            admission::Failure::NodeAffinity
            | admission::Failure::NodeName
            | admission::Failure::NodePorts
            | admission::Failure::TaintToleration => None,
        });
        for _ in 0..victims {
            metrics.preempted(resource.unwrap_or_default());
        }
    }

    /// Tells pods to make room for a critical one.
    fn preempt(&self, books: &mut Books, pod: &Pod, leaving: BTreeSet<String>) -> MakesRoom {
        let now = Instant::now();
        let mut until = now;
        for uid in &leaving {
            let Some(entry) = books.pods.get_mut(uid) else { continue };
            let victim = &entry.pod;
            let _span = pod_span(&victim.identity()).entered();
            let _cause = info_span!("preemption", critical = %pod.identity()).entered();
            let failure = Failure::preempted(victim);
            let message = failure.message.clone();
            self.recorder.event(
                &Involved::version_of(victim),
                EventType::Warning,
                reason::PREEMPTING,
                message,
            );
            let grace = victim.spec.termination_grace_period_seconds.unwrap_or(0).unsigned_abs();
            let time = Duration::from_secs(grace.saturating_add(grace / 2).max(LEAST_TIME_TO_MAKE_ROOM));
            until = until.max(now.checked_add(time).unwrap_or(until));
            entry.state = State::Leaves;
            entry.mailbox.tell(Told::End(End::evicted(failure, None)));
        }
        MakesRoom { leaving, until }
    }

    /// A critical pod waits no longer when all have left that were to, or had their time to.
    fn grant_if_there_is_room(&self, books: &mut Books, uid: &str) {
        let Some(entry) = books.pods.get_mut(uid) else { return };
        let State::MakesRoom(room) = &mut entry.state else { return };
        if !room.leaving.is_empty() && Instant::now() < room.until {
            return;
        }
        let slow = std::mem::take(&mut room.leaving);
        entry.state = State::Granted { was_there: false };
        self.changes.notify_waiters();
        for pod in slow.iter().filter_map(|uid| books.pods.get(uid)).map(|entry| &entry.pod) {
            let _span = pod_span(&pod.identity()).entered();
            let message = "Container runtime did not kill the pod within specified grace period.";
            self.recorder.event(
                &Involved::version_of(pod),
                EventType::Warning,
                reason::EXCEEDED_GRACE_PERIOD,
                message,
            );
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_facts::Facts;
    use crate::story::Stories;
    use crablet_api::FeatureGates;
    use crablet_api::core::Node;
    use crablet_api::testing::pod_yaml;
    use crablet_core::translate;
    use crablet_host::checkpoint::SimulatedCheckpoints;
    use crablet_host::clock::Clock;

    /// A node for two CPUs' worth of pods.
    fn admission(app_armor: bool) -> Admission {
        let mut node = Node::default();
        for (resource, amount) in [("pods", "10"), ("cpu", "2")] {
            node.status.allocatable.insert(resource, amount.parse().unwrap());
        }
        let translation = translate::NodeContext {
            facts: translate::NodeFacts::default(),
            settings: translate::Settings::default(),
            features: FeatureGates::default(),
        };
        let facts = LiveFacts::new(Facts { node, translation, ..Facts::default() });
        let sysctls = SysctlAllowlist::new(Some((6, 1)), &["kernel.msg*"]).unwrap();
        let clock = Clock::system();
        let recorder = Recorder::new(clock.clone(), Stories::new(clock));
        let allocations = Allocations::new(Arc::new(SimulatedCheckpoints::new()));
        Admission::new(facts, sysctls, app_armor, recorder, allocations)
    }

    fn pod(uid: &str, spec: &str) -> Arc<Pod> {
        Arc::new(pod_yaml(&format!(
            "metadata: {{name: {uid}, namespace: default, uid: {uid}}}\nspec: {{containers: [{{name: c}}], {spec}}}"
        )))
    }

    /// A pod that asks for some CPUs, and was created in some second.
    fn asking(uid: &str, cpu: &str, created: i64) -> Arc<Pod> {
        let mut pod = pod_yaml(&format!(
            "metadata: {{name: {uid}, namespace: default, uid: {uid}}}\nspec: {{terminationGracePeriodSeconds: 30, \
             containers: [{{name: c, resources: {{requests: {{cpu: {cpu}}}}}}}]}}"
        ));
        pod.metadata.creation_timestamp = Some(crablet_api::meta::Time::from_unix_seconds(created));
        Arc::new(pod)
    }

    fn critical(uid: &str, cpu: &str) -> Arc<Pod> {
        let mut pod = asking(uid, cpu, 0);
        Arc::make_mut(&mut pod).spec.priority = Some(2_000_000_000);
        pod
    }

    fn enter(admission: &Admission, pod: &Arc<Pod>) -> Mailbox {
        let mailbox = Mailbox::new();
        admission.enter(pod, &mailbox, false);
        mailbox
    }

    fn verdict(admission: &Admission, uid: &str) -> String {
        match admission.verdict(uid) {
            Verdict::Undecided => "undecided".to_owned(),
            Verdict::Granted { was_there: true } => "taken over".to_owned(),
            Verdict::Granted { was_there: false } => "admitted".to_owned(),
            Verdict::MakesRoom { until } => format!("in {} s", (until - Instant::now()).as_secs()),
            Verdict::Rejected(Rejection { reason, message }) => format!("{reason}: {message}"),
        }
    }

    fn open(admission: &Admission) {
        admission.take_over(BTreeMap::new());
        admission.open();
    }

    fn check(spec: &str, app_armor: bool, expected: &str) {
        let admission = admission(app_armor);
        open(&admission);
        enter(&admission, &pod("u", spec));
        assert_eq!(verdict(&admission, "u"), expected, "{spec}");
    }

    #[test]
    fn a_kernel_parameter_has_to_be_on_the_list() {
        let sysctl = |name: &str| format!("securityContext: {{sysctls: [{{name: {name}, value: '1'}}]}}");
        check(&sysctl("kernel.msgmax"), false, "admitted");
        check(&sysctl("net.ipv4.tcp_syncookies"), false, "admitted");
        let forbidden = "SysctlForbidden: forbidden sysctl: \"kernel.sem\" not allowlisted";
        check(&sysctl("kernel.sem"), false, forbidden);
    }

    #[test]
    fn a_pod_that_names_a_profile_needs_app_armor() {
        let profile = |word: &str| format!("securityContext: {{appArmorProfile: {{type: {word}}}}}");
        let refused = "AppArmor: Cannot enforce AppArmor: AppArmor is not enabled on the host";
        check(&profile("RuntimeDefault"), false, refused);
        check(&profile("RuntimeDefault"), true, "admitted");
        check(&profile("Unconfined"), false, "admitted");
    }

    const FULL: &str =
        "OutOfcpu: Node didn't have enough resource: cpu, requested: 1000, used: 2000, capacity: 2000";

    #[test]
    fn what_lives_is_taken_over_first_and_the_rest_is_admitted_by_age() {
        let admission = admission(false);
        // In the order in which sources told of them.
        let young = enter(&admission, &asking("young", "1", 3));
        for pod in [asking("old", "1", 1), asking("middle", "1", 2)] {
            enter(&admission, &pod);
        }
        assert_eq!(verdict(&admission, "old"), "undecided");
        let found = [("runs", Remains::Live), ("late", Remains::Live), ("dead", Remains::Dead)];
        let found = found.map(|(uid, remains)| (uid.to_owned(), remains)).into();
        enter(&admission, &asking("runs", "1", 9));
        admission.take_over(found);
        // Nobody waits for a source to go on with what runs.
        assert_eq!(verdict(&admission, "runs"), "taken over");
        enter(&admission, &asking("dead", "0", 4));
        assert_eq!(
            (verdict(&admission, "old"), verdict(&admission, "dead")),
            ("undecided".into(), "undecided".into())
        );
        admission.open();
        // One that left something dead is asked about when its worker knows that it is not over.
        assert_eq!(verdict(&admission, "old"), "undecided");
        assert!(!young.take().look);
        assert_eq!(verdict(&admission, "dead"), "admitted");
        assert!(young.take().look);
        assert_eq!(verdict(&admission, "old"), "admitted");
        assert_eq!((verdict(&admission, "middle"), verdict(&admission, "young")), (FULL.into(), FULL.into()));
        // A source that speaks late finds what runs taken over all the same.
        enter(&admission, &asking("late", "1", 0));
        assert_eq!(verdict(&admission, "late"), "taken over");
    }

    /// After a reboot: of two pods that ran only dead parts are left, and a third one never ran.
    fn after_a_reboot() -> (Admission, Mailbox) {
        let admission = admission(false);
        let newcomer = enter(&admission, &asking("newcomer", "1", 1));
        for pod in [asking("old", "2", 2), asking("older", "0", 1)] {
            enter(&admission, &pod);
        }
        let found = ["old", "older"].map(|uid| (uid.to_owned(), Remains::Dead)).into();
        admission.take_over(found);
        admission.open();
        (admission, newcomer)
    }

    #[test]
    fn what_ran_before_comes_first_in_whatever_order_workers_ask() {
        let (admission, newcomer) = after_a_reboot();
        assert_eq!(verdict(&admission, "newcomer"), "undecided");
        // The older one has not been found to be over or not.
        assert_eq!(verdict(&admission, "old"), "undecided");
        assert!(!newcomer.take().look);
        assert_eq!(verdict(&admission, "older"), "admitted");
        assert!(newcomer.take().look);
        assert_eq!(
            (verdict(&admission, "old"), verdict(&admission, "newcomer")),
            ("admitted".into(), FULL.into())
        );
    }

    #[test]
    fn nobody_waits_for_what_ran_and_is_over_or_gone_nor_for_a_worker_that_does_not_ask() {
        let (admission, _) = after_a_reboot();
        admission.found_over("older");
        assert_eq!(verdict(&admission, "newcomer"), "undecided");
        admission.release("old");
        assert_eq!(verdict(&admission, "newcomer"), "admitted");
        // What its worker took for over is decided when it asks all the same.
        assert_eq!(verdict(&admission, "older"), "admitted");

        let (admission, newcomer) = after_a_reboot();
        admission.wait_no_longer();
        assert!(newcomer.take().look);
        assert_eq!(verdict(&admission, "newcomer"), "admitted");
        assert!(verdict(&admission, "old").starts_with("OutOfcpu"));
    }

    #[test]
    fn what_burstable_pods_ask_for_is_known_when_it_is_known_who_runs() {
        let admission = admission(false);
        for pod in [asking("a", "500m", 0), asking("b", "250m", 0), pod("best-effort", "")] {
            enter(&admission, &pod);
        }
        assert_eq!(admission.asked(), None);
        open(&admission);
        assert_eq!(admission.asked().unwrap().burstable_milli_cpu, 750);
        assert!(admission.resize(&asking("b", "1", 0)).unwrap().pending.is_none());
        assert_eq!(admission.asked().unwrap().burstable_milli_cpu, 1500);
        admission.release("a");
        assert_eq!(admission.asked().unwrap().burstable_milli_cpu, 1000);
    }

    #[test]
    fn a_pod_that_is_over_or_that_its_source_removed_counts_no_more() {
        let admission = admission(false);
        open(&admission);
        let over = asking("over", "2", 0);
        admission.enter(&over, &Mailbox::new(), true);
        enter(&admission, &asking("first", "2", 0));
        assert_eq!(verdict(&admission, "first"), "admitted");
        enter(&admission, &asking("second", "1", 0));
        assert_eq!(verdict(&admission, "second"), FULL);
        admission.release("first");
        enter(&admission, &asking("third", "1", 0));
        assert_eq!(verdict(&admission, "third"), "admitted");
        // The verdict stays.
        assert_eq!(verdict(&admission, "second"), FULL);
    }

    #[test]
    fn nobody_is_taken_while_the_machine_is_about_to_be_shut_down() {
        let admission = admission(false);
        let uids = || admission.taken().iter().map(|pod| pod.metadata.uid.to_string()).collect::<Vec<_>>();
        enter(&admission, &asking("lived", "1", 0));
        admission.close();
        admission.take_over(BTreeMap::from([("lived".to_owned(), Remains::Live)]));
        assert_eq!(verdict(&admission, "lived"), "taken over");
        admission.open();
        let refused = "NodeShutdown: Pod was rejected as the node is shutting down.";
        let lived = enter(&admission, &critical("critical", "2"));
        assert_eq!(verdict(&admission, "critical"), refused);
        assert!(lived.take().end.is_none(), "nobody has to make room for it");
        enter(&admission, &asking("large", "9", 0));
        assert!(verdict(&admission, "large").starts_with("OutOfcpu"), "what does not fit anyway is told so");
        assert_eq!(uids(), ["lived"]);
        admission.reopen();
        enter(&admission, &asking("next", "1", 0));
        assert_eq!(verdict(&admission, "next"), "admitted");
        assert_eq!(verdict(&admission, "critical"), refused, "the verdict stays");
        assert_eq!(uids(), ["lived", "next"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_critical_pod_begins_when_others_have_made_room() {
        let admission = admission(false);
        open(&admission);
        let (small, large) =
            (enter(&admission, &asking("small", "500m", 0)), enter(&admission, &asking("large", "1", 0)));
        let critical_box = enter(&admission, &critical("critical", "1"));
        assert_eq!(verdict(&admission, "critical"), "in 45 s");
        // Either would do: the one that asks for less goes.
        assert!(large.take().end.is_none());
        let end = small.take().end.unwrap();
        assert_eq!((end.grace, end.in_words()), (None, "Preempted in order to admit critical pod"));
        // The room is the critical pod's already.
        enter(&admission, &asking("next", "1", 0));
        assert!(verdict(&admission, "next").starts_with("OutOfcpu"));
        critical_box.take();
        admission.release("small");
        assert!(critical_box.take().look);
        assert_eq!(verdict(&admission, "critical"), "admitted");
    }

    #[tokio::test(start_paused = true)]
    async fn a_critical_pod_does_not_wait_for_ever() {
        let admission = admission(false);
        open(&admission);
        enter(&admission, &asking("stuck", "2", 0));
        enter(&admission, &critical("critical", "1"));
        tokio::time::sleep(Duration::from_secs(44)).await;
        assert_eq!(verdict(&admission, "critical"), "in 1 s");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(verdict(&admission, "critical"), "admitted");
        // Nobody has to go twice.
        enter(&admission, &critical("another", "1"));
        assert_eq!(verdict(&admission, "another"), "admitted");
    }
}
