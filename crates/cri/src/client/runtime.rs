//! Every operation of the [`Runtime`], as a call.

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use crablet_cri_api::{
    CgroupDriver, Container, ContainerFilter, ContainerStatus, ExecOutput, Image, Malformed, RuntimeStatus,
    Sandbox, SandboxFilter, SandboxStatus, Version, v1,
};
use futures_util::stream::{BoxStream, TryStreamExt as _};
use tokio::time::Instant;
use tonic::{Code, Response, Status, Streaming};

use crate::client::Client;
use crate::client::container_config::{container_config, sandbox_image};
use crate::client::leftover_task;
use crate::client::transport::Transport;
use crate::error::{Error, Result};
use crate::runtime::{CheckpointRuntime, Hint, HintSource, ImagePull, Runtime};

type Answer<T> = std::result::Result<Response<T>, Status>;

impl Client {
    /// A call with the usual deadline.
    pub(super) async fn ask<T>(
        &self,
        method: &'static str,
        call: impl Future<Output = Answer<T>>,
    ) -> Result<T> {
        self.ask_within(method, Some(self.settings.timeout), call).await
    }

    async fn ask_within<T>(
        &self,
        method: &'static str,
        within: Option<Duration>,
        call: impl Future<Output = Answer<T>>,
    ) -> Result<T> {
        self.runtime.call(method, self.settings.answer_limit, within, call).await
    }

    /// A call that older runtimes lack.
    async fn ask_if_there<T>(
        &self,
        method: &'static str,
        call: impl Future<Output = Answer<T>>,
    ) -> Result<T> {
        let within = Some(self.settings.timeout);
        self.runtime.call_if_there(method, self.settings.answer_limit, within, call).await
    }

    async fn ask_images<T>(&self, method: &'static str, call: impl Future<Output = Answer<T>>) -> Result<T> {
        self.images.call(method, self.settings.answer_limit, Some(self.settings.timeout), call).await
    }

    /// What containers use, as the runtime counts it: all of them, or those of a sandbox.
    pub async fn list_container_stats(&self, sandbox: Option<&str>) -> Result<Vec<v1::ContainerStats>> {
        let mut service = self.runtime_service();
        let filter = sandbox.map(|id| v1::ContainerStatsFilter {
            pod_sandbox_id: id.to_owned(),
            ..v1::ContainerStatsFilter::default()
        });
        let request = v1::ListContainerStatsRequest { filter };
        let answer = self.ask("ListContainerStats", service.list_container_stats(request)).await?;
        Ok(answer.stats)
    }

    /// A list, in pieces where the runtime has that, else in one message.
    async fn list<Pieces, Whole, Item>(
        &self,
        transport: &Transport,
        (method, pieces): (&'static str, impl Future<Output = Answer<Streaming<Pieces>>>),
        items_of_a_piece: impl Fn(Pieces) -> Vec<Item>,
        whole: impl Future<Output = Result<Whole>>,
        items: impl Fn(Whole) -> Vec<Item>,
    ) -> Result<Vec<Item>> {
        let limit = self.settings.answer_limit;
        let within = self.settings.timeout;
        let in_pieces = async {
            let mut stream = transport.call_if_there(method, limit, None, pieces).await?;
            let mut list = Vec::new();
            while let Some(piece) =
                stream.try_next().await.map_err(|status| transport.failure(method, limit, status))?
            {
                list.extend(items_of_a_piece(piece));
            }
            Ok::<_, Error>(list)
        };
        match tokio::time::timeout(within, in_pieces).await {
            Err(_) => Err(Error::Deadline { method, endpoint: transport.name.clone(), within }),
            // A stream that starts well and breaks off for want of the call is the same lack.
            Ok(Err(error)) if error.is_unsupported() => {
                transport.remember_lack_of(method);
                whole.await.map(items)
            }
            Ok(answer) => answer,
        }
    }
}

#[async_trait]
impl CheckpointRuntime for Client {
    async fn checkpoint_container(&self, id: &str, location: &Path, within: Duration) -> Result<()> {
        let within = within.max(self.settings.timeout);
        let request = v1::CheckpointContainerRequest {
            container_id: id.to_owned(),
            location: location.to_string_lossy().into_owned(),
            timeout: i64::try_from(within.as_secs()).unwrap_or(i64::MAX),
        };
        let mut service = self.runtime_service();
        let call = service.checkpoint_container(request);
        self.ask_within("CheckpointContainer", Some(within), call).await?;
        Ok(())
    }
}

#[async_trait]
impl Runtime for Client {
    async fn version(&self) -> Result<Version> {
        let mut service = self.runtime_service();
        let answer = self.ask("Version", service.version(v1::VersionRequest::default())).await;
        match answer {
            Ok(version) => Ok(version.into()),
            Err(error) => Err(self.explain_refusal(error).await),
        }
    }

