//! Who probes the containers of all pods.
//!
//! One task holds the [`Schedule`] of every container that is probed, ordered by when it is due, and the attempts that
//! are under way. A worker says with [`Prober::watch`] which of its containers run now; what it said last counts. When
//! something else is believed of a container than before, the pod's mailbox is told what is believed of all of them.
//!
//! Every container has its own attempts, of each kind one at a time, and nothing that they would have to share: as many
//! as hang hold up nobody else. An attempt that is under way when its container stops runs to its end, as a command
//! that nobody waits for would stay in the container, and counts for nothing.

mod connect;
pub(crate) mod exec;
mod grpc;
pub(crate) mod http;
mod metrics;
mod resolve;
#[cfg(test)]
mod tests;
mod tls;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crablet_api::Text;
use crablet_api::core::Pod;
use crablet_core::probes::schedule::{Outcome, Run, Schedule};
use crablet_core::probes::target::{Target, target};
use crablet_core::probes::{ProbeKind, Probes};
use crablet_cri::Runtime;
use crablet_host::clock::Clock;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{debug, info};

use crate::mailbox::{Input, Mailbox};
use crate::pod_span::pod_span;
use crate::recorder::{ContainerKind, EventType, Involved, Recorder, reason};

pub(crate) use metrics::Metrics;

/// How often an attempt that could not be made is tried, within its timeout.
const TRIES: usize = 3;

/// Where workers say what is to be probed. Clones are the same place.
#[derive(Clone, Default)]
pub struct Prober(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// What was said since the last time that the task listened, by UID. Nothing to watch any more is `None`.
    said: Mutex<BTreeMap<String, Option<Watch>>>,
    news: Notify,
}

/// What is to be probed of a pod.
#[derive(Clone)]
pub struct Watch {
    pub pod: Arc<Pod>,
    /// Where its worker hears what was found.
    pub mailbox: Mailbox,
    /// Its address; empty where it has none.
    pub pod_ip: String,
    /// Whether it is being stopped.
    pub stopping: bool,
    /// Its containers that run.
    pub running: Vec<Running>,
}

/// A container that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// The runtime's name for it.
    pub id: String,
    /// Its name in the pod.
    pub name: Text,
    /// Since when.
    pub since: Option<Timestamp>,
    /// Whether its status says that it has started.
    pub started: bool,
}

/// What the task works with.
pub(crate) struct Parts {
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) clock: Clock,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Metrics,
}

impl Prober {
    /// Nothing is probed yet.
    pub fn new() -> Prober {
        Prober::default()
    }

    /// From now on this is to be probed of a pod.
    pub fn watch(&self, uid: &str, watch: Watch) {
        self.say(uid, Some(watch));
    }

    /// From now on nothing is to be probed of a pod, and what was found is forgotten.
    pub fn forget(&self, uid: &str) {
        self.say(uid, None);
    }

    fn say(&self, uid: &str, watch: Option<Watch>) {
        self.0.said.lock().unwrap_or_else(PoisonError::into_inner).insert(uid.to_owned(), watch);
        self.0.news.notify_one();
    }

    fn take(&self) -> BTreeMap<String, Option<Watch>> {
        std::mem::take(&mut *self.0.said.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Probes for ever.
    pub(crate) async fn run(self, parts: Parts) {
        let mut rounds = Rounds {
            parts,
            began: Instant::now(),
            pods: BTreeMap::new(),
            timers: BTreeSet::new(),
            attempts: FuturesUnordered::new(),
        };
        loop {
            for (uid, watch) in self.take() {
                rounds.hear(&uid, watch);
            }
            rounds.begin_what_is_due();
            let next = rounds.timers.first().map(|(at, _)| rounds.began + *at);
            tokio::select! {
                biased;
                () = self.0.news.notified() => {}
                Some(done) = rounds.attempts.next() => rounds.finish(done),
                () = tokio::time::sleep_until(next.unwrap_or(rounds.began)), if next.is_some() => {}
            }
        }
    }
}

/// What the task holds.
struct Rounds {
    parts: Parts,
    /// Moments of schedules are counted from here.
    began: Instant,
    pods: BTreeMap<Arc<str>, Watched>,
    /// When each container's next attempt is due.
    timers: BTreeSet<(Duration, Key)>,
    attempts: FuturesUnordered<BoxFuture<'static, Done>>,
}

/// A pod that is probed.
struct Watched {
    watch: Watch,
    containers: BTreeMap<Arc<str>, Probed>,
}

/// A container that is probed.
struct Probed {
    name: Text,
    schedule: Schedule,
    /// What it has among the timers.
    timer: Option<Duration>,
}

/// A pod's UID, and the runtime's name for a container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    uid: Arc<str>,
    id: Arc<str>,
}

/// An attempt that is over.
struct Done {
    key: Key,
    kind: ProbeKind,
    took: Duration,
    answer: Answer,
}

/// What an attempt came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The container is well.
    Success,
    /// It is well, but somebody should know this.
    Warning(String),
    /// It is not well, for this reason.
    Failure(String),
    /// It could not be asked.
    Error {
        /// What upstream calls the state that this leaves.
        state: &'static str,
        /// Why.
        message: String,
    },
}

