//! What a plan asks for, done: one thing at a time, so that each is seen before the next is decided.

use std::sync::Arc;
use std::time::Duration;

use crablet_api::Gate;
use crablet_api::core::{Container, Secret};
use crablet_core::plan::{Kill, Plan, Role, Sandbox, Start};
use crablet_core::restart::is_sidecar;
use crablet_core::status::StartError;
use crablet_cri::Error;
use crablet_cri_api::ContainerState;
use futures_util::future::join_all;
use jiff::Timestamp;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::images;
use crate::recorder::reason;
use crate::story::State;
use crate::worker::runtime_config::{NotMade, SandboxConfig};
use crate::worker::{Next, Worker, volumes};

/// Every container has at least so long to stop.
const SHORTEST_GRACE: Duration =
    Duration::from_secs(crablet_core::kill::MINIMUM_GRACE_SECONDS.unsigned_abs());

impl Worker {
    /// Does the first thing that the plan asks for.
    pub(super) async fn carry_out(&mut self, plan: Plan) -> Next {
        let mailbox = self.mailbox.clone();
        let ready = tokio::select! {
            biased;
            // An end goes first; what was half done is found at the next look.
            () = mailbox.wait_for_end() => return Next::Again,
            ready = Box::pin(self.make_ready(&plan)) => ready,
        };
        match ready {
            // A start is never let go of: one that nobody waits for could still happen when the pod is over.
            Ok(Ready::InOrder(sandbox)) => Box::pin(self.start_first(&sandbox, &plan)).await,
            Ok(Ready::AtOnce(sandbox, starts)) => {
                for start in &starts {
                    Box::pin(self.start(&sandbox, start)).await;
                }
                Next::Again
            }
            Err(next) => next,
        }
    }

    /// What was stopped to be started again is, whatever the pod's restart policy makes of how it ended.
    async fn replace(&mut self, plan: &Plan, stop: Result<(), Error>) -> Result<Ready, Next> {
        let Sandbox::Keep { id } = &plan.sandbox else { return Err(self.and_then_look(stop)) };
        let looked = match stop {
            Ok(()) => self.look().await,
            Err(error) => Err(error),
        };
        if let Err(error) = looked {
            return Err(self.runtime_failed(&error));
        }
        let is_stopped = |start: &&Start| {
            plan.kill.iter().any(|kill| kill.name == start.name)
                && !self.observed.named(&start.name).any(|container| container.may_live())
        };
        Ok(Ready::AtOnce(id.clone(), plan.start.iter().filter(is_stopped).cloned().collect()))
    }

    /// Does the first thing that has to be done before containers are started.
    async fn make_ready(&mut self, plan: &Plan) -> Result<Ready, Next> {
        // Before anything is stopped that could then not be started again.
        if volumes::needs(plan) && matches!(plan.sandbox, Sandbox::Keep { .. }) {
            Box::pin(self.set_up_volumes()).await?;
        }
        if plan.stops_pod() && !plan.kill.is_empty() {
            let stop = self.stop_containers().await;
            return Err(self.and_then_look(stop));
        }
        if !plan.kill.is_empty() {
            let stop = self.kill(&plan.kill).await;
            return self.replace(plan, stop).await;
        }
        if !plan.remove.is_empty() {
            let removal = self.remove_containers(&plan.remove).await;
            return Err(self.and_then_look(removal));
        }
        match &plan.sandbox {
            Sandbox::Keep { id } => Ok(Ready::InOrder(id.clone())),
            Sandbox::Create { attempt, stop, .. } => {
                if !stop.is_empty() {
                    self.say(
                        None,
                        reason::SANDBOX_CHANGED,
                        "Pod sandbox changed, it will be killed and re-created.",
                    );
                }
                for id in stop {
                    if let Err(error) = self.stop_sandbox(id).await {
                        return Err(self.runtime_failed(&error));
                    }
                }
                Err(Box::pin(self.make_sandbox(*attempt)).await)
            }
            Sandbox::End { .. } => Err(Next::Again),
        }
    }

