//! Whose a name is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

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

/// A name for as long as it is held.
pub(super) struct Claim {
    claims: Claims,
    key: Key,
}

impl Claims {
    /// Takes a name, or tells who has it.
    pub(super) fn take(
        &self,
        kind: PluginType,
        name: &str,
        socket: &Path,
        version: Option<&Version>,
    ) -> Result<Claim, Holder> {
        let key = (kind, name.to_owned());
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.get(&key) {
            Some(holder) => Err(holder.clone()),
            None => {
                let holder = Holder { socket: socket.to_owned(), version: version.cloned() };
                taken.insert(key.clone(), holder);
                Ok(Claim { claims: self.clone(), key })
            }
        }
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
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.taken.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
        self.claims.released.notify_waiters();
    }
}
