//! What a plan asks for, done: one thing at a time, so that each is seen before the next is decided.

use std::sync::Arc;
use std::time::Duration;

use crablet_api::core::Container;
use crablet_core::kill::{Termination, pod_grace};
use crablet_core::plan::{Plan, Role, Sandbox, Start};
use crablet_core::restart::is_sidecar;
use crablet_core::status::StartError;
use crablet_core::translate::ContainerRefusal;
use crablet_cri::Error;
use crablet_cri_api::ContainerState;
use futures_util::FutureExt as _;
use tokio::time::Instant;
use tracing::warn;

use crate::mailbox::Mailbox;
use crate::recorder::reason;
use crate::story::State;
use crate::worker::retry::{What, earliest};
use crate::worker::runtime_config::NotMade;
use crate::worker::stops::NotKilled;
use crate::worker::{Next, Worker, volumes};

/// How long a runtime may take to give up what it was told to give up.
pub(super) const GIVES_UP_WITHIN: Duration = Duration::from_secs(10);

impl Worker {
    /// Does the first thing that the plan asks for. Says when to look again, where nothing was to be done. Where the node
    /// is waited for, that is no longer than until `look_again`.
    pub(super) async fn carry_out(&mut self, plan: Plan, look_again: Option<Instant>) -> Next {
        // An end goes first.
        if self.mailbox.wait_for_end().now_or_never().is_some() {
            return Next::Again;
        }
        match Box::pin(self.make_ready(&plan, look_again)).await {
            Ok(Ready::InOrder(sandbox, wait)) => {
                Box::pin(self.start_first(&sandbox, &plan, wait, look_again)).await
            }
            Ok(Ready::AtOnce(sandbox, starts)) => {
                for start in &starts {
                    Box::pin(self.start(&sandbox, start)).await;
                }
                Next::Again
            }
            Err(next) => next,
        }
    }

    /// Stops containers, and names those to start in their place whatever the pod's restart policy makes of how they ended.
    async fn replace(&mut self, plan: &Plan, sandbox: &str) -> Result<Ready, Next> {
        let failed = match self.kill(&plan.kill).await {
            Ok(()) => None,
            Err(NotKilled::Failed(until)) => Some(until),
            Err(NotKilled::PodEnds) => return Err(Next::Again),
        };
        if let Err(error) = self.look().await {
            return Err(self.runtime_failed(&error));
        }
        let is_stopped = |start: &&Start| {
            plan.kill.iter().any(|kill| kill.name == start.name)
                && !self.observed.named(&start.name).any(|container| container.may_live())
                && self.may_yet_start(sandbox, start).is_none()
        };
        let starts: Vec<Start> = plan.start.iter().filter(is_stopped).cloned().collect();
        match failed {
            Some(until) if starts.is_empty() => Err(Next::Wait(Some(until))),
            Some(_) | None => Ok(Ready::AtOnce(sandbox.to_owned(), starts)),
        }
    }

    /// Does the first thing that has to be done before containers are started.
    async fn make_ready(&mut self, plan: &Plan, look_again: Option<Instant>) -> Result<Ready, Next> {
        // Before anything is stopped that could then not be started again.
        if volumes::needs(plan) && matches!(plan.sandbox, Sandbox::Keep { .. }) {
            Box::pin(self.set_up_volumes()).await?;
        }
        self.replace_after(&plan.kill).await;
        match &plan.sandbox {
            Sandbox::Keep { id } if !plan.kill.is_empty() => return Box::pin(self.replace(plan, id)).await,
            Sandbox::Create { .. } | Sandbox::End { .. } if !plan.kill.is_empty() => {
                let termination = self.begin_to_stop_all().await;
                return Err(Next::Wait(self.stop_all(&termination)));
            }
            Sandbox::Keep { .. } | Sandbox::Create { .. } | Sandbox::End { .. } => {}
        }
        let wait = self.remove_old(plan).await?;
        match &plan.sandbox {
            Sandbox::Keep { id } if !plan.update.is_empty() || self.is_behind() => {
                match Box::pin(self.resize(&plan.update)).await {
                    None => Err(Next::Again),
                    // What is to be started does not wait for that.
                    until => Ok(Ready::InOrder(id.clone(), earliest(wait, until))),
                }
            }
            Sandbox::Keep { id } => Ok(Ready::InOrder(id.clone(), wait)),
            Sandbox::Create { attempt, stop, .. } => {
                let mut sandboxes = self.sandboxes_to_stop();
                sandboxes.retain(|id| stop.contains(id));
                if !sandboxes.is_empty() {
                    self.say(
                        None,
                        reason::SANDBOX_CHANGED,
                        "Pod sandbox changed, it will be killed and re-created.",
                    );
                    let stops = self.stop_sandboxes(&sandboxes);
                    let Some(stopped) = self.attend(stops).await else { return Err(Next::Again) };
                    if let Err(error) = self.note_stopped_sandboxes(stopped) {
                        return Err(self.runtime_failed(&error));
                    }
                }
                Err(Box::pin(self.make_sandbox(*attempt, look_again)).await)
            }
            Sandbox::End { .. } => Err(Next::Again),
        }
    }

