//! The closed sets of words that a configuration chooses from. A word that is not in its set is kept, so that
//! validation can name it.

use crablet_api::text_enum;

text_enum! {
    /// What decides whether a request is allowed.
    pub enum AuthorizationMode {
        /// Everything is.
        AlwaysAllow = "AlwaysAllow",
        /// The API server is asked.
        Webhook = "Webhook",
    }
}
text_enum! {
    /// How changes of config maps and secrets are found.
    pub enum ChangeDetectionStrategy {
        /// Fetched each time.
        Get = "Get",
        /// Fetched when older than a time to live.
        Cache = "Cache",
        Watch = "Watch",
    }
}
text_enum! {
    /// Who writes cgroups.
    pub enum CgroupDriver {
        /// The agent itself.
        Cgroupfs = "cgroupfs",
        Systemd = "systemd",
    }
}
text_enum! {
    /// How exclusive CPUs are given out.
    pub enum CpuManagerPolicy {
        /// Not at all.
        None = "none",
        /// To guaranteed pods with whole CPUs.
        Static = "static",
    }
}
text_enum! {
    /// How NUMA memory is given out.
    pub enum MemoryManagerPolicy {
        /// Not at all.
        None = "None",
        /// To guaranteed pods.
        Static = "Static",
        /// As far as possible (Windows).
        BestEffort = "BestEffort",
    }
}
text_enum! {
    /// How resource managers agree on NUMA nodes.
    pub enum TopologyManagerPolicy {
        /// They do not.
        None = "none",
        /// As far as possible.
        BestEffort = "best-effort",
        /// Or the pod is refused.
        Restricted = "restricted",
        /// On one node, or the pod is refused.
        SingleNumaNode = "single-numa-node",
    }
}
text_enum! {
    /// What the topology manager aligns.
    pub enum TopologyManagerScope {
        /// Each container.
        Container = "container",
        /// Each pod.
        Pod = "pod",
    }
}
text_enum! {
    /// How a pod reaches itself through its service.
    pub enum HairpinMode {
        PromiscuousBridge = "promiscuous-bridge",
        /// The flag of the pod's interface.
        HairpinVeth = "hairpin-veth",
        /// It does not.
        None = "none",
    }
}
text_enum! {
    /// Whose images need their credentials checked again.
    pub enum ImagePullCredentialsVerificationPolicy {
        /// Nobody's.
        NeverVerify = "NeverVerify",
        /// All but those that were there before.
        NeverVerifyPreloadedImages = "NeverVerifyPreloadedImages",
        /// All but those on a list.
        NeverVerifyAllowlistedImages = "NeverVerifyAllowlistedImages",
        /// Everybody's.
        AlwaysVerify = "AlwaysVerify",
    }
}
text_enum! {
    /// How memory requests are protected on cgroup v2.
    pub enum MemoryReservationPolicy {
        /// They are not.
        None = "None",
        /// By quality of service.
        TieredReservation = "TieredReservation",
    }
}
text_enum! {
    /// What a container may use of swap.
    pub enum SwapBehavior {
        /// As much as its memory request allows.
        LimitedSwap = "LimitedSwap",
        /// Nothing.
        NoSwap = "NoSwap",
    }
}
text_enum! {
    /// Which groups of processes are held to what the node keeps for them.
    pub enum NodeAllocatableEnforcement {
        Pods = "pods",
        /// The system's own.
        SystemReserved = "system-reserved",
        /// The system's own, for what can be throttled.
        SystemReservedCompressible = "system-reserved-compressible",
        /// Kubernetes' own.
        KubeReserved = "kube-reserved",
        /// Kubernetes' own, for what can be throttled.
        KubeReservedCompressible = "kube-reserved-compressible",
        None = "none",
    }
}
text_enum! {
    /// What can run short on a node.
    pub enum EvictionSignal {
        /// Memory of the node.
        MemoryAvailable = "memory.available",
        /// Space on the node's file system.
        NodeFsAvailable = "nodefs.available",
        /// Inodes on the node's file system.
        NodeFsInodesFree = "nodefs.inodesFree",
        /// Space on the images' file system.
        ImageFsAvailable = "imagefs.available",
        /// Inodes on the images' file system.
        ImageFsInodesFree = "imagefs.inodesFree",
        /// Space on the containers' file system.
        ContainerFsAvailable = "containerfs.available",
        /// Inodes on the containers' file system.
        ContainerFsInodesFree = "containerfs.inodesFree",
        /// Memory for pods.
        AllocatableMemoryAvailable = "allocatableMemory.available",
        /// Process ids.
        PidAvailable = "pid.available",
    }
}
text_enum! {
    /// How a log line looks.
    pub enum LogFormat {
        /// For people.
        Text = "text",
        /// For machines.
        Json = "json",
    }
}
