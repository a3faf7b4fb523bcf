//! What simulated parts of the host have in common: state in memory, and a script of what goes wrong.
//!
//! The same calls in the same order always have the same outcome. Clones share one state, as two agents that run one
//! after the other share one disk.

use std::fmt::Debug;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// What goes wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails and has no effect.
    Fails(io::ErrorKind),
    /// It fails although it took effect.
    FailsAfterEffect(io::ErrorKind),
    /// The machine dies before it takes effect: the call never returns, nor does any other.
    CrashBeforeEffect,
    /// The machine dies after it took effect: the call never returns, nor does any other.
    CrashAfterEffect,
}

/// A part of the host in memory, with calls of the kinds `O`.
#[derive(Debug)]
pub(crate) struct Simulated<S, O> {
    shared: Arc<Shared<S, O>>,
}

#[derive(Debug)]
struct Shared<S, O> {
    inner: Mutex<Inner<S, O>>,
    crash: Notify,
}

#[derive(Debug)]
struct Inner<S, O> {
    state: S,
    planned: Vec<Planned<O>>,
    calls: Vec<O>,
    crashed: bool,
}

#[derive(Debug)]
struct Planned<O> {
    /// Only calls of this kind count; without, all do.
    operation: Option<O>,
    /// How many calls it lets pass.
    passes: usize,
    fault: Fault,
}

/// How a call goes on.
enum Outcome<T> {
    Returns(T),
    Never,
}

impl<S, O> Clone for Simulated<S, O> {
    fn clone(&self) -> Self {
        Simulated { shared: Arc::clone(&self.shared) }
    }
}

impl<S, O: Copy + Eq + Debug> Simulated<S, O> {
    pub(crate) fn new(state: S) -> Simulated<S, O> {
        let inner = Inner { state, planned: Vec::new(), calls: Vec::new(), crashed: false };
        Simulated { shared: Arc::new(Shared { inner: Mutex::new(inner), crash: Notify::new() }) }
    }

    /// Lets the nth call from now go wrong, counted from 1; of one kind, or of all.
    pub(crate) fn plan(&self, operation: Option<O>, nth: usize, fault: Fault) {
        let planned = Planned { operation, passes: nth.saturating_sub(1), fault };
        self.with(|inner| inner.planned.push(planned));
    }

    /// Whether the machine died.
    pub(crate) fn is_crashed(&self) -> bool {
        self.with(|inner| inner.crashed)
    }

    /// Completes when the machine dies.
    pub(crate) async fn crashed(&self) {
        loop {
            let crash = self.shared.crash.notified();
            if self.is_crashed() {
                return;
            }
            crash.await;
        }
    }

    /// Starts the machine again: what took effect is there, and calls return.
    pub(crate) fn restart(&self) {
        self.with(|inner| inner.crashed = false);
    }

    /// The calls so far that got as far as to be counted.
    pub(crate) fn calls(&self) -> Vec<O> {
        self.with(|inner| inner.calls.clone())
    }

    /// Looks at the state, or changes it from outside.
    pub(crate) fn state<T>(&self, look: impl FnOnce(&mut S) -> T) -> T {
        self.with(|inner| look(&mut inner.state))
    }

    /// A call with an effect on the state. It gives way once before, as a real one would.
    pub(crate) async fn call<T, E>(
        &self,
        operation: O,
        failed: impl FnOnce(io::Error) -> E,
        effect: impl FnOnce(&mut S) -> Result<T, E>,
    ) -> Result<T, E> {
        tokio::task::yield_now().await;
        let outcome = self.with(|inner| match (inner.crashed, inner.enter(operation)) {
            (true, _) => Outcome::Never,
            (false, None) => Outcome::Returns(effect(&mut inner.state)),
            (false, Some(Fault::Fails(kind))) => Outcome::Returns(Err(failed(kind.into()))),
            (false, Some(Fault::FailsAfterEffect(kind))) => {
                Outcome::Returns(effect(&mut inner.state).and_then(|_| Err(failed(kind.into()))))
            }
            (false, Some(Fault::CrashBeforeEffect)) => {
                inner.crashed = true;
                Outcome::Never
            }
            (false, Some(Fault::CrashAfterEffect)) => {
                let _ = effect(&mut inner.state);
                inner.crashed = true;
                Outcome::Never
            }
        });
        match outcome {
            Outcome::Returns(result) => result,
            Outcome::Never => {
                self.shared.crash.notify_waiters();
                std::future::pending().await
            }
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Inner<S, O>) -> T) -> T {
        work(&mut self.shared.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<S, O: Copy + Eq> Inner<S, O> {
    /// Counts a call and says what goes wrong with it.
    fn enter(&mut self, operation: O) -> Option<Fault> {
        if self.crashed {
            return None;
        }
        self.calls.push(operation);
        let mut due = None;
        for (index, planned) in self.planned.iter_mut().enumerate() {
            if planned.operation.is_some_and(|only| only != operation) {
                continue;
            }
            match planned.passes.checked_sub(1) {
                Some(passes) => planned.passes = passes,
                None => due = due.or(Some(index)),
            }
        }
        due.map(|index| self.planned.remove(index).fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Kind {
        Add,
        Get,
    }

    async fn add(counter: &Simulated<u32, Kind>) -> io::Result<u32> {
        let effect = |state: &mut u32| {
            *state += 1;
            Ok(*state)
        };
        counter.call(Kind::Add, |error| error, effect).await
    }

    async fn get(counter: &Simulated<u32, Kind>) -> io::Result<u32> {
        counter.call(Kind::Get, |error| error, |state| Ok(*state)).await
    }

    #[tokio::test]
    async fn the_nth_call_fails_and_only_that() {
        let counter = Simulated::new(0);
        counter.plan(None, 2, Fault::Fails(io::ErrorKind::StorageFull));
        counter.plan(Some(Kind::Add), 3, Fault::FailsAfterEffect(io::ErrorKind::TimedOut));
        assert_eq!(add(&counter).await.unwrap(), 1);
        assert_eq!(get(&counter).await.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(add(&counter).await.unwrap(), 2);
        assert_eq!(add(&counter).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(get(&counter).await.unwrap(), 3);
        assert_eq!(counter.calls(), [Kind::Add, Kind::Get, Kind::Add, Kind::Add, Kind::Get]);
    }

    #[tokio::test]
    async fn after_a_crash_nothing_returns_until_the_restart() {
        for (fault, expected) in [(Fault::CrashBeforeEffect, 0), (Fault::CrashAfterEffect, 1)] {
            let counter = Simulated::new(0);
            counter.plan(None, 1, fault);
            tokio::select! {
                biased;
                _ = add(&counter) => panic!("returned"),
                () = counter.crashed() => {}
            }
            tokio::select! {
                biased;
                _ = get(&counter) => panic!("returned"),
                () = async { for _ in 0..10 { tokio::task::yield_now().await } } => {}
            }
            counter.restart();
            assert_eq!(get(&counter).await.unwrap(), expected);
        }
    }
}