    async fn status(&self) -> Result<RuntimeStatus> {
        const METHOD: &str = "Status";
        let mut service = self.runtime_service();
        let answer = self.ask(METHOD, service.status(v1::StatusRequest { verbose: false })).await?;
        sensible(METHOD, answer)
    }

    async fn update_pod_cidr(&self, pod_cidr: &str) -> Result<()> {
        let network_config = Some(v1::NetworkConfig { pod_cidr: pod_cidr.to_owned() });
        let runtime_config = Some(v1::RuntimeConfig { network_config });
        let request = v1::UpdateRuntimeConfigRequest { runtime_config };
        let mut service = self.runtime_service();
        self.ask("UpdateRuntimeConfig", service.update_runtime_config(request)).await.map(drop)
    }

    async fn cgroup_driver(&self) -> Result<CgroupDriver> {
        const METHOD: &str = "RuntimeConfig";
        let mut service = self.runtime_service();
        let answer = self.ask_if_there(METHOD, service.runtime_config(v1::RuntimeConfigRequest {})).await?;
        let linux = present(METHOD, answer.linux, "RuntimeConfigResponse", "linux")?;
        Ok(linux.cgroup_driver().into())
    }

    async fn run_sandbox(&self, config: &v1::PodSandboxConfig, runtime_handler: &str) -> Result<String> {
        let request = v1::RunPodSandboxRequest {
            config: Some(config.clone()),
            runtime_handler: runtime_handler.to_owned(),
        };
        // Upstream waits twice as long here: a network plug-in may take its time.
        let within = Some(self.settings.timeout * 2);
        let mut service = self.runtime_service();
        let call = service.run_pod_sandbox(request);
        let begun = Instant::now();
        let made = self.ask_within("RunPodSandbox", within, call).await;
        if let Some(operations) = self.runtime.operations() {
            operations.ran_sandbox(runtime_handler, begun.elapsed(), made.is_err());
        }
        Ok(made?.pod_sandbox_id)
    }

    async fn stop_sandbox(&self, id: &str) -> Result<()> {
        let request = v1::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        let mut service = self.runtime_service();
        gone_is_stopped(self.ask("StopPodSandbox", service.stop_pod_sandbox(request)).await)
    }

    async fn remove_sandbox(&self, id: &str) -> Result<()> {
        let request = v1::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        let mut service = self.runtime_service();
        self.ask("RemovePodSandbox", service.remove_pod_sandbox(request)).await?;
        Ok(())
    }

    async fn sandbox_status(&self, id: &str) -> Result<SandboxStatus> {
        const METHOD: &str = "PodSandboxStatus";
        let request = v1::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: false };
        let mut service = self.runtime_service();
        let answer = self.ask(METHOD, service.pod_sandbox_status(request)).await?;
        sensible(METHOD, present(METHOD, answer.status, "PodSandboxStatusResponse", "status")?)
    }

