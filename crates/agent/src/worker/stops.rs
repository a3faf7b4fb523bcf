//! The stops of a pod's containers. Each is its own: one that fails, and a look that does, cuts off no other, and the
//! hook before a stop runs once, however often the stop has to be tried. They go on while the worker waits for
//! whatever else.

use std::collections::BTreeMap;
use std::slice;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crablet_core::kill::{self, Hook, Step, Stopping, Termination};
use crablet_core::observed;
use crablet_core::plan::Kill;
use crablet_cri::Error;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use crate::recorder::reason;
use crate::story::State;
use crate::worker::retry::{What, earliest};
use crate::worker::{Phase, Worker};

/// The stops under way. Most pods have none, and keep no room for them.
#[derive(Default)]
pub(super) struct Stops(Option<Box<Inner>>);

#[derive(Default)]
struct Inner {
    containers: BTreeMap<String, Stop>,
    /// Since when all containers stop, for another sandbox.
    all: Option<Termination>,
    /// Never locked: it lets others look at a worker whose futures can be moved from thread to thread, and not shared.
    calls: Mutex<FuturesUnordered<BoxFuture<'static, Done>>>,
}

/// The stop of a container that was not seen to have ended yet.
struct Stop {
    container: Stopping,
    /// Since when it stops, and until when, where it alone does.
    termination: Termination,
    /// How often the runtime was told to stop it and has not answered.
    asked: usize,
    /// Whether the runtime says that it has stopped. The next look must agree.
    answered: bool,
}

/// Something that was done to stop a container.
pub(super) enum Done {
    /// The hook before its stop is over.
    Hook { id: String },
    /// The runtime has answered.
    Stop { id: String, name: String, why: String, took: Duration, result: Result<(), Error> },
}

/// Why containers have not been stopped.
pub(super) enum NotKilled {
    /// The pod is to end, which is more urgent. The stops go on.
    PodEnds,
    /// The runtime failed to stop one, which may be tried again then.
    Failed(Instant),
}

impl Stops {
    /// Waits until something was done to stop a container; for ever, if nothing is.
    pub(super) async fn next(&mut self) -> Done {
        if let Some(inner) = &mut self.0 {
            let calls = inner.calls.get_mut().unwrap_or_else(PoisonError::into_inner);
            if let Some(done) = calls.next().await {
                return done;
            }
        }
        std::future::pending().await
    }

    /// Takes in what was seen: the stop of a container that has ended is over.
    pub(super) fn see(&mut self, observed: &observed::Pod) -> Vec<String> {
        let Some(inner) = &mut self.0 else { return Vec::new() };
        let lives = |id: &str| observed.containers().iter().any(|known| known.id == id && known.may_live());
        let over: Vec<String> = inner.containers.keys().filter(|id| !lives(id)).cloned().collect();
        inner.containers.retain(|id, _| !over.contains(id));
        inner.containers.values_mut().for_each(|stop| stop.answered = false);
        // Those that wait for others have not begun to stop.
        if !observed.containers().iter().any(|container| container.may_live()) {
            inner.all = None;
        }
        self.forget_if_nothing_stops();
        over
    }

    /// Has all containers stop, for another sandbox, unless they do already.
    pub(super) fn begin_all(&mut self, termination: Termination) {
        self.0.get_or_insert_default().all.get_or_insert(termination);
    }

    /// Since when all containers stop, for another sandbox, where they do.
    pub(super) fn of_all(&self) -> Option<&Termination> {
        self.0.as_ref()?.all.as_ref()
    }

    /// The sandbox will do after all.
    pub(super) fn keep_sandbox(&mut self) {
        if let Some(inner) = &mut self.0 {
            inner.all = None;
        }
        self.forget_if_nothing_stops();
    }

    fn forget_if_nothing_stops(&mut self) {
        if self.0.as_ref().is_some_and(|inner| inner.containers.is_empty() && inner.all.is_none()) {
            self.0 = None;
        }
    }

    /// Whether a container is being stopped.
    pub(super) fn has(&self, id: &str) -> bool {
        self.get(id).is_some()
    }

    fn get(&self, id: &str) -> Option<&Stop> {
        self.0.as_ref()?.containers.get(id)
    }

    fn get_mut(&mut self, id: &str) -> Option<&mut Stop> {
        self.0.as_mut()?.containers.get_mut(id)
    }

    /// The stop of a container, and whether it only begins now.
    fn begin(&mut self, container: Stopping, termination: Termination) -> bool {
        let stops = &mut self.0.get_or_insert_default().containers;
        let is_new = !stops.contains_key(&container.id);
        stops.entry(container.id.clone()).or_insert(Stop {
            container,
            termination,
            asked: 0,
            answered: false,
        });
        is_new
    }

    fn call(&mut self, call: BoxFuture<'static, Done>) {
        let inner = self.0.get_or_insert_default();
        inner.calls.get_mut().unwrap_or_else(PoisonError::into_inner).push(call);
    }

    /// Whether something is being done to stop a container.
    fn is_busy(&self, id: &str) -> bool {
        self.get(id).is_some_and(|stop| stop.asked > 0 || stop.container.hook == Hook::Running)
    }
}

