//! What a runtime might say, in few words: `container("web", 1).exited(137)`.

use crablet_api::core::Pod;
use crablet_cri_api::v1::Signal;
use crablet_cri_api::{
    ContainerState, ContainerStatus, NetworkNamespace, SandboxMetadata, SandboxState, SandboxStatus,
};
use jiff::{SignedDuration, Timestamp};

use crate::hash;
use crate::labels::CONTAINER_HASH;
use crate::observed::{self, Container};

/// A moment, as seconds after the beginning of all tests.
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(500_000) + SignedDuration::from_secs(seconds)
}

/// The sandbox of that attempt, `sandbox-<attempt>`, with an address. It was made as many seconds after the beginning
/// as its attempt says.
pub fn sandbox(attempt: u32, ready: bool) -> SandboxStatus {
    SandboxStatus {
        id: format!("sandbox-{attempt}"),
        metadata: SandboxMetadata { attempt, ..SandboxMetadata::default() },
        state: if ready { SandboxState::Ready } else { SandboxState::NotReady },
        created_at: Some(at(attempt.into())),
        ips: vec![format!("10.0.0.{}", attempt + 1)],
        network: NetworkNamespace::Pod,
        labels: Default::default(),
        annotations: Default::default(),
        runtime_handler: String::new(),
    }
}

/// A container `<name>-<attempt>` in `sandbox-0` that was made a second after the beginning, plus 100 for every
/// attempt, and not started.
pub fn container(name: &str, attempt: u32) -> Container {
    let made = 1 + 100 * i64::from(attempt);
    Container {
        sandbox_id: "sandbox-0".into(),
        status: ContainerStatus {
            id: format!("{name}-{attempt}"),
            name: name.into(),
            attempt,
            state: ContainerState::Created,
            created_at: Some(at(made)),
            started_at: None,
            finished_at: None,
            exit_code: 0,
            image: "img".into(),
            image_ref: "sha256:1".into(),
            image_id: "sha256:1".into(),
            reason: String::new(),
            message: String::new(),
            labels: Default::default(),
            annotations: Default::default(),
            mounts: Vec::new(),
            log_path: String::new(),
            resources: None,
            user: None,
            stop_signal: Signal::RuntimeDefault,
        },
        is_replaced: false,
    }
}

/// What is said of a container.
pub trait Described: Sized {
    /// It runs, from the moment it was made.
    fn running(self) -> Container;
    /// It ended, ten seconds after it was made.
    fn exited(self, code: i32) -> Container;
    /// The runtime does not know.
    fn unknown(self) -> Container;
    /// It was made, and started where it was started, so many seconds after the beginning.
    fn made_at(self, seconds: i64) -> Container;
    /// It ended so many seconds after the beginning.
    fn finished_at(self, seconds: i64) -> Container;
    /// It lives in another sandbox.
    fn in_sandbox(self, attempt: u32) -> Container;
    /// One more annotation.
    fn annotation(self, key: &str, value: &str) -> Container;
    /// It is to be started anew.
    fn replaced(self) -> Container;
}

impl Described for Container {
    fn running(mut self) -> Container {
        self.status.state = ContainerState::Running;
        self.status.started_at = self.status.created_at;
        self
    }

    fn exited(mut self, code: i32) -> Container {
        self.status.state = ContainerState::Exited;
        self.status.exit_code = code;
        self.status.reason = if code == 0 { "Completed" } else { "Error" }.into();
        self.status.started_at = self.status.created_at;
        self.status.finished_at = self.status.created_at.map(|made| made + SignedDuration::from_secs(10));
        self
    }

    fn unknown(mut self) -> Container {
        self.status.state = ContainerState::Unknown;
        self
    }

    fn made_at(mut self, seconds: i64) -> Container {
        self.status.created_at = Some(at(seconds));
        self.status.started_at = self.status.started_at.map(|_| at(seconds));
        self.status.finished_at = self.status.finished_at.map(|_| at(seconds + 10));
        self
    }

    fn finished_at(mut self, seconds: i64) -> Container {
        self.status.finished_at = Some(at(seconds));
        self
    }

    fn in_sandbox(mut self, attempt: u32) -> Container {
        self.sandbox_id = format!("sandbox-{attempt}");
        self
    }

    fn annotation(mut self, key: &str, value: &str) -> Container {
        self.status.annotations.insert(key.into(), value.into());
        self
    }

    fn replaced(mut self) -> Container {
        self.is_replaced = true;
        self
    }
}

/// What a runtime says of `pod`: a sandbox that is ready, and these containers, each made from what the pod asks for.
pub fn observed(pod: &Pod, containers: impl IntoIterator<Item = Container>) -> observed::Pod {
    observed_in(pod, vec![sandbox(0, true)], containers)
}

/// What a runtime says of `pod`: these sandboxes and these containers, each made from what the pod asks for.
pub fn observed_in(
    pod: &Pod,
    sandboxes: Vec<SandboxStatus>,
    containers: impl IntoIterator<Item = Container>,
) -> observed::Pod {
    let spec = &pod.spec;
    let containers = containers.into_iter().map(|mut container| {
        if let Some(wanted) = spec.find_container(&container.name) {
            let annotations = &mut container.status.annotations;
            let hash = || hash::container_hash(wanted);
            annotations.entry(CONTAINER_HASH.into()).or_insert_with(hash);
        }
        container
    });
    observed::Pod::new(sandboxes, containers.collect())
}
