//! Doubts about a refusal: where only the node's labels speak against a pod, whoever bound it may have seen newer ones. The
//! node is read at the API server then, and its word is the last. Nobody else waits for that.

use super::{Admission, State};

/// Whether there may be doubts about what is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    First,
    Last,
}

impl Admission {
    /// Looks again for those in doubt, until it is dropped.
    pub(crate) async fn resolve_doubts(self) {
        loop {
            self.doubts.notified().await;
            // Who comes while the node is read may have been bound after it was.
            let doubted = self.doubted();
            if doubted.is_empty() {
                continue;
            }
            self.gate.facts.read_again().await;
            let mut books = self.books();
            for uid in doubted {
                if books.pods.get(&uid).is_some_and(|entry| matches!(entry.state, State::Doubted)) {
                    self.decide(&mut books, &uid, Word::Last);
                }
            }
            self.decide_resizes(&mut books);
            self.changes.notify_waiters();
        }
    }

    fn doubted(&self) -> Vec<String> {
        let books = self.books();
        let doubted = books.pods.iter().filter(|(_, entry)| matches!(entry.state, State::Doubted));
        doubted.map(|(uid, _)| uid.clone()).collect()
    }
}