impl Answer {
    pub(crate) fn unknown(message: impl ToString) -> Answer {
        Answer::Error { state: "unknown", message: message.to_string() }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Answer::Success | Answer::Warning(_) => Outcome::Success,
            Answer::Failure(_) => Outcome::Failure,
            Answer::Error { .. } => Outcome::Error,
        }
    }
}

impl Rounds {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn hear(&mut self, uid: &str, watch: Option<Watch>) {
        let uid: Arc<str> = uid.into();
        let before = self.pods.remove(&uid);
        let Some(watch) = watch else {
            if let Some(before) = before {
                self.drop_timers(&uid, &before.containers);
                self.parts.metrics.forget(&before.watch.pod);
            }
            return;
        };
        let mut known = before.map(|before| before.containers).unwrap_or_default();
        let mut containers = BTreeMap::new();
        for running in &watch.running {
            let Some(spec) = watch.pod.spec.find_container(&running.name) else { continue };
            let id: Arc<str> = running.id.as_str().into();
            let mut probed = known.remove(&id).unwrap_or_else(|| Probed {
                name: running.name.clone(),
                schedule: Schedule::new(spec, self.run_of(running), self.now()),
                timer: None,
            });
            if watch.stopping {
                probed.schedule.stopping();
            }
            containers.insert(id, probed);
        }
        self.drop_timers(&uid, &known);
        for (id, probed) in &mut containers {
            set_timer(&mut self.timers, Key { uid: Arc::clone(&uid), id: Arc::clone(id) }, probed);
        }
        self.pods.insert(uid, Watched { watch, containers });
    }

    fn drop_timers(&mut self, uid: &Arc<str>, containers: &BTreeMap<Arc<str>, Probed>) {
        for (id, probed) in containers {
            if let Some(at) = probed.timer {
                self.timers.remove(&(at, Key { uid: Arc::clone(uid), id: Arc::clone(id) }));
            }
        }
    }

    fn run_of(&self, running: &Running) -> Run {
        let age = running.since.map(|since| self.parts.clock.now().duration_since(since));
        let age = age.and_then(|age| Duration::try_from(age).ok()).unwrap_or_default();
        let ran_before = age > self.now();
        Run { age, started: running.started, spread: ran_before.then(|| spread(&running.id)) }
    }

    fn begin_what_is_due(&mut self) {
        let now = self.now();
        while let Some((_, key)) = self.timers.first().filter(|(at, _)| *at <= now).cloned() {
            let Some(watched) = self.pods.get_mut(&key.uid) else { return };
            let Some(probed) = watched.containers.get_mut(&key.id) else { return };
            if let Some((_, kind)) = probed.schedule.due() {
                probed.schedule.begin(kind, now);
                let attempt = attempt(&self.parts.runtime, &watched.watch, &probed.name, &key, kind);
                self.attempts.push(attempt);
            }
            set_timer(&mut self.timers, key, probed);
        }
    }

