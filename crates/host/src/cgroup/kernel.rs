//! A kernel with cgroups of version 2, in memory: enough of its rules to see whether ours fit them, on a machine that
//! has the other version. And tests of [`HostCgroups`](super::HostCgroups) on it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::CgroupError;
use super::control::ControlFiles;

const MOUNT: &str = "/sys/fs/cgroup";

/// The files that each controller brings.
const FILES: [(&str, &[(&str, &str)]); 6] = [
    ("cpu", &[("cpu.weight", "100"), ("cpu.max", "max 100000")]),
    ("cpuset", &[("cpuset.cpus", ""), ("cpuset.mems", "")]),
    ("io", &[("io.max", "")]),
    (
        "memory",
        &[("memory.max", "max"), ("memory.min", "0"), ("memory.low", "0"), ("memory.current", "4096")],
    ),
    ("hugetlb", &[("hugetlb.2MB.max", "max"), ("hugetlb.2MB.rsvd.max", "max"), ("hugetlb.1GB.max", "max")]),
    ("pids", &[("pids.max", "max")]),
];

#[derive(Clone, Default)]
pub(super) struct Kernel(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    cgroups: BTreeMap<PathBuf, Cgroup>,
    /// Every write that was accepted.
    written: Vec<String>,
    /// A file that refuses every write.
    broken: Option<String>,
    /// How many more times a process survives being killed.
    stubbornness: usize,
    /// Processes that cannot be moved.
    fixed: BTreeSet<u32>,
    /// Which controller is taken away where as soon as it is handed down, and how many more times.
    taken: Option<(&'static str, PathBuf, usize)>,
}

#[derive(Default)]
struct Cgroup {
    given: BTreeSet<String>,
    values: BTreeMap<String, String>,
    processes: BTreeSet<u32>,
}

impl Kernel {
    /// A machine with these controllers.
    pub(super) fn with(controllers: &[&str]) -> Kernel {
        let kernel = Kernel::default();
        let root =
            Cgroup { given: controllers.iter().map(|name| name.to_string()).collect(), ..Cgroup::default() };
        kernel.state(|state| state.cgroups.insert(MOUNT.into(), root));
        kernel
    }

    fn state<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.0.lock().unwrap())
    }

    /// What was written since the last time, without the mount in front.
    pub(super) fn written(&self) -> Vec<String> {
        self.state(|state| std::mem::take(&mut state.written))
    }

    pub(super) fn break_file(&self, file: &str) {
        self.state(|state| state.broken = Some(file.into()));
    }

    pub(super) fn add_process(&self, cgroup: &str, process: u32) {
        self.state(|state| state.cgroups.entry(at(cgroup)).or_default().processes.insert(process));
    }

    pub(super) fn processes(&self, cgroup: &str) -> Vec<u32> {
        self.state(|state| state.cgroups[&at(cgroup)].processes.iter().copied().collect())
    }

    pub(super) fn make_stubborn(&self, times: usize) {
        self.state(|state| state.stubbornness = times);
    }

    pub(super) fn fix(&self, process: u32) {
        self.state(|state| _ = state.fixed.insert(process));
    }

    /// Takes a controller from those below a cgroup, as systemd does where it was not told to give it, and as often again as
    /// somebody hands it down.
    pub(super) fn take(&self, controller: &'static str, cgroup: &str, times: usize) {
        self.state(|state| {
            state.taken = Some((controller, at(cgroup), times));
            if let Some(cgroup) = state.cgroups.get_mut(&at(cgroup)).filter(|_| !cgroup.is_empty()) {
                cgroup.given.remove(controller);
            }
        });
    }

    pub(super) fn cgroups(&self) -> Vec<String> {
        let relative = |path: &PathBuf| path.strip_prefix(MOUNT).unwrap().to_str().unwrap().to_owned();
        self.state(|state| state.cgroups.keys().map(relative).filter(|path| !path.is_empty()).collect())
    }
}

fn at(cgroup: &str) -> PathBuf {
    match cgroup {
        "" => MOUNT.into(),
        cgroup => Path::new(MOUNT).join(cgroup),
    }
}

fn parted(file: &Path) -> (PathBuf, String) {
    (file.parent().unwrap().into(), file.file_name().unwrap().to_str().unwrap().into())
}

