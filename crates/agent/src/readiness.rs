//! Whether the runtime can run containers and give pods a network, and the machine stays up.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crablet_cri::Runtime;
use crablet_cri_api::Condition;
use tokio::sync::Notify;
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
}

impl Readiness {
    /// A readiness, and the task that keeps it true, and what is known of what the runtime can do.
    pub fn watch(
        runtime: Arc<dyn Runtime>,
        facts: LiveFacts,
    ) -> (Readiness, impl Future<Output = ()> + Send) {
        let unknown = Err(NotReady::NotAsked);
        let ready = Mutex::new(Ready { runtime: unknown.clone(), network: unknown, shuts_down: false });
        let readiness = Readiness(Arc::new(Board { ready, news: Notify::new() }));
        (readiness.clone(), keep_asking(runtime, facts, readiness))
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

    /// The machine is about to be shut down, or not any more.
    pub(crate) fn is_shutting_down(&self, shuts_down: bool) {
        if std::mem::replace(&mut self.ready().shuts_down, shuts_down) != shuts_down {
            self.0.news.notify_waiters();
        }
    }

    fn tell(&self, ready: Ready) {
        let ready = Ready { shuts_down: self.ready().shuts_down, ..ready };
        if *self.ready() == ready {
            return;
        }
        mention(&ready);
        *self.ready() = ready;
        self.0.news.notify_waiters();
    }

    fn ready(&self) -> std::sync::MutexGuard<'_, Ready> {
        self.0.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn keep_asking(runtime: Arc<dyn Runtime>, facts: LiveFacts, readiness: Readiness) {
    loop {
        let ready = ask(&*runtime, &facts).await;
        let is_ready = ready.runtime.is_ok() && ready.network.is_ok();
        readiness.tell(ready);
        tokio::time::sleep(if is_ready { WHEN_READY } else { WHEN_NOT }).await;
    }
}

/// Asks the runtime how it is. What it can do is known before it is known to be ready.
async fn ask(runtime: &dyn Runtime, facts: &LiveFacts) -> Ready {
    match runtime.status().await {
        Ok(status) => {
            facts.tell_runtime(status.handlers, status.features);
            Ready {
                runtime: said(status.runtime, "runtime", "RuntimeReady"),
                network: said(status.network, "runtime network", "NetworkReady"),
                shuts_down: false,
            }
        }
        Err(error) => {
            let reason = Err(NotReady::Down(error.to_string()));
            Ready { runtime: reason.clone(), network: reason, shuts_down: false }
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
