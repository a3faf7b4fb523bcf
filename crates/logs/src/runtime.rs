//! What is asked of a runtime about the logs of its containers.

use std::path::PathBuf;

use async_trait::async_trait;
use crablet_cri::{Error, Runtime};

/// Who writes the logs of containers.
#[async_trait]
pub trait LogRuntime: Send + Sync {
    /// Where the log of a container is.
    async fn log_path(&self, id: &str) -> Result<PathBuf, Error>;
    /// Has the log of a container that runs written to a new file.
    async fn reopen_container_log(&self, id: &str) -> Result<(), Error>;
}

#[async_trait]
impl<R: Runtime + ?Sized> LogRuntime for R {
    async fn log_path(&self, id: &str) -> Result<PathBuf, Error> {
        Ok(PathBuf::from(self.container_status(id).await?.log_path))
    }

    async fn reopen_container_log(&self, id: &str) -> Result<(), Error> {
        Runtime::reopen_container_log(self, id).await
    }
}
