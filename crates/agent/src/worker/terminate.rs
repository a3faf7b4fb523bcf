//! Stopping a pod, step by step. Each step can be done again, and one that failed is where the next try begins.

use std::collections::BTreeMap;
use std::time::Duration;

use crablet_core::kill::{self, Hook, Step, Stopping, Termination, pod_grace};
use crablet_core::status::terminated;
use crablet_cri::Error;
use crablet_cri_api::SandboxState;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;
use tracing::info;

use crate::mailbox::End;
use crate::recorder::reason;
use crate::story::State;
use crate::worker::{Next, Phase, Worker};

/// A pod that is being stopped.
#[derive(Debug)]
pub(super) struct Terminating {
    /// Since when, and until when.
    pub(super) termination: Termination,
}

impl Terminating {
    pub(super) fn new(now: Timestamp, grace: i64) -> Terminating {
        Terminating { termination: Termination::new(now, grace) }
    }
}

/// What is left to do to a pod that is being stopped, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Remains {
    /// Some containers may still run.
    Containers,
    /// A sandbox is still ready.
    Sandboxes,
    /// The rest: its volumes, its cgroup, and the last word on it.
    Rest,
}

impl Worker {
    /// Begins to end the pod, or makes an end that has begun come earlier.
    pub(super) async fn end(&mut self, end: &End) {
        let now = self.node.clock.now();
        let wanted = end.grace.map(|grace| i64::try_from(grace.as_secs()).unwrap_or(i64::MAX));
        match &mut self.phase {
            Phase::Syncing => {
                let grace = pod_grace(&self.pod, None, wanted);
                self.story.note("stop", format_args!("{} (within {grace} s)", end.in_words()));
                info!(pod = %self.pod_name(), uid = self.owner.uid, cause = end.in_words(), grace, "Stopping a pod");
                self.phase = Phase::Terminating(Terminating::new(now, grace));
                self.checkpoint_now().await;
            }
            Phase::Terminating(terminating) => {
                let grace = pod_grace(&self.pod, Some(terminating.termination.grace), wanted);
                if terminating.termination.shorten(now, grace) {
                    self.story.note("stop", format_args!("it must be over within {grace} s from now on"));
                    self.checkpoint_now().await;
                }
            }
            Phase::Terminated => {}
        }
    }

    /// Does what is left to do.
    pub(super) async fn terminate(&mut self) -> Next {
        if let Err(error) = self.look().await {
            return self.runtime_failed(&error);
        }
        let status = self.make_status(false);
        self.show(status);
        if let (false, Phase::Terminating(terminating)) = (self.wanted, &self.phase) {
            self.node.statuses.show_end(&self.owner.uid, terminating.termination.deadline);
        }
        let done = match self.remains() {
            Remains::Containers => self.stop_containers().await,
            Remains::Sandboxes => self.stop_sandboxes().await,
            Remains::Rest => return self.finish().await,
        };
        match done {
            Ok(()) => Next::Again,
            Err(error) => self.runtime_failed(&error),
        }
    }

    fn remains(&self) -> Remains {
        if self.observed.containers().iter().any(|container| container.may_live()) {
            Remains::Containers
        } else if self.observed.has_ready_sandbox() {
            Remains::Sandboxes
        } else {
            Remains::Rest
        }
    }

    /// Stops all containers that may run, in their order, and returns when none does. What is told meanwhile can make
    /// it quicker.
    pub(super) async fn stop_containers(&mut self) -> Result<(), Error> {
        let passing = Termination::new(self.node.clock.now(), pod_grace(&self.pod, None, None));
        let mut stops: FuturesUnordered<BoxFuture<'static, (String, Result<(), Error>)>> =
            FuturesUnordered::new();
        let mut sent: BTreeMap<String, (Hook, Option<Timestamp>)> = BTreeMap::new();
        loop {
            let now = self.node.clock.now();
            let termination = match &self.phase {
                Phase::Terminating(terminating) => terminating.termination,
                Phase::Syncing | Phase::Terminated => passing,
            };
            let live = self.live(&sent);
            if live.is_empty() {
                return Ok(());
            }
            let mut look_again = None;
            for step in kill::steps(&self.pod, &termination, &live, now) {
                match step {
                    Step::RunHook { id, name, seconds } => {
                        self.tell_of_kill(&name, sent.contains_key(&id));
                        sent.entry(id.clone()).or_insert((Hook::Running, None)).0 = Hook::Running;
                        stops.push(self.run_pre_stop(id, &name, seconds));
                    }
                    Step::Stop { id, name, grace } => {
                        self.tell_of_kill(&name, sent.contains_key(&id));
                        self.story.headline(
                            State::Terminating,
                            format_args!("container {name} has {grace} s to stop"),
                        );
                        let killed_at =
                            now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(Timestamp::MAX);
                        sent.insert(id.clone(), (Hook::Done, Some(killed_at)));
                        stops.push(self.send_stop(id, grace));
                    }
                    Step::Wait { deadline, .. } => {
                        look_again =
                            Some(look_again.map_or(deadline, |other: Timestamp| other.min(deadline)));
                    }
                }
            }
            let until = look_again.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
            tokio::select! {
                biased;
                () = self.mailbox.wait() => {
                    let told = self.mailbox.take();
                    Box::pin(self.hear(told)).await;
                    self.look().await?;
                    let status = self.make_status(false);
                    self.show_for_sure(status).await;
                }
                Some((id, result)) = stops.next() => {
                    if let Some((hook, stopped)) = sent.get_mut(&id) && *hook == Hook::Running && stopped.is_none() {
                        *hook = Hook::Done;
                    } else {
                        match result {
                            Err(error) if !error.is_not_found() => return Err(error),
                            _ => {}
                        }
                        // The runtime says that it stopped: the look must agree before it counts.
                        sent.remove(&id);
                    }
                    self.look().await?;
                    let status = self.make_status(false);
                    self.show(status);
                }
                () = tokio::time::sleep(until.unwrap_or_default()), if until.is_some() => {}
            }
        }
    }

