//! Cgroups of version 2: one tree, in which each cgroup says which controllers those below it get.

use std::io;
use std::path::{Path, PathBuf};

use super::control::{self, ControlFiles};
use super::tree::{below, levels};
use super::{Bound, CgroupError, CpuBandwidth, Limits, huge_pages, shares_of_weight, weight_of_shares};

/// The controllers that the agent uses, where the kernel has them.
const USED: [&str; 5] = ["cpu", "cpuset", "hugetlb", "memory", "pids"];

const CONTROLLERS: &str = "cgroup.controllers";
const SUBTREE_CONTROL: &str = "cgroup.subtree_control";

/// The controllers that the agent uses and that a cgroup lacks, though the kernel has them. All, if there is no such
/// cgroup.
pub(super) fn missing(
    files: &dyn ControlFiles,
    mount: &Path,
    path: &str,
) -> Result<Vec<String>, CgroupError> {
    let offered = controllers(&control::read(files, mount, CONTROLLERS)?);
    let has = control::read_if_there(files, &below(mount, path), CONTROLLERS)?.unwrap_or_default();
    let has = controllers(&has);
    Ok(offered.into_iter().filter(|name| USED.contains(&name.as_str()) && !has.contains(name)).collect())
}

/// Makes a cgroup with those above it, and hands down every controller that the kernel has: containers below a pod use
/// more of them than the agent does. Gives the directory if it had to be made.
pub(super) fn create(
    files: &dyn ControlFiles,
    mount: &Path,
    path: &str,
) -> Result<Option<PathBuf>, CgroupError> {
    let offered = controllers(&control::read(files, mount, CONTROLLERS)?);
    let mut parent = mount.to_owned();
    let mut new = false;
    for directory in levels(mount, path) {
        hand_down(files, &parent, &offered)?;
        let created = files.create(&directory);
        new = created.map_err(|source| CgroupError::Create { path: directory.clone(), source })?;
        parent = directory;
    }
    Ok(new.then_some(parent))
}

/// Gives the cgroups below one every controller of these.
fn hand_down(files: &dyn ControlFiles, cgroup: &Path, offered: &[String]) -> Result<(), CgroupError> {
    let given = controllers(&control::read(files, cgroup, SUBTREE_CONTROL)?);
    let wanted: Vec<String> =
        offered.iter().filter(|name| !given.contains(name)).map(|name| format!("+{name}")).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    if control::write(files, cgroup, SUBTREE_CONTROL, &wanted.join(" ")).is_ok() {
        return Ok(());
    }
    // One that cannot be had makes the kernel refuse them all. Only those that the agent needs are worth an error.
    for controller in wanted {
        match control::write(files, cgroup, SUBTREE_CONTROL, &controller) {
            Err(error) if USED.contains(&controller.trim_start_matches('+')) => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// Sets the limits of a cgroup.
pub(super) fn apply(files: &dyn ControlFiles, cgroup: &Path, limits: &Limits) -> Result<(), CgroupError> {
    let write = |file: &str, value: &str| control::write(files, cgroup, file, value);
    if let Some(shares) = limits.cpu_shares {
        write("cpu.weight", &weight_of_shares(shares).to_string())?;
    }
    if let Some(CpuBandwidth { quota, period }) = limits.cpu_bandwidth {
        write("cpu.max", &format!("{} {period}", quota.written("max")))?;
    }
    if let Some(cpus) = &limits.cpus {
        write("cpuset.cpus", cpus)?;
    }
    if let Some(memory) = limits.memory {
        write("memory.max", &memory.written("max"))?;
    }
    if let Some(processes) = limits.processes {
        write("pids.max", &processes.as_processes().written("max"))?;
    }
    huge_pages::apply(files, cgroup, "max", &limits.huge_pages)?;
    for (file, value) in &limits.unified {
        write_unified(files, cgroup, file, value)?;
    }
    Ok(())
}

/// Writes a file that was named from outside: only one of the cgroup itself.
fn write_unified(
    files: &dyn ControlFiles,
    cgroup: &Path,
    file: &str,
    value: &str,
) -> Result<(), CgroupError> {
    match Path::new(file).file_name() == Some(file.as_ref()) {
        true => control::write(files, cgroup, file, value),
        false => Err(CgroupError::Write {
            path: cgroup.join(file.replace('/', "\\")),
            value: value.into(),
            source: io::Error::from(io::ErrorKind::InvalidFilename),
        }),
    }
}

/// The limits in force on a cgroup, as far as it has the controllers.
pub(super) fn limits(files: &dyn ControlFiles, cgroup: &Path) -> Result<Limits, CgroupError> {
    // Only this file is always there.
    control::read(files, cgroup, CONTROLLERS)?;
    let read = |file: &str| control::read_if_there(files, cgroup, file);
    let bound = |text: &str, file: &str| match text {
        "max" => Ok(Bound::Unlimited),
        amount => control::number(amount, cgroup, file).map(Bound::At),
    };
    let mut limits = Limits::default();
    if let Some(weight) = read("cpu.weight")? {
        limits.cpu_shares = Some(shares_of_weight(control::number(&weight, cgroup, "cpu.weight")?));
    }
    if let Some(text) = read("cpu.max")? {
        let malformed = || CgroupError::Malformed {
            path: cgroup.join("cpu.max"),
            value: text.clone(),
            expected: "a quota and a period",
        };
        let (quota, period) = text.split_once(' ').ok_or_else(malformed)?;
        let period = control::number(period, cgroup, "cpu.max")?;
        limits.cpu_bandwidth = Some(CpuBandwidth { quota: bound(quota, "cpu.max")?, period });
    }
    // Without a set of its own a cgroup has that of those above.
    limits.cpus = read("cpuset.cpus")?.filter(|cpus| !cpus.is_empty());
    limits.memory = read("memory.max")?.map(|text| bound(&text, "memory.max")).transpose()?;
    limits.processes = read("pids.max")?.map(|text| bound(&text, "pids.max")).transpose()?;
    Ok(limits)
}

/// The memory that a cgroup uses.
pub(super) fn memory_usage(files: &dyn ControlFiles, cgroup: &Path) -> Result<u64, CgroupError> {
    const FILE: &str = "memory.current";
    control::number(&control::read(files, cgroup, FILE)?, cgroup, FILE)
}

fn controllers(text: &str) -> Vec<String> {
    text.split_whitespace().map(String::from).collect()
}
