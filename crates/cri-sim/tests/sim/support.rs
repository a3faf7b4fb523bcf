//! Short ways to say what tests of the simulated runtime do.

use std::path::PathBuf;

use crablet_cri_api::v1;
use crablet_cri_api::v1::image_service_client::ImageServiceClient;
use crablet_cri_api::v1::image_service_server::ImageServiceServer;
use crablet_cri_api::v1::runtime_service_client::RuntimeServiceClient;
use crablet_cri_api::v1::runtime_service_server::RuntimeServiceServer;
use crablet_cri_sim::Simulator;
use tonic::Status;

pub const BUSYBOX: &str = "crablet.test/busybox:1";

pub fn runtime(simulator: &Simulator) -> RuntimeServiceClient<RuntimeServiceServer<Simulator>> {
    RuntimeServiceClient::new(simulator.runtime_service())
}

pub fn images(simulator: &Simulator) -> ImageServiceClient<ImageServiceServer<Simulator>> {
    ImageServiceClient::new(simulator.image_service())
}

pub async fn status(simulator: &Simulator, id: &str) -> v1::ContainerStatus {
    let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
    runtime(simulator).container_status(request).await.unwrap().into_inner().status.unwrap()
}

pub fn spec(image: &str) -> v1::ImageSpec {
    v1::ImageSpec { image: image.to_owned(), ..v1::ImageSpec::default() }
}

/// A sandbox that runs.
pub struct Pod {
    simulator: Simulator,
    pub config: v1::PodSandboxConfig,
    pub id: String,
}

impl Pod {
    pub fn config(name: &str) -> v1::PodSandboxConfig {
        v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: name.to_owned(),
                uid: format!("{name}-uid"),
                namespace: "default".to_owned(),
                attempt: 0,
            }),
            ..v1::PodSandboxConfig::default()
        }
    }

    pub async fn run(simulator: &Simulator, name: &str) -> Pod {
        Pod::run_with(simulator, Pod::config(name)).await.unwrap()
    }

    pub async fn run_with(simulator: &Simulator, config: v1::PodSandboxConfig) -> Result<Pod, Status> {
        let request =
            v1::RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: String::new() };
        let id = runtime(simulator).run_pod_sandbox(request).await?.into_inner().pod_sandbox_id;
        Ok(Pod { simulator: simulator.clone(), config, id })
    }

    pub fn container(name: &str, command: &[&str]) -> v1::ContainerConfig {
        v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: name.to_owned(), attempt: 0 }),
            image: Some(spec(BUSYBOX)),
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            log_path: format!("{name}.log"),
            ..v1::ContainerConfig::default()
        }
    }

    pub async fn create(&self, name: &str, command: &[&str]) -> String {
        self.create_with(Pod::container(name, command)).await.unwrap()
    }

    pub async fn create_with(&self, config: v1::ContainerConfig) -> Result<String, Status> {
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: self.id.clone(),
            config: Some(config),
            sandbox_config: Some(self.config.clone()),
        };
        Ok(runtime(&self.simulator).create_container(request).await?.into_inner().container_id)
    }

    pub async fn start(&self, id: &str) -> Result<(), Status> {
        let request = v1::StartContainerRequest { container_id: id.to_owned() };
        runtime(&self.simulator).start_container(request).await.map(drop)
    }

    pub async fn run_container(&self, name: &str, command: &[&str]) -> String {
        let id = self.create(name, command).await;
        self.start(&id).await.unwrap();
        id
    }

    pub async fn stop_container(&self, id: &str, timeout: i64) -> Result<(), Status> {
        let request = v1::StopContainerRequest { container_id: id.to_owned(), timeout };
        runtime(&self.simulator).stop_container(request).await.map(drop)
    }

    pub async fn remove_container(&self, id: &str) -> Result<(), Status> {
        let request = v1::RemoveContainerRequest { container_id: id.to_owned() };
        runtime(&self.simulator).remove_container(request).await.map(drop)
    }

    pub async fn exec(
        &self,
        id: &str,
        command: &[&str],
        timeout: i64,
    ) -> Result<v1::ExecSyncResponse, Status> {
        let request = v1::ExecSyncRequest {
            container_id: id.to_owned(),
            cmd: command.iter().map(|word| (*word).to_owned()).collect(),
            timeout,
        };
        Ok(runtime(&self.simulator).exec_sync(request).await?.into_inner())
    }

    pub async fn status(&self) -> v1::PodSandboxStatus {
        let request = v1::PodSandboxStatusRequest { pod_sandbox_id: self.id.clone(), verbose: false };
        runtime(&self.simulator).pod_sandbox_status(request).await.unwrap().into_inner().status.unwrap()
    }

    pub async fn stop(&self) {
        let request = v1::StopPodSandboxRequest { pod_sandbox_id: self.id.clone() };
        runtime(&self.simulator).stop_pod_sandbox(request).await.unwrap();
    }

    pub async fn remove(&self) {
        let request = v1::RemovePodSandboxRequest { pod_sandbox_id: self.id.clone() };
        runtime(&self.simulator).remove_pod_sandbox(request).await.unwrap();
    }

    pub fn log(&self, name: &str) -> String {
        let path = PathBuf::from(&self.config.log_directory).join(format!("{name}.log"));
        std::fs::read_to_string(path).unwrap()
    }
}
