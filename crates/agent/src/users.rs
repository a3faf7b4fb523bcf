//! Which users of the node belong to which pod: one owner, who writes it down before anybody acts on it.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crablet_core::user_ids::{NoneLeft, RecordError, UserIds, record};
use crablet_cri_api::v1::IdMapping;

use crate::pod_files::PodFiles;

/// The owner. Clones are the same.
#[derive(Clone)]
pub struct Users {
    given: Arc<Mutex<Given>>,
    files: Arc<dyn PodFiles>,
}

struct Given {
    ids: UserIds,
    /// The pods whose users may not be written down yet: nobody else gets them, and nothing may stand on them.
    unwritten: BTreeSet<String>,
}

/// Why a pod gets no users of its own.
#[derive(Debug, thiserror::Error)]
pub enum NoUsers {
    /// There are none.
    #[error(transparent)]
    NoneLeft(#[from] NoneLeft),
    /// The record of them cannot be written.
    #[error(transparent)]
    Disk(#[from] io::Error),
}

/// Why it is not known which users belong to which pod. To go on would give them to two pods.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    /// The records of pods cannot be read.
    #[error("read pods from disk")]
    Disk(#[from] io::Error),
    /// The record of one pod cannot be right.
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
    pub async fn recall(mut ids: UserIds, files: Arc<dyn PodFiles>) -> Result<Users, UsersError> {
        for uid in files.pods().await? {
            let Some(text) = files.users(&uid).await?.filter(|text| !text.is_empty()) else { continue };
            ids.recall(&uid, &text).map_err(|source| UsersError::Record { uid, source })?;
        }
        let given = Given { ids, unwritten: BTreeSet::new() };
        Ok(Users { given: Arc::new(Mutex::new(given)), files })
    }

    /// The users and groups that are a pod's own; what it was given before, or others. They are written down when this
    /// returns. What could not be written down, or was given up, is the pod's all the same: something of it may be on
    /// disk.
    pub async fn of_pod(&self, uid: &str) -> Result<IdMapping, NoUsers> {
        let ids = {
            let Given { ids, unwritten } = &mut *self.given();
            match ids.of_pod(uid) {
                Some(known) if !unwritten.contains(uid) => return Ok(known),
                Some(known) => known,
                None => {
                    let taken = ids.take(uid)?;
                    unwritten.insert(uid.to_owned());
                    taken
                }
            }
        };
        self.files.write_users(uid, &record(ids)).await?;
        self.given().unwritten.remove(uid);
        Ok(ids)
    }

    /// Whether a pod has been given users of its own.
    pub(crate) fn has_own(&self, uid: &str) -> bool {
        self.given().ids.of_pod(uid).is_some()
    }

    /// Takes back what a pod was given, once nothing of it runs.
    pub async fn release(&self, uid: &str) -> io::Result<()> {
        let is_known = self.given().ids.of_pod(uid).is_some();
        if is_known {
            // What is still written down would be the pod's again after the agent's next start.
            self.files.remove_users(uid).await?;
            let Given { ids, unwritten } = &mut *self.given();
            ids.release(uid);
            unwritten.remove(uid);
        }
        Ok(())
    }

    fn given(&self) -> MutexGuard<'_, Given> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::pod_files::Simulated;
    use crablet_api::core::PodIdentity;

    fn ids() -> UserIds {
        UserIds::new(Some((65536, 2 * 65536)), 65536, 2).unwrap()
    }

    async fn recall(files: &Arc<Simulated>) -> Result<Users, UsersError> {
        Users::recall(ids(), Arc::clone(files) as _).await
    }

    async fn files(uids: &[&str]) -> Arc<Simulated> {
        let files = Arc::new(Simulated::new());
        for uid in uids {
            let owner = PodIdentity::new("ns", *uid, *uid);
            files.make_pod(&owner).await.unwrap();
        }
        files
    }

    #[tokio::test]
    async fn a_pod_keeps_its_users_over_a_restart_and_gives_them_back_at_its_end() {
        let files = files(&["a", "b", "c"]).await;
        let users = recall(&files).await.unwrap();
        let (a, b) = (users.of_pod("a").await.unwrap(), users.of_pod("b").await.unwrap());
        assert_ne!(a.host_id, b.host_id);
        assert_eq!(users.of_pod("a").await.unwrap(), a);
        let next = recall(&files).await.unwrap();
        assert_eq!((next.of_pod("b").await.unwrap(), next.of_pod("a").await.unwrap()), (b, a));
        let error = next.of_pod("c").await.unwrap_err();
        assert!(matches!(error, NoUsers::NoneLeft(_)));
        assert_eq!(error.to_string(), "could not find an empty slot to allocate a user namespace");
        next.release("a").await.unwrap();
        assert_eq!(files.users("a").await.unwrap(), None);
        assert_eq!(next.of_pod("c").await.unwrap(), a);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_stands_on_users_that_are_not_written_down_and_nobody_else_gets_them() {
        let files = files(&["a", "b"]).await;
        let users = recall(&files).await.unwrap();
        files.fail(0);
        assert_eq!(users.of_pod("a").await.unwrap_err().to_string(), "no storage space");
        files.slow_down("a", Duration::from_secs(2));
        assert!(tokio::time::timeout(Duration::from_secs(1), users.of_pod("a")).await.is_err());
        let b = users.of_pod("b").await.unwrap();
        assert_eq!(files.users("a").await.unwrap(), None);
        let a = users.of_pod("a").await.unwrap();
        assert_ne!(a.host_id, b.host_id);
        assert!(files.users("a").await.unwrap().is_some());
        files.fail(0);
        assert!(users.release("a").await.is_err());
        assert_eq!(users.of_pod("a").await.unwrap(), a, "it is still written down");
        users.release("a").await.unwrap();
    }

    #[tokio::test]
    async fn an_agent_that_cannot_tell_whose_users_are_whose_does_not_start() {
        let files = files(&["a"]).await;
        files.write_users("a", b"").await.unwrap();
        assert!(recall(&files).await.is_ok());
        files.write_users("a", b"{}").await.unwrap();
        let Err(error) = recall(&files).await else { panic!("it starts") };
        assert_eq!(error.to_string(), "record pod mappings for existing pod \"a\"");
    }
}