    fn finish(&mut self, done: Done) {
        let now = self.now();
        let Done { key, kind, took, answer } = done;
        let Some(watched) = self.pods.get_mut(&key.uid) else { return };
        let Some(probed) = watched.containers.get_mut(&key.id) else { return };
        let changed = probed.schedule.end(kind, answer.outcome(), now);
        set_timer(&mut self.timers, key, probed);
        let (pod, name) = (&watched.watch.pod, probed.name.clone());
        let _span = pod_span(&pod.identity()).entered();
        self.parts.metrics.count(pod, &name, kind, &answer, took);
        tell_people(&self.parts.recorder, pod, &name, kind, &answer);
        if changed {
            let well = answer.outcome() == Outcome::Success;
            info!(container = %name, probe = %kind, well, "A probe found something else than before");
            let all = watched.containers.iter();
            let results =
                Probes(all.map(|(id, probed)| (id.to_string(), probed.schedule.results())).collect());
            watched.watch.mailbox.tell(Input::Probes(results));
        }
    }
}

fn set_timer(timers: &mut BTreeSet<(Duration, Key)>, key: Key, probed: &mut Probed) {
    let due = probed.schedule.due().map(|(at, _)| at);
    if due == probed.timer {
        return;
    }
    if let Some(at) = probed.timer {
        timers.remove(&(at, key.clone()));
    }
    probed.timer = due;
    timers.extend(due.map(|at| (at, key)));
}

/// Which part of its period a container that ran before the agent did waits first. The IDs are random already.
fn spread(id: &str) -> f64 {
    let hash =
        id.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    f64::from(hash) / f64::from(u32::MAX)
}

/// An attempt, to be awaited.
fn attempt(
    runtime: &Arc<dyn Runtime>,
    watch: &Watch,
    name: &str,
    key: &Key,
    kind: ProbeKind,
) -> BoxFuture<'static, Done> {
    let (runtime, key) = (Arc::clone(runtime), key.clone());
    let probe =
        watch.pod.spec.find_container(name).and_then(|container| Some((container, kind.of(container)?)));
    let asked = probe.map(|(container, probe)| {
        let timeout = u64::try_from(probe.timeout_seconds).unwrap_or_default().max(1);
        (target(probe, container, &watch.pod_ip), Duration::from_secs(timeout))
    });
    async move {
        let began = Instant::now();
        let answer = match asked {
            Some((Ok(target), timeout)) => {
                let asking = ask(&*runtime, &key.id, &target, timeout);
                // One that panics is that container's affair.
                AssertUnwindSafe(asking)
                    .catch_unwind()
                    .await
                    .unwrap_or_else(|_| Answer::unknown("the attempt panicked"))
            }
            Some((Err(error), _)) => Answer::unknown(error),
            None => Answer::unknown("there is no such probe"),
        };
        Done { key, kind, took: began.elapsed(), answer }
    }
    .boxed()
}

/// Asks a container, and again where it could not be asked. All of it takes no longer than the timeout, and a little
/// more where the runtime has to end a command.
async fn ask(runtime: &dyn Runtime, id: &str, target: &Target, timeout: Duration) -> Answer {
    let deadline = Instant::now() + timeout;
    let mut answer = Answer::unknown("it was not asked");
    for _ in 0..TRIES {
        answer = match target {
            Target::Exec(command) => exec::probe(runtime, id, command, timeout).await,
            Target::Http(target) => http::probe(target, deadline).await,
            Target::Tcp(address) => match connect::connect(address, deadline).await {
                Ok(_) => Answer::Success,
                Err(error) => Answer::Failure(error.to_string()),
            },
            Target::Grpc { address, service } => grpc::probe(address, service, timeout).await,
        };
        if !matches!(answer, Answer::Error { .. }) || Instant::now() >= deadline {
            break;
        }
    }
    answer
}

/// Says what went wrong, in upstream's words.
fn tell_people(recorder: &Recorder, pod: &Pod, name: &str, kind: ProbeKind, answer: &Answer) {
    let (reason, message) = match answer {
        Answer::Success => {
            return debug!(container = name, probe = %kind, "A probe succeeded");
        }
        Answer::Warning(output) => (reason::PROBE_WARNING, format!("{kind} probe warning: {output}")),
        Answer::Failure(output) => (reason::UNHEALTHY, format!("{kind} probe failed: {output}")),
        Answer::Error { state, message } => {
            (reason::UNHEALTHY, format!("{kind} probe errored and resulted in {state} state: {message}"))
        }
    };
    let is_init = pod.spec.init_containers.iter().any(|init| *init.name == *name);
    let place = if is_init { ContainerKind::Init } else { ContainerKind::Main };
    let involved = Involved::version_of(pod);
    recorder.event(&involved.in_container(place, name), EventType::Warning, reason, message);
}
