//! A kernel in memory.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;

use super::{KernelLog, Record};

/// One that says what it is told to. Clones are the same; each reads all of it.
#[derive(Debug, Clone, Default)]
pub struct SimulatedKernelLog {
    said: Arc<(Mutex<VecDeque<String>>, Notify)>,
    read: usize,
}

impl SimulatedKernelLog {
    /// Says this, now.
    pub fn say(&self, line: &str) {
        self.said.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(line.to_owned());
        self.said.1.notify_waiters();
    }
}

#[async_trait]
impl KernelLog for SimulatedKernelLog {
    async fn next(&mut self) -> io::Result<Record> {
        let said = Arc::clone(&self.said);
        loop {
            let more = said.1.notified();
            let next = said.0.lock().unwrap_or_else(PoisonError::into_inner).get(self.read).cloned();
            if let Some(message) = next {
                self.read += 1;
                return Ok(Record { age: Duration::ZERO, message });
            }
            more.await;
        }
    }
}
