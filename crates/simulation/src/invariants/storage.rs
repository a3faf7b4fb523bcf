//! Where volumes of CSI drivers are mounted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crablet_api::core::Pod;

use crate::api_server::ApiServer;
use crate::at_server::volumes_in_use;
use crate::ledger::{Ledger, State};
use crate::storage::Storage;

/// Checks that the volumes of a pod are there of which a container is made.
pub fn check_published(ledger: &Ledger, storage: &Storage, uid: &str) {
    let mut state = ledger.state();
    let Some(life) = state.lives.get(uid) else { return };
    let mounts = storage.machine.mounts();
    let missing = storage.targets(&life.pod).into_iter().find(|(target, _)| !mounts.contains_key(target));
    if let Some((target, _)) = missing {
        let what = format!("a container of {uid} is made before {} is published", target.display());
        ledger.broken(&mut state, 16, what);
    }
}

/// Checks that nobody touched what is in a volume.
pub fn check_touched(ledger: &Ledger, storage: &Storage) {
    for what in storage.machine.take_trespasses() {
        ledger.broken(&mut ledger.state(), 18, format!("{what}, which is in a volume"));
    }
}

/// Checks that volumes are mounted for those pods that are wanted and not over, and nothing else is.
pub fn check_mounted(ledger: &Ledger, storage: &Storage) {
    let mut state = ledger.state();
    let Some((statuses, _)) = state.statuses.clone() else { return };
    let is_over = |uid: &str| {
        let shown = statuses.get(uid);
        shown.is_some_and(|shown| shown.status.is_over())
    };
    let lives = state.lives.iter().filter(|(uid, life)| life.wanted && !is_over(uid));
    let pods: Vec<_> = lives.map(|(_, life)| life.pod.clone()).collect();
    compare(ledger, &mut state, storage, pods.iter().map(|pod| &**pod));
}

/// Checks that nothing is mounted and nothing is left on the disk, nor said to be in use, when nothing is wanted.
pub fn check_unmounted(ledger: &Ledger, storage: &Storage, server: &ApiServer) {
    let mut state = ledger.state();
    compare(ledger, &mut state, storage, std::iter::empty());
    for path in storage.staged() {
        ledger.broken(&mut state, 17, format!("{} is left of what was staged", path.display()));
    }
    let in_use = volumes_in_use(server);
    if !in_use.is_empty() {
        ledger.broken(&mut state, 17, format!("{in_use:?} are said to be in use, by nobody"));
    }
}

fn compare<'a>(ledger: &Ledger, state: &mut State, storage: &Storage, pods: impl Iterator<Item = &'a Pod>) {
    let (wanted, there) = (storage.wanted(pods), storage.machine.mounts());
    let places = |mounts: &BTreeMap<PathBuf, String>| mounts.keys().cloned().collect::<BTreeSet<_>>();
    for place in places(&wanted).symmetric_difference(&places(&there)) {
        let how = match there.contains_key(place) {
            true => "is mounted, and nobody wants it",
            false => "is not mounted, and a pod wants it",
        };
        ledger.broken(state, 17, format!("{} {how}", place.display()));
    }
}
