//! Hints, and what is made of them.

use std::sync::Arc;
use std::time::Duration;

use crablet_cri::observer::{Metrics, Observer};
use crablet_cri::{HintKind, Runtime};
use crablet_cri_api::ContainerState::{Created, Exited, Running, Unknown};
use crablet_cri_api::SandboxState;
use crablet_metrics::Registry;

use crate::fake::Fake;
use crate::{observe, settled};

const MILLISECOND: Duration = Duration::from_millis(1);
const DIED: &str = "c: ContainerDied (exit code 3, Error)";

/// A runtime with one running container, observed; its start is told.
async fn one_running() -> crate::Observed {
    let fake = Arc::new(Fake::default());
    let mut observed = settled(Arc::clone(&fake)).await;
    fake.container("c", Running);
    fake.hint("c", HintKind::Started);
    assert_eq!(observed.next().await, "c: ContainerStarted");
    observed
}

#[tokio::test(start_paused = true)]
async fn an_exit_is_told_when_cri_agrees_with_the_hint_and_not_before() {
    let mut observed = one_running().await;
    observed.fake.container_late("c", Exited, 40 * MILLISECOND);
    observed.fake.hint("c", HintKind::Stopped);
    let (event, after) = observed.next_after().await;
    assert_eq!(event, DIED);
    assert!(after >= 40 * MILLISECOND && after <= 60 * MILLISECOND, "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_start_is_told_when_cri_agrees_and_a_sandbox_may_not_even_be_there_before() {
    let mut observed = settled(Arc::new(Fake::default())).await;
    observed.fake.sandbox_late("s", SandboxState::Ready, 30 * MILLISECOND);
    observed.fake.hint("s", HintKind::Created);
    observed.fake.hint("s", HintKind::Started);
    let (event, after) = observed.next_after().await;
    assert_eq!(event, "s: SandboxStarted");
    assert!(after <= 45 * MILLISECOND, "{after:?}");

    observed.fake.container("c", Created);
    observed.fake.hint("c", HintKind::Created);
    observed.quiet_for(30 * MILLISECOND).await;
    observed.fake.container_late("c", Running, 30 * MILLISECOND);
    observed.fake.hint("c", HintKind::Started);
    assert_eq!(observed.next().await, "c: ContainerStarted");
}

#[tokio::test(start_paused = true)]
async fn hints_in_any_order_and_number_tell_each_transition_once() {
    let mut observed = one_running().await;
    observed.fake.container("c", Exited);
    for kind in
        [HintKind::Stopped, HintKind::Started, HintKind::Created, HintKind::Stopped, HintKind::Stopped]
    {
        observed.fake.hint("c", kind);
    }
    assert_eq!(observed.next().await, DIED);
    observed.fake.hint("c", HintKind::Stopped);
    observed.quiet_for(Duration::from_secs(30)).await;
    observed.fake.remove("c");
    observed.fake.hint("c", HintKind::Removed);
    observed.fake.hint("c", HintKind::Stopped);
    assert_eq!(observed.next().await, "c: ContainerRemoved");
    observed.quiet_for(Duration::from_secs(120)).await;
}

#[tokio::test(start_paused = true)]
async fn hints_for_one_id_that_wait_are_one_read() {
    let observed = one_running().await;
    observed.fake.status_delay("c", 50 * MILLISECOND);
    observed.fake.calls();
    for _ in 0..1000 {
        observed.fake.hint("c", HintKind::Started);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(observed.fake.count("container c") <= 2, "{:?}", observed.fake.calls());
}

#[tokio::test(start_paused = true)]
async fn what_happens_before_the_runtime_has_begun_its_stream_is_found_soon() {
    let mut observed = one_running().await;
    observed.fake.container("c", Exited);
    let (event, after) = observed.next_after().await;
    assert_eq!(event, DIED);
    assert!(after <= Duration::from_secs(2), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_hint_is_repaired_by_the_slow_relist() {
    let mut observed = one_running().await;
    // The relists after the stream's beginning.
    observed.quiet_for(Duration::from_secs(6)).await;
    observed.fake.container("c", Exited);
    let (event, after) = observed.next_after().await;
    assert_eq!(event, DIED);
    assert!(after > Duration::from_secs(50) && after <= Duration::from_secs(60), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hint_that_the_runtime_never_agrees_with_is_left_to_the_relist() {
    let mut observed = one_running().await;
    observed.fake.container_late("c", Exited, Duration::from_secs(40));
    observed.fake.hint("c", HintKind::Stopped);
    observed.quiet_for(Duration::from_secs(39)).await;
    let reads = observed.fake.count("container c");
    assert!(reads < 200, "{reads} reads in the ten seconds that it is read again");
    assert_eq!(observed.next().await, DIED);
}

#[tokio::test(start_paused = true)]
async fn a_slow_status_of_one_container_holds_up_no_other() {
    let mut observed = one_running().await;
    observed.fake.container("slow", Running);
    observed.fake.status_delay("slow", Duration::from_secs(100));
    observed.fake.hint("slow", HintKind::Started);
    observed.fake.container("c", Exited);
    observed.fake.hint("c", HintKind::Stopped);
    let (event, after) = observed.next_after().await;
    assert_eq!((event.as_str(), after), (DIED, Duration::ZERO));
    assert_eq!(observed.next().await, "slow: ContainerStarted");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_lost_or_doubled_when_the_reader_is_slow() {
    let mut observed = one_running().await;
    let ids: Vec<String> = (0..500).map(|number| format!("c{number:03}")).collect();
    for id in &ids {
        observed.fake.container(id, Running);
        observed.fake.hint(id, HintKind::Started);
    }
    // Nobody reads: what cannot be handed over waits, and further hints merge.
    tokio::time::sleep(Duration::from_secs(300)).await;
    for id in &ids {
        observed.fake.container(id, Exited);
        observed.fake.hint(id, HintKind::Stopped);
    }
    tokio::time::sleep(Duration::from_secs(300)).await;
    let mut died = 0;
    let mut started = 0;
    while died < ids.len() {
        let event = observed.next().await;
        died += usize::from(event.contains("ContainerDied"));
        started += usize::from(event.contains("ContainerStarted"));
    }
    assert_eq!(died, ids.len());
    assert!((64..=ids.len()).contains(&started), "{started} starts");
    observed.quiet_for(Duration::from_secs(120)).await;
}

#[tokio::test(start_paused = true)]
async fn more_hints_than_can_wait_become_a_relist() {
    let mut observed = one_running().await;
    let ids: Vec<String> = (0..6000).map(|number| format!("c{number:04}")).collect();
    for id in &ids {
        observed.fake.container(id, Running);
        observed.fake.hint(id, HintKind::Started);
    }
    let began = tokio::time::Instant::now();
    for _ in &ids {
        assert!(observed.next().await.contains("ContainerStarted"));
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    observed.quiet_for(Duration::from_secs(120)).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_that_was_asked_for_before_an_exit_does_not_undo_it() {
    let mut observed = one_running().await;
    observed.fake.list_delay(Duration::from_secs(5));
    // The slow relist is under way, and its answer is made up already.
    while observed.fake.count("list containers") == 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    observed.fake.container("c", Exited);
    observed.fake.hint("c", HintKind::Stopped);
    assert_eq!(observed.next().await, DIED);
    observed.quiet_for(Duration::from_secs(30)).await;
    observed.fake.remove("c");
    observed.fake.hint("c", HintKind::Removed);
    assert_eq!(observed.next().await, "c: ContainerRemoved");
    observed.quiet_for(Duration::from_secs(300)).await;
}

#[tokio::test(start_paused = true)]
async fn an_exit_for_want_of_memory_is_marked_by_the_hint_or_by_cri() {
    let mut observed = one_running().await;
    observed.fake.hint("c", HintKind::OutOfMemory);
    observed.fake.container_late("c", Exited, 20 * MILLISECOND);
    observed.fake.hint("c", HintKind::Stopped);
    assert_eq!(observed.next().await, "c: ContainerDied (exit code 3, Error, out of memory)");
    observed.quiet_for(Duration::from_secs(5)).await;

    observed.fake.container("d", Running);
    observed.fake.hint("d", HintKind::Started);
    assert_eq!(observed.next().await, "d: ContainerStarted");
    observed.fake.reason("d", "OOMKilled");
    observed.fake.container("d", Exited);
    observed.fake.hint("d", HintKind::Stopped);
    assert_eq!(observed.next().await, "d: ContainerDied (exit code 3, OOMKilled, out of memory)");
    // It says nothing new.
    observed.fake.hint("d", HintKind::OutOfMemory);
    observed.quiet_for(Duration::from_secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn a_container_that_lives_on_without_a_process_is_told_to_be_out_of_memory() {
    let mut observed = one_running().await;
    observed.fake.hint("c", HintKind::OutOfMemory);
    assert_eq!(observed.next().await, "c: ContainerOutOfMemory");
    observed.quiet_for(Duration::from_secs(5)).await;
    // The hint came after the exit was told.
    observed.fake.container("d", Exited);
    observed.fake.hint("d", HintKind::Stopped);
    assert_eq!(observed.next().await, "d: ContainerDied (exit code 3, Error)");
    observed.fake.hint("d", HintKind::OutOfMemory);
    assert_eq!(observed.next().await, "d: ContainerOutOfMemory");
}

#[tokio::test(start_paused = true)]
async fn what_is_gone_before_its_exit_is_read_died_and_was_removed() {
    let mut observed = one_running().await;
    observed.fake.remove("c");
    observed.fake.hint("c", HintKind::Stopped);
    observed.fake.hint("c", HintKind::Removed);
    assert_eq!(observed.next().await, "c: ContainerDied (gone before its exit could be read)");
    assert_eq!(observed.next().await, "c: ContainerRemoved");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_id_is_read_as_a_container_and_then_as_a_sandbox() {
    let mut observed = settled(Arc::new(Fake::default())).await;
    observed.fake.sandbox("s", SandboxState::Ready);
    observed.fake.hint("s", HintKind::Started);
    assert_eq!(observed.next().await, "s: SandboxStarted");
    assert_eq!(observed.fake.calls(), ["container s", "sandbox s"]);
    observed.fake.sandbox("s", SandboxState::NotReady);
    observed.fake.hint("s", HintKind::Stopped);
    assert_eq!(observed.next().await, "s: SandboxStopped");
    assert_eq!(observed.fake.calls(), ["sandbox s"], "now it is known to be one");
    observed.fake.remove("s");
    observed.fake.hint("s", HintKind::Removed);
    assert_eq!(observed.next().await, "s: SandboxRemoved");
}

#[tokio::test(start_paused = true)]
async fn what_is_nobodys_is_read_once_and_not_told() {
    let mut observed = settled(Arc::new(Fake::default())).await;
    observed.fake.container("c", Running);
    observed.fake.disown("c");
    observed.fake.hint("c", HintKind::Started);
    observed.quiet_for(Duration::from_secs(30)).await;
    assert_eq!(observed.fake.count("container c"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_state_that_the_runtime_does_not_know_is_a_change() {
    let mut observed = one_running().await;
    observed.fake.container("c", Unknown);
    assert_eq!(observed.next().await, "c: ContainerChanged");
    observed.fake.container("c", Running);
    assert_eq!(observed.next().await, "c: ContainerStarted");
}

#[tokio::test(start_paused = true)]
async fn what_is_there_at_the_start_is_told() {
    let fake = Arc::new(Fake::default());
    fake.sandbox("s", SandboxState::Ready);
    fake.sandbox("t", SandboxState::NotReady);
    fake.container("a", Running);
    fake.container("b", Created);
    fake.container("c", Exited);
    let mut observed = observe(fake);
    let mut told = Vec::new();
    for _ in 0..4 {
        told.push(observed.next().await);
    }
    assert_eq!(told, ["s: SandboxStarted", "t: SandboxStopped", "a: ContainerStarted", DIED]);
    observed.quiet_for(Duration::from_secs(120)).await;
}

#[tokio::test(start_paused = true)]
async fn how_late_a_hint_comes_is_counted() {
    let registry = Registry::new();
    let fake = Arc::new(Fake::default());
    let (observer, mut events, _status) = Observer::new(Arc::clone(&fake) as Arc<dyn Runtime>);
    let observer = observer.counted_in(Metrics::register(&registry).unwrap(), || 1_790_000_002.0);
    tokio::spawn(observer.run());
    tokio::time::sleep(Duration::from_secs(1)).await;
    fake.container("c", Running);
    fake.hint("c", HintKind::Started);
    events.recv().await.unwrap();
    let text = registry.render();
    for line in [
        "kubelet_evented_pleg_connection_latency_seconds_sum 2",
        "kubelet_evented_pleg_connection_latency_seconds_count 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
}
