//! What calls do to containers.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use crablet_cri_api::v1::{self, ContainerEventType, ContainerState, NamespaceMode};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::bell::Ended;
use super::container::{Container, Filter, Process, apply};
use super::event::Happening;
use super::files::Files;
use super::image::Image;
use super::log_file::LogFile;
use super::program::Program;
use super::sandbox::own_users;
use super::settings::StoppingTheMissing;
use super::shell::{Signal, applets};
use super::world::{Missing, World};

/// What a container that could not be started has exited with.
const START_ERROR: i32 = 128;

impl World {
    pub(crate) fn create_container(
        &mut self,
        request: v1::CreateContainerRequest,
        now: Instant,
    ) -> Result<v1::CreateContainerResponse, Status> {
        let asked = &request.pod_sandbox_id;
        let sandbox_id = self
            .find_sandbox(asked)
            .map_err(|missing| missing.status(format!("failed to find sandbox id {asked:?}")))?;
        if self.sandbox(&sandbox_id)?.ended {
            return Err(Status::not_found(format!(
                "failed to get sandbox container task: no running task found: task {sandbox_id} not found: not found"
            )));
        }
        let id = self.random.id();
        let config = request.config.unwrap_or_default();
        let sandbox_config = request.sandbox_config.unwrap_or_default();
        let Some(metadata) = &config.metadata else {
            return Err(Status::unknown("container config must include metadata"));
        };
        let pod = sandbox_config.metadata.clone().unwrap_or_default();
        let name =
            format!("{}_{}_{}_{}_{}", metadata.name, pod.name, pod.namespace, pod.uid, metadata.attempt);
        if let Some(other) = self.container_names.get(&name) {
            return Err(Status::unknown(format!(
                "failed to reserve container name {name:?}: name {name:?} is reserved for {other:?}"
            )));
        }
        let wanted = config.image.as_ref().map_or("", |image| image.image.as_str());
        let stored = self.resolve(wanted, format!("failed to resolve image {wanted:?}"))?;
        let (image_id, image) = (stored.id.clone(), Arc::new(stored.image.clone()));
        let image_name = stored.first_tag().unwrap_or(&stored.id).clone();
        if image.command(&config.command, &config.args).is_empty() {
            return Err(Status::unknown(format!(
                "failed to generate container {id:?} spec: failed to generate spec: no command specified"
            )));
        }
        let of_sandbox = self.sandbox(&sandbox_id)?.users();
        let linux = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
        let own = linux.and_then(|context| own_users(context.namespace_options.as_ref()?));
        if self.settings.capabilities.user_namespaces && own != of_sandbox {
            return Err(Status::unknown(format!(
                "failed to generate container {id:?} spec: failed to generate spec: user namespace config for sandbox is \
                 different from container. Sandbox userns config: {of_sandbox:?} - Container userns config: {own:?}"
            )));
        }
        // One that is too old for images takes them for directories without a name.
        let images = |mount: &&v1::Mount| self.settings.capabilities.image_volumes && mount.image.is_some();
        for mount in config.mounts.iter().filter(images) {
            let wanted = mount.image.as_ref().map_or("", |image| image.image.as_str());
            self.resolve(wanted, format!("failed to ensure image volume {wanted:?}"))?;
        }
        if self.settings.makes_directories {
            let directories = config.mounts.iter().filter(|mount| !images(mount));
            for path in directories.map(|mount| &mount.host_path).filter(|path| !Path::new(path).exists()) {
                fs::create_dir_all(path).and(fs::metadata(path)).map_err(|_| {
                    Status::unknown(format!(
                        "failed to generate container {id:?} spec: failed to generate spec: failed to mkdir {path:?}: \
                         mkdir {path}: no such file or directory"
                    ))
                })?;
            }
        }
        let mut resources = v1::LinuxContainerResources::default();
        if let Some(wanted) = config.linux.as_ref().and_then(|linux| linux.resources.as_ref()) {
            apply(&mut resources, wanted);
            resources.oom_score_adj = wanted.oom_score_adj;
        }
        let log_path = match (sandbox_config.log_directory.as_str(), config.log_path.as_str()) {
            ("", _) | (_, "") => String::new(),
            (directory, path) => joined(directory, path),
        };
        let container = Container {
            id: id.clone(),
            name: name.clone(),
            sandbox_id: sandbox_id.clone(),
            program: program(&config, &sandbox_config),
            environment: environment(&image, &config, &sandbox_config.hostname),
            config: Arc::new(config),
            image_id,
            image,
            log_path,
            resources,
            created_at: self.created_now(now),
            started_at: 0,
            finished_at: 0,
            exit_code: 0,
            reason: String::new(),
            message: String::new(),
            process: None,
            files: Files::default(),
            stopped: Ended::default(),
            asked_to_stop: false,
            last_usage: None,
        };
        self.container_names.insert(name, id.clone());
        self.members.entry(sandbox_id.clone()).or_default().insert(id.clone());
        self.containers.insert(id.clone(), container);
        self.tell(Happening::ContainerCreate { id: &id, image: &image_name }, now);
        self.tell_cri(&id, &sandbox_id, ContainerEventType::ContainerCreatedEvent, now);
        Ok(v1::CreateContainerResponse { container_id: id })
    }

