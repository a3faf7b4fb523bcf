//! The host's own tools for file systems, as upstream uses them.

use std::io::{self, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};

use tracing::{info, warn};

/// How much of what a tool says is told.
const LONGEST_OUTPUT: u64 = 4096;
/// What upstream formats a disk as where nobody says.
pub(crate) const DEFAULT_FORMAT: &str = "ext4";
/// What `blkid` exits with for a disk on which it finds nothing.
const NOTHING_FOUND: i32 = 2;
/// What `fsck` exits with where it could not mend what it found.
const NOT_MENDED: i32 = 4;

/// What a tool could not do. The words are upstream's.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error(
        "mount failed: {how}\nMounting command: mount\nMounting arguments: {arguments}\nOutput: {output}"
    )]
    Mount { arguments: String, how: Ending, output: String },
    /// What is on a disk cannot be seen.
    #[error("failed to get disk format of disk {disk}: {how}")]
    NoFormat { disk: String, how: Ending },
    #[error("cannot mount unformatted disk {disk} as we are manipulating it in read-only mode")]
    Unformatted { disk: String },
    #[error(
        "format of disk {disk:?} failed: type:({format:?}) target:({target:?}) options:({options:?}) \
         errcode:({how}) output:({output}) "
    )]
    Format {
        disk: Box<str>,
        format: Box<str>,
        target: Box<str>,
        options: Box<[String]>,
        how: Ending,
        output: Box<str>,
    },
    #[error("'fsck' found errors on device {disk} but could not correct them: {output}")]
    NotMended { disk: String, output: String },
    #[error("ResizeFS.Resize - error checking format for device {disk}: {cause}")]
    ResizeOfUnknown { disk: String, cause: Box<ToolError> },
    #[error(
        "ResizeFS.Resize - resize of format {format} is not supported for device {disk} mounted at {target}"
    )]
    NoResize { disk: String, format: String, target: String },
    #[error("resize of device {what} failed: {how}. {program} output: {output}")]
    Resize { what: String, program: &'static str, how: Ending, output: String },
}

/// How a tool ended, or why it did not begin.
#[derive(Debug, thiserror::Error)]
pub enum Ending {
    #[error("exit status {0}")]
    Exit(i32),
    #[error("signal")]
    Signal,
    #[error("no such file system")]
    NoFileSystem,
    #[error("{0}")]
    NotRun(io::Error),
}

/// Runs a tool, and says what it said.
fn run(program: &str, arguments: &[&str]) -> (Ending, String) {
    let mut output = Vec::new();
    let ending = run_into(&mut output, program, arguments).unwrap_or_else(Ending::NotRun);
    (ending, String::from_utf8_lossy(&output).into_owned())
}

/// What it says beyond what is told goes nowhere: on a broken disk `fsck` does not stop.
fn run_into(output: &mut Vec<u8>, program: &str, arguments: &[&str]) -> io::Result<Ending> {
    let (said, says) = io::pipe()?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(says.try_clone()?).stderr(says);
    let child = command.spawn();
    // Our ends of what it writes to.
    drop(command);
    let mut child = child?;
    let mut said = said.take(LONGEST_OUTPUT);
    let heard = said.read_to_end(output).and_then(|_| io::copy(&mut said.into_inner(), &mut io::sink()));
    let ended = child.wait()?;
    heard?;
    Ok(ended.code().map_or(Ending::Signal, Ending::Exit))
}

/// Mounts something by the tool `mount`.
pub(crate) fn mount(arguments: &[&str]) -> Result<(), ToolError> {
    match run("mount", arguments) {
        (Ending::Exit(0), _) => Ok(()),
        (how, output) => Err(ToolError::Mount { arguments: arguments.join(" "), how, output }),
    }
}

