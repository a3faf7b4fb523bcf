//! The observer: what happens to the sandboxes and containers of pods, as one stream of events (upstream's PLEG).
//!
//! ```text
//!   hints of a stream ──► looks: one per ID ──► status reads ──┐
//!                              ▲                               ├──► table ──► events ──► mpsc
//!   timer ──► relist ──────────┴── containers that ended ──────┘                 status ──► watch
//! ```
//!
//! - [`sources`]: CRI's stream, else containerd's, else none.
//! - [`looks`]: which IDs to read, and until when: a hint is a reason to look, not a state to believe.
//! - [`relists`]: the safety net; with no stream, the only source.
//! - [`table`]: what is known, and what follows from an answer.
//!
//! All of it is one task without locks, and on paused time it replays.

mod event;
mod looks;
mod metrics;
mod relists;
mod sources;
mod status;
mod table;

use std::collections::VecDeque;
use std::sync::Arc;

use crablet_cri_api::{ContainerStatus, SandboxStatus};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use crate::error::{Error, Result};
use crate::runtime::{Hint, HintKind, Runtime};
use looks::{Looks, Seen, Stage, Verdict};
use relists::{Listed, Relists};
use sources::{Sources, StreamEvent};

pub use event::{Event, EventKind, Exit};
pub use metrics::Metrics;
pub use status::{Relist, Source, Status};
pub use table::{Found, Moment, State, Table};

/// How many events wait for a slow reader. Further ones wait here, and nothing is read until they are taken.
const EVENTS_WAITING: usize = 64;

/// Observes a runtime for as long as [`Observer::run`] is polled.
pub struct Observer {
    runtime: Arc<dyn Runtime>,
    sources: Sources,
    relists: Relists,
    looks: Looks,
    reads: FuturesUnordered<BoxFuture<'static, Answer>>,
    table: Table,
    found: Found,
    /// What could not be handed over yet.
    waiting: VecDeque<Event>,
    events: mpsc::Sender<Event>,
    status: watch::Sender<Status>,
    /// Whether the log has a source.
    is_announced: bool,
    counted: Option<Counted>,
}

/// Where what happens is counted, and when.
struct Counted {
    metrics: Metrics,
    /// The time since 1970.
    clock: Box<dyn Fn() -> f64 + Send>,
    last_relist: Option<Instant>,
}

/// What a read of one ID gave.
struct Answer {
    id: Arc<str>,
    moment: Moment,
    result: Result<Read>,
}

enum Read {
    Container(Box<ContainerStatus>),
    Sandbox(Box<SandboxStatus>),
    Absent,
}

impl Observer {
    /// An observer of a runtime, what it tells, and how it is. It does nothing until it is run.
    pub fn new(runtime: Arc<dyn Runtime>) -> (Observer, mpsc::Receiver<Event>, watch::Receiver<Status>) {
        let (events, receiver) = mpsc::channel(EVENTS_WAITING);
        let (status, status_receiver) = watch::channel(Status::default());
        let now = Instant::now();
        let observer = Observer {
            sources: Sources::new(Arc::clone(&runtime), now),
            relists: Relists::new(now),
            looks: Looks::default(),
            reads: FuturesUnordered::new(),
            table: Table::default(),
            found: Found::default(),
            waiting: VecDeque::new(),
            is_announced: false,
            counted: None,
            runtime,
            events,
            status,
        };
        (observer, receiver, status_receiver)
    }

    /// Has it counted. The clock gives the seconds since 1970.
    #[must_use]
    pub fn counted_in(self, metrics: Metrics, clock: impl Fn() -> f64 + Send + 'static) -> Observer {
        Observer { counted: Some(Counted { metrics, clock: Box::new(clock), last_relist: None }), ..self }
    }

    /// Observes until nobody takes events any more.
    pub async fn run(mut self) {
        loop {
            self.begin_what_is_due();
            let wake_up = self.next_due();
            // In this order: what is told makes room first, and a stream is asked for before the relist that follows it.
            tokio::select! {
                biased;
                is_open = has_room(&self.events), if !self.waiting.is_empty() => if !is_open { return },
                () = self.events.closed(), if self.waiting.is_empty() => return,
                Some(answer) = self.reads.next() => self.answered(answer),
                told = self.sources.next() => self.told(told),
                listed = self.relists.next() => self.listed(listed),
                () = at(wake_up) => {}
            }
            self.hand_over();
        }
    }

