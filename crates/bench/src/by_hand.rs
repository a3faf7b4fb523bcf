//! The floor: pods made and ended by the same CRI calls that an agent makes, back to back and without an agent.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use crablet_cri::{Client, Runtime as _};
use crablet_cri_api::v1;
use crablet_testkit::eventually;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use tempfile::TempDir;

use crate::manifest::IMAGE;

/// What nothing here takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a container of the floor may not read, and not write, as an agent asks for.
const MASKED_PATHS: &[&str] = &[
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READONLY_PATHS: &[&str] = &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Who makes pods by hand.
pub(crate) struct ByHand {
    client: Client,
    cgroup: String,
    directory: TempDir,
}

/// A pod that was made by hand.
pub(crate) struct Made {
    sandbox: String,
    container: String,
    log: PathBuf,
}

impl Made {
    /// Waits until it would hear that it should end.
    pub(crate) async fn listens(&self) -> anyhow::Result<()> {
        is_written(&self.log).await
    }
}

/// Waits until a container has said something, which the pod's does when it would hear that it should end.
pub(crate) async fn is_written(log: &Path) -> anyhow::Result<()> {
    eventually("the container says that it is ready", PATIENCE, || async {
        let length = fs::metadata(log)?.len();
        ensure!(length > 0, "{} is empty", log.display());
        anyhow::Ok(())
    })
    .await
}

impl ByHand {
    /// With the cgroups of pods below this one.
    pub(crate) fn new(client: Client, cgroup: &str) -> anyhow::Result<ByHand> {
        Ok(ByHand { client, cgroup: cgroup.to_owned(), directory: tempfile::tempdir()? })
    }

    /// Makes as many pods, so many at a time.
    pub(crate) async fn make(&self, round: &str, pods: usize, at_once: usize) -> anyhow::Result<Vec<Made>> {
        stream::iter(0..pods)
            .map(|number| self.make_one(format!("{round}-{number}")))
            .buffer_unordered(at_once)
            .try_collect()
            .await
    }

    /// Makes a pod with one container, and starts it.
    pub(crate) async fn make_one(&self, name: String) -> anyhow::Result<Made> {
        let sandbox_config = self.sandbox(&name);
        let logs = PathBuf::from(&sandbox_config.log_directory).join("main");
        fs::create_dir_all(&logs)?;
        let container_config = self.container(&name)?;
        let sandbox = self.client.run_sandbox(&sandbox_config, "").await.context("RunPodSandbox")?;
        let container = self.client.create_container(&sandbox, &container_config, &sandbox_config).await;
        let container = container.context("CreateContainer")?;
        self.client.start_container(&container).await.context("StartContainer")?;
        Ok(Made { sandbox, container, log: logs.join("0.log") })
    }

    /// Ends pods, so many at a time.
    pub(crate) async fn end(&self, made: Vec<Made>, at_once: usize) -> anyhow::Result<()> {
        stream::iter(made).map(|made| self.end_one(made)).buffer_unordered(at_once).try_collect().await
    }

    /// Ends a pod, and removes what is left of it.
    pub(crate) async fn end_one(&self, made: Made) -> anyhow::Result<()> {
        self.client
            .stop_container(&made.container, Duration::from_secs(30))
            .await
            .context("StopContainer")?;
        self.client.stop_sandbox(&made.sandbox).await.context("StopPodSandbox")?;
        self.client.remove_container(&made.container).await.context("RemoveContainer")?;
        self.client.remove_sandbox(&made.sandbox).await.context("RemovePodSandbox")
    }

    fn sandbox(&self, name: &str) -> v1::PodSandboxConfig {
        let security_context = v1::LinuxSandboxSecurityContext {
            seccomp: Some(v1::SecurityProfile {
                profile_type: v1::security_profile::ProfileType::RuntimeDefault.into(),
                localhost_ref: String::new(),
            }),
            namespace_options: Some(v1::NamespaceOption {
                pid: v1::NamespaceMode::Container.into(),
                ..v1::NamespaceOption::default()
            }),
            ..v1::LinuxSandboxSecurityContext::default()
        };
        v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: name.to_owned(),
                namespace: "by-hand".to_owned(),
                uid: name.to_owned(),
                attempt: 0,
            }),
            hostname: name.to_owned(),
            log_directory: self.directory.path().join(name).display().to_string(),
            dns_config: Some(v1::DnsConfig::default()),
            labels: labels(name),
            annotations: BTreeMap::from([("kubernetes.io/config.source".to_owned(), "file".to_owned())]),
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: format!("{}/by-hand/besteffort/pod{name}", self.cgroup),
                security_context: Some(security_context),
                overhead: Some(v1::LinuxContainerResources::default()),
                resources: Some(resources()),
                ..v1::LinuxPodSandboxConfig::default()
            }),
            ..v1::PodSandboxConfig::default()
        }
    }

    fn container(&self, name: &str) -> anyhow::Result<v1::ContainerConfig> {
        let file = |file: &str| -> anyhow::Result<String> {
            let path = self.directory.path().join(format!("{name}-{file}"));
            fs::write(&path, "")?;
            Ok(path.display().to_string())
        };
        let mount = |container_path: &str, host_path: String| v1::Mount {
            container_path: container_path.to_owned(),
            host_path,
            ..v1::Mount::default()
        };
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect();
        let security_context = v1::LinuxContainerSecurityContext {
            namespace_options: Some(v1::NamespaceOption {
                pid: v1::NamespaceMode::Container.into(),
                ..v1::NamespaceOption::default()
            }),
            seccomp: Some(v1::SecurityProfile {
                profile_type: v1::security_profile::ProfileType::Unconfined.into(),
                localhost_ref: String::new(),
            }),
            masked_paths: words(MASKED_PATHS),
            readonly_paths: words(READONLY_PATHS),
            ..v1::LinuxContainerSecurityContext::default()
        };
        Ok(v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: "main".to_owned(), attempt: 0 }),
            image: Some(v1::ImageSpec { image: IMAGE.to_owned(), ..v1::ImageSpec::default() }),
            mounts: vec![mount("/etc/hosts", file("hosts")?), mount("/dev/termination-log", file("log")?)],
            labels: labels(name),
            log_path: "main/0.log".to_owned(),
            linux: Some(v1::LinuxContainerConfig {
                resources: Some(v1::LinuxContainerResources { oom_score_adj: 1000, ..resources() }),
                security_context: Some(security_context),
            }),
            ..v1::ContainerConfig::default()
        })
    }
}

fn resources() -> v1::LinuxContainerResources {
    v1::LinuxContainerResources {
        cpu_period: 100_000,
        cpu_shares: 2,
        ..v1::LinuxContainerResources::default()
    }
}

/// As many as an agent gives, under other names: an agent would take these pods for its own, and end them.
fn labels(name: &str) -> BTreeMap<String, String> {
    let label = |key: &str, value: &str| (format!("by-hand.crablet.pod.{key}"), value.to_owned());
    BTreeMap::from([label("name", name), label("namespace", "by-hand"), label("uid", name)])
}
