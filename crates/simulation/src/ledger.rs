//! What is known of a run from outside: what was wanted of which pod, and what was promised of it since. The
//! [`invariants`](crate::invariants) are checked against it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crablet_agent::sources::SourceKind;
use crablet_agent::statuses::Statuses;
use crablet_api::core::{ContainerRestartPolicy, Pod};
use crablet_cri_sim::{ContainerView, Simulator};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::trace::Trace;

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The number of the promise in the design; 0 is for being there in the end, as wanted, 13 for users of the node
    /// that no two pods have, 14 for sandboxes that are stopped before they are removed, 15 for statuses at the API
    /// server, none of which is older than one before it, 16 for volumes that are staged before they are published and
    /// published before they are used, 17 for those that are mounted for whom they are wanted, as long as that, 18 for
    /// what is in them, which nobody touches, 19 for pods that are evicted, which no other should have gone before, 20 for
    /// what is allocated to pods: never more than the node has, and given to whom it is granted, and 21 for pods that a
    /// shutdown of the machine ends: in their order, no others, and none of them begins again before it is over.
    pub invariant: u8,
    /// What was seen.
    pub what: String,
}

/// A pod's life, as the outside knows it.
#[derive(Debug)]
pub struct Life {
    /// What is wanted, in its latest form.
    pub pod: Arc<Pod>,
    /// In its earlier forms, of which any may be what the node granted of its resources.
    earlier: Vec<Arc<Pod>>,
    /// Who wants it.
    pub source: SourceKind,
    /// Whether they do, now.
    pub wanted: bool,
    /// When it must be over at the earliest, if it was asked to end: what a grace period promises.
    pub ends: Option<Instant>,
    /// Whether its containers changed since it began.
    pub edited: bool,
    /// Whether somebody killed something of it, so that how it ends cannot be told from its spec.
    pub harmed: bool,
    /// Whether it was removed before, and may still be ending.
    pub returned: bool,
    /// Whether it was shown to be over.
    pub over: bool,
    /// Whether it was when nothing was said to have disturbed it.
    pub was_over_undisturbed: bool,
    /// Whether a node that ran short of something could choose it to go.
    pub may_be_evicted: bool,
    /// Whether it could be chosen while nobody could stop it, as the runtime did not answer: then others go after it.
    pub may_be_leaving: bool,
    /// Until when it may be shown to be evicted, since pods were measured and no other was to go before it.
    pub may_go_until: Option<Instant>,
    /// Whether it was shown to be evicted, or not taken because the node ran short of something.
    pub evicted: bool,
    /// What was said of that where the node ran short of something.
    pub evicted_for: Option<String>,
    /// Whether it could be written down that it was evicted.
    pub eviction_is_written: bool,
    /// Whether the machine was about to be shut down while it was there.
    pub may_be_shut_down: bool,
    /// Init containers that are done, with their sandbox.
    pub done: BTreeSet<(String, String)>,
    /// Until when its sidecars have time, of which one was told to stop although the pod is wanted: all others are done.
    pub sidecars_end: Option<Instant>,
    /// Until when a container that was told to stop has time.
    pub stops: BTreeMap<String, Instant>,
    /// Containers in which the runtime could not run a command, which may be a hook.
    pub failed_commands: BTreeSet<String>,
    /// Containers that ran when it was last shown to be ready, or not, and which of the two.
    pub readiness: Option<(BTreeSet<String>, bool)>,
}

impl Life {
    fn new(pod: Arc<Pod>, source: SourceKind) -> Life {
        Life {
            pod,
            earlier: Vec::new(),
            source,
            wanted: true,
            ends: None,
            edited: false,
            harmed: false,
            returned: false,
            over: false,
            was_over_undisturbed: false,
            may_be_evicted: false,
            may_be_leaving: false,
            may_go_until: None,
            evicted: false,
            evicted_for: None,
            eviction_is_written: true,
            may_be_shut_down: false,
            done: BTreeSet::new(),
            sidecars_end: None,
            stops: BTreeMap::new(),
            failed_commands: BTreeSet::new(),
            readiness: None,
        }
    }

