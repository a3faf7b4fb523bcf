//! What the kernel says, record by record, behind the trait [`KernelLog`].

#[cfg(any(test, feature = "simulated"))]
mod simulated;

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use tokio::net::unix::pipe::Receiver;
use tokio::time::Instant;

#[cfg(any(test, feature = "simulated"))]
pub use simulated::SimulatedKernelLog;

/// Where Linux has it.
pub const DEV_KMSG: &str = "/dev/kmsg";

/// No record is longer.
const LONGEST_RECORD: usize = 8192;

/// Something that the kernel said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// How long ago.
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
    opened: Instant,
    /// How long the machine had run by then.
    up: Duration,
}

impl DevKmsg {
    /// Opens it, which not everybody may.
    pub fn open(path: &Path) -> io::Result<DevKmsg> {
        let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
        let file = File::options().read(true).custom_flags(nonblocking).open(path)?;
        let up = std::fs::read_to_string("/proc/uptime")?;
        let up = up.split(' ').next().and_then(|seconds| seconds.parse().ok());
        let up = up.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or_default();
        let records = Receiver::from_owned_fd_unchecked(file.into())?;
        Ok(DevKmsg { records, opened: Instant::now(), up })
    }
}

#[async_trait]
impl KernelLog for DevKmsg {
    async fn next(&mut self) -> io::Result<Record> {
        loop {
            self.records.readable().await?;
            let mut buffer = [0; LONGEST_RECORD];
            match self.records.try_read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => {
                    let now = self.up + self.opened.elapsed();
                    if let Some(record) = parse(&String::from_utf8_lossy(&buffer[..length]), now) {
                        return Ok(record);
                    }
                }
                // Somebody was woken for nothing, or records were overwritten before they were read.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// A record as `/dev/kmsg` has it: `priority,number,microseconds,flags;message`, and more lines that nobody needs.
fn parse(text: &str, now: Duration) -> Option<Record> {
    let (head, rest) = text.split_once(';')?;
    let at = head.split(',').nth(2)?.parse().ok().map(Duration::from_micros)?;
    let message = rest.lines().next().unwrap_or_default().to_owned();
    Some(Record { age: now.saturating_sub(at), message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_tells_its_age_and_its_first_line() {
        let text = "6,339,5140900,-;NET: Registered protocol family; ten\n SUBSYSTEM=acpi\n DEVICE=+acpi:PNP0A03:00\n";
        let found = parse(text, Duration::from_secs(6)).unwrap();
        assert_eq!(found.message, "NET: Registered protocol family; ten");
        assert_eq!(found.age, Duration::from_micros(859_100));
        assert_eq!(parse("nonsense", Duration::ZERO), None);
        assert_eq!(parse("6,1,x,-;text", Duration::ZERO), None);
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
