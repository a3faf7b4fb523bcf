//! How the observer is.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::Error;
use crate::runtime::HintSource;

/// How the observer is.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// Where it learns what happens.
    pub source: Source,
    /// Why not from a better source, one reason for each; empty when it is the best one.
    pub why_not_better: Vec<Arc<str>>,
    /// The last relist that succeeded. Nobody is told when that is another one, and nothing else.
    pub last_relist: Option<Relist>,
    /// Why the runtime cannot be listed, while it cannot.
    pub not_listed: Option<Error>,
    /// What went wrong last, and is not over.
    pub last_error: Option<Arc<str>>,
}

/// Where the observer learns what happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Source {
    /// From a stream, with a slow relist as the safety net.
    Stream(HintSource),
    /// By looking each second.
    #[default]
    Relist,
}

/// A relist that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relist {
    /// When it began: what happened before is known.
    pub began: Instant,
    /// How long it took.
    pub took: Duration,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Stream(HintSource::Cri) => "CRI's event stream",
            Source::Stream(HintSource::Containerd) => "containerd's event stream",
            Source::Relist => "a relist each second",
        })
    }
}
