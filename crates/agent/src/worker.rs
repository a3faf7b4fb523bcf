//! The worker of one pod: the one task that owns it.
//!
//! It hears what its [`Mailbox`] says, looks at what the runtime knows, decides by [`crablet_core`], acts, and shows
//! the status, in a loop whose phase is one enum:
//!
//! ```text
//! Syncing ──► Terminating ──► Terminated ──► gone
//!    ▲ │  every pass: hear → look → status → plan → act one thing → look again
//!    └─┘
//! ```
//!
//! A pod is gone when it has terminated and its source does not have it any more. Whoever comes after a worker that
//! panicked goes on in the phase in which that one was.
//!
//! - [`begin`]: what must hold before a pod is started.
//! - [`sync`]: a pass over a pod that should run.
//! - [`carry_out`]: what a plan asks for, done.
//! - [`startup`]: how long it took until a pod ran.
//! - [`volumes`]: what must be there before either, and goes after both.
//! - [`pull`]: the images that a container needs.
//! - [`runtime_config`]: what sandboxes and containers are made from.
//! - [`stops`]: the stops of containers, each on its own.
//! - [`resize`]: resources that change while it runs.
//! - [`terminate`]: the end of a pod, step by step, each of which can be done again.
//! - [`remove`]: taking away what a pod that is over left behind.
//! - [`checkpoint`]: what survives the agent, so that the next one goes on from there.
//! - [`probing`]: what the prober is told, and how a worker waits: what probes find is shown meanwhile.
//! - [`events`]: events, and the headline of the pod's story.

mod begin;
mod carry_out;
mod checkpoint;
mod events;
mod hooks;
mod probing;
mod pull;
mod remove;
mod resize;
mod retry;
mod runtime_config;
mod starts;
mod startup;
mod stops;
mod sync;
mod terminate;
mod volumes;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crablet_api::core::{Pod, PodIdentity, PodPhase, PodStatus};
use crablet_core::status::{Failure, StatusInput, pod_status, readiness_gates_differ};
use crablet_core::{observed, oom};
use crablet_cri::Error;
use jiff::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::mailbox::{End, Heard, Mailbox, News};
use crate::metrics::{Lifecycle, Pass, Working};
use crate::objects::Interest;
use crate::observe::observe;
use crate::shared::Shared;
use crate::statuses::Reported;
use crate::story::{State, Teller};
use begin::with_termination_messages;
use probing::Probing;
use resize::Allocation;
use retry::{Retries, What};
use starts::Starts;
use startup::StartupTracker;
use stops::Stops;
use terminate::Terminating;
use volumes::PodVolumes;

pub use checkpoint::Checkpoint;

/// The task of one pod.
pub(crate) struct Worker {
    node: Arc<Shared>,
    mailbox: Mailbox,
    story: Teller,
    owner: PodIdentity,
    /// What is wanted, in its latest form.
    pod: Arc<Pod>,
    /// What the node granted of that, and what was given of it.
    allocation: Allocation,
    /// What the runtime knew at the last look.
    observed: Arc<observed::Pod>,
    /// The latest status.
    status: Arc<PodStatus>,
    probing: Probing,
    volumes: PodVolumes,
    /// Has the worker told when something changes that the pod refers to.
    interest: Option<Interest>,
    starts: Starts,
    /// What failed, and when to try again.
    retries: Retries,
    /// The stops of its containers that are under way.
    stops: Stops,
    /// The sandboxes that were stopped: those that died without that may still have their network.
    stopped_sandboxes: BTreeSet<String>,
    /// Until when a sandbox may still appear whose making was given up.
    late_sandbox: Option<Instant>,
    /// Whether it was asked what the API server showed of it when the agent began.
    knows_mirror: bool,
    /// Why the pod failed as a whole, if it did.
    failure: Option<Failure>,
    /// Whether a source still has it.
    wanted: bool,
    /// Whether the node has taken it.
    admitted: bool,
    /// Whether it is over because the node has not taken it.
    rejected: bool,
    /// Whether its volumes, its cgroup and its users were taken away.
    cleared: bool,
    /// When the pod was seen first.
    seen_at: Instant,
    startup: StartupTracker,
    /// Its place among those that are counted.
    working: Working,
    phase: Phase,
}