    pub(crate) fn start_container(
        &mut self,
        asked: &str,
        now: Instant,
    ) -> Result<v1::StartContainerResponse, Status> {
        let id = self.find_container(asked).map_err(|missing| missing.status(not_found_text(asked)))?;
        let state = self.container(&id)?.state();
        if state != ContainerState::ContainerCreated {
            return Err(Status::unknown(format!(
                "failed to set starting state for container {id:?}: container is in {} state",
                state.as_str_name()
            )));
        }
        if let Err(problem) = self.start_process(&id, now) {
            let finished_at = self.clock.nanoseconds(now);
            let container = self.container_mut(&id)?;
            container.finished_at = finished_at.max(container.created_at);
            container.exit_code = START_ERROR;
            "StartError".clone_into(&mut container.reason);
            container.message.clone_from(&problem);
            return Err(Status::unknown(problem));
        }
        Ok(v1::StartContainerResponse {})
    }

    fn start_process(&mut self, id: &str, now: Instant) -> Result<(), String> {
        let pid = self.next_pid();
        let started_at = self.clock.nanoseconds(now);
        let gone = |_| "the container is gone".to_owned();
        let container = self.containers.get(id).ok_or("the container is gone")?;
        let sandbox_id = container.sandbox_id.clone();
        if !self.sandboxes.get(&sandbox_id).is_some_and(|sandbox| sandbox.ready) {
            return Err(format!("sandbox container {sandbox_id:?} is not running"));
        }
        let log = LogFile::open(&container.log_path).map_err(|error| {
            format!(
                "failed to create containerd task: failed to create container loggers: failed to create and open log \
                 file: open {}: {error}",
                container.log_path
            )
        })?;
        let words = container.image.command(&container.config.command, &container.config.args);
        let word = words.first().map_or("", String::as_str);
        let machine = match container.program.as_ref().or(container.image.program.as_ref()) {
            Some(program) => program.machine(),
            None if applets::find(word).is_some() => {
                let machine = applets::machine(&words, container.environment.clone());
                if is_first_process(&container.config) { machine.made_init() } else { machine }
            }
            None if container.image.runs_anything => Program::run_forever().machine(),
            None => {
                return Err(format!(
                    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc \
                     create failed: unable to start container process: {}: unknown",
                    applets::not_found(word)
                ));
            }
        };
        let container = self.container_mut(id).map_err(gone)?;
        container.process = Some(Process { machine, log, pid, started: now, ended: false });
        container.started_at = started_at.max(container.created_at);
        self.tell(Happening::TaskStart { id, pid }, now);
        self.tell_cri(id, &sandbox_id, ContainerEventType::ContainerStartedEvent, now);
        self.run_process(id, now);
        Ok(())
    }

    /// Asks a container to stop, if it can. Gives what is cancelled when it has; nothing when it has not to.
    pub(crate) fn ask_to_stop(
        &mut self,
        asked: &str,
        gently: bool,
        now: Instant,
    ) -> Result<Option<(String, CancellationToken)>, Status> {
        let id = match self.find_container(asked) {
            Ok(id) => id,
            Err(Missing::NotFound) if self.settings.stopping_the_missing == StoppingTheMissing::Succeeds => {
                return Ok(None);
            }
            Err(missing) => return Err(missing.status(not_found_text(asked))),
        };
        let container = self.container_mut(&id)?;
        if !container.is_running() {
            return Ok(None);
        }
        let stopped = container.stopped.subscribe();
        let first = !container.asked_to_stop;
        container.asked_to_stop |= gently;
        let name = container.image.stop_signal.clone();
        if gently && first {
            let signal = if name.is_empty() { Some(Signal::Terminate) } else { Signal::parse(&name) };
            let Some(signal) = signal else {
                return Err(Status::unknown(format!(
                    "failed to parse stop signal {name:?}: invalid signal: {name}"
                )));
            };
            self.signal(&id, signal, now);
        }
        Ok(Some((id, stopped)))
    }

