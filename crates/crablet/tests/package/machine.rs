//! A machine to install packages on: this one's files, with systemd as its first process and memory for what changes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crablet_cri_sim::{Settings, Simulator, serve};
use crablet_host::clock::Clock;
use crablet_testkit::{Daemon, eventually};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::process::Command;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::common::{PATIENCE, PROGRAM};

/// Where files change whatever is installed.
const NOT_OURS: [&str; 4] = ["/var/lib/dpkg/", "/var/lib/apt/", "/var/log/", "/var/cache/"];
/// How often it is looked whether a machine has ended, and how long in between.
const LOOKS: u32 = 2000;
const PAUSE: Duration = Duration::from_millis(5);

pub struct Machine {
    directory: TempDir,
    /// What began its namespaces, and waits for its first process.
    keeper: Option<Daemon>,
    first_process: i32,
    pub runtime: Simulator,
    _served: AbortOnDropHandle<()>,
}

impl Machine {
    /// Boots. It has a container runtime, which is simulated, where containerd's is.
    pub async fn boot() -> Machine {
        Machine::boot_with(Settings::default()).await
    }

    /// The same, with a runtime that is told something of itself.
    pub async fn boot_with(settings: Settings) -> Machine {
        let directory = TempDir::with_prefix("crablet-machine-").unwrap();
        for name in ["layers", "shared/containerd"] {
            fs::create_dir_all(directory.path().join(name)).unwrap();
        }
        let runtime = Simulator::new(Settings { start: Clock::system().now(), ..settings });
        let socket = directory.path().join("shared/containerd/containerd.sock");
        let served = serve(runtime.clone(), UnixListener::bind(socket).unwrap(), std::future::pending());
        let _served = AbortOnDropHandle::new(tokio::spawn(async move { served.await.unwrap() }));

        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/package/machine.sh");
        let arguments = [script.as_path(), directory.path(), Path::new(PROGRAM)];
        let log = directory.path().join("boot.log");
        let keeper = Daemon::spawn(Path::new("/bin/sh"), arguments, [], &log).await.unwrap();
        let keeper_pid = keeper.pid();
        let mut machine = Machine { directory, keeper: Some(keeper), first_process: 0, runtime, _served };
        machine.first_process = eventually("there is a first process", PATIENCE, || async {
            let children = format!("/proc/{keeper_pid}/task/{keeper_pid}/children");
            let children = fs::read_to_string(children).unwrap_or_default();
            let first = children.split_whitespace().find(|child| is_first(child));
            first.and_then(|child| child.parse().ok()).ok_or_else(|| machine.boot_log())
        })
        .await
        .unwrap();
        eventually("systemd is up", PATIENCE, || async {
            machine.assert_up();
            let (state, _) = machine.ask("systemctl is-system-running").await;
            if state == "running" { Ok(()) } else { Err(format!("{state}: {}", machine.boot_log())) }
        })
        .await
        .unwrap();
        machine
    }

    /// Where a file of `/test` is here.
    pub fn shared(&self, name: &str) -> PathBuf {
        self.directory.path().join("shared").join(name)
    }

