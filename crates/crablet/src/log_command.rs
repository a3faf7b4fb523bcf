//! `crablet log`: how a running agent logs, shown or changed.

use anyhow::bail;
use crablet_server::{Method, request};

use crate::agent_client::{admin_socket, block_on};
use crate::command_line::LogChange;
use crate::exit::{self, Failure};

/// Makes the changes, then shows how the agent logs.
pub(crate) fn run(change: &LogChange) -> Result<(), Failure> {
    exit::print(&block_on(ask(change))?)
}

async fn ask(change: &LogChange) -> anyhow::Result<String> {
    let socket = admin_socket(&change.root_dir);
    for (flag, value) in &change.settings {
        let (status, answer) = request(&socket, Method::PUT, &format!("/debug/flags/{flag}"), value).await?;
        if !status.is_success() {
            bail!("--{flag}: {}", answer.trim_end());
        }
    }
    let (_, answer) = request(&socket, Method::GET, "/debug/flags", "").await?;
    Ok(answer)
}