    fn and_then_look(&mut self, result: Result<(), Error>) -> Next {
        match result {
            Ok(()) => Next::Again,
            Err(error) => self.runtime_failed(&error),
        }
    }

    /// Stops containers while the pod goes on.
    pub(super) async fn kill(&mut self, kills: &[Kill]) -> Result<(), Error> {
        for kill in kills {
            self.say(Some(&kill.name), reason::KILLING, &kill.message);
        }
        let began = Instant::now();
        let stops = kills.iter().map(|kill| {
            let hook = (kill.grace > 0 && self.has_pre_stop(&kill.name))
                .then(|| self.run_pre_stop(kill.id.clone(), &kill.name, kill.grace));
            let runtime = &self.node.runtime;
            async move {
                if let Some(hook) = hook {
                    let _ = hook.await;
                }
                let grace = Duration::from_secs(kill.grace.unsigned_abs()).saturating_sub(began.elapsed());
                runtime.stop_container(&kill.id, grace.max(SHORTEST_GRACE)).await
            }
        });
        let results = join_all(stops).await;
        for (kill, result) in kills.iter().zip(&results) {
            match result {
                Ok(()) => self.story.step(
                    "stop",
                    began.elapsed(),
                    format_args!("stopped container {}: {}", kill.name, kill.message),
                ),
                Err(error) => self.story.failed(
                    "stop",
                    began.elapsed(),
                    format_args!("could not stop container {}: {error}", kill.name),
                ),
            }
        }
        results.into_iter().filter(|result| !is_not_found(result)).collect()
    }

    pub(super) async fn remove_containers(&mut self, ids: &[String]) -> Result<(), Error> {
        for id in ids {
            self.node.runtime.remove_container(id).await?;
            let Some(container) = self.observed.containers().iter().find(|container| container.id == *id)
            else {
                continue;
            };
            let log = std::path::Path::new(&container.log_path);
            let removed =
                self.node.files.remove_container(&self.owner, &container.name, container.attempt, log);
            if let Err(error) = removed {
                warn!(pod = %self.pod_name(), container = container.name, %error, "Cannot remove a container's log");
            }
        }
        Ok(())
    }

    pub(super) async fn stop_sandbox(&mut self, id: &str) -> Result<(), Error> {
        let began = Instant::now();
        let result = self.node.runtime.stop_sandbox(id).await;
        match &result {
            Ok(()) => self.story.step("sandbox", began.elapsed(), format_args!("stopped the sandbox")),
            Err(error) => self.story.failed(
                "sandbox",
                began.elapsed(),
                format_args!("could not stop the sandbox: {error}"),
            ),
        }
        result
    }

    async fn make_sandbox(&mut self, attempt: u32) -> Next {
        const WHAT: &str = "sandbox";
        let now = self.node.clock.now();
        if let Some(until) = self.retries.held(WHAT, now).or(self.retries.held(volumes::WHAT, now)) {
            return Next::Wait(Some(until));
        }
        if let Some(not_ready) = self.not_ready_to_start() {
            return self.wait_for_node(not_ready).await;
        }
        match self.node.looks.take(|| self.earlier_pod()).await {
            Ok(None) => {}
            Ok(Some(uid)) => {
                self.story.headline(
                    State::Waiting,
                    format_args!("an earlier pod of the same name to be gone (UID {uid})"),
                );
                return Next::Wait(Some(self.retries.failed(WHAT, now)));
            }
            Err(error) => return self.runtime_failed(&error),
        }
        let began = Instant::now();
        let made = match Box::pin(self.prepare_sandbox(attempt)).await {
            Ok(config) => {
                if let Err(next) = Box::pin(self.set_up_volumes()).await {
                    return next;
                }
                let run = || self.node.runtime.run_sandbox(&config.config, &config.handler);
                let made = self.node.starts.take(run).await;
                match made {
                    Ok(_) => Ok(config.remarks()),
                    Err(error) => Err(NotMade::sandbox(&error.in_go_words())),
                }
            }
            Err(not_made) => Err(not_made),
        };
        match made {
            Ok(remarks) => {
                self.retries.worked(WHAT);
                self.story.step("sandbox", began.elapsed(), format_args!("made sandbox {attempt}{remarks}"));
                info!(pod = %self.pod_name(), uid = self.owner.uid, attempt, took = ?began.elapsed(), "Made a sandbox");
                Next::Again
            }
            Err(NotMade { reason, message }) => {
                let until = self.retries.failed(WHAT, self.node.clock.now());
                self.warn_pod(reason, &message);
                self.story.failed("sandbox", began.elapsed(), format_args!("{message}"));
                self.story.headline(State::Blocked, format_args!("its sandbox cannot be made: {message}"));
                Next::Wait(Some(until))
            }
        }
    }