    /// Has all containers stop, for another sandbox. The next agent must not give them more time, should the pod end then.
    async fn begin_to_stop_all(&mut self) -> Termination {
        if let Some(termination) = self.stops.of_all() {
            return *termination;
        }
        let termination = Termination::new(self.node.clock.steady(), pod_grace(&self.pod, None, None));
        self.stops.begin_all(termination);
        self.checkpoint_now().await;
        termination
    }

    /// Removes what the plan wants removed. When all begins again, nothing goes on before all is gone; an old init
    /// container that cannot be removed holds up nothing: the answer is when to try again.
    async fn remove_old(&mut self, plan: &Plan) -> Result<Option<Instant>, Next> {
        let begins_again = plan.keeps_logs();
        let held = self.retries.held(&What::Removal).filter(|_| !begins_again);
        if plan.remove.is_empty() || held.is_some() {
            return Ok(held);
        }
        let mailbox = self.mailbox.clone();
        let logs = if begins_again { Logs::Stay } else { Logs::Go };
        match unless_ended(&mailbox, self.remove_containers(&plan.remove, logs)).await {
            Some(Err(error)) if begins_again => Err(self.removal_failed(&error)),
            Some(Err(error)) => {
                warn!(%error, "Cannot remove old init containers; trying again");
                Ok(Some(self.retries.failed(What::Removal)))
            }
            Some(Ok(())) => {
                self.retries.worked(&What::Removal);
                Err(Next::Again)
            }
            None => Err(Next::Again),
        }
    }

    async fn make_sandbox(&mut self, attempt: u32, look_again: Option<Instant>) -> Next {
        let held = self.retries.held(&What::Sandbox).or(self.retries.held(&What::Volumes));
        if let Some(until) = held {
            return Next::Wait(Some(until));
        }
        if let Some(not_ready) = self.not_ready_to_start() {
            return self.wait_for_node(not_ready, look_again).await;
        }
        let mailbox = self.mailbox.clone();
        let earlier = unless_ended(&mailbox, self.node.turns.looks.take(|| self.earlier_pod())).await;
        let Some(earlier) = earlier else { return Next::Again };
        match earlier {
            Ok(None) => {}
            Ok(Some(uid)) => {
                self.story.headline(
                    State::Waiting,
                    format_args!("an earlier pod of the same name to be gone (UID {uid})"),
                );
                return Next::Wait(Some(self.retries.failed(What::Sandbox)));
            }
            Err(error) => return self.runtime_failed(&error),
        }
        let began = Instant::now();
        let prepared = unless_ended(&mailbox, Box::pin(self.prepare_sandbox(attempt))).await;
        let Some(prepared) = prepared else { return Next::Again };
        let made = match prepared {
            Ok(mut config) => {
                if let Err(next) = Box::pin(self.set_up_volumes()).await {
                    return next;
                }
                Box::pin(self.join_groups(&mut config, attempt)).await;
                let node = Arc::clone(&self.node);
                let run = || node.runtime.run_sandbox(&config.config, &config.handler);
                let Some(made) = self.attend(node.turns.starts.take(run)).await else {
                    self.late_sandbox = Some(Instant::now() + GIVES_UP_WITHIN);
                    return Next::Again;
                };
                node.metrics.made_sandbox(&self.pod, made.is_err());
                match made {
                    Ok(_) => Ok(config.remarks()),
                    Err(error) => Err(NotMade::sandbox(&error.in_go_words())),
                }
            }
            Err(not_made) => Err(not_made),
        };
        match made {
            Ok(remarks) => {
                self.retries.worked(&What::Sandbox);
                self.story.step("sandbox", began.elapsed(), format_args!("made sandbox {attempt}{remarks}"));
                Next::Again
            }
            Err(NotMade { reason, message }) => {
                let until = self.retries.failed(What::Sandbox);
                self.warn_pod(reason, &message);
                self.story.headline(State::Blocked, format_args!("its sandbox cannot be made: {message}"));
                Next::Wait(Some(until))
            }
        }
    }