    /// What a command of the shell prints, on both of its outputs, and whether it succeeded.
    pub async fn ask(&self, command: &str) -> (String, bool) {
        let output = Command::new("nsenter")
            .args(self.within())
            .args(["sh", "-c", &format!("exec 2>&1; {command}")])
            .env_clear()
            .envs([("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), ("DEBIAN_FRONTEND", "noninteractive")])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output =
            timeout(PATIENCE, output).await.unwrap_or_else(|_| panic!("{command} does not end")).unwrap();
        let printed = [output.stdout, output.stderr].concat();
        (String::from_utf8_lossy(&printed).trim_end().to_owned(), output.status.success())
    }

    /// The same, of one that has to succeed.
    pub async fn run(&self, command: &str) -> String {
        let (printed, succeeded) = self.ask(command).await;
        assert!(succeeded, "{command}: {printed}\n{}", self.boot_log());
        printed
    }

    /// Runs something in the background, for as long as the machine does.
    pub async fn start(&self, command: &str) -> Daemon {
        let arguments = self.within().into_iter().chain(["sh".into(), "-c".into(), command.to_owned()]);
        let log = self.directory.path().join("background.log");
        Daemon::spawn(Path::new("/usr/bin/nsenter"), arguments, [], &log).await.unwrap()
    }

    pub fn write(&self, path: &str, content: &str) {
        let path = self.file(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.file(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// A property of the unit `kubelet.service`.
    pub async fn unit(&self, property: &str) -> String {
        self.run(&format!("systemctl show --value --property={property} kubelet.service")).await
    }

    /// Waits until a property of the unit is so.
    pub async fn unit_comes_to(&self, property: &str, expected: &str) {
        eventually(&format!("{property} is {expected}"), PATIENCE, || async {
            let found = self.unit(property).await;
            if found == expected { Ok(()) } else { Err(format!("{found}\n{}", self.journal().await)) }
        })
        .await
        .unwrap();
    }

    /// What the unit wrote.
    pub async fn journal(&self) -> String {
        self.ask("journalctl --no-pager --output=cat --unit=kubelet.service").await.0
    }

    /// The files that came, changed or went since it was made, without what everything that is installed leaves. Each is told
    /// as `find` does, and what went is there as a device: `f /etc/default/kubelet`, `c /etc/fstab`.
    pub async fn differs(&self) -> BTreeSet<String> {
        let printed = self.run("cd /run/differs && find . ! -type d -printf '%y /%P\\n'").await;
        let is_ours = |line: &&str| !NOT_OURS.iter().any(|prefix| line[2..].starts_with(prefix));
        printed.lines().filter(is_ours).map(str::to_owned).collect()
    }

    fn within(&self) -> Vec<String> {
        let target = format!("--target={}", self.first_process);
        [target.as_str(), "--all", "--root", "--wd", "--"].map(str::to_owned).to_vec()
    }

    /// A file of the machine, as its first process sees it.
    fn file(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.first_process))
    }

    /// Whether its first process has ended.
    pub fn is_down(&self) -> bool {
        self.keeper.as_ref().is_none_or(|keeper| keeper.exit().is_some())
    }

    fn assert_up(&self) {
        let ended = self.keeper.as_ref().and_then(Daemon::exit);
        assert!(ended.is_none(), "the machine does not boot: {}", self.boot_log());
    }

    fn boot_log(&self) -> String {
        fs::read_to_string(self.directory.path().join("boot.log")).unwrap_or_default()
    }
}

impl Drop for Machine {
    #[expect(clippy::disallowed_methods, reason = "a process is waited for, and nobody else is here")]
    fn drop(&mut self) {
        // All its processes end with the first, and who waits for that hears of it last.
        if let Some(first) = Pid::from_raw(self.first_process) {
            let _ = kill_process(first, Signal::KILL);
            let process = PathBuf::from(format!("/proc/{}", self.first_process));
            let mut looks = LOOKS;
            while process.exists() && looks > 0 {
                std::thread::sleep(PAUSE);
                looks -= 1;
            }
        }
        drop(self.keeper.take());
        let name = self.directory.path().file_name().unwrap_or_default();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        for line in mounts.lines() {
            let columns: Vec<&str> = line.split(' ').collect();
            if matches!(columns[2], "cgroup" | "cgroup2") {
                remove_cgroup(&Path::new(columns[1]).join(name));
            }
        }
    }
}

/// Whether a process is the first one where it lives.
fn is_first(process: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    numbers.split_whitespace().nth(1) == Some("1")
}

fn remove_cgroup(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_cgroup(&entry.path());
        }
    }
    let _ = fs::remove_dir(directory);
}
