//! What the kernel counted for a cgroup and what it allows it, in both versions, in the words of cAdvisor.
//!
//! Files that are not there count nothing: kernels differ in what they have. To open a file takes several times as long as to
//! read it, so none is opened of which nothing would be told.

mod sample;
mod v1;
mod v2;

use std::path::{Path, PathBuf};

use crablet_host::cgroup::Hierarchy;

use crate::bytes::number;
use crate::directory::{Buffer, Directory};
use crate::known::Start;
use crate::proc::process_ids;

pub(crate) use sample::{Before, Cpu, Depth, DiskUse, Limits, Memory, Pressure, Sample, Stall};
use v1::OpenV1;
use v2::OpenV2;

/// The trees of cgroups, by what is read in each.
#[derive(Debug, Clone)]
pub(crate) enum Trees {
    V1 { cpu: PathBuf, cpuacct: PathBuf, memory: PathBuf, pids: Option<PathBuf>, blkio: Option<PathBuf> },
    V2 { mount: PathBuf },
}

impl Trees {
    /// Those of a machine, unless one is not mounted without which nothing can be told.
    pub(crate) fn of(hierarchy: &Hierarchy) -> Option<Trees> {
        Some(match hierarchy {
            Hierarchy::V2 { mount } => Trees::V2 { mount: mount.clone() },
            Hierarchy::V1(mounts) => {
                let at = |name: &str| mounts.controllers.get(name).cloned();
                Trees::V1 {
                    cpu: at("cpu")?,
                    cpuacct: at("cpuacct")?,
                    memory: at("memory")?,
                    pids: at("pids"),
                    blkio: at("blkio"),
                }
            }
        })
    }

    /// Whether the kernel tells pressure: the root has it then.
    pub(crate) fn have_pressure(&self) -> bool {
        matches!(self, Trees::V2 { mount } if mount.join("cpu.pressure").exists())
    }

    /// What a cgroup used of the CPU so far, in nanoseconds.
    pub(crate) fn cpu_usage(&self, cgroup: &str, buffer: &mut Buffer) -> Option<u64> {
        match self {
            Trees::V1 { cpuacct, .. } => v1::cpu_usage(&Directory::open(&below(cpuacct, cgroup))?, buffer),
            Trees::V2 { mount } => v2::cpu_usage(&Directory::open(&below(mount, cgroup))?, buffer),
        }
    }

    /// A cgroup, held open to be read this deeply, unless there is none.
    pub(crate) fn open(&self, cgroup: &str, depth: Depth) -> Option<Cgroup> {
        let open = |tree: &Path| Directory::open(&below(tree, cgroup));
        Some(match self {
            Trees::V1 { cpu, cpuacct, memory, pids, blkio } => Cgroup::V1(OpenV1 {
                accounts: open(cpuacct)?,
                cpu: if cpu == cpuacct { None } else { open(cpu) },
                memory: open(memory),
                blkio: blkio.as_deref().filter(|_| depth >= Depth::Summary).and_then(open),
                pids: pids.as_deref().filter(|_| depth == Depth::Everything).and_then(open),
            }),
            Trees::V2 { mount } => Cgroup::V2(OpenV2 { directory: open(mount)?, is_root: cgroup == "/" }),
        })
    }
}

fn below(mount: &Path, cgroup: &str) -> PathBuf {
    mount.join(cgroup.trim_start_matches('/'))
}

/// A cgroup that is held open while it is read.
#[derive(Debug)]
pub(crate) enum Cgroup {
    V1(OpenV1),
    V2(OpenV2),
}

impl Cgroup {
    /// The cgroup of a name in this one, to be read as deeply.
    pub(crate) fn below(&self, name: &str, depth: Depth) -> Option<Cgroup> {
        Some(match self {
            Cgroup::V1(open) => Cgroup::V1(open.below(name, depth)),
            Cgroup::V2(open) => Cgroup::V2(OpenV2 { directory: open.directory.below(name)?, is_root: false }),
        })
    }

    /// The names of those in it, in order.
    pub(crate) fn names(&self, most: usize, buffer: &mut Buffer) -> Vec<String> {
        self.main().directories(most, buffer)
    }

    /// Its own processes, not of those below.
    pub(crate) fn processes(&self, buffer: &mut Buffer) -> Vec<u32> {
        process_ids(self.main().read(c"cgroup.procs", buffer).unwrap_or_default())
    }

    /// What it used and may use. What is known to be as it was is not read again.
    pub(crate) fn read(&self, depth: Depth, before: Before<'_>, buffer: &mut Buffer) -> Option<Sample> {
        match self {
            Cgroup::V1(open) => open.read(depth, before, buffer),
            Cgroup::V2(open) => open.read(depth, before, buffer),
        }
    }

    /// When it was made, if it is there.
    pub(crate) fn start(&self, known: Option<Start>) -> Option<Start> {
        match self {
            Cgroup::V1(open) => open.start(known),
            Cgroup::V2(open) => open.start(known),
        }
    }

    /// The directory that tells which cgroups and which processes are in it.
    fn main(&self) -> &Directory {
        match self {
            Cgroup::V1(open) => open.cpu(),
            Cgroup::V2(open) => &open.directory,
        }
    }
}

fn threads_now(directory: &Directory, buffer: &mut Buffer) -> u64 {
    directory.number(c"pids.current", buffer).unwrap_or(0)
}

/// None is zero.
fn most_threads(directory: &Directory, buffer: &mut Buffer) -> u64 {
    directory.number(c"pids.max", buffer).filter(|most| *most != u64::MAX).unwrap_or(0)
}

fn device(text: &[u8]) -> Option<(u32, u32)> {
    let colon = memchr::memchr(b':', text)?;
    let part = |text| number(text).and_then(|value| u32::try_from(value).ok());
    Some((part(&text[..colon])?, part(&text[colon + 1..])?))
}

#[cfg(test)]
mod tests;
