//! Who uses what: the pods that have what is staged and published, and what nobody has any more.
//!
//! It is in memory alone, and read from the pods' directories when an agent begins. Who may have something counts as
//! having it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crablet_api::storage::VolumeLifecycleMode;
use tokio::time::Instant;

use super::staged::Staged;
use super::unstage::Retry;
use super::{block, vol_data};
use crate::machine::Machine;
use crate::places::Places;

/// Pods, called by their UIDs, and what they use.
#[derive(Default)]
pub(super) struct Uses(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// Who uses what is, or may be, staged.
    used: BTreeMap<Staged, BTreeSet<String>>,
    /// What is, or may be, staged and nobody uses any more, and when it is to be unstaged.
    unused: BTreeMap<Staged, Retry>,
    /// What is published to a pod and ready to be used: the directories of the volumes.
    published: BTreeMap<String, BTreeSet<PathBuf>>,
    /// The volumes of a pod, by what upstream calls them.
    republished: BTreeMap<String, BTreeMap<String, Republished>>,
    /// Who has a volume that its driver can make larger.
    expandable: BTreeSet<String>,
}

/// Whether a volume of a pod is to be published again now and then.
struct Republished {
    driver: String,
    /// Whether the driver wants that, or may want it.
    is_wanted: bool,
}

/// Another pod has what only one may have.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InUse;

