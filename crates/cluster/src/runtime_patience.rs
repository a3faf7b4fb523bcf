//! A runtime that does not answer for a moment is not told of: who restarts it does not want every service to lose the
//! node's pods.

use std::time::Duration;

use crablet_agent::readiness::{NotReady, Ready};
use tokio::time::Instant;

/// For how long it may not answer, as upstream.
const MAY_BE_AWAY: Duration = Duration::from_secs(30);

/// What is known of the runtime, and what is told.
pub(crate) struct RuntimePatience {
    /// How it was when it answered last.
    answered: Ready,
    away_since: Option<Instant>,
}

impl RuntimePatience {
    pub(crate) fn new(now: Ready) -> RuntimePatience {
        RuntimePatience { answered: now, away_since: None }
    }

    /// What is told of it: how it was last, unless it does not answer for too long.
    pub(crate) fn told(&mut self, now: Ready) -> Ready {
        let Err(NotReady::Down(_)) = &now.runtime else {
            (self.answered, self.away_since) = (now.clone(), None);
            return now;
        };
        let since = *self.away_since.get_or_insert_with(Instant::now);
        let never_answered = matches!(self.answered.runtime, Err(NotReady::NotAsked));
        match never_answered || since.elapsed() < MAY_BE_AWAY {
            true => Ready { shuts_down: now.shuts_down, ..self.answered.clone() },
            false => Ready { network: self.answered.network.clone(), ..now },
        }
    }

    /// When it has not answered for too long, if that is yet to come.
    pub(crate) fn ends(&self) -> Option<Instant> {
        let at = self.away_since? + MAY_BE_AWAY;
        (at > Instant::now()).then_some(at)
    }
}
