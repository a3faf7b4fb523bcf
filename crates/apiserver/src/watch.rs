//! Following changes: a watch is a place in the list of changes, and what of it is wanted.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::resources::Resource;
use crate::selectors::Selection;
use crate::state::{ChangeKind, Key, State, Stored};
use crate::status::Refusal;
use crate::table::Form;

/// How often somebody who wants bookmarks gets one.
const BOOKMARK_EVERY: SignedDuration = SignedDuration::from_secs(60);

#[derive(Debug)]
pub struct Watch {
    resource: &'static Resource,
    /// Empty for all of them.
    namespace: String,
    selection: Selection,
    form: Form,
    /// All up to this version was told.
    revision: u64,
    /// What there is at the beginning, where that was asked for.
    initial: VecDeque<Arc<Stored>>,
    /// Whether the end of it is still to be told.
    tells_initial_end: bool,
    bookmarks: bool,
    next_bookmark: Timestamp,
    ends: Timestamp,
    /// Whether the columns of a table were told already.
    told_columns: bool,
    over: bool,
}

/// How a watch begins and what it is told.
#[derive(Debug)]
pub struct Beginning {
    pub namespace: String,
    pub selection: Selection,
    pub form: Form,
    pub from: From,
    pub bookmarks: bool,
    pub ends: Timestamp,
}

/// Where a watch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// After a version.
    Version(u64),
    /// With all that there is.
    Everything,
    /// With all that there is, and a bookmark at its end.
    EverythingWithEnd,
}

/// What came of asking a watch.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// A line for the client.
    Line(Vec<u8>),
    /// Nothing until something changes, or until then.
    Wait(Timestamp),
    /// It is over.
    End,
}

impl Watch {
    pub fn begin(
        state: &State,
        resource: &'static Resource,
        beginning: Beginning,
        now: Timestamp,
    ) -> Result<Watch, Refusal> {
        let Beginning { namespace, selection, form, from, bookmarks, ends } = beginning;
        let mut watch = Watch {
            resource,
            namespace,
            selection,
            form,
            revision: state.revision(),
            initial: VecDeque::new(),
            tells_initial_end: from == From::EverythingWithEnd,
            bookmarks,
            next_bookmark: now + BOOKMARK_EVERY,
            ends,
            told_columns: false,
            over: false,
        };
        match from {
            From::Version(revision) => {
                if state.changes_since(revision).is_err() {
                    return Err(too_old(revision, state));
                }
                watch.revision = revision;
            }
            From::Everything | From::EverythingWithEnd => {
                let namespace = Some(watch.namespace.as_str()).filter(|namespace| !namespace.is_empty());
                let all = state.list(resource, namespace);
                let wanted = all.filter(|(key, stored)| watch.selection.matches(key, stored));
                watch.initial = wanted.map(|(_, stored)| Arc::clone(stored)).collect();
            }
        }
        Ok(watch)
    }

    /// The next thing to tell, of what is on disk up to a version.
    pub fn next(&mut self, state: &State, durable: u64, now: Timestamp) -> Next {
        if self.over {
            return Next::End;
        }
        if let Some(stored) = self.initial.pop_front() {
            return Next::Line(self.line("ADDED", &stored, stored.revision, now));
        }
        if std::mem::take(&mut self.tells_initial_end) {
            return Next::Line(self.bookmark(json!({"k8s.io/initial-events-end": "true"}), now));
        }
        let Ok(changes) = state.changes_since(self.revision) else {
            self.over = true;
            let refusal = too_old(self.revision, state);
            return Next::Line(encoded(&json!({"type": "ERROR", "object": refusal.body()})));
        };
        let mut found = None;
        let mut seen = self.revision;
        for change in changes {
            if change.revision > durable {
                break;
            }
            seen = change.revision;
            if !self.is_about(&change.key) {
                continue;
            }
            let previous =
                change.previous.as_ref().filter(|stored| self.selection.matches(&change.key, stored));
            let matches = self.selection.matches(&change.key, &change.object);
            let kind = match (change.kind, previous.is_some(), matches) {
                (ChangeKind::Deleted, false, _) | (_, false, false) => continue,
                (ChangeKind::Deleted, true, _) | (_, true, false) => "DELETED",
                (_, false, true) => "ADDED",
                (_, true, true) => "MODIFIED",
            };
            // What left the selection is shown as it was last within it, with the version at which it left.
            let shown = if kind == "DELETED" && change.kind != ChangeKind::Deleted {
                previous.map(Arc::clone)
            } else {
                Some(Arc::clone(&change.object))
            };
            found = shown.map(|shown| (kind, shown, change.revision));
            break;
        }
        self.revision = seen;
        if let Some((kind, stored, revision)) = found {
            return Next::Line(self.line(kind, &stored, revision, now));
        }
        if now >= self.ends {
            self.over = true;
            return Next::End;
        }
        if self.bookmarks && now >= self.next_bookmark {
            self.next_bookmark = now + BOOKMARK_EVERY;
            return Next::Line(self.bookmark(Value::Null, now));
        }
        Next::Wait(if self.bookmarks { self.ends.min(self.next_bookmark) } else { self.ends })
    }

    fn is_about(&self, key: &Key) -> bool {
        key.resource == self.resource.key()
            && (self.namespace.is_empty() || *key.namespace == *self.namespace)
    }

    fn line(&mut self, kind: &str, stored: &Stored, revision: u64, now: Timestamp) -> Vec<u8> {
        // The object is JSON already, and most want it as it is.
        if revision == stored.revision && self.form.is_stored_as_is(self.resource) {
            let mut line = Vec::with_capacity(stored.encoded.len() + 64);
            line.extend_from_slice(b"{\"type\":\"");
            line.extend_from_slice(kind.as_bytes());
            line.extend_from_slice(b"\",\"object\":");
            line.extend_from_slice(&stored.json());
            line.extend_from_slice(b"}\n");
            return line;
        }
        let mut object = stored.decode();
        object["metadata"]["resourceVersion"] = revision.to_string().into();
        let with_columns = !std::mem::replace(&mut self.told_columns, true);
        let shown = self.form.show_one(self.resource, object, now, with_columns);
        encoded(&json!({"type": kind, "object": shown}))
    }

    fn bookmark(&mut self, annotations: Value, now: Timestamp) -> Vec<u8> {
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if !annotations.is_null() {
            metadata["annotations"] = annotations;
        }
        let bare = json!({
            "kind": self.resource.kind,
            "apiVersion": self.resource.api_version(),
            "metadata": metadata,
        });
        let with_columns = !std::mem::replace(&mut self.told_columns, true);
        let shown = self.form.bookmark(self.resource, bare, now, with_columns);
        encoded(&json!({"type": "BOOKMARK", "object": shown}))
    }
}

fn too_old(revision: u64, state: &State) -> Refusal {
    let oldest = state.changes_since(revision).err().map_or(0, |too_old| too_old.oldest);
    Refusal::expired(format!("too old resource version: {revision} ({oldest})"))
}

fn encoded(line: &Value) -> Vec<u8> {
    let mut line = serde_json::to_vec(line).unwrap_or_default();
    line.push(b'\n');
    line
}