    /// Starts the first container that need not wait. One that cannot be started holds up no other, unless it is an
    /// init container.
    async fn start_first(&mut self, sandbox: &str, plan: &Plan) -> Next {
        let now = self.node.clock.now();
        let mut wait = plan.look_again;
        for start in &plan.start {
            if let Some(until) = self.retries.held(&start.name, now) {
                wait = earliest(wait, Some(until));
                let is_init = start.role == Role::Init
                    && start.container(&self.pod).is_some_and(|container| !is_sidecar(container));
                if is_init {
                    break;
                }
                continue;
            }
            if let Some(not_ready) = self.not_ready_to_start() {
                return self.wait_for_node(not_ready).await;
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
                self.retries.worked(&start.name);
                self.start_errors.remove(&start.name);
                let (name, attempt) = (&start.name, start.attempt);
                self.story.step(
                    "start",
                    began.elapsed(),
                    format_args!("started container {name}, attempt {attempt}"),
                );
                info!(
                    pod = %self.pod_name(), uid = self.owner.uid, container = %name, attempt, took = ?began.elapsed(),
                    "Started a container"
                );
            }
            Err(failure) => {
                let now = self.node.clock.now();
                match failure.until {
                    Some(until) => self.retries.failed_until(&start.name, until),
                    None => self.retries.failed(&start.name, now),
                };
                let (name, error) = (&start.name, &failure.error);
                self.story.failed(
                    "start",
                    began.elapsed(),
                    format_args!("container {name}: {}: {}", error.reason, error.message),
                );
                warn!(
                    pod = %self.pod_name(), uid = self.owner.uid, container = %name,
                    reason = %error.reason, message = %error.message, "Cannot start a container"
                );
                self.start_errors.insert(start.name.clone(), failure.error);
            }
        }
        Next::Again
    }