impl State {
    fn values(&self, directory: &Path) -> io::Result<BTreeMap<String, String>> {
        let cgroup = self.cgroups.get(directory).ok_or(io::ErrorKind::NotFound)?;
        let mut values = BTreeMap::new();
        let lines = |words: &BTreeSet<String>| words.iter().cloned().collect::<Vec<_>>().join(" ");
        let is_root = directory == Path::new(MOUNT);
        let has = match is_root {
            true => cgroup.given.clone(),
            false => self.given_below(directory.parent().unwrap()),
        };
        values.insert("cgroup.controllers".into(), lines(&has));
        values.insert("cgroup.subtree_control".into(), lines(&self.given_below(directory)));
        let processes: Vec<String> = cgroup.processes.iter().map(u32::to_string).collect();
        values.insert("cgroup.procs".into(), processes.join("\n"));
        if !is_root {
            values.insert("cgroup.kill".into(), String::new());
            for (controller, files) in FILES.iter().filter(|(controller, _)| has.contains(*controller)) {
                let _ = controller;
                values.extend(files.iter().map(|(file, value)| (file.to_string(), value.to_string())));
            }
        }
        values.extend(cgroup.values.clone());
        Ok(values)
    }

    /// What a cgroup hands down. The root has all and hands down what it was told to, kept under another name here.
    fn given_below(&self, directory: &Path) -> BTreeSet<String> {
        let cgroup = &self.cgroups[directory];
        match directory == Path::new(MOUNT) {
            true => cgroup
                .values
                .get("handed")
                .map(|text| text.split(' ').map(String::from).collect())
                .unwrap_or_default(),
            false => cgroup.given.clone(),
        }
    }

    fn hand_down(&mut self, directory: &Path, value: &str) -> io::Result<()> {
        let has: BTreeSet<String> =
            self.values(directory)?["cgroup.controllers"].split(' ').map(String::from).collect();
        let is_root = directory == Path::new(MOUNT);
        let mut given = self.given_below(directory);
        for word in value.split(' ') {
            let controller = word.strip_prefix('+').ok_or(io::ErrorKind::InvalidInput)?;
            if !has.contains(controller) {
                return Err(io::ErrorKind::NotFound.into());
            }
            // Processes may not stand beside cgroups that have a controller.
            if !is_root && !self.cgroups[directory].processes.is_empty() {
                return Err(io::ErrorKind::ResourceBusy.into());
            }
            given.insert(controller.into());
        }
        if let Some((controller, cgroup, times @ 1..)) = &mut self.taken
            && *cgroup == directory
        {
            *times -= 1;
            given.remove(*controller);
        }
        let cgroup = self.cgroups.get_mut(directory).unwrap();
        match is_root {
            true => {
                let words: Vec<String> = given.into_iter().collect();
                cgroup.values.insert("handed".into(), words.join(" "));
            }
            false => cgroup.given = given,
        }
        Ok(())
    }
}

impl ControlFiles for Kernel {
    fn create(&self, directory: &Path) -> io::Result<bool> {
        self.state(|state| {
            if !state.cgroups.contains_key(directory.parent().unwrap()) {
                return Err(io::ErrorKind::NotFound.into());
            }
            match state.cgroups.contains_key(directory) {
                true => Ok(false),
                false => {
                    state.cgroups.insert(directory.into(), Cgroup::default());
                    Ok(true)
                }
            }
        })
    }

    fn remove(&self, directory: &Path) -> io::Result<()> {
        self.state(|state| {
            let cgroup = state.cgroups.get(directory).ok_or(io::ErrorKind::NotFound)?;
            let has_children = state.cgroups.keys().any(|path| path.parent() == Some(directory));
            if has_children || !cgroup.processes.is_empty() {
                return Err(io::ErrorKind::ResourceBusy.into());
            }
            state.cgroups.remove(directory);
            Ok(())
        })
    }

    fn exists(&self, path: &Path) -> bool {
        self.state(|state| state.cgroups.contains_key(path)) || self.read(path).is_ok()
    }

