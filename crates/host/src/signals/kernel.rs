//! The machine's own.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rustix::event::{EventfdFlags, eventfd};
use tokio::net::unix::pipe::Receiver;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::{
    Alarm, DiskReadings, FileSystems, MemoryOf, MemoryReading, Places, ProcessReading, Readings, Signals,
};
use crate::cgroup::{Hierarchy, Layout};
use crate::machine::{Storage, memory_total, most_processes, running_processes};
use crate::mounts::MountTable;

/// From here on a limit is none: the kernel rounds it.
const UNLIMITED: u64 = 1 << 62;

/// How long disks may take to answer.
const DISKS_TAKE: Duration = Duration::from_secs(5);

/// What the kernel says.
#[derive(Debug, Clone)]
pub struct KernelSignals(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    root_dir: PathBuf,
    hierarchy: Hierarchy,
    /// The cgroup of all pods.
    pods: String,
    /// The places that answer at once, as far as is known.
    local: Mutex<BTreeSet<PathBuf>>,
    /// Held by the thread that asks disks: there is one.
    asking: Arc<tokio::sync::Mutex<()>>,
}

impl KernelSignals {
    /// `root` is `/` but for tests; `root_dir` is where the agent keeps its files.
    pub fn new(root: &Path, root_dir: &Path, hierarchy: Hierarchy, layout: &Layout) -> KernelSignals {
        let pods = layout.path(&layout.kubepods());
        let (root, root_dir) = (root.to_owned(), root_dir.to_owned());
        // The agent has files there already: it answers.
        let local = is_local(&root_dir).then(|| root_dir.clone()).into_iter().collect();
        let (local, asking) = (Mutex::new(local), Arc::default());
        KernelSignals(Arc::new(Inner { root, root_dir, hierarchy, pods, local, asking }))
    }

    /// Asks disks in a thread, for which nobody waits too long. Behind a disk that does not answer there is one.
    async fn on_disks<T: Send + 'static>(&self, ask: impl FnOnce(&Inner) -> T + Send + 'static) -> Option<T> {
        let asked = async {
            let asking = Arc::clone(&self.0.asking).lock_owned().await;
            let inner = Arc::clone(&self.0);
            let ask = move || {
                let _asking = asking;
                ask(&inner)
            };
            spawn_blocking(ask).await.ok()
        };
        timeout(DISKS_TAKE, asked).await.ok().flatten()
    }
}

#[async_trait]
impl Signals for KernelSignals {
    fn read(&self) -> Readings {
        self.0.read()
    }

    async fn read_disks(&self, places: &Places) -> DiskReadings {
        let all = [Some(self.0.root_dir.clone()), places.images.clone(), places.containers.clone()];
        let local = |place: &PathBuf| self.0.local().contains(place);
        let others = all.clone().map(|place| place.filter(|place| !local(place)));
        // A thread for each look would cost more than the look, and nobody's own disk waits for another one.
        let mut found = all.map(|place| place.filter(local).and_then(|place| Storage::of(&place).ok()));
        if others.iter().any(Option::is_some) {
            let read = self.on_disks(move |inner| others.map(|place| inner.read_disk(&place?)));
            for (found, other) in found.iter_mut().zip(read.await.unwrap_or_default()) {
                *found = found.take().or(other);
            }
        }
        let [node_fs, image_fs, container_fs] = found;
        DiskReadings { node_fs, image_fs, container_fs }
    }

    async fn file_systems(&self, places: &Places) -> Option<FileSystems> {
        let places = places.clone();
        self.on_disks(move |inner| inner.file_systems(&places)).await.flatten()
    }

    fn watch_memory(&self, whose: MemoryOf, usage: u64) -> io::Result<Option<Box<dyn Alarm>>> {
        match self.0.memory_directory(whose) {
            Some(directory) if self.0.is_v1() => Ok(Some(Box::new(EventAlarm::new(&directory, usage)?))),
            Some(_) | None => Ok(None),
        }
    }
}

impl Inner {
    fn is_v1(&self) -> bool {
        matches!(self.hierarchy, Hierarchy::V1(_))
    }

    fn memory_directory(&self, whose: MemoryOf) -> Option<PathBuf> {
        let mount = match &self.hierarchy {
            Hierarchy::V1(mounts) => mounts.controllers.get("memory")?,
            Hierarchy::V2 { mount } => mount,
        };
        Some(match whose {
            MemoryOf::Machine => mount.clone(),
            MemoryOf::Pods => mount.join(self.pods.trim_start_matches('/')),
        })
    }

