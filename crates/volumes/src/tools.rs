//! The host's own tools for file systems, as upstream uses them.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use tracing::{info, warn};

use crate::error::{PluginError, failed};

/// How much of what a tool says is told.
const LONGEST_OUTPUT: usize = 4096;
/// What upstream formats a disk as where nobody says.
const DEFAULT_FORMAT: &str = "ext4";
/// What `blkid` exits with for a disk on which it finds nothing.
const NOTHING_FOUND: i32 = 2;
/// What `fsck` exits with where it could not mend what it found.
const NOT_MENDED: i32 = 4;

/// How a tool ended.
struct Ended {
    /// None if a signal ended it.
    code: Option<i32>,
    output: String,
}

impl Ended {
    fn status(&self) -> String {
        self.code.map_or_else(|| "signal".to_owned(), |code| format!("exit status {code}"))
    }
}

fn run(program: &str, arguments: &[&str]) -> io::Result<Ended> {
    let done = Command::new(program).args(arguments).stdin(Stdio::null()).output()?;
    let output = [done.stdout, done.stderr].concat();
    let output = String::from_utf8_lossy(&output[..output.len().min(LONGEST_OUTPUT)]).into_owned();
    Ok(Ended { code: done.status.code(), output })
}

/// Mounts something by the tool `mount`.
pub(crate) fn mount(arguments: &[&str]) -> Result<(), PluginError> {
    let ended = run("mount", arguments).map_err(failed("fork/exec", Path::new("mount")))?;
    match ended.code {
        Some(0) => Ok(()),
        _ => Err(PluginError::MountCommand {
            status: ended.status(),
            arguments: arguments.join(" "),
            output: ended.output,
        }),
    }
}

/// Mounts a disk. One with nothing on it is formatted first; what is on it is mended where it can be.
pub(crate) fn format_and_mount(
    disk: &Path,
    target: &Path,
    format: &str,
    mut options: Vec<String>,
) -> Result<(), PluginError> {
    let format = if format.is_empty() { DEFAULT_FORMAT } else { format };
    let is_read_only = options.iter().any(|option| option == "ro");
    let disk = disk.display().to_string();
    match found_on(&disk)? {
        None if is_read_only => {
            let why =
                format!("cannot mount unformatted disk {disk} as we are manipulating it in read-only mode");
            return Err(PluginError::LocalPath(why));
        }
        None => make_file_system(&disk, format, &target.display().to_string(), &options)?,
        Some(found) => {
            if found != format {
                warn!(disk, found, wanted = format, "A disk is formatted as something else than is wanted");
            }
            if !is_read_only {
                mend(&disk)?;
            }
        }
    }
    options.push("defaults".to_owned());
    mount(&["-t", format, "-o", &options.join(","), &disk, &target.display().to_string()])
}

/// What a disk is formatted as, if there is anything on it.
fn found_on(disk: &str) -> Result<Option<String>, PluginError> {
    let unknown =
        |why: String| PluginError::LocalPath(format!("failed to get disk format of disk {disk}: {why}"));
    let arguments = ["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", disk];
    let ended = run("blkid", &arguments).map_err(|error| unknown(error.to_string()))?;
    match ended.code {
        Some(0) => Ok(Some(format_in(&ended.output))),
        Some(NOTHING_FOUND) => Ok(None),
        _ => Err(unknown(ended.status())),
    }
}

/// What `blkid` says that a disk is formatted as. One with partitions is never formatted.
fn format_in(output: &str) -> String {
    let value = |name: &str| {
        let line = output.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.filter(|value| !value.is_empty())
    };
    match (value("PTTYPE"), value("TYPE")) {
        (None, Some(format)) => format.to_owned(),
        (_, _) => "unknown data, probably partitions".to_owned(),
    }
}

fn make_file_system(disk: &str, format: &str, target: &str, options: &[String]) -> Result<(), PluginError> {
    let arguments: &[&str] = match format {
        "ext3" | "ext4" => &["-F", "-m0", disk],
        "xfs" => &["-f", disk],
        _ => &[disk],
    };
    info!(disk, format, "A disk has nothing on it, and is formatted");
    let wrong = |status: String, output: &str| {
        PluginError::LocalPath(format!(
            "format of disk {disk:?} failed: type:({format:?}) target:({target:?}) options:({options:?}) \
             errcode:({status}) output:({output}) "
        ))
    };
    // Where it is one name, it is a part of the tool's: no path leads elsewhere.
    if !format.chars().all(|letter| letter.is_ascii_alphanumeric()) {
        return Err(wrong("no such file system".to_owned(), ""));
    }
    let ended = run(&format!("mkfs.{format}"), arguments).map_err(|error| wrong(error.to_string(), ""))?;
    match ended.code {
        Some(0) => Ok(()),
        _ => Err(wrong(ended.status(), &ended.output)),
    }
}

/// Has what is broken on a disk mended. Only what could not be is an error.
fn mend(disk: &str) -> Result<(), PluginError> {
    match run("fsck", &["-a", disk]) {
        Ok(Ended { code: Some(0), .. }) => Ok(()),
        Ok(Ended { code: Some(NOT_MENDED), output }) => Err(PluginError::LocalPath(format!(
            "'fsck' found errors on device {disk} but could not correct them: {output}"
        ))),
        Ok(Ended { code, output }) => {
            info!(disk, ?code, output, "A disk was looked at by fsck");
            Ok(())
        }
        Err(error) => {
            warn!(disk, %error, "A disk is mounted without fsck");
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_with_partitions_or_with_something_unknown_counts_as_formatted() {
        assert_eq!(format_in("DEVNAME=/dev/sda\nTYPE=xfs\n"), "xfs");
        for output in ["DEVNAME=/dev/sda\nPTTYPE=dos\n", "TYPE=ext4\nPTTYPE=gpt\n", ""] {
            assert_eq!(format_in(output), "unknown data, probably partitions");
        }
    }
}
