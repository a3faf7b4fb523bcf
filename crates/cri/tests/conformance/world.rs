//! What a case is given.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use crablet_cri::{Client, ImagePull, Runtime};
use crablet_cri_api::{
    Container, ContainerFilter, ContainerState, ContainerStatus, ExecOutput, Sandbox, SandboxFilter, v1,
};
use crablet_testkit::eventually;

use crate::transcript::{self, Names};

/// The image of sandboxes.
pub const PAUSE: &str = "crablet.test/pause:1";
/// An image with a shell.
pub const BUSYBOX: &str = "crablet.test/busybox:1";
/// The same, with a user (1000), a stop signal (SIGUSR1), a variable (`GREETING=hello`), `sh -c` as entrypoint and
/// `echo "$GREETING world"` as command.
pub const DESCRIBED: &str = "crablet.test/described:1";
/// The namespace of every pod; their UIDs tell the cases apart.
const NAMESPACE: &str = "ns";
/// What takes this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Where a runtime runs: what cannot be asked over CRI.
#[async_trait]
pub trait Host: Send + Sync {
    /// The runtime.
    fn client(&self) -> Arc<Client>;
    /// The cgroup to make those of pods in.
    fn cgroup_parent(&self) -> String;
    /// Gives the runtime an image with a shell, whose ID follows from the content.
    async fn add_image(&self, name: &str, content: &str) -> Result<()>;
    /// The host, and port, of a registry from which images can be pulled.
    fn registry(&self) -> String;
    /// Has the registry serve, as this repository and tag, an image with a shell, whose ID follows from the content.
    async fn publish(&self, repository: &str, tag: &str, content: &str) -> Result<()>;
    /// Ends the runtime at once. Its containers live on.
    async fn kill(&self) -> Result<()>;
    async fn start_again(&self) -> Result<()>;
}

/// One case's place on a runtime.
///
/// Methods named like the operations of a [`Runtime`] ask, write the answer down, and give it. Those named in the past
/// tense bring something about without a word in the transcript. Cleaning up is not the case's work.
pub struct World {
    pub runtime: Arc<dyn Runtime>,
    /// The same, for calls that the agent does not make.
    pub client: Arc<Client>,
    /// Where the logs of its pods are.
    pub directory: PathBuf,
    host: Arc<dyn Host>,
    /// The name of the case.
    pub case: &'static str,
    names: Mutex<Names>,
    lines: Mutex<String>,
    sandboxes: Mutex<Vec<String>>,
    images: Mutex<Vec<String>>,
    /// How many have listened to its hints.
    pub listeners: AtomicUsize,
}

/// A sandbox that was run, and what from.
#[derive(Clone)]
pub struct Pod {
    pub id: String,
    pub config: v1::PodSandboxConfig,
}

impl World {
    pub fn new(case: &'static str, host: Arc<dyn Host>, directory: &Path) -> World {
        fs::create_dir_all(directory).expect("a test can make directories");
        World {
            runtime: host.client(),
            client: host.client(),
            directory: directory.to_owned(),
            host,
            case,
            names: Mutex::default(),
            lines: Mutex::default(),
            sandboxes: Mutex::default(),
            images: Mutex::default(),
            listeners: AtomicUsize::default(),
        }
    }

    // What to make.