    async fn sandbox_image(&self, id: &str) -> Result<Option<String>> {
        let request = v1::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: true };
        let mut service = self.runtime_service();
        let answer = self.ask("PodSandboxStatus", service.pod_sandbox_status(request)).await?;
        Ok(answer.info.get("info").and_then(|info| sandbox_image(info)))
    }

    async fn list_sandboxes(&self, filter: SandboxFilter) -> Result<Vec<Sandbox>> {
        const METHOD: &str = "ListPodSandbox";
        let filter = Some(v1::PodSandboxFilter::from(filter));
        let in_pieces = v1::StreamPodSandboxesRequest { filter: filter.clone() };
        let (mut streaming, mut service) = (self.runtime_service(), self.runtime_service());
        let list = self
            .list(
                &self.runtime,
                ("StreamPodSandboxes", streaming.stream_pod_sandboxes(in_pieces)),
                |piece| piece.pod_sandboxes,
                self.ask(METHOD, service.list_pod_sandbox(v1::ListPodSandboxRequest { filter })),
                |whole| whole.items,
            )
            .await?;
        list.into_iter().map(|sandbox| sensible(METHOD, sandbox)).collect()
    }

    async fn create_container(
        &self,
        sandbox_id: &str,
        config: &v1::ContainerConfig,
        sandbox_config: &v1::PodSandboxConfig,
    ) -> Result<String> {
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox_id.to_owned(),
            config: Some(config.clone()),
            sandbox_config: Some(sandbox_config.clone()),
        };
        let mut service = self.runtime_service();
        Ok(self.ask("CreateContainer", service.create_container(request)).await?.container_id)
    }

    async fn start_container(&self, id: &str) -> Result<()> {
        let request = v1::StartContainerRequest { container_id: id.to_owned() };
        let mut service = self.runtime_service();
        self.ask("StartContainer", service.start_container(request)).await?;
        Ok(())
    }

    async fn stop_container(&self, id: &str, grace: Duration) -> Result<()> {
        let timeout = whole_seconds(grace);
        let request = v1::StopContainerRequest { container_id: id.to_owned(), timeout };
        let within = Some(self.settings.timeout.saturating_add(grace));
        let mut service = self.runtime_service();
        gone_is_stopped(self.ask_within("StopContainer", within, service.stop_container(request)).await)
    }

    async fn remove_container(&self, id: &str) -> Result<()> {
        let request = v1::RemoveContainerRequest { container_id: id.to_owned() };
        let mut service = self.runtime_service();
        let mut removed = self.ask("RemoveContainer", service.remove_container(request.clone())).await;
        if removed.as_ref().is_err_and(leftover_task::is_in_the_way) {
            self.end_leftover_task(id).await?;
            removed = self.ask("RemoveContainer", service.remove_container(request)).await;
        }
        removed.map(drop)
    }

    async fn container_status(&self, id: &str) -> Result<ContainerStatus> {
        const METHOD: &str = "ContainerStatus";
        let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        let mut service = self.runtime_service();
        let answer = self.ask(METHOD, service.container_status(request)).await?;
        sensible(METHOD, present(METHOD, answer.status, "ContainerStatusResponse", "status")?)
    }

    async fn container_config(&self, id: &str) -> Result<Option<v1::ContainerConfig>> {
        let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: true };
        let mut service = self.runtime_service();
        let answer = self.ask("ContainerStatus", service.container_status(request)).await?;
        Ok(answer.info.get("info").and_then(|info| container_config(info)))
    }

    async fn list_containers(&self, filter: ContainerFilter) -> Result<Vec<Container>> {
        const METHOD: &str = "ListContainers";
        let filter = Some(v1::ContainerFilter::from(filter));
        let in_pieces = v1::StreamContainersRequest { filter: filter.clone() };
        let (mut streaming, mut service) = (self.runtime_service(), self.runtime_service());
        let list = self
            .list(
                &self.runtime,
                ("StreamContainers", streaming.stream_containers(in_pieces)),
                |piece| piece.containers,
                self.ask(METHOD, service.list_containers(v1::ListContainersRequest { filter })),
                |whole| whole.containers,
            )
            .await?;
        list.into_iter().map(|container| sensible(METHOD, container)).collect()
    }

    async fn update_container_resources(&self, request: v1::UpdateContainerResourcesRequest) -> Result<()> {
        let mut service = self.runtime_service();
        self.ask("UpdateContainerResources", service.update_container_resources(request)).await?;
        Ok(())
    }

    async fn update_sandbox_resources(&self, request: v1::UpdatePodSandboxResourcesRequest) -> Result<()> {
        let mut service = self.runtime_service();
        match self.ask("UpdatePodSandboxResources", service.update_pod_sandbox_resources(request)).await {
            Err(error) if error.code() == Code::Unimplemented => Ok(()),
            // containerd 2.2 says it so.
            Err(Error::Answer { code: Code::Unknown, message, .. })
                if message.contains("not implemented") =>
            {
                Ok(())
            }
            answer => answer.map(drop),
        }
    }

    async fn container_memory(&self, id: &str) -> Result<Option<u64>> {
        let request = v1::ContainerStatsRequest { container_id: id.to_owned() };
        let mut service = self.runtime_service();
        let answer = self.ask("ContainerStats", service.container_stats(request)).await?;
        let memory = answer.stats.and_then(|stats| stats.memory);
        Ok(memory.and_then(|memory| memory.usage_bytes).map(|bytes| bytes.value))
    }

    async fn reopen_container_log(&self, id: &str) -> Result<()> {
        let request = v1::ReopenContainerLogRequest { container_id: id.to_owned() };
        let mut service = self.runtime_service();
        self.ask("ReopenContainerLog", service.reopen_container_log(request)).await.map(drop)
    }

    async fn exec_sync(&self, id: &str, command: &[String], timeout: Option<Duration>) -> Result<ExecOutput> {
        let request = v1::ExecSyncRequest {
            container_id: id.to_owned(),
            cmd: command.to_vec(),
            timeout: timeout.map_or(0, whole_seconds),
        };
        // The runtime ends the command; the rest is for it to say so.
        let within = timeout.map(|timeout| timeout.saturating_add(self.settings.timeout));
        let mut service = self.runtime_service();
        Ok(self.ask_within("ExecSync", within, service.exec_sync(request)).await?.into())
    }

    async fn list_images(&self) -> Result<Vec<Image>> {
        let (mut streaming, mut service) = (self.image_service(), self.image_service());
        let list = self
            .list(
                &self.images,
                ("StreamImages", streaming.stream_images(v1::StreamImagesRequest::default())),
                |piece| piece.images,
                self.ask_images("ListImages", service.list_images(v1::ListImagesRequest::default())),
                |whole| whole.images,
            )
            .await?;
        Ok(list.into_iter().map(Image::from).collect())
    }

    async fn image_status(&self, image: &v1::ImageSpec) -> Result<Option<Image>> {
        let request = v1::ImageStatusRequest { image: Some(image.clone()), verbose: false };
        let mut service = self.image_service();
        Ok(self.ask_images("ImageStatus", service.image_status(request)).await?.image.map(Image::from))
    }

    async fn pull_image(&self, pull: ImagePull) -> Result<String> {
        let request =
            v1::PullImageRequest { image: Some(pull.image), auth: pull.auth, sandbox_config: pull.sandbox };
        let (limit, within) = (self.settings.answer_limit, Some(self.settings.pull_timeout));
        let mut service = self.image_service();
        let call = service.pull_image(request);
        Ok(self.images.call("PullImage", limit, within, call).await?.image_ref)
    }

    async fn remove_image(&self, id: &str) -> Result<()> {
        let image = v1::ImageSpec { image: id.to_owned(), ..v1::ImageSpec::default() };
        let request = v1::RemoveImageRequest { image: Some(image) };
        let mut service = self.image_service();
        self.ask_images("RemoveImage", service.remove_image(request)).await?;
        Ok(())
    }

    async fn image_file_systems(&self) -> Result<v1::ImageFsInfoResponse> {
        let mut service = self.image_service();
        self.ask_images("ImageFsInfo", service.image_fs_info(v1::ImageFsInfoRequest {})).await
    }

    fn hints(&self, source: HintSource) -> BoxStream<'static, Result<Hint>> {
        self.open_hints(source)
    }
}

fn sensible<Plain, Message>(method: &'static str, message: Message) -> Result<Plain>
where
    Plain: TryFrom<Message, Error = Malformed>,
{
    Plain::try_from(message).map_err(|source| Error::Malformed { method, source })
}

fn present<T>(
    method: &'static str,
    value: Option<T>,
    message: &'static str,
    field: &'static str,
) -> Result<T> {
    value.ok_or(Error::Malformed { method, source: Malformed { message, field } })
}

/// What is not there has stopped. CRI says so too; containerd came to it with 1.7.
fn gone_is_stopped<T>(answer: Result<T>) -> Result<()> {
    match answer {
        Err(error) if !error.is_not_found() => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// CRI counts in seconds. What is shorter than one is rounded up, because 0 has a meaning of its own.
fn whole_seconds(duration: Duration) -> i64 {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    i64::try_from(seconds).unwrap_or(i64::MAX)
}
