//! Where pods come from, and how what the sources say becomes a stream of changes.
//!
//! ```text
//!  FileSource ──┐                                                ┌──► Changes (bounded): Add, Update, Remove,
//!  UrlSource  ──┤  Feed: the whole set,      PodConfig: compares │    Delete, Reconcile, one pod each
//!  Push       ──┼─ whenever it changes; ───► with what it had  ──┤
//!  (the API)  ──┘  the latest wins                               └──► SourcesReady: every source was heard once
//!       │
//!       └──► Problems: what is wrong with which manifest, once
//! ```
//!
//! A source says what it wants *now*, as a whole, through its [`Feed`]; it never says what changed. [`PodConfig`] is
//! the one place that compares, so every source gets the same treatment: a pod with another spec, labels or
//! annotations is updated, one with a deletion timestamp is deleted gracefully, one that is gone is removed.
//!
//! What an API server said to an agent before this one may be said for it ([`Feed::set_remembered`]) until it answers: such
//! pods run, and it counts as not heard.
//!
//! A pod that does not come from the API is a *static* one. [`StaticPods`] turns a manifest into it: its name gets
//! the node's, and its UID follows from what the manifest says, so that it is the same after a restart of the agent
//! and another one when the manifest changes.
//!
//! [`start`] does all of it from the configuration.

mod changes;
mod compare;
mod config;
mod feed;
mod file;
mod identity;
mod manifest;
mod problems;
mod push;
mod start;
mod storage;
mod url;

use std::fmt;
use std::sync::Arc;

use crablet_api::core::Pod;

pub use crablet_core::labels::{CONFIG_HASH, CONFIG_MIRROR, CONFIG_SEEN, CONFIG_SOURCE};

pub use changes::{Change, Changes, SourcesReady};
pub use compare::differ_semantically;
pub use config::{Owner, Owners, PodConfig};
pub use feed::Feed;
pub use file::FileSource;
pub use identity::StaticPods;
pub(crate) use identity::uid_error;
pub use problems::{Consequence, Problem, Problems};
pub use push::{Applied, ApplyError, DeleteError, Outcome, Push};
pub use start::{Settings, Sources, StartError, start};
pub use url::{TrustStore, UrlError, UrlSource};

/// What kind of source a pod comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceKind {
    /// Manifests on the node's disk.
    File,
    /// Manifests that a web server gives.
    Url,
    /// Manifests that were given to the agent itself and are kept by it.
    Push,
    /// The API server.
    Api,
}

impl SourceKind {
    /// The word in the pod's annotation. All but `push` are upstream's.
    pub const fn as_str(self) -> &'static str {
        match self {
            SourceKind::File => "file",
            SourceKind::Url => "http",
            SourceKind::Push => "push",
            SourceKind::Api => "api",
        }
    }

    /// The source that a pod's annotation names.
    pub fn of(pod: &Pod) -> Option<SourceKind> {
        let word = pod.metadata.annotations.get(CONFIG_SOURCE)?;
        [SourceKind::File, SourceKind::Url, SourceKind::Push, SourceKind::Api]
            .into_iter()
            .find(|kind| *word == kind.as_str())
    }

    /// Whether its pods are static: not known to an API server before the node runs them.
    pub const fn is_static(self) -> bool {
        match self {
            SourceKind::File | SourceKind::Url | SourceKind::Push => true,
            SourceKind::Api => false,
        }
    }
}

impl fmt::Display for SourceKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// A pod that a source wants, and where exactly it is asked for.
#[derive(Clone)]
pub struct Wanted {
    pub pod: Arc<Pod>,
    /// The file, the address or whatever else a person would look at to change it.
    pub origin: Arc<str>,
}

/// Without the pod's content, which may hold secrets.
impl fmt::Debug for Wanted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} from {}", self.pod.identity(), self.origin)
    }
}