    /// Starts the first container that need not wait. One that cannot be started holds up no other, unless it is an
    /// init container.
    async fn start_first(
        &mut self,
        sandbox: &str,
        plan: &Plan,
        mut wait: Option<Instant>,
        look_again: Option<Instant>,
    ) -> Next {
        for start in &plan.start {
            let held = self.retries.held(&What::Start(start.name.clone()));
            if let Some(until) = held.or_else(|| self.may_yet_start(sandbox, start)) {
                wait = earliest(wait, Some(until));
                let is_init = start.role == Role::Init
                    && start.container(&self.pod).is_some_and(|container| !is_sidecar(container));
                if is_init {
                    break;
                }
                continue;
            }
            if let Some(not_ready) = self.not_ready_to_start() {
                return self.wait_for_node(not_ready, look_again).await;
            }
            return self.start(sandbox, start).await;
        }
        Next::Wait(wait)
    }

    async fn start(&mut self, sandbox: &str, start: &Start) -> Next {
        let began = Instant::now();
        match self.try_to_start(sandbox, start).await {
            Ok(Started::No) => {}
            Ok(Started::Yes) => {
                self.retries.worked(&What::Start(start.name.clone()));
                self.starts.errors.remove(&start.name);
                let (name, attempt) = (&start.name, start.attempt);
                self.story.step(
                    "start",
                    began.elapsed(),
                    format_args!("started container {name}, attempt {attempt}"),
                );
            }
            Err(failure) => {
                let what = What::Start(start.name.clone());
                match failure.until {
                    Some(until) => self.retries.failed_until(what, until),
                    None => {
                        self.retries.failed(what);
                    }
                }
                let (name, error) = (&start.name, &failure.error);
                self.node.metrics.not_started(start.role, &error.reason);
                if !failure.has_event {
                    let what = format_args!("container {name}: {}: {}", error.reason, error.message);
                    self.story.failed("start", began.elapsed(), what);
                }
                self.starts.errors.insert(start.name.clone(), failure.error);
            }
        }
        Next::Again
    }