/// Where a pod is in its life.
#[derive(Debug)]
enum Phase {
    /// It should run.
    Syncing,
    /// It is being stopped.
    Terminating(Terminating),
    /// All its containers have been seen to be stopped. It never runs again.
    Terminated,
}

/// What a pass leads to.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Something was done: look again.
    Again,
    /// Nothing to do until something is told, or until then.
    Wait(Option<Instant>),
    /// Nothing of the pod is left.
    Gone,
}

/// What a worker begins with.
pub(crate) struct Beginning {
    /// What all workers share.
    pub(crate) node: Arc<Shared>,
    /// Where it hears things.
    pub(crate) mailbox: Mailbox,
    pub(crate) pod: Arc<Pod>,
    /// The end of the pod that has to be gone first, and its UID: a static pod that has the same name.
    pub(crate) after: Option<(String, CancellationToken)>,
}

impl Worker {
    pub(crate) fn new(node: Arc<Shared>, mailbox: Mailbox, pod: Arc<Pod>) -> Worker {
        let owner = pod.identity();
        let story = node.reports.stories.open(&owner);
        Worker {
            status: Arc::new(pod.status.clone()),
            starts: Starts::new(node.limits.restarts),
            mailbox,
            story,
            owner,
            allocation: Allocation::new(&node, &pod),
            startup: StartupTracker::new(&pod),
            working: node.metrics.working.enter(&pod),
            pod,
            observed: Arc::default(),
            probing: Probing::default(),
            volumes: PodVolumes::default(),
            interest: None,
            retries: Retries::default(),
            stops: Stops::default(),
            stopped_sandboxes: BTreeSet::new(),
            late_sandbox: None,
            knows_mirror: false,
            failure: None,
            wanted: true,
            admitted: false,
            rejected: false,
            cleared: false,
            phase: Phase::Syncing,
            seen_at: Instant::now(),
            node,
        }
    }

    /// Works until nothing of the pod is left, or it panics.
    pub(crate) async fn begin(&mut self, after: Option<&(String, CancellationToken)>) {
        self.restore();
        self.recall_allocation();
        self.node.metrics.began(&self.pod);
        self.register();
        // One that panicked had heard what this one has not.
        self.have_nothing_probed();
        if let Some((uid, gone)) = after {
            self.show_as_it_was();
            self.wait_for_earlier(uid, gone).await;
        }
        self.run().await;
    }

    /// Who goes on after this one panicked. It knows what was decided about the pod and what a checkpoint holds, which
    /// nobody else could tell it, and finds out the rest anew.
    pub(crate) fn after_panic(self) -> Worker {
        let Worker { node, mailbox, pod, allocation, starts, .. } = self;
        let Worker { status, failure, wanted, admitted, rejected, phase, .. } = self;
        let fresh = Worker::new(node, mailbox, pod);
        let starts = Starts { restarts: starts.restarts, replaced: starts.replaced, ..fresh.starts };
        Worker { status, failure, wanted, admitted, rejected, phase, allocation, starts, ..fresh }
    }

    /// A static pod begins when the one that had its name before is gone.
    async fn wait_for_earlier(&self, uid: &str, gone: &CancellationToken) {
        self.story
            .headline(State::Waiting, format_args!("an earlier pod of the same name to be gone (UID {uid})"));
        tokio::select! {
            biased;
            () = gone.cancelled() => {}
            // Nothing of it is there, so its place may be another's at once. It waits all the same: whoever comes after it
            // must not begin before the earlier one is gone.
            () = self.mailbox.wait_for_end() => {
                self.node.admission.release(&self.owner.uid);
                gone.cancelled().await;
            }
        }
    }

