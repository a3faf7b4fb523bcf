//! [`Changes`]: what happened to the pods of a node, in order, for the one who acts on it.

use std::fmt;
use std::sync::Arc;

use crablet_api::core::Pod;
use tokio::sync::{mpsc, watch};

/// What happened to a pod. It carries the source's annotation, the time it was first seen, and all that its source
/// says of it.
#[derive(Clone, PartialEq)]
pub enum Change {
    /// It is new.
    Add(Arc<Pod>),
    /// Its spec, its labels or its annotations changed.
    Update(Arc<Pod>),
    /// Its source does not want it any more.
    Remove(Arc<Pod>),
    /// It is to be deleted gracefully, or with another grace period than was said before.
    Delete(Arc<Pod>),
    /// Its source has another idea of its status than before.
    Reconcile(Arc<Pod>),
}

impl Change {
    pub fn pod(&self) -> &Arc<Pod> {
        match self {
            Change::Add(pod)
            | Change::Update(pod)
            | Change::Remove(pod)
            | Change::Delete(pod)
            | Change::Reconcile(pod) => pod,
        }
    }

    /// Upstream's word for what happened.
    pub fn word(&self) -> &'static str {
        match self {
            Change::Add(_) => "ADD",
            Change::Update(_) => "UPDATE",
            Change::Remove(_) => "REMOVE",
            Change::Delete(_) => "DELETE",
            Change::Reconcile(_) => "RECONCILE",
        }
    }
}

/// Without the pod's content, which may hold secrets.
impl fmt::Debug for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pod = self.pod().identity();
        write!(formatter, "{} {pod}({})", self.word(), pod.uid)
    }
}

/// What goes through the channel.
pub(super) enum Message {
    Change(Change),
    /// All that the sources wanted when they were first heard has been sent.
    Ready,
}

/// The receiving end of the changes.
pub struct Changes {
    messages: mpsc::Receiver<Message>,
    ready: watch::Sender<bool>,
}

impl Changes {
    /// A channel that holds as many changes as `bound`; who sends more waits.
    pub(super) fn channel(bound: usize) -> (mpsc::Sender<Message>, Changes) {
        let (sender, messages) = mpsc::channel(bound);
        (sender, Changes { messages, ready: watch::Sender::new(false) })
    }

    /// The next change, or nothing when there will be none any more. A call that is given up loses nothing.
    ///
    /// Who comes back for the next change is taken to have dealt with those before it: when these were all that the
    /// sources wanted at first, the sources are ready from here on.
    pub async fn next(&mut self) -> Option<Change> {
        loop {
            match self.messages.recv().await? {
                Message::Change(change) => return Some(change),
                Message::Ready => {
                    self.ready.send_replace(true);
                }
            }
        }
    }

    /// A handle that knows whether all sources were heard.
    pub fn sources_ready(&self) -> SourcesReady {
        SourcesReady(self.ready.subscribe())
    }
}

/// Whether every configured source has been heard once, and what it wanted was taken from [`Changes`]. Before that,
/// a pod that nobody wants may just not have been asked for yet, and must be left alone.
#[derive(Clone)]
pub struct SourcesReady(watch::Receiver<bool>);

impl SourcesReady {
    /// Whether they are, now. Once they are, they stay so.
    pub fn is_ready(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until they are. Where that cannot happen any more, because the sources ended before, it waits forever.
    pub async fn ready(&mut self) {
        if self.0.wait_for(|ready| *ready).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
