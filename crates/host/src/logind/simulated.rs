//! A logind in memory, for tests of those who listen to it.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use crablet_dbus::Error;
use tokio::sync::Notify;

use super::{InhibitLock, Logind, LogindError, Session};

/// A logind in memory. Clones are the same one, so that an agent that starts again finds what the one before it left.
#[derive(Debug, Clone, Default)]
pub struct SimulatedLogind(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Debug)]
struct State {
    longest_delay: Duration,
    /// Another file of the configuration comes after ours.
    is_stubborn: bool,
    /// Its configuration cannot be written.
    is_read_only: bool,
    /// Nobody who connects gets an answer.
    hangs: bool,
    /// All that was said: a shutdown begins, or does not come.
    said: Vec<bool>,
    locks: usize,
    is_away: bool,
    /// How often the bus went.
    gone: usize,
    connections: usize,
}

impl Default for State {
    fn default() -> State {
        State {
            longest_delay: Duration::from_secs(5),
            is_stubborn: false,
            is_read_only: false,
            hangs: false,
            said: Vec::new(),
            locks: 0,
            is_away: false,
            gone: 0,
            connections: 0,
        }
    }
}

impl State {
    fn is_shutting_down(&self) -> bool {
        self.said.last().copied().unwrap_or_default()
    }
}

impl SimulatedLogind {
    /// One that holds up a shutdown for five seconds, as logind does by default.
    pub fn new() -> SimulatedLogind {
        SimulatedLogind::default()
    }

    /// Tells that the machine is about to be shut down, or not any more.
    pub fn tell(&self, is_shutting_down: bool) {
        self.change(|state| state.said.push(is_shutting_down));
    }

    /// Ends the bus. Nobody can connect until it is back.
    pub fn leave(&self) {
        self.change(|state| (state.is_away, state.gone) = (true, state.gone + 1));
    }

    /// Has the bus come back.
    pub fn come_back(&self) {
        self.change(|state| state.is_away = false);
    }

    /// From now on the delay stays as it is, whatever is asked for.
    pub fn keep_delay(&self) {
        self.change(|state| state.is_stubborn = true);
    }

    /// From now on nobody can ask for another delay than this one.
    pub fn fix_delay(&self, delay: Duration) {
        self.change(|state| (state.longest_delay, state.is_read_only) = (delay, true));
    }

    /// Says whether those who connect from now on wait until this is over.
    pub fn hang(&self, hangs: bool) {
        self.change(|state| state.hangs = hangs);
    }

    /// The machine has begun anew.
    pub fn reboot(&self) {
        self.change(|state| state.said.clear());
    }

    /// How many locks are held.
    pub fn locks(&self) -> usize {
        self.state().locks
    }

    /// How often somebody has connected.
    pub fn connections(&self) -> usize {
        self.state().connections
    }

    /// For how long a shutdown may be held up.
    pub fn longest_delay(&self) -> Duration {
        self.state().longest_delay
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.state());
        self.0.news.notify_waiters();
        changed
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Logind for SimulatedLogind {
    async fn connect(&self) -> Result<Box<dyn Session>, LogindError> {
        loop {
            let news = self.0.news.notified();
            if !self.state().hangs {
                break;
            }
            news.await;
        }
        let mut state = self.state();
        if state.is_away {
            return Err(LogindError::Bus(Error::Closed(None)));
        }
        state.connections += 1;
        let (heard, gone) = (state.said.len(), state.gone);
        Ok(Box::new(SimulatedSession { logind: self.clone(), heard, gone }))
    }
}

struct SimulatedSession {
    logind: SimulatedLogind,
    /// How much of what was said it has heard.
    heard: usize,
    gone: usize,
}

impl SimulatedSession {
    fn state(&self) -> Result<MutexGuard<'_, State>, LogindError> {
        let state = self.logind.state();
        if state.gone == self.gone { Ok(state) } else { Err(LogindError::Bus(Error::Closed(None))) }
    }
}

#[async_trait]
impl Session for SimulatedSession {
    async fn longest_delay(&mut self) -> Result<Duration, LogindError> {
        Ok(self.state()?.longest_delay)
    }

    async fn set_longest_delay(&mut self, delay: Duration) -> Result<(), LogindError> {
        let mut state = self.state()?;
        if state.is_read_only {
            return Err(LogindError::Configure(io::ErrorKind::ReadOnlyFilesystem.into()));
        }
        if !state.is_stubborn {
            state.longest_delay = delay;
        }
        Ok(())
    }

    async fn inhibit(&mut self) -> Result<InhibitLock, LogindError> {
        let mut state = self.state()?;
        if state.is_shutting_down() {
            let name = "org.freedesktop.login1.OperationInProgress".to_owned();
            return Err(LogindError::Bus(Error::Failed { name, message: String::new() }));
        }
        state.locks += 1;
        Ok(InhibitLock::new(Held(self.logind.clone())))
    }

    async fn is_shutting_down(&mut self) -> Result<bool, LogindError> {
        Ok(self.state()?.is_shutting_down())
    }

    async fn next(&mut self) -> Option<bool> {
        let logind = self.logind.clone();
        loop {
            let news = logind.0.news.notified();
            {
                let state = logind.state();
                if state.gone != self.gone {
                    return None;
                }
                if let Some(said) = state.said.get(self.heard) {
                    self.heard += 1;
                    return Some(*said);
                }
            }
            news.await;
        }
    }
}

/// A lock that is held.
struct Held(SimulatedLogind);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.change(|state| state.locks -= 1);
    }
}