    async fn run(&mut self) {
        self.node.metrics.worker_begins(self.seen_at.elapsed());
        let mut is_first = true;
        loop {
            let told = self.mailbox.take();
            let reclaims = self.node.container_gc.is_reclaiming(&self.owner.uid);
            let pass = Pass::of(&told, is_first);
            is_first = false;
            Box::pin(self.hear(told)).await;
            let pass = if matches!(self.phase, Phase::Terminated) { Pass::Terminated } else { pass };
            self.count_working();
            let begun = Instant::now();
            // On the heap for as long as they take, here and in the passes themselves: a pod that waits, and most do,
            // keeps no room for what it may do.
            let next = match &self.phase {
                Phase::Syncing => Box::pin(self.sync()).await,
                Phase::Terminating(_) => Box::pin(self.terminate()).await,
                Phase::Terminated if self.wanted => Box::pin(self.rest()).await,
                Phase::Terminated => Box::pin(self.remove()).await,
            };
            self.node.metrics.passed(pass, begun.elapsed());
            self.count_working();
            match next {
                Next::Again => {}
                Next::Wait(until) => {
                    if reclaims {
                        self.node.container_gc.pruned(&self.owner.uid);
                    }
                    self.wait(until).await;
                }
                Next::Gone => return,
            }
        }
    }

    fn count_working(&mut self) {
        let lifecycle = match self.phase {
            Phase::Syncing => Lifecycle::Sync,
            Phase::Terminating(_) => Lifecycle::Terminating,
            Phase::Terminated => Lifecycle::Terminated,
        };
        self.working.is(&self.pod, self.wanted, lifecycle);
    }

    /// Takes in what was told.
    async fn hear(&mut self, told: News) {
        if let Some(pod) = told.spec {
            self.volumes.pod_changes(&self.pod, &pod);
            self.count_startup(&pod);
            self.note_wish(&pod);
            self.pod = pod;
            self.probing.told = None;
            self.node.reports.statuses.show_pod(&self.pod);
            self.register();
        }
        if told.objects {
            self.volumes.objects_change();
            // What was missing may be there now.
            self.retries.release(&What::Volumes);
            self.retries.release(&What::Refresh);
        }
        if let Some(pod) = told.reconciled {
            self.reconcile(pod);
        }
        if let Some(probes) = told.probes {
            self.show_probes(probes).await;
        }
        if let Some(end) = told.end {
            self.hear_end(&end).await;
        }
    }

    /// Has what the pod refers to now watched. Nothing is missed in between: the new interest is there before the old
    /// one goes.
    fn register(&mut self) {
        if !matches!(self.phase, Phase::Terminated) {
            self.interest = self.node.objects.register_pod(&self.pod, &self.mailbox);
        }
    }

    async fn hear_end(&mut self, end: &End) {
        let had = (self.wanted, self.failure.clone());
        self.wanted &= end.cause.is_at_source();
        let is_ending = match self.phase {
            Phase::Syncing => false,
            Phase::Terminating(_) => true,
            // The last word on it was said.
            Phase::Terminated => return,
        };
        if let Some(failure) = end.failure.as_deref() {
            let after_success = match &self.failure {
                Some(earlier) => earlier.after_success,
                None => self.has_succeeded(),
            };
            self.failure = Some(Failure { after_success, ..failure.clone() });
        }
        self.end(end).await;
        if is_ending && had != (self.wanted, self.failure.clone()) {
            self.checkpoint_now().await;
        }
    }

    /// Whether its containers are known to have done their work.
    fn has_succeeded(&self) -> bool {
        !self.observed.containers().iter().any(|container| container.may_live())
            && self.make_status(false).phase == Some(PodPhase::Succeeded)
    }

