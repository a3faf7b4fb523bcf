//! Graceful shutdown of the node: when the machine is about to be shut down, pods end in the order of their priorities, and
//! the machine waits for that.
//!
//! ```text
//!   logind ──► NodeShutdown ──► readiness: the node is not ready
//!     ▲           │     ├─────► admission: nobody is taken any more
//!     │           │     └─────► evictor: group by group, as core::shutdown says
//!     └── lock ◄──┘ until all have ended and the API server knows, or had their time
//! ```
//!
//! Where no time is configured, none of this is there.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use crablet_api::Text;
use crablet_api::document::Limits;
use crablet_core::qos::is_static;
use crablet_core::shutdown::{Period, Shutdown, Step, delay};
use crablet_core::status::Failure;
use crablet_host::clock::Clock;
use crablet_host::logind::{InhibitLock, Logind, LogindError, Session};
use crablet_host::state_file::StateFile;
use crablet_logging::ErrorChain;
use crablet_metrics::{Gauge, RegisterError, Registry};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, info, warn};

use crate::admission::Admission;
use crate::mirrors::ServerMirrors;
use crate::pods::Evictor;
use crate::readiness::Readiness;
use crate::recorder::{EventType, Involved, Recorder, reason};
use crate::statuses::{Reported, StatusNews, Statuses};

/// The name of the file below the root directory that tells when the last shutdown began and ended, as upstream's.
pub const STATE_FILE: &str = "graceful_node_shutdown_state";

/// How long an agent that begins waits for logind to say whether the machine is about to be shut down: before it takes
/// pods. A bus that is away must not keep a node from running.
const KNOWN_WITHIN: Duration = Duration::from_secs(2);
/// The waits before the bus is asked for again.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// How often it is looked whether logind has taken in a longer delay; each wait is twice as long as the one before.
const LOOKS: u32 = 5;
const FIRST_LOOK: Duration = Duration::from_millis(100);
/// How long an agent that begins while the machine goes down waits to know who runs.
const ROLL_CALL: Duration = Duration::from_secs(10);
/// How long the lock is held at most for what the API server does not have yet, when all pods had their time.
const DELIVERED_WITHIN: Duration = Duration::from_secs(5);
/// How long the next group waits for that at most: the API server may be in it.
const TOLD_WITHIN: Duration = Duration::from_secs(1);
/// How long reading or writing when the last shutdown was may take: a disk that hangs must not take pods' time.
const KEPT_WITHIN: Duration = Duration::from_secs(1);

/// What it needs of the machine.
pub struct Machine {
    /// Who tells of shutdowns, and holds them up.
    pub logind: Arc<dyn Logind>,
    /// Where it is kept when the last one was.
    pub state: Arc<dyn StateFile>,
}

/// What it needs of the node.
pub(crate) struct Parts {
    pub(crate) name: Text,
    pub(crate) clock: Clock,
    pub(crate) admission: Admission,
    pub(crate) readiness: Readiness,
    pub(crate) evictor: Evictor,
    pub(crate) statuses: Statuses,
    pub(crate) mirrors: watch::Receiver<ServerMirrors>,
    pub(crate) recorder: Recorder,
}

/// When the last shutdown began and ended, for people.
pub(crate) struct Times {
    start: Gauge,
    end: Gauge,
}

impl Times {
    pub(crate) fn register(registry: &Registry) -> Result<Times, RegisterError> {
        Ok(Times {
            start: registry.gauge(
                "kubelet_graceful_shutdown_start_time_seconds",
                "[ALPHA] Last graceful shutdown start time since unix epoch in seconds",
            )?,
            end: registry.gauge(
                "kubelet_graceful_shutdown_end_time_seconds",
                "[ALPHA] Last graceful shutdown end time since unix epoch in seconds",
            )?,
        })
    }

    fn tell(&self, kept: Kept) {
        self.start.set(kept.start_time.map_or(0, Timestamp::as_second) as f64);
        self.end.set(kept.end_time.map_or(0, Timestamp::as_second) as f64);
    }
}

/// The same on disk. What did not happen is the year 1.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Kept {
    #[serde(with = "zero_is_none")]
    start_time: Option<Timestamp>,
    #[serde(with = "zero_is_none")]
    end_time: Option<Timestamp>,
}

/// How Go writes times that may not be there.
mod zero_is_none {
    use jiff::Timestamp;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    const ZERO: &str = "0001-01-01T00:00:00Z";