    fn read_disk(&self, place: &Path) -> Option<Storage> {
        if is_local(place) {
            self.local().insert(place.to_owned());
        }
        Storage::of(place).ok()
    }

    fn read(&self) -> Readings {
        let processes = || {
            let (most, running) = (most_processes(&self.root)?, running_processes(&self.root).ok()?);
            Some(ProcessReading { most, running })
        };
        Readings {
            memory: self.memory(MemoryOf::Machine),
            memory_of_pods: self.memory(MemoryOf::Pods),
            processes: processes(),
        }
    }

    fn local(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.local.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn memory(&self, whose: MemoryOf) -> Option<MemoryReading> {
        let directory = self.memory_directory(whose)?;
        let read = |name: &str| std::fs::read_to_string(directory.join(name)).ok();
        let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
        let statistics = read("memory.stat")?;
        let counted = |name: &str| {
            let lines = statistics.lines();
            lines
                .filter_map(|line| line.split_once(' '))
                .find(|(known, _)| *known == name)?
                .1
                .parse::<u64>()
                .ok()
        };
        let (usage, reclaimable, limit) = match &self.hierarchy {
            Hierarchy::V1(_) => {
                (number("memory.usage_in_bytes")?, counted("total_inactive_file")?, "memory.limit_in_bytes")
            }
            Hierarchy::V2 { .. } => {
                // The root has no such file: what v1 counts there is the sum of these.
                let usage = number("memory.current").or_else(|| Some(counted("anon")? + counted("file")?))?;
                (usage, counted("inactive_file")?, "memory.max")
            }
        };
        let capacity = match whose {
            MemoryOf::Machine => memory_total(&self.root).ok()?,
            // `max` is no number.
            MemoryOf::Pods => number(limit).filter(|limit| *limit <= UNLIMITED)?,
        };
        Some(MemoryReading { capacity, usage, working_set: usage.saturating_sub(reclaimable) })
    }

    fn file_systems(&self, places: &Places) -> Option<FileSystems> {
        let table = MountTable::read(&self.root.join("proc/self/mountinfo")).ok()?;
        let on = |path: &Path| {
            let mount = table.of(&path.canonicalize().ok()?)?;
            // Each part of a btrfs has a number of its own, and all have the room of one.
            Some(match &*mount.file_system {
                "btrfs" | "zfs" => mount.source.to_string_lossy().into_owned(),
                _ => format!("{}:{}", mount.device.0, mount.device.1),
            })
        };
        Some(FileSystems {
            node: on(&self.root_dir)?,
            images: on(places.images.as_deref()?)?,
            containers: on(places.containers.as_deref()?)?,
        })
    }
}

/// Whether a path is on a file system of this machine's own, which tells from memory how much room it has.
fn is_local(path: &Path) -> bool {
    const EXT: u64 = 0xef53;
    const XFS: u64 = 0x5846_5342;
    const BTRFS: u64 = 0x9123_683e;
    const F2FS: u64 = 0xf2f5_2010;
    const TMPFS: u64 = 0x0102_1994;
    const OVERLAY: u64 = 0x794c_7630;
    let kind = rustix::fs::statfs(path).ok().and_then(|found| u64::try_from(found.f_type).ok());
    kind.is_some_and(|kind| [EXT, XFS, BTRFS, F2FS, TMPFS, OVERLAY].contains(&kind))
}

/// Told by the kernel through a descriptor that counts. It is read as a pipe is.
struct EventAlarm(Receiver);

impl EventAlarm {
    fn new(directory: &Path, usage: u64) -> io::Result<EventAlarm> {
        let watched = File::open(directory.join("memory.usage_in_bytes"))?;
        let mut control = File::options().write(true).open(directory.join("cgroup.event_control"))?;
        let event = event()?;
        // In one write: the kernel takes it as a whole.
        let asked = format!("{} {} {usage}", event.as_raw_fd(), watched.as_raw_fd());
        control.write_all(asked.as_bytes())?;
        Ok(EventAlarm(Receiver::from_owned_fd_unchecked(event)?))
    }
}

fn event() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

#[async_trait]
impl Alarm for EventAlarm {
    async fn rings(&mut self) {
        // A descriptor that cannot be read tells nothing any more.
        while self.0.readable().await.is_ok() {
            match self.0.try_read(&mut [0; 8]) {
                Ok(_) => return,
                // Somebody was woken for nothing.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::{CgroupDriver, V1Mounts};
    use crate::testing::tree;

    const PROC: [(&str, &str); 4] = [
        ("proc/meminfo", "MemTotal:  1048576 kB\nMemFree: 1 kB\n"),
        ("proc/sys/kernel/pid_max", "32768\n"),
        ("proc/sys/kernel/threads-max", "4000\n"),
        ("proc/loadavg", "1.36 3.49 4.53 2/3518 3715089\n"),
    ];

    fn signals(root: &tempfile::TempDir, hierarchy: Hierarchy) -> KernelSignals {
        let layout = Layout::new("", CgroupDriver::Cgroupfs);
        KernelSignals::new(root.path(), root.path(), hierarchy, &layout)
    }

    #[tokio::test]
    async fn memory_is_read_from_cgroups_of_v1() {
        let root = tree(&[
            ("memory/memory.usage_in_bytes", "600000000\n"),
            ("memory/memory.stat", "cache 5\ninactive_file 7\ntotal_inactive_file 100000000\n"),
            ("memory/kubepods/memory.usage_in_bytes", "300\n"),
            ("memory/kubepods/memory.stat", "total_inactive_file 100\n"),
            ("memory/kubepods/memory.limit_in_bytes", "1000\n"),
        ]);
        for (file, text) in PROC {
            std::fs::create_dir_all(root.path().join(file).parent().unwrap()).unwrap();
            std::fs::write(root.path().join(file), text).unwrap();
        }
        let controllers = [("memory".to_owned(), root.path().join("memory"))].into();
        let signals = signals(&root, Hierarchy::V1(V1Mounts { controllers, unified: None }));
        let places = Places { images: Some(root.path().to_owned()), containers: Some("/nowhere".into()) };
        let (found, disks) = (signals.read(), signals.read_disks(&places).await);
        let machine = MemoryReading { capacity: 1 << 30, usage: 600_000_000, working_set: 500_000_000 };
        assert_eq!(found.memory, Some(machine));
        assert_eq!(machine.available(), (1 << 30) - 500_000_000);
        let pods = MemoryReading { capacity: 1_000, usage: 300, working_set: 200 };
        assert_eq!(found.memory_of_pods, Some(pods));
        assert_eq!(found.processes, Some(ProcessReading { most: 4_000, running: 3_518 }));
        assert!(
            disks.node_fs.is_some()
                && disks.node_fs.map(|fs| fs.capacity) == disks.image_fs.map(|fs| fs.capacity)
        );
        assert_eq!(disks.container_fs, None);
        let again = signals.read_disks(&places).await;
        assert_eq!(again.node_fs.map(|fs| fs.capacity), disks.node_fs.map(|fs| fs.capacity));
        std::fs::write(root.path().join("memory/kubepods/memory.limit_in_bytes"), "9223372036854771712\n")
            .unwrap();
        assert_eq!(signals.read().memory_of_pods, None, "it is not limited");
    }

    #[tokio::test]
    async fn memory_is_read_from_cgroups_of_v2_whose_root_has_few_files() {
        let root = tree(&[
            ("cgroup/memory.stat", "anon 400\nfile 300\ninactive_file 100\n"),
            ("cgroup/kubepods/memory.stat", "anon 4\nfile 3\ninactive_file 100\n"),
            ("cgroup/kubepods/memory.current", "500\n"),
            ("cgroup/kubepods/memory.max", "max\n"),
            PROC[0],
        ]);
        let signals = signals(&root, Hierarchy::V2 { mount: root.path().join("cgroup") });
        let found = signals.read();
        assert_eq!(found.memory, Some(MemoryReading { capacity: 1 << 30, usage: 700, working_set: 600 }));
        assert_eq!((found.memory_of_pods, found.processes), (None, None));
        std::fs::write(root.path().join("cgroup/kubepods/memory.max"), "1000\n").unwrap();
        let pods = signals.read().memory_of_pods;
        assert_eq!(pods, Some(MemoryReading { capacity: 1_000, usage: 500, working_set: 400 }));
        assert!(signals.watch_memory(MemoryOf::Machine, 5).unwrap().is_none(), "v2 tells nothing by itself");
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_does_not_answer_hides_no_other_and_takes_one_thread() {
        let root = tree(&[]);
        let signals = signals(&root, Hierarchy::V2 { mount: root.path().to_owned() });
        // A file system of the kernel's own is not among the local ones.
        let places = Places { images: Some("/proc".into()), containers: Some(root.path().to_owned()) };
        // Whoever asked it first is still there.
        let asking = Arc::clone(&signals.0.asking).lock_owned().await;
        for _ in 0..3 {
            let found = signals.read_disks(&places).await;
            assert!(found.node_fs.is_some() && found.container_fs.is_some(), "{found:?}");
            assert_eq!(found.image_fs, None);
            assert_eq!(signals.file_systems(&places).await, None);
        }
        drop(asking);
        assert!(signals.read_disks(&places).await.image_fs.is_some());
    }

    #[tokio::test]
    async fn file_systems_are_known_by_what_is_mounted_where() {
        let root = tree(&[]);
        let here = root.path().canonicalize().unwrap();
        for directory in ["images", "containers", "proc/self", "btrfs/a", "btrfs/b"] {
            std::fs::create_dir_all(here.join(directory)).unwrap();
        }
        let at = here.display();
        let table = format!(
            "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 8:2 / {at}/images rw - xfs /dev/sdb1 rw\n\
             3 1 0:40 / {at}/btrfs/a rw - btrfs /dev/sdc rw\n4 1 0:41 / {at}/btrfs/b rw - btrfs /dev/sdc rw\n"
        );
        std::fs::write(here.join("proc/self/mountinfo"), table).unwrap();
        let signals = signals(&root, Hierarchy::V2 { mount: here.clone() });
        let found = async |images: &str, containers: &str| {
            let places = Places { images: Some(here.join(images)), containers: Some(here.join(containers)) };
            let found = signals.file_systems(&places).await?;
            Some((found.node, found.images, found.containers))
        };
        let text = |node: &str, images: &str, containers: &str| {
            Some((node.to_owned(), images.to_owned(), containers.to_owned()))
        };
        assert_eq!(found("images", "containers").await, text("8:1", "8:2", "8:1"));
        assert_eq!(found("btrfs/a", "btrfs/b").await, text("8:1", "/dev/sdc", "/dev/sdc"));
        assert_eq!(found("images", "missing").await, None);
        assert_eq!(signals.file_systems(&Places::default()).await, None);
    }

    /// A descriptor that somebody else writes to stands for the kernel's.
    #[tokio::test]
    async fn an_alarm_rings_once_for_all_that_happened() {
        let event = event().unwrap();
        let kernel = event.try_clone().unwrap();
        let mut alarm = EventAlarm(Receiver::from_owned_fd_unchecked(event).unwrap());
        for _ in 0..2 {
            rustix::io::write(&kernel, &1_u64.to_ne_bytes()).unwrap();
        }
        alarm.rings().await;
        tokio::select! {
            biased;
            () = alarm.rings() => panic!("nothing happened since"),
            () = tokio::task::yield_now() => {}
        }
        rustix::io::write(&kernel, &1_u64.to_ne_bytes()).unwrap();
        alarm.rings().await;
    }

    /// On a machine with cgroup v1, in a cgroup that nobody is in: a page cache of ours is charged to it.
    #[tokio::test]
    async fn the_kernel_rings_when_memory_passes_the_mark() {
        let table = MountTable::read(Path::new(crate::mounts::PROC_SELF_MOUNTINFO)).unwrap();
        let Ok(Hierarchy::V1(mounts)) = Hierarchy::from_table(&table) else { return };
        let Some(memory) = mounts.controllers.get("memory") else { return };
        let cgroup = memory.join(format!("crablet-test-alarm-{}", std::process::id()));
        if std::fs::create_dir(&cgroup).is_err() {
            // Only root may.
            return;
        }
        let mut alarm = EventAlarm::new(&cgroup, 4 << 20).unwrap();
        let script = format!(
            "echo $$ > {}/cgroup.procs && head -c 33554432 /dev/zero | tail -c 33554432 > /dev/null",
            cgroup.display()
        );
        let status = std::process::Command::new("sh").args(["-c", &script]).status().unwrap();
        assert!(status.success());
        let rang = tokio::time::timeout(std::time::Duration::from_secs(10), alarm.rings()).await;
        drop(alarm);
        std::fs::remove_dir(&cgroup).unwrap();
        assert!(rang.is_ok(), "`tail` has more than the mark in memory");
    }
}
