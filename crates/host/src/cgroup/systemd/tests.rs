use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crablet_dbus::stand_in::{Answer, Called, StandIn, Told};

use super::super::kernel::Kernel;
use super::super::{
    CgroupDriver, CgroupName, Cgroups, Ensured, Hierarchy, HostCgroups, HugePages, Layout, LevelLimits,
    PodCgroup, QosClass, control::ControlFiles,
};
use super::*;

const MOUNT: &str = "/sys/fs/cgroup";
const ALL: [&str; 6] = ["cpu", "cpuset", "hugetlb", "io", "memory", "pids"];

/// Somebody who answers as systemd does, and makes cgroups in a kernel of its own.
#[derive(Clone)]
struct Manager(Arc<Mutex<State>>);

struct State {
    kernel: Kernel,
    version: &'static str,
    units: BTreeSet<String>,
    asked: Vec<String>,
    /// What becomes of jobs.
    result: &'static str,
    /// How many more questions get no answer but the end of the connection.
    breaks: usize,
    /// Where a process begins when limits are set.
    settles: Option<(Kernel, String)>,
}

impl Manager {
    fn new() -> Manager {
        Manager(Arc::new(Mutex::new(State {
            kernel: Kernel::with(&ALL),
            version: "252.39-1~deb12u1",
            units: BTreeSet::new(),
            asked: Vec::new(),
            result: "done",
            breaks: 0,
            settles: None,
        })))
    }

    fn listen(&self, socket: &Path) -> StandIn {
        let state = Arc::clone(&self.0);
        StandIn::listen(socket, move |called| state.lock().unwrap().answer(called)).unwrap()
    }

    fn state<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.0.lock().unwrap())
    }

    /// What it was asked since the last time.
    fn asked(&self) -> Vec<String> {
        self.state(|state| std::mem::take(&mut state.asked))
    }

    fn units(&self) -> Vec<String> {
        self.state(|state| state.units.iter().cloned().collect())
    }
}

impl State {
    fn answer(&mut self, called: &Called) -> Answer {
        let done = || Answer::values(Vec::new());
        match &*called.member {
            "Subscribe" => return done(),
            "Get" => return Answer::values(vec![Value::variant(self.version)]),
            _ => {}
        }
        if self.breaks > 0 {
            self.breaks -= 1;
            // More than anybody may say: who hears it hangs up.
            return Answer::values(vec![Value::Bytes(vec![0; 32 << 20])]);
        }
        let unit = called.values[0].as_text().unwrap().to_owned();
        let refused = |name: &str| Answer::Error {
            name: format!("org.freedesktop.systemd1.{name}"),
            message: format!("Unit {unit} is not as you think"),
        };
        let mut text = format!("{} {unit}", called.member);
        if let Some(properties) = called.values.get(2) {
            text.push_str(&format!(": {}", shown(properties)));
        }
        let path = CgroupName::from_systemd(&unit).to_systemd();
        match &*called.member {
            "StartTransientUnit" => {
                assert_eq!(called.values[1], "replace".into());
                self.asked.push(text);
                if !self.units.insert(unit.clone()) {
                    return refused("UnitExists");
                }
                let mut directory = PathBuf::new();
                for part in path.split('/').filter(|part| !part.is_empty()) {
                    directory.push(part);
                    self.kernel.create(&Path::new(MOUNT).join(&directory)).unwrap();
                }
                self.job(&unit)
            }
            "SetUnitProperties" => {
                assert_eq!(called.values[1], true.into(), "until the machine is started again");
                self.asked.push(text);
                if let Some((kernel, cgroup)) = &self.settles {
                    kernel.add_process(cgroup, 42);
                }
                done()
            }
            "StopUnit" => {
                self.asked.push(text);
                if !self.units.remove(&unit) {
                    return refused("NoSuchUnit");
                }
                let _ = self.kernel.remove(&at(&path));
                self.job(&unit)
            }
            "ResetFailedUnit" => refused("NoSuchUnit"),
            other => panic!("{other}"),
        }
    }

