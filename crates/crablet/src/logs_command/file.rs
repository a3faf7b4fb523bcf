//! The file of a log, which grows, and which is moved away and begun anew when it is large.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt;
use inotify::{EventStream, Inotify, WatchMask};

/// How often a file is looked at whose changes the kernel does not tell.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long a log may take to be there after its container has started.
const PATIENCE: Duration = Duration::from_secs(10);

/// A log that is being read.
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    position: u64,
}

/// What happens in the directory of a log.
pub(super) struct Changes {
    events: Option<EventStream<Vec<u8>>>,
}

/// Watches the directory of a log. Where that cannot be done, it is looked at again and again.
pub(super) fn changes(directory: &Path) -> Changes {
    let watch = || {
        let inotify = Inotify::init()?;
        let what = WatchMask::MODIFY | WatchMask::CREATE | WatchMask::MOVED_TO | WatchMask::DELETE;
        inotify.watches().add(directory, what)?;
        inotify.into_event_stream(vec![0; 4096])
    };
    Changes { events: watch().ok() }
}

impl Changes {
    /// Waits for something to happen.
    pub(super) async fn next(&mut self) {
        let is_over = match &mut self.events {
            Some(events) => !matches!(events.next().await, Some(Ok(_))),
            None => {
                tokio::time::sleep(LOOK_EVERY).await;
                false
            }
        };
        if is_over {
            self.events = None;
        }
    }
}

impl LogFile {
    pub(super) fn open(path: &Path) -> io::Result<LogFile> {
        Ok(LogFile { path: path.to_owned(), file: File::open(path)?, position: 0 })
    }

    /// The same for a container that has just started, whose log may take a moment.
    pub(super) async fn open_when_there(path: &Path, changes: &mut Changes) -> io::Result<LogFile> {
        let opened = async {
            loop {
                match LogFile::open(path) {
                    Err(error) if error.kind() == ErrorKind::NotFound => changes.next().await,
                    opened => return opened,
                }
            }
        };
        match tokio::time::timeout(PATIENCE, opened).await {
            Ok(opened) => opened,
            Err(_) => LogFile::open(path),
        }
    }

    /// Reads what there is to read.
    pub(super) fn read(&mut self, mut take: impl FnMut(&[u8]) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            match self.file.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(length) => {
                    self.position += u64::try_from(length).unwrap_or_default();
                    take(&buffer[..length])?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Goes on with the new file where the log was begun anew, when the old one is read to its end. Says whether it
    /// was.
    pub(super) fn go_on(&mut self, take: impl FnMut(&[u8]) -> anyhow::Result<()>) -> anyhow::Result<bool> {
        let own = self.file.metadata()?;
        if own.len() < self.position {
            self.position = self.file.seek(SeekFrom::Start(0))?;
            return Ok(true);
        }
        let next = match File::open(&self.path) {
            Ok(next) => next,
            // Moved away, and not yet begun anew.
            Err(_) => return Ok(false),
        };
        if is_same(&own, &next.metadata()?) {
            return Ok(false);
        }
        // Once the new one is there, nobody writes to the old one any more.
        self.read(take)?;
        (self.file, self.position) = (next, 0);
        Ok(true)
    }
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;

    fn read(log: &mut LogFile) -> String {
        let mut text = Vec::new();
        let mut take = |bytes: &[u8]| {
            text.extend_from_slice(bytes);
            Ok(())
        };
        log.read(&mut take).unwrap();
        while log.go_on(&mut take).unwrap() {
            log.read(&mut take).unwrap();
        }
        String::from_utf8(text).unwrap()
    }

    #[tokio::test]
    async fn a_log_is_followed_through_its_rotation() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        let mut changes = changes(directory.path());
        let mut writer = File::create(&path).unwrap();
        writer.write_all(b"one\n").unwrap();
        let mut log = LogFile::open_when_there(&path, &mut changes).await.unwrap();
        assert_eq!(read(&mut log), "one\n");
        assert_eq!(read(&mut log), "");

        let (grown, ()) = tokio::join!(
            async {
                loop {
                    changes.next().await;
                    let text = read(&mut log);
                    if !text.is_empty() {
                        return text;
                    }
                }
            },
            async { writer.write_all(b"two\n").unwrap() }
        );
        assert_eq!(grown, "two\n");

        fs::rename(&path, directory.path().join("0.log.1")).unwrap();
        writer.write_all(b"last\n").unwrap();
        assert_eq!(read(&mut log), "last\n");
        writer.write_all(b"very last\n").unwrap();
        fs::write(&path, "new\n").unwrap();
        assert_eq!(read(&mut log), "very last\nnew\n");
        fs::write(&path, "a\n").unwrap();
        assert_eq!(read(&mut log), "a\n", "cut off and begun anew in place");
    }

    #[tokio::test]
    async fn a_directory_that_cannot_be_watched_is_looked_at() {
        let mut changes = changes(Path::new("/nonexistent"));
        assert!(changes.events.is_none());
        changes.next().await;
        assert!(LogFile::open(Path::new("/nonexistent/0.log")).is_err());
    }
}
