//! CRI's runtime service: which call is what.

use crablet_cri_api::v1::runtime_service_server::RuntimeService;
use crablet_cri_api::v1::{self, ContainerEventResponse};
use tonic::{Request, Response, Status, async_trait};

use super::call::{Asked, Method};
use super::node_calls::{check_pod_cidr, check_streams, version};
use super::simulator::Simulator;
use super::stats::metric_descriptors;
use super::streams::{Answers, in_pieces};

type Answer<T> = Result<Response<T>, Status>;

#[async_trait]
impl RuntimeService for Simulator {
    async fn version(&self, _: Request<v1::VersionRequest>) -> Answer<v1::VersionResponse> {
        self.call(Method::Version, "", |_, _| Ok(version())).await
    }

    async fn status(&self, request: Request<v1::StatusRequest>) -> Answer<v1::StatusResponse> {
        let verbose = request.into_inner().verbose;
        self.call(Method::Status, "", |world, _| Ok(world.status(verbose))).await
    }

    async fn runtime_config(
        &self,
        _: Request<v1::RuntimeConfigRequest>,
    ) -> Answer<v1::RuntimeConfigResponse> {
        self.call(Method::RuntimeConfig, "", |world, _| Ok(world.runtime_config())).await
    }

    async fn update_runtime_config(
        &self,
        request: Request<v1::UpdateRuntimeConfigRequest>,
    ) -> Answer<v1::UpdateRuntimeConfigResponse> {
        let request = request.into_inner();
        self.call(Method::UpdateRuntimeConfig, "", |_, _| {
            check_pod_cidr(&request)?;
            Ok(v1::UpdateRuntimeConfigResponse {})
        })
        .await
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<v1::RunPodSandboxRequest>,
    ) -> Answer<v1::RunPodSandboxResponse> {
        let request = request.into_inner();
        let subject = pod_name(request.config.as_ref());
        self.with(|world, _| world.remember_asked(|| request.config.clone().map(Asked::Sandbox)));
        self.call(Method::RunPodSandbox, subject, |world, now| world.run_sandbox(request, now)).await
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<v1::StopPodSandboxRequest>,
    ) -> Answer<v1::StopPodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.long_call(Method::StopPodSandbox, id.clone(), self.stop_sandbox(&id)).await
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<v1::RemovePodSandboxRequest>,
    ) -> Answer<v1::RemovePodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.long_call(Method::RemovePodSandbox, id.clone(), self.remove_sandbox(&id)).await
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<v1::PodSandboxStatusRequest>,
    ) -> Answer<v1::PodSandboxStatusResponse> {
        let request = request.into_inner();
        self.call(Method::PodSandboxStatus, request.pod_sandbox_id.clone(), |world, now| {
            world.sandbox_status(&request, now)
        })
        .await
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<v1::ListPodSandboxRequest>,
    ) -> Answer<v1::ListPodSandboxResponse> {
        let filter = request.into_inner().filter;
        self.call(Method::ListPodSandbox, "", |world, _| {
            Ok(v1::ListPodSandboxResponse { items: world.list_sandboxes(filter) })
        })
        .await
    }

    type StreamPodSandboxesStream = Answers<v1::StreamPodSandboxesResponse>;

    async fn stream_pod_sandboxes(
        &self,
        request: Request<v1::StreamPodSandboxesRequest>,
    ) -> Answer<Self::StreamPodSandboxesStream> {
        let filter = request.into_inner().filter;
        self.call(Method::StreamPodSandboxes, "", |world, _| {
            Ok(in_pieces(world.list_sandboxes(filter), |pod_sandboxes| v1::StreamPodSandboxesResponse {
                pod_sandboxes,
            }))
        })
        .await
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<v1::UpdatePodSandboxResourcesRequest>,
    ) -> Answer<v1::UpdatePodSandboxResourcesResponse> {
        let request = request.into_inner();
        self.with(|world, _| world.remember_asked(|| Some(Asked::SandboxResources(request.clone()))));
        self.call(Method::UpdatePodSandboxResources, request.pod_sandbox_id.clone(), |world, _| {
            world.update_sandbox_resources(&request)
        })
        .await
    }

    async fn pod_sandbox_stats(
        &self,
        request: Request<v1::PodSandboxStatsRequest>,
    ) -> Answer<v1::PodSandboxStatsResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.call(Method::PodSandboxStats, id.clone(), |world, now| world.sandbox_stats(&id, now)).await
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: Request<v1::ListPodSandboxStatsRequest>,
    ) -> Answer<v1::ListPodSandboxStatsResponse> {
        let filter = request.into_inner().filter;
        self.call(Method::ListPodSandboxStats, "", |world, now| {
            Ok(v1::ListPodSandboxStatsResponse { stats: world.list_sandbox_stats(filter, now)? })
        })
        .await
    }

    type StreamPodSandboxStatsStream = Answers<v1::StreamPodSandboxStatsResponse>;

    async fn stream_pod_sandbox_stats(
        &self,
        request: Request<v1::StreamPodSandboxStatsRequest>,
    ) -> Answer<Self::StreamPodSandboxStatsStream> {
        let filter = request.into_inner().filter;
        self.call(Method::StreamPodSandboxStats, "", |world, now| {
            let stats = world.list_sandbox_stats(filter, now)?;
            Ok(in_pieces(stats, |pod_sandbox_stats| v1::StreamPodSandboxStatsResponse { pod_sandbox_stats }))
        })
        .await
    }

    async fn port_forward(
        &self,
        request: Request<v1::PortForwardRequest>,
    ) -> Answer<v1::PortForwardResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.call(Method::PortForward, id.clone(), |world, _| {
            world.sandbox_to_forward_to(&id)?;
            Ok(v1::PortForwardResponse { url: world.streaming_url("portforward")? })
        })
        .await
    }

    async fn create_container(
        &self,
        request: Request<v1::CreateContainerRequest>,
    ) -> Answer<v1::CreateContainerResponse> {
        let request = request.into_inner();
        let metadata = request.config.as_ref().and_then(|config| config.metadata.as_ref());
        let subject = format!(
            "{}/{}",
            pod_name(request.sandbox_config.as_ref()),
            metadata.map_or("", |metadata| metadata.name.as_str())
        );
        self.with(|world, _| world.remember_asked(|| request.config.clone().map(Asked::Container)));
        self.call(Method::CreateContainer, subject, |world, now| world.create_container(request, now)).await
    }

    async fn start_container(
        &self,
        request: Request<v1::StartContainerRequest>,
    ) -> Answer<v1::StartContainerResponse> {
        let id = request.into_inner().container_id;
        self.call(Method::StartContainer, id.clone(), |world, now| world.start_container(&id, now)).await
    }

    async fn stop_container(
        &self,
        request: Request<v1::StopContainerRequest>,
    ) -> Answer<v1::StopContainerResponse> {
        let request = request.into_inner();
        let subject = request.container_id.clone();
        self.long_call(Method::StopContainer, subject, Simulator::stop_container(self, request)).await
    }

    async fn remove_container(
        &self,
        request: Request<v1::RemoveContainerRequest>,
    ) -> Answer<v1::RemoveContainerResponse> {
        let id = request.into_inner().container_id;
        self.long_call(Method::RemoveContainer, id.clone(), Simulator::remove_container(self, &id)).await
    }

    async fn list_containers(
        &self,
        request: Request<v1::ListContainersRequest>,
    ) -> Answer<v1::ListContainersResponse> {
        let filter = request.into_inner().filter;
        self.call(Method::ListContainers, "", |world, _| {
            Ok(v1::ListContainersResponse { containers: world.list_containers(filter) })
        })
        .await
    }

    type StreamContainersStream = Answers<v1::StreamContainersResponse>;

    async fn stream_containers(
        &self,
        request: Request<v1::StreamContainersRequest>,
    ) -> Answer<Self::StreamContainersStream> {
        let filter = request.into_inner().filter;
        self.call(Method::StreamContainers, "", |world, _| {
            let containers = world.list_containers(filter);
            Ok(in_pieces(containers, |containers| v1::StreamContainersResponse { containers }))
        })
        .await
    }

    async fn container_status(
        &self,
        request: Request<v1::ContainerStatusRequest>,
    ) -> Answer<v1::ContainerStatusResponse> {
        let request = request.into_inner();
        self.call(Method::ContainerStatus, request.container_id.clone(), |world, _| {
            world.container_status(&request)
        })
        .await
    }

    async fn update_container_resources(
        &self,
        request: Request<v1::UpdateContainerResourcesRequest>,
    ) -> Answer<v1::UpdateContainerResourcesResponse> {
        let request = request.into_inner();
        self.call(Method::UpdateContainerResources, request.container_id.clone(), |world, now| {
            world.update_container_resources(&request, now)
        })
        .await
    }

    async fn reopen_container_log(
        &self,
        request: Request<v1::ReopenContainerLogRequest>,
    ) -> Answer<v1::ReopenContainerLogResponse> {
        let id = request.into_inner().container_id;
        self.call(Method::ReopenContainerLog, id.clone(), |world, _| world.reopen_log(&id)).await
    }

    async fn checkpoint_container(
        &self,
        request: Request<v1::CheckpointContainerRequest>,
    ) -> Answer<v1::CheckpointContainerResponse> {
        let request = request.into_inner();
        self.call(Method::CheckpointContainer, request.container_id.clone(), |world, _| {
            world.checkpoint(&request)
        })
        .await
    }

    async fn exec_sync(&self, request: Request<v1::ExecSyncRequest>) -> Answer<v1::ExecSyncResponse> {
        let request = request.into_inner();
        let subject = request.container_id.clone();
        self.long_call(Method::ExecSync, subject, Simulator::exec_sync(self, request)).await
    }

    async fn exec(&self, request: Request<v1::ExecRequest>) -> Answer<v1::ExecResponse> {
        let request = request.into_inner();
        self.call(Method::Exec, request.container_id.clone(), |world, _| {
            let id = &request.container_id;
            world.container_to_stream_from(id, &format!("failed to find container {id:?} in store"))?;
            check_streams(request.tty, request.stdin, request.stdout, request.stderr, "or")?;
            Ok(v1::ExecResponse { url: world.streaming_url("exec")? })
        })
        .await
    }

    async fn attach(&self, request: Request<v1::AttachRequest>) -> Answer<v1::AttachResponse> {
        let request = request.into_inner();
        self.call(Method::Attach, request.container_id.clone(), |world, _| {
            world.container_to_stream_from(&request.container_id, "failed to find container in store")?;
            check_streams(request.tty, request.stdin, request.stdout, request.stderr, "and")?;
            Ok(v1::AttachResponse { url: world.streaming_url("attach")? })
        })
        .await
    }

    async fn container_stats(
        &self,
        request: Request<v1::ContainerStatsRequest>,
    ) -> Answer<v1::ContainerStatsResponse> {
        let id = request.into_inner().container_id;
        self.call(Method::ContainerStats, id.clone(), |world, now| world.container_stats(&id, now)).await
    }

    async fn list_container_stats(
        &self,
        request: Request<v1::ListContainerStatsRequest>,
    ) -> Answer<v1::ListContainerStatsResponse> {
        let filter = request.into_inner().filter;
        self.call(Method::ListContainerStats, "", |world, now| {
            Ok(v1::ListContainerStatsResponse { stats: world.list_container_stats(filter, now) })
        })
        .await
    }

    type StreamContainerStatsStream = Answers<v1::StreamContainerStatsResponse>;

    async fn stream_container_stats(
        &self,
        request: Request<v1::StreamContainerStatsRequest>,
    ) -> Answer<Self::StreamContainerStatsStream> {
        let filter = request.into_inner().filter;
        self.call(Method::StreamContainerStats, "", |world, now| {
            let stats = world.list_container_stats(filter, now);
            Ok(in_pieces(stats, |container_stats| v1::StreamContainerStatsResponse { container_stats }))
        })
        .await
    }

    async fn list_metric_descriptors(
        &self,
        _: Request<v1::ListMetricDescriptorsRequest>,
    ) -> Answer<v1::ListMetricDescriptorsResponse> {
        self.call(Method::ListMetricDescriptors, "", |_, _| {
            Ok(v1::ListMetricDescriptorsResponse { descriptors: metric_descriptors() })
        })
        .await
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _: Request<v1::ListPodSandboxMetricsRequest>,
    ) -> Answer<v1::ListPodSandboxMetricsResponse> {
        self.call(Method::ListPodSandboxMetrics, "", |world, now| {
            Ok(v1::ListPodSandboxMetricsResponse { pod_metrics: world.sandbox_metrics(now) })
        })
        .await
    }

    type StreamPodSandboxMetricsStream = Answers<v1::StreamPodSandboxMetricsResponse>;

    async fn stream_pod_sandbox_metrics(
        &self,
        _: Request<v1::StreamPodSandboxMetricsRequest>,
    ) -> Answer<Self::StreamPodSandboxMetricsStream> {
        self.call(Method::StreamPodSandboxMetrics, "", |world, now| {
            Ok(in_pieces(world.sandbox_metrics(now), |pod_sandbox_metrics| {
                v1::StreamPodSandboxMetricsResponse { pod_sandbox_metrics }
            }))
        })
        .await
    }

    type GetContainerEventsStream = Answers<ContainerEventResponse>;

    async fn get_container_events(
        &self,
        _: Request<v1::GetEventsRequest>,
    ) -> Answer<Self::GetContainerEventsStream> {
        self.call(Method::GetContainerEvents, "", |world, _| Ok(world.listeners.cri()))
            .await
            .map(|events| events.map(|events| self.stream_of(events, |event| Some((*event).clone()))))
    }
}

fn pod_name(config: Option<&v1::PodSandboxConfig>) -> String {
    let metadata = config.and_then(|config| config.metadata.as_ref());
    metadata.map_or_else(String::new, |metadata| format!("{}/{}", metadata.namespace, metadata.name))
}
