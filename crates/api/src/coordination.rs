//! `coordination.k8s.io/v1`: leases, by which nodes say that they are alive.

use crate::meta::{MicroTime, ObjectMeta};
use crate::object::{object, words};
use crate::text::Text;

object! {
    /// Who holds something, and since when: a node renews its own to say that it is alive.
    pub struct Lease: "coordination.k8s.io/v1" "Lease" {
        metadata: ObjectMeta = "metadata",
        spec: LeaseSpec = "spec",
    }
}

object! {
    /// Who holds a lease, and since when.
    pub struct LeaseSpec {
        holder_identity: Option<Text> = "holderIdentity",
        lease_duration_seconds: Option<i32> = "leaseDurationSeconds",
        acquire_time: Option<MicroTime> = "acquireTime",
        renew_time: Option<MicroTime> = "renewTime",
        lease_transitions: Option<i32> = "leaseTransitions",
        strategy: Option<CoordinatedLeaseStrategy> = "strategy",
        preferred_holder: Option<Text> = "preferredHolder",
    }
}

words! {
    /// How the holder of a lease is chosen.
    pub enum CoordinatedLeaseStrategy {
        OldestEmulationVersion = "OldestEmulationVersion",
    }
}