impl Uses {
    /// What is on a machine, and the devices of which it is certain that they are staged.
    pub(super) fn found(machine: &dyn Machine, places: &Places) -> (Uses, Vec<Staged>) {
        let mut known = Known::default();
        for (uid, name, data) in vol_data::of_pods(machine, places) {
            known.may_be_republished(&uid, name, data.driver_name.clone());
            if data.volume_lifecycle_mode != Some(VolumeLifecycleMode::Ephemeral) {
                known.used.entry(Staged::of(&data)).or_default().insert(uid);
            }
        }
        let mut bound = Vec::new();
        for block::Found { staged, users, is_bound } in block::found(machine, places) {
            bound.extend(is_bound.then(|| staged.clone()));
            if let Some(name) = &staged.device {
                for uid in &users {
                    known.may_be_republished(uid, name.clone(), staged.driver.clone());
                }
            }
            match users.is_empty() {
                true => drop(known.unused.insert(staged, Retry::now())),
                false => drop(known.used.insert(staged, users)),
            }
        }
        for data in vol_data::staged(machine, places) {
            let staged = Staged::of(&data);
            if !known.used.contains_key(&staged) {
                known.unused.insert(staged, Retry::now());
            }
        }
        (Uses(Mutex::new(known)), bound)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that is, or may be, staged.
    pub(super) fn all(&self) -> BTreeSet<Staged> {
        let known = self.known();
        known.used.keys().chain(known.unused.keys()).cloned().collect()
    }

    /// A pod uses what is staged from here on, whether it comes to be staged or not. What is for one pod alone is not for
    /// another while that has it.
    pub(super) fn add(&self, staged: &Staged, uid: &str, is_for_one_pod: bool) -> Result<(), InUse> {
        let mut known = self.known();
        let users = known.used.entry(staged.clone()).or_default();
        if is_for_one_pod && users.iter().any(|user| user != uid) {
            return Err(InUse);
        }
        users.insert(uid.to_owned());
        known.unused.remove(staged);
        Ok(())
    }

    /// A pod does not use what is staged after all. Says whether nobody does then.
    pub(super) fn remove(&self, staged: &Staged, uid: &str) -> bool {
        let mut known = self.known();
        let Some(users) = known.used.get_mut(staged) else { return false };
        users.remove(uid);
        let is_free = users.is_empty();
        if is_free {
            known.used.remove(staged);
            known.unused.insert(staged.clone(), Retry::now());
        }
        is_free
    }

    /// A pod uses nothing any more but what is kept, be it that something was staged for it and never published. Says
    /// what nobody uses then.
    pub(super) fn remove_all(&self, uid: &str, kept: &BTreeSet<&Staged>) -> Vec<Staged> {
        let mut known = self.known();
        known.expandable.remove(uid);
        let is_free = |staged: &Staged, users: &mut BTreeSet<String>| {
            !kept.contains(staged) && users.remove(uid) && users.is_empty()
        };
        let free: Vec<Staged> = known.used.extract_if(.., is_free).map(|(staged, _)| staged).collect();
        known.unused.extend(free.iter().map(|staged| (staged.clone(), Retry::now())));
        free
    }

    pub(super) fn is_used(&self, staged: &Staged) -> bool {
        self.known().used.contains_key(staged)
    }

    /// Whether others than a pod use what is staged.
    pub(super) fn is_used_beside(&self, staged: &Staged, uid: &str) -> bool {
        self.known().used.get(staged).is_some_and(|users| users.iter().any(|user| user != uid))
    }

    /// Whether somebody uses a volume, be it with files or as a device. What is done with the answer is done before that
    /// can change.
    pub(super) fn unless_used(&self, volume: &Staged, act: impl FnOnce()) {
        let known = self.known();
        // Those of one volume are beside each other, the one with files first.
        let first = Staged { device: None, ..volume.clone() };
        let found = known.used.range(&first..).next();
        if !found.is_some_and(|(staged, _)| staged.is_same_volume(volume)) {
            act();
        }
    }

    /// The devices that a pod uses.
    pub(super) fn devices(&self, uid: &str) -> Vec<Staged> {
        let known = self.known();
        let devices = known.used.iter().filter(|(staged, _)| staged.device.is_some());
        devices.filter(|(_, users)| users.contains(uid)).map(|(staged, _)| staged.clone()).collect()
    }

    /// Takes what is to be unstaged by now, and says when the next is.
    pub(super) fn take_due(&self) -> (Vec<(Staged, Retry)>, Option<Instant>) {
        let now = Instant::now();
        let mut known = self.known();
        let due: Vec<_> = known.unused.extract_if(.., |_, retry| retry.at <= now).collect();
        (due, known.unused.values().map(|retry| retry.at).min())
    }

    /// Something could not be unstaged. It may be in use again.
    pub(super) fn unstage_again(&self, staged: Staged, retry: Retry) {
        self.known().unused.entry(staged).or_insert(retry);
    }

    pub(super) fn unstage_now(&self) {
        for retry in self.known().unused.values_mut() {
            *retry = Retry::now();
        }
    }

    /// A volume is published to a pod and ready to be used.
    pub(super) fn add_published(&self, uid: &str, directory: PathBuf) {
        self.known().published.entry(uid.to_owned()).or_default().insert(directory);
    }

    pub(super) fn is_published(&self, uid: &str, directory: &Path) -> bool {
        self.known().published.get(uid).is_some_and(|published| published.contains(directory))
    }

    /// What is published to a pod is being taken back.
    pub(super) fn remove_published(&self, uid: &str) {
        let mut known = self.known();
        known.published.remove(uid);
        known.republished.remove(uid);
    }

    /// A pod has a volume that its driver can make larger.
    pub(super) fn add_expandable(&self, uid: &str) {
        self.known().expandable.insert(uid.to_owned());
    }

    pub(super) fn has_expandable(&self, uid: &str) -> bool {
        self.known().expandable.contains(uid)
    }

    /// Whether a driver wants, or may want, to publish a volume of a pod again now and then.
    pub(super) fn republishes(&self, uid: &str) -> bool {
        let known = self.known();
        known.republished.get(uid).is_some_and(|volumes| volumes.values().any(|volume| volume.is_wanted))
    }

    /// Whether a driver wants to publish this volume of a pod again now and then.
    pub(super) fn note_republished(&self, uid: &str, name: &str, driver: &str, is_wanted: bool) {
        let volume = Republished { driver: driver.to_owned(), is_wanted };
        self.known().republished.entry(uid.to_owned()).or_default().insert(name.to_owned(), volume);
    }

    /// A driver wants, or may want, to publish its volumes again now and then. Says whether that is news for a pod.
    pub(super) fn may_republish(&self, driver: &str) -> bool {
        let mut known = self.known();
        let volumes = known.republished.values_mut().flat_map(BTreeMap::values_mut);
        let mut is_news = false;
        for volume in volumes.filter(|volume| volume.driver == driver) {
            is_news |= !std::mem::replace(&mut volume.is_wanted, true);
        }
        is_news
    }
}

impl Known {
    /// What the driver of a volume wants is not known yet.
    fn may_be_republished(&mut self, uid: &str, name: String, driver: String) {
        let volume = Republished { driver, is_wanted: true };
        self.republished.entry(uid.to_owned()).or_default().insert(name, volume);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(handle: &str, device: Option<&str>) -> Staged {
        let device = device.map(str::to_owned);
        Staged { driver: "driver".to_owned(), handle: handle.to_owned(), device }
    }

    #[test]
    fn a_volume_is_used_by_whoever_has_its_files_or_its_device() {
        let uses = Uses::default();
        let (files, device, other) = (volume("b", None), volume("b", Some("pv")), volume("c", None));
        let is_used = |volume: &Staged| {
            let mut is_used = true;
            uses.unless_used(volume, || is_used = false);
            is_used
        };
        assert_eq!(uses.add(&device, "uid", false), Ok(()));
        assert!(is_used(&files) && is_used(&device) && !is_used(&other) && !is_used(&volume("a", None)));
        assert_eq!(uses.devices("uid"), std::slice::from_ref(&device));
        assert!(!uses.remove(&files, "uid"), "it is not what the pod has");
        assert!(uses.remove(&device, "uid") && !is_used(&files));
        assert_eq!(uses.take_due().0.len(), 1);
    }

    #[test]
    fn what_is_for_one_pod_is_not_for_another_while_that_has_it() {
        let (uses, volume) = (Uses::default(), volume("a", None));
        assert_eq!(uses.add(&volume, "one", true), Ok(()));
        assert_eq!(uses.add(&volume, "one", true), Ok(()));
        assert_eq!(uses.add(&volume, "two", true), Err(InUse));
        assert!(!uses.is_used_beside(&volume, "one"));
        assert_eq!(uses.add(&volume, "two", false), Ok(()));
        assert_eq!(uses.remove_all("one", &BTreeSet::new()), []);
        assert_eq!(uses.remove_all("two", &BTreeSet::from([&volume])), [], "it is kept");
        assert_eq!(uses.remove_all("two", &BTreeSet::new()), [volume]);
    }
}
