//! The configuration files on disk: which there are, and their texts.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The `*.conf` files of a directory and of the directories below it, in order of their names; or what could not be
/// read, and why.
pub(crate) fn drop_ins(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    match walk(directory, 0, &mut found) {
        Ok(()) => Ok(found),
        Err((path, error)) => Err(format!("{}: cannot be read: {}", path.display(), reason(&error))),
    }
}

/// Reads a whole text file, no more than it may have. An error is what follows the file's name.
pub(crate) fn read(path: &Path, limit: usize) -> Result<String, String> {
    let unreadable = |error| format!(": cannot be read: {}", reason(&error));
    let file = open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    let more_than_allowed = limit as u64 + 1;
    file.take(more_than_allowed).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > limit {
        return Err(format!(": is larger than {limit} bytes, the most that is accepted"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let line =
            1 + error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|b| **b == b'\n').count();
        format!(":{line}: is not UTF-8 text")
    })
}

/// Directories nested deeper than this are a loop or a mistake.
const DEEPEST_DIRECTORY: usize = 32;

fn walk(path: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), (PathBuf, io::Error)> {
    let at = |error| (path.to_owned(), error);
    if depth > DEEPEST_DIRECTORY {
        return Err(at(io::Error::other(format!(
            "the directories are nested more than {DEEPEST_DIRECTORY} levels deep"
        ))));
    }
    let mut entries: Vec<_> = std::fs::read_dir(path).and_then(Iterator::collect).map_err(at)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        // As upstream, a link to a directory is not followed; a link to a file is read.
        if entry.file_type().map_err(at)?.is_dir() {
            walk(&path, depth + 1, found)?;
        } else if path.extension().is_some_and(|extension| extension == "conf") {
            found.push(path);
        }
    }
    Ok(())
}

/// Opens a file for reading, unless it is something that could keep us waiting or never end.
fn open(path: &Path) -> io::Result<File> {
    let kind = std::fs::metadata(path)?.file_type();
    match (kind.is_file(), kind.is_dir()) {
        (true, _) => File::open(path),
        (_, true) => Err(io::Error::other("it is a directory, not a file")),
        // A shell's `<(…)` and standard input are pipes with somebody at the other end.
        _ if path.starts_with("/dev/fd") || path == Path::new("/dev/stdin") => File::open(path),
        _ => Err(io::Error::other("it is not a regular file")),
    }
}

/// The system's words for an error, without its number.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        io::ErrorKind::NotADirectory => "not a directory".into(),
        _ => match error.to_string() {
            text if error.raw_os_error().is_some() => {
                text.split(" (os error ").next().unwrap_or_default().to_lowercase()
            }
            text => text,
        },
    }
}
