//! Following a log that is written, rotated, compressed and read in whatever pieces: nothing is lost, nothing doubled.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crablet_logs::{Followed, LogError, LogOptions, LogText, LogWatcher, read_logs};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::{FutureExt, Stream, StreamExt};
use proptest::prelude::*;
use tokio::sync::oneshot;

const TIME: &str = "2020-09-27T11:18:01.000000000Z";

/// A container that writes lines with numbers, and whose log is rotated.
struct Writer {
    directory: tempfile::TempDir,
    file: File,
    lines: u32,
    rotations: u32,
}

impl Writer {
    fn new() -> Writer {
        let directory = tempfile::tempdir().unwrap();
        let file = begin(&directory.path().join("0.log"));
        Writer { directory, file, lines: 0, rotations: 0 }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("0.log")
    }

    fn rotated(&self, number: u32) -> PathBuf {
        self.directory.path().join(format!("0.log.20260101-{number:06}"))
    }

    /// Writes lines, some of them in two pieces.
    fn write(&mut self, count: u32) {
        for _ in 0..count {
            let line = match self.lines % 3 {
                0 => format!("{TIME} stdout P {}\n{TIME} stdout F \n", self.lines),
                1 => format!("{TIME} stderr F {}\n", self.lines),
                _ => format!("{TIME} stdout F {}\n", self.lines),
            };
            self.file.write_all(line.as_bytes()).unwrap();
            self.lines += 1;
        }
    }

    /// Moves the log away. The runtime writes some more to it before it begins another one, and some afterwards, until
    /// it closes the old one.
    fn rotate(&mut self, before: u32, late: u32) {
        self.rotations += 1;
        fs::rename(self.path(), self.rotated(self.rotations)).unwrap();
        if self.rotations > 1 {
            compress(&self.rotated(self.rotations - 1));
        }
        if self.rotations > 6 {
            let _ = fs::remove_file(format!("{}.gz", self.rotated(self.rotations - 6).display()));
        }
        self.write(before);
        let new = begin(&self.path());
        self.write(late);
        self.file = new;
    }

    fn follow(&self, options: &LogOptions) -> (Following, oneshot::Sender<()>) {
        let (end, ended) = oneshot::channel();
        let ended = async move { ended.await.unwrap_or_default() }.boxed();
        let followed = Followed { watcher: LogWatcher::default(), ended };
        (read(self.path(), options, followed), end)
    }
}

type Following = std::pin::Pin<Box<dyn Stream<Item = Result<Vec<u8>, LogError>> + Send>>;

fn read(path: PathBuf, options: &LogOptions, followed: Followed) -> Following {
    Box::pin(read_logs(path, options, Some(followed)).map(|piece| piece.map(LogText::into_bytes)))
}

fn begin(path: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(path).unwrap()
}

fn compress(path: &Path) {
    let compressed = format!("{}.gz", path.display());
    let temporary = format!("{}.tmp", path.display());
    let mut encoder = GzEncoder::new(File::create(&temporary).unwrap(), Compression::fast());
    encoder.write_all(&fs::read(path).unwrap()).unwrap();
    encoder.finish().unwrap();
    fs::rename(temporary, compressed).unwrap();
    fs::remove_file(path).unwrap();
}

fn following() -> LogOptions {
    LogOptions { follow: true, ..LogOptions::default() }
}

fn numbers(text: &[u8]) -> Vec<u32> {
    str::from_utf8(text).unwrap().lines().map(|line| line.parse().unwrap()).collect()
}

async fn rest(mut log: Following, text: &mut Vec<u8>) {
    while let Some(piece) = log.next().await {
        text.extend(piece.unwrap());
    }
}

/// Upstream's cases.
#[tokio::test]
async fn what_is_wanted_of_a_log_is_given() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("0.log");
    let log: String = (1..=3)
        .map(|number| format!("2020-09-27T11:18:0{number}.00000000Z stdout F line{number}\n"))
        .collect();
    fs::write(&path, log).unwrap();
    let all = LogOptions::default;
    let second = || Some("2020-09-27T11:18:02Z".parse().unwrap());
    let cases = [
        (all(), "line1\nline2\nline3\n"),
        (LogOptions { tail_lines: Some(2), ..all() }, "line2\nline3\n"),
        (LogOptions { tail_lines: Some(4), ..all() }, "line1\nline2\nline3\n"),
        (LogOptions { tail_lines: Some(0), ..all() }, ""),
        (LogOptions { limit_bytes: Some(9), ..all() }, "line1\nlin"),
        (LogOptions { limit_bytes: Some(100), ..all() }, "line1\nline2\nline3\n"),
        (LogOptions { limit_bytes: Some(0), ..all() }, ""),
        (LogOptions { since: second(), ..all() }, "line2\nline3\n"),
        (LogOptions { since: Some("2026-01-01T00:00:00Z".parse().unwrap()), ..all() }, ""),
        (following(), "line1\nline2\nline3\n"),
        (LogOptions { tail_lines: Some(2), ..following() }, "line2\nline3\n"),
        (LogOptions { since: second(), ..following() }, "line2\nline3\n"),
        (LogOptions { tail_lines: Some(0), ..following() }, ""),
    ];
    for (options, expected) in cases {
        let followed = Followed { watcher: LogWatcher::default(), ended: async {}.boxed() };
        let mut text = Vec::new();
        rest(read(path.clone(), &options, followed), &mut text).await;
        assert_eq!(String::from_utf8(text).unwrap(), expected, "{options:?}");
    }
}

