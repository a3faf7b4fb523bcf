//! What the kernel says, record by record, behind the trait [`KernelLog`].

#[cfg(any(test, feature = "simulated"))]
mod simulated;

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use rustix::time::{ClockId, clock_gettime};
use tokio::net::unix::pipe::Receiver;
use tokio::task::consume_budget;

#[cfg(any(test, feature = "simulated"))]
pub use simulated::SimulatedKernelLog;

/// Where Linux has it.
pub const DEV_KMSG: &str = "/dev/kmsg";

/// No record is longer.
const LONGEST_RECORD: usize = 8192;

/// Something that the kernel said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// How long ago, as far as the kernel's clocks agree; nothing for what it said since somebody listens.
    pub age: Duration,
    pub message: String,
}

/// The kernel's log, from the oldest record that it has.
#[async_trait]
pub trait KernelLog: Send {
    /// The next record, once there is one.
    async fn next(&mut self) -> io::Result<Record>;
}

/// The machine's own. It is read as a pipe is.
#[derive(Debug)]
pub struct DevKmsg {
    records: Receiver,
    /// How long the machine had run when this was opened, until all is read that was there by then. What comes later is
    /// new, whatever its time: the clock of the records is no other one, and drifts from all of them.
    up: Option<Duration>,
}

impl DevKmsg {
    /// Opens it, which not everybody may.
    pub fn open(path: &Path) -> io::Result<DevKmsg> {
        let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
        let file = File::options().read(true).custom_flags(nonblocking).open(path)?;
        let records = Receiver::from_owned_fd_unchecked(file.into())?;
        // As the clock of the records, it neither counts sleep nor is corrected by anybody.
        let up = Duration::try_from(clock_gettime(ClockId::MonotonicRaw)).unwrap_or_default();
        Ok(DevKmsg { records, up: Some(up) })
    }
}

#[async_trait]
impl KernelLog for DevKmsg {
    async fn next(&mut self) -> io::Result<Record> {
        loop {
            let mut buffer = [0; LONGEST_RECORD];
            // However much is said, others have their turns.
            consume_budget().await;
            let read = match self.up {
                Some(_) => rustix::io::read(&self.records, &mut buffer).map_err(io::Error::from),
                None => {
                    self.records.readable().await?;
                    self.records.try_read(&mut buffer)
                }
            };
            match read {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => {
                    if let Some(record) = parse(&String::from_utf8_lossy(&buffer[..length]), self.up) {
                        return Ok(record);
                    }
                }
                // All is read, or somebody was woken for nothing; or records were overwritten before they were read.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.up = None,
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// A record as `/dev/kmsg` has it: `priority,number,microseconds,flags;message`, and more lines that nobody needs.
fn parse(text: &str, up: Option<Duration>) -> Option<Record> {
    let (head, rest) = text.split_once(';')?;
    let at = head.split(',').nth(2)?.parse().ok().map(Duration::from_micros)?;
    let message = rest.lines().next().unwrap_or_default().to_owned();
    Some(Record { age: up.map_or(Duration::ZERO, |up| up.saturating_sub(at)), message })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_record_tells_its_age_and_its_first_line() {
        let text = "6,339,5140900,-;NET: Registered protocol family; ten\n SUBSYSTEM=acpi\n DEVICE=+acpi:PNP0A03:00\n";
        let found = parse(text, Some(Duration::from_secs(6))).unwrap();
        assert_eq!(found.message, "NET: Registered protocol family; ten");
        assert_eq!(found.age, Duration::from_micros(859_100));
        assert_eq!(parse("nonsense", None), None);
        assert_eq!(parse("6,1,x,-;text", None), None);
    }

    /// Written by somebody whose clock shows the first second of the machine, for ever.
    #[tokio::test]
    async fn what_the_kernel_says_while_somebody_listens_is_new_whatever_its_clock_shows() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kmsg");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let mut log = DevKmsg::open(&path).unwrap();
        let mut kernel = File::options().write(true).open(&path).unwrap();
        kernel.write_all(b"6,1,0,-;before\n").unwrap();
        let before = log.next().await.unwrap();
        assert!(before.message == "before" && before.age > Duration::ZERO);
        let pause = Duration::from_millis(10);
        assert!(tokio::time::timeout(pause, log.next()).await.is_err(), "there is nothing more");
        kernel.write_all(b"6,2,0,-;now\n").unwrap();
        let now = log.next().await.unwrap();
        assert_eq!((&*now.message, now.age), ("now", Duration::ZERO));
    }

    /// On a machine that lets this process read it.
    #[tokio::test]
    async fn what_the_kernel_said_can_be_read_from_the_first_record_on() {
        let Ok(mut log) = DevKmsg::open(Path::new(DEV_KMSG)) else { return };
        let first = tokio::time::timeout(Duration::from_secs(5), log.next()).await;
        if let Ok(first) = first {
            assert!(first.is_ok_and(|record| record.age > Duration::ZERO));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_simulated_kernel_says_what_it_is_told_to() {
        let kernel = SimulatedKernelLog::default();
        kernel.say("one");
        let mut log = kernel.clone();
        assert_eq!(log.next().await.unwrap().message, "one");
        assert!(tokio::time::timeout(Duration::from_secs(1), log.next()).await.is_err());
        kernel.say("two");
        assert_eq!(log.next().await.unwrap().message, "two");
    }
}