impl Worker {
    /// Does what is to be done now to stop all containers, in their order. Says when there is more to do, should none
    /// of it be over before.
    pub(super) fn stop_all(&mut self, termination: &Termination) -> Option<Instant> {
        let live = self.observed.containers().iter().filter(|container| container.may_live());
        let live: Vec<Stopping> = live
            .map(|container| match self.stops.get(&container.id) {
                Some(stop) => stop.container.clone(),
                None => Stopping::new(&container.id, &container.name),
            })
            .collect();
        let now = self.node.clock.steady();
        let steps = kill::steps(&self.pod, termination, &live, now);
        for container in live {
            // The end of a container is told once, before its hook if it has one; not while it waits for others.
            let is_due = steps.iter().any(|step| match step {
                Step::RunHook { id, .. } | Step::Stop { id, .. } => *id == container.id,
                Step::Wait { .. } => false,
            });
            let name = container.name.clone();
            if is_due && self.stops.begin(container, *termination) {
                self.say(Some(&name), reason::KILLING, &format!("Stopping container {name}"));
            }
        }
        self.take_steps(steps, "", now)
    }

    /// Stops containers while the pod goes on, and waits until the runtime says that they have stopped.
    pub(super) async fn kill(&mut self, kills: &[Kill]) -> Result<(), NotKilled> {
        for kill in kills {
            let now = self.node.clock.steady();
            let container = Stopping::new(&kill.id, &kill.name);
            if self.stops.begin(container, Termination::new(now, kill.grace)) {
                self.say(Some(&kill.name), reason::KILLING, &kill.message);
            } else if let Some(stop) = self.stops.get_mut(&kill.id) {
                stop.termination.shorten(now, kill.grace);
            }
        }
        loop {
            let now = self.node.clock.steady();
            let mut wait = None;
            for kill in kills {
                let Some(stop) = self.stops.get(&kill.id) else { continue };
                let alone = slice::from_ref(&stop.container);
                let steps = kill::steps(&self.pod, &stop.termination, alone, now);
                wait = earliest(wait, self.take_steps(steps, &kill.message, now));
            }
            if !kills.iter().any(|kill| self.stops.is_busy(&kill.id)) {
                return wait.map_or(Ok(()), |until| Err(NotKilled::Failed(until)));
            }
            if self.attend_stops(wait).await.is_none() {
                return Err(NotKilled::PodEnds);
            }
        }
    }

    /// Says when there is more to do.
    fn take_steps(&mut self, steps: Vec<Step>, why: &str, now: Timestamp) -> Option<Instant> {
        let mut wait = None;
        for step in steps {
            match step {
                Step::RunHook { id, name, seconds } => {
                    // It may go on for longer, and the stop comes then all the same.
                    wait = earliest(wait, Some(Instant::now() + Duration::from_secs(seconds.unsigned_abs())));
                    let call = self.run_pre_stop(id.clone(), &name, seconds);
                    if let Some(stop) = self.stops.get_mut(&id) {
                        stop.container.hook = Hook::Running;
                        self.stops.call(call);
                    }
                }
                // The next look is to tell.
                Step::Stop { id, .. } if self.stops.get(&id).is_some_and(|stop| stop.answered) => {}
                Step::Stop { id, name, grace } => {
                    if let Some(until) = self.retries.held(&What::Stop(id.clone())) {
                        wait = earliest(wait, Some(until));
                        continue;
                    }
                    self.story
                        .headline(State::Terminating, format_args!("container {name} has {grace} s to stop"));
                    let call = self.send_stop(id.clone(), &name, why, grace);
                    if let Some(stop) = self.stops.get_mut(&id) {
                        stop.container.hook = Hook::Done;
                        stop.container.stop_sent = now.checked_add(SignedDuration::from_secs(grace)).ok();
                        stop.asked += 1;
                        self.stops.call(call);
                    }
                }
                Step::Wait { deadline, .. } => {
                    let left = Duration::try_from(deadline.duration_since(now)).unwrap_or_default();
                    wait = earliest(wait, Some(Instant::now() + left));
                }
            }
        }
        wait
    }

    fn send_stop(&self, id: String, name: &str, why: &str, grace: i64) -> BoxFuture<'static, Done> {
        let (runtime, name, why) = (self.node.runtime.clone(), name.to_owned(), why.to_owned());
        let grace = Duration::from_secs(grace.unsigned_abs());
        async move {
            let began = Instant::now();
            let result = runtime.stop_container(&id, grace).await;
            Done::Stop { id, name, why, took: began.elapsed(), result }
        }
        .boxed()
    }

    /// Takes in that something was done to stop a container.
    pub(super) fn note_stop(&mut self, done: Done) {
        match done {
            Done::Hook { id } => {
                if let Some(stop) = self.stops.get_mut(&id) {
                    stop.container.hook = Hook::Done;
                }
            }
            Done::Stop { id, name, why, took, result } => {
                let error = result.err().filter(|error| !error.is_not_found());
                let colon = if why.is_empty() { "" } else { ": " };
                match (&error, &self.phase) {
                    (None, _) => {
                        let what = format_args!("stopped container {name}{colon}{why}");
                        self.story.step("stop", took, what);
                    }
                    (Some(error), Phase::Terminating(_)) if self.stops.has(&id) => {
                        self.tell_not_killed("KillContainer", &name, error);
                    }
                    (Some(error), Phase::Syncing | Phase::Terminating(_) | Phase::Terminated) => {
                        let what = format_args!("could not stop container {name}{colon}{why}: {error}");
                        self.story.failed("stop", took, what);
                    }
                }
                let Some(stop) = self.stops.get_mut(&id) else { return };
                stop.asked = stop.asked.saturating_sub(1);
                stop.answered |= error.is_none();
                if stop.asked == 0 {
                    // Whatever the runtime said: one that still lives at the next look is told again, a while later.
                    stop.container.stop_sent = None;
                    self.retries.failed(What::Stop(id));
                }
            }
        }
    }
}
