//! What the machine is and has.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::mounts::MountTable;

/// What the machine is and has, as it was when it was read: things are plugged in, set aside and swapped to while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// How many processors are online.
    pub cpus: u32,
    /// Their numbers, in order.
    pub online_cpus: Vec<u32>,
    /// Memory in bytes.
    pub memory: u64,
    /// Swap space in bytes.
    pub swap: u64,
    /// How many huge pages there are of each size in bytes.
    pub huge_pages: BTreeMap<u64, u64>,
    /// How many processes and threads there can be at most, if the kernel tells.
    pub processes: Option<u64>,
    /// The ID that the machine got when it was installed, or nothing.
    pub machine_id: String,
    /// The ID that the machine got when it was built, or nothing.
    pub system_uuid: String,
    /// An ID that is new with each boot, or nothing.
    pub boot_id: String,
    /// When it was booted, if the kernel tells.
    pub boot_time: Option<Timestamp>,
    pub kernel_version: String,
    /// What the operating system calls itself.
    pub os_image: String,
    /// The architecture, as Go names it.
    pub architecture: &'static str,
}

/// Why the machine's facts could not be read.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// A file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file does not say what it should.
    #[error("{} does not say {what}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
    },
}

impl Machine {
    /// Reads them from the files below a root, which is `/` but for tests. Only processors and memory must be there.
    pub fn read(root: &Path) -> Result<Machine, MachineError> {
        let memory_info = MemoryInfo::read(root)?;
        let online_cpus = online_cpus(root)?;
        Ok(Machine {
            cpus: u32::try_from(online_cpus.len()).unwrap_or(u32::MAX),
            online_cpus,
            memory: memory_info.memory,
            swap: memory_info.swap,
            huge_pages: huge_pages(root)?,
            processes: most_processes(root),
            machine_id: first(root, &["etc/machine-id", "var/lib/dbus/machine-id"]),
            system_uuid: first(
                root,
                &[
                    "sys/class/dmi/id/product_uuid",
                    "proc/device-tree/system-id",
                    "proc/device-tree/vm,uuid",
                    "etc/machine-id",
                ],
            ),
            boot_id: first(root, &["proc/sys/kernel/random/boot_id"]),
            boot_time: boot_time(root),
            kernel_version: kernel_version(root),
            os_image: os_image(root),
            architecture: architecture(std::env::consts::ARCH),
        })
    }
}

/// Says how gladly the kernel kills this process when memory runs out, by the files below a root. To be killed less
/// gladly than before takes a capability.
pub fn set_oom_score(root: &Path, score: i32) -> io::Result<()> {
    std::fs::write(root.join("proc/self/oom_score_adj"), score.to_string())
}

/// How many processes and threads run now, from the files below a root.
pub fn running_processes(root: &Path) -> Result<u64, MachineError> {
    let path = root.join("proc/loadavg");
    let text = read(&path)?;
    // `0.02 0.11 0.09 1/311 12345`
    let count = text.split(' ').nth(3).and_then(|field| field.split_once('/')?.1.parse().ok());
    count.ok_or(MachineError::Missing { path, what: "how many processes there are" })
}

/// How many bytes of memory there are, from the files below a root.
pub fn memory_total(root: &Path) -> Result<u64, MachineError> {
    MemoryInfo::read(root).map(|info| info.memory)
}

/// What the cgroups that this process is in allow for, where that is less than the machine has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnLimits {
    /// Bytes of memory, and the cgroup that says so.
    pub memory: Option<(u64, PathBuf)>,
    /// Thousandths of a processor, and the cgroup that says so.
    pub cpu: Option<(u64, PathBuf)>,
}

