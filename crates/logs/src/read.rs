//! A container's log as a stream of bytes, from where it is wanted to its end, or for as long as the container runs.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::Stream;
use futures_util::future::BoxFuture;
use futures_util::stream::unfold;
use jiff::Timestamp;

use crate::file::{LogFile, Next};
use crate::render::{FormatError, LogText, Renderer};
use crate::watch::{LogWatch, LogWatcher};

/// How much is read from a file at once, and about how much is given at once.
const CHUNK: usize = 32 << 10;
/// How much is read in one go where nothing of it is to be shown.
const MOST_READ: usize = 1 << 20;
/// How long somebody may write to a log that was moved away after the new one was there: a runtime that is told to begin
/// anew first writes out what it holds. It closes the file then, which is mostly seen.
const LATE_WRITES: Duration = Duration::from_secs(1);

/// What is wanted of a log. By default, all that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogOptions {
    /// Whether to go on with what is written, until the container has ended.
    pub follow: bool,
    /// From the last so many lines on.
    pub tail_lines: Option<u64>,
    /// So many bytes at the most.
    pub limit_bytes: Option<u64>,
    /// Nothing older than this.
    pub since: Option<Timestamp>,
    /// Whether each line begins with its time.
    pub timestamps: bool,
    /// Whether what the container wrote to its standard output is wanted.
    pub stdout: bool,
    /// Whether what it wrote to standard error is.
    pub stderr: bool,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            follow: false,
            tail_lines: None,
            limit_bytes: None,
            since: None,
            timestamps: false,
            stdout: true,
            stderr: true,
        }
    }
}

