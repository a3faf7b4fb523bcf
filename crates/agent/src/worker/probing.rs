//! What the prober is told of a pod's containers.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::pin::pin;

use crablet_api::Text;
use crablet_api::core::{PodConditionType, PodStatus};
use crablet_api::meta::ConditionStatus;
use crablet_core::plan::Sandbox;
use crablet_core::probes::{ProbeKind, Probes};
use crablet_cri_api::ContainerState;
use tokio::time::Instant;

use crate::prober::{Running, Watch};
use crate::worker::{Phase, Worker};

/// What the prober was told last.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Watched {
    pod_ip: String,
    stopping: bool,
    running: Vec<Running>,
}

/// What a wait was over for.
enum Meanwhile<T, E> {
    /// What was waited for.
    Done(T),
    /// The pod is to end.
    End(E),
    /// Something was done to stop a container.
    Stop,
}

/// Waits until a time has come; for ever, if there is none.
pub(super) async fn come(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => pending().await,
    }
}

/// What is between a worker and the prober.
#[derive(Default)]
pub(super) struct Probing {
    /// What probes found last.
    pub(super) found: Probes,
    /// What the prober was told last.
    pub(super) told: Option<Watched>,
}

impl Worker {
    /// Tells the prober which containers run now, where that is not what it knows. Called when a status was shown.
    pub(super) fn have_probed(&mut self) {
        if matches!(self.phase, Phase::Terminated) || !self.has_probes() {
            return;
        }
        let told = Watched {
            pod_ip: self.status.pod_ip.to_string(),
            stopping: !matches!(self.phase, Phase::Syncing),
            running: self.running(),
        };
        if self.probing.told.as_ref() == Some(&told) {
            return;
        }
        let (pod_ip, stopping, running) = (told.pod_ip.clone(), told.stopping, told.running.clone());
        let (pod, mailbox) = (self.pod.clone(), self.mailbox.clone());
        self.node.prober.watch(&self.owner.uid, Watch { pod, mailbox, pod_ip, stopping, running });
        self.probing.told = Some(told);
    }

    /// Waits for something that takes long, unless the pod is told to end: then the answer is nothing.
    ///
    /// Everything long that a worker waits for is waited for here: what probes find meanwhile is shown, whatever the
    /// worker is doing, and stops that are under way go on.
    pub(super) async fn attend<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mailbox = self.mailbox.clone();
        let (mut work, mut end) = (pin!(work), pin!(mailbox.wait_for_end()));
        loop {
            match self.meanwhile(&mut work, &mut end).await {
                Meanwhile::Done(done) => return Some(done),
                Meanwhile::End(()) => return None,
                Meanwhile::Stop => {}
            }
        }
    }

    /// The same for what is never let go of: the end waits.
    pub(super) async fn see_through<T>(&mut self, work: impl Future<Output = T>) -> T {
        let (mut work, mut end) = (pin!(work), pin!(pending::<Infallible>()));
        loop {
            match self.meanwhile(&mut work, &mut end).await {
                Meanwhile::Done(done) => return done,
                Meanwhile::End(never) => match never {},
                Meanwhile::Stop => {}
            }
        }
    }

    /// The same for the stops that are under way: waits until something was done for one of them, or until then.
    pub(super) async fn attend_stops(&mut self, until: Option<Instant>) -> Option<()> {
        let mailbox = self.mailbox.clone();
        let (mut time, mut end) = (pin!(come(until)), pin!(mailbox.wait_for_end()));
        match self.meanwhile(&mut time, &mut end).await {
            Meanwhile::Done(()) | Meanwhile::Stop => Some(()),
            Meanwhile::End(()) => None,
        }
    }

    async fn meanwhile<T, E>(
        &mut self,
        work: &mut (impl Future<Output = T> + Unpin),
        end: &mut (impl Future<Output = E> + Unpin),
    ) -> Meanwhile<T, E> {
        let mailbox = self.mailbox.clone();
        loop {
            tokio::select! {
                biased;
                told = &mut *end => return Meanwhile::End(told),
                done = &mut *work => return Meanwhile::Done(done),
                done = self.stops.next() => {
                    self.note_stop(done);
                    return Meanwhile::Stop;
                }
                probes = mailbox.wait_for_probes() => {
                    Box::pin(self.show_probes(probes)).await;
                    // Whatever else follows from it is for the next pass.
                    mailbox.tell(crate::mailbox::Input::Look);
                }
            }
        }
    }

    /// Shows what probes found, with what was seen last of all else: the next look may take long.
    pub(super) async fn show_probes(&mut self, probes: Probes) {
        self.probing.found = probes;
        match self.phase {
            // Before the first look there is nothing to show it with.
            Phase::Syncing | Phase::Terminating(_) if self.starts.recovered => {
                let status = self.make_status(false);
                self.show_for_sure(status).await;
            }
            Phase::Syncing | Phase::Terminating(_) | Phase::Terminated => {}
        }
    }

    /// Shows what probes found, and says whether that calls for a pass. Mostly it does not: whether a container is ready
    /// matters to others.
    pub(super) async fn weigh_probes(&mut self, probes: Probes) -> bool {
        self.show_probes(probes).await;
        if !matches!(self.phase, Phase::Syncing) || !self.starts.recovered {
            return true;
        }
        let plan = self.plan(&self.status);
        self.tell_headline(&plan);
        // Who waits from now on, for a sidecar no longer but for a while before a restart, is to be started after that.
        let waits_anew = |(name, message): (&_, &_)| self.starts.held_back.get(name) != Some(message);
        !plan.is_empty() || matches!(plan.sandbox, Sandbox::End { .. }) || plan.held_back().any(waits_anew)
    }

    /// Nothing is to be probed any more, or not yet.
    pub(super) fn have_nothing_probed(&mut self) {
        if self.has_probes() {
            self.node.prober.forget(&self.owner.uid);
        }
        self.probing.told = None;
    }

    /// Whether this status says that the pod has become ready, or something else of the containers that are probed than
    /// the one before.
    pub(super) fn must_be_remembered(&self, status: &PodStatus) -> bool {
        let seen = |status: &PodStatus| -> Vec<(Text, bool, Option<bool>)> {
            let all = status.init_and_regular_statuses();
            all.map(|status| (status.container_id.clone(), status.ready, status.started)).collect()
        };
        let is_ready = |status: &PodStatus| {
            let mut conditions = status.conditions.iter();
            let ready = conditions.find(|condition| condition.r#type == PodConditionType::Ready);
            ready.is_some_and(|ready| ready.status == ConditionStatus::True)
        };
        is_ready(status) != is_ready(&self.status)
            || (self.has_probes() && seen(status) != seen(&self.status))
    }

    fn has_probes(&self) -> bool {
        let mut all = self.pod.spec.init_and_regular_containers();
        all.any(|container| ProbeKind::ALL.into_iter().any(|kind| kind.of(container).is_some()))
    }

    fn running(&self) -> Vec<Running> {
        let running = self.status.init_and_regular_statuses().filter_map(|status| {
            let latest = self.observed.latest(&status.name)?;
            (latest.state == ContainerState::Running).then(|| Running {
                id: latest.id.clone(),
                name: status.name.clone(),
                since: latest.started_at,
                started: status.started == Some(true),
            })
        });
        running.collect()
    }
}
