//! Whose a name is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::PluginType;
use super::version::Version;

type Key = (PluginType, String);

/// The names that are taken. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Claims {
    taken: Arc<Mutex<BTreeMap<Key, Holder>>>,
    released: Arc<Notify>,
}

/// Who has a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) socket: PathBuf,
    pub(super) version: Option<Version>,
}

/// A name for as long as it is held. Who speaks a higher version than its holder may take it, and has it when that has
/// worked.
pub(super) struct Claim {
    claims: Claims,
    key: Key,
    holder: Holder,
}

impl Claims {
    /// Takes a name, or begins to take it from somebody who speaks a lower version, or tells who has it.
    pub(super) fn take(
        &self,
        kind: PluginType,
        name: &str,
        socket: &Path,
        version: Option<&Version>,
    ) -> Result<Claim, Holder> {
        let key = (kind, name.to_owned());
        let mut taken = self.lock();
        let holder = Holder { socket: socket.to_owned(), version: version.cloned() };
        match taken.get(&key) {
            Some(other) if other.version >= holder.version => return Err(other.clone()),
            Some(_) => {}
            None => drop(taken.insert(key.clone(), holder.clone())),
        }
        Ok(Claim { claims: self.clone(), key, holder })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Holder>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until somebody lets go of a name.
    pub(super) async fn released(&self) {
        self.released.notified().await;
    }
}

impl Claim {
    pub(super) fn kind(&self) -> PluginType {
        self.key.0
    }

    pub(super) fn name(&self) -> &str {
        &self.key.1
    }

    /// Has the name from here on, whoever had it.
    pub(super) fn hold(&self) {
        self.claims.lock().insert(self.key.clone(), self.holder.clone());
    }

    /// Whether nobody else has taken the name meanwhile.
    pub(super) fn is_held(&self) -> bool {
        self.claims.lock().get(&self.key) == Some(&self.holder)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut taken = self.claims.lock();
        if taken.get(&self.key) != Some(&self.holder) {
            return;
        }
        taken.remove(&self.key);
        drop(taken);
        self.claims.released.notify_waiters();
    }
}