    fn write(&self, file: &Path, value: &str) -> io::Result<()> {
        let (directory, name) = parted(file);
        self.state(|state| {
            if !state.values(&directory)?.contains_key(&name) {
                return Err(io::ErrorKind::NotFound.into());
            }
            if state.broken.as_deref() == Some(&name) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            match name.as_str() {
                "cgroup.subtree_control" => state.hand_down(&directory, value)?,
                "cgroup.procs" => {
                    let process: u32 = value.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
                    if state.fixed.contains(&process) {
                        return Err(io::ErrorKind::InvalidInput.into());
                    }
                    state.cgroups.values_mut().for_each(|cgroup| _ = cgroup.processes.remove(&process));
                    state.cgroups.get_mut(&directory).unwrap().processes.insert(process);
                }
                "cgroup.kill" if state.stubbornness > 0 => state.stubbornness -= 1,
                "cgroup.kill" => {
                    let below = state.cgroups.iter_mut().filter(|(path, _)| path.starts_with(&directory));
                    below.for_each(|(_, cgroup)| cgroup.processes.clear());
                }
                _ => {
                    let cgroup = state.cgroups.get_mut(&directory).unwrap();
                    cgroup.values.insert(name.clone(), value.into());
                }
            }
            let file = file.strip_prefix(MOUNT).unwrap().display();
            state.written.push(format!("{file}: {value}"));
            Ok(())
        })
    }

    fn read(&self, file: &Path) -> io::Result<String> {
        let (directory, name) = parted(file);
        self.state(|state| Ok(state.values(&directory)?.remove(&name).ok_or(io::ErrorKind::NotFound)? + "\n"))
    }

    fn children(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.state(|state| {
            state.cgroups.get(directory).ok_or(io::ErrorKind::NotFound)?;
            let below = state.cgroups.keys().filter(|path| path.parent() == Some(directory));
            Ok(below.map(|path| path.file_name().unwrap().to_str().unwrap().into()).collect())
        })
    }

    fn files(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.state(|state| Ok(state.values(directory)?.into_keys().collect()))
    }

    fn has_program(&self, process: u32) -> bool {
        process >= 100
    }

    fn own_places(&self) -> Result<String, CgroupError> {
        let own = std::process::id();
        let stands = |(path, cgroup): (&PathBuf, &Cgroup)| {
            let path = path.strip_prefix(MOUNT).unwrap().display();
            cgroup.processes.contains(&own).then(|| format!("0::/{path}"))
        };
        Ok(self.state(|state| state.cgroups.iter().find_map(stands)).unwrap_or_else(|| "0::/".to_owned()))
    }
}

mod tests {
    use super::super::*;
    use super::{Kernel, MOUNT};

    const ALL: [&str; 6] = ["cpu", "cpuset", "hugetlb", "io", "memory", "pids"];

    fn cgroups(kernel: &Kernel, root: &str) -> HostCgroups {
        let hierarchy = Hierarchy::V2 { mount: MOUNT.into() };
        HostCgroups::with(
            hierarchy,
            Layout::new(root, CgroupDriver::Cgroupfs),
            Box::new(kernel.clone()),
            None,
        )
    }

    fn pod(qos: QosClass) -> PodCgroup {
        PodCgroup::new(qos, "1234-5678").unwrap()
    }

    fn limits() -> Limits {
        Limits {
            cpu_shares: Some(1024),
            cpu_bandwidth: Some(CpuBandwidth { quota: Bound::At(50_000), period: 100_000 }),
            memory: Some(Bound::At(64 << 20)),
            processes: Some(Bound::At(100)),
            huge_pages: HugePages::Only([(2 << 20, 4 << 20)].into()),
            unified: [("memory.min".to_owned(), "1048576".to_owned())].into(),
            ..Limits::default()
        }
    }

