//! systemd's logind, which tells that the machine is about to be shut down, and holds that up for those who need time.

mod bus;
#[cfg(any(test, feature = "simulated"))]
mod simulated;

use std::io;
use std::time::Duration;

use async_trait::async_trait;

pub use bus::{Places, SystemLogind};
#[cfg(any(test, feature = "simulated"))]
pub use simulated::SimulatedLogind;

/// Who says that the machine is about to be shut down.
#[async_trait]
pub trait Logind: Send + Sync {
    /// Begins to listen: what is said from now on is not missed.
    async fn connect(&self) -> Result<Box<dyn Session>, LogindError>;
}

/// A time of listening. It ends when the bus goes.
#[async_trait]
pub trait Session: Send {
    /// For how long logind lets anybody hold up a shutdown.
    async fn longest_delay(&mut self) -> Result<Duration, LogindError>;

    /// Has logind allow for so much. It takes that in later.
    async fn set_longest_delay(&mut self, delay: Duration) -> Result<(), LogindError>;

    /// Holds up a shutdown, when there is one, for as long as the lock is there. A shutdown that has begun cannot be held
    /// up any more.
    async fn inhibit(&mut self) -> Result<InhibitLock, LogindError>;

    /// Whether the machine is about to be shut down.
    async fn is_shutting_down(&mut self) -> Result<bool, LogindError>;

    /// Waits until it is about to be shut down, or is not any more. Nothing when the session has ended. Dropping the
    /// future loses nothing.
    async fn next(&mut self) -> Option<bool>;
}

/// What holds up a shutdown until it is dropped.
pub struct InhibitLock(#[expect(dead_code, reason = "it holds by being there")] Box<dyn Send + Sync>);

impl InhibitLock {
    fn new(holds: impl Send + Sync + 'static) -> InhibitLock {
        InhibitLock(Box::new(holds))
    }
}

impl std::fmt::Debug for InhibitLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InhibitLock")
    }
}

/// Why logind could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum LogindError {
    /// The bus, or logind, does not answer, or says no.
    #[error("logind cannot be asked")]
    Bus(#[from] crablet_dbus::Error),
    /// It says something else than it should.
    #[error("logind does not say {0}")]
    Odd(&'static str),
    /// Its configuration could not be written.
    #[error("logind cannot be told how long a shutdown may be held up")]
    Configure(#[source] io::Error),
}

impl LogindError {
    /// Whether the session has ended, in which nothing can be asked any more.
    pub fn is_closed(&self) -> bool {
        matches!(self, LogindError::Bus(crablet_dbus::Error::Closed(_)))
    }
}
