//! The diff of a relist allocates for what changed only. It has a process of its own, because everybody's allocations are
//! counted.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod crowd;

use crowd::Crowd;

#[tokio::test]
async fn the_diff_of_ten_thousand_containers_allocates_for_what_changed_only() {
    let mut crowd = Crowd::gather().await;
    for changes in [1, 10, 100] {
        let unchanged = crowd.relist().await;
        assert!(unchanged.found.events.is_empty() && unchanged.found.exited.is_empty());
        assert_eq!(unchanged.allocations, 0, "without a change");

        crowd.end(changes);
        let changed = crowd.relist().await;
        assert_eq!(changed.found.exited.len(), changes);
        assert!(changed.allocations <= changes, "{} for {changes} changes", changed.allocations);
        crowd.read(&changed.found.exited).await;
    }
}
