//! What `/proc` tells of processes, their network and the machine's disks.

use std::path::Path;

use crate::bytes::{lines, number, words};
use crate::directory::{Buffer, Directory};

/// Interfaces that say nothing of a machine's network: cAdvisor leaves out the same.
const IGNORED: [&[u8]; 4] = [b"lo", b"veth", b"docker", b"nerdctl"];
/// The most descriptors of a process that are looked at, and the most processes of a cgroup.
const MOST: u64 = 100_000;

/// What passed through a network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) received: Traffic,
    pub(crate) sent: Traffic,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
    pub(crate) errors: u64,
    pub(crate) dropped: u64,
}

/// What a cgroup's own processes hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Processes {
    pub(crate) count: u64,
    pub(crate) descriptors: u64,
    pub(crate) sockets: u64,
    /// The soft limit of open files of the first process; none is known for a cgroup without one.
    pub(crate) open_files: Option<i64>,
}

/// What memory the machine has, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MachineMemory {
    pub(crate) total: u64,
    pub(crate) swap: u64,
    pub(crate) swap_used: u64,
}

/// `/proc`, or what stands for it, held open while it is read.
#[derive(Debug)]
pub(crate) struct Proc(Directory);

impl Proc {
    pub(crate) fn open(path: &Path) -> Option<Proc> {
        Directory::open(path).map(Proc)
    }

    /// The interfaces of a process's network, in the kernel's order.
    pub(crate) fn interfaces(&self, pid: u32, buffer: &mut Buffer) -> Option<Vec<Interface>> {
        self.0.read(format!("{pid}/net/dev"), buffer).map(interfaces)
    }

    /// What processes hold; whose limits are told is `first`.
    pub(crate) fn held(&self, pids: &[u32], first: Option<u32>, buffer: &mut Buffer) -> Processes {
        let mut held = Processes { count: pids.len() as u64, ..Processes::default() };
        for pid in pids {
            held.count_descriptors(&self.0, *pid, buffer);
        }
        let limits = first.and_then(|pid| self.0.read(format!("{pid}/limits"), buffer));
        held.open_files = limits.and_then(open_files);
        held
    }

    /// The machine's memory, its swap and how much of that is used, in bytes.
    pub(crate) fn memory(&self, buffer: &mut Buffer) -> Option<MachineMemory> {
        let text = self.0.read(c"meminfo", buffer)?;
        let bytes = |name: &[u8]| {
            let line = lines(text).find_map(|line| line.strip_prefix(name))?;
            words(line).next().and_then(number)?.checked_mul(1_024)
        };
        let (total, swap) = (bytes(b"MemTotal:")?, bytes(b"SwapTotal:")?);
        Some(MachineMemory { total, swap, swap_used: swap.saturating_sub(bytes(b"SwapFree:")?) })
    }

    /// The disks of `/proc/diskstats`, in its order.
    pub(crate) fn disks(&self, buffer: &mut Buffer) -> Vec<Disk> {
        let text = self.0.read(c"diskstats", buffer).unwrap_or_default();
        lines(text).filter_map(disk).collect()
    }
}

/// A disk or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Disk {
    pub(crate) number: (u32, u32),
    pub(crate) name: String,
    pub(crate) counters: DiskCounters,
}

/// What a disk did since the machine started: times are in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DiskCounters {
    pub(crate) reads: u64,
    pub(crate) reads_merged: u64,
    pub(crate) sectors_read: u64,
    pub(crate) read_time: u64,
    pub(crate) writes: u64,
    pub(crate) writes_merged: u64,
    pub(crate) sectors_written: u64,
    pub(crate) write_time: u64,
    pub(crate) in_progress: u64,
    pub(crate) io_time: u64,
    pub(crate) weighted_io_time: u64,
}

fn disk(line: &[u8]) -> Option<Disk> {
    let mut fields = words(line);
    let (major, minor) = (fields.next().and_then(number)?, fields.next().and_then(number)?);
    let name = String::from_utf8_lossy(fields.next()?).into_owned();
    let mut next = || fields.next().and_then(number);
    Some(Disk {
        number: (u32::try_from(major).ok()?, u32::try_from(minor).ok()?),
        name,
        counters: DiskCounters {
            reads: next()?,
            reads_merged: next()?,
            sectors_read: next()?,
            read_time: next()?,
            writes: next()?,
            writes_merged: next()?,
            sectors_written: next()?,
            write_time: next()?,
            in_progress: next()?,
            io_time: next()?,
            weighted_io_time: next()?,
        },
    })
}