    pub(super) fn serialize<S: Serializer>(
        time: &Option<Timestamp>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => time.serialize(serializer),
            None => ZERO.serialize(serializer),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Timestamp>, D::Error> {
        let time = Timestamp::deserialize(deserializer)?;
        Ok(Some(time).filter(|time| time.as_second() > 0))
    }
}

/// How far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The machine is up, as far as is known.
    Up,
    /// It is about to be shut down, and pods are yet to be told.
    Closed,
    /// Pods had their time.
    Down,
}

/// The task that looks after shutdowns.
pub(crate) struct NodeShutdown {
    periods: Vec<Period>,
    machine: Machine,
    parts: Parts,
    /// Whether it is kept and told when a shutdown began and ended.
    times: Option<Times>,
    lock: Option<InhibitLock>,
    state: State,
}

/// What a wait came to.
#[derive(Debug, PartialEq, Eq)]
enum Waited {
    /// Look again.
    News,
    /// The machine stays up.
    Cancelled,
}

impl NodeShutdown {
    /// Asks whether the machine is about to be shut down: what an agent before this one had ended must not be started.
    /// Gives the task that listens from then on.
    pub(crate) async fn begin(
        periods: Vec<Period>,
        machine: Machine,
        parts: Parts,
        times: Option<Times>,
    ) -> impl Future<Output = ()> + Send {
        let mut shutdown = NodeShutdown { periods, machine, parts, times, lock: None, state: State::Up };
        let asked = timeout(KNOWN_WITHIN, async {
            let mut session = shutdown.machine.logind.connect().await?;
            let is_shutting_down = session.is_shutting_down().await?;
            Ok::<_, LogindError>((session, is_shutting_down))
        });
        // It is asked again, and said then why it could not be asked.
        let mut first = None;
        if let Ok(Ok((session, is_shutting_down))) = asked.await {
            first = Some(session);
            if is_shutting_down {
                shutdown.close();
            }
        }
        shutdown.run(first)
    }

