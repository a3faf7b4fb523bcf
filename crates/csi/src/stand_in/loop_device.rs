//! Loop devices, by the machine's `losetup`.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The device of a file, which is made if there is none.
pub(super) fn attach(file: &Path) -> io::Result<PathBuf> {
    match attached(file)? {
        Some(device) => Ok(device),
        None => Ok(losetup(["--find".as_ref(), "--show".as_ref(), file.as_os_str()])?.trim().into()),
    }
}

/// The device of a file, if it has one.
pub(super) fn attached(file: &Path) -> io::Result<Option<PathBuf>> {
    if !file.exists() {
        return Ok(None);
    }
    let lines = losetup(["--associated".as_ref(), file.as_os_str()])?;
    Ok(lines.split_once(':').map(|(device, _)| device.into()))
}

/// Takes a file's device away, if it has one.
pub(super) fn detach(file: &Path) -> io::Result<()> {
    while let Some(device) = attached(file)? {
        losetup(["--detach".as_ref(), device.as_os_str()])?;
    }
    Ok(())
}

/// Tells a file's device that the file has another size.
pub(super) fn notice_size(file: &Path) -> io::Result<()> {
    match attached(file)? {
        Some(device) => losetup(["--set-capacity".as_ref(), device.as_os_str()]).map(|_| ()),
        None => Ok(()),
    }
}

fn losetup<'a>(arguments: impl IntoIterator<Item = &'a OsStr>) -> io::Result<String> {
    let output = Command::new("losetup").args(arguments).output()?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            Err(io::Error::other(format!("losetup: {}", String::from_utf8_lossy(&output.stderr).trim())))
        }
    }
}