    /// Begins every read, relist and attempt that is due. Nothing is read while what was found before waits for its
    /// reader: hints merge meanwhile.
    fn begin_what_is_due(&mut self) {
        let now = Instant::now();
        if self.sources.open_if_due(now) {
            self.opened();
        }
        if self.sources.try_if_due(now) {
            self.relists.demand(now);
        }
        if !self.waiting.is_empty() {
            return;
        }
        while let Some(id) = self.looks.next(now) {
            let moment = self.table.begin();
            let known = self.table.state(&id);
            self.reads.push(read(Arc::clone(&self.runtime), id, known, moment).boxed());
        }
        if self.relists.next_due().is_some_and(|due| due <= now) {
            let moment = self.table.begin();
            self.relists.begin(&self.runtime, moment, now);
            self.sources.relist_begins();
        }
    }

    fn next_due(&self) -> Option<Instant> {
        let own = self.sources.next_due();
        if !self.waiting.is_empty() {
            return own;
        }
        [own, self.looks.next_due(), self.relists.next_due()].into_iter().flatten().min()
    }

    fn told(&mut self, told: StreamEvent) {
        let now = Instant::now();
        match told {
            StreamEvent::Hint(hint) => self.hinted(&hint),
            StreamEvent::Opened(hint) => {
                if let Some(counted) = &self.counted {
                    counted.metrics.connected();
                }
                self.opened();
                if let Some(hint) = hint {
                    self.hinted(&hint);
                }
            }
            StreamEvent::Broke(reason) => {
                warn!(%reason, "The runtime's event stream broke: relisting each second until it is back");
                self.relists.demand(now);
                self.publish_source(|status| status.last_error = Some(reason));
            }
            StreamEvent::Refused { was_last: false } => {
                self.count_refusal();
                self.relists.demand(now);
            }
            StreamEvent::Refused { was_last: true } => {
                self.count_refusal();
                let source = self.sources.in_use();
                let why_not_better = self.sources.why_not_better();
                if self.is_announced {
                    debug!(%source, ?why_not_better, "No better source of runtime events");
                } else {
                    self.announce();
                }
                self.publish_source(|_| ());
            }
        }
    }

    fn count_refusal(&self) {
        if let Some(counted) = &self.counted {
            counted.metrics.not_connected();
        }
    }

    /// A stream is open. The relists that follow close the gap between its being asked for and its being there: a runtime
    /// that has much to do may take the request later than the first of them.
    fn opened(&mut self) {
        self.relists.some_more(Instant::now());
        self.announce();
        self.publish_source(|status| status.last_error = None);
    }

    fn announce(&mut self) {
        self.is_announced = true;
        let source = self.sources.in_use();
        let why_not_better = self.sources.why_not_better();
        if why_not_better.is_empty() {
            info!(%source, "Source of runtime events");
        } else {
            info!(%source, ?why_not_better, "Source of runtime events");
        }
    }

    fn hinted(&mut self, hint: &Hint) {
        let now = Instant::now();
        if let (Some(counted), Some(at)) = (&self.counted, hint.at) {
            counted.metrics.heard((counted.clock)() - at as f64 / 1e9);
        }
        if !self.looks.hint(&hint.id, hint.kind, now) {
            debug!(id = hint.id, "Too many hints of the runtime at once: relisting");
            self.relists.some_more(now);
        }
    }

    /// Takes in a status, or that there is none.
    fn answered(&mut self, Answer { id, moment, result }: Answer) {
        let (table, found) = (&mut self.table, &mut self.found);
        let mut failure = None;
        let seen = match result {
            Ok(Read::Container(status)) => {
                let state = State::Container(status.state);
                let out_of_memory = self.looks.is_out_of_memory(&id);
                if table.read_container(moment, &status, out_of_memory, found) {
                    Seen::There(state)
                } else {
                    Seen::NotOurs
                }
            }
            Ok(Read::Sandbox(status)) => {
                let state = State::Sandbox(status.state);
                if table.read_sandbox(moment, &status, found) { Seen::There(state) } else { Seen::NotOurs }
            }
            Ok(Read::Absent) => {
                let was_known = table.is_known(&id);
                let is_gone = table.read_absent(moment, &id, self.looks.is_removed(&id), found);
                match (is_gone, was_known) {
                    (false, _) => Seen::TooEarly,
                    (true, true) => Seen::Gone,
                    (true, false) => Seen::Absent,
                }
            }
            Err(error) => {
                failure = Some(error);
                Seen::Failed
            }
        };
        table.end(moment);
        let now = Instant::now();
        match self.looks.finish(&id, seen, now) {
            Verdict::Again | Verdict::Done { out_of_memory: false } => {}
            Verdict::Done { out_of_memory: true } => self.table.out_of_memory(&id, &mut self.found),
            Verdict::GivenUp { wanted, out_of_memory } => {
                if out_of_memory {
                    self.table.out_of_memory(&id, &mut self.found);
                }
                self.given_up(&id, wanted, seen, failure);
            }
        }
    }