    /// Listens for as long as the agent lives.
    async fn run(mut self, mut first: Option<Box<dyn Session>>) {
        self.tell_of_last().await;
        let mut wait = SHORTEST_WAIT;
        let mut has_warned = false;
        loop {
            let session = match first.take() {
                Some(session) => Ok(session),
                None => self.machine.logind.connect().await,
            };
            let followed = match session {
                Ok(mut session) => self.follow(&mut *session).await,
                Err(error) => Err(error),
            };
            match followed {
                Ok(()) => {
                    info!("No longer told of shutdowns of the machine: the bus has ended; listening again");
                    (wait, has_warned) = (SHORTEST_WAIT, false);
                }
                Err(error) if !has_warned => {
                    has_warned = true;
                    let error = ErrorChain(&error);
                    warn!(%error, "Cannot hear of shutdowns of the machine, which would end pods at once; trying again");
                }
                Err(error) => {
                    debug!(error = %ErrorChain(&error), "Still cannot hear of shutdowns of the machine")
                }
            }
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// Follows what is said in a session until that ends.
    async fn follow(&mut self, session: &mut dyn Session) -> Result<(), LogindError> {
        match (session.is_shutting_down().await?, self.state) {
            // Who held the lock is dead, or the bus went: it cannot be had any more, and there is some time all the same.
            (true, State::Up | State::Closed) => self.shut_down(session).await,
            (true, State::Down) => {}
            (false, state) => {
                if state != State::Up {
                    self.cancel().await;
                }
                self.ask_for_time(session).await?;
                // The one before is let go of only then.
                self.lock = Some(session.inhibit().await?);
                info!(within = ?delay(&self.periods), "A shutdown of the machine will wait for pods to end");
            }
        }
        while let Some(is_shutting_down) = session.next().await {
            match (is_shutting_down, self.state) {
                (true, State::Up | State::Closed) => self.shut_down(session).await,
                (false, State::Closed | State::Down) => self.cancel().await,
                (true, State::Down) | (false, State::Up) => {}
            }
            if self.state == State::Up && self.lock.is_none() {
                self.lock = Some(session.inhibit().await?);
            }
        }
        Ok(())
    }

    /// Has logind wait for as long as all pods together may take, and a little longer than upstream does: a pod that takes
    /// all of its time would be cut off by the machine, and nobody would hear of its end. Where it does not, pods have what
    /// time there is.
    async fn ask_for_time(&self, session: &mut dyn Session) -> Result<(), LogindError> {
        let wanted = delay(&self.periods).saturating_add(DELIVERED_WITHIN);
        let mut allowed = session.longest_delay().await?;
        if allowed >= wanted {
            return Ok(());
        }
        match session.set_longest_delay(wanted).await {
            Ok(()) => {}
            Err(error) if error.is_closed() => return Err(error),
            // Its configuration may be nobody's to write.
            Err(error) => {
                self.mention_time(allowed, &ErrorChain(&error));
                return Ok(());
            }
        }
        let mut wait = FIRST_LOOK;
        for _ in 0..LOOKS {
            allowed = session.longest_delay().await?;
            if allowed >= wanted {
                return Ok(());
            }
            sleep(wait).await;
            wait *= 2;
        }
        self.mention_time(allowed, &"something else sets InhibitDelayMaxSec");
        Ok(())
    }

    /// Says that logind does not allow for more time than this.
    fn mention_time(&self, allowed: Duration, why: &dyn Display) {
        let needed = delay(&self.periods);
        if allowed >= needed {
            debug!(?allowed, %why, "logind holds up a shutdown for as long as pods may take, and for no longer");
            return;
        }
        warn!(
            ?allowed,
            ?needed,
            %why,
            "logind holds up a shutdown for less time than pods may take by the configuration; pods of high priority may \
             be ended without a grace period"
        );
    }

    /// From now on nobody is taken, and the node says why.
    fn close(&mut self) {
        self.state = State::Closed;
        self.parts.admission.close();
        self.parts.readiness.is_shutting_down(true);
    }

    /// The machine stays up. What has ended stays so, but for static pods: the node is to have them for as long as it is up.
    async fn cancel(&mut self) {
        info!("The shutdown of the machine was cancelled: pods are taken again");
        self.event("Shutdown manager detected shutdown cancellation");
        self.state = State::Up;
        self.parts.admission.reopen();
        self.parts.readiness.is_shutting_down(false);
        self.parts.evictor.stay_up().await;
    }

    /// Ends pods, and lets the machine go on when they have ended or had their time.
    async fn shut_down(&mut self, session: &mut dyn Session) {
        info!(within = ?delay(&self.periods), "The machine is about to be shut down: pods end, those of low priority first");
        self.event("Shutdown manager detected shutdown event");
        self.close();
        let start_time = Some(self.parts.clock.now());
        // Pods do not wait for the disk.
        let (ended, ()) =
            tokio::join!(self.end_pods(session), self.keep(Kept { start_time, end_time: None }));
        self.keep(Kept { start_time, end_time: Some(self.parts.clock.now()) }).await;
        match ended {
            Waited::News => {
                self.state = State::Down;
                self.lock = None;
                info!("Pods had their time: the machine may be shut down");
            }
            Waited::Cancelled => self.cancel().await,
        }
    }

    async fn end_pods(&self, session: &mut dyn Session) -> Waited {
        // Some may be taken over still, by an agent that has just begun.
        let _ = timeout(ROLL_CALL, self.parts.admission.knows_who_runs()).await;
        let (began, pods) = (Instant::now(), self.parts.admission.taken());
        let mut shutdown = Shutdown::new(&self.periods, pods.iter().map(|pod| &**pod));
        let mut listener = Listener {
            session: Some(session),
            news: self.parts.statuses.news(),
            mirrors: self.parts.mirrors.clone(),
            told: self.parts.readiness.told(),
        };
        let mut told = Vec::new();
        // Until when the group that was told waits for the API server to know of it, once all of it have ended.
        let mut known_by: Option<Instant> = None;
        loop {
            let now = Instant::now();
            if !shutdown.is_last() && told.iter().all(|uid: &Text| self.has_ended(uid)) {
                known_by.get_or_insert(now + TOLD_WITHIN);
            }
            let needs_not_be_known = shutdown.is_last() || known_by.is_some_and(|until| until <= now);
            let is_over = |uid: &str| self.has_ended(uid) && (needs_not_be_known || self.is_delivered(uid));
            match shutdown.step(now - began, is_over) {
                Step::End(group) => {
                    told = group.pods.iter().map(|leaving| leaving.uid.clone()).collect();
                    known_by = None;
                    let (pods_of_group, within) = (group.pods.len(), group.length);
                    info!(
                        priority = group.priority,
                        pods = pods_of_group,
                        ?within,
                        "Ending pods of a priority"
                    );
                    for leaving in group.pods {
                        let Some(pod) = pods.iter().find(|pod| pod.metadata.uid == leaving.uid) else {
                            continue;
                        };
                        let failure = Failure::node_shutdown(pod);
                        self.parts.evictor.evict(&leaving.uid, failure, Some(leaving.grace)).await;
                    }
                }
                Step::Wait { until } => {
                    let until = known_by.map_or(began + until, |known_by| known_by.min(began + until));
                    if listener.wait(until).await == Waited::Cancelled {
                        return Waited::Cancelled;
                    }
                }
                Step::Done => break,
            }
        }
        let until = Instant::now() + DELIVERED_WITHIN;
        let is_known = |listener: &Listener<'_>| {
            *listener.told.borrow() != Some(false)
                && pods.iter().all(|pod| self.is_delivered(&pod.metadata.uid))
        };
        while Instant::now() < until && !is_known(&listener) {
            if listener.wait(until).await == Waited::Cancelled {
                return Waited::Cancelled;
            }
        }
        Waited::News
    }

    /// Whether nothing of a pod runs any more, and its volumes are not mounted: the driver of those may end with the next group.
    /// What else it used is for nobody to have any more.
    fn has_ended(&self, uid: &str) -> bool {
        match self.parts.statuses.get(uid) {
            Some(shown) => shown.unmounted,
            None => !self.parts.admission.knows(uid),
        }
    }

    /// Whether the last word on a pod has reached the API server, if it is to.
    fn is_delivered(&self, uid: &str) -> bool {
        let Some(Reported { pod, .. }) = self.parts.statuses.get(uid) else { return true };
        if !is_static(&pod) {
            return pod.status.is_over();
        }
        let mirrors = self.parts.mirrors.borrow();
        let name = (pod.metadata.namespace.clone(), pod.metadata.name.clone());
        mirrors
            .as_ref()
            .and_then(|mirrors| mirrors.pods.get(&name))
            .is_none_or(|mirror| mirror.status.is_over())
    }

    fn event(&self, message: &str) {
        let node = Involved::node(self.parts.name.clone());
        self.parts.recorder.event(&node, EventType::Normal, reason::NODE_SHUTDOWN, message);
    }

    /// Tells when the last shutdown was, of which an agent before this one has written.
    async fn tell_of_last(&self) {
        let Some(times) = &self.times else { return };
        match timeout(KEPT_WITHIN, self.machine.state.read()).await {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(bytes))) => match crablet_api::from_json(&bytes, Limits::API) {
                Ok(kept) => times.tell(kept),
                Err(error) => {
                    warn!(%error, file = STATE_FILE, "Cannot understand when the last shutdown was")
                }
            },
            Ok(Err(error)) => warn!(%error, file = STATE_FILE, "Cannot read when the last shutdown was"),
            Err(_) => warn!(file = STATE_FILE, "The disk does not say when the last shutdown was"),
        }
    }

    async fn keep(&self, kept: Kept) {
        let Some(times) = &self.times else { return };
        times.tell(kept);
        match timeout(KEPT_WITHIN, self.machine.state.write(crablet_api::to_json(&kept))).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(%error, file = STATE_FILE, "Cannot write down when a shutdown was"),
            Err(_) => warn!(file = STATE_FILE, "The disk does not take when a shutdown was"),
        }
    }
}