    /// Removes a container that does not run.
    pub(crate) fn delete_container(&mut self, id: &str, now: Instant) {
        let Some(container) = self.containers.remove(id) else { return };
        self.container_names.remove(&container.name);
        if let Some(members) = self.members.get_mut(&container.sandbox_id) {
            members.remove(id);
        }
        self.tell(Happening::ContainerDelete { id }, now);
        self.tell_cri(id, &container.sandbox_id, ContainerEventType::ContainerDeletedEvent, now);
    }

    pub(crate) fn container_status(
        &self,
        request: &v1::ContainerStatusRequest,
    ) -> Result<v1::ContainerStatusResponse, Status> {
        let asked = &request.container_id;
        let id = self.find_container(asked).map_err(|missing| missing.status(not_found_text(asked)))?;
        let container = self.container(&id)?;
        let mut response = v1::ContainerStatusResponse {
            status: Some(container.to_status(&self.images)),
            info: BTreeMap::new(),
        };
        if request.verbose {
            let pid = container.process.as_ref().map_or(0, |process| process.pid);
            let info = serde_json::json!({
                "sandboxID": container.sandbox_id, "pid": pid, "removing": false, "snapshotKey": id,
                "snapshotter": "overlayfs", "runtimeType": "io.containerd.runc.v2",
                "config": config_as_json(&container.config),
            });
            response.info.insert("info".to_owned(), info.to_string());
        }
        Ok(response)
    }

    pub(crate) fn list_containers(&self, filter: Option<v1::ContainerFilter>) -> Vec<v1::Container> {
        let filter = filter.unwrap_or_default();
        let rest = Filter {
            state: filter.state.as_ref().map(v1::ContainerStateValue::state),
            labels: &filter.label_selector,
        };
        self.select_containers(&filter.id, &filter.pod_sandbox_id)
            .into_iter()
            .filter(|container| container.matches(&rest))
            .map(Container::to_list_item)
            .collect()
    }

    /// The containers with this ID in this sandbox, where either is given.
    pub(crate) fn select_containers(&self, id: &str, sandbox_id: &str) -> Vec<&Container> {
        let sandbox = match sandbox_id {
            "" => None,
            asked => match self.find_sandbox(asked) {
                Ok(id) => Some(id),
                Err(_) => return Vec::new(),
            },
        };
        let in_sandbox =
            |container: &&Container| sandbox.as_ref().is_none_or(|sandbox| container.sandbox_id == *sandbox);
        match (id, &sandbox) {
            ("", None) => self.containers.values().collect(),
            ("", Some(sandbox)) => {
                let ids = self.members.get(sandbox).into_iter().flatten();
                ids.filter_map(|id| self.containers.get(id)).collect()
            }
            (asked, _) => {
                let found = self.find_container(asked).ok().and_then(|id| self.containers.get(&id));
                found.into_iter().filter(in_sandbox).collect()
            }
        }
    }

    pub(crate) fn update_container_resources(
        &mut self,
        request: &v1::UpdateContainerResourcesRequest,
        now: Instant,
    ) -> Result<v1::UpdateContainerResourcesResponse, Status> {
        let id = self
            .find_container(&request.container_id)
            .map_err(|missing| missing.status("failed to find container"))?;
        if let Some(linux) = &request.linux {
            apply(&mut self.container_mut(&id)?.resources, linux);
            self.run_process(&id, now);
        }
        Ok(v1::UpdateContainerResourcesResponse {})
    }

    pub(crate) fn reopen_log(&mut self, asked: &str) -> Result<v1::ReopenContainerLogResponse, Status> {
        let id = self.find_container(asked).map_err(|missing| missing.status(not_found_text(asked)))?;
        let container = self.container_mut(&id)?;
        if !container.is_running() {
            return Err(Status::unknown("container is not running"));
        }
        if let Some(process) = &mut container.process {
            process.log.reopen(&container.log_path).map_err(|error| {
                Status::unknown(format!(
                    "failed to create and open log file: open {}: {error}",
                    container.log_path
                ))
            })?;
        }
        Ok(v1::ReopenContainerLogResponse {})
    }

