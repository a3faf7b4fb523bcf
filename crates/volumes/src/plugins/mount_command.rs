//! The host's own tool to mount with, which knows what options mean.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::{PluginError, failed};

/// How much of what a tool says is told.
const LONGEST_OUTPUT: usize = 4096;

pub(super) fn mount(arguments: &[String]) -> Result<(), PluginError> {
    let done = Command::new("mount").args(arguments).stdin(Stdio::null()).output();
    let done = done.map_err(failed("fork/exec", Path::new("mount")))?;
    if done.status.success() {
        return Ok(());
    }
    let output = [done.stdout, done.stderr].concat();
    let output = String::from_utf8_lossy(&output[..output.len().min(LONGEST_OUTPUT)]).into_owned();
    let status = done.status.code().map_or_else(|| "signal".to_owned(), |code| format!("exit status {code}"));
    Err(PluginError::MountCommand { status, arguments: arguments.join(" "), output })
}
