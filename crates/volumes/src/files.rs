//! Making directories.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::io::Errno;

use crate::error::{FileError, failed};

/// Makes a directory and those above it. The error names the one that could not be made, as Go's does.
pub(crate) fn make_all(path: &Path, mode: u32) -> Result<(), FileError> {
    match fs::metadata(path) {
        Ok(there) if there.is_dir() => return Ok(()),
        Ok(_) => return Err(failed("mkdir", path)(Errno::NOTDIR)),
        Err(_) => {}
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        make_all(parent, mode)?;
    }
    match fs::DirBuilder::new().mode(mode).create(path) {
        // Somebody else was faster.
        Err(_) if fs::symlink_metadata(path).is_ok_and(|there| there.is_dir()) => Ok(()),
        made => made.map_err(failed("mkdir", path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_the_directory_that_could_not_be_made() {
        let place = tempfile::tempdir().unwrap();
        make_all(&place.path().join("a/b"), 0o755).unwrap();
        make_all(&place.path().join("a/b"), 0o755).unwrap();
        let file = place.path().join("a/file");
        fs::write(&file, "").unwrap();
        for path in [file.clone(), file.join("b/c")] {
            let error = make_all(&path, 0o755).unwrap_err();
            assert_eq!(error.to_string(), format!("mkdir {}: not a directory", file.display()));
        }
    }
}
