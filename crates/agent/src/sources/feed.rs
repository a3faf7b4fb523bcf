//! [`Feed`]: how a source says what it wants.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crablet_api::Text;
use tokio::sync::Notify;

use super::{SourceKind, Wanted};

/// A source's way to say what it wants: always the whole set. What was said before and not looked at yet is
/// forgotten, so nothing piles up here, and saying it never waits.
pub struct Feed {
    kind: SourceKind,
    inbox: Arc<Inbox>,
}

impl Feed {
    /// The kind of source it belongs to.
    pub fn kind(&self) -> SourceKind {
        self.kind
    }

    /// Says that these are the pods that the source wants from now on, and no others.
    ///
    /// A pod that has not changed is best given as the same `Arc` again: then it is not compared field by field.
    pub fn set(&self, pods: Vec<Wanted>) {
        self.set_anew(pods, BTreeSet::new());
    }

    /// The same, where the source has had no pods of these UIDs in between: those that it wants now begin anew.
    pub fn set_anew(&self, pods: Vec<Wanted>, ended: BTreeSet<Text>) {
        self.say(Word { pods, ended, is_remembered: false });
    }

    /// Says which pods the source wanted when it was last heard, by an agent before this one. They may run, but the source
    /// was not heard by that: nobody is ended for not being among them.
    pub fn set_remembered(&self, pods: Vec<Wanted>) {
        self.say(Word { pods, ended: BTreeSet::new(), is_remembered: true });
    }

    fn say(&self, mut word: Word) {
        let mut words = self.inbox.lock();
        if let Some(earlier) = words.latest.remove(&self.kind) {
            word.ended.extend(earlier.ended);
        }
        words.latest.insert(self.kind, word);
        drop(words);
        self.inbox.news.notify_one();
    }
}

/// A source that ends leaves its pods as they are: it has nothing more to say about them.
impl Drop for Feed {
    fn drop(&mut self) {
        self.inbox.lock().open -= 1;
        self.inbox.news.notify_one();
    }
}

/// What a source says.
pub(super) struct Word {
    pub(super) pods: Vec<Wanted>,
    /// The UIDs of pods that it did not have in between.
    pub(super) ended: BTreeSet<Text>,
    /// Whether it is what it said to an agent before this one.
    pub(super) is_remembered: bool,
}

/// The latest word of each source.
#[derive(Default)]
pub(super) struct Inbox {
    words: Mutex<Words>,
    news: Notify,
}

#[derive(Default)]
struct Words {
    latest: BTreeMap<SourceKind, Word>,
    open: usize,
}

impl Inbox {
    pub(super) fn feed(self: &Arc<Inbox>, kind: SourceKind) -> Feed {
        self.lock().open += 1;
        Feed { kind, inbox: self.clone() }
    }

    /// The next word of a source, or nothing when all sources have ended.
    pub(super) async fn next(&self) -> Option<(SourceKind, Word)> {
        loop {
            {
                let mut words = self.lock();
                if let Some(word) = words.latest.pop_first() {
                    return Some(word);
                }
                if words.open == 0 {
                    return None;
                }
            }
            self.news.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Words> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
