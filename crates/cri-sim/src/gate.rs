//! What every call passes through: the record, what the runtime lacks, its death, latency and faults.

use std::future::{Future, pending};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tonic::{Response, Status};

use super::call::{Call, Method};
use super::fault::CallFault;
use super::settings::Capabilities;
use super::simulator::Simulator;
use super::world::World;

impl Simulator {
    /// A call whose effect is at once.
    pub(crate) async fn call<T>(
        &self,
        method: Method,
        subject: impl Into<String>,
        effect: impl FnOnce(&mut World, Instant) -> Result<T, Status>,
    ) -> Result<Response<T>, Status> {
        self.long_call(method, subject, async { self.with(effect) }).await
    }

    /// A call whose effect takes time.
    pub(crate) async fn long_call<T>(
        &self,
        method: Method,
        subject: impl Into<String>,
        effect: impl Future<Output = Result<T, Status>>,
    ) -> Result<Response<T>, Status> {
        let mut deaths = self.deaths();
        let (latency, fault) = self.admit(method, subject.into())?;
        let work = async {
            let longer = if let Some(CallFault::IsSlow(longer)) = fault { longer } else { Duration::ZERO };
            if latency + longer > Duration::ZERO {
                sleep(latency + longer).await;
            }
            match fault {
                None | Some(CallFault::IsSlow(_)) => effect.await,
                Some(CallFault::Fails(code, message)) => Err(Status::new(code, message)),
                Some(CallFault::FailsAfterEffect(code, message)) => {
                    // The effect may have failed by itself; either way the answer is the fault's.
                    let _ = effect.await;
                    Err(Status::new(code, message))
                }
                Some(CallFault::HangsBeforeEffect) => pending().await,
                Some(CallFault::HangsAfterEffect) => {
                    let _ = effect.await;
                    pending().await
                }
                Some(CallFault::DiesBeforeEffect) => {
                    self.die();
                    pending().await
                }
                Some(CallFault::DiesAfterEffect) => {
                    let _ = effect.await;
                    self.die();
                    pending().await
                }
            }
        };
        tokio::select! {
            biased;
            () = deaths.changed() => Err(unavailable()),
            result = work => result.map(Response::new),
        }
    }

    /// Lets a call in, or says why not.
    pub(crate) fn admit(
        &self,
        method: Method,
        subject: String,
    ) -> Result<(Duration, Option<CallFault>), Status> {
        self.with(|world, now| {
            if !world.alive {
                return Err(unavailable());
            }
            let fault = world.faults.of_call(method, &subject);
            world.remember(Call { method, subject, at: now });
            if !has(&world.settings.capabilities, method) {
                return Err(unimplemented(method));
            }
            Ok((world.settings.latencies.draw(method, &mut world.random), fault))
        })
    }
}

/// What a client sees of a runtime that is not there.
pub(crate) fn unavailable() -> Status {
    Status::unavailable("the simulated runtime is not there")
}

fn has(capabilities: &Capabilities, method: Method) -> bool {
    match method {
        Method::GetContainerEvents => capabilities.cri_events,
        Method::Subscribe => capabilities.containerd_events,
        Method::RuntimeConfig => capabilities.runtime_config,
        Method::StreamPodSandboxes | Method::StreamContainers | Method::StreamImages => {
            capabilities.streamed_lists
        }
        Method::StreamContainerStats => capabilities.streamed_lists,
        Method::StreamPodSandboxStats => capabilities.streamed_lists && capabilities.sandbox_stats,
        Method::StreamPodSandboxMetrics => capabilities.streamed_lists && capabilities.sandbox_metrics,
        Method::PodSandboxStats | Method::ListPodSandboxStats => capabilities.sandbox_stats,
        Method::ListMetricDescriptors | Method::ListPodSandboxMetrics => capabilities.sandbox_metrics,
        Method::UpdatePodSandboxResources => capabilities.sandbox_resources,
        Method::CheckpointContainer => capabilities.checkpoints,
        Method::Version
        | Method::Status
        | Method::UpdateRuntimeConfig
        | Method::RunPodSandbox
        | Method::StopPodSandbox
        | Method::RemovePodSandbox
        | Method::PodSandboxStatus
        | Method::ListPodSandbox
        | Method::PortForward
        | Method::CreateContainer
        | Method::StartContainer
        | Method::StopContainer
        | Method::RemoveContainer
        | Method::ListContainers
        | Method::ContainerStatus
        | Method::UpdateContainerResources
        | Method::ReopenContainerLog
        | Method::ExecSync
        | Method::Exec
        | Method::Attach
        | Method::ContainerStats
        | Method::ListContainerStats
        | Method::ListImages
        | Method::ImageStatus
        | Method::PullImage
        | Method::RemoveImage
        | Method::ImageFsInfo => true,
    }
}

/// What containerd says of a call that it lacks: some it knows by name, most it does not.
fn unimplemented(method: Method) -> Status {
    let name = method.name();
    Status::unimplemented(match method {
        Method::GetContainerEvents
        | Method::CheckpointContainer
        | Method::PodSandboxStats
        | Method::ListPodSandboxStats => format!("method {name} not implemented"),
        Method::Subscribe => "unknown service containerd.services.events.v1.Events".to_owned(),
        Method::StreamImages => format!("unknown method {name} for service runtime.v1.ImageService"),
        _ => format!("unknown method {name} for service runtime.v1.RuntimeService"),
    })
}
