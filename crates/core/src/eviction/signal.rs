//! What can run short, what that is of, and what can be let go of for it.

/// Something that can run short on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// Memory of the node.
    MemoryAvailable,
    /// Memory for pods.
    AllocatableMemoryAvailable,
    /// Room where the agent keeps volumes and logs.
    NodeFsAvailable,
    NodeFsInodesFree,
    /// Room where the runtime keeps images.
    ImageFsAvailable,
    ImageFsInodesFree,
    /// Room where the runtime keeps what containers write.
    ContainerFsAvailable,
    ContainerFsInodesFree,
    /// Process IDs.
    PidAvailable,
}

impl Signal {
    pub const ALL: [Signal; 9] = [
        Signal::MemoryAvailable,
        Signal::AllocatableMemoryAvailable,
        Signal::NodeFsAvailable,
        Signal::NodeFsInodesFree,
        Signal::ImageFsAvailable,
        Signal::ImageFsInodesFree,
        Signal::ContainerFsAvailable,
        Signal::ContainerFsInodesFree,
        Signal::PidAvailable,
    ];

    /// The word by which configurations and metrics know it.
    pub fn as_str(self) -> &'static str {
        match self {
            Signal::MemoryAvailable => "memory.available",
            Signal::AllocatableMemoryAvailable => "allocatableMemory.available",
            Signal::NodeFsAvailable => "nodefs.available",
            Signal::NodeFsInodesFree => "nodefs.inodesFree",
            Signal::ImageFsAvailable => "imagefs.available",
            Signal::ImageFsInodesFree => "imagefs.inodesFree",
            Signal::ContainerFsAvailable => "containerfs.available",
            Signal::ContainerFsInodesFree => "containerfs.inodesFree",
            Signal::PidAvailable => "pid.available",
        }
    }

    /// The signal of a word.
    pub fn from_word(word: &str) -> Option<Signal> {
        Signal::ALL.into_iter().find(|signal| signal.as_str() == word)
    }

    /// What of pods has to go when this runs short.
    pub fn resource(self) -> Resource {
        match self {
            Signal::MemoryAvailable | Signal::AllocatableMemoryAvailable => Resource::Memory,
            Signal::NodeFsAvailable | Signal::ImageFsAvailable | Signal::ContainerFsAvailable => {
                Resource::EphemeralStorage
            }
            Signal::NodeFsInodesFree | Signal::ImageFsInodesFree | Signal::ContainerFsInodesFree => {
                Resource::Inodes
            }
            Signal::PidAvailable => Resource::Pids,
        }
    }

    /// What the node says of itself meanwhile.
    pub fn condition(self) -> Condition {
        match self.resource() {
            Resource::Memory => Condition::MemoryPressure,
            Resource::EphemeralStorage | Resource::Inodes => Condition::DiskPressure,
            Resource::Pids => Condition::PidPressure,
        }
    }

    /// Whether it is of a file system.
    pub fn is_of_disk(self) -> bool {
        matches!(self.resource(), Resource::EphemeralStorage | Resource::Inodes)
    }

    /// Whether it is of memory, which comes first: who has none left is ended by the kernel.
    pub fn is_memory(self) -> bool {
        self.resource() == Resource::Memory
    }
}

/// What pods use of a node that can run short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    Memory,
    EphemeralStorage,
    Inodes,
    Pids,
}

impl Resource {
    /// The word in messages and annotations.
    pub fn as_str(self) -> &'static str {
        match self {
            Resource::Memory => "memory",
            Resource::EphemeralStorage => "ephemeral-storage",
            Resource::Inodes => "inodes",
            Resource::Pids => "pids",
        }
    }
}

/// What a node says of itself that runs short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    MemoryPressure,
    DiskPressure,
    PidPressure,
}

impl Condition {
    /// The type of the node's condition.
    pub fn as_str(self) -> &'static str {
        match self {
            Condition::MemoryPressure => "MemoryPressure",
            Condition::DiskPressure => "DiskPressure",
            Condition::PidPressure => "PIDPressure",
        }
    }
}

/// How what the agent keeps, images, and what containers write are spread over file systems.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disks {
    /// All on one.
    One,
    /// The runtime has its own, for both.
    SeparateImages,
    /// Images are on another than what containers write.
    Split,
}

impl Disks {
    /// From which file system each is on: the agent's files, images, and what containers write.
    pub fn new<T: PartialEq>(node: &T, images: &T, containers: &T) -> Disks {
        if images != containers {
            Disks::Split
        } else if images != node {
            Disks::SeparateImages
        } else {
            Disks::One
        }
    }
}

/// What a node itself can let go of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reclaim {
    /// Containers that ended, those of pods that are over too.
    DeadContainers,
    UnusedImages,
}

/// What the node itself can let go of for a signal, in order.
pub fn reclaims(signal: Signal, disks: Disks) -> &'static [Reclaim] {
    const BOTH: &[Reclaim] = &[Reclaim::DeadContainers, Reclaim::UnusedImages];
    match signal {
        Signal::MemoryAvailable | Signal::AllocatableMemoryAvailable | Signal::PidAvailable => &[],
        Signal::NodeFsAvailable | Signal::NodeFsInodesFree => match disks {
            Disks::One => BOTH,
            Disks::SeparateImages => &[],
            Disks::Split => &[Reclaim::DeadContainers],
        },
        Signal::ImageFsAvailable | Signal::ImageFsInodesFree => match disks {
            Disks::One | Disks::SeparateImages => BOTH,
            Disks::Split => &[Reclaim::UnusedImages],
        },
        Signal::ContainerFsAvailable | Signal::ContainerFsInodesFree => match disks {
            Disks::One | Disks::SeparateImages => BOTH,
            Disks::Split => &[Reclaim::DeadContainers],
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_has_a_word_of_its_own() {
        for signal in Signal::ALL {
            assert_eq!(Signal::from_word(signal.as_str()), Some(signal));
        }
        assert_eq!(Signal::from_word("memory.free"), None);
    }

    #[test]
    fn file_systems_are_told_apart_by_what_is_on_which() {
        for (node, images, containers, expected) in [
            (1, 1, 1, Disks::One),
            (1, 2, 2, Disks::SeparateImages),
            (1, 2, 1, Disks::Split),
            (1, 1, 2, Disks::Split),
            (1, 2, 3, Disks::Split),
        ] {
            assert_eq!(Disks::new(&node, &images, &containers), expected, "{node} {images} {containers}");
        }
    }

    #[test]
    fn a_node_lets_go_of_what_is_on_the_file_system_that_runs_full() {
        use Reclaim::{DeadContainers, UnusedImages};
        let (node, images, containers) =
            (Signal::NodeFsAvailable, Signal::ImageFsInodesFree, Signal::ContainerFsAvailable);
        for (signal, disks, expected) in [
            (node, Disks::One, &[DeadContainers, UnusedImages][..]),
            (images, Disks::One, &[DeadContainers, UnusedImages]),
            (containers, Disks::One, &[DeadContainers, UnusedImages]),
            (node, Disks::SeparateImages, &[]),
            (images, Disks::SeparateImages, &[DeadContainers, UnusedImages]),
            (containers, Disks::SeparateImages, &[DeadContainers, UnusedImages]),
            (node, Disks::Split, &[DeadContainers]),
            (images, Disks::Split, &[UnusedImages]),
            (containers, Disks::Split, &[DeadContainers]),
            (Signal::MemoryAvailable, Disks::One, &[]),
            (Signal::PidAvailable, Disks::Split, &[]),
        ] {
            assert_eq!(reclaims(signal, disks), expected, "{signal:?} {disks:?}");
        }
    }
}