    fn live(&self, sent: &BTreeMap<String, (Hook, Option<Timestamp>)>) -> Vec<Stopping> {
        let live = self.observed.containers().iter().filter(|container| container.may_live());
        live.map(|container| {
            let mut stopping = Stopping::new(&container.id, &container.name);
            if let Some((hook, stop_sent)) = sent.get(&container.id) {
                (stopping.hook, stopping.stop_sent) = (*hook, *stop_sent);
            }
            stopping
        })
        .collect()
    }

    /// The end of a container is told once, before its hook if it has one.
    fn tell_of_kill(&self, name: &str, again: bool) {
        if !again {
            self.say(Some(name), reason::KILLING, &format!("Stopping container {name}"));
        }
    }

    fn send_stop(&self, id: String, grace: i64) -> BoxFuture<'static, (String, Result<(), Error>)> {
        let (runtime, story) = (self.node.runtime.clone(), self.story.clone());
        let grace = Duration::from_secs(grace.unsigned_abs());
        async move {
            let began = Instant::now();
            let result = runtime.stop_container(&id, grace).await;
            match &result {
                Ok(()) => {
                    story.step("stop", began.elapsed(), format_args!("stopped container {}", short(&id)))
                }
                Err(error) => {
                    story.failed("stop", began.elapsed(), format_args!("container {}: {error}", short(&id)));
                }
            }
            (id, result)
        }
        .boxed()
    }

    async fn stop_sandboxes(&mut self) -> Result<(), Error> {
        self.story.headline(State::Terminating, format_args!("its sandbox is being stopped"));
        let ready: Vec<String> = self
            .observed
            .sandboxes()
            .iter()
            .filter(|sandbox| sandbox.state == SandboxState::Ready)
            .map(|sandbox| sandbox.id.clone())
            .collect();
        for id in ready {
            self.stop_sandbox(&id).await?;
        }
        Ok(())
    }

    /// Every container has been seen to be stopped: clears away what only a running pod needs, and says the last word.
    async fn finish(&mut self) -> Next {
        const WHAT: &str = "cgroup";
        if let Err(next) = self.tear_down_volumes().await {
            return next;
        }
        self.story.headline(State::Terminating, format_args!("its cgroup is being removed"));
        let began = Instant::now();
        if let Err(error) = self.node.remove_cgroup(&self.owner.uid).await {
            let until = self.retries.failed(WHAT, self.node.clock.now());
            self.story.failed(WHAT, began.elapsed(), format_args!("{error}"));
            self.story.headline(State::Terminating, format_args!("its cgroup cannot be removed: {error}"));
            return Next::Wait(Some(until));
        }
        if let Err(error) = self.node.users.release(&self.owner.uid) {
            let until = self.retries.failed(WHAT, self.node.clock.now());
            self.story.failed("users", began.elapsed(), format_args!("{error}"));
            self.story.headline(State::Terminating, format_args!("its users cannot be taken back: {error}"));
            return Next::Wait(Some(until));
        }
        self.retries.worked(WHAT);
        let status = terminated(&self.pod, &self.make_status(true));
        self.phase = Phase::Terminated;
        self.node.admission.release(&self.owner.uid);
        self.show(status);
        self.have_nothing_probed();
        self.checkpoint_now().await;
        self.story.note("stop", format_args!("all containers have stopped"));
        info!(pod = %self.pod_name(), uid = self.owner.uid, "Pod has stopped");
        self.tell_last_headline();
        Next::Again
    }
}

fn short(id: &str) -> &str {
    id.get(..13).unwrap_or(id)
}