    /// The configuration of a pod in its own network, named so that no other case meets it.
    pub fn pod(&self, name: &str) -> v1::PodSandboxConfig {
        v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: name.to_owned(),
                uid: self.case.to_owned(),
                namespace: NAMESPACE.to_owned(),
                attempt: 0,
            }),
            hostname: name.to_owned(),
            log_directory: self.directory.join(name).display().to_string(),
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: self.host.cgroup_parent(),
                security_context: Some(v1::LinuxSandboxSecurityContext::default()),
                ..v1::LinuxPodSandboxConfig::default()
            }),
            ..v1::PodSandboxConfig::default()
        }
    }

    /// The same in the host's network, which is quicker.
    pub fn host_pod(&self, name: &str) -> v1::PodSandboxConfig {
        let mut config = self.pod(name);
        config.hostname.clear();
        namespaces(&mut config).network = v1::NamespaceMode::Node.into();
        config
    }

    /// The configuration of a container that runs a line of shell.
    pub fn container(&self, name: &str, script: &str) -> v1::ContainerConfig {
        v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: name.to_owned(), attempt: 0 }),
            image: Some(image(BUSYBOX)),
            command: words(&["sh", "-c", script]),
            log_path: format!("{name}.log"),
            linux: Some(v1::LinuxContainerConfig::default()),
            ..v1::ContainerConfig::default()
        }
    }

    /// The name of an image of this case alone.
    pub fn image_name(&self, tag: &str) -> String {
        format!("crablet.test/{}:{tag}", self.case)
    }

    // What is so before the case begins.

    /// A sandbox that runs, in the host's network.
    pub async fn ran(&self, name: &str) -> Pod {
        self.ran_from(self.host_pod(name)).await
    }

    /// A sandbox that runs.
    pub async fn ran_from(&self, config: v1::PodSandboxConfig) -> Pod {
        let id = self.runtime.run_sandbox(&config, "").await.expect("the sandbox runs");
        let name = config.metadata.as_ref().map(|metadata| metadata.name.clone()).unwrap_or_default();
        self.learn_sandbox(&name, &id);
        Pod { id, config }
    }

    /// A container that was made and not started.
    pub async fn created(&self, pod: &Pod, name: &str, script: &str) -> String {
        self.created_from(pod, &self.container(name, script)).await
    }

    /// A container that was made and not started.
    pub async fn created_from(&self, pod: &Pod, config: &v1::ContainerConfig) -> String {
        let created = self.runtime.create_container(&pod.id, config, &pod.config).await;
        let id = created.expect("the container is made");
        let name = config.metadata.as_ref().map(|metadata| metadata.name.clone()).unwrap_or_default();
        self.names().learn(&name, &id);
        id
    }

    /// A container that was started.
    pub async fn started(&self, pod: &Pod, name: &str, script: &str) -> String {
        self.started_from(pod, &self.container(name, script)).await
    }

    /// A container that was started.
    pub async fn started_from(&self, pod: &Pod, config: &v1::ContainerConfig) -> String {
        let id = self.created_from(pod, config).await;
        self.runtime.start_container(&id).await.expect("the container starts");
        id
    }

    /// A container that runs, and has said so itself: what a shell has set up before it `echo ready`s is in place.
    pub async fn ready(&self, pod: &Pod, name: &str, script: &str) -> String {
        self.ready_from(pod, &self.container(name, script)).await
    }

    /// A container that runs, and has said so itself.
    pub async fn ready_from(&self, pod: &Pod, config: &v1::ContainerConfig) -> String {
        let id = self.started_from(pod, config).await;
        self.logged(pod, &config.log_path, "stdout F ready\n").await;
        id
    }

    /// A container that ended by itself.
    pub async fn ended(&self, pod: &Pod, name: &str, script: &str) -> String {
        let id = self.started(pod, name, script).await;
        self.until(&id, ContainerState::Exited).await;
        id
    }

    /// An image of this case alone, which is removed at its end.
    pub async fn had_image(&self, name: &str, content: &str) {
        self.images.lock().unwrap_or_else(PoisonError::into_inner).push(name.to_owned());
        self.host.add_image(name, &self.own(content)).await.expect("an image can be added");
    }

    /// An image of this case alone that can be pulled, by its name.
    pub async fn published(&self, tag: &str, content: &str) -> String {
        let published = self.host.publish(self.case, tag, &self.own(content)).await;
        published.expect("an image can be published");
        let name = format!("{}/{}:{tag}", self.host.registry(), self.case);
        self.images.lock().unwrap_or_else(PoisonError::into_inner).push(name.clone());
        name
    }

    /// A content that no other case's image has.
    fn own(&self, content: &str) -> String {
        format!("{}: {content}", self.case)
    }

    /// The name with a digest of an image that was pulled.
    pub async fn digest_of(&self, name: &str) -> String {
        let status = self.runtime.image_status(&image(name)).await.expect("it answers");
        status.and_then(|image| image.repo_digests.into_iter().next()).expect("it was pulled")
    }

    /// A directory of this case, by its path.
    pub fn made_directory(&self, name: &str) -> String {
        let path = self.directory.join(name);
        fs::create_dir_all(&path).expect("a test can make directories");
        path.display().to_string()
    }

    /// A log was given another name.
    pub fn moved_log(&self, pod: &Pod, from: &str, to: &str) {
        let directory = Path::new(&pod.config.log_directory);
        fs::rename(directory.join(from), directory.join(to)).expect("a log can be moved");
    }

    /// The runtime was killed, and started again.
    pub async fn restarted(&self) {
        self.killed().await;
        self.started_again().await;
    }

    /// The runtime was killed.
    pub async fn killed(&self) {
        self.host.kill().await.expect("the runtime can be killed");
    }

    /// The runtime was started after it was killed.
    pub async fn started_again(&self) {
        self.host.start_again().await.expect("the runtime can be started again");
    }

    // Waiting.

    /// Waits until a container is in a state.
    pub async fn until(&self, id: &str, state: ContainerState) -> ContainerStatus {
        let awaited = format!("{} is {state:?}", self.names().normal(id));
        let status = eventually(&awaited, PATIENCE, || async {
            let status = self.runtime.container_status(id).await.map_err(|error| error.to_string())?;
            if status.state == state { Ok(status) } else { Err(format!("{status:#?}")) }
        });
        status.await.expect("the container gets there")
    }

    /// Waits until a log ends with a text.
    pub async fn logged(&self, pod: &Pod, log: &str, end: &str) {
        let path = Path::new(&pod.config.log_directory).join(log);
        let reached = eventually("the container has logged what it should", PATIENCE, || async {
            let text = fs::read_to_string(&path).map_err(|error| error.to_string())?;
            if text.ends_with(end) { Ok(()) } else { Err(text) }
        });
        reached.await.expect("the container logs");
    }

    /// Waits until a line of shell in a container succeeds.
    pub async fn until_exec_succeeds(&self, id: &str, script: &str) {
        let command = words(&["sh", "-c", script]);
        let reached = eventually(script, PATIENCE, || async {
            let output = self.runtime.exec_sync(id, &command, Some(PATIENCE)).await;
            match output {
                Ok(output) if output.exit_code == 0 => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
        reached.await.expect("the command succeeds");
    }

    /// Waits until what a container uses is told in full.
    pub async fn until_stats(
        &self,
        id: &str,
        told: impl Fn(&v1::ContainerStats) -> bool,
    ) -> v1::ContainerStats {
        let stats = eventually("what the container uses is told", PATIENCE, || async {
            let stats = self.container_stats(id).await.map_err(|error| error.to_string())?;
            if told(&stats) { Ok(stats) } else { Err(format!("{stats:?}")) }
        });
        stats.await.expect("it is told")
    }

    /// Lets time pass: where there is nothing to wait for, because nothing can be asked.
    pub async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    // The transcript.

    /// Writes a line.
    pub fn note(&self, line: impl Display) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push_str(line.to_string().trim_end());
        lines.push('\n');
    }

    /// All that was written, with IDs, digests and directories by their names.
    pub fn transcript(&self) -> String {
        let text = self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let text = text
            .replace(&self.directory.display().to_string(), "<dir>")
            .replace(self.case, "<case>")
            .replace(&self.host.registry(), "<registry>")
            .replace(&self.host.cgroup_parent(), "<cgroup>");
        self.names().normal(&text)
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a sandbox, to name it in the transcript and to remove it at the end.
    pub fn learn_sandbox(&self, name: &str, id: &str) {
        self.names().learn(name, id);
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner).push(id.to_owned());
    }

    fn record<T>(
        &self,
        what: impl Display,
        answer: &crablet_cri::Result<T>,
        show: impl FnOnce(&T) -> String,
    ) {
        match answer {
            Ok(value) => {
                let shown = show(value);
                let gap = if shown.is_empty() || shown.starts_with('\n') { "" } else { " " };
                self.note(format!("{what}:{gap}{shown}"));
            }
            Err(error) => self.note(format!("{what}: {}", transcript::error(error))),
        }
    }

    /// Writes down what is wrong, or that nothing is.
    pub fn note_error<T>(&self, what: &str, answer: crablet_cri::Result<T>) {
        self.record_done(what, &answer.map(drop));
    }

    fn record_done(&self, what: impl Display, answer: &crablet_cri::Result<()>) {
        self.record(what, answer, |()| "done".to_owned());
    }

    // The operations.

    pub async fn run_sandbox(&self, config: &v1::PodSandboxConfig) -> crablet_cri::Result<Pod> {
        self.run_sandbox_by(config, "").await
    }

    /// Runs a sandbox by a handler.
    pub async fn run_sandbox_by(
        &self,
        config: &v1::PodSandboxConfig,
        handler: &str,
    ) -> crablet_cri::Result<Pod> {
        let name = config.metadata.as_ref().map(|metadata| metadata.name.as_str()).unwrap_or_default();
        let answer = self.runtime.run_sandbox(config, handler).await;
        if let Ok(id) = &answer {
            self.learn_sandbox(name, id);
        }
        self.record(format!("run sandbox {name}"), &answer, Clone::clone);
        answer.map(|id| Pod { id, config: config.clone() })
    }

    pub async fn stop_sandbox(&self, id: &str) {
        self.record_done(format!("stop sandbox {id}"), &self.runtime.stop_sandbox(id).await);
    }

    pub async fn remove_sandbox(&self, id: &str) {
        self.record_done(format!("remove sandbox {id}"), &self.runtime.remove_sandbox(id).await);
    }

    pub async fn sandbox_status(&self, id: &str) {
        let answer = self.runtime.sandbox_status(id).await;
        self.record(format!("status of sandbox {id}"), &answer, transcript::sandbox_status);
    }

    /// Lists sandboxes, and writes down those of this case, by name.
    pub async fn list_sandboxes(&self, what: &str, filter: SandboxFilter) -> Vec<Sandbox> {
        let mut answer = self.runtime.list_sandboxes(filter).await;
        if let Ok(list) = &mut answer {
            list.retain(|sandbox| sandbox.metadata.uid == self.case);
            list.sort_by_key(|sandbox| (sandbox.metadata.name.clone(), sandbox.metadata.attempt));
        }
        self.record(format!("sandboxes {what}"), &answer, |list| {
            list.iter().map(transcript::sandbox).collect()
        });
        answer.unwrap_or_default()
    }

    pub async fn create_container(
        &self,
        pod: &Pod,
        config: &v1::ContainerConfig,
    ) -> crablet_cri::Result<String> {
        let name = config.metadata.as_ref().map(|metadata| metadata.name.as_str()).unwrap_or_default();
        let answer = self.runtime.create_container(&pod.id, config, &pod.config).await;
        if let Ok(id) = &answer {
            self.names().learn(name, id);
        }
        self.record(format!("create container {name}"), &answer, Clone::clone);
        answer
    }

    pub async fn start_container(&self, id: &str) {
        self.record_done(format!("start {id}"), &self.runtime.start_container(id).await);
    }

    pub async fn stop_container(&self, id: &str, grace: Duration) {
        self.record_done(
            format!("stop {id} within {grace:?}"),
            &self.runtime.stop_container(id, grace).await,
        );
    }

    pub async fn remove_container(&self, id: &str) {
        self.record_done(format!("remove {id}"), &self.runtime.remove_container(id).await);
    }

    pub async fn container_status(&self, id: &str) {
        let answer = self.runtime.container_status(id).await;
        self.record(format!("status of {id}"), &answer, transcript::container_status);
    }

    /// The state and what a container ended with, in one line.
    pub async fn state(&self, id: &str) {
        let answer = self.runtime.container_status(id).await;
        self.record(format!("state of {id}"), &answer, transcript::container_state);
    }

    /// Lists containers, and writes down those of this case, by name.
    pub async fn list_containers(&self, what: &str, filter: ContainerFilter) -> Vec<Container> {
        let mut answer = self.runtime.list_containers(filter).await;
        if let Ok(list) = &mut answer {
            let own = self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner).clone();
            list.retain(|container| own.contains(&container.sandbox_id));
            list.sort_by_key(|container| {
                let sandbox = own.iter().position(|id| *id == container.sandbox_id);
                (sandbox, container.name.clone(), container.attempt)
            });
        }
        self.record(format!("containers {what}"), &answer, |list| {
            list.iter().map(transcript::container).collect()
        });
        answer.unwrap_or_default()
    }

    pub async fn exec(&self, id: &str, command: &[&str], timeout: Option<Duration>) -> Option<ExecOutput> {
        let answer = self.runtime.exec_sync(id, &words(command), timeout).await;
        self.record(format!("exec {command:?} in {id}"), &answer, transcript::exec_output);
        answer.ok()
    }

    /// Runs a line of shell in a container.
    pub async fn exec_shell(&self, id: &str, script: &str) {
        let answer = self.runtime.exec_sync(id, &words(&["sh", "-c", script]), Some(PATIENCE)).await;
        self.record(format!("exec {script:?} in {id}"), &answer, transcript::exec_output);
    }

    pub async fn update_container_resources(&self, request: v1::UpdateContainerResourcesRequest) {
        let id = request.container_id.clone();
        let answer = self.runtime.update_container_resources(request).await;
        self.record_done(format!("update {id}"), &answer);
    }

    pub async fn reopen_log(&self, id: &str) {
        self.record_done(format!("reopen the log of {id}"), &self.runtime.reopen_container_log(id).await);
    }

    /// Writes down a log, with its times taken out.
    pub fn log(&self, pod: &Pod, log: &str) {
        let path = Path::new(&pod.config.log_directory).join(log);
        match fs::read_to_string(&path) {
            Ok(text) => self.note(format!("log {log}:\n{}", transcript::log(&text))),
            Err(error) => self.note(format!("log {log}: {error}")),
        }
    }

    pub async fn image_status(&self, name: &str) {
        let answer = self.runtime.image_status(&image(name)).await;
        self.record(format!("image {name:?}"), &answer, |image| match image {
            Some(image) => transcript::image(image),
            None => "none".to_owned(),
        });
    }

    pub async fn remove_image(&self, name: &str) {
        self.record_done(format!("remove image {name:?}"), &self.image_removed(name).await);
    }

    /// Pulls an image.
    pub async fn pull(&self, name: &str) -> crablet_cri::Result<String> {
        let answer = self.pull_image(name).await;
        self.record(format!("pull {name:?}"), &answer, Clone::clone);
        answer
    }

    /// Pulls an image, without a word in the transcript.
    pub async fn pull_image(&self, name: &str) -> crablet_cri::Result<String> {
        let pull = ImagePull { image: image(name), ..ImagePull::default() };
        self.runtime.pull_image(pull).await
    }

    // The end.

    /// Removes everything that the case made.
    pub async fn clean_up(&self) -> Result<()> {
        let sandboxes = std::mem::take(&mut *self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner));
        for id in sandboxes {
            self.runtime.stop_sandbox(&id).await.context("a sandbox cannot be stopped")?;
            self.runtime.remove_sandbox(&id).await.context("a sandbox cannot be removed")?;
        }
        let images = std::mem::take(&mut *self.images.lock().unwrap_or_else(PoisonError::into_inner));
        for name in images {
            self.image_removed(&name).await.context("an image cannot be removed")?;
        }
        Ok(())
    }
}

pub fn image(name: &str) -> v1::ImageSpec {
    v1::ImageSpec { image: name.to_owned(), ..v1::ImageSpec::default() }
}

/// Words, owned.
pub fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A map, owned.
pub fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// The namespaces of a pod, to be changed.
pub fn namespaces(config: &mut v1::PodSandboxConfig) -> &mut v1::NamespaceOption {
    config
        .linux
        .get_or_insert_default()
        .security_context
        .get_or_insert_default()
        .namespace_options
        .get_or_insert_default()
}
