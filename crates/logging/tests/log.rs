//! The log as a program sees it: events in, lines out.

#![expect(clippy::unwrap_used, reason = "in a test it is the assertion")]

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crablet_host::clock::Clock;
use crablet_logging::{ErrorChain, Format, Handle, Settings, VModule, pod_span, subscriber};
use jiff::tz::TimeZone;
use tracing::level_filters::LevelFilter;
use tracing::{debug, error, info, trace, warn};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// What was logged since the last call.
    fn take(&self) -> Vec<String> {
        let bytes = std::mem::take(&mut *self.0.lock().unwrap());
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }

    /// The same without the header of each line.
    fn messages(&self) -> Vec<String> {
        self.take().iter().map(|line| line.split_once("] ").unwrap().1.to_owned()).collect()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn logged(settings: Settings, test: impl FnOnce(&Handle, &Lines)) {
    let lines = Lines::default();
    let (subscriber, handle) = subscriber(settings, lines.clone());
    tracing::subscriber::with_default(subscriber, || test(&handle, &lines));
}

fn settings() -> Settings {
    let start = "2026-11-15T03:46:00.123456Z".parse().unwrap();
    Settings { clock: Clock::simulated(start), time_zone: TimeZone::UTC, ..Settings::default() }
}

fn every_level() {
    error!(target: "crablet_agent", "error");
    warn!(target: "crablet_agent", "warn");
    info!(target: "crablet_agent", "info");
    debug!(target: "crablet_agent", "debug");
    trace!(target: "crablet_agent", "trace");
    error!(target: "hyper", "library error");
    warn!(target: "hyper", "library warn");
    info!(target: "hyper", "library info");
    debug!(target: "hyper", "library debug");
    trace!(target: "hyper", "library trace");
}

#[tokio::test(start_paused = true)]
async fn a_line_has_klogs_header_and_its_fields() {
    logged(settings(), |_, lines| {
        let line = line!() + 1;
        info!(target: "crablet_agent", pod = "default/web", restarts = 3, "Container {}", "started");
        let process = std::process::id();
        assert_eq!(
            lines.take(),
            [format!(
                "I1115 03:46:00.123456 {process:>7} log.rs:{line}] \"Container started\" pod=\"default/web\" restarts=3"
            )]
        );
    });
}

#[test]
fn verbosity_decides_what_is_shown_and_changes_at_run_time() {
    logged(settings(), |handle, lines| {
        for (verbosity, shown) in
            [(0, 5), (3, 5), (4, 6), (5, 6), (6, 7), (8, 8), (9, 9), (10, 10), (4, 6), (0, 5)]
        {
            handle.set_verbosity(verbosity);
            assert_eq!(handle.verbosity(), verbosity);
            every_level();
            let messages = lines.messages();
            assert_eq!(messages.len(), shown, "at {verbosity}: {messages:?}");
            assert_eq!(messages.contains(&"\"debug\"".to_owned()), verbosity >= 4);
            assert_eq!(messages.contains(&"\"library info\"".to_owned()), verbosity >= 8);
        }
    });
}

#[test]
fn vmodule_raises_the_verbosity_of_single_files_at_run_time() {
    logged(settings(), |handle, lines| {
        for (vmodule, shown) in
            [("other=9", 5), ("log=4", 6), ("l*=10", 10), ("log::*=10", 5), ("log=1", 5), ("", 5)]
        {
            let vmodule: VModule = vmodule.parse().unwrap();
            handle.set_vmodule(vmodule.clone());
            assert_eq!(handle.vmodule(), vmodule);
            every_level();
            assert_eq!(lines.take().len(), shown, "with {vmodule}");
        }
        handle.set_vmodule("log=1".parse().unwrap());
        handle.set_verbosity(4);
        every_level();
        assert_eq!(lines.take().len(), 6, "vmodule only ever adds lines");
    });
}

#[test]
fn the_format_changes_at_run_time_and_json_is_valid() {
    logged(Settings { verbosity: 6, ..settings() }, |handle, lines| {
        info!(target: "crablet_agent", "text");
        handle.set_format(Format::Json);
        assert_eq!(handle.format(), Format::Json);
        let failure = io::Error::other("disk\nfull");
        error!(target: "crablet_agent", err = %ErrorChain(&failure), path = ?"/a", "Not written");
        debug!(target: "crablet_agent", ok = true, "detail");
        trace!(target: "crablet_agent", "more");
        handle.set_format(Format::Text);
        info!(target: "crablet_agent", "text again");

        let lines = lines.take();
        assert_eq!(lines.len(), 5);
        assert!(lines[0].ends_with("] \"text\"") && lines[4].ends_with("] \"text again\""));
        let error: serde_json::Value = serde_json::from_str(&lines[1]).unwrap();
        assert_eq!(error["msg"], "Not written");
        assert_eq!(error["err"], "disk\nfull");
        assert_eq!(error["path"], "\"/a\"");
        assert!(error["caller"].as_str().unwrap().starts_with("log.rs:"));
        assert!(error["ts"].as_f64().unwrap() > 1.7e12);
        assert!(error.get("v").is_none());
        let debug: serde_json::Value = serde_json::from_str(&lines[2]).unwrap();
        assert_eq!((&debug["v"], &debug["ok"]), (&4.into(), &true.into()));
        let trace: serde_json::Value = serde_json::from_str(&lines[3]).unwrap();
        assert_eq!(trace["v"], 6);
    });
}

#[test]
fn every_line_inside_a_pods_span_names_the_pod_once() {
    logged(settings(), |_, lines| {
        let pod = pod_span("default", "web", "0a1b");
        let inside = pod.enter();
        info!(target: "crablet_agent", "Synced");
        let container = tracing::info_span!(target: "crablet_agent", "container", container = "main", id = tracing::field::Empty);
        let deeper = container.enter();
        container.record("id", "c1");
        info!(target: "crablet_agent", pod = "default/web", container = "sidecar", "Started");
        drop(deeper);
        drop(inside);
        info!(target: "crablet_agent", "Outside");
        assert_eq!(
            lines.messages(),
            [
                "\"Synced\" pod=\"default/web\" uid=\"0a1b\"",
                "\"Started\" pod=\"default/web\" uid=\"0a1b\" id=\"c1\" container=\"sidecar\"",
                "\"Outside\"",
            ]
        );
    });
}

#[test]
fn an_error_given_as_a_value_prints_its_causes() {
    #[derive(Debug, thiserror::Error)]
    #[error("cannot read the manifest")]
    struct Failure(#[source] io::Error);

    logged(settings(), |_, lines| {
        let failure = Failure(io::Error::other("disk on fire"));
        error!(target: "crablet_agent", err = &failure as &(dyn std::error::Error + 'static), "Skipped");
        assert_eq!(lines.messages(), ["\"Skipped\" err=\"cannot read the manifest: disk on fire\""]);
    });
}

#[test]
fn a_forged_line_stays_inside_its_value() {
    logged(settings(), |_, lines| {
        let forged = "x\nE1115 03:46:00.123456    1234 a.rs:1] \"root login\"\r\n";
        info!(target: "crablet_agent", reason = forged, "{forged}");
        assert_eq!(lines.take().len(), 1);
    });
}

#[test]
fn an_overlong_line_is_cut() {
    logged(settings(), |_, lines| {
        info!(target: "crablet_agent", output = %"x".repeat(100_000), more = %"y".repeat(100_000), "Exec");
        let lines = lines.take();
        assert!(lines[0].len() <= 16 * 1024 && lines[0].contains("bytes cut]"));
    });
}

#[tokio::test(start_paused = true)]
async fn a_flood_is_bounded_and_the_loss_is_told() {
    let lines = Lines::default();
    let (subscriber, _handle) = subscriber(settings(), lines.clone());
    let _guard = tracing::subscriber::set_default(subscriber);
    for _ in 0..6_000 {
        info!(target: "crablet_agent", "chatter");
    }
    assert_eq!(lines.take().len(), 5_000);
    tokio::time::advance(Duration::from_millis(500)).await;
    info!(target: "crablet_agent", "after");
    assert_eq!(
        lines.messages(),
        ["\"Dropped log lines that came too fast\" lines=1000 linesPerSecond=1000", "\"after\""]
    );
}

#[tokio::test(start_paused = true)]
async fn a_stuck_writer_shows_in_the_check() {
    struct Stuck(std::sync::mpsc::Receiver<()>);
    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (release, blocked) = std::sync::mpsc::sync_channel(1);
    let (subscriber, handle) = subscriber(settings(), Stuck(blocked));
    assert_eq!(handle.check(), Ok(()));
    let dispatch = tracing::Dispatch::new(subscriber);
    let writer = std::thread::spawn({
        let dispatch = dispatch.clone();
        move || tracing::dispatcher::with_default(&dispatch, || error!(target: "crablet_agent", "x"))
    });
    // The writing thread has tokio's time only through the handle, so wait until it is seen to write.
    while handle.check().is_ok() {
        tokio::time::advance(Duration::from_secs(60)).await;
        std::thread::yield_now();
    }
    assert_eq!(handle.check(), Err("logging blocked".to_owned()));
    release.send(()).unwrap();
    writer.join().unwrap();
    assert_eq!(handle.check(), Ok(()));
}

#[test]
fn the_fields_of_a_line_that_is_off_are_not_even_computed() {
    logged(settings(), |handle, lines| {
        let mut computed = 0;
        for verbosity in [0, 4, 0] {
            handle.set_verbosity(verbosity);
            debug!(target: "crablet_agent", number = { computed += 1; computed }, "costly");
        }
        assert_eq!((computed, lines.take().len()), (1, 1));
        handle.set_verbosity(6);
        assert_eq!(LevelFilter::current(), LevelFilter::TRACE);
    });
}
