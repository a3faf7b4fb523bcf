//! A pass over a pod that should run.

use crablet_api::core::PodStatus;
use crablet_core::backoff::restart_event;
use crablet_core::kill::pod_grace;
use crablet_core::plan::{self, Plan, Sandbox, WhyEnd};
use crablet_core::status::{DEADLINE_EXCEEDED, Failure};
use crablet_cri_api::ContainerState;
use tokio::time::Instant;

use crate::recorder::reason;
use crate::worker::retry::{What, earliest};
use crate::worker::terminate::Terminating;
use crate::worker::{Next, Phase, Worker, volumes};

impl Worker {
    /// Looks, shows the status, decides, and does the first thing that there is to do.
    pub(super) async fn sync(&mut self) -> Next {
        if let Err(error) = self.look().await {
            return self.runtime_failed(&error);
        }
        self.retries.worked(&What::Runtime);
        Box::pin(self.go_on_from_mirror()).await;
        self.forget_errors_of_what_runs();
        if self.admitted {
            Box::pin(self.allocate()).await;
        }
        let status = self.make_status(false);
        // The node is not asked to take what is over.
        if !status.is_over()
            && let Some(next) = Box::pin(self.admit()).await
        {
            return next;
        }
        if status.is_over() {
            self.node.admission.found_over(&self.owner.uid);
            if status.reason == DEADLINE_EXCEEDED && !self.status.is_over() {
                self.fail_by_deadline();
            }
            self.show(status);
            return self.stop_by_itself("its phase is terminal").await;
        }

        let plan = self.plan(&status);
        let look_again = plan.look_again.map(|at| self.instant(at));
        let look_again = earliest(look_again, self.forget_replaced(&plan.kill));
        let look_again = earliest(look_again, self.allocation.retry_at);
        let (status, look_again) = self.with_held_back(&plan, look_again, status);
        Box::pin(self.show_for_sure(status)).await;
        self.tell_headline(&plan);
        match &plan.sandbox {
            Sandbox::End { why, .. } => return self.stop_for(why).await,
            Sandbox::Keep { .. } if plan.kill.is_empty() => self.stops.keep_sandbox(),
            Sandbox::Keep { .. } | Sandbox::Create { .. } => {}
        }
        let sets_up_volumes = volumes::needs(&plan);
        let next = match plan.is_empty() && !self.is_behind() {
            true => Next::Wait(None),
            false => Box::pin(self.carry_out(plan, look_again)).await,
        };
        // What waits, and may for long, must hold up neither the files of what runs nor the end of what is dead.
        let Next::Wait(until) = next else { return next };
        let refreshed = match sets_up_volumes && !self.volumes.has_all(&self.pod) {
            true => Next::Wait(None),
            false => Box::pin(self.refresh_volumes()).await,
        };
        let Next::Wait(refresh_at) = refreshed else { return refreshed };
        let grown_old = Box::pin(self.prune()).await;
        Next::Wait([until, look_again, refresh_at, grown_old].into_iter().flatten().min())
    }

    /// A start whose answer never came, or came too late, may have worked all the same.
    fn forget_errors_of_what_runs(&mut self) {
        let observed = &self.observed;
        self.starts.errors.retain(|name, _| {
            observed.latest(name).is_none_or(|latest| latest.state != ContainerState::Running)
        });
    }

    pub(super) fn plan(&self, status: &PodStatus) -> Plan {
        let features = self.node.facts.now().translation.features;
        plan::plan(&plan::Input {
            pod: &self.pod,
            allocated: &self.allocation.pod,
            actuated: &self.allocation.actuated(&features),
            observed: &self.observed,
            status,
            probes: &self.probing.found,
            restarts: &self.starts.restarts,
            features: &features,
            now: self.node.clock.now(),
        })
    }

    /// Containers that wait before a restart say so in the status; those that could not be started say that first, and
    /// are looked at again when they have said it for long enough.
    fn with_held_back(
        &mut self,
        plan: &Plan,
        mut look_again: Option<Instant>,
        status: PodStatus,
    ) -> (PodStatus, Option<Instant>) {
        let (before, errors) = (std::mem::take(&mut self.starts.held_back), self.starts.errors.len());
        for (name, message) in plan.held_back() {
            if self.starts.errors.contains_key(name) {
                if let Some(until) = self.retries.held(&What::Start(name.clone())) {
                    look_again = earliest(look_again, Some(until));
                    continue;
                }
                self.starts.errors.remove(name);
            }
            if before.get(name) != Some(message) {
                self.warn(name, reason::BACK_OFF, &restart_event(name, &self.pod));
            }
            self.starts.held_back.insert(name.clone(), message.clone());
        }
        let is_said = self.starts.held_back == before && self.starts.errors.len() == errors;
        (if is_said { status } else { self.make_status(false) }, look_again)
    }

    async fn stop_for(&mut self, why: &WhyEnd) -> Next {
        if *why == WhyEnd::DeadlineExceeded {
            self.fail_by_deadline();
        }
        let words = match why {
            WhyEnd::ContainersDone => "all its containers are done".to_owned(),
            WhyEnd::InitContainerFailed { name } => format!("init container {name} failed"),
            WhyEnd::SandboxLost => "it lost its sandbox, and is not to begin again".to_owned(),
            WhyEnd::DeadlineExceeded => "its active deadline has passed".to_owned(),
        };
        self.stop_by_itself(&words).await
    }

    pub(super) fn fail_by_deadline(&mut self) {
        if self.failure.is_none() {
            let failure = Failure::deadline_exceeded();
            self.say(None, reason::DEADLINE_EXCEEDED, &failure.message);
            self.failure = Some(failure);
        }
    }

    /// Begins to stop the pod without anybody having asked for it.
    pub(super) async fn stop_by_itself(&mut self, why: &str) -> Next {
        let grace = pod_grace(&self.pod, None, None);
        self.story.note("stop", format_args!("{why}"));
        self.phase = Phase::Terminating(Terminating::begin(self.node.clock.steady(), grace, &self.stops));
        // An agent that starts meanwhile must not give the rest of it more time. The status may be the same as before, and
        // then nobody else writes it down.
        match self.observed.containers().iter().any(|container| container.may_live()) {
            true => self.checkpoint_now().await,
            false => self.checkpoint_soon(),
        }
        Next::Again
    }
}
