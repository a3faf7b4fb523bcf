//! Processes of containerd that its CRI service forgot.
//!
//! Where whoever asks for a container's start goes away in the middle, the process may have been made already, and the
//! container is shown as exited with it. Such a container can be removed neither by that service nor with its sandbox
//! until containerd is started again (containerd/containerd#11037). So the process is ended by containerd's own interface.

use std::future::Future;

use crablet_cri_api::containerd::tasks::tasks_client::TasksClient;
use crablet_cri_api::containerd::tasks::{DeleteTaskRequest, KillRequest, WaitRequest};
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Response, Status};

use crate::client::Client;
use crate::error::{Error, Result};

/// The namespace of containerd that its CRI keeps everything in.
pub(super) const NAMESPACE: &str = "k8s.io";
const SIGKILL: u32 = 9;

/// A request to containerd's own interface.
pub(super) fn in_namespace<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("containerd-namespace", MetadataValue::from_static(NAMESPACE));
    request
}

/// Whether a container was not removed because there is such a process. One that the CRI service knows of does not keep
/// it from removing the container.
pub(super) fn is_in_the_way(error: &Error) -> bool {
    error.code() == Code::FailedPrecondition && error.to_string().contains("cannot delete running task")
}

impl Client {
    /// Ends such a process, and has containerd forget it.
    pub(super) async fn end_leftover_task(&self, id: &str) -> Result<()> {
        let mut service = TasksClient::new(self.runtime.service());
        let (container_id, exec_id) = (id.to_owned(), String::new());
        let kill = KillRequest { container_id, exec_id, signal: SIGKILL, all: true };
        match self.of_task("Kill", service.kill(in_namespace(kill))).await {
            // It has ended by itself.
            Err(error) if error.is_not_found() => {}
            answer => answer?,
        }
        let wait = WaitRequest { container_id: id.to_owned(), exec_id: String::new() };
        self.of_task("Wait", service.wait(in_namespace(wait))).await?;
        let delete = DeleteTaskRequest { container_id: id.to_owned() };
        self.of_task("Delete", service.delete(in_namespace(delete))).await?;
        tracing::info!(container = id, "Ended a process that the runtime's CRI service had forgotten");
        Ok(())
    }

    async fn of_task<T>(
        &self,
        method: &'static str,
        call: impl Future<Output = std::result::Result<Response<T>, Status>>,
    ) -> Result<T> {
        self.runtime.call(method, self.settings.answer_limit, Some(self.settings.timeout), call).await
    }
}
