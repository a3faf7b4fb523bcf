//! What a node does when it runs short of memory, disk or process IDs.
//!
//! ```text
//!   observations ──► Monitor: which thresholds are met, and for long enough ──► conditions of the node
//!                        │ what is to be reclaimed
//!                        ▼
//!                    reclaims: what the node itself can let go of ── not enough ──► rank: which pod goes first
//!                                                                                       │
//!                                                               explain: what it is told ◄┘
//! ```
//!
//! Beside that, a pod that takes more of the disk than it may goes whatever the node has left ([`over_limit`]), and a node
//! under pressure does not take every pod ([`admit`]). When the next look is due says [`next_look`].

mod admission;
mod local_storage;
mod message;
mod monitor;
mod pace;
mod rank;
mod signal;
mod threshold;
mod usage;

pub use admission::admit;
pub use local_storage::{Limit, OverLimit, has_limits, over_limit};
pub use message::{Explanation, explain};
pub use monitor::{Monitor, Observation, Observations};
pub use pace::{LONGEST_WAIT, alarm_at, next_look};
pub use rank::rank;
pub use signal::{Condition, Disks, Reclaim, Resource, Signal, reclaims};
pub use threshold::{Amount, Configured, Threshold, thresholds};
pub use usage::{ContainerUsage, FsUsage, PodUsage, Usages};

use crablet_api::core::Pod;

/// The reason of an evicted pod's status and of its event.
pub const REASON: &str = "Evicted";

/// How long a pod has to end that goes at once.
const AT_ONCE: i64 = 1;

/// How many seconds a pod has to end that a threshold sends away. A soft threshold leaves it as much as it asks for, and no
/// more than the node allows.
pub fn grace(pod: &Pod, threshold: &Threshold, max_pod_grace: i64) -> i64 {
    if threshold.is_hard() {
        return AT_ONCE;
    }
    let own = pod.spec.termination_grace_period_seconds;
    own.map_or(max_pod_grace, |own| own.min(max_pod_grace))
}

/// How many seconds a pod has to end that takes more of the disk than it may.
pub fn grace_over_limit() -> i64 {
    AT_ONCE
}

#[cfg(test)]
mod tests {
    use crablet_api::testing::pod_yaml;
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn a_hard_threshold_leaves_a_second_and_a_soft_one_what_pod_and_node_agree_on() {
        let pod = |spec: &str| {
            pod_yaml(&format!("metadata: {{name: p}}\nspec: {{containers: [{{name: c}}], {spec}}}"))
        };
        let hard = Threshold::hard(Signal::MemoryAvailable, Amount::Quantity("1Gi".parse().unwrap()));
        let soft = Threshold { grace: SignedDuration::from_secs(60), ..hard.clone() };
        let (patient, hasty, silent) = (
            pod("terminationGracePeriodSeconds: 30"),
            pod("terminationGracePeriodSeconds: 2"),
            pod("priority: 0"),
        );
        for (pod, threshold, most, expected) in [
            (&patient, &hard, 10, 1),
            (&hasty, &hard, 0, 1),
            (&patient, &soft, 10, 10),
            (&patient, &soft, 60, 30),
            (&hasty, &soft, 10, 2),
            (&silent, &soft, 10, 10),
            (&patient, &soft, 0, 0),
            (&patient, &soft, -1, -1),
        ] {
            assert_eq!(grace(pod, threshold, most), expected);
        }
    }
}