    fn given_up(&mut self, id: &str, wanted: Stage, seen: Seen, failure: Option<Error>) {
        match failure {
            Some(error) => {
                warn!(id, %error, "Cannot read what a hint of the runtime was about: left to the next relist");
                self.relists.demand(Instant::now());
            }
            // It was never there: a sandbox that failed to start, or somebody else's.
            None if seen == Seen::Absent => debug!(id, "The runtime does not have what its hint was about"),
            None => {
                warn!(
                    id,
                    ?wanted,
                    ?seen,
                    "The runtime does not agree with its own hint: left to the next relist"
                );
            }
        }
    }

    fn listed(&mut self, Listed { moment, began, lists }: Listed) {
        let now = Instant::now();
        let was_failing = self.relists.is_failing();
        match lists {
            Ok((sandboxes, containers)) => {
                if let Some(counted) = &mut self.counted {
                    counted.metrics.relists(counted.last_relist.map(|last| began.duration_since(last)));
                    counted.last_relist = Some(began);
                    counted.metrics.relisted(now.duration_since(began), &sandboxes, &containers);
                    counted.metrics.seen((counted.clock)());
                }
                self.table.relist(moment, &sandboxes, &containers, &mut self.found);
                self.sources.relist_succeeded(now);
                // An end whose status cannot be read is in each list again, and no news.
                if !self.found.events.is_empty()
                    && let Some(broke) = self.sources.relist_found(began)
                {
                    self.told(broke);
                }
                self.relists.succeeded(self.sources.in_use() != Source::Relist, now);
                if was_failing {
                    info!("The container runtime can be listed again");
                    self.sources.try_now(now);
                }
                self.status.send_if_modified(|status| {
                    status.last_relist = Some(Relist { began, took: now.duration_since(began) });
                    status.not_listed = None;
                    if was_failing {
                        status.last_error = None;
                    }
                    // Nobody is woken each second for nothing else.
                    was_failing
                });
            }
            Err(error) => {
                self.sources.relist_failed();
                if self.relists.failed(now) {
                    warn!(%error, "Cannot list what the container runtime runs: nothing is declared dead");
                }
                self.status.send_modify(|status| {
                    status.last_error = Some(error.to_string().into());
                    status.not_listed = Some(error);
                });
            }
        }
        self.table.end(moment);
        for id in std::mem::take(&mut self.found.exited) {
            if !self.looks.hint(&id, HintKind::Stopped, now) {
                self.relists.some_more(now);
            }
        }
    }

    /// Hands over what was found, as far as there is room for it.
    fn hand_over(&mut self) {
        self.waiting.extend(self.found.events.drain(..));
        while let Some(event) = self.waiting.pop_front() {
            if let Err(mpsc::error::TrySendError::Full(event) | mpsc::error::TrySendError::Closed(event)) =
                self.events.try_send(event)
            {
                self.waiting.push_front(event);
                return;
            }
        }
    }

    /// Publishes which source is in use, and what else is to be said about that.
    fn publish_source(&self, change: impl FnOnce(&mut Status)) {
        self.status.send_modify(|status| {
            status.source = self.sources.in_use();
            status.why_not_better = self.sources.why_not_better();
            change(status);
        });
    }
}

/// Reads one ID. What is not known is read as a container first, and then as a sandbox.
async fn read(runtime: Arc<dyn Runtime>, id: Arc<str>, known: Option<State>, moment: Moment) -> Answer {
    let result = match known {
        Some(State::Container(_)) => container(&*runtime, &id).await,
        Some(State::Sandbox(_)) => sandbox(&*runtime, &id).await,
        None => match container(&*runtime, &id).await {
            Ok(Read::Absent) => sandbox(&*runtime, &id).await,
            answer => answer,
        },
    };
    Answer { id, moment, result }
}

async fn container(runtime: &dyn Runtime, id: &str) -> Result<Read> {
    match runtime.container_status(id).await {
        Ok(status) => Ok(Read::Container(Box::new(status))),
        Err(error) if error.is_not_found() => Ok(Read::Absent),
        Err(error) => Err(error),
    }
}

async fn sandbox(runtime: &dyn Runtime, id: &str) -> Result<Read> {
    match runtime.sandbox_status(id).await {
        Ok(status) => Ok(Read::Sandbox(Box::new(status))),
        Err(error) if error.is_not_found() => Ok(Read::Absent),
        Err(error) => Err(error),
    }
}

/// Waits for room for an event; false when nobody takes any. We are the only sender: the room stays.
async fn has_room(events: &mpsc::Sender<Event>) -> bool {
    events.reserve().await.is_ok()
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
