//! Files that change all at once.
//!
//! What a reader sees are links through `..data`, which is itself a link to a directory with the files. A change makes
//! a new directory and renames a new `..data` over the old one: a reader that opens `..data` once sees one version and
//! no mixture. The layout is upstream's, since programs watch for the rename.
//!
//! ```text
//! ..2026_01_31_23_59_59.123456789/labels     the files
//! ..data -> ..2026_01_31_23_59_59.123456789  the version in force
//! labels -> ..data/labels                    what readers open
//! ```

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, lchown, symlink};
use std::path::{Component, Path, PathBuf};

use crablet_host::files::{is_exactly, open_regular};
use jiff::Timestamp;

use crate::error::{FileError, failed};

const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";
const LONGEST_NAME: usize = 255;
const LONGEST_PATH: usize = 4096;

/// A file that a volume shows.
#[derive(Clone, PartialEq, Eq)]
pub struct ProjectedFile {
    /// What is in it.
    pub content: Vec<u8>,
    /// Its permissions.
    pub mode: u32,
    /// Who owns it, if not the agent.
    pub user: Option<u32>,
}

/// Without the content, which may be a secret.
impl fmt::Debug for ProjectedFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} bytes, mode {:o}, user {:?}", self.content.len(), self.mode, self.user)
    }
}

/// Why files cannot be shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    #[error("invalid path: must not be empty: \"\"")]
    Empty,
    #[error("invalid path: must be relative path: {0}")]
    Absolute(String),
    #[error("invalid path: must be less than or equal to {LONGEST_PATH} characters")]
    TooLong,
    #[error("invalid path: must not contain '..': {0}")]
    Backsteps(String),
    #[error("invalid path: filenames must be less than or equal to {LONGEST_NAME} characters")]
    NameTooLong,
    #[error("invalid path: must not start with '..': {0}")]
    Reserved(String),
    /// One file stands where another needs a directory.
    #[error("invalid path: {0} is both a file and a directory")]
    Both(String),
}

/// Files by their paths below the volume's root, each path checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Payload {
    files: BTreeMap<PathBuf, ProjectedFile>,
    /// Whether more of them come later: what is shown already is better then.
    is_incomplete: bool,
}

impl Payload {
    /// Checks the paths of files.
    pub fn new(files: BTreeMap<String, ProjectedFile>) -> Result<Payload, PayloadError> {
        let mut clean = BTreeMap::new();
        for (path, file) in files {
            check_path(&path)?;
            let parts = Path::new(&path).components().filter(|part| !matches!(part, Component::CurDir));
            let path: PathBuf = parts.collect();
            if path.as_os_str().is_empty() {
                return Err(PayloadError::Empty);
            }
            clean.insert(path, file);
        }
        for path in clean.keys() {
            if let Some(both) = path.ancestors().skip(1).find(|above| clean.contains_key(*above)) {
                return Err(PayloadError::Both(both.display().to_string()));
            }
        }
        Ok(Payload { files: clean, is_incomplete: false })
    }

    /// The same, of which more comes later.
    pub fn incomplete(self) -> Payload {
        Payload { is_incomplete: true, ..self }
    }

    /// Whether more of it comes later.
    pub fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    /// The files, by their paths.
    #[cfg(any(test, feature = "simulated"))]
    pub(crate) fn files(&self) -> &BTreeMap<PathBuf, ProjectedFile> {
        &self.files
    }

    /// The names that readers see in the volume's root.
    fn visible(&self) -> BTreeMap<&OsStr, &ProjectedFile> {
        let mut visible = BTreeMap::new();
        for (path, file) in &self.files {
            if let Some(Component::Normal(name)) = path.components().next() {
                visible.entry(name).or_insert(file);
            }
        }
        visible
    }
}

fn check_path(path: &str) -> Result<(), PayloadError> {
    if path.is_empty() {
        return Err(PayloadError::Empty);
    }
    if path.starts_with('/') {
        return Err(PayloadError::Absolute(path.to_owned()));
    }
    if path.len() > LONGEST_PATH {
        return Err(PayloadError::TooLong);
    }
    for name in path.split('/') {
        if name == ".." {
            return Err(PayloadError::Backsteps(path.to_owned()));
        }
        if name.len() > LONGEST_NAME {
            return Err(PayloadError::NameTooLong);
        }
    }
    // Also after `./`, which upstream overlooks: the names belong to the writer.
    let first = path.split('/').find(|name| !name.is_empty() && *name != ".");
    match first.is_some_and(|name| name.starts_with("..")) {
        true => Err(PayloadError::Reserved(path.to_owned())),
        false => Ok(()),
    }
}

/// Whether anything was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// There is a new version.
    Changed,
    /// The files were already as they should be.
    Unchanged,
}

/// Shows files in a directory, all at once. `own` gives the new files to whom they belong, before anybody sees them.
///
/// It can be killed at any point: the next call removes what was left half-done.
pub fn write(
    directory: &Path,
    payload: &Payload,
    now: Timestamp,
    own: impl FnOnce() -> Result<(), FileError>,
) -> Result<Written, FileError> {
    let data = directory.join(DATA);
    let current = match fs::read_link(&data) {
        Ok(current) => Some(current),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed("readlink", &data)(error)),
    };
    let unchanged = match &current {
        Some(current) => shows(&directory.join(current), payload)?,
        None => false,
    };
    let version = match (unchanged, current) {
        (true, Some(current)) => current,
        (true, None) | (false, _) => {
            let version = new_version(directory, now)?;
            let path = directory.join(&version);
            fill(&path, payload)?;
            own()?;
            publish(directory, &version)?;
            version
        }
    };
    link(directory, payload)?;
    sweep(directory, payload, &version)?;
    Ok(if unchanged { Written::Unchanged } else { Written::Changed })
}