    /// It is wanted in another form.
    pub fn change(&mut self, pod: Arc<Pod>) {
        self.earlier.push(std::mem::replace(&mut self.pod, pod));
    }

    /// The form in which it is wanted, and those in which it was.
    pub fn forms(&self) -> impl Iterator<Item = &Pod> {
        self.earlier.iter().chain([&self.pod]).map(|pod| &**pod)
    }

    /// The init containers in their order, and whether each is a sidecar.
    pub fn inits(&self) -> impl Iterator<Item = (&str, bool)> {
        let is_sidecar =
            |policy: &Option<ContainerRestartPolicy>| matches!(policy, Some(ContainerRestartPolicy::Always));
        self.pod
            .spec
            .init_containers
            .iter()
            .map(move |container| (container.name.as_str(), is_sidecar(&container.restart_policy)))
    }

    /// Whether a container is one of those that do the work.
    pub fn is_main(&self, name: &str) -> bool {
        self.pod.spec.containers.iter().any(|container| *container.name == *name)
    }

    /// The place of a sidecar among the init containers.
    pub fn sidecar(&self, name: &str) -> Option<usize> {
        self.inits().position(|(init, is_sidecar)| is_sidecar && init == name)
    }

    /// Its name and namespace: static pods share it one after another.
    pub fn full_name(&self) -> (&str, &str) {
        (&self.pod.metadata.namespace, &self.pod.metadata.name)
    }
}

/// A shutdown of the machine that is under way.
pub struct GoingDown {
    pub since: Instant,
    /// The groups of the pods that the agent surely had when it began, for as long as it lives.
    pub groups: BTreeMap<String, usize>,
    /// The pods that were ended for it.
    pub ended: BTreeSet<String>,
}

/// What the ledger holds.
pub struct State {
    /// Pods by UID.
    pub lives: BTreeMap<String, Life>,
    /// The first broken promise.
    pub violation: Option<Violation>,
    /// What the agent shows, while there is one.
    pub statuses: Option<(Statuses, watch::Receiver<u64>)>,
    /// The shutdown of the machine that is under way.
    pub going_down: Option<GoingDown>,
    /// Until when an agent may not have heard that there is none any more.
    pub shutdown_may_last: Option<Instant>,
    /// Since when the agent lives.
    pub agent_since: Option<Instant>,
    /// Pods whose worker panics at its next look.
    pub panics: BTreeSet<String>,
    /// Whether the runtime answers.
    pub runtime_answers: bool,
    /// Whether the disk ever failed: what could not be written down need not be remembered.
    pub disk_failed: bool,
    /// Until when it may not have been possible to write something down.
    pub disk_fails_until: Option<Instant>,
    /// When pods were measured last because the node was short of something.
    pub measured_short: Option<Instant>,
    /// Sandboxes that the runtime said it had stopped.
    pub stopped_sandboxes: BTreeSet<String>,
    /// How many images are being pulled, and sandboxes and containers made and started. As upstream, a worker that waits for
    /// one shows what happens meanwhile after it.
    pub waited_for: usize,
    is_dirty: bool,
}

pub struct Ledger {
    /// The runtime, as nobody but the test sees it.
    pub simulator: Simulator,
    /// What happened.
    pub trace: Trace,
    state: Mutex<State>,
}

impl Ledger {
    /// One without pods.
    pub fn new(simulator: Simulator, trace: Trace) -> Ledger {
        let state = State {
            lives: BTreeMap::new(),
            violation: None,
            statuses: None,
            going_down: None,
            shutdown_may_last: None,
            agent_since: None,
            panics: BTreeSet::new(),
            runtime_answers: true,
            disk_failed: false,
            disk_fails_until: None,
            measured_short: None,
            stopped_sandboxes: BTreeSet::new(),
            waited_for: 0,
            is_dirty: false,
        };
        Ledger { simulator, trace, state: Mutex::new(state) }
    }

