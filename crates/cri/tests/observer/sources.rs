//! Where hints come from, and what happens when they do not.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crablet_cri::observer::{Observer, Source};
use crablet_cri::{HintKind, HintSource};
use crablet_cri_api::ContainerState::{Exited, Running};
use tokio::time::{Instant, sleep};

use crate::fake::Fake;
use crate::{CONTAINERD, CRI, observe, settled};

const SECOND: Duration = Duration::from_secs(1);
const DIED: &str = "c: ContainerDied (exit code 3, Error)";

#[tokio::test(start_paused = true)]
async fn the_best_stream_is_opened_before_the_first_relist() {
    let mut observed = observe(Arc::new(Fake::default()));
    observed.until_source(CRI).await;
    assert!(observed.status.borrow().why_not_better.is_empty());
    observed.quiet_for(SECOND).await;
    let relist = ["list sandboxes", "list containers"];
    // The second one closes the gap between asking for a stream and its being there.
    assert_eq!(observed.fake.calls(), [&["hints Cri"][..], &relist, &relist].concat());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_the_runtime_lacks_is_passed_over_and_named() {
    let fake = Arc::new(Fake::default());
    fake.lacks(HintSource::Cri);
    let mut observed = observe(fake);
    observed.until_source(CONTAINERD).await;
    let why = observed.status.borrow().why_not_better.clone();
    assert_eq!(why.len(), 1);
    assert!(why[0].starts_with("GetContainerEvents: "), "{why:?}");
    // It is not asked for again as long as this stream holds.
    observed.fake.calls();
    observed.quiet_for(Duration::from_secs(600)).await;
    assert_eq!(observed.fake.count("hints Cri"), 0);
}

#[tokio::test(start_paused = true)]
async fn without_a_stream_it_relists_each_second() {
    let fake = Arc::new(Fake::default());
    fake.lacks(HintSource::Cri);
    fake.lacks(HintSource::Containerd);
    let mut observed = settled(fake).await;
    assert_eq!(observed.status.borrow().source, Source::Relist);
    assert_eq!(observed.status.borrow().why_not_better.len(), 2);
    observed.fake.container("c", Running);
    let (event, after) = observed.next_after().await;
    assert_eq!(event, "c: ContainerStarted");
    assert!(after <= SECOND, "{after:?}");
    observed.fake.container("c", Exited);
    let (event, after) = observed.next_after().await;
    assert_eq!(event, DIED);
    assert!(after <= SECOND, "{after:?}");
    observed.fake.calls();
    observed.quiet_for(Duration::from_secs(100)).await;
    let relists = observed.fake.count("list containers");
    assert!((95..=105).contains(&relists), "{relists}");
}

#[tokio::test(start_paused = true)]
async fn a_broken_stream_falls_back_at_once_and_comes_back() {
    let fake = Arc::new(Fake::default());
    fake.container("c", Running);
    let mut observed = observe(fake);
    assert_eq!(observed.next().await, "c: ContainerStarted");
    observed.until_source(CRI).await;
    observed.quiet_for(SECOND).await;

    observed.fake.fails(HintSource::Cri, true);
    observed.fake.fails(HintSource::Containerd, true);
    observed.fake.container("c", Exited);
    observed.fake.break_streams();
    let (event, after) = observed.next_after().await;
    assert_eq!((event.as_str(), after), (DIED, Duration::ZERO));
    assert_eq!(observed.status.borrow().source, Source::Relist);
    assert!(observed.status.borrow().last_error.is_some());
    // Streams are tried for less and less often.
    observed.fake.calls();
    observed.quiet_for(Duration::from_secs(600)).await;
    let tries = observed.fake.count("hints Cri");
    assert!((10..=16).contains(&tries), "{tries} tries in ten minutes");

    observed.fake.fails(HintSource::Cri, false);
    observed.until_source(CRI).await;
    assert_eq!(observed.status.borrow().last_error, None);
    observed.quiet_for(SECOND).await;
    observed.fake.container("d", Running);
    observed.fake.hint("d", HintKind::Started);
    assert_eq!(observed.next().await, "d: ContainerStarted");
}

#[tokio::test(start_paused = true)]
async fn what_happens_while_a_stream_is_opened_again_is_not_lost() {
    let fake = Arc::new(Fake::default());
    let mut observed = settled(fake).await;
    for number in 0..20 {
        let id = format!("c{number}");
        observed.fake.container(&id, Running);
        observed.fake.break_streams();
        let (event, after) = observed.next_after().await;
        assert_eq!(event, format!("{id}: ContainerStarted"));
        assert!(after <= SECOND, "{after:?}");
        observed.until_source(CRI).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_stays_silent_about_what_relists_find_is_opened_anew() {
    let mut observed = settled(Arc::new(Fake::default())).await;
    observed.fake.forget_streams();
    for (id, is_deaf) in [("c", true), ("d", false)] {
        sleep(20 * SECOND).await;
        observed.fake.container(id, Running);
        if !is_deaf {
            observed.fake.hint(id, HintKind::Started);
        }
        let (event, after) = observed.next_after().await;
        assert_eq!(event, format!("{id}: ContainerStarted"));
        assert_eq!(after == Duration::ZERO, !is_deaf, "{id} after {after:?}");
        if is_deaf {
            assert!(observed.status.borrow().last_error.as_deref().unwrap().contains("told nothing"));
        }
        observed.until_source(CRI).await;
    }
    // One that speaks, and is late with one thing, is kept.
    observed.fake.calls();
    observed.fake.container("e", Running);
    assert_eq!(observed.next().await, "e: ContainerStarted");
    observed.quiet_for(20 * SECOND).await;
    assert_eq!(observed.fake.count("hints Cri"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_better_stream_is_taken_when_it_works_again_and_hints_pass_meanwhile() {
    let fake = Arc::new(Fake::default());
    fake.fails(HintSource::Cri, true);
    let mut observed = observe(fake);
    observed.until_source(CONTAINERD).await;
    observed.quiet_for(Duration::from_secs(200)).await;
    observed.fake.container("c", Running);
    observed.fake.hint("c", HintKind::Started);
    assert_eq!(observed.next_after().await, ("c: ContainerStarted".to_owned(), Duration::ZERO));
    observed.fake.fails(HintSource::Cri, false);
    observed.until_source(CRI).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_declared_dead_while_the_runtime_is_away() {
    let fake = Arc::new(Fake::default());
    fake.container("c", Running);
    fake.container("d", Running);
    let mut observed = observe(fake);
    assert_eq!(observed.next().await, "c: ContainerStarted");
    assert_eq!(observed.next().await, "d: ContainerStarted");
    observed.until_source(CRI).await;

    observed.fake.hint("c", HintKind::Stopped);
    observed.fake.away(true);
    observed.quiet_for(Duration::from_secs(600)).await;
    assert_eq!(observed.status.borrow().source, Source::Relist);
    let relists = observed.fake.count("list containers");
    assert!(relists < 150, "{relists} relists of a runtime that is away, in ten minutes");
    let last_relist = observed.status.borrow().last_relist.unwrap();
    assert!(last_relist.began.elapsed() >= Duration::from_secs(600));

    observed.fake.container("c", Exited);
    observed.fake.away(false);
    let (event, after) = observed.next_after().await;
    assert_eq!(event, DIED);
    assert!(after <= 5 * SECOND, "{after:?}");
    let came_back = Instant::now();
    observed.until_source(CRI).await;
    assert!(came_back.elapsed() <= SECOND, "{:?}", came_back.elapsed());
    assert_eq!(observed.status.borrow().last_error, None);
    observed.quiet_for(Duration::from_secs(120)).await;
}

#[tokio::test(start_paused = true)]
async fn a_status_that_fails_is_read_again_for_some_seconds_and_then_left_to_relists() {
    let fake = Arc::new(Fake::default());
    fake.container("c", Running);
    let mut observed = observe(fake);
    assert_eq!(observed.next().await, "c: ContainerStarted");
    observed.until_source(CRI).await;
    observed.quiet_for(SECOND * 6).await;

    observed.fake.status_fails(true);
    observed.fake.container("c", Exited);
    observed.fake.hint("c", HintKind::Stopped);
    observed.quiet_for(Duration::from_secs(100)).await;
    let reads = observed.fake.count("container c");
    assert!((100..=1010).contains(&reads), "{reads} reads");
    observed.fake.status_fails(false);
    assert_eq!(observed.next().await, DIED);
}

#[tokio::test(start_paused = true)]
async fn an_idle_observer_with_a_stream_wakes_once_a_relist() {
    let fake = Arc::new(Fake::default());
    for number in 0..100 {
        fake.container(&format!("c{number}"), Running);
    }
    let (observer, mut events, mut status) = Observer::new(fake);
    let polls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&polls);
    tokio::spawn(async move {
        let mut run = pin!(observer.run());
        std::future::poll_fn(|context| {
            counted.fetch_add(1, Ordering::Relaxed);
            run.as_mut().poll(context)
        })
        .await;
    });
    for _ in 0..100 {
        events.recv().await.unwrap();
    }
    status.wait_for(|status| status.source == CRI).await.unwrap();
    sleep(SECOND).await;
    let before = polls.load(Ordering::Relaxed);
    sleep(Duration::from_secs(600)).await;
    let wakes = polls.load(Ordering::Relaxed) - before;
    assert!(wakes <= 20, "{wakes} wake-ups in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn it_ends_when_nobody_takes_its_events() {
    let fake = Arc::new(Fake::default());
    fake.container("c", Running);
    let (observer, events, _status) = Observer::new(fake);
    let run = tokio::spawn(observer.run());
    sleep(SECOND).await;
    drop(events);
    run.await.unwrap();
}