    pub(crate) fn checkpoint(
        &self,
        request: &v1::CheckpointContainerRequest,
    ) -> Result<v1::CheckpointContainerResponse, Status> {
        let asked = &request.container_id;
        let id = self
            .find_container(asked)
            .map_err(|missing| missing.status(format!("failed to find container {asked:?}")))?;
        let container = self.container(&id)?;
        if !container.is_running() {
            return Err(Status::unknown(format!(
                "container {id:?} is in {} state. only CONTAINER_RUNNING containers can be checkpointed",
                container.state().as_str_name()
            )));
        }
        let text = format!("a simulated checkpoint of container {id}\n");
        std::fs::write(&request.location, text).map_err(|error| {
            Status::unknown(format!("cannot write the checkpoint to {:?}: {error}", request.location))
        })?;
        Ok(v1::CheckpointContainerResponse {})
    }
}

pub(crate) fn not_found_text(asked: &str) -> String {
    format!("an error occurred when try to find container {asked:?}")
}

/// What a container runs by its annotation or its pod's, which can have one for each of its containers. One that makes
/// no sense is not one.
fn program(config: &v1::ContainerConfig, sandbox: &v1::PodSandboxConfig) -> Option<Program> {
    let name = config.metadata.as_ref().map_or("", |metadata| metadata.name.as_str());
    let own = format!("{}.{name}", Program::ANNOTATION);
    let annotation = (config.annotations.get(Program::ANNOTATION))
        .or_else(|| sandbox.annotations.get(&own))
        .or_else(|| sandbox.annotations.get(Program::ANNOTATION));
    annotation.and_then(|text| text.parse().ok())
}

fn environment(image: &Image, config: &v1::ContainerConfig, hostname: &str) -> BTreeMap<String, String> {
    let mut variables: BTreeMap<String, String> = image.env.iter().cloned().collect();
    if !hostname.is_empty() {
        variables.insert("HOSTNAME".to_owned(), hostname.to_owned());
    }
    let given = config.envs.iter();
    variables
        .extend(given.map(|given| (given.key.clone(), String::from_utf8_lossy(&given.value).into_owned())));
    variables
}

/// Whether the container's process is the first of a PID namespace.
fn is_first_process(config: &v1::ContainerConfig) -> bool {
    let context = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    context
        .and_then(|context| context.namespace_options.as_ref())
        .is_some_and(|options| options.pid() == NamespaceMode::Container)
}

/// A path below a directory in its shortest form.
fn joined(directory: &str, path: &str) -> String {
    let whole = format!("{directory}/{path}");
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let start = if whole.starts_with('/') { "/" } else { "" };
    format!("{start}{}", parts.join("/"))
}

/// What a container was made from, in the words of containerd's verbose status, as far as a kubelet reads it.
fn config_as_json(config: &v1::ContainerConfig) -> serde_json::Value {
    let variable = |variable: &v1::KeyValue| serde_json::json!({"key": variable.key, "value": String::from_utf8_lossy(&variable.value)});
    let mount = |mount: &v1::Mount| {
        serde_json::json!({
            "container_path": mount.container_path, "host_path": mount.host_path, "readonly": mount.readonly,
        })
    };
    let resources = |had: &v1::LinuxContainerResources| {
        serde_json::json!({
            "cpu_period": had.cpu_period, "cpu_quota": had.cpu_quota, "cpu_shares": had.cpu_shares,
            "memory_limit_in_bytes": had.memory_limit_in_bytes,
        })
    };
    let number = |number: &v1::Int64Value| serde_json::json!({"value": number.value});
    let capabilities = |given: &v1::Capability| {
        serde_json::json!({
            "add_capabilities": given.add_capabilities, "drop_capabilities": given.drop_capabilities,
        })
    };
    let security = |had: &v1::LinuxContainerSecurityContext| {
        serde_json::json!({
            "capabilities": had.capabilities.as_ref().map(capabilities), "privileged": had.privileged,
            "run_as_user": had.run_as_user.as_ref().map(number),
            "run_as_group": had.run_as_group.as_ref().map(number),
            "readonly_rootfs": had.readonly_rootfs, "no_new_privs": had.no_new_privs,
        })
    };
    let linux = |linux: &v1::LinuxContainerConfig| {
        serde_json::json!({
            "resources": linux.resources.as_ref().map(resources),
            "security_context": linux.security_context.as_ref().map(security),
        })
    };
    serde_json::json!({
        "command": config.command, "args": config.args, "working_dir": config.working_dir,
        "envs": config.envs.iter().map(variable).collect::<Vec<_>>(),
        "mounts": config.mounts.iter().map(mount).collect::<Vec<_>>(),
        "linux": config.linux.as_ref().map(linux),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_log_is_in_its_shortest_form() {
        assert_eq!(joined("/var/log/pods/x", "c/0.log"), "/var/log/pods/x/c/0.log");
        assert_eq!(joined("/var//log/x/", "./../sub//0.log"), "/var/log/sub/0.log");
    }
}