impl OwnLimits {
    /// Reads them from the files below a root. What cannot be read limits nothing.
    pub fn read(root: &Path, machine: &Machine) -> OwnLimits {
        let text = first(root, &["proc/self/cgroup"]);
        let lines = text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
        let mut limits = OwnLimits::default();
        for (controllers, path) in lines {
            let has = |name: &str| controllers.split(',').any(|controller| controller == name);
            let mount_point = Path::new("sys/fs/cgroup");
            // The machine's own cgroup, at the end of each, limits nothing.
            let cgroups = |hierarchy: &str| {
                let directory = mount_point.join(hierarchy);
                let path = Path::new(path.trim_start_matches('/'));
                path.ancestors().map(|path| directory.join(path)).collect::<Vec<_>>()
            };
            let number = |directory: &Path, file: &str| -> Option<u64> {
                read(&root.join(directory).join(file)).ok()?.trim().parse().ok()
            };
            if controllers.is_empty() {
                let share = |directory: &Path| {
                    let text = read(&root.join(directory).join("cpu.max")).ok()?;
                    let (quota, period) = text.trim().split_once(' ')?;
                    thousandths(quota.parse().ok()?, period.parse().ok()?)
                };
                limits.memory = limits.memory.or(least(cgroups(""), |at| number(at, "memory.max")));
                limits.cpu = limits.cpu.or(least(cgroups(""), share));
            }
            if has("memory") {
                limits.memory = least(cgroups("memory"), |at| number(at, "memory.limit_in_bytes"));
            }
            if has("cpu") {
                let share = |at: &Path| {
                    thousandths(number(at, "cpu.cfs_quota_us")?, number(at, "cpu.cfs_period_us")?)
                };
                limits.cpu = least(cgroups("cpu"), share);
            }
        }
        limits.memory = limits.memory.filter(|(bytes, _)| *bytes < machine.memory);
        limits.cpu = limits.cpu.filter(|(share, _)| *share < u64::from(machine.cpus) * 1000);
        limits
    }
}

/// The lowest limit of some cgroups, with the one that has it.
fn least(cgroups: Vec<PathBuf>, limit: impl Fn(&Path) -> Option<u64>) -> Option<(u64, PathBuf)> {
    let limits =
        cgroups.into_iter().filter_map(|cgroup| Some((limit(&cgroup)?, Path::new("/").join(cgroup))));
    limits.min_by_key(|(limit, _)| *limit)
}

fn thousandths(quota: u64, period: u64) -> Option<u64> {
    quota.checked_mul(1000)?.checked_div(period)
}

/// The room on a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Storage {
    /// How many bytes it holds.
    pub capacity: u64,
    /// How many are free for others than root.
    pub available: u64,
    /// How many files it holds.
    pub inodes: u64,
    /// How many more files can be made.
    pub inodes_free: u64,
}

impl Storage {
    /// The room on the file system that a path is on.
    pub fn of(path: &Path) -> io::Result<Storage> {
        let status = rustix::fs::statvfs(path)?;
        Ok(Storage {
            capacity: status.f_blocks.saturating_mul(status.f_frsize),
            available: status.f_bavail.saturating_mul(status.f_frsize),
            inodes: status.f_files,
            inodes_free: status.f_ffree,
        })
    }
}

/// What `/proc/meminfo` says.
struct MemoryInfo {
    memory: u64,
    swap: u64,
}

impl MemoryInfo {
    fn read(root: &Path) -> Result<MemoryInfo, MachineError> {
        let path = root.join("proc/meminfo");
        let text = read(&path)?;
        // `MemTotal:       32768000 kB`
        let bytes = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
        };
        let memory = bytes("MemTotal").ok_or(MachineError::Missing { path, what: "MemTotal" })?;
        Ok(MemoryInfo { memory, swap: bytes("SwapTotal").unwrap_or(0) })
    }
}

/// The numbers of the processors that are online, in order, from the files below a root.
pub fn online_cpus(root: &Path) -> Result<Vec<u32>, MachineError> {
    const WHAT: &str = "which processors are online";
    let path = root.join("sys/devices/system/cpu/online");
    match read(&path) {
        Ok(list) => numbers_of_list(list.trim()).ok_or(MachineError::Missing { path, what: WHAT }),
        Err(_) => {
            let path = root.join("proc/cpuinfo");
            let count = read(&path)?.lines().filter(|line| line.starts_with("processor")).count();
            match u32::try_from(count) {
                Ok(0) | Err(_) => Err(MachineError::Missing { path, what: WHAT }),
                Ok(count) => Ok((0..count).collect()),
            }
        }
    }
}