/// Mounts a disk. One with nothing on it is formatted first; what is on it is mended where it can be.
pub(crate) fn format_and_mount(
    disk: &Path,
    target: &Path,
    format: &str,
    mut options: Vec<String>,
) -> Result<(), ToolError> {
    let is_read_only = options.iter().any(|option| option == "ro");
    let disk = disk.display().to_string();
    match found_on(&disk)? {
        None if is_read_only => return Err(ToolError::Unformatted { disk }),
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

/// Makes the file system on a disk, which is mounted, as large as the disk. Where there is none, the next one is.
pub(crate) fn resize(disk: &Path, target: &Path) -> Result<(), ToolError> {
    let [disk, target] = [disk, target].map(|path| path.display().to_string());
    let found = match found_on(&disk) {
        Ok(found) => found,
        Err(cause) => return Err(ToolError::ResizeOfUnknown { disk, cause: Box::new(cause) }),
    };
    let Some(format) = found else { return Ok(()) };
    let Some(Resizing { program, arguments, what }) = resizing(&format, &disk, &target) else {
        return Err(ToolError::NoResize { disk, format, target });
    };
    match run(program, &arguments) {
        (Ending::Exit(0), _) => Ok(()),
        (how, output) => Err(ToolError::Resize { what: what.to_owned(), program, how, output }),
    }
}

/// What makes a file system larger.
#[derive(Debug, PartialEq, Eq)]
struct Resizing<'a> {
    program: &'static str,
    arguments: Vec<&'a str>,
    /// What an error names.
    what: &'a str,
}

/// What is run for file systems of a format; nothing where nobody knows.
fn resizing<'a>(format: &str, disk: &'a str, target: &'a str) -> Option<Resizing<'a>> {
    let (program, arguments, what) = match format {
        "ext3" | "ext4" => ("resize2fs", vec![disk], disk),
        "xfs" => ("xfs_growfs", vec!["-d", target], target),
        "btrfs" => ("btrfs", vec!["filesystem", "resize", "max", target], target),
        _ => return None,
    };
    Some(Resizing { program, arguments, what })
}

/// What a disk is formatted as, if there is anything on it.
fn found_on(disk: &str) -> Result<Option<String>, ToolError> {
    match run("blkid", &["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", disk]) {
        (Ending::Exit(0), output) => Ok(Some(format_in(&output))),
        (Ending::Exit(NOTHING_FOUND), _) => Ok(None),
        (how, _) => Err(ToolError::NoFormat { disk: disk.to_owned(), how }),
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

fn make_file_system(disk: &str, format: &str, target: &str, options: &[String]) -> Result<(), ToolError> {
    let arguments: &[&str] = match format {
        "ext3" | "ext4" => &["-F", "-m0", disk],
        "xfs" => &["-f", disk],
        _ => &[disk],
    };
    info!(disk, format, "A disk has nothing on it, and is formatted");
    // Where it is one name, it is a part of the tool's: no path leads elsewhere.
    let (how, output) = match format.chars().all(|letter| letter.is_ascii_alphanumeric()) {
        true => run(&format!("mkfs.{format}"), arguments),
        false => (Ending::NoFileSystem, String::new()),
    };
    match how {
        Ending::Exit(0) => Ok(()),
        how => Err(ToolError::Format {
            disk: disk.into(),
            format: format.into(),
            target: target.into(),
            options: options.into(),
            how,
            output: output.into(),
        }),
    }
}

/// Has what is broken on a disk mended. Only what could not be is an error.
fn mend(disk: &str) -> Result<(), ToolError> {
    match run("fsck", &["-a", disk]) {
        (Ending::Exit(0), _) => Ok(()),
        (Ending::Exit(NOT_MENDED), output) => Err(ToolError::NotMended { disk: disk.to_owned(), output }),
        (Ending::NotRun(error), _) => {
            warn!(disk, %error, "A disk is mounted without fsck");
            Ok(())
        }
        (how, output) => {
            info!(disk, %how, output, "A disk was looked at by fsck");
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_system_has_its_own_way_to_become_larger() {
        let run = |format| resizing(format, "/dev/d", "/t").map(|it| (it.program, it.arguments, it.what));
        assert_eq!(run("ext4"), Some(("resize2fs", vec!["/dev/d"], "/dev/d")));
        assert_eq!(run("xfs"), Some(("xfs_growfs", vec!["-d", "/t"], "/t")));
        assert_eq!(run("btrfs"), Some(("btrfs", vec!["filesystem", "resize", "max", "/t"], "/t")));
        assert_eq!(run("vfat"), None);
    }

    #[test]
    fn a_disk_with_partitions_or_with_something_unknown_counts_as_formatted() {
        assert_eq!(format_in("DEVNAME=/dev/sda\nTYPE=xfs\n"), "xfs");
        for output in ["DEVNAME=/dev/sda\nPTTYPE=dos\n", "TYPE=ext4\nPTTYPE=gpt\n", ""] {
            assert_eq!(format_in(output), "unknown data, probably partitions");
        }
    }
}
