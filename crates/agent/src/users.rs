//! Which users of the node belong to which pod that has its own: one owner, who writes it down before it is acted on.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crablet_core::user_ids::{RecordError, UserIds, record};
use crablet_cri_api::v1::IdMapping;

use crate::pod_files::PodFiles;

/// The owner. Clones are the same.
#[derive(Clone)]
pub struct Users {
    ids: Arc<Mutex<UserIds>>,
    files: Arc<dyn PodFiles>,
}

/// Why it cannot be told whose which users are. To go on would give them to two pods.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    /// What was written down of pods cannot be read.
    #[error("read pods from disk")]
    Disk(#[from] io::Error),
    /// What was written down of one cannot be.
    #[error("record pod mappings for existing pod {uid:?}")]
    Record {
        /// The pod.
        uid: String,
        /// Why.
        source: RecordError,
    },
}

impl Users {
    /// Goes on from what was written down of the pods that have directories.
    pub fn recall(mut ids: UserIds, files: Arc<dyn PodFiles>) -> Result<Users, UsersError> {
        for uid in files.pods()? {
            let Some(text) = files.users(&uid)?.filter(|text| !text.is_empty()) else { continue };
            ids.recall(&uid, &text).map_err(|source| UsersError::Record { uid, source })?;
        }
        Ok(Users { ids: Arc::new(Mutex::new(ids)), files })
    }

    /// The users and groups that are a pod's own; what it was given before, or others.
    pub fn of_pod(&self, uid: &str) -> Result<IdMapping, String> {
        let taken = {
            let mut ids = self.ids();
            match ids.of_pod(uid) {
                Some(known) => return Ok(known),
                None => ids.take(uid).map_err(|error| error.to_string())?,
            }
        };
        // Not under the lock: a disk that is slow for one pod holds up no other.
        match self.files.write_users(uid, &record(taken)) {
            Ok(()) => Ok(taken),
            Err(error) => {
                self.ids().release(uid);
                Err(error.to_string())
            }
        }
    }

    /// Takes back what a pod was given, once nothing of it runs.
    pub fn release(&self, uid: &str) -> io::Result<()> {
        if self.ids().of_pod(uid).is_some() {
            // What is still written down would be the pod's again after the agent's next start.
            self.files.remove_users(uid)?;
            self.ids().release(uid);
        }
        Ok(())
    }

    fn ids(&self) -> MutexGuard<'_, UserIds> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod_files::{Owner, Simulated};

    fn ids() -> UserIds {
        UserIds::new(Some((65536, 2 * 65536)), 65536, 2).unwrap()
    }

    fn recall(files: &Arc<Simulated>) -> Result<Users, UsersError> {
        Users::recall(ids(), Arc::clone(files) as _)
    }

    fn files(uids: &[&str]) -> Arc<Simulated> {
        let files = Arc::new(Simulated::new());
        for uid in uids {
            let owner = Owner { namespace: "ns".into(), name: (*uid).into(), uid: (*uid).into() };
            files.make_pod(&owner).unwrap();
        }
        files
    }

    #[test]
    fn a_pod_keeps_its_users_over_a_restart_and_gives_them_back_at_its_end() {
        let files = files(&["a", "b", "c"]);
        let users = recall(&files).unwrap();
        let (a, b) = (users.of_pod("a").unwrap(), users.of_pod("b").unwrap());
        assert_ne!(a.host_id, b.host_id);
        assert_eq!(users.of_pod("a").unwrap(), a);
        let next = recall(&files).unwrap();
        assert_eq!((next.of_pod("b").unwrap(), next.of_pod("a").unwrap()), (b, a));
        assert_eq!(
            next.of_pod("c").unwrap_err(),
            "could not find an empty slot to allocate a user namespace"
        );
        next.release("a").unwrap();
        assert_eq!(files.users("a").unwrap(), None);
        assert_eq!(next.of_pod("c").unwrap(), a);
    }

    #[test]
    fn what_could_not_be_written_down_is_nobodys() {
        let files = files(&["a"]);
        let users = recall(&files).unwrap();
        files.fail(0);
        assert_eq!(users.of_pod("a").unwrap_err(), "no storage space");
        assert!(users.of_pod("a").is_ok());
        files.fail(0);
        assert!(users.release("a").is_err());
        assert!(users.ids().of_pod("a").is_some(), "it is still written down");
        users.release("a").unwrap();
    }

    #[test]
    fn an_agent_that_cannot_tell_whose_users_are_whose_does_not_start() {
        let files = files(&["a"]);
        files.write_users("a", b"").unwrap();
        assert!(recall(&files).is_ok());
        files.write_users("a", b"{}").unwrap();
        let Err(error) = recall(&files) else { panic!("it starts") };
        assert_eq!(error.to_string(), "record pod mappings for existing pod \"a\"");
    }
}
