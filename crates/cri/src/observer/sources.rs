//! The streams of hints: which one is open, and when to try for a better one.
//!
//! A runtime does not say that a stream is open: it sends nothing at all before the first event. It does refuse at once
//! what it does not have. So a stream counts as open when it has not failed by the time a relist, which was asked for
//! after it, was answered, and a short time longer.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream::{BoxStream, StreamExt as _};
use tokio::time::Instant;

use super::status::Source;
use crate::error::Result;
use crate::runtime::{Hint, HintSource, Runtime};

const BEST_FIRST: [HintSource; 2] = [HintSource::Cri, HintSource::Containerd];

/// How long a refusal may take longer than a relist.
const GRACE: Duration = Duration::from_millis(100);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The least pause while there is a stream: then nothing wakes more often.
const LEAST_PAUSE_WITH_STREAM: Duration = Duration::from_secs(10);

/// Why a stream is of no more use, when it does not say so itself.
const ENDED: &str = "the stream ended";
const DEAF: &str = "the stream told nothing of what a relist found";

/// What the streams tell.
#[derive(Debug)]
pub(super) enum StreamEvent {
    /// Something happened.
    Hint(Hint),
    /// A stream counts as open, perhaps by its first hint.
    Opened(Option<Hint>),
    /// The stream in use broke. There is none now.
    Broke(Arc<str>),
    /// A stream that was tried for did not open; whether it was the last one to try for now.
    Refused { was_last: bool },
}

/// The streams.
pub(super) struct Sources {
    runtime: Arc<dyn Runtime>,
    open: Option<Stream>,
    attempt: Option<Attempt>,
    /// Why each of [`BEST_FIRST`] was refused when it was last tried for.
    refusals: [Option<Refusal>; BEST_FIRST.len()],
    pause: Duration,
    retry_at: Option<Instant>,
}

struct Stream {
    rank: usize,
    hints: BoxStream<'static, Result<Hint>>,
    since: Instant,
    /// Whether it told anything since the last relist that found something.
    has_told: bool,
}

struct Refusal {
    reason: Arc<str>,
    /// Whether the runtime does not have it, so that there is no use in asking again.
    is_final: bool,
}

struct Attempt {
    stream: Stream,
    /// Whether the relist under way was asked for after it.
    is_relisted: bool,
    /// When it counts as open, if nothing comes before that.
    opens_at: Option<Instant>,
}

impl Sources {
    pub(super) fn new(runtime: Arc<dyn Runtime>, now: Instant) -> Sources {
        Sources {
            runtime,
            open: None,
            attempt: None,
            refusals: Default::default(),
            pause: FIRST_PAUSE,
            retry_at: Some(now),
        }
    }

    pub(super) fn in_use(&self) -> Source {
        self.open.as_ref().map_or(Source::Relist, |open| Source::Stream(BEST_FIRST[open.rank]))
    }

    /// Why the sources that are better than the one in use are not.
    pub(super) fn why_not_better(&self) -> Vec<Arc<str>> {
        let better = &self.refusals[..self.best_open()];
        better.iter().flatten().map(|refusal| Arc::clone(&refusal.reason)).collect()
    }

    /// Tries for a stream if it is time to; whether it does. A relist must follow.
    pub(super) fn try_if_due(&mut self, now: Instant) -> bool {
        let is_due = self.attempt.is_none() && self.retry_at.is_some_and(|at| at <= now);
        if is_due {
            self.retry_at = None;
            self.try_for(0, now);
        }
        is_due
    }

    /// Tries again soon, since the runtime is back.
    pub(super) fn try_now(&mut self, now: Instant) {
        self.pause = FIRST_PAUSE;
        if self.open.is_none() {
            self.retry_at = Some(now);
        }
    }

    /// A relist is asked for, after everything that was polled before.
    pub(super) fn relist_begins(&mut self) {
        if let Some(attempt) = &mut self.attempt {
            attempt.is_relisted = true;
        }
    }

    /// The relist was answered.
    pub(super) fn relist_succeeded(&mut self, now: Instant) {
        if let Some(attempt) = &mut self.attempt
            && attempt.is_relisted
        {
            attempt.opens_at.get_or_insert(now + GRACE);
        }
    }

    /// A relist found what was not known. A stream that was open long before it and told nothing at all is one that the
    /// runtime has forgotten: it is given up.
    pub(super) fn relist_found(&mut self, began: Instant) -> Option<StreamEvent> {
        let open = self.open.as_mut()?;
        let is_deaf = !open.has_told && began.duration_since(open.since) >= LEAST_PAUSE_WITH_STREAM;
        open.has_told = false;
        if !is_deaf {
            return None;
        }
        // However long it lasted, it was of no use: the pause goes on growing.
        open.since = began;
        Some(self.broke(DEAF.into()))
    }