    /// A job, which ends after another one did.
    fn job(&self, unit: &str) -> Answer {
        let removed = |job: &str, unit: &str, result: &str| Told {
            path: MANAGER.path.into(),
            interface: MANAGER.interface.into(),
            member: "JobRemoved".into(),
            values: vec![1_u32.into(), Value::ObjectPath(job.into()), unit.into(), result.into()],
        };
        Answer::Return {
            values: vec![Value::ObjectPath("/job/7".into())],
            fds: Vec::new(),
            then: vec![removed("/job/6", "other.service", "failed"), removed("/job/7", unit, self.result)],
        }
    }
}

/// Properties as a person reads them.
fn shown(properties: &Value) -> String {
    let Value::Array(_, properties) = properties else { panic!("{properties:?}") };
    let shown = properties.iter().map(|property| {
        let Value::Struct(pair) = property else { panic!("{property:?}") };
        let [name, Value::Variant(value)] = &**pair else { panic!("{pair:?}") };
        let value = match &**value {
            Value::Uint64(u64::MAX) => "infinity".to_owned(),
            Value::Uint64(number) => number.to_string(),
            Value::Bool(is) => is.to_string(),
            Value::Text(text) => text.clone(),
            Value::Bytes(bytes) => format!("{bytes:?}"),
            Value::Array(_, texts) => texts.iter().filter_map(Value::as_text).collect::<Vec<_>>().join(","),
            other => panic!("{other:?}"),
        };
        format!("{}={value}", name.as_text().unwrap())
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// A machine with cgroups of version 2.
struct Machine {
    kernel: Kernel,
    systemd: Manager,
    cgroups: HostCgroups,
    _bus: StandIn,
    _directory: tempfile::TempDir,
}

fn at(path: &str) -> PathBuf {
    Path::new(MOUNT).join(path.trim_start_matches('/'))
}

fn machine() -> Machine {
    let (directory, socket) = socket();
    let systemd = Manager::new();
    let bus = systemd.listen(&socket);
    let kernel = systemd.state(|state| state.kernel.clone());
    let layout = Layout::new("", CgroupDriver::Systemd);
    let hierarchy = Hierarchy::V2 { mount: MOUNT.into() };
    let asks = Systemd::at(vec![Place::Private(directory.path().join("private")), Place::Bus(socket)]);
    let cgroups = HostCgroups::with(hierarchy, layout, Box::new(kernel.clone()), Some(asks));
    Machine { kernel, systemd, cgroups, _bus: bus, _directory: directory }
}

fn socket() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("bus");
    (directory, socket)
}

fn pod() -> PodCgroup {
    PodCgroup::new(QosClass::Burstable, "12-ab").unwrap()
}

const SLICE: &str = "kubepods-burstable-pod12_ab.slice";

fn limits() -> Limits {
    Limits {
        cpu_shares: Some(1024),
        cpu_bandwidth: Some(CpuBandwidth { quota: Bound::At(12_345), period: 100_000 }),
        memory: Some(Bound::At(64 << 20)),
        processes: Some(Bound::At(100)),
        huge_pages: HugePages::Only([(2 << 20, 4 << 20)].into()),
        unified: [("memory.low".to_owned(), "1048576".to_owned())].into(),
        ..Limits::default()
    }
}

#[tokio::test]
async fn slices_are_made_by_systemd_with_the_names_and_properties_of_others() {
    let machine = machine();
    let node = Limits { memory: Some(Bound::At(1 << 30)), cpus: Some("0-3,8".into()), ..Limits::default() };
    let levels = LevelLimits { node, ..LevelLimits::default() };
    machine.cgroups.ensure_levels(&levels).await.unwrap();
    let accounting = "MemoryAccounting=true CPUAccounting=true IOAccounting=true TasksAccounting=true \
                      DefaultDependencies=false";
    let made = |slice: &str, parent: &str| {
        format!(
            "StartTransientUnit {slice}: Description=libcontainer container {slice} Wants={parent} {accounting}"
        )
    };
    assert_eq!(
        machine.systemd.asked(),
        [
            made("kubepods.slice", "-.slice"),
            "SetUnitProperties kubepods.slice: MemoryMax=1073741824 AllowedCPUs=[15, 1]".into(),
            made("kubepods-burstable.slice", "kubepods.slice"),
            made("kubepods-besteffort.slice", "kubepods.slice"),
        ]
    );
    assert_eq!(machine.cgroups.ensure_pod(&pod(), &limits()).await.unwrap(), Ensured::Created);
    assert_eq!(
        machine.systemd.asked(),
        [
            made(SLICE, "kubepods-burstable.slice"),
            format!(
                "SetUnitProperties {SLICE}: MemoryMax=67108864 CPUWeight=39 CPUQuotaPeriodUSec=100000 \
                 CPUQuotaPerSecUSec=130000 TasksMax=100 MemoryLow=1048576"
            ),
        ]
    );
    assert_eq!(machine.cgroups.pods().await.unwrap(), [pod()]);
    assert_eq!(machine.cgroups.ensure_pod(&pod(), &limits()).await.unwrap(), Ensured::Existed);
    assert_eq!(machine.systemd.asked(), [""; 0]);
}

#[tokio::test]
async fn the_files_are_written_too_with_what_systemd_makes_of_a_quota_and_what_it_does_not_know() {
    let machine = machine();
    machine.cgroups.ensure_levels(&LevelLimits::default()).await.unwrap();
    machine.kernel.written();
    machine.cgroups.ensure_pod(&pod(), &limits()).await.unwrap();
    let slice = format!("kubepods.slice/kubepods-burstable.slice/{SLICE}");
    let written: Vec<_> = machine.kernel.written().into_iter().filter(|line| line.contains(SLICE)).collect();
    assert_eq!(
        written,
        [
            format!("{slice}/cpu.weight: 39"),
            format!("{slice}/cpu.max: 13000 100000"),
            format!("{slice}/memory.max: 67108864"),
            format!("{slice}/pids.max: 100"),
            format!("{slice}/hugetlb.1GB.max: 0"),
            format!("{slice}/hugetlb.2MB.max: 4194304"),
            format!("{slice}/hugetlb.2MB.rsvd.max: 4194304"),
            format!("{slice}/memory.low: 1048576"),
        ]
    );
}

#[tokio::test]
async fn a_pods_slice_is_stopped_when_its_processes_are_gone() {
    let machine = machine();
    machine.cgroups.ensure_levels(&LevelLimits::default()).await.unwrap();
    machine.cgroups.ensure_pod(&pod(), &Limits::default()).await.unwrap();
    let below = format!("kubepods.slice/kubepods-burstable.slice/{SLICE}/cri-containerd-1.scope");
    machine.kernel.add_process(&below, 42);
    machine.kernel.make_stubborn(1);
    machine.systemd.asked();
    machine.cgroups.remove_pod(&pod()).await.unwrap();
    assert_eq!(machine.systemd.asked(), [format!("StopUnit {SLICE}")]);
    assert_eq!(machine.cgroups.pods().await.unwrap(), []);
    assert_eq!(machine.systemd.units().len(), 3);
    // There is nothing to ask for any more.
    machine.cgroups.remove_pod(&pod()).await.unwrap();
    assert_eq!(machine.systemd.asked(), [""; 0]);
}

#[tokio::test]
async fn a_limit_that_is_refused_leaves_no_slice() {
    let machine = machine();
    machine.cgroups.ensure_levels(&LevelLimits::default()).await.unwrap();
    machine.kernel.break_file("memory.max");
    machine.cgroups.ensure_pod(&pod(), &limits()).await.unwrap_err();
    assert!(!machine.systemd.units().contains(&SLICE.to_owned()));
    assert_eq!(machine.cgroups.pods().await.unwrap(), []);
}

#[tokio::test]
async fn a_slice_that_cannot_be_completed_is_not_stopped_while_its_pod_lives() {
    let machine = machine();
    machine.cgroups.ensure_levels(&LevelLimits::default()).await.unwrap();
    machine.cgroups.ensure_pod(&pod(), &limits()).await.unwrap();
    let parent = "kubepods.slice/kubepods-burstable.slice";
    let container = format!("{parent}/{SLICE}/cri-containerd-1.scope");
    machine.kernel.add_process(&container, 42);
    machine.kernel.break_file("memory.max");
    machine.systemd.asked();
    machine.kernel.take("cpuset", parent, 0);
    assert_eq!(machine.cgroups.ensure_pod(&pod(), &limits()).await.unwrap(), Ensured::Existed);
    assert_eq!(machine.systemd.asked(), [""; 0]);
    machine.kernel.take("memory", parent, 0);
    machine.cgroups.ensure_pod(&pod(), &limits()).await.unwrap_err();
    let asked = machine.systemd.asked();
    assert!(asked.iter().all(|asked| asked.starts_with("SetUnitProperties")), "{asked:?}");
    assert!(machine.systemd.units().contains(&SLICE.to_owned()));
    assert_eq!(machine.kernel.processes(&container), [42]);
}

#[tokio::test]
async fn a_slice_that_somebody_moved_into_is_not_taken_back() {
    let machine = machine();
    machine.cgroups.ensure_levels(&LevelLimits::default()).await.unwrap();
    let (kernel, below) =
        (machine.kernel.clone(), format!("kubepods.slice/kubepods-burstable.slice/{SLICE}/c"));
    machine.systemd.state(|state| state.settles = Some((kernel, below)));
    machine.kernel.break_file("memory.max");
    machine.cgroups.ensure_pod(&pod(), &limits()).await.unwrap_err();
    assert!(machine.systemd.units().contains(&SLICE.to_owned()));
}

#[tokio::test]
async fn few_ask_at_the_same_time() {
    let (_directory, socket) = socket();
    let bus = StandIn::listen(&socket, |called| match &*called.member {
        "Subscribe" => Answer::values(Vec::new()),
        "Get" => Answer::values(vec![Value::variant("252")]),
        _ => Answer::Silence,
    });
    let mut connections = bus.as_ref().unwrap().connections();
    let asks = Arc::new(Systemd::at(vec![Place::Bus(socket)]));
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..3 * ASKED_AT_ONCE {
        let asks = Arc::clone(&asks);
        asking.spawn(async move { asks.set("/a.slice", &memory(), Version::V2).await });
    }
    connections.wait_for(|count| *count == ASKED_AT_ONCE).await.unwrap();
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(*connections.borrow(), ASKED_AT_ONCE);
}

#[tokio::test]
async fn a_cgroup_of_the_system_is_limited_by_the_name_of_its_unit() {
    let machine = machine();
    machine.systemd.state(|state| _ = state.units.insert("system.slice".to_owned()));
    let limits = Limits { cpu_shares: Some(512), ..Limits::default() };
    let missing = machine.cgroups.limit_existing("/system.slice", &limits).await.unwrap_err();
    assert_eq!(missing.to_string(), "the cgroup /sys/fs/cgroup/system.slice does not exist");
    machine.cgroups.ensure_levels(&LevelLimits::default()).await.unwrap();
    machine.kernel.create(&at("system.slice")).unwrap();
    machine.systemd.asked();
    for name in ["/system.slice", "system.slice"] {
        machine.cgroups.limit_existing(name, &limits).await.unwrap();
        assert_eq!(machine.systemd.asked(), ["SetUnitProperties system.slice: CPUWeight=20"]);
    }
}

fn memory() -> Limits {
    Limits { memory: Some(Bound::At(4096)), ..Limits::default() }
}

#[tokio::test]
async fn signals_are_asked_for_before_anything_is_started() {
    let (_directory, socket) = socket();
    let systemd = Manager::new();
    let bus = systemd.listen(&socket);
    let connections = bus.connections();
    let asks = Systemd::at(vec![Place::Bus(socket)]);
    asks.start_slice("/kubepods.slice", Version::V1).await.unwrap();
    assert!(systemd.asked()[0].contains("BlockIOAccounting=true"));
    asks.stop("/kubepods.slice").await.unwrap();
    assert_eq!(*connections.borrow(), 2, "nobody stays connected");
}

#[tokio::test]
async fn a_slice_that_is_there_is_as_good_as_made_and_one_that_is_not_as_good_as_stopped() {
    let (_directory, socket) = socket();
    let systemd = Manager::new();
    let _bus = systemd.listen(&socket);
    let asks = Systemd::at(vec![Place::Bus(socket)]);
    for _ in 0..2 {
        asks.start_slice("/kubepods.slice", Version::V2).await.unwrap();
    }
    for _ in 0..2 {
        asks.stop("/kubepods.slice").await.unwrap();
    }
    assert_eq!(systemd.units(), [""; 0]);
}

#[tokio::test]
async fn a_job_that_failed_says_so() {
    let (_directory, socket) = socket();
    let systemd = Manager::new();
    systemd.state(|state| state.result = "failed");
    let _bus = systemd.listen(&socket);
    let asks = Systemd::at(vec![Place::Bus(socket)]);
    let error = asks.start_slice("/kubepods.slice", Version::V2).await.unwrap_err();
    assert_eq!(error.to_string(), "error creating systemd unit kubepods.slice: got \"failed\"");
}

#[tokio::test]
async fn an_old_systemd_is_not_told_what_it_does_not_know() {
    let (_directory, socket) = socket();
    let systemd = Manager::new();
    systemd.state(|state| state.version = "v239 (239-82.el8)");
    let _bus = systemd.listen(&socket);
    let bandwidth = CpuBandwidth { quota: Bound::Unlimited, period: 100_000 };
    let limits = Limits { cpu_bandwidth: Some(bandwidth), cpus: Some("0".into()), ..Limits::default() };
    Systemd::at(vec![Place::Bus(socket)]).set("/a.slice", &limits, Version::V1).await.unwrap();
    assert_eq!(systemd.asked(), ["SetUnitProperties a.slice: CPUQuotaPerSecUSec=infinity"]);
}

#[tokio::test]
async fn who_is_away_is_named_and_asked_again_when_back() {
    let (_directory, socket) = socket();
    let asks = Systemd::at(vec![Place::Bus(socket.clone())]);
    let error = asks.set("/a.slice", &memory(), Version::V2).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot ask systemd about a.slice");
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, format!("cannot connect to the bus at {}", socket.display()));
    let systemd = Manager::new();
    let _bus = systemd.listen(&socket);
    asks.set("/a.slice", &memory(), Version::V2).await.unwrap();
    assert_eq!(systemd.asked(), ["SetUnitProperties a.slice: MemoryMax=4096"]);
}

#[tokio::test]
async fn a_connection_that_breaks_once_is_made_anew_and_one_that_breaks_again_is_an_error() {
    let (_directory, socket) = socket();
    let systemd = Manager::new();
    let _bus = systemd.listen(&socket);
    let asks = Systemd::at(vec![Place::Bus(socket)]);
    systemd.state(|state| state.breaks = 1);
    asks.set("/a.slice", &memory(), Version::V2).await.unwrap();
    systemd.state(|state| state.breaks = 2);
    let error = asks.set("/a.slice", &memory(), Version::V2).await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "the connection to the bus has ended");
}

#[test]
fn versions_are_told_by_their_first_number() {
    for (text, number) in [("252.39-1~deb12u1", 252), ("v239", 239), ("systemd 255 (x)", 255), ("", 0)] {
        assert_eq!(number_of(text), number, "{text}");
    }
}

#[test]
fn processors_are_bits() {
    for (cpus, expected) in [
        ("0", Some(vec![1])),
        ("0-3,8", Some(vec![15, 1])),
        ("17", Some(vec![0, 0, 2])),
        (" 1 , 2", Some(vec![6])),
        ("", None),
        ("x", None),
        ("1-x", None),
    ] {
        assert_eq!(bits(cpus), expected, "{cpus}");
    }
}
