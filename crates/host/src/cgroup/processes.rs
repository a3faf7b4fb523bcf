//! The processes in a cgroup.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use super::control::ControlFiles;
use super::tree::{is_gone, walk};
use super::{CgroupError, Version};

/// How many processes are taken hold of at once. Each takes a file descriptor, which others need too.
const HELD_AT_ONCE: usize = 256;

/// The processes in a cgroup and below.
pub(super) fn processes(files: &dyn ControlFiles, cgroup: &Path) -> Result<BTreeSet<u32>, CgroupError> {
    let mut found = BTreeSet::new();
    for directory in walk(files, cgroup)? {
        let path = directory.join("cgroup.procs");
        match files.read(&path) {
            Ok(text) => {
                let listed = text.lines().filter_map(|line| line.parse::<u32>().ok());
                // A process of another PID namespace has no number here and shows as 0, which `kill` takes to mean us.
                found.extend(listed.filter(|process| *process != 0));
            }
            Err(error) if is_gone(&error) => {}
            // A cgroup for threads: the processes that they are of are listed above it.
            Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => {}
            Err(source) => return Err(CgroupError::Read { path, source }),
        }
    }
    Ok(found)
}

/// The cgroup that a process stands in as a whole, by what `/proc/<pid>/cgroup` says. In version 1 there is one where the
/// trees of the CPU and of memory agree; systemd's tree says which, if it is there, since without accounting a unit stands
/// at the root of the others.
pub(super) fn place(places: &str, version: Version) -> Option<&str> {
    let trees = || {
        places.lines().filter_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            Some((controllers, path))
        })
    };
    let of = |tree: &str| {
        trees().find_map(|(named, path)| named.split(',').any(|name| name == tree).then_some(path))
    };
    match version {
        Version::V2 => of(""),
        Version::V1 => {
            let cpu = of("cpu")?;
            (of("memory")? == cpu).then(|| of("name=systemd").unwrap_or(cpu))
        }
    }
}

/// Kills every process in a cgroup and below. They may take a while to go.
pub(super) fn kill(files: &dyn ControlFiles, cgroup: &Path) -> Result<(), CgroupError> {
    let found = processes(files, cgroup)?;
    if found.is_empty() {
        return Ok(());
    }
    // The kernel can do it at once, so that nothing escapes by forking, from 5.14 on and in v2 only.
    let path = cgroup.join("cgroup.kill");
    match files.write(&path, "1") {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(CgroupError::Write { path, value: "1".into(), source }),
    }
    let found: Vec<u32> = found.into_iter().collect();
    found.chunks(HELD_AT_ONCE).try_for_each(|some| kill_each(files, cgroup, some))
}

/// Kills some of the processes of a cgroup.
fn kill_each(files: &dyn ControlFiles, cgroup: &Path, some: &[u32]) -> Result<(), CgroupError> {
    // A process may end now, and its number become another's. So we take hold of them first, look again, and kill
    // what is both held and still there.
    let held: Vec<(u32, Held)> =
        some.iter().filter_map(|process| Some((*process, Held::of(*process)?))).collect();
    let still = processes(files, cgroup)?;
    for (process, held) in held {
        // Were we in a pod's cgroup ourselves, that would be no reason to die of it.
        if still.contains(&process) && process != std::process::id() {
            held.kill().map_err(|source| CgroupError::Kill { process, path: cgroup.to_owned(), source })?;
        }
    }
    Ok(())
}

/// Something to kill a process by.
enum Held {
    Pidfd(rustix::fd::OwnedFd),
    /// Kernels before 5.3 know numbers only.
    Number(Pid),
}

impl Held {
    /// Takes hold of a process, if it is there.
    fn of(process: u32) -> Option<Held> {
        let pid = Pid::from_raw(i32::try_from(process).ok()?)?;
        match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => Some(Held::Pidfd(pidfd)),
            Err(Errno::SRCH | Errno::INVAL) => None,
            Err(_) => Some(Held::Number(pid)),
        }
    }

    /// Kills it. One that is gone by itself is as good.
    fn kill(&self) -> io::Result<()> {
        let killed = match self {
            Held::Pidfd(pidfd) => rustix::process::pidfd_send_signal(pidfd, Signal::KILL),
            Held::Number(pid) => rustix::process::kill_process(*pid, Signal::KILL),
        };
        match killed {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_stands_where_the_trees_of_cpu_and_memory_agree_or_where_systemd_says() {
        for (places, version, expected) in [
            ("0::/kubelet", Version::V2, Some("/kubelet")),
            ("1:name=systemd:/old\n0::/a:b", Version::V2, Some("/a:b")),
            ("3:memory:/kubelet\n2:cpu,cpuacct:/kubelet\n0::/elsewhere", Version::V1, Some("/kubelet")),
            (
                "3:memory:/\n2:cpuacct,cpu:/\n1:name=systemd:/system.slice/k",
                Version::V1,
                Some("/system.slice/k"),
            ),
            ("3:memory:/\n2:cpu:/kubelet\n1:name=systemd:/kubelet", Version::V1, None),
            ("2:cpu:/kubelet\n0::/kubelet", Version::V1, None),
            ("", Version::V2, None),
        ] {
            assert_eq!(place(places, version), expected, "{places}");
        }
    }
}