/// The most processors that a kernel can be built for.
const MOST_CPUS: u32 = 1 << 16;

/// The numbers of a list such as `0-3,8`.
fn numbers_of_list(list: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last < first || last >= MOST_CPUS {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

/// A kernel without huge pages has no such directory.
fn huge_pages(root: &Path) -> Result<BTreeMap<u64, u64>, MachineError> {
    let directory = root.join("sys/kernel/mm/hugepages");
    let Ok(entries) = std::fs::read_dir(directory) else { return Ok(BTreeMap::new()) };
    let mut pages = BTreeMap::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let size = name.to_str().and_then(|name| name.strip_prefix("hugepages-")?.strip_suffix("kB"));
        let Some(size) = size.and_then(|size| size.parse::<u64>().ok()?.checked_mul(1024)) else { continue };
        let path = entry.path().join("nr_hugepages");
        let count = read(&path)?.trim().parse().ok();
        pages.insert(size, count.ok_or(MachineError::Missing { path, what: "how many pages there are" })?);
    }
    Ok(pages)
}

/// How many processes and threads there can be at most: the lower of the two limits that the kernel has.
pub fn most_processes(root: &Path) -> Option<u64> {
    let limit = |file: &str| read(&root.join("proc/sys/kernel").join(file)).ok()?.trim().parse::<u64>().ok();
    [limit("pid_max"), limit("threads-max")].into_iter().flatten().min()
}

fn boot_time(root: &Path) -> Option<Timestamp> {
    let text = read(&root.join("proc/stat")).ok()?;
    let seconds = text.lines().find_map(|line| line.strip_prefix("btime "))?;
    Timestamp::from_second(seconds.trim().parse().ok()?).ok()
}

/// Whether the kernel has AppArmor and it is on. A node that is itself a container has none of its own.
pub fn app_armor_is_on(root: &Path) -> bool {
    root.join("sys/kernel/security/apparmor").exists()
        && std::env::var_os("container").is_none_or(|container| container.is_empty())
        && first(root, &["sys/module/apparmor/parameters/enabled"]).starts_with('Y')
}

/// Whether the kernel has SELinux and it is on for this process: its file system is mounted and can be written to, and
/// the process has a label of its own.
pub fn selinux_is_on(root: &Path) -> bool {
    let Ok(mounts) = MountTable::read(&root.join("proc/self/mountinfo")) else { return false };
    let is_mounted = mounts.iter().any(|mount| mount.file_system == "selinuxfs" && !mount.has_option("ro"));
    is_mounted && first(root, &["proc/self/attr/current"]) != "kernel"
}

/// The files by which each processor tells how hot it was: other work on the machine can be guessed from them.
pub fn thermal_throttle_counters(root: &Path) -> Vec<String> {
    let possible = numbers_of_list(&first(root, &["sys/devices/system/cpu/possible"]));
    let numbers = possible.unwrap_or_else(|| online_cpus(root).unwrap_or_default());
    let paths =
        numbers.into_iter().map(|number| format!("sys/devices/system/cpu/cpu{number}/thermal_throttle"));
    paths.filter(|path| root.join(path).exists()).map(|path| format!("/{path}")).collect()
}

/// Bytes of a page of memory.
pub fn page_size() -> usize {
    rustix::param::page_size()
}

fn kernel_version(root: &Path) -> String {
    match first(root, &["proc/sys/kernel/osrelease"]) {
        version if version.is_empty() => "Unknown".into(),
        version => version,
    }
}

fn os_image(root: &Path) -> String {
    let text = read(&root.join("etc/os-release")).or_else(|_| read(&root.join("usr/lib/os-release")));
    let Ok(text) = text else { return "Unknown".into() };
    match text.lines().find_map(|line| line.trim().strip_prefix("PRETTY_NAME=")) {
        Some(name) => name.trim_matches(['"', '\'']).into(),
        None => "Linux".into(),
    }
}

/// An architecture as Go names it.
fn architecture(rust: &'static str) -> &'static str {
    match rust {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
        "powerpc64" => "ppc64",
        "loongarch64" => "loong64",
        same => same,
    }
}

/// What the first of these files that can be read and is not empty says.
fn first(root: &Path, files: &[&str]) -> String {
    let texts = files.iter().filter_map(|file| read(&root.join(file)).ok());
    // Texts from a device tree end in a zero byte.
    let mut texts = texts.map(|text| text.trim_matches(|c: char| c == '\0' || c.is_whitespace()).to_owned());
    texts.find(|text| !text.is_empty()).unwrap_or_default()
}

fn read(path: &Path) -> Result<String, MachineError> {
    std::fs::read_to_string(path).map_err(|source| MachineError::Read { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tree;

    const LEAST: [(&str, &str); 2] =
        [("proc/meminfo", "MemTotal:  1024 kB\nMemFree: 1 kB\n"), ("sys/devices/system/cpu/online", "0\n")];

    #[test]
    fn everything_is_read_from_its_file() {
        let root = tree(&[
            ("proc/meminfo", "MemTotal:       16384000 kB\nMemFree:  1 kB\nSwapTotal:  2048 kB\n"),
            ("sys/devices/system/cpu/online", "0-3,8,10-11\n"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "7\n"),
            ("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0\n"),
            ("proc/sys/kernel/pid_max", "4194304\n"),
            ("proc/sys/kernel/threads-max", "127000\n"),
            ("etc/machine-id", "0123456789abcdef\n"),
            ("sys/class/dmi/id/product_uuid", "1B4E28BA-2FA1-11D2-883F-0016D3CCA427\n"),
            ("proc/sys/kernel/random/boot_id", "b6bd0a4e-2d2c-4f2b-9d0f-000000000001\n"),
            ("proc/stat", "cpu  1 2 3\nbtime 1700000000\nprocesses 5\n"),
            ("proc/sys/kernel/osrelease", "6.1.0-9-amd64\n"),
            ("etc/os-release", "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n"),
            ("proc/loadavg", "1.36 3.49 4.53 2/3518 3715089\n"),
        ]);
        let expected = Machine {
            cpus: 7,
            online_cpus: vec![0, 1, 2, 3, 8, 10, 11],
            memory: 16_384_000 * 1024,
            swap: 2048 * 1024,
            huge_pages: BTreeMap::from([(2 << 20, 7), (1 << 30, 0)]),
            processes: Some(127_000),
            machine_id: "0123456789abcdef".into(),
            system_uuid: "1B4E28BA-2FA1-11D2-883F-0016D3CCA427".into(),
            boot_id: "b6bd0a4e-2d2c-4f2b-9d0f-000000000001".into(),
            boot_time: Some("2023-11-14T22:13:20Z".parse().unwrap()),
            kernel_version: "6.1.0-9-amd64".into(),
            os_image: "Debian GNU/Linux 12 (bookworm)".into(),
            architecture: architecture(std::env::consts::ARCH),
        };
        assert_eq!(Machine::read(root.path()).unwrap(), expected);
        assert_eq!(running_processes(root.path()).unwrap(), 3518);
    }

    #[test]
    fn a_machine_that_tells_little_is_read_all_the_same() {
        let machine = Machine::read(tree(&LEAST).path()).unwrap();
        assert_eq!((machine.cpus, machine.memory, machine.swap), (1, 1024 * 1024, 0));
        assert_eq!((machine.processes, machine.boot_time), (None, None));
        assert_eq!((&*machine.machine_id, &*machine.system_uuid, &*machine.boot_id), ("", "", ""));
        assert_eq!((&*machine.kernel_version, &*machine.os_image), ("Unknown", "Unknown"));
        assert!(machine.huge_pages.is_empty());
    }

    #[test]
    fn ids_come_from_the_first_place_that_has_one() {
        for (files, machine_id, system_uuid) in [
            (&[("etc/machine-id", "\n"), ("var/lib/dbus/machine-id", "b\n")][..], "b", ""),
            (&[("proc/device-tree/system-id", "IBM,01\0")], "", "IBM,01"),
            (&[("proc/device-tree/vm,uuid", "u\0"), ("etc/machine-id", "a")], "a", "u"),
            (&[("etc/machine-id", "a\n")], "a", "a"),
        ] {
            let machine = Machine::read(tree(&[&LEAST[..], files].concat()).path()).unwrap();
            assert_eq!((&*machine.machine_id, &*machine.system_uuid), (machine_id, system_uuid), "{files:?}");
        }
    }

    #[test]
    fn the_name_of_the_system_is_found_in_both_places_and_has_a_default() {
        for (file, text, expected) in [
            ("usr/lib/os-release", "PRETTY_NAME='Clear Linux OS'\n", "Clear Linux OS"),
            ("etc/os-release", "PRETTY_NAME=Plain\n", "Plain"),
            ("etc/os-release", "NAME=Nameless\n", "Linux"),
        ] {
            let machine = Machine::read(tree(&[&LEAST[..], &[(file, text)]].concat()).path()).unwrap();
            assert_eq!(machine.os_image, expected);
        }
    }

    #[test]
    fn without_a_list_of_processors_they_are_counted() {
        let root = tree(&[LEAST[0], ("proc/cpuinfo", "processor\t: 0\nmodel name: x\n\nprocessor\t: 1\n")]);
        assert_eq!(Machine::read(root.path()).unwrap().cpus, 2);
    }

    #[test]
    fn what_is_missing_is_named_with_its_file() {
        let root = tree(&[("proc/meminfo", "MemFree: 1 kB\n"), LEAST[1]]);
        let expected = format!("{} does not say MemTotal", root.path().join("proc/meminfo").display());
        assert_eq!(Machine::read(root.path()).unwrap_err().to_string(), expected);
        let root = tree(&[LEAST[0], ("sys/devices/system/cpu/online", "3-0\n")]);
        assert!(Machine::read(root.path()).unwrap_err().to_string().ends_with("which processors are online"));
        assert!(Machine::read(Path::new("/no/such")).is_err());
    }

    #[test]
    fn selinux_is_on_where_its_files_are_mounted_and_the_process_has_a_label() {
        let mounted = "25 1 0:22 / /sys/fs/selinux rw,relatime - selinuxfs selinuxfs rw\n";
        let read_only = "25 1 0:22 / /sys/fs/selinux ro,relatime - selinuxfs selinuxfs rw\n";
        let other = "25 1 0:22 / /sys rw - sysfs sysfs rw\n";
        let label = "system_u:system_r:kubelet_t:s0\0";
        for (mounts, current, expected) in [
            (mounted, label, true),
            (mounted, "", true),
            (mounted, "kernel\0", false),
            (read_only, label, false),
            (other, label, false),
        ] {
            let root = tree(&[("proc/self/mountinfo", mounts), ("proc/self/attr/current", current)]);
            assert_eq!(selinux_is_on(root.path()), expected, "{mounts:?} {current:?}");
        }
        assert!(!selinux_is_on(tree(&[]).path()));
    }

    #[test]
    fn the_counters_of_all_processors_that_have_some_are_found() {
        let counter =
            |number: u32| format!("sys/devices/system/cpu/cpu{number}/thermal_throttle/core_throttle_count");
        let (zero, two, nine) = (counter(0), counter(2), counter(9));
        let counters = [(&*zero, "0"), (&*two, "0"), (&*nine, "0")];
        let found = |possible: &[(&str, &str)]| {
            let root = tree(&[&LEAST[..], &counters, possible].concat());
            thermal_throttle_counters(root.path()).join(" ")
        };
        let of = |number: u32| format!("/sys/devices/system/cpu/cpu{number}/thermal_throttle");
        assert_eq!(found(&[("sys/devices/system/cpu/possible", "0-1,2\n")]), format!("{} {}", of(0), of(2)));
        assert_eq!(found(&[]), of(0), "one processor is online");
    }

    #[test]
    fn a_lower_limit_of_an_own_cgroup_is_found_in_both_versions_with_who_says_so() {
        let machine =
            Machine::read(tree(&[("proc/meminfo", "MemTotal: 1048576 kB\n"), LEAST[1]]).path()).unwrap();
        let found = |files: &[(&str, &str)]| {
            let OwnLimits { memory, cpu } = OwnLimits::read(tree(files).path(), &machine);
            [memory, cpu].map(|limit| limit.map(|(limit, cgroup)| format!("{limit} {}", cgroup.display())))
        };
        let v2 = ("proc/self/cgroup", "0::/system.slice/kubelet.service\n");
        let own = "sys/fs/cgroup/system.slice/kubelet.service";
        let (own_memory, own_cpu) = (format!("{own}/memory.max"), format!("{own}/cpu.max"));
        let slice = "sys/fs/cgroup/system.slice/memory.max";
        let of = |limit: u64, cgroup: &str| Some(format!("{limit} /sys/fs/cgroup{cgroup}"));
        assert_eq!(found(&[v2, (&own_memory, "max\n"), (&own_cpu, "max 100000\n")]), [None, None]);
        assert_eq!(
            found(&[v2, (&own_memory, "1000000\n"), (slice, "2000000\n"), (&own_cpu, "50000 100000\n")]),
            [of(1_000_000, "/system.slice/kubelet.service"), of(500, "/system.slice/kubelet.service")]
        );
        assert_eq!(found(&[v2, (slice, "2000000\n")]), [of(2_000_000, "/system.slice"), None]);
        assert_eq!(found(&[v2, (slice, "2000000000000\n"), (&own_cpu, "100000 100000\n")]), [None, None]);
        let v1 = ("proc/self/cgroup", "5:memory:/docker/1\n4:cpu,cpuacct:/docker/1\n0::/\n");
        let (memory, quota, period) = (
            "sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes",
            "sys/fs/cgroup/cpu/docker/1/cpu.cfs_quota_us",
            "sys/fs/cgroup/cpu/docker/1/cpu.cfs_period_us",
        );
        assert_eq!(
            found(&[v1, (memory, "4096\n"), (quota, "25000\n"), (period, "100000\n")]),
            [of(4096, "/memory/docker/1"), of(250, "/cpu/docker/1")]
        );
        assert_eq!(
            found(&[v1, (memory, "9223372036854771712\n"), (quota, "-1\n"), (period, "100000\n")]),
            [None, None]
        );
        assert_eq!(found(&[]), [None, None]);
    }

    #[test]
    fn a_page_has_a_size() {
        assert!(page_size().is_power_of_two() && page_size() >= 4096);
    }

    #[test]
    fn this_machine_can_be_read() {
        let machine = Machine::read(Path::new("/")).unwrap();
        assert!(machine.cpus > 0 && machine.memory > 1 << 20);
        assert!(machine.boot_time.is_some());
        assert!(running_processes(Path::new("/")).unwrap() > 0);
        let storage = Storage::of(Path::new("/")).unwrap();
        assert!(storage.available <= storage.capacity && storage.capacity > 0);
    }

    #[test]
    fn architectures_have_the_names_that_go_gives_them() {
        for (rust, go) in
            [("x86_64", "amd64"), ("aarch64", "arm64"), ("s390x", "s390x"), ("riscv64", "riscv64")]
        {
            assert_eq!(architecture(rust), go);
        }
    }
}