    /// The state, locked.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn want(&self, pod: &Arc<Pod>, source: SourceKind) {
        let mut state = self.state();
        let mut life = Life::new(Arc::clone(pod), source);
        life.may_be_shut_down = state.may_go_down();
        // A static one that is kept out for a shutdown that there is no more begins anew, as those do that were there.
        if life.may_be_shut_down && state.going_down.is_none() && source.is_static() {
            (life.returned, life.harmed) = (true, true);
        }
        // Who is wanted in another form is not a new pod.
        if let Some(before) = state.lives.get(pod.metadata.uid.as_str()) {
            life.edited = true;
            life.earlier = before.forms().map(|form| Arc::new(form.clone())).collect();
        }
        state.lives.insert(pod.metadata.uid.to_string(), life);
    }

    /// The runtime could not run a command in a container, which ends for that where it was its hook.
    pub fn command_failed(&self, id: &str) {
        let containers = self.simulator.containers();
        let Some(container) = containers.iter().find(|container| container.id == id) else { return };
        if let Some(life) = self.state().lives.get_mut(&container.pod_uid) {
            life.failed_commands.insert(id.to_owned());
            life.harmed = true;
        }
    }

    /// A worker looks at what the runtime knows of its pod: it panics, where that was to happen. Nobody's panic hook hears
    /// of it.
    pub fn worker_looks(&self, uid: &str) {
        let panics = self.state().panics.remove(uid);
        if panics {
            self.trace.note(format_args!("*** the worker of {uid} panics"));
            std::panic::resume_unwind(Box::new("as a simulated run wants it"));
        }
    }

    /// Something of the runtime may have changed: looked at after the agent's step.
    pub fn touch(&self) {
        self.state().is_dirty = true;
    }

    /// Looks, where anything may have changed since the last time.
    pub fn look(&self) {
        let mut state = self.state();
        let has_news = match &mut state.statuses {
            Some((_, version)) => {
                let has_news = version.has_changed().unwrap_or(false);
                version.mark_unchanged();
                has_news
            }
            None => false,
        };
        if !std::mem::take(&mut state.is_dirty) && !has_news {
            return;
        }
        let containers = self.simulator.containers();
        crate::invariants::check_state(self, &mut state, &containers);
    }

    /// The first broken promise counts.
    pub fn broken(&self, state: &mut State, invariant: u8, what: String) {
        self.trace.note(format_args!("!!! invariant {invariant}: {what}"));
        state.violation.get_or_insert(Violation { invariant, what });
    }

    /// A container in words.
    pub fn describe(&self, container: &ContainerView) -> String {
        let ContainerView { pod_uid, name, attempt, id, .. } = container;
        format!("{name}#{attempt} of {pod_uid} ({})", &id[..8.min(id.len())])
    }

    pub fn container(&self, id: &str) -> Option<ContainerView> {
        self.simulator.containers().into_iter().find(|container| container.id == id)
    }
}

impl State {
    /// Whether an agent may hold the machine for one that is about to be shut down.
    fn may_go_down(&self) -> bool {
        self.going_down.is_some() || self.shutdown_may_last.is_some_and(|until| Instant::now() < until)
    }

    /// The disk fails for so long at most.
    pub fn fail_disk(&mut self, time: Duration) {
        self.disk_failed = true;
        self.disk_fails_until = Some(Instant::now() + time);
    }

    /// A pod was asked to end, with so much time.
    pub fn end(&mut self, uid: &str, grace: i64) {
        let Some(life) = self.lives.get_mut(uid) else { return };
        let ends = Instant::now() + Duration::from_secs(u64::try_from(grace).unwrap_or_default());
        life.ends = Some(life.ends.map_or(ends, |before| before.min(ends)));
    }
}

impl Ledger {
    /// A static pod that was removed is wanted again, under the UID that it had: a new life.
    pub fn want_again(&self, pod: &Arc<Pod>) {
        let uid = pod.metadata.uid.to_string();
        let mut state = self.state();
        let before = state.lives.remove(&uid);
        let mut life = Life::new(Arc::clone(pod), SourceKind::File);
        // Its earlier life may not be over yet, and what that was kept out for is still shown.
        life.returned = true;
        life.harmed = true;
        life.may_be_shut_down = state.may_go_down() || before.as_ref().is_some_and(|it| it.may_be_shut_down);
        life.done = before.map(|before| before.done).unwrap_or_default();
        state.lives.insert(uid, life);
    }
}
