//! One reading of the mount table for several who ask at once: with thousands of mounts each takes long.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{MountTable, PROC_SELF_MOUNTINFO};

static LATEST: Shared<MountTable> = Shared::new();

impl MountTable {
    /// The table of this process, not as it was before one asked. Who asks while it is read shares the next reading with
    /// all who do.
    pub fn shared() -> io::Result<Arc<MountTable>> {
        LATEST.get(|| MountTable::read(Path::new(PROC_SELF_MOUNTINFO)))
    }
}

struct Shared<T> {
    /// How many have asked.
    asked: AtomicU64,
    latest: Mutex<Latest<T>>,
}

struct Latest<T> {
    /// It was read after so many had asked.
    asked: u64,
    /// How many of those who asked have had an answer, this one or an earlier one.
    answered: u64,
    /// Kept while somebody waits for it.
    read: Option<Arc<T>>,
}

impl<T> Shared<T> {
    const fn new() -> Shared<T> {
        Shared { asked: AtomicU64::new(0), latest: Mutex::new(Latest { asked: 0, answered: 0, read: None }) }
    }

    fn get(&self, read: impl FnOnce() -> io::Result<T>) -> io::Result<Arc<T>> {
        let turn = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.answered += 1;
        let found = match &latest.read {
            Some(found) if latest.asked >= turn => Arc::clone(found),
            Some(_) | None => {
                latest.asked = self.asked.load(Ordering::SeqCst);
                latest.read = None;
                let found = Arc::new(read()?);
                latest.read = Some(Arc::clone(&found));
                found
            }
        };
        if latest.answered == self.asked.load(Ordering::SeqCst) {
            latest.read = None;
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn who_asks_while_it_is_read_shares_the_next_reading_and_nobody_gets_what_was_before() {
        let shared = Shared::new();
        let readings = AtomicU64::new(0);
        let read = || Ok(readings.fetch_add(1, Ordering::SeqCst) + 1);
        assert_eq!(*shared.get(read).unwrap(), 1);
        assert_eq!(*shared.get(read).unwrap(), 2);
        let (begun, is_begun) = mpsc::channel();
        let (go_on, goes_on) = mpsc::channel::<()>();
        std::thread::scope(|threads| {
            let shared = &shared;
            let slow = move || {
                begun.send(()).unwrap();
                goes_on.recv().unwrap();
                read()
            };
            let first = threads.spawn(move || *shared.get(slow).unwrap());
            is_begun.recv().unwrap();
            let others: Vec<_> = (0..8).map(|_| threads.spawn(|| *shared.get(read).unwrap())).collect();
            while shared.asked.load(Ordering::SeqCst) < 11 {
                std::thread::yield_now();
            }
            go_on.send(()).unwrap();
            assert_eq!(first.join().unwrap(), 3);
            assert_eq!(others.into_iter().map(|other| other.join().unwrap()).collect::<Vec<_>>(), [4; 8]);
        });
        assert!(shared.latest.lock().unwrap().read.is_none(), "nobody waits for it");
        assert!(shared.get(|| Err(io::ErrorKind::Other.into())).is_err());
        assert_eq!(*shared.get(read).unwrap(), 5);
    }
}
