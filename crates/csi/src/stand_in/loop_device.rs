//! Loop devices, by the machine's `losetup`.

use std::io;
use std::path::Path;
use std::process::Command;

pub(super) use crablet_host::loop_device::{attach, attached, detach};

/// Tells a file's device that the file has another size.
pub(super) fn notice_size(file: &Path) -> io::Result<()> {
    let Some(device) = attached(file)? else { return Ok(()) };
    let output = Command::new("losetup").arg("--set-capacity").arg(device).output()?;
    match output.status.success() {
        true => Ok(()),
        false => {
            Err(io::Error::other(format!("losetup: {}", String::from_utf8_lossy(&output.stderr).trim())))
        }
    }
}
