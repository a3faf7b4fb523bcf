//! Asking the running agent, for the commands that do.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use crablet_api::core::Pod;
use crablet_api::document::Limits;
use crablet_api::meta::List;
use crablet_server::{Method, StatusCode, request, request_within};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::exit::Failure;

/// How long an agent may take that is asked to wait for a change.
const PATIENCE: Duration = Duration::from_secs(60);

/// Enough for the pods of any node.
pub(crate) const ANY_LIST: Limits = Limits { bytes: 64 << 20, nodes: 20_000_000, depth: 100 };

/// All pods of a node, with a version.
pub(crate) type PodList = List<Pod>;

/// A running agent, or at least where one should be.
pub(crate) struct Agent {
    socket: PathBuf,
}

/// The socket on which the agent with a root directory can be asked things, by its own user alone.
pub(crate) fn admin_socket(root_dir: &Path) -> PathBuf {
    root_dir.join("crablet.sock")
}

/// Does something that waits, on this thread.
pub(crate) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> Result<T, Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    Ok(runtime.block_on(work)?)
}

impl Agent {
    /// The one with a root directory.
    pub(crate) fn at(root_dir: &Path) -> Agent {
        Agent { socket: admin_socket(root_dir) }
    }

    /// The status and text of an answer.
    pub(crate) async fn answer(
        &self,
        method: Method,
        target: &str,
        body: &str,
    ) -> anyhow::Result<(StatusCode, String)> {
        Ok(request(&self.socket, method, target, body).await?)
    }

    /// The text of an answer; one that is a refusal is an error.
    pub(crate) async fn get(&self, target: &str) -> anyhow::Result<String> {
        let (status, text) = self.answer(Method::GET, target, "").await?;
        if !status.is_success() {
            bail!("{}", text.trim_end());
        }
        Ok(text)
    }

    /// Its configuration in force.
    pub(crate) async fn configuration(&self) -> anyhow::Result<Value> {
        let text = self.get("/configz").await?;
        let mut answer: Value =
            serde_json::from_str(&text).context("the agent's configuration is no JSON")?;
        Ok(answer["kubeletconfig"].take())
    }

    pub(crate) async fn pods(&self) -> anyhow::Result<PodList> {
        read_list(&self.get("/pods").await?)
    }

    /// All pods, once there is something new since that version.
    pub(crate) async fn pods_after(&self, version: &str) -> anyhow::Result<PodList> {
        let target = format!("/pods?after={}", encode(version));
        loop {
            let (status, text) = request_within(PATIENCE, &self.socket, Method::GET, &target, "").await?;
            match status {
                StatusCode::NO_CONTENT => {}
                status if status.is_success() => return read_list(&text),
                _ => bail!("{}", text.trim_end()),
            }
        }
    }
}

/// A text as part of a request's target.
pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

fn read_list(text: &str) -> anyhow::Result<PodList> {
    crablet_api::from_json(text.as_bytes(), ANY_LIST).context("the agent's list of pods makes no sense")
}