    #[tokio::test]
    async fn levels_hand_down_every_controller_and_get_their_limits() {
        let kernel = Kernel::with(&ALL);
        let wanted = LevelLimits {
            node: Limits { cpu_shares: Some(2048), memory: Some(Bound::At(1 << 30)), ..Limits::default() },
            burstable: Limits { huge_pages: HugePages::Unlimited, ..Limits::default() },
            best_effort: Limits { cpu_shares: Some(2), ..Limits::default() },
        };
        let cgroups = cgroups(&kernel, "");
        cgroups.ensure_levels(&wanted).await.unwrap();
        let all = "+cpu +cpuset +hugetlb +io +memory +pids";
        let huge = "4611686018427387904";
        assert_eq!(
            kernel.written(),
            [
                format!("cgroup.subtree_control: {all}"),
                "kubepods/cpu.weight: 79".into(),
                "kubepods/memory.max: 1073741824".into(),
                format!("kubepods/cgroup.subtree_control: {all}"),
                format!("kubepods/burstable/hugetlb.1GB.max: {huge}"),
                format!("kubepods/burstable/hugetlb.2MB.max: {huge}"),
                format!("kubepods/burstable/hugetlb.2MB.rsvd.max: {huge}"),
                "kubepods/besteffort/cpu.weight: 1".into(),
            ]
        );
        assert_eq!(kernel.cgroups(), ["kubepods", "kubepods/besteffort", "kubepods/burstable"]);
        // Once more: nothing to hand down any more, and the same limits.
        cgroups.ensure_levels(&wanted).await.unwrap();
        assert_eq!(kernel.written().len(), 6);
    }

    #[tokio::test]
    async fn a_pod_gets_its_limits_once_and_keeps_them() {
        let kernel = Kernel::with(&ALL);
        let cgroups = cgroups(&kernel, "");
        cgroups.ensure_levels(&LevelLimits::default()).await.unwrap();
        kernel.written();
        let pod = pod(QosClass::Burstable);
        assert_eq!(cgroups.ensure_pod(&pod, &limits()).await.unwrap(), Ensured::Created);
        let all = "+cpu +cpuset +hugetlb +io +memory +pids";
        assert_eq!(
            kernel.written(),
            [
                &format!("kubepods/burstable/cgroup.subtree_control: {all}"),
                "kubepods/burstable/pod1234-5678/cpu.weight: 39",
                "kubepods/burstable/pod1234-5678/cpu.max: 50000 100000",
                "kubepods/burstable/pod1234-5678/memory.max: 67108864",
                "kubepods/burstable/pod1234-5678/pids.max: 100",
                "kubepods/burstable/pod1234-5678/hugetlb.1GB.max: 0",
                "kubepods/burstable/pod1234-5678/hugetlb.2MB.max: 4194304",
                "kubepods/burstable/pod1234-5678/hugetlb.2MB.rsvd.max: 4194304",
                "kubepods/burstable/pod1234-5678/memory.min: 1048576",
            ]
        );
        assert_eq!(cgroups.ensure_pod(&pod, &Limits::default()).await.unwrap(), Ensured::Existed);
        assert_eq!(kernel.written(), [""; 0]);

        let found = cgroups.pod_limits(&pod).await.unwrap();
        assert_eq!(found.cpu_shares, Some(998));
        assert_eq!(found.cpu_bandwidth, limits().cpu_bandwidth);
        assert_eq!(found.memory, limits().memory);
        assert_eq!(found.processes, limits().processes);
        assert_eq!(cgroups.pod_memory_usage(&pod).await.unwrap(), 4096);

        let unlimited = Limits {
            memory: Some(Bound::Unlimited),
            processes: Some(Bound::At(0)),
            cpu_bandwidth: Some(CpuBandwidth { quota: Bound::Unlimited, period: 50_000 }),
            cpus: Some("0-1".into()),
            ..Limits::default()
        };
        cgroups.update_pod(&pod, &unlimited).await.unwrap();
        assert_eq!(
            kernel.written(),
            [
                "kubepods/burstable/pod1234-5678/cpu.max: max 50000",
                "kubepods/burstable/pod1234-5678/cpuset.cpus: 0-1",
                "kubepods/burstable/pod1234-5678/memory.max: max",
                "kubepods/burstable/pod1234-5678/pids.max: 1",
            ]
        );
        assert_eq!(cgroups.pod_limits(&pod).await.unwrap().memory, Some(Bound::Unlimited));
    }