    /// The relist failed, which says nothing about a stream.
    pub(super) fn relist_failed(&mut self) {
        if let Some(attempt) = &mut self.attempt {
            attempt.is_relisted = false;
        }
    }

    /// When something is to be done here, unless a stream tells something.
    pub(super) fn next_due(&self) -> Option<Instant> {
        match &self.attempt {
            Some(attempt) => attempt.opens_at,
            None => self.retry_at,
        }
    }

    /// What is told next. Nothing is lost when this is dropped.
    pub(super) async fn next(&mut self) -> StreamEvent {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<StreamEvent> {
        if let Some(attempt) = &mut self.attempt
            && let Poll::Ready(item) = attempt.stream.hints.poll_next_unpin(context)
        {
            return Poll::Ready(self.attempt_told(item));
        }
        if let Some(open) = &mut self.open
            && let Poll::Ready(item) = open.hints.poll_next_unpin(context)
        {
            return Poll::Ready(match item {
                Some(Ok(hint)) => {
                    open.has_told = true;
                    StreamEvent::Hint(hint)
                }
                Some(Err(error)) => self.broke(error.to_string().into()),
                None => self.broke(ENDED.into()),
            });
        }
        Poll::Pending
    }

    /// Counts the stream that is tried for as open, if it is time to.
    pub(super) fn open_if_due(&mut self, now: Instant) -> bool {
        let is_due =
            self.attempt.as_ref().is_some_and(|attempt| attempt.opens_at.is_some_and(|at| at <= now));
        if is_due {
            self.opened(now);
        }
        is_due
    }

    fn attempt_told(&mut self, item: Option<Result<Hint>>) -> StreamEvent {
        let now = Instant::now();
        let refusal = match item {
            Some(Ok(hint)) => {
                self.opened(now);
                if let Some(open) = &mut self.open {
                    open.has_told = true;
                }
                return StreamEvent::Opened(Some(hint));
            }
            Some(Err(error)) => {
                Refusal { reason: error.to_string().into(), is_final: error.is_unsupported() }
            }
            None => Refusal { reason: ENDED.into(), is_final: false },
        };
        let Some(attempt) = self.attempt.take() else { return StreamEvent::Refused { was_last: true } };
        let rank = attempt.stream.rank;
        self.refusals[rank] = Some(refusal);
        let was_last = rank + 1 >= self.best_open();
        if was_last {
            self.retry_later(now);
        } else {
            self.try_for(rank + 1, now);
        }
        StreamEvent::Refused { was_last }
    }

    fn opened(&mut self, now: Instant) {
        if let Some(attempt) = self.attempt.take() {
            // What was said of this one, and of those that were tried for in its place, is over.
            self.refusals[attempt.stream.rank..].fill_with(|| None);
            self.open = Some(Stream { since: now, ..attempt.stream });
            self.retry_later(now);
        }
    }

    fn broke(&mut self, reason: Arc<str>) -> StreamEvent {
        let now = Instant::now();
        if let Some(open) = self.open.take()
            && now.duration_since(open.since) >= LONGEST_PAUSE
        {
            self.pause = FIRST_PAUSE;
        }
        if self.attempt.is_none() {
            self.retry_at = Some(now + self.pause);
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
        StreamEvent::Broke(reason)
    }

    fn try_for(&mut self, rank: usize, now: Instant) {
        let hints = self.runtime.hints(BEST_FIRST[rank]);
        let stream = Stream { rank, hints, since: now, has_told: false };
        self.attempt = Some(Attempt { stream, is_relisted: false, opens_at: None });
    }

    /// Sets when to try for what is better than the stream that is open, if any.
    fn retry_later(&mut self, now: Instant) {
        let better = &self.refusals[..self.best_open()];
        let is_hopeless =
            better.iter().all(|refusal| refusal.as_ref().is_some_and(|refusal| refusal.is_final));
        self.retry_at = match (&self.open, is_hopeless) {
            (Some(_), true) => None,
            (Some(_), false) => Some(now + self.pause.max(LEAST_PAUSE_WITH_STREAM)),
            (None, true) => Some(now + LONGEST_PAUSE),
            (None, false) => Some(now + self.pause),
        };
        if !is_hopeless {
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// The rank of the stream that is open; what is better has a lower one.
    fn best_open(&self) -> usize {
        self.open.as_ref().map_or(BEST_FIRST.len(), |open| open.rank)
    }
}
