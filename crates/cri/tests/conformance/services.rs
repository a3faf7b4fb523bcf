//! Calls of CRI that the agent does not make, and that a runtime answers all the same.

use std::future::Future;

use crablet_cri::{Error, Result};
use crablet_cri_api::v1;
use tonic::{Code, Response, Status};

use crate::world::{World, image};

/// An answer, told as the client tells those to its own calls.
async fn asked<T>(
    method: &'static str,
    call: impl Future<Output = std::result::Result<Response<T>, Status>>,
) -> Result<T> {
    let answer = call.await.map(Response::into_inner);
    answer.map_err(|status| Error::Answer {
        method,
        code: status.code(),
        message: status.message().to_owned(),
    })
}

impl World {
    pub async fn update_pod_cidr(&self, pod_cidr: &str) -> Result<()> {
        let network_config = Some(v1::NetworkConfig { pod_cidr: pod_cidr.to_owned() });
        let runtime_config = Some(v1::RuntimeConfig { network_config });
        let request = v1::UpdateRuntimeConfigRequest { runtime_config };
        let mut service = self.client.runtime_service();
        asked("UpdateRuntimeConfig", service.update_runtime_config(request)).await.map(drop)
    }

    pub async fn codes_of_what_may_be_lacking(&self) -> [Code; 3] {
        let mut service = self.client.runtime_service();
        let resources = service
            .update_pod_sandbox_resources(v1::UpdatePodSandboxResourcesRequest::default())
            .await
            .map(drop);
        let descriptors =
            service.list_metric_descriptors(v1::ListMetricDescriptorsRequest {}).await.map(drop);
        let metrics = service.list_pod_sandbox_metrics(v1::ListPodSandboxMetricsRequest {}).await.map(drop);
        [resources, descriptors, metrics]
            .map(|answer| answer.map_or_else(|status| status.code(), |()| Code::Ok))
    }

    pub async fn exec_streamed(&self, request: v1::ExecRequest) -> Result<String> {
        Ok(asked("Exec", self.client.runtime_service().exec(request)).await?.url)
    }

    pub async fn attach(&self, request: v1::AttachRequest) -> Result<String> {
        Ok(asked("Attach", self.client.runtime_service().attach(request)).await?.url)
    }

    pub async fn port_forward(&self, request: v1::PortForwardRequest) -> Result<String> {
        Ok(asked("PortForward", self.client.runtime_service().port_forward(request)).await?.url)
    }

    pub async fn container_stats(&self, id: &str) -> Result<v1::ContainerStats> {
        let request = v1::ContainerStatsRequest { container_id: id.to_owned() };
        let mut service = self.client.runtime_service();
        Ok(asked("ContainerStats", service.container_stats(request)).await?.stats.unwrap_or_default())
    }

    pub async fn list_container_stats(
        &self,
        filter: v1::ContainerStatsFilter,
    ) -> Result<Vec<v1::ContainerStats>> {
        let request = v1::ListContainerStatsRequest { filter: Some(filter) };
        let mut service = self.client.runtime_service();
        Ok(asked("ListContainerStats", service.list_container_stats(request)).await?.stats)
    }

    pub async fn sandbox_stats(&self, id: &str) -> Result<v1::PodSandboxStats> {
        let request = v1::PodSandboxStatsRequest { pod_sandbox_id: id.to_owned() };
        let mut service = self.client.runtime_service();
        Ok(asked("PodSandboxStats", service.pod_sandbox_stats(request)).await?.stats.unwrap_or_default())
    }

    pub async fn list_sandbox_stats(
        &self,
        filter: v1::PodSandboxStatsFilter,
    ) -> Result<Vec<v1::PodSandboxStats>> {
        let request = v1::ListPodSandboxStatsRequest { filter: Some(filter) };
        let mut service = self.client.runtime_service();
        Ok(asked("ListPodSandboxStats", service.list_pod_sandbox_stats(request)).await?.stats)
    }

    /// Removes an image, without a word in the transcript.
    pub async fn image_removed(&self, name: &str) -> Result<()> {
        let request = v1::RemoveImageRequest { image: Some(image(name)) };
        asked("RemoveImage", self.client.image_service().remove_image(request)).await.map(drop)
    }

    pub async fn image_fs_info(&self) -> Result<v1::ImageFsInfoResponse> {
        let mut service = self.client.image_service();
        asked("ImageFsInfo", service.image_fs_info(v1::ImageFsInfoRequest {})).await
    }
}
