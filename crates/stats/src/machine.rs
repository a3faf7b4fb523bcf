//! What the machine is: the last part of `/metrics/cadvisor`. It is read once, but for its memory and its processors, which
//! come and go. Of nodes of memory and of caches cAdvisor would tell too; the kubelet does not ask it for them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crablet_host::machine::{Machine, online_cpus};
use crablet_metrics::{Kind, Page, push_label};

use crate::proc::MachineMemory;

/// What the machine is, with its labels.
pub(crate) struct MachineFacts {
    root: PathBuf,
    processors: Mutex<Processors>,
    memory: MachineMemory,
    kernel: String,
    os: String,
    ids: String,
    uuid: String,
}

/// The processors that are online, and how they belong together.
#[derive(Clone)]
struct Processors {
    online: Vec<u32>,
    physical_cores: usize,
    sockets: usize,
}

impl Processors {
    fn new(online: Vec<u32>, root: &Path) -> Processors {
        let topology = topology(root);
        let sockets: BTreeSet<&str> = topology.iter().map(|(socket, _)| &**socket).collect();
        Processors { online, physical_cores: topology.len(), sockets: sockets.len() }
    }
}

impl MachineFacts {
    /// `root` is where the kernel's files are.
    pub(crate) fn new(machine: &Machine, root: &Path) -> MachineFacts {
        let mut ids = String::new();
        push_label(&mut ids, "boot_id", &machine.boot_id);
        push_label(&mut ids, "machine_id", &machine.machine_id);
        let mut uuid = String::new();
        push_label(&mut uuid, "system_uuid", &machine.system_uuid);
        MachineFacts {
            root: root.to_owned(),
            processors: Mutex::new(Processors::new(machine.online_cpus.clone(), root)),
            memory: MachineMemory { total: machine.memory, swap: machine.swap, swap_used: 0 },
            kernel: machine.kernel_version.clone(),
            os: machine.os_image.clone(),
            ids,
            uuid,
        }
    }

    /// As it was at the start.
    pub(crate) fn memory(&self) -> MachineMemory {
        self.memory
    }

    /// Those of now. How they belong together is read anew when others are online than before, where upstream reads all of it
    /// each five minutes.
    fn processors(&self) -> Processors {
        let mut processors = self.processors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(online) = online_cpus(&self.root)
            && online != processors.online
        {
            *processors = Processors::new(online, &self.root);
        }
        processors.clone()
    }

    /// Which versions: the first metric of all.
    pub(crate) fn write_version(&self, page: &mut Page) {
        let mut labels = String::new();
        push_label(&mut labels, "cadvisorRevision", "");
        push_label(&mut labels, "cadvisorVersion", "");
        push_label(&mut labels, "dockerVersion", "");
        push_label(&mut labels, "kernelVersion", &self.kernel);
        push_label(&mut labels, "osVersion", &self.os);
        let help = "A metric with a constant '1' value labeled by kernel version, OS version, docker version, cadvisor \
                    version & cadvisor revision.";
        page.family("cadvisor_version_info", help, Kind::Gauge);
        page.sample(&[&labels], 1.0, None);
    }

    /// What the machine has: the last metrics.
    pub(crate) fn write(&self, page: &mut Page, memory: MachineMemory) {
        let Processors { online, physical_cores, sockets } = self.processors();
        let mut gauge = |name, help, value: f64| {
            page.family(name, help, Kind::Gauge);
            page.sample(&[&self.ids, &self.uuid], value, None);
        };
        gauge("machine_cpu_books", "Number of CPU books.", 0.0);
        gauge("machine_cpu_cores", "Number of logical CPU cores.", online.len() as f64);
        gauge("machine_cpu_drawers", "Number of CPU drawers.", 0.0);
        gauge("machine_cpu_physical_cores", "Number of physical CPU cores.", physical_cores as f64);
        gauge("machine_cpu_sockets", "Number of CPU sockets.", sockets as f64);
        gauge("machine_memory_bytes", "Amount of memory installed on the machine.", memory.total as f64);
        gauge("machine_nvm_avg_power_budget_watts", "NVM power budget.", 0.0);
        let help = "NVM capacity value labeled by NVM mode (memory mode or app direct mode).";
        page.family("machine_nvm_capacity", help, Kind::Gauge);
        for mode in ["mode=\"app_direct_mode\"", "mode=\"memory_mode\""] {
            page.sample(&[&self.ids, mode, &self.uuid], 0.0, None);
        }
        let help = "1 if there was an error while getting machine metrics, 0 otherwise.";
        page.family("machine_scrape_error", help, Kind::Gauge);
        page.sample(&[], 0.0, None);
        page.family("machine_swap_bytes", "Amount of swap memory available on the machine.", Kind::Gauge);
        page.sample(&[&self.ids, &self.uuid], memory.swap as f64, None);
    }
}

/// The cores of the machine, as the names of socket and core. They are numbers, but `-1` where the firmware does not say.
fn topology(root: &Path) -> BTreeSet<(String, String)> {
    let processors = std::fs::read_dir(root.join("sys/devices/system/cpu")).into_iter().flatten().flatten();
    let read = |path: &Path| Some(std::fs::read_to_string(path).ok()?.trim().to_owned());
    processors
        .filter_map(|processor| {
            let topology = processor.path().join("topology");
            Some((read(&topology.join("physical_package_id"))?, read(&topology.join("core_id"))?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_and_sockets_are_counted_where_the_firmware_does_not_number_them() {
        let place = tempfile::tempdir().unwrap();
        for (processor, core) in [("cpu0", "0\n"), ("cpu1", "0\n"), ("cpu2", "1\n")] {
            let at = place.path().join("sys/devices/system/cpu").join(processor).join("topology");
            std::fs::create_dir_all(&at).unwrap();
            std::fs::write(at.join("physical_package_id"), "-1\n").unwrap();
            std::fs::write(at.join("core_id"), core).unwrap();
        }
        let (unknown, first, second) = ("-1".to_owned(), "0".to_owned(), "1".to_owned());
        assert_eq!(topology(place.path()), BTreeSet::from([(unknown.clone(), first), (unknown, second)]));
    }
}
