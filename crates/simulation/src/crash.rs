//! Ends an agent at any of its steps.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crablet_agent::tasks::Watcher;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::ledger::Ledger;

/// So many steps without time passing are a circle.
const CIRCLE: u64 = 50_000;

/// Counts an agent's steps, and ends it at one of them.
pub struct Crash {
    ledger: Arc<Ledger>,
    steps: AtomicU64,
    at: AtomicU64,
    is_dead: AtomicBool,
    death: Notify,
    since: Mutex<(Instant, u64)>,
}

impl Crash {
    /// One for a new agent, which lives until told otherwise.
    pub fn new(ledger: Arc<Ledger>) -> Crash {
        Crash {
            ledger,
            steps: AtomicU64::new(0),
            at: AtomicU64::new(u64::MAX),
            is_dead: AtomicBool::new(false),
            death: Notify::new(),
            since: Mutex::new((Instant::now(), 0)),
        }
    }

    /// Lets the agent die at this step of its life, or at the next one if that has passed.
    pub fn at(&self, step: u64) {
        self.at.store(step, Ordering::Relaxed);
    }

    /// Lets the agent die now.
    pub fn now(&self) {
        self.is_dead.store(true, Ordering::Relaxed);
        self.death.notify_waiters();
    }

    /// How many steps it has taken.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Whether it died.
    pub fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Relaxed)
    }

    /// Waits until it dies.
    pub async fn death(&self) {
        loop {
            let death = self.death.notified();
            if self.is_dead() {
                return;
            }
            death.await;
        }
    }

    fn goes_in_circles(&self, steps: u64) -> bool {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        if since.0 != Instant::now() {
            *since = (Instant::now(), steps);
        }
        steps - since.1 > CIRCLE
    }
}

impl Watcher for Crash {
    fn may_go_on(&self) -> bool {
        if self.is_dead() {
            return false;
        }
        let step = self.steps.fetch_add(1, Ordering::Relaxed) + 1;
        if step >= self.at.load(Ordering::Relaxed) {
            self.ledger.trace.note(format_args!("*** the agent dies at its step {step}"));
            self.now();
            return false;
        }
        if self.goes_in_circles(step) {
            let what = format!("{CIRCLE} steps without time passing");
            self.ledger.broken(&mut self.ledger.state(), 12, what);
            self.now();
            return false;
        }
        true
    }

    fn has_gone_on(&self) {
        self.ledger.look();
    }
}
