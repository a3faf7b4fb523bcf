//! Whether the runtime can run containers and give pods a network, and the machine stays up.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crablet_cri::Runtime;
use crablet_cri_api::Condition;
use crablet_host::clock::Clock;
use tokio::sync::{Notify, watch};
use tracing::{info, warn};

use crate::node_facts::LiveFacts;

/// How often a runtime that is ready is asked.
const WHEN_READY: Duration = Duration::from_secs(10);
/// How often one that is not is asked.
const WHEN_NOT: Duration = Duration::from_secs(1);

/// Why a node is not ready, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// The runtime was not asked yet.
    #[error("container runtime status check may not have completed yet")]
    NotAsked,
    /// The runtime does not answer.
    #[error("container runtime is down: {0}")]
    Down(String),
    /// The runtime says so itself.
    #[error("container {what} not ready: {condition}=false reason:{reason} message:{message}")]
    Said {
        /// What is not ready.
        what: &'static str,
        /// The runtime's name for that.
        condition: &'static str,
        /// Why, in a word.
        reason: String,
        /// Why, in a sentence.
        message: String,
    },
}

/// What a node is ready for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    /// Whether it can run containers, else why not.
    pub runtime: Result<(), NotReady>,
    /// Whether it can give pods a network, else why not.
    pub network: Result<(), NotReady>,
    /// Whether the machine is about to be shut down.
    pub shuts_down: bool,
}

/// What the node is ready for now. Clones show the same. Those who wait for a change are woken in the order in which
/// they began to, so that a simulated run replays.
#[derive(Debug, Clone)]
pub struct Readiness(Arc<Board>);

#[derive(Debug)]
struct Board {
    ready: Mutex<Ready>,
    news: Notify,
    told: watch::Sender<Option<bool>>,
}

/// What a runtime says of itself.
struct Said {
    runtime: Result<(), NotReady>,
    network: Result<(), NotReady>,
}

impl Readiness {
    /// A readiness, and the task that keeps it true, and what is known of what the runtime can do.
    pub fn watch(
        runtime: Arc<dyn Runtime>,
        facts: LiveFacts,
        clock: Clock,
    ) -> (Readiness, impl Future<Output = ()> + Send) {
        let unknown = Err(NotReady::NotAsked);
        let ready = Mutex::new(Ready { runtime: unknown.clone(), network: unknown, shuts_down: false });
        let readiness =
            Readiness(Arc::new(Board { ready, news: Notify::new(), told: watch::Sender::new(None) }));
        (readiness.clone(), keep_asking(runtime, facts, clock, readiness))
    }

    pub fn now(&self) -> Ready {
        self.ready().clone()
    }

    /// Waits until it is something else than `seen`.
    pub async fn other_than(&self, seen: &Ready) {
        loop {
            let news = self.0.news.notified();
            if *self.ready() != *seen {
                return;
            }
            news.await;
        }
    }

    /// What was told to an API server of shutdowns of the machine: whether it is about to be shut down; nothing where
    /// nobody is told.
    pub(crate) fn told(&self) -> watch::Receiver<Option<bool>> {
        self.0.told.subscribe()
    }

    /// An API server knows that the machine is about to be shut down, or does not know it.
    pub fn is_told(&self, shuts_down: bool) {
        self.0.told.send_if_modified(|told| told.replace(shuts_down) != Some(shuts_down));
    }

    /// The machine is about to be shut down, or not any more.
    pub(crate) fn is_shutting_down(&self, shuts_down: bool) {
        if std::mem::replace(&mut self.ready().shuts_down, shuts_down) != shuts_down {
            self.0.news.notify_waiters();
        }
    }

    /// The runtime says this of itself. Of the machine it knows nothing.
    fn tell(&self, said: Said) {
        let mut ready = self.ready();
        if (&ready.runtime, &ready.network) == (&said.runtime, &said.network) {
            return;
        }
        (ready.runtime, ready.network) = (said.runtime, said.network);
        mention(&ready);
        drop(ready);
        self.0.news.notify_waiters();
    }

    fn ready(&self) -> std::sync::MutexGuard<'_, Ready> {
        self.0.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn keep_asking(runtime: Arc<dyn Runtime>, facts: LiveFacts, clock: Clock, readiness: Readiness) {
    loop {
        let said = ask(&*runtime, &facts).await;
        let is_ready = said.runtime.is_ok() && said.network.is_ok();
        readiness.tell(said);
        tokio::time::sleep_until(clock.next_beat(if is_ready { WHEN_READY } else { WHEN_NOT })).await;
    }
}

/// Asks the runtime how it is. What it can do is known before it is known to be ready.
async fn ask(runtime: &dyn Runtime, facts: &LiveFacts) -> Said {
    match runtime.status().await {
        Ok(status) => {
            facts.tell_runtime(status.handlers, status.features);
            Said {
                runtime: said(status.runtime, "runtime", "RuntimeReady"),
                network: said(status.network, "runtime network", "NetworkReady"),
            }
        }
        Err(error) => {
            let reason = Err(NotReady::Down(error.to_string()));
            Said { runtime: reason.clone(), network: reason }
        }
    }
}

fn said(said: Condition, what: &'static str, condition: &'static str) -> Result<(), NotReady> {
    let Condition { ready, reason, message } = said;
    if ready { Ok(()) } else { Err(NotReady::Said { what, condition, reason, message }) }
}

fn mention(ready: &Ready) {
    match (&ready.runtime, &ready.network) {
        (Ok(()), Ok(())) => info!("Container runtime and network are ready"),
        (Err(reason), _) => warn!(%reason, "Container runtime is not ready: no container is started"),
        (Ok(()), Err(reason)) => {
            warn!(%reason, "Network is not ready: only pods on the host's network are started");
        }
    }
}
