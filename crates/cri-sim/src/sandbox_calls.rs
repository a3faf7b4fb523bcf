//! What calls do to sandboxes.

use std::collections::BTreeSet;
use std::sync::Arc;

use crablet_cri_api::v1::{self, ContainerEventType};
use tokio::time::Instant;
use tonic::Status;

use super::bell::Ended;
use super::event::Happening;
use super::sandbox::{Sandbox, has_network};
use super::world::World;

impl World {
    pub(crate) fn run_sandbox(
        &mut self,
        request: v1::RunPodSandboxRequest,
        now: Instant,
    ) -> Result<v1::RunPodSandboxResponse, Status> {
        let id = self.random.id();
        let config = request.config.unwrap_or_default();
        let Some(metadata) = &config.metadata else {
            return Err(Status::unknown("sandbox config must include metadata"));
        };
        let name = format!("{}_{}_{}_{}", metadata.name, metadata.namespace, metadata.uid, metadata.attempt);
        if let Some(other) = self.sandbox_names.get(&name) {
            return Err(Status::unknown(format!(
                "failed to reserve sandbox name {name:?}: name {name:?} is reserved for {other:?}"
            )));
        }
        let image = self.settings.sandbox_image.clone();
        self.ensure_image(&image).map_err(|status| {
            let text = format!("failed to get sandbox image {image:?}: {}", status.message());
            Status::new(status.code(), text)
        })?;
        let handler = &request.runtime_handler;
        if !handler.is_empty() && !self.settings.runtime_handlers.contains(handler) {
            return Err(Status::unknown(format!(
                "failed to get sandbox runtime: no runtime for {handler:?} is configured"
            )));
        }
        let has_network = has_network(&config);
        if has_network && self.conditions.network_not_ready.is_some() {
            return Err(Status::unknown(format!(
                "failed to setup network for sandbox {id:?}: cni plugin not initialized"
            )));
        }
        if !has_network && !config.hostname.is_empty() {
            return Err(Status::unknown(
                "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create \
                 failed: unable to set hostname without a private UTS namespace: unknown",
            ));
        }
        let sandbox = Sandbox {
            id: id.clone(),
            name: name.clone(),
            config: Arc::new(config),
            runtime_handler: request.runtime_handler,
            created_at: self.created_now(now),
            pid: self.next_pid(),
            ready: true,
            ended: false,
            ip: has_network.then(|| self.next_address()),
            network_closed: false,
            stopped: Ended::default(),
            last_usage: None,
        };
        let pid = sandbox.pid;
        self.sandbox_names.insert(name, id.clone());
        self.members.insert(id.clone(), BTreeSet::new());
        self.tell(Happening::ContainerCreate { id: &id, image: &image }, now);
        self.tell(Happening::TaskStart { id: &id, pid }, now);
        self.sandboxes.insert(id.clone(), sandbox);
        self.tell_cri(&id, &id, ContainerEventType::ContainerCreatedEvent, now);
        self.tell_cri(&id, &id, ContainerEventType::ContainerStartedEvent, now);
        Ok(v1::RunPodSandboxResponse { pod_sandbox_id: id })
    }

    /// Takes away the network of a sandbox that has been stopped.
    pub(crate) fn close_network(&mut self, id: &str) {
        if let Some(sandbox) = self.sandboxes.get_mut(id) {
            sandbox.network_closed = true;
        }
    }

    /// Removes a sandbox that has been stopped and has no containers left.
    pub(crate) fn delete_sandbox(&mut self, id: &str, now: Instant) {
        let Some(sandbox) = self.sandboxes.remove(id) else { return };
        self.sandbox_names.remove(&sandbox.name);
        self.members.remove(id);
        self.tell(Happening::ContainerDelete { id }, now);
        self.tell_cri(id, id, ContainerEventType::ContainerDeletedEvent, now);
    }

    pub(crate) fn sandbox_status(
        &self,
        request: &v1::PodSandboxStatusRequest,
        now: Instant,
    ) -> Result<v1::PodSandboxStatusResponse, Status> {
        let id = self
            .find_sandbox(&request.pod_sandbox_id)
            .map_err(|missing| missing.status("an error occurred when try to find sandbox"))?;
        let sandbox = self.sandbox(&id)?;
        let mut response =
            v1::PodSandboxStatusResponse { status: Some(sandbox.to_status()), ..Default::default() };
        if self.settings.capabilities.cri_events {
            response.containers_statuses = self.statuses_in(&id);
            response.timestamp = self.clock.nanoseconds(now);
        }
        if request.verbose {
            let process = if sandbox.ended { "deleted" } else { "running" };
            let info = format!(
                "{{\"pid\":{},\"processStatus\":\"{process}\",\"netNamespaceClosed\":{},\
                 \"runtimeHandler\":\"{}\",\"runtimeType\":\"io.containerd.runc.v2\",\
                 \"image\":\"{}\"}}",
                sandbox.pid, sandbox.network_closed, sandbox.runtime_handler, self.settings.sandbox_image
            );
            response.info.insert("info".to_owned(), info);
        }
        Ok(response)
    }

    pub(crate) fn list_sandboxes(&self, filter: Option<v1::PodSandboxFilter>) -> Vec<v1::PodSandbox> {
        let filter = filter.unwrap_or_default();
        if filter.id.is_empty() {
            let matching = self.sandboxes.values().filter(|sandbox| sandbox.matches(&filter));
            return matching.map(Sandbox::to_list_item).collect();
        }
        let found = self.find_sandbox(&filter.id).ok();
        let sandbox = found.and_then(|id| self.sandboxes.get(&id)).filter(|sandbox| sandbox.matches(&filter));
        sandbox.map(Sandbox::to_list_item).into_iter().collect()
    }

    pub(crate) fn update_sandbox_resources(
        &self,
        request: &v1::UpdatePodSandboxResourcesRequest,
    ) -> Result<v1::UpdatePodSandboxResourcesResponse, Status> {
        let id = &request.pod_sandbox_id;
        let found = self
            .find_sandbox(id)
            .map_err(|missing| missing.status(format!("failed to find sandbox {id:?}")))?;
        match self.sandbox(&found)?.ready {
            true => Ok(v1::UpdatePodSandboxResourcesResponse {}),
            false => Err(Status::unknown(format!("sandbox {found:?} is not ready"))),
        }
    }

    pub(crate) fn sandbox_to_forward_to(&self, id: &str) -> Result<(), Status> {
        let found = self
            .find_sandbox(id)
            .map_err(|missing| missing.status(format!("failed to find sandbox {id:?}")))?;
        match self.sandbox(&found)?.ready {
            true => Ok(()),
            false => Err(Status::unknown("sandbox container is not running")),
        }
    }
}