    /// Makes a container and starts it. One that was made before and not started is started: whoever made it may have
    /// begun to, and then only one of them will run.
    async fn try_to_start(&mut self, sandbox: &str, start: &Start) -> Result<Started, NotStarted> {
        let Some(container) = start.container(&self.pod) else { return Ok(Started::No) };
        let container = self.with_allocated(container);
        let mailbox = self.mailbox.clone();
        let made_from = unless_ended(&mailbox, self.active_sandbox()).await;
        let Some(made_from) = made_from.transpose()? else { return Ok(Started::No) };
        self.node.metrics.starts_container(start.role);
        let images = unless_ended(&mailbox, Box::pin(self.ensure_images(&container, &made_from))).await;
        let Some(images) = images.transpose()?.flatten() else { return Ok(Started::No) };
        let prepare = Box::pin(self.prepare_container(start, &container, &images, made_from));
        let config = unless_ended(&mailbox, prepare).await;
        let volumes = images.volumes;
        let Some(config) = config.transpose()? else { return Ok(Started::No) };
        if let Err(error) = self.fit_cgroup().await {
            let error = StartError::new("CreateContainerError", format!("the pod's cgroup: {error}"));
            return Err(NotStarted { error, until: None, has_event: false });
        }
        let node = Arc::clone(&self.node);
        self.starts.unseen = true;
        // A start is never let go of: one that nobody waits for could still happen when the pod is over.
        let id = match self.made_before(sandbox, &container) {
            Some(id) => id,
            None => {
                if let Err(error) = self.note_given(&container).await {
                    let message = error.to_string();
                    self.warn(&container.name, reason::FAILED, &format!("Error: {message}"));
                    let error = StartError::new(ContainerRefusal::REASON, message);
                    return Err(NotStarted { error, until: None, has_event: true });
                }
                let create = || node.runtime.create_container(sandbox, &config.config, &config.sandbox);
                let created = self.see_through(node.turns.starts.take(create)).await;
                let refusal = created.as_ref().err().map(said);
                node.metrics.mounts_images(&volumes, &container, refusal.as_deref());
                let id =
                    created.map_err(|error| self.refused(&container.name, "CreateContainerError", &error))?;
                self.say(Some(&container.name), reason::CREATED, "Container created");
                id
            }
        };
        if let Some(last) = start.last_finished {
            self.starts.restarts.note_start(&container, last, self.node.clock.now());
        }
        let start = node.turns.starts.take(|| node.runtime.start_container(&id));
        let started = self.see_through(start).await;
        started.map_err(|error| self.refused(&container.name, "RunContainerError", &error))?;
        self.say(Some(&container.name), reason::STARTED, "Container started");
        self.link_log(&config, &id).await;
        Box::pin(self.run_post_start(&container, &id)).await?;
        Ok(Started::Yes)
    }

    /// The container that was made for this and never started, if there is one.
    fn made_before(&self, sandbox: &str, container: &Container) -> Option<String> {
        let latest = self.observed.latest(&container.name)?;
        let is_it = latest.state == ContainerState::Created
            && latest.sandbox_id == sandbox
            && !latest.differs_from(container);
        is_it.then(|| latest.id.clone())
    }

    /// Until when a container that an earlier agent made from another definition may still start: that agent may have
    /// died while the runtime was starting it, and there must not be two.
    fn may_yet_start(&self, sandbox: &str, start: &Start) -> Option<Instant> {
        let until = self.seen_at + GIVES_UP_WITHIN;
        let container = start.container(&self.pod)?;
        let made = self.observed.latest(&container.name)?;
        let may_start = made.state == ContainerState::Created
            && made.sandbox_id == sandbox
            && made.differs_from(container)
            && Instant::now() < until;
        may_start.then_some(until)
    }

    fn refused(&self, container: &str, reason: &str, error: &Error) -> NotStarted {
        // Upstream's event has what the runtime said; its status has the error as gRPC words it.
        let said = said(error);
        self.warn(container, reason::FAILED, &format!("Error: {said}"));
        NotStarted { error: StartError::new(reason, said), until: None, has_event: true }
    }
}

/// What the runtime said, or why it said nothing.
fn said(error: &Error) -> String {
    match error {
        Error::Answer { message, .. } => message.clone(),
        other => other.to_string(),
    }
}

/// Waits for something, unless the pod is told to end: then it is let go of, and the answer is nothing.
async fn unless_ended<T>(mailbox: &Mailbox, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = mailbox.wait_for_end() => None,
        done = work => Some(done),
    }
}

/// What containers may be started now, and in which sandbox.
enum Ready {
    /// The first of those that the plan names. What else there is to do is due then.
    InOrder(String, Option<Instant>),
    /// These.
    AtOnce(String, Vec<Start>),
}

/// What becomes of the logs of containers that are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Logs {
    /// They are removed with their pod.
    Stay,
    Go,
}

/// Whether a container was started.
enum Started {
    Yes,
    /// There is something more urgent.
    No,
}

/// Why a container was not started, and when to try again, if it says so.
pub(super) struct NotStarted {
    pub(super) error: StartError,
    pub(super) until: Option<Instant>,
    /// Whether an event has told of it.
    pub(super) has_event: bool,
}