    /// Makes a container and starts it. One that was made before and not started is started: whoever made it may have
    /// begun to, and then only one of them will run.
    async fn try_to_start(&mut self, sandbox: &str, start: &Start) -> Result<Started, NotStarted> {
        let Some(container) = start.container(&self.pod) else { return Ok(Started::No) };
        let container = container.clone();
        let mailbox = self.mailbox.clone();
        let made_from = tokio::select! {
            biased;
            () = mailbox.wait_for_end() => return Ok(Started::No),
            made_from = self.active_sandbox() => made_from?,
        };
        let image = tokio::select! {
            biased;
            () = mailbox.wait_for_end() => return Ok(Started::No),
            image = Box::pin(self.ensure_image(&container, &made_from)) => image?,
        };
        let Some(image) = image else { return Ok(Started::No) };
        let config = tokio::select! {
            biased;
            () = mailbox.wait_for_end() => return Ok(Started::No),
            config = Box::pin(self.prepare_container(start, &container, &image, made_from)) => config?,
        };
        let runtime = &self.node.runtime;
        let id = match self.made_before(sandbox, &container) {
            Some(id) => id,
            None => {
                let create = || runtime.create_container(sandbox, &config.config, &config.sandbox);
                let created = self.node.starts.take(create).await;
                let id =
                    created.map_err(|error| self.refused(&container.name, "CreateContainerError", &error))?;
                self.say(Some(&container.name), reason::CREATED, "Container created");
                id
            }
        };
        if let Some(last) = start.last_finished {
            self.restarts.note_start(&container, last, self.node.clock.now());
        }
        let started = self.node.starts.take(|| runtime.start_container(&id)).await;
        started.map_err(|error| self.refused(&container.name, "RunContainerError", &error))?;
        self.say(Some(&container.name), reason::STARTED, "Container started");
        self.link_log(&config, &id);
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

    fn refused(&self, container: &str, reason: &str, error: &Error) -> NotStarted {
        // Upstream's event has what the runtime said; its status has the error as gRPC words it.
        let said = match error {
            Error::Answer { message, .. } => message.clone(),
            other => other.to_string(),
        };
        self.warn(container, reason::FAILED, &format!("Error: {said}"));
        NotStarted { error: StartError::new(reason, said), until: None }
    }

    /// Gets the image, which may take long: what probes find of other containers is shown meanwhile. The answer is
    /// nothing when the pod was told to end.
    async fn ensure_image(
        &mut self,
        container: &Container,
        sandbox: &SandboxConfig,
    ) -> Result<Option<images::Ensured>, NotStarted> {
        let (node, pod) = (Arc::clone(&self.node), Arc::clone(&self.pod));
        let involved = self.involved().in_container(self.kind_of(&container.name), &container.name);
        let secrets = self.pull_secrets().await;
        let request = images::Request {
            involved: &involved,
            image: &container.image,
            policy: container.image_pull_policy.as_ref(),
            secrets: &secrets,
            service_account: &pod.spec.service_account_name,
            runtime_handler: match node.translation.features.enabled(Gate::RuntimeClassInImageCriApi) {
                true => &sandbox.handler,
                false => "",
            },
            sandbox: Some(&sandbox.config),
        };
        // What went wrong before stays in the headline while it is tried again.
        if !self.start_errors.contains_key(&container.name) {
            let (image, name) = (&container.image, &container.name);
            self.story.headline(State::Waiting, format_args!("image {image} of container {name}"));
        }
        let Some(ensured) = self.attend(node.images.ensure(request)).await else { return Ok(None) };
        ensured.map(Some).map_err(|error| {
            self.warn(&container.name, reason::FAILED, &error.event_message());
            // What just failed is asked for again soon all the same: then it says that it waits, and until when.
            let waits = error.reason == images::ImageErrorReason::ImagePullBackOff;
            NotStarted {
                until: error.retry_at.filter(|_| waits).map(|at| self.wall_time(at)),
                error: StartError::new(error.reason.as_str(), error.message),
            }
        })
    }

    /// The secrets that the pod names for pulls. What cannot be had is told, and done without.
    async fn pull_secrets(&self) -> Vec<Arc<Secret>> {
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        let names = self.pod.spec.image_pull_secrets.iter().map(|secret| secret.name.as_str());
        for name in names.filter(|name| !name.is_empty()) {
            match self.node.objects.secret(&self.owner.namespace, name).await {
                Ok(secret) => found.push(secret),
                Err(_) => missing.push(name),
            }
        }
        if !missing.is_empty() {
            let message = format!(
                "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
                missing.join(", ")
            );
            self.warn_pod(reason::FAILED_TO_RETRIEVE_IMAGE_PULL_SECRET, &message);
        }
        found
    }

    fn wall_time(&self, at: Instant) -> Timestamp {
        let left = at.saturating_duration_since(Instant::now());
        self.node.clock.now().checked_add(left).unwrap_or(Timestamp::MAX)
    }
}

/// What containers may be started now, and in which sandbox.
enum Ready {
    /// The first of those that the plan names.
    InOrder(String),
    /// These.
    AtOnce(String, Vec<Start>),
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
    pub(super) until: Option<Timestamp>,
}

fn is_not_found(result: &Result<(), Error>) -> bool {
    result.as_ref().is_err_and(Error::is_not_found)
}

pub(super) fn earliest(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}
