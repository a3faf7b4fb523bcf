//! What is left of pods.

use std::collections::BTreeSet;

use crate::world::World;

/// The UIDs that something is left of.
#[derive(Debug, Default)]
pub struct Leftovers {
    sandboxes: BTreeSet<String>,
    containers: BTreeSet<String>,
    cgroups: BTreeSet<String>,
    directories: BTreeSet<String>,
    links: BTreeSet<String>,
    volumes: BTreeSet<String>,
    checkpoints: BTreeSet<String>,
}

impl Leftovers {
    /// What is left of one.
    pub fn of(&self, uid: &str) -> Vec<&'static str> {
        let Leftovers { sandboxes, containers, cgroups, directories, links, volumes, checkpoints } = self;
        [
            (sandboxes, "sandbox"),
            (containers, "container"),
            (cgroups, "cgroup"),
            (directories, "directory"),
            (links, "link to a log"),
            (volumes, "volumes"),
            (checkpoints, "checkpoint"),
        ]
        .into_iter()
        .filter_map(|(uids, what)| uids.contains(uid).then_some(what))
        .collect()
    }

    /// All of them.
    pub fn uids(&self) -> impl Iterator<Item = &String> {
        let Leftovers { sandboxes, containers, cgroups, directories, links, volumes, checkpoints } = self;
        let on_host = cgroups.iter().chain(directories).chain(links).chain(volumes).chain(checkpoints);
        sandboxes.iter().chain(containers).chain(on_host)
    }
}

impl World {
    /// Everything that is there of any pod.
    pub fn leftovers(&self) -> Leftovers {
        Leftovers {
            sandboxes: self.simulator.sandboxes().into_iter().map(|sandbox| sandbox.metadata.uid).collect(),
            containers: self.simulator.containers().into_iter().map(|container| container.pod_uid).collect(),
            cgroups: self.cgroups.limits().keys().map(|pod| pod.uid().to_owned()).collect(),
            directories: self.files.uids().into_iter().collect(),
            links: self.files.links().into_values().collect(),
            volumes: {
                let of_drivers = self.storage.iter().flat_map(|storage| storage.pods());
                self.volumes.pods().into_keys().chain(of_drivers).collect()
            },
            checkpoints: self.checkpoints.content().into_keys().collect(),
        }
    }
}