impl Processes {
    /// A process that ended meanwhile holds nothing.
    fn count_descriptors(&mut self, proc: &Directory, pid: u32, buffer: &mut Buffer) {
        let most = self.descriptors + MOST;
        proc.each_entry(format!("{pid}/fd"), buffer, |directory, name, _| {
            if name.to_bytes().starts_with(b".") || self.descriptors >= most {
                return;
            }
            self.descriptors += 1;
            self.sockets += u64::from(directory.links_to(name, b"socket"));
        });
    }
}

/// The processes of a cgroup itself, not of those below, from its `cgroup.procs`.
pub(crate) fn process_ids(text: &[u8]) -> Vec<u32> {
    let pids = lines(text).filter_map(|line| u32::try_from(number(line)?).ok());
    pids.take(MOST as usize).collect()
}

/// `eth0: 358265836   13536    0    0    0     0          0         0   787476   10224    0    0    0     0       0          0`
fn interfaces(text: &[u8]) -> Vec<Interface> {
    let mut found = Vec::new();
    for line in lines(text) {
        // A name may have a colon, and none of the numbers does.
        let Some(colon) = memchr::memrchr(b':', line) else { continue };
        let name = line[..colon].trim_ascii();
        let begins =
            |prefix: &&[u8]| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
        if IGNORED.iter().any(begins) {
            continue;
        }
        let mut numbers = words(&line[colon + 1..]).map(|word| number(word).unwrap_or(0));
        let mut next = || numbers.next();
        let received = (next(), next(), next(), next());
        let sent = {
            let mut rest = std::iter::from_fn(&mut next).skip(4);
            (rest.next(), rest.next(), rest.next(), rest.next())
        };
        if let (Some(received), Some(sent)) = (traffic(received), traffic(sent)) {
            found.push(Interface { name: String::from_utf8_lossy(name).into_owned(), received, sent });
        }
    }
    found
}

fn traffic(
    (bytes, packets, errors, dropped): (Option<u64>, Option<u64>, Option<u64>, Option<u64>),
) -> Option<Traffic> {
    Some(Traffic { bytes: bytes?, packets: packets?, errors: errors?, dropped: dropped? })
}

/// `Max open files            32768                32768                files`
fn open_files(text: &[u8]) -> Option<i64> {
    let line = lines(text).find_map(|line| line.strip_prefix(b"Max open files"))?;
    let soft = words(line).next()?;
    match soft {
        b"unlimited" => Some(-1),
        soft => number(soft).and_then(|limit| i64::try_from(limit).ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEV: &[u8] = b"Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     100       1    0    0    0     0          0         0      100       1    0    0    0     0       0          0
  eth0: 358265836   13536    1    2    0     0          0         0   787476   10224    3    4    0     0       0          0
vethab:       9       9    0    0    0     0          0         0        9       9    0    0    0     0       0          0
nerdctl0:     9       9    0    0    0     0          0         0        9       9    0    0    0     0       0          0
Docker0:      9       9    0    0    0     0          0         0        9       9    0    0    0     0       0          0
";

    #[test]
    fn interfaces_are_those_that_say_something_of_the_machine() {
        let expected = Interface {
            name: "eth0".to_owned(),
            received: Traffic { bytes: 358_265_836, packets: 13_536, errors: 1, dropped: 2 },
            sent: Traffic { bytes: 787_476, packets: 10_224, errors: 3, dropped: 4 },
        };
        assert_eq!(interfaces(DEV), [expected]);
    }

    #[test]
    fn open_files_are_told_as_a_number_or_as_unlimited() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max open files            32768                65536                files\n";
        assert_eq!(open_files(limits.as_bytes()), Some(32_768));
        assert_eq!(open_files(b"Max open files            unlimited   unlimited  files\n"), Some(-1));
        assert_eq!(open_files(b"Max processes 1 1 processes\n"), None);
    }

    #[test]
    fn a_disk_is_read_with_its_number() {
        let line = b" 254       0 vda 535869 29640 17534570 458969 820571 476371 77943368 482329 0 97472 992063 0 0 0 0";
        let Disk { number, name, counters } = disk(line).unwrap();
        assert_eq!(
            (number, &*name, counters.reads, counters.weighted_io_time),
            ((254, 0), "vda", 535_869, 992_063)
        );
        assert_eq!((counters.io_time, counters.sectors_written), (97_472, 77_943_368));
        assert_eq!(disk(b"254 0 vda 1 2"), None);
    }

    #[test]
    fn this_process_has_descriptors_and_sockets_among_them() {
        let proc = Proc::open(Path::new("/proc")).unwrap();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let me = std::process::id();
        let held = proc.held(&[me], Some(me), &mut Buffer::default());
        assert_eq!(held.count, 1);
        assert!(held.sockets >= 1 && held.descriptors > held.sockets, "{held:?}");
        assert!(held.open_files.is_some());
        drop(socket);
        assert!(proc.interfaces(me, &mut Buffer::default()).is_some());
    }
}
