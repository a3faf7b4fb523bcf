//! What happened in a run, line by line, as far back as is kept.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

/// How many lines are kept.
const KEPT: usize = 20_000;

/// A trace. Clones are the same one.
#[derive(Clone)]
pub struct Trace(Arc<Inner>);

struct Inner {
    is_on: bool,
    began: Instant,
    lines: Mutex<VecDeque<String>>,
}

impl Trace {
    /// An empty trace, whose times count from now. One that is off keeps nothing.
    pub fn new(is_on: bool) -> Trace {
        Trace(Arc::new(Inner { is_on, began: Instant::now(), lines: Mutex::default() }))
    }

    /// Writes a line down.
    pub fn note(&self, line: impl Display) {
        if !self.0.is_on {
            return;
        }
        let line = format!("{:>11.3} {line}", self.0.began.elapsed().as_secs_f64());
        let mut lines = self.0.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == KEPT {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// The lines, oldest first.
    pub fn lines(&self) -> Vec<String> {
        self.0.lines.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

/// The agent's log goes in among the rest.
impl Write for Trace {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.note(format_args!("      log {}", String::from_utf8_lossy(bytes).trim_end()));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
