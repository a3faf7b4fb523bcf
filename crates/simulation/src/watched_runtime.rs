//! The runtime as the agent sees it, with somebody looking over its shoulder: what is asked for is checked before it
//! is done. Some calls are not taken back when the agent stops waiting for them: a real runtime finishes them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use crablet_core::labels;
use crablet_cri::{Error, Hint, HintSource, ImagePull, Result, Runtime};
use crablet_cri_api::{
    CgroupDriver, Container, ContainerFilter, ContainerStatus, ExecOutput, Image, RuntimeStatus, Sandbox,
    SandboxFilter, SandboxStatus, Version, v1,
};
use futures_util::stream::BoxStream;

use crate::invariants::{Doing, check_call, check_published};
use crate::ledger::Ledger;
use crate::lies::{Lie, RuntimeLies};
use crate::storage::Storage;

/// The runtime, watched.
pub struct WatchedRuntime {
    inner: Arc<dyn Runtime>,
    storage: Option<Arc<Storage>>,
    ledger: Arc<Ledger>,
    lies: RuntimeLies,
}

impl WatchedRuntime {
    /// Watches a runtime, which may tell a lie.
    pub fn new(
        inner: Arc<dyn Runtime>,
        storage: Option<Arc<Storage>>,
        ledger: Arc<Ledger>,
        lie: Option<Lie>,
    ) -> WatchedRuntime {
        let lies = RuntimeLies::new(lie, Arc::clone(&ledger));
        WatchedRuntime { inner, storage, ledger, lies }
    }

    /// A call that ends with its caller.
    async fn call<T>(&self, doing: Doing<'_>, call: impl Future<Output = Result<T>>) -> Result<T> {
        let what = check_call(&self.ledger, &doing);
        let result = call.await;
        note(&self.ledger, &what, &result);
        result
    }

    /// A call that goes on when its caller does not wait any more.
    async fn lasting<T: Send + 'static>(
        &self,
        doing: Doing<'_>,
        call: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let what = check_call(&self.ledger, &doing);
        let _waiting = Waiting::begin(&self.ledger);
        let ledger = Arc::clone(&self.ledger);
        let call = tokio::spawn(async move {
            let result = call.await;
            note(&ledger, &what, &result);
            result
        });
        match call.await {
            Ok(result) => result,
            Err(_) => std::future::pending().await,
        }
    }
}

/// A call that a worker waits for, for as long as it does.
struct Waiting(Arc<Ledger>);

impl Waiting {
    fn begin(ledger: &Arc<Ledger>) -> Waiting {
        ledger.state().waited_for += 1;
        Waiting(Arc::clone(ledger))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.state().waited_for -= 1;
    }
}

fn note<T>(ledger: &Ledger, what: &str, result: &Result<T>) {
    match result {
        Ok(_) => ledger.trace.note(format_args!("    {what}: ok")),
        Err(Error::Answer { message, .. }) => ledger.trace.note(format_args!("    {what}: {message}")),
        Err(error) => ledger.trace.note(format_args!("    {what}: {error}")),
    }
    ledger.touch();
    ledger.look();
}

/// The users of the node that a sandbox is to have as its own.
fn users(config: &v1::PodSandboxConfig) -> Vec<v1::IdMapping> {
    let context = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    let namespaces = context.and_then(|context| context.namespace_options.as_ref());
    let users = namespaces.and_then(|namespaces| namespaces.userns_options.as_ref());
    users.map(|users| users.uids.clone()).unwrap_or_default()
}