    #[tokio::test]
    async fn a_limit_that_is_refused_names_file_and_value_and_leaves_no_cgroup() {
        let kernel = Kernel::with(&ALL);
        let cgroups = cgroups(&kernel, "");
        cgroups.ensure_levels(&LevelLimits::default()).await.unwrap();
        kernel.break_file("memory.max");
        let error = cgroups.ensure_pod(&pod(QosClass::Guaranteed), &limits()).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot write \"67108864\" to /sys/fs/cgroup/kubepods/pod1234-5678/memory.max"
        );
        assert_eq!(cgroups.pods().await.unwrap(), []);
    }

    #[tokio::test]
    async fn huge_pages_are_not_limited_where_cgroups_cannot() {
        let kernel = Kernel::with(&["cpu", "cpuset", "memory", "pids"]);
        let cgroups = cgroups(&kernel, "");
        for pages in
            [HugePages::Only([].into()), HugePages::Only([(2 << 20, 0)].into()), HugePages::Unlimited]
        {
            let node = Limits { huge_pages: pages, ..Limits::default() };
            cgroups.ensure_levels(&LevelLimits { node, ..LevelLimits::default() }).await.unwrap();
        }
        cgroups.ensure_pod(&pod(QosClass::Guaranteed), &limits()).await.unwrap();
        assert!(!kernel.written().iter().any(|line| line.contains("hugetlb")));
    }

    #[tokio::test]
    async fn huge_pages_of_a_size_that_the_machine_does_not_have_are_an_error() {
        let kernel = Kernel::with(&ALL);
        let cgroups = cgroups(&kernel, "");
        let limits =
            Limits { huge_pages: HugePages::Only([(16 << 30, 16 << 30)].into()), ..Limits::default() };
        let error = cgroups.ensure_pod(&pod(QosClass::Guaranteed), &limits).await.unwrap_err();
        assert!(error.to_string().ends_with("hugetlb.16GB.max"), "{error}");
    }

    #[tokio::test]
    async fn a_controller_that_is_taken_away_while_levels_are_made_is_handed_down_again_to_all_pods() {
        let kernel = Kernel::with(&ALL);
        let cgroups = cgroups(&kernel, "");
        kernel.take("cpuset", "", 1);
        cgroups.ensure_levels(&LevelLimits::default()).await.unwrap();
        kernel.take("cpuset", "kubepods", usize::MAX);
        cgroups.ensure_levels(&LevelLimits::default()).await.unwrap();

        let kernel = Kernel::with(&ALL);
        let cgroups = super::tests::cgroups(&kernel, "");
        kernel.take("cpuset", "", usize::MAX);
        let error = cgroups.ensure_levels(&LevelLimits::default()).await.unwrap_err();
        assert_eq!(error.to_string(), "the cgroup /sys/fs/cgroup/kubepods lacks the controllers cpuset");
    }

    #[tokio::test]
    async fn a_root_with_processes_in_it_cannot_hand_down_controllers() {
        let kernel = Kernel::with(&ALL);
        kernel.add_process("busy", 1);
        let error = cgroups(&kernel, "/busy").ensure_levels(&LevelLimits::default()).await.unwrap_err();
        assert_eq!(error.to_string(), "cannot write \"+cpu\" to /sys/fs/cgroup/busy/cgroup.subtree_control");
    }

    #[tokio::test]
    async fn processes_that_stand_nowhere_are_gathered_but_for_the_first_and_the_kernels() {
        let kernel = Kernel::with(&ALL);
        for process in [1, 2, 99, 100, 4000] {
            kernel.add_process("", process);
        }
        cgroups(&kernel, "").gather("/system/daemons").await.unwrap();
        assert_eq!(kernel.processes("system/daemons"), [100, 4000]);
        assert_eq!(kernel.processes(""), [1, 2, 99]);
        kernel.written();
        kernel.take("cpuset", "system", 0);
        cgroups(&kernel, "").gather("/system/daemons").await.unwrap();
        assert_eq!(kernel.written(), [""; 0], "nobody is left to be moved");
    }

    #[tokio::test]
    async fn a_process_that_cannot_be_moved_keeps_no_other_where_it_is() {
        let kernel = Kernel::with(&ALL);
        for process in [100, 200, 300] {
            kernel.add_process("", process);
        }
        kernel.fix(100);
        let error = cgroups(&kernel, "").gather("/system").await.unwrap_err();
        assert_eq!(kernel.processes("system"), [200, 300]);
        assert_eq!(error.to_string(), "the processes [100] do not stay in the cgroup /system");
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(source, "cannot write \"100\" to /sys/fs/cgroup/system/cgroup.procs");
    }

    #[tokio::test]
    async fn the_agent_moves_into_the_cgroup_that_it_is_to_be_in() {
        let kernel = Kernel::with(&ALL);
        let cgroups = cgroups(&kernel, "");
        cgroups.enter("/kube/kubelet").await.unwrap();
        assert_eq!(kernel.processes("kube/kubelet"), [std::process::id()]);
        assert!(!kernel.written().is_empty());
        // systemd takes from a unit's slice what nobody delegated, and may be right.
        kernel.take("cpuset", "kube", 0);
        for same in ["/kube/kubelet", "kube//kubelet/"] {
            cgroups.enter(same).await.unwrap();
            assert_eq!(kernel.written(), [""; 0], "it stands there");
        }
        cgroups.enter("/other").await.unwrap();
        assert_eq!(
            (kernel.processes("other"), kernel.processes("kube/kubelet")),
            (vec![std::process::id()], vec![])
        );
        let error = cgroups.limit_existing("/kubelets", &Limits::default()).await.unwrap_err();
        assert_eq!(error.to_string(), "the cgroup /sys/fs/cgroup/kubelets does not exist");
    }

    #[tokio::test]
    async fn a_root_that_is_missing_is_not_made() {
        let kernel = Kernel::with(&ALL);
        let error = cgroups(&kernel, "/none").ensure_levels(&LevelLimits::default()).await.unwrap_err();
        assert_eq!(error.to_string(), "the cgroup root /sys/fs/cgroup/none does not exist");
        assert_eq!(kernel.cgroups(), [""; 0]);
    }

    #[tokio::test]
    async fn a_file_of_another_cgroup_is_not_written() {
        let kernel = Kernel::with(&ALL);
        let cgroups = cgroups(&kernel, "");
        cgroups.ensure_pod(&pod(QosClass::Guaranteed), &Limits::default()).await.unwrap();
        for file in ["../memory.max", "/memory.max", "", "..", "memory.max/"] {
            let unified = [(file.to_owned(), "1".to_owned())].into();
            let limits = Limits { unified, ..Limits::default() };
            cgroups.update_pod(&pod(QosClass::Guaranteed), &limits).await.unwrap_err();
        }
        assert!(!kernel.written().iter().any(|line| line.contains("memory.max")));
    }

    #[tokio::test(start_paused = true)]
    async fn removal_kills_what_is_left_and_waits_for_it_to_go() {
        let kernel = Kernel::with(&ALL);
        let cgroups = cgroups(&kernel, "");
        let pod = pod(QosClass::BestEffort);
        cgroups.ensure_pod(&pod, &Limits::default()).await.unwrap();
        kernel.add_process("kubepods/besteffort/pod1234-5678/container", 42);
        kernel.add_process("kubepods/besteffort/pod1234-5678/container/deep", 7);
        assert_eq!(cgroups.pod_processes(&pod).await.unwrap(), [7, 42]);
        assert_eq!(cgroups.pods().await.unwrap(), std::slice::from_ref(&pod));
        kernel.make_stubborn(5);
        cgroups.remove_pod(&pod).await.unwrap();
        assert_eq!(kernel.cgroups(), ["kubepods", "kubepods/besteffort"]);
        cgroups.remove_pod(&pod).await.unwrap();
        assert_eq!(cgroups.pod_processes(&pod).await.unwrap(), [0; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn removal_gives_up_on_what_does_not_die_and_names_it() {
        let kernel = Kernel::with(&ALL);
        let cgroups = cgroups(&kernel, "");
        let pod = pod(QosClass::Guaranteed);
        cgroups.ensure_pod(&pod, &Limits::default()).await.unwrap();
        kernel.add_process("kubepods/pod1234-5678/container", 42);
        kernel.make_stubborn(usize::MAX);
        let started = tokio::time::Instant::now();
        let error = cgroups.remove_pod(&pod).await.unwrap_err();
        assert!(error.to_string().ends_with("busy with the processes [42]"), "{error}");
        assert!(started.elapsed() < std::time::Duration::from_secs(3));
    }
}