#[tokio::test]
async fn what_comes_before_something_wrong_is_given_before_it_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("0.log");
    fs::write(&path, "{\"log\":\"a\\n\",\"stream\":\"stdout\"}\n{\"log\":\"b\"}\n").unwrap();
    let followed = Followed { watcher: LogWatcher::default(), ended: async {}.boxed() };
    let mut log = read(path, &LogOptions::default(), followed);
    assert_eq!(log.next().await.unwrap().unwrap(), b"a\n");
    let error = log.next().await.unwrap().unwrap_err();
    assert!(error.to_string().contains("unexpected stream type"), "{error}");
}

#[tokio::test]
async fn a_log_is_followed_through_a_rotation_with_what_is_written_late() {
    let mut writer = Writer::new();
    writer.write(10);
    let (mut log, end) = writer.follow(&following());
    let mut text = log.next().await.unwrap().unwrap();
    let mut more = async |log: &mut Following, count: usize| {
        while numbers(&text).len() < count {
            text.extend(log.next().await.unwrap().unwrap());
        }
    };
    more(&mut log, 10).await;
    writer.write(2);
    more(&mut log, 12).await;
    writer.rotate(3, 4);
    writer.write(5);
    more(&mut log, 24).await;
    end.send(()).unwrap();
    rest(log, &mut text).await;
    assert_eq!(numbers(&text), (0..24).collect::<Vec<_>>());
}

/// What happens to a log, and to who reads it.
#[derive(Debug, Clone)]
enum Step {
    Write(u32),
    Rotate {
        before: u32,
        late: u32,
    },
    /// So many pieces are read.
    Read(u32),
    /// Whoever waits for something gets his turn.
    Wait,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..400_u32).prop_map(Step::Write),
        2 => (0..5_u32, 0..5_u32).prop_map(|(before, late)| Step::Rotate { before, late }),
        3 => (1..4_u32).prop_map(Step::Read),
        1 => Just(Step::Wait),
    ];
    prop::collection::vec(step, 1..25)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_written_and_rotated_is_neither_lost_nor_doubled(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut writer = Writer::new();
            let (mut log, end) = writer.follow(&following());
            // Which file it begins with is decided when something is asked for.
            writer.write(1);
            let mut text = log.next().await.unwrap().unwrap();
            let mut rotated_unread = 0;
            for step in steps {
                match step {
                    Step::Write(count) => writer.write(count),
                    // Of more than are kept, a reader that slow misses some: it is upstream's limit.
                    Step::Rotate { .. } if rotated_unread == 4 => {}
                    Step::Rotate { before, late } => {
                        rotated_unread += 1;
                        writer.rotate(before, late);
                    }
                    Step::Read(pieces) => for _ in 0..pieces {
                        // Where nothing comes, all was read.
                        match tokio::time::timeout(Duration::from_millis(30), log.next()).await {
                            Ok(piece) => text.extend(piece.unwrap().unwrap()),
                            Err(_) => break,
                        }
                    },
                    Step::Wait => tokio::time::sleep(Duration::from_millis(15)).await,
                }
            }
            end.send(()).unwrap();
            rest(log, &mut text).await;
            assert_eq!(numbers(&text), (0..writer.lines).collect::<Vec<_>>());
        });
    }
}

#[tokio::test]
async fn a_thousand_followers_that_never_read_hold_up_nobody() {
    let writer = Writer::new();
    let watcher = LogWatcher::default();
    let line = "x".repeat(1000);
    fs::write(writer.path(), format!("{TIME} stdout F {line}\n").repeat(1000)).unwrap();
    let follow = || {
        let followed = Followed { watcher: watcher.clone(), ended: std::future::pending().boxed() };
        read(writer.path(), &following(), followed)
    };
    let mut idle = Vec::new();
    for _ in 0..1000 {
        let mut log = follow();
        assert!(log.next().await.unwrap().is_ok());
        idle.push(log);
    }
    let (mut reader, mut text) = (follow(), Vec::new());
    while text.len() < 1000 * (line.len() + 1) {
        text.extend(reader.next().await.unwrap().unwrap());
    }
    assert_eq!(str::from_utf8(&text).unwrap().lines().filter(|shown| **shown == *line).count(), 1000);
}
