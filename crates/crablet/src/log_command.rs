//! `crablet log`: how a running agent logs, shown or changed.

use anyhow::{Context, bail};
use crablet_server::{Method, request};

use crate::command_line::LogChange;
use crate::exit::{self, Failure};
use crate::run::admin_socket;

/// Makes the changes, then shows how the agent logs.
pub(crate) fn run(change: &LogChange) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    exit::print(&runtime.block_on(ask(change))?)
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
