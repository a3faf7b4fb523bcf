//! Cgroups of version 1: a directory in the tree of each controller.

use std::io;
use std::path::{Path, PathBuf};

use super::control::{self, ControlFiles};
use super::hierarchy::V1Mounts;
use super::limits::accepted_shares;
use super::tree::{below, levels};
use super::{Bound, CgroupError, CpuBandwidth, Limits, huge_pages};

/// From here on up, a memory limit in force is none: the kernel shows the largest multiple of its page size.
const NO_MEMORY_LIMIT: u64 = i64::MAX as u64 - 0xffff;

/// Makes a cgroup in every tree, with those above it. Gives the directories that had to be made, of the cgroup itself.
pub(super) fn create(
    files: &dyn ControlFiles,
    mounts: &V1Mounts,
    path: &str,
) -> Result<Vec<PathBuf>, CgroupError> {
    let mut made = Vec::new();
    for mount in mounts.all() {
        let cpuset = mounts.of("cpuset") == Some(mount);
        let mut parent = mount.to_owned();
        let mut new = false;
        for directory in levels(mount, path) {
            let created = files.create(&directory);
            new = created.map_err(|source| CgroupError::Create { path: directory.clone(), source })?;
            if cpuset {
                inherit(files, &parent, &directory, "cpuset.cpus")?;
                inherit(files, &parent, &directory, "cpuset.mems")?;
            }
            parent = directory;
        }
        if new {
            made.push(parent);
        }
    }
    Ok(made)
}

/// Copies a value from the cgroup above if there is none. A cpuset is made empty, and no process can be put in it so.
fn inherit(files: &dyn ControlFiles, parent: &Path, cgroup: &Path, file: &str) -> Result<(), CgroupError> {
    if control::read(files, cgroup, file)?.is_empty() {
        control::write(files, cgroup, file, &control::read(files, parent, file)?)?;
    }
    Ok(())
}

/// Sets the limits of the cgroup at a path. A controller that is not mounted limits nothing.
pub(super) fn apply(
    files: &dyn ControlFiles,
    mounts: &V1Mounts,
    path: &str,
    limits: &Limits,
) -> Result<(), CgroupError> {
    let cgroup = |controller: &str| mounts.of(controller).map(|mount| below(mount, path));
    if let (Some(cgroup), Some(cpus)) = (cgroup("cpuset"), &limits.cpus) {
        control::write(files, &cgroup, "cpuset.cpus", cpus)?;
    }
    if let (Some(cgroup), Some(memory)) = (cgroup("memory"), limits.memory) {
        apply_memory(files, &cgroup, memory)?;
    }
    if let Some(cgroup) = cgroup("cpu") {
        if let Some(shares) = limits.cpu_shares {
            control::write(files, &cgroup, "cpu.shares", &accepted_shares(shares).to_string())?;
        }
        if let Some(bandwidth) = limits.cpu_bandwidth {
            apply_bandwidth(files, &cgroup, bandwidth)?;
        }
    }
    if let (Some(cgroup), Some(processes)) = (cgroup("pids"), limits.processes) {
        control::write(files, &cgroup, "pids.max", &processes.as_processes().written("max"))?;
    }
    if let Some(cgroup) = cgroup("hugetlb") {
        huge_pages::apply(files, &cgroup, "limit_in_bytes", &limits.huge_pages)?;
    }
    Ok(())
}

fn apply_memory(files: &dyn ControlFiles, cgroup: &Path, memory: Bound) -> Result<(), CgroupError> {
    // Memory and swap together may never be limited below memory, so that one goes first on the way up.
    const WITH_SWAP: &str = "memory.memsw.limit_in_bytes";
    if memory == Bound::Unlimited && files.exists(&cgroup.join(WITH_SWAP)) {
        control::write(files, cgroup, WITH_SWAP, "-1")?;
    }
    match control::write(files, cgroup, "memory.limit_in_bytes", &memory.written("-1")) {
        Err(CgroupError::Write { path, value, source }) if source.kind() == io::ErrorKind::ResourceBusy => {
            Err(CgroupError::BelowUsage { path, value, usage: memory_usage(files, cgroup)? })
        }
        written => written,
    }
}

fn apply_bandwidth(
    files: &dyn ControlFiles,
    cgroup: &Path,
    bandwidth: CpuBandwidth,
) -> Result<(), CgroupError> {
    const PERIOD: &str = "cpu.cfs_period_us";
    let period = bandwidth.period.to_string();
    // With the quota that is still in force, a shorter period can be more than those above allow. Then it fits once
    // the quota is set.
    let early = match control::write(files, cgroup, PERIOD, &period) {
        Ok(()) => true,
        Err(CgroupError::Write { source, .. }) if source.kind() == io::ErrorKind::InvalidInput => false,
        Err(error) => return Err(error),
    };
    control::write(files, cgroup, "cpu.cfs_quota_us", &bandwidth.quota.written("-1"))?;
    match early {
        true => Ok(()),
        false => control::write(files, cgroup, PERIOD, &period),
    }
}

/// The limits in force on the cgroup at a path.
pub(super) fn limits(files: &dyn ControlFiles, mounts: &V1Mounts, path: &str) -> Result<Limits, CgroupError> {
    let number =
        |cgroup: &Path, file: &str| control::number(&control::read(files, cgroup, file)?, cgroup, file);
    let cgroup = |controller: &str| mounts.of(controller).map(|mount| below(mount, path));
    let mut limits = Limits::default();
    if let Some(cgroup) = cgroup("cpu") {
        limits.cpu_shares = Some(number(&cgroup, "cpu.shares")?);
        let quota = match control::read(files, &cgroup, "cpu.cfs_quota_us")?.as_str() {
            "-1" => Bound::Unlimited,
            quota => Bound::At(control::number(quota, &cgroup, "cpu.cfs_quota_us")?),
        };
        limits.cpu_bandwidth = Some(CpuBandwidth { quota, period: number(&cgroup, "cpu.cfs_period_us")? });
    }
    if let Some(cgroup) = cgroup("cpuset") {
        limits.cpus = Some(control::read(files, &cgroup, "cpuset.cpus")?);
    }
    if let Some(cgroup) = cgroup("memory") {
        limits.memory = match number(&cgroup, "memory.limit_in_bytes")? {
            bytes if bytes >= NO_MEMORY_LIMIT => Some(Bound::Unlimited),
            bytes => Some(Bound::At(bytes)),
        };
    }
    if let Some(cgroup) = cgroup("pids") {
        limits.processes = match control::read(files, &cgroup, "pids.max")?.as_str() {
            "max" => Some(Bound::Unlimited),
            processes => Some(Bound::At(control::number(processes, &cgroup, "pids.max")?)),
        };
    }
    Ok(limits)
}

/// The memory that the cgroup in a directory uses.
pub(super) fn memory_usage(files: &dyn ControlFiles, cgroup: &Path) -> Result<u64, CgroupError> {
    const FILE: &str = "memory.usage_in_bytes";
    control::number(&control::read(files, cgroup, FILE)?, cgroup, FILE)
}
