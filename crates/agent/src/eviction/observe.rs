//! From what a machine shows to what thresholds are compared with.

use crablet_core::eviction::{Observation, Observations, Signal};
use crablet_host::machine::Storage;
use crablet_host::signals::{DiskReadings, MemoryReading, Readings};
use jiff::Timestamp;

/// What is left of each thing that could be read.
pub(super) fn observations(readings: &Readings, disks: &DiskReadings, at: Timestamp) -> Observations {
    let Readings { memory, memory_of_pods, processes } = readings;
    let DiskReadings { node_fs, image_fs, container_fs } = disks;
    let mut found = Observations::new();
    let mut add = |signal, available: u64, capacity: u64| {
        let whole = |value| i64::try_from(value).unwrap_or(i64::MAX);
        found.insert(signal, Observation { available: whole(available), capacity: whole(capacity), at });
    };
    let of_memory = [(Signal::MemoryAvailable, memory), (Signal::AllocatableMemoryAvailable, memory_of_pods)];
    for (signal, reading) in of_memory {
        if let Some(reading @ MemoryReading { capacity, .. }) = reading {
            add(signal, reading.available(), *capacity);
        }
    }
    let of_disks = [
        (Signal::NodeFsAvailable, Signal::NodeFsInodesFree, node_fs),
        (Signal::ImageFsAvailable, Signal::ImageFsInodesFree, image_fs),
        (Signal::ContainerFsAvailable, Signal::ContainerFsInodesFree, container_fs),
    ];
    for (of_bytes, of_inodes, storage) in of_disks {
        let Some(Storage { capacity, available, inodes, inodes_free }) = storage else { continue };
        add(of_bytes, *available, *capacity);
        // A file system that counts none, such as btrfs, never runs out of them.
        if *inodes > 0 {
            add(of_inodes, *inodes_free, *inodes);
        }
    }
    if let Some(processes) = processes {
        add(Signal::PidAvailable, processes.most.saturating_sub(processes.running), processes.most);
    }
    found
}

#[cfg(test)]
mod tests {
    use crablet_host::signals::ProcessReading;

    use super::*;

    #[test]
    fn what_could_not_be_read_is_not_observed_and_a_disk_without_inodes_has_none_to_lose() {
        let at = Timestamp::UNIX_EPOCH;
        assert!(observations(&Readings::default(), &DiskReadings::default(), at).is_empty());
        let disk = Storage { capacity: 100, available: 40, inodes: 0, inodes_free: 0 };
        let readings = Readings {
            memory: Some(MemoryReading { capacity: 100, usage: 90, working_set: 70 }),
            memory_of_pods: Some(MemoryReading { capacity: 50, usage: 60, working_set: 60 }),
            processes: Some(ProcessReading { most: 100, running: 120 }),
        };
        let node_fs = Some(Storage { inodes: 10, inodes_free: 4, ..disk });
        let disks = DiskReadings { node_fs, image_fs: Some(disk), container_fs: None };
        let found = observations(&readings, &disks, at);
        let found: Vec<_> =
            found.iter().map(|(signal, seen)| (*signal, seen.available, seen.capacity)).collect();
        let expected = [
            (Signal::MemoryAvailable, 30, 100),
            (Signal::AllocatableMemoryAvailable, 0, 50),
            (Signal::NodeFsAvailable, 40, 100),
            (Signal::NodeFsInodesFree, 4, 10),
            (Signal::ImageFsAvailable, 40, 100),
            (Signal::PidAvailable, 0, 100),
        ];
        assert_eq!(found, expected);
    }
}
