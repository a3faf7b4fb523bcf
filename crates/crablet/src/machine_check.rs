//! Refusing a machine that the configuration does not want to run on.

use std::path::Path;

use anyhow::{Context, anyhow};
use crablet_agent::node_config;
use crablet_api::CpuSet;
use crablet_config::{Effective, SwapBehavior};
use crablet_host::{cgroup, machine, swap};

use crate::exit::Failure;
use crate::kernel_tunables;

/// Where the machine tells about itself.
pub(crate) struct Machine<'a> {
    pub(crate) cgroups: &'a str,
    swaps: &'a str,
    /// The directory below which the kernel tells of processors and memory.
    pub(crate) root: &'a str,
}

pub(crate) const MACHINE: Machine<'static> =
    Machine { cgroups: cgroup::MOUNT_POINT, swaps: swap::PROC_SWAPS, root: "/" };

impl Machine<'_> {
    /// Refuses a machine that the configuration does not want to run on.
    pub(crate) fn check(&self, effective: &Effective) -> Result<(), Failure> {
        let configuration = &effective.configuration;
        let version = cgroup::version(Path::new(self.cgroups))
            .context("cannot tell which version of cgroups the machine has")?;
        if version == cgroup::Version::V1 {
            if configuration.fail_cgroup_v1 {
                return Err(Failure::CgroupV1);
            }
            if configuration.single_process_oom_kill == Some(false) {
                let message = "invalid configuration: singleProcessOOMKill must not be explicitly set to false when \
                               using cgroup v1";
                return Err(Failure::Configuration(vec![message.into()]));
            }
            let mounts = Path::new(self.root).join("proc/self/mountinfo");
            let hierarchy =
                cgroup::Hierarchy::detect(&mounts).context("cannot tell how cgroups are mounted")?;
            let missing = hierarchy.missing();
            if !missing.is_empty() {
                let missing = missing.join(" ");
                return Err(Failure::Other(anyhow!(
                    "system validation failed - Following Cgroup subsystem not mounted: [{missing}]"
                )));
            }
            if configuration.memory_swap.swap_behavior == Some(SwapBehavior::LimitedSwap) {
                let message = "memorySwap.swapBehavior: swap feature is enabled and LimitedSwap but it is only \
                               supported with cgroupv2";
                return Err(Failure::Configuration(vec![message.into()]));
            }
        }
        if configuration.fail_swap_on {
            let areas =
                swap::areas(Path::new(self.swaps)).context("cannot tell whether the machine swaps")?;
            if !areas.is_empty() {
                return Err(Failure::SwapOn(areas));
            }
        }
        kernel_tunables::check(effective, Path::new(self.root))?;
        self.check_reserved(effective)
    }

    /// Refuses to keep more from pods than the machine has.
    fn check_reserved(&self, effective: &Effective) -> Result<(), Failure> {
        let (configuration, root) = (&effective.configuration, Path::new(self.root));
        if &*configuration.system_cgroups == "/" {
            let message = "systemCgroups (--system-cgroups): the system's cgroup cannot be root (\"/\")";
            return Err(Failure::Configuration(vec![message.to_owned()]));
        }
        let cpus = &configuration.reserved_system_cpus.value;
        let online = machine::online_cpus(root).context("cannot tell which CPUs the machine has")?;
        if !cpus.iter().all(|cpu| online.contains(&cpu)) {
            let online = CpuSet::from_iter(online);
            return Err(Failure::Configuration(vec![format!(
                "reservedSystemCPUs (--reserved-cpus): {cpus} is not a subset of online-cpus: {online}"
            )]));
        }
        let machine = machine::Machine::read(root).context("cannot tell what the machine is")?;
        // The root directory may be yet to be made.
        let mut places = Path::new(&*effective.flags.root_dir).ancestors();
        let storage = places.find_map(|place| machine::Storage::of(place).ok());
        let capacity = node_config::capacity(configuration, &machine, storage);
        let reserved = node_config::reserved(&effective.configuration, &effective.flags, &capacity);
        let over = reserved.over(&node_config::internal_capacity(&capacity, &machine));
        match over.is_empty() {
            true => Ok(()),
            false => Err(Failure::Configuration(
                over.iter().map(|over| format!("invalid Node Allocatable configuration. {over}")).collect(),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of a start with flags on a machine with cgroup v1 and these swap areas, two processors and a gibibyte
    /// of memory.
    fn start(areas: &str, flags: &[(&str, &str)]) -> String {
        start_with("cpu,cpuacct,cpuset,memory", areas, flags)
    }

    /// The same with these controllers.
    fn start_with(controllers: &str, areas: &str, flags: &[(&str, &str)]) -> String {
        let directory = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = directory.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("swaps", &format!("Filename Type Size Used Priority\n{areas}"));
        let mount = format!("30 24 0:25 / /sys/fs/cgroup/all rw - cgroup cgroup rw,{controllers}\n");
        write("proc/self/mountinfo", &mount);
        write("sys/devices/system/cpu/online", "0,2\n");
        write("proc/meminfo", "MemTotal: 1048576 kB\n");
        write("proc/sys/kernel/pid_max", "32768\n");
        let swaps = directory.path().join("swaps");
        let root = directory.path().to_str().unwrap();
        let machine = Machine { cgroups: "/proc", swaps: swaps.to_str().unwrap(), root };
        let root_dir = directory.path().join("root/yet/to/be/made");
        let usual = [
            ("fail-cgroupv1", "false"),
            ("root-dir", root_dir.to_str().unwrap()),
            ("eviction-hard", "memory.available<100Mi"),
        ];
        let given: Vec<_> = usual
            .iter()
            .chain(flags)
            .map(|(name, text)| (crablet_config::Flag::find(name).unwrap(), *text))
            .collect();
        let effective = crablet_config::load(&given).unwrap();
        match machine.check(&effective) {
            Ok(()) => "starts".into(),
            Err(failure) => format!("{} {failure}", failure.code()),
        }
    }

    #[test]
    fn a_machine_that_the_configuration_does_not_want_is_refused_with_a_code_of_its_own() {
        let swap = "/dev/sda2 partition 1 0 -2\n/swap file 1 0 -3\n";
        assert_eq!(start("", &[]), "starts");
        assert_eq!(start(swap, &[("fail-swap-on", "false")]), "starts");
        let refused = start(swap, &[]);
        assert!(refused.starts_with("5 running with swap on is not supported"), "{refused}");
        assert!(refused.ends_with("in use: /dev/sda2, /swap"), "{refused}");
        let refused = start("", &[("fail-cgroupv1", "true")]);
        assert!(
            refused.starts_with("4 kubelet is configured to not run on a host using cgroup v1"),
            "{refused}"
        );
    }

    #[test]
    fn a_machine_without_the_controllers_that_pods_need_is_refused_by_their_names() {
        let expected = "1 system validation failed - Following Cgroup subsystem not mounted: [cpuset memory]";
        assert_eq!(start_with("cpu,cpuacct", "", &[]), expected);
    }

    #[test]
    fn swap_cannot_be_shared_out_where_cgroups_do_not_know_it() {
        let config = tempfile::NamedTempFile::new().unwrap();
        let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
                    memorySwap: {swapBehavior: LimitedSwap}\n";
        std::fs::write(config.path(), text).unwrap();
        let limited = ("config", config.path().to_str().unwrap());
        let refused = start("", &[limited]);
        assert!(refused.ends_with("but it is only supported with cgroupv2"), "{refused}");
        assert!(refused.starts_with("2 "), "{refused}");
    }

    #[test]
    fn cpus_that_are_not_there_cannot_be_kept_for_the_system() {
        assert_eq!(start("", &[("reserved-cpus", "0")]), "starts");
        assert_eq!(start("", &[("reserved-cpus", "0,2")]), "starts", "all of them can");
        let expected = "2 reservedSystemCPUs (--reserved-cpus): 0-1 is not a subset of online-cpus: 0,2";
        assert_eq!(start("", &[("reserved-cpus", "0-1")]), expected);
    }

    #[test]
    fn the_systems_processes_are_not_gathered_where_they_are() {
        let root = [("system-cgroups", "/"), ("cgroup-root", "/")];
        let expected = "2 systemCgroups (--system-cgroups): the system's cgroup cannot be root (\"/\")";
        assert_eq!(start("", &root), expected);
    }

    #[test]
    fn more_than_there_is_cannot_be_kept_from_pods() {
        let fits = [("kube-reserved", "memory=400Mi,pid=1000"), ("system-reserved", "cpu=2,memory=500Mi")];
        assert_eq!(start("", &fits), "starts");
        let too_much =
            [("kube-reserved", "memory=600Mi,pid=30000"), ("system-reserved", "cpu=3,memory=500Mi,pid=3000")];
        let why = |resource: &str, reserved: &str, capacity: &str| {
            format!(
                "invalid Node Allocatable configuration. Resource \"{resource}\" has a reservation of {reserved} but \
                 capacity of {capacity}. Expected capacity >= reservation."
            )
        };
        // Hard eviction leaves 100 MiB free.
        let problems = [why("cpu", "3", "2"), why("memory", "1200Mi", "1Gi"), why("pid", "33k", "32768")];
        assert_eq!(start("", &too_much), format!("2 {}", problems.join("; ")));
        // Whole CPUs replace amounts of CPU.
        let replaced = [("kube-reserved", "cpu=3"), ("system-reserved", "cpu=3"), ("reserved-cpus", "0")];
        assert_eq!(start("", &replaced), "starts");
        // What eviction leaves free may be for pods all the same.
        let all = [("kube-reserved", "memory=1Gi")];
        assert!(start("", &all).starts_with("2 "), "{}", start("", &all));
        let ignored = [all[0], ("experimental-allocatable-ignore-eviction", "true")];
        assert_eq!(start("", &ignored), "starts");
    }
}