    /// Takes in another status that the pod's source has of it, and says whether that calls for a pass: where those who
    /// are asked whether the pod is ready say something else.
    fn reconcile(&mut self, pod: Arc<Pod>) -> bool {
        self.count_startup(&pod);
        let calls_for_pass = readiness_gates_differ(&self.pod, &pod);
        // Nobody keeps the object that it was before.
        if Arc::ptr_eq(&self.allocation.pod, &self.pod) {
            self.node.admission.replace(&self.pod, &pod);
            self.allocation.pod = Arc::clone(&pod);
        }
        self.pod = pod;
        self.node.reports.statuses.keep_pod(&self.pod);
        calls_for_pass
    }

    /// Waits until it was told something, something was done to stop a container, or the time has come: the next pass
    /// finds out.
    async fn wait(&mut self, until: Option<Instant>) {
        let mailbox = self.mailbox.clone();
        loop {
            tokio::select! {
                biased;
                heard = mailbox.hear() => {
                    let calls_for_pass = match heard {
                        Heard::Reconciled(pod) => self.reconcile(pod),
                        Heard::Probes(probes) => Box::pin(self.weigh_probes(probes)).await,
                        Heard::Other => true,
                    };
                    if calls_for_pass {
                        return;
                    }
                }
                done = self.stops.next() => return self.note_stop(done),
                () = probing::come(until) => return,
            }
        }
    }

    /// When the wall clock will show a time, should nobody set it before.
    fn instant(&self, at: Timestamp) -> Instant {
        let left = Duration::try_from(at.duration_since(self.node.clock.now())).unwrap_or_default();
        Instant::now() + left
    }

    /// Looks at what the runtime knows. What ended gets its termination message here.
    async fn look(&mut self) -> Result<(), Error> {
        let (node, known, uid) = (Arc::clone(&self.node), Arc::clone(&self.observed), self.owner.uid.clone());
        let look = async {
            let observed = node.turns.looks.take(|| observe(&*node.runtime, &uid, &known)).await?;
            Ok::<_, Error>(with_termination_messages(&*node.host.files, &known, observed).await)
        };
        let mut observed = self.see_through(look).await?;
        self.mark_replaced(&mut observed);
        self.mark_out_of_memory(&mut observed);
        self.observed = Arc::new(observed);
        self.starts.unseen = false;
        self.recover_restarts();
        for id in self.stops.see(&self.observed) {
            self.retries.worked(&What::Stop(id));
        }
        let sandboxes = self.observed.sandboxes();
        self.stopped_sandboxes.retain(|id| sandboxes.iter().any(|sandbox| sandbox.id == *id));
        Ok(())
    }

    /// Says why a container ended where the runtime does not know, and the kernel said so, or an agent before did.
    fn mark_out_of_memory(&self, observed: &mut observed::Pod) {
        for container in observed.containers_mut() {
            let status = &mut container.status;
            let is_hit =
                || status.finished_at.is_some_and(|ended| self.node.oom_kills.explain(&status.id, ended));
            if oom::may_be_meant(status) && (is_hit() || oom::is_told(&self.status, &status.id)) {
                oom::REASON.clone_into(&mut status.reason);
            }
        }
    }

    /// The status that the last look amounts to.
    fn make_status(&self, finished: bool) -> PodStatus {
        let facts = self.node.facts.now();
        let actuated = self.allocation.actuated(&facts.translation.features);
        let cgroup = self.pod_cgroup(&actuated);
        pod_status(&StatusInput {
            pod: &self.pod,
            allocated: &self.allocation.pod,
            observed: &self.observed,
            previous: &self.status,
            probes: &self.probing.found,
            start_errors: &self.starts.errors,
            held_back: &self.starts.held_back,
            finished,
            failure: self.failure.as_ref(),
            resize_conditions: &self.allocation.conditions,
            actuated: &actuated,
            pod_cgroup: Some(&cgroup),
            recursive_read_only_mounts: self.mounts_read_only_recursively(),
            node: &facts.status,
            features: &facts.translation.features,
            now: self.node.clock.now(),
        })
    }

