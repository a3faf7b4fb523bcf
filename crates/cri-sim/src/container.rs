//! A container, and what CRI says of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crablet_cri_api::v1::{self, ContainerState};
use tokio::time::Instant;

use super::bell::Ended;
use super::files::Files;
use super::image::{Image, Images};
use super::log_file::LogFile;
use super::program::Program;
use super::shell::{Host, Machine, Signal, Stream};
use super::time::Clock;

#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) id: String,
    /// What no other container may be called.
    pub(crate) name: String,
    pub(crate) sandbox_id: String,
    pub(crate) config: Arc<v1::ContainerConfig>,
    pub(crate) image_id: String,
    pub(crate) image: Arc<Image>,
    pub(crate) program: Option<Program>,
    pub(crate) log_path: String,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) resources: v1::LinuxContainerResources,
    /// Times are in nanoseconds since 1970; 0 is: not yet.
    pub(crate) created_at: i64,
    pub(crate) started_at: i64,
    pub(crate) finished_at: i64,
    pub(crate) exit_code: i32,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) process: Option<Process>,
    pub(crate) files: Files,
    /// When CRI says so.
    pub(crate) stopped: Ended,
    /// Whether it has been asked to stop: containerd asks once.
    pub(crate) asked_to_stop: bool,
    pub(crate) last_usage: Option<(i64, u64)>,
}

/// The process of a container that runs.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) machine: Machine,
    pub(crate) log: LogFile,
    pub(crate) pid: u32,
    pub(crate) started: Instant,
    /// Whether its end has been told and waits to be seen in CRI.
    pub(crate) ended: bool,
}

impl Container {
    pub(crate) fn state(&self) -> ContainerState {
        match (self.started_at, self.finished_at) {
            (0, 0) => ContainerState::ContainerCreated,
            (_, 0) => ContainerState::ContainerRunning,
            _ => ContainerState::ContainerExited,
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.state() == ContainerState::ContainerRunning
    }

    /// What it may use of memory, if that is limited.
    pub(crate) fn memory_limit(&self) -> Option<u64> {
        u64::try_from(self.resources.memory_limit_in_bytes).ok().filter(|limit| *limit > 0)
    }

    /// Lets its process do something, with all that the process finds around it.
    pub(crate) fn with_process(&mut self, clock: &Clock, act: impl FnOnce(&mut Machine, &mut dyn Host)) {
        if let Some(process) = &mut self.process {
            let mut host = Surroundings {
                log: &mut process.log,
                files: &mut self.files,
                mounts: &self.config.mounts,
                clock,
            };
            act(&mut process.machine, &mut host);
        }
    }

    pub(crate) fn to_list_item(&self) -> v1::Container {
        v1::Container {
            id: self.id.clone(),
            pod_sandbox_id: self.sandbox_id.clone(),
            metadata: self.config.metadata.clone(),
            image: self.config.image.clone(),
            image_ref: self.image_id.clone(),
            state: self.state().into(),
            created_at: self.created_at,
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            image_id: String::new(),
        }
    }

    pub(crate) fn to_status(&self, images: &Images) -> v1::ContainerStatus {
        let stored = images.get(&self.image_id);
        let image = match stored.and_then(|stored| stored.first_tag()) {
            Some(tag) => Some(v1::ImageSpec { image: tag.clone(), ..v1::ImageSpec::default() }),
            None => self.config.image.clone(),
        };
        let image_ref = stored.and_then(|stored| stored.first_digest()).unwrap_or(&self.image_id).clone();
        let state = self.state();
        let reason = match (state, self.reason.as_str(), self.exit_code) {
            (ContainerState::ContainerExited, "", 0) => "Completed",
            (ContainerState::ContainerExited, "", _) => "Error",
            (_, reason, _) => reason,
        };
        v1::ContainerStatus {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            state: state.into(),
            created_at: self.created_at,
            started_at: self.started_at,
            finished_at: self.finished_at,
            exit_code: self.exit_code,
            image,
            image_ref,
            reason: reason.to_owned(),
            message: self.message.clone(),
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            mounts: self.config.mounts.clone(),
            log_path: self.log_path.clone(),
            resources: Some(v1::ContainerResources { linux: Some(self.resources.clone()), windows: None }),
            image_id: String::new(),
            user: None,
            stop_signal: v1::Signal::RuntimeDefault.into(),
        }
    }

    pub(crate) fn matches(&self, filter: &Filter<'_>) -> bool {
        filter.state.is_none_or(|state| self.state() == state)
            && filter.labels.iter().all(|(key, value)| self.config.labels.get(key) == Some(value))
    }
}

/// What containers are looked for by, besides their ID and their sandbox's.
#[derive(Debug)]
pub(crate) struct Filter<'a> {
    pub(crate) state: Option<ContainerState>,
    pub(crate) labels: &'a BTreeMap<String, String>,
}

/// Sets what is given and leaves what is not, as containerd does.
pub(crate) fn apply(resources: &mut v1::LinuxContainerResources, new: &v1::LinuxContainerResources) {
    let set = |value: &mut i64, new: i64| {
        if new != 0 {
            *value = new;
        }
    };
    set(&mut resources.cpu_period, new.cpu_period);
    set(&mut resources.cpu_quota, new.cpu_quota);
    set(&mut resources.cpu_shares, new.cpu_shares);
    set(&mut resources.memory_limit_in_bytes, new.memory_limit_in_bytes);
    // Without a limit of its own, swap is not to be used.
    let swap = if new.memory_swap_limit_in_bytes == 0 {
        new.memory_limit_in_bytes
    } else {
        new.memory_swap_limit_in_bytes
    };
    set(&mut resources.memory_swap_limit_in_bytes, swap);
    for (text, new) in
        [(&mut resources.cpuset_cpus, &new.cpuset_cpus), (&mut resources.cpuset_mems, &new.cpuset_mems)]
    {
        if !new.is_empty() {
            text.clone_from(new);
        }
    }
    resources.hugepage_limits.extend(new.hugepage_limits.iter().cloned());
    resources.unified.extend(new.unified.iter().map(|(key, value)| (key.clone(), value.clone())));
}

/// What a container's process finds around it.
struct Surroundings<'a> {
    log: &'a mut LogFile,
    files: &'a mut Files,
    mounts: &'a [v1::Mount],
    clock: &'a Clock,
}

impl Host for Surroundings<'_> {
    fn write(&mut self, stream: Stream, bytes: &[u8], at: Instant) {
        self.log.write(stream, bytes, self.clock.timestamp(at));
    }

    fn read_file(&mut self, path: &str) -> Option<Vec<u8>> {
        self.files.read(self.mounts, path)
    }

    fn write_file(&mut self, path: &str, bytes: &[u8], append: bool) -> bool {
        self.files.write(self.mounts, path, bytes, append)
    }

    fn remove_file(&mut self, path: &str) -> bool {
        self.files.remove(self.mounts, path)
    }

    /// It is the first process itself.
    fn signal_first(&mut self, _signal: Signal) {}
}