/// Why a log cannot be read. The texts are upstream's: clients see them.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// There is no such file.
    #[error(
        "failed to try resolving symlinks in path {path:?}: lstat {}: no such file or directory",
        path.display()
    )]
    Missing {
        /// The log.
        path: PathBuf,
    },
    /// It cannot be opened.
    #[error("failed to open log file {path:?}: {}", in_go_words(source))]
    Open {
        /// The log.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It cannot be read.
    #[error("failed to read log file {path:?}: {}", in_go_words(source))]
    Read {
        /// The log.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is in no format that is known.
    #[error(transparent)]
    Format(#[from] FormatError),
}

fn in_go_words(error: &io::Error) -> String {
    match rustix::io::Errno::from_io_error(error) {
        // Without the number, which Rust appends.
        Some(errno) => errno.to_string().split(" (os error").next().unwrap_or_default().to_lowercase(),
        None => error.to_string(),
    }
}

/// A container whose log is followed.
pub struct Followed {
    /// Who tells that something was written.
    pub watcher: LogWatcher,
    /// Completes when the container has ended.
    pub ended: BoxFuture<'static, ()>,
}

/// Reads a log from where it is wanted. Who follows it, gives the container whose it is.
///
/// Nothing is read before somebody asks for more, and nothing is left when the stream is dropped.
pub fn read_logs(
    path: PathBuf,
    options: &LogOptions,
    followed: Option<Followed>,
) -> impl Stream<Item = Result<LogText, LogError>> + Send + use<> {
    let followed = followed.filter(|_| options.follow);
    let reading = Reading {
        options: options.clone(),
        path,
        reader: None,
        has_ended: followed.is_none(),
        followed,
        watch: None,
        is_settled: false,
    };
    unfold(Some(reading), async |reading| {
        let mut reading = reading?;
        match reading.next().await {
            Ok(None) => None,
            Ok(Some(text)) => Some((Ok(text), Some(reading))),
            Err(error) => Some((Err(error), None)),
        }
    })
}

/// A log that is being read.
struct Reading {
    options: LogOptions,
    path: PathBuf,
    /// With whoever reads right now.
    reader: Option<Box<Reader>>,
    followed: Option<Followed>,
    /// Whether nothing more will be written.
    has_ended: bool,
    watch: Option<LogWatch>,
    /// Whether what a runtime wrote late to a file that was moved away has been waited for.
    is_settled: bool,
}

struct Reader {
    path: PathBuf,
    file: LogFile,
    renderer: Renderer,
    /// What is wrong with what comes after all that was given.
    failed: Option<FormatError>,
}

/// What reading a piece gave.
enum Step {
    Text(LogText),
    /// Nothing of it is to be shown; there is more to read.
    More,
    /// The end of the file.
    End(Next),
    /// All that is wanted was given.
    Done,
}

impl Reading {
    async fn next(&mut self) -> Result<Option<LogText>, LogError> {
        loop {
            let next = match self.step().await? {
                Step::Done => return Ok(None),
                Step::More => continue,
                Step::Text(text) => return Ok(Some(text)),
                Step::End(next) => next,
            };
            let shown = match next {
                Next::File { .. } if self.followed.is_none() => return self.finish(),
                Next::Same | Next::Nothing if self.has_ended => return self.finish(),
                Next::File { may_be_written: true, .. } if !self.has_ended && !self.is_settled => {
                    self.settle().await;
                    continue;
                }
                Next::File { next, .. } => self.go_on(next)?,
                Next::Same | Next::Nothing => {
                    self.wait().await;
                    continue;
                }
            };
            if !shown.is_empty() {
                return Ok(Some(shown));
            }
        }
    }

    /// Reads a piece, where it holds up nobody else.
    async fn step(&mut self) -> Result<Step, LogError> {
        let (reader, path, options) = (self.reader.take(), self.path.clone(), self.options.clone());
        let read = tokio::task::spawn_blocking(move || {
            let mut reader = match reader {
                Some(reader) => reader,
                None => Box::new(Reader::open(path, &options)?),
            };
            let step = reader.step()?;
            Ok((reader, step))
        });
        match read.await {
            Ok(Ok((reader, step))) => {
                self.reader = Some(reader);
                Ok(step)
            }
            Ok(Err(error)) => Err(error),
            Err(error) => {
                let source = io::Error::other(error);
                Err(LogError::Read { path: self.path.clone(), source })
            }
        }
    }

    /// Waits until there may be more to read.
    async fn wait(&mut self) {
        let (Some(followed), Some(reader)) = (&mut self.followed, &self.reader) else {
            self.has_ended = true;
            return;
        };
        let Some(watch) = &self.watch else {
            // What came before anybody watched is read first.
            let (directory, name) = reader.file.place();
            self.watch = Some(followed.watcher.watch(directory, name));
            return;
        };
        tokio::select! {
            biased;
            () = &mut followed.ended => self.has_ended = true,
            () = watch.changed() => {}
        }
    }

    /// Waits until nobody writes any more to a file that was moved away.
    async fn settle(&mut self) {
        self.is_settled = true;
        if let Some(watch) = &self.watch {
            let _ = tokio::time::timeout(LATE_WRITES, watch.closed()).await;
        }
    }

    /// Nothing more is read; what has not ended is given as it is.
    fn finish(&mut self) -> Result<Option<LogText>, LogError> {
        let Some(reader) = &mut self.reader else { return Ok(None) };
        let mut shown = LogText::default();
        reader.renderer.finish(&mut shown)?;
        reader.renderer.end();
        Ok(Some(shown).filter(|shown| !shown.is_empty()))
    }

    fn go_on(&mut self, next: LogFile) -> Result<LogText, LogError> {
        let mut shown = LogText::default();
        self.is_settled = false;
        if let Some(watch) = &self.watch {
            watch.goes_on();
        }
        if let Some(reader) = &mut self.reader {
            reader.renderer.finish(&mut shown)?;
            reader.file = next;
        }
        Ok(shown)
    }
}

impl Reader {
    fn open(path: PathBuf, options: &LogOptions) -> Result<Reader, LogError> {
        let mut file = LogFile::open(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => LogError::Missing { path: path.clone() },
            _ => LogError::Open { path: path.clone(), source },
        })?;
        if let Some(lines) = options.tail_lines {
            file.seek_tail(lines).map_err(|source| LogError::Read { path: path.clone(), source })?;
        }
        Ok(Reader { path, file, renderer: Renderer::new(options), failed: None })
    }

    fn step(&mut self) -> Result<Step, LogError> {
        if let Some(error) = self.failed.take() {
            return Err(error.into());
        }
        let failed = |path: &Path, source| LogError::Read { path: path.to_owned(), source };
        let (mut buffer, mut shown, mut read) = (vec![0; CHUNK], LogText::default(), 0);
        while shown.len() < CHUNK && read < MOST_READ && !self.renderer.is_done() {
            let length = self.file.read(&mut buffer).map_err(|source| failed(&self.path, source))?;
            if length == 0 {
                if shown.is_empty() {
                    return Ok(Step::End(self.file.next().map_err(|source| failed(&self.path, source))?));
                }
                break;
            }
            if let Err(error) = self.renderer.feed(&buffer[..length], &mut shown) {
                // What came before is shown first.
                self.failed = Some(error);
                break;
            }
            read += length;
        }
        Ok(match shown.is_empty() {
            false => Step::Text(shown),
            true if self.renderer.is_done() => Step::Done,
            true => Step::More,
        })
    }
}