#[async_trait]
impl Runtime for WatchedRuntime {
    async fn version(&self) -> Result<Version> {
        self.inner.version().await
    }
    async fn status(&self) -> Result<RuntimeStatus> {
        self.inner.status().await
    }
    async fn update_pod_cidr(&self, pod_cidr: &str) -> Result<()> {
        self.inner.update_pod_cidr(pod_cidr).await
    }
    async fn cgroup_driver(&self) -> Result<CgroupDriver> {
        self.inner.cgroup_driver().await
    }
    async fn run_sandbox(&self, config: &v1::PodSandboxConfig, handler: &str) -> Result<String> {
        let metadata = config.metadata.clone().unwrap_or_default();
        let users = users(config);
        let (inner, config, handler) = (Arc::clone(&self.inner), config.clone(), handler.to_owned());
        self.lasting(Doing::RunSandbox { uid: &metadata.uid, users: &users }, async move {
            inner.run_sandbox(&config, &handler).await
        })
        .await
    }
    async fn stop_sandbox(&self, id: &str) -> Result<()> {
        let stopped = self.call(Doing::StopSandbox { id }, self.inner.stop_sandbox(id)).await;
        if stopped.is_ok() {
            self.ledger.state().stopped_sandboxes.insert(id.to_owned());
        }
        stopped
    }
    async fn remove_sandbox(&self, id: &str) -> Result<()> {
        self.call(Doing::RemoveSandbox { id }, self.inner.remove_sandbox(id)).await
    }
    async fn sandbox_status(&self, id: &str) -> Result<SandboxStatus> {
        self.inner.sandbox_status(id).await
    }
    async fn sandbox_image(&self, id: &str) -> Result<Option<String>> {
        self.inner.sandbox_image(id).await
    }
    async fn list_sandboxes(&self, filter: SandboxFilter) -> Result<Vec<Sandbox>> {
        // Nobody but the worker of a pod asks for what is that pod's alone.
        if let Some(uid) = filter.labels.get(labels::POD_UID) {
            self.ledger.worker_looks(uid);
        }
        self.lies.sandboxes(&filter, self.inner.list_sandboxes(filter.clone()).await)
    }
    async fn create_container(
        &self,
        sandbox_id: &str,
        config: &v1::ContainerConfig,
        sandbox_config: &v1::PodSandboxConfig,
    ) -> Result<String> {
        let uid = sandbox_config.metadata.clone().unwrap_or_default().uid;
        let name = config.metadata.clone().unwrap_or_default().name;
        let (inner, sandbox_id) = (Arc::clone(&self.inner), sandbox_id.to_owned());
        let (config, sandbox_config) = (config.clone(), sandbox_config.clone());
        if let Some(storage) = &self.storage {
            check_published(&self.ledger, storage, &uid);
        }
        self.lasting(Doing::CreateContainer { uid: &uid, name: &name }, async move {
            inner.create_container(&sandbox_id, &config, &sandbox_config).await
        })
        .await
    }
    async fn start_container(&self, id: &str) -> Result<()> {
        self.lies.starts(id);
        let (inner, owned) = (Arc::clone(&self.inner), id.to_owned());
        self.lasting(Doing::StartContainer { id }, async move { inner.start_container(&owned).await }).await
    }
    async fn stop_container(&self, id: &str, grace: Duration) -> Result<()> {
        if self.lies.stops_at_once(id) {
            let (inner, owned) = (Arc::clone(&self.inner), id.to_owned());
            tokio::spawn(async move { inner.stop_container(&owned, grace).await });
            return self.call(Doing::StopContainer { id, grace }, async { Ok(()) }).await;
        }
        self.call(Doing::StopContainer { id, grace }, self.inner.stop_container(id, grace)).await
    }
    async fn remove_container(&self, id: &str) -> Result<()> {
        self.call(Doing::RemoveContainer { id }, self.inner.remove_container(id)).await
    }
    async fn container_status(&self, id: &str) -> Result<ContainerStatus> {
        self.lies.container(self.inner.container_status(id).await)
    }
    async fn container_config(&self, id: &str) -> Result<Option<v1::ContainerConfig>> {
        self.inner.container_config(id).await
    }
    async fn list_containers(&self, filter: ContainerFilter) -> Result<Vec<Container>> {
        self.lies.containers(&filter, self.inner.list_containers(filter.clone()).await)
    }
    async fn update_container_resources(&self, request: v1::UpdateContainerResourcesRequest) -> Result<()> {
        self.inner.update_container_resources(request).await
    }
    async fn update_sandbox_resources(&self, request: v1::UpdatePodSandboxResourcesRequest) -> Result<()> {
        self.inner.update_sandbox_resources(request).await
    }
    async fn container_memory(&self, id: &str) -> Result<Option<u64>> {
        self.inner.container_memory(id).await
    }
    async fn reopen_container_log(&self, id: &str) -> Result<()> {
        self.inner.reopen_container_log(id).await
    }
    async fn exec_sync(&self, id: &str, command: &[String], timeout: Option<Duration>) -> Result<ExecOutput> {
        let answer = self.call(Doing::Exec { id }, self.inner.exec_sync(id, command, timeout)).await;
        if let Err(Error::Answer { .. }) = &answer {
            self.ledger.command_failed(id);
        }
        answer
    }
    async fn list_images(&self) -> Result<Vec<Image>> {
        self.inner.list_images().await
    }
    async fn image_status(&self, image: &v1::ImageSpec) -> Result<Option<Image>> {
        self.inner.image_status(image).await
    }
    async fn pull_image(&self, pull: ImagePull) -> Result<String> {
        let _waiting = Waiting::begin(&self.ledger);
        self.inner.pull_image(pull).await
    }
    async fn remove_image(&self, id: &str) -> Result<()> {
        self.inner.remove_image(id).await
    }
    async fn image_file_systems(&self) -> Result<v1::ImageFsInfoResponse> {
        self.inner.image_file_systems().await
    }
    fn hints(&self, source: HintSource) -> BoxStream<'static, Result<Hint>> {
        self.inner.hints(source)
    }
}
