//! Who dies, and at which step of what is done to volumes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crablet_agent::tasks::Watcher as _;
use tokio::sync::watch;

use super::driver::Process;
use crate::crash::Crash;
use crate::ledger::Ledger;

/// How long drivers that died are away.
const AWAY: Duration = Duration::from_secs(7);

/// Who may die.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    Agent,
    Drivers,
    /// With the agent, all that runs, and all that is mounted.
    Node,
}

/// Counts the steps of what is done to volumes, and ends somebody at one of them.
pub struct Deaths {
    ledger: Arc<Ledger>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    steps: u64,
    at: Option<(u64, Victim)>,
    agent: Weak<Crash>,
    drivers: Vec<watch::Sender<Process>>,
    node_is_dead: bool,
}

impl Deaths {
    pub fn new(ledger: Arc<Ledger>) -> Deaths {
        Deaths { ledger, state: Mutex::default() }
    }

    /// Lets somebody die at a step, counted from the beginning.
    pub fn at(&self, step: u64, victim: Victim) {
        self.state().at = Some((step, victim));
    }

    /// Lets somebody die so many steps from now.
    pub fn after(&self, steps: u64, victim: Victim) {
        let mut state = self.state();
        state.at = Some((state.steps + steps, victim));
    }

    /// Nobody dies any more.
    pub fn spare_all(&self) {
        self.state().at = None;
    }

    /// Whether somebody was to die and did not.
    pub fn is_due(&self) -> bool {
        self.state().at.is_some()
    }

    /// Whether the node has died, since this was asked last.
    pub fn take_node(&self) -> bool {
        std::mem::take(&mut self.state().node_is_dead)
    }

    pub(super) fn set_agent(&self, agent: &Arc<Crash>) {
        self.state().agent = Arc::downgrade(agent);
    }

    pub(super) fn set_drivers(&self, drivers: Vec<watch::Sender<Process>>) {
        self.state().drivers = drivers;
    }

    /// A step of the agent's. It is one of its life too.
    pub(super) fn agent_may_go_on(&self) -> bool {
        self.step();
        let agent = self.state().agent.upgrade();
        agent.is_some_and(|agent| agent.may_go_on())
    }

    /// A step, at which it may be somebody's turn.
    pub(super) fn step(&self) {
        let mut state = self.state();
        state.steps += 1;
        let steps = state.steps;
        let Some((_, victim)) = state.at.take_if(|(at, _)| *at <= steps) else { return };
        self.ledger.trace.note(format_args!("*** {victim:?} at step {steps} of storage"));
        let agent = state.agent.upgrade();
        match victim {
            Victim::Agent => {}
            Victim::Drivers => {
                for driver in &state.drivers {
                    driver.send_modify(Process::die);
                    let driver = driver.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(AWAY).await;
                        driver.send_modify(Process::come_back);
                    });
                }
                return;
            }
            Victim::Node => {
                state.node_is_dead = true;
                for driver in &state.drivers {
                    driver.send_modify(Process::die);
                    driver.send_modify(Process::come_back);
                }
            }
        }
        drop(state);
        if let Some(agent) = agent {
            agent.now();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