/// Whether a directory shows files already, whichever.
pub(crate) fn shows_something(directory: &Path) -> bool {
    directory.join(DATA).is_dir()
}

/// Whether a version has these files with this content, and no others. Modes are not compared: a change of group
/// widens them. However much somebody else put there, no more is read than it takes to see that.
fn shows(version: &Path, payload: &Payload) -> Result<bool, FileError> {
    match count_files(version, Path::new(""), payload) {
        Ok(Some(count)) if count == payload.files.len() => {}
        Ok(Some(_) | None) => return Ok(false),
        Err(error) if error.source.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    }
    for (path, file) in &payload.files {
        let path = version.join(path);
        let same = open_regular(&path, File::options().read(true))
            .and_then(|opened| is_exactly(opened, &file.content))
            .map_err(failed("open", &path))?;
        if !same {
            return Ok(false);
        }
    }
    Ok(true)
}

/// How many files there are, as long as all of them are in the payload.
fn count_files(version: &Path, below: &Path, payload: &Payload) -> Result<Option<usize>, FileError> {
    let (directory, mut count) = (version.join(below), 0);
    for entry in fs::read_dir(&directory).map_err(failed("open", &directory))? {
        let entry = entry.map_err(failed("readdirent", &directory))?;
        let path = below.join(entry.file_name());
        let kind = entry.file_type().map_err(failed("lstat", &entry.path()))?;
        let found = match kind.is_dir() {
            true => count_files(version, &path, payload)?,
            false => (kind.is_file() && payload.files.contains_key(&path)).then_some(1),
        };
        match found {
            Some(found) => count += found,
            None => return Ok(None),
        }
    }
    Ok(Some(count))
}

/// A directory of its own for a new version.
fn new_version(directory: &Path, now: Timestamp) -> Result<PathBuf, FileError> {
    let time = now.strftime("..%Y_%m_%d_%H_%M_%S.");
    let mut number = now.subsec_nanosecond().unsigned_abs();
    loop {
        let name = PathBuf::from(format!("{time}{number}"));
        let path = directory.join(&name);
        match fs::create_dir(&path) {
            // Not by the call before, where the process's umask takes from it.
            Ok(()) => return set_mode(&path, 0o755).map(|()| name),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(failed("mkdir", &path)(error)),
        }
    }
}

fn fill(version: &Path, payload: &Payload) -> Result<(), FileError> {
    for (path, file) in &payload.files {
        let path = version.join(path);
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(failed("mkdir", directory))?;
        }
        let mut opened = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(failed("open", &path))?;
        opened.write_all(&file.content).map_err(failed("write", &path))?;
        // The owner first: changing it takes away the bits that let a file run as its owner.
        if file.user.is_some() {
            lchown(&path, file.user, None).map_err(failed("lchown", &path))?;
        }
        set_mode(&path, file.mode)?;
    }
    Ok(())
}

/// The one moment at which everything changes.
fn publish(directory: &Path, version: &Path) -> Result<(), FileError> {
    let new = directory.join(NEW_DATA);
    match fs::remove_file(&new) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed("remove", &new)(error)),
    }
    symlink(version, &new).map_err(failed("symlink", &new))?;
    fs::rename(&new, directory.join(DATA)).map_err(failed("rename", &new))
}

fn link(directory: &Path, payload: &Payload) -> Result<(), FileError> {
    for (name, file) in payload.visible() {
        let path = directory.join(name);
        match fs::symlink_metadata(&path) {
            // A link from before, or a directory that another volume is to be mounted on.
            Ok(_) => continue,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("lstat", &path)(error)),
        }
        symlink(Path::new(DATA).join(name), &path).map_err(failed("symlink", &path))?;
        if file.user.is_some() {
            lchown(&path, file.user, None).map_err(failed("lchown", &path))?;
        }
    }
    Ok(())
}

/// Removes links to files that are no more, and versions that are not in force: the last one, and those that a crash
/// left.
fn sweep(directory: &Path, payload: &Payload, version: &Path) -> Result<(), FileError> {
    let visible = payload.visible();
    for entry in fs::read_dir(directory).map_err(failed("open", directory))? {
        let entry = entry.map_err(failed("readdirent", directory))?;
        let (name, path) = (entry.file_name(), entry.path());
        let kind = entry.file_type().map_err(failed("lstat", &path))?;
        if kind.is_dir() {
            if is_version(&name) && Path::new(&name) != version {
                fs::remove_dir_all(&path).map_err(failed("remove", &path))?;
            }
        } else if kind.is_symlink() && name != DATA {
            let ours = name == NEW_DATA
                || fs::read_link(&path).is_ok_and(|to| to == Path::new(DATA).join(&name))
                    && !visible.contains_key(name.as_os_str());
            if ours {
                fs::remove_file(&path).map_err(failed("remove", &path))?;
            }
        }
    }
    Ok(())
}

fn is_version(name: &OsStr) -> bool {
    name.to_str()
        .and_then(|name| name.strip_prefix(".."))
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

fn set_mode(path: &Path, mode: u32) -> Result<(), FileError> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed("chmod", path))
}

#[cfg(test)]
mod tests;