/// What is listened to while pods end.
struct Listener<'a> {
    /// Nothing once it has ended.
    session: Option<&'a mut (dyn Session + 'a)>,
    news: StatusNews,
    mirrors: watch::Receiver<ServerMirrors>,
    /// Whether the API server knows why the node is not ready.
    told: watch::Receiver<Option<bool>>,
}

impl Listener<'_> {
    /// Waits until pods are shown otherwise, here or at the API server, the machine stays up, or the time has come.
    async fn wait(&mut self, until: Instant) -> Waited {
        loop {
            let said = async {
                match &mut self.session {
                    Some(session) => session.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                said = said => match said {
                    Some(true) => {}
                    Some(false) => return Waited::Cancelled,
                    None => self.session = None,
                },
                _ = self.news.next() => return Waited::News,
                Ok(()) = self.mirrors.changed() => return Waited::News,
                Ok(()) = self.told.changed() => return Waited::News,
                () = sleep_until(until) => return Waited::News,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_kept_as_upstream_keeps_them() {
        let kept = Kept { start_time: Some(Timestamp::constant(1_790_000_000, 500_000_000)), end_time: None };
        let text = r#"{"startTime":"2026-09-21T14:13:20.5Z","endTime":"0001-01-01T00:00:00Z"}"#;
        assert_eq!(serde_json::to_string(&kept).unwrap(), text);
        let read: Kept = serde_json::from_str(text).unwrap();
        assert_eq!((read.start_time, read.end_time), (kept.start_time, None));
        // Upstream's have a time zone.
        let zoned =
            r#"{"startTime":"2026-09-21T16:13:20.5+02:00","endTime":"2026-09-21T16:13:21.123456789+02:00"}"#;
        let read: Kept = serde_json::from_str(zoned).unwrap();
        assert_eq!(read.start_time, kept.start_time);
        assert_eq!(read.end_time, Some(Timestamp::constant(1_790_000_001, 123_456_789)));
    }
}