    /// Shows the status in the checkpoint of a pod that cannot be looked at. One that can is looked at first: the
    /// checkpoint may be older than what was shown before the agent's start.
    fn show_as_it_was(&mut self) {
        if self.node.reports.statuses.get(&self.owner.uid).is_none() {
            // An agent may die after it told that the pod is over, and before it wrote that down.
            let told = &self.pod.status;
            let was_told = told.is_over() && !self.status.is_over();
            let status = if was_told { told.clone() } else { (*self.status).clone() };
            self.show(status);
        }
    }

    /// A pod is over when all its containers have been seen to be stopped, and its sandbox with them. Until then its
    /// phase is the one before.
    fn until_all_stopped(&self, status: PodStatus) -> PodStatus {
        let has_container = self.observed.containers().iter().any(|container| container.may_live());
        // What the API server shows to be over stays so, though an agent died before it had the sandbox stopped.
        let lives = has_container || (self.observed.has_ready_sandbox() && !self.pod.status.is_over());
        if !lives || !status.is_over() || self.status.is_over() {
            return status;
        }
        let PodStatus { phase, reason, message, .. } = (*self.status).clone();
        PodStatus { phase: Some(phase.unwrap_or(PodPhase::Pending)), reason, message, ..status }
    }

    /// Shows a status to whoever looks, and has its checkpoint written.
    fn show(&mut self, status: PodStatus) {
        if self.show_unwritten(status) {
            self.checkpoint_soon();
        }
    }

    /// Shows a status to whoever looks, and says whether it is another than before.
    fn show_unwritten(&mut self, status: PodStatus) -> bool {
        let status = self.until_all_stopped(status);
        let terminated = matches!(self.phase, Phase::Terminated);
        // What is known of it may come from elsewhere, and not be shown yet.
        let is_shown = |shown: Reported| {
            let is_it = Arc::ptr_eq(&shown.status, &self.status) || *shown.status == status;
            is_it && shown.terminated == terminated
        };
        if *self.status == status && self.node.reports.statuses.get(&self.owner.uid).is_some_and(is_shown) {
            self.have_probed();
            return false;
        }
        if self.status.phase != status.phase {
            self.count_start(status.phase.as_ref());
            let phase = status.phase.as_ref().map_or("unknown", |phase| phase.as_str());
            info!(phase, "Pod is in another phase");
        }
        self.node.metrics.changed(&self.status, &status);
        self.status = Arc::new(status);
        let view = Reported::new(Arc::clone(&self.pod), Arc::clone(&self.status));
        self.node.reports.statuses.show(Reported { terminated, ..view });
        self.have_probed();
        true
    }

    /// Shows a status. Readiness is in the checkpoint before anybody sees it: what probes found nobody else remembers, the
    /// rest nobody can tell while the runtime does not answer, and readiness does not change because the agent
    /// restarted.
    async fn show_for_sure(&mut self, status: PodStatus) {
        if !self.must_be_remembered(&status) {
            return self.show(status);
        }
        self.show_written(status).await;
    }

    /// Shows a status that the next agent knows of, too.
    async fn show_written(&mut self, status: PodStatus) {
        let next = Arc::new(self.until_all_stopped(status.clone()));
        let shown = std::mem::replace(&mut self.status, next);
        self.checkpoint_now().await;
        self.status = shown;
        self.show_unwritten(status);
    }

    /// The runtime did not answer: nothing is known, so nothing is decided.
    fn runtime_failed(&mut self, error: &Error) -> Next {
        Next::Wait(Some(self.runtime_is_away(error)))
    }

    /// Says that the runtime did not answer, and when it may be asked again.
    fn runtime_is_away(&mut self, error: &Error) -> Instant {
        self.show_as_it_was();
        self.story.headline(State::Blocked, format_args!("the container runtime does not answer: {error}"));
        self.retries.failed(What::Runtime)
    }
}
