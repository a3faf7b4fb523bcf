//! What happens by itself: each controller looks at what changed and at the time, and writes as anybody would.

use jiff::Timestamp;

use crate::cluster::Cluster;

/// What the controllers remember between two looks. All of it can be found out anew.
#[derive(Debug, Default)]
pub struct Controllers {}

/// Lets each do what is to be done now; when they want to look again.
pub(crate) fn run(cluster: &mut Cluster, now: Timestamp) -> Option<Timestamp> {
    let _ = (cluster, now);
    None
}
