//! The files by which the kernel is told about cgroups.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::path::Path;

use super::CgroupError;

/// The most that is read from one file. `cgroup.procs` of a crowded pod is the longest.
const LONGEST: u64 = 4 << 20;

/// Cgroups as directories and files. Tests put a kernel of their own behind it, since a machine has but one version.
pub(super) trait ControlFiles: Send + Sync {
    /// Makes a cgroup. Says whether it had to be made.
    fn create(&self, directory: &Path) -> io::Result<bool>;
    /// Removes a cgroup that has none below it.
    fn remove(&self, directory: &Path) -> io::Result<()>;
    /// Whether there is such a file or cgroup.
    fn exists(&self, path: &Path) -> bool;
    /// Writes a value at once: the kernel takes each write for a command.
    fn write(&self, file: &Path, value: &str) -> io::Result<()>;
    fn read(&self, file: &Path) -> io::Result<String>;
    /// The names of the cgroups right below a cgroup.
    fn children(&self, directory: &Path) -> io::Result<Vec<String>>;
    /// The names of the files of a cgroup.
    fn files(&self, directory: &Path) -> io::Result<Vec<String>>;
    /// Whether a process runs a program, and is no part of the kernel.
    fn has_program(&self, process: u32) -> bool;
    /// Where this process stands in each tree, in the form of `/proc/self/cgroup`.
    fn own_places(&self) -> Result<String, CgroupError>;
}

/// The file systems that the kernel mounted.
pub(super) struct Mounted;

impl ControlFiles for Mounted {
    fn create(&self, directory: &Path) -> io::Result<bool> {
        match std::fs::create_dir(directory) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn remove(&self, directory: &Path) -> io::Result<()> {
        std::fs::remove_dir(directory)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn write(&self, file: &Path, value: &str) -> io::Result<()> {
        // Never with `create`: a file that is missing is a controller that is missing.
        OpenOptions::new().write(true).open(file)?.write_all(value.as_bytes())
    }

    fn read(&self, file: &Path) -> io::Result<String> {
        let mut text = String::new();
        OpenOptions::new().read(true).open(file)?.take(LONGEST).read_to_string(&mut text)?;
        Ok(text)
    }

    fn children(&self, directory: &Path) -> io::Result<Vec<String>> {
        names(directory, |kind| kind.is_dir())
    }

    fn files(&self, directory: &Path) -> io::Result<Vec<String>> {
        names(directory, |kind| kind.is_file())
    }

    fn has_program(&self, process: u32) -> bool {
        match std::fs::read_link(format!("/proc/{process}/exe")) {
            Ok(_) => true,
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    fn own_places(&self) -> Result<String, CgroupError> {
        read(self, Path::new("/proc/self"), "cgroup")
    }
}

/// The names in a directory of what is of a kind, in order.
fn names(directory: &Path, kind: impl Fn(std::fs::FileType) -> bool) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if kind(entry.file_type()?)
            && let Ok(name) = entry.file_name().into_string()
        {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Writes a value to a cgroup's file.
pub(super) fn write(
    files: &dyn ControlFiles,
    cgroup: &Path,
    file: &str,
    value: &str,
) -> Result<(), CgroupError> {
    let path = cgroup.join(file);
    files.write(&path, value).map_err(|source| CgroupError::Write { path, value: value.into(), source })
}

/// What a cgroup's file says, without the space around it.
pub(super) fn read(files: &dyn ControlFiles, cgroup: &Path, file: &str) -> Result<String, CgroupError> {
    let path = cgroup.join(file);
    match files.read(&path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(source) => Err(CgroupError::Read { path, source }),
    }
}

/// What a cgroup's file says, or nothing if there is no such file.
pub(super) fn read_if_there(
    files: &dyn ControlFiles,
    cgroup: &Path,
    file: &str,
) -> Result<Option<String>, CgroupError> {
    match read(files, cgroup, file) {
        Ok(text) => Ok(Some(text)),
        Err(CgroupError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A number from a cgroup's file.
pub(super) fn number(text: &str, cgroup: &Path, file: &str) -> Result<u64, CgroupError> {
    let malformed =
        || CgroupError::Malformed { path: cgroup.join(file), value: text.into(), expected: "a number" };
    text.parse().map_err(|_| malformed())
}
