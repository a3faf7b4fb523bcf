//! Removing a directory with all that is in it, and nothing that is only mounted in it.
//!
//! Containers made what is in there, so it may be as deep as they like: neither the stack nor the number of open files
//! grows with it. Links are removed and not followed.

use std::ffi::{CString, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::beneath::{Method, open_on_same_mount};
use crate::error::{FileError, TearDownError, failed};

/// Directories deeper than this are moved up before they are emptied.
const DEEPEST: usize = 32;

/// Removes a directory with all that is in it, and nothing that is only mounted in it: that is an error. It is no error
/// if there is none.
pub fn remove_directory(path: &Path) -> Result<(), TearDownError> {
    remove_tree(path, Method::Kernel)
}

/// Removes a directory with all below. It is no error if there is none. Something mounted in it, or on it, is an error
/// and keeps all that it shows.
pub(crate) fn remove_tree(path: &Path, method: Method) -> Result<(), TearDownError> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(c_name)) else {
        return Err(failed("remove", path)(Errno::INVAL).into());
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = match rustix::fs::open(parent, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened.map_err(failed("open", parent))?,
    };
    let base = match open_on_same_mount(&parent, &name, method) {
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::XDEV) => return Err(TearDownError::StillMounted(path.to_owned())),
        opened => opened.map_err(failed("open", path))?,
    };
    let mut removal = Removal { path, method, open: Vec::new(), moved: 0 };
    removal.empty(base)?;
    removal.remove(&parent, &name, AtFlags::REMOVEDIR)
}

struct Removal<'a> {
    path: &'a Path,
    method: Method,
    /// The directory that is being emptied and those above it, down from the base. The name is the one in the
    /// directory above.
    open: Vec<(OwnedFd, CString)>,
    moved: usize,
}

impl Removal<'_> {
    fn empty(&mut self, base: OwnedFd) -> Result<(), TearDownError> {
        self.open.push((base, c".".to_owned()));
        while let Some((directory, _)) = self.open.last() {
            match self.remove_files(directory)? {
                Some(name) if self.open.len() < DEEPEST => {
                    let child = match open_on_same_mount(directory, &name, self.method) {
                        Err(Errno::NOENT) => continue,
                        Err(Errno::XDEV) => {
                            return Err(TearDownError::StillMounted(self.path_of(Some(&name))));
                        }
                        opened => opened.map_err(failed("open", &self.path_of(Some(&name))))?,
                    };
                    self.open.push((child, name));
                }
                Some(name) => self.move_up(&name)?,
                None => {
                    if let Some((_, name)) = self.open.pop()
                        && let Some((above, _)) = self.open.last()
                    {
                        self.remove(above, &name, AtFlags::REMOVEDIR)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Removes what is no directory, and empty directories, until one is found that is not empty.
    fn remove_files(&self, directory: &OwnedFd) -> Result<Option<CString>, TearDownError> {
        let entries = Dir::read_from(directory).map_err(failed("open", &self.path_of(None)))?;
        for entry in entries {
            let entry = entry.map_err(failed("readdirent", &self.path_of(None)))?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if entry.file_type() != FileType::Directory {
                match self.remove(directory, name, AtFlags::empty()) {
                    Err(TearDownError::File(error)) if is_directory(&error) => {}
                    removed => {
                        removed?;
                        continue;
                    }
                }
            }
            match rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => {}
                // Another kernel or file system may say it with the second word.
                Err(Errno::NOTEMPTY | Errno::EXIST) => return Ok(Some(name.to_owned())),
                Err(Errno::BUSY) => return Err(TearDownError::StillMounted(self.path_of(Some(name)))),
                Err(error) => return Err(failed("remove", &self.path_of(Some(name)))(error).into()),
            }
        }
        Ok(None)
    }

    fn remove(
        &self,
        directory: &OwnedFd,
        name: &std::ffi::CStr,
        flags: AtFlags,
    ) -> Result<(), TearDownError> {
        match rustix::fs::unlinkat(directory, name, flags) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::BUSY) => Err(TearDownError::StillMounted(self.path_of(Some(name)))),
            Err(error) => Err(failed("remove", &self.path_of(Some(name)))(error).into()),
        }
    }

    /// Moves a directory from the deepest level to the base, to be emptied from there.
    fn move_up(&mut self, name: &std::ffi::CStr) -> Result<(), TearDownError> {
        let (Some((from, _)), Some((base, _))) = (self.open.last(), self.open.first()) else { return Ok(()) };
        loop {
            let moved = format!("..moved-{}-{}", std::process::id(), self.moved);
            self.moved += 1;
            let flags = rustix::fs::RenameFlags::NOREPLACE;
            match rustix::fs::renameat_with(from, name, base, moved.as_str(), flags) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                Err(Errno::EXIST) => {}
                Err(Errno::BUSY) => return Err(TearDownError::StillMounted(self.path_of(Some(name)))),
                Err(error) => return Err(failed("rename", &self.path_of(Some(name)))(error).into()),
            }
        }
    }

    fn path_of(&self, name: Option<&std::ffi::CStr>) -> PathBuf {
        let names = self.open.iter().skip(1).map(|(_, name)| name.as_c_str()).chain(name);
        names.fold(self.path.to_owned(), |path, name| path.join(OsStr::from_bytes(name.to_bytes())))
    }
}

fn is_directory(error: &FileError) -> bool {
    error.source.kind() == std::io::ErrorKind::IsADirectory
}

fn c_name(name: &OsStr) -> Option<CString> {
    CString::new(name.to_owned().into_vec()).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use crablet_host::mounts;

    use super::*;
    use crate::testing::Place;

    const METHODS: [Method; 2] = [Method::Kernel, Method::PartByPart];

    #[test]
    fn everything_in_a_directory_goes_and_what_links_lead_to_stays() {
        for method in METHODS {
            let place = Place::new();
            let tree = place.directory("tree");
            let kept = place.directory("kept");
            fs::write(kept.join("file"), "").unwrap();
            place.directory("tree/a/b/c");
            place.directory("tree/a/empty");
            for file in ["tree/one", "tree/a/two", "tree/a/b/c/three"] {
                fs::write(place.path().join(file), "x").unwrap();
            }
            symlink(&kept, tree.join("a/link")).unwrap();
            remove_tree(&tree, method).unwrap();
            assert!(!tree.exists());
            assert!(kept.join("file").exists());
            remove_tree(&tree, method).unwrap();
            remove_tree(&tree.join("below/nothing"), method).unwrap();
        }
    }

    #[test]
    fn a_link_in_the_place_of_the_directory_is_not_followed() {
        for method in METHODS {
            let place = Place::new();
            let kept = place.directory("kept");
            fs::write(kept.join("file"), "").unwrap();
            symlink(&kept, place.path().join("tree")).unwrap();
            assert!(remove_tree(&place.path().join("tree"), method).is_err());
            assert!(kept.join("file").exists());
        }
    }

    #[test]
    fn a_tree_of_any_depth_goes() {
        let place = Place::new();
        let tree = place.directory("tree");
        // Deeper than a path can be long, and than many processes can have files open.
        let mut directory = rustix::fs::open(&tree, OFlags::PATH, Mode::empty()).unwrap();
        for _ in 0..1100 {
            rustix::fs::mkdirat(&directory, "deeper", Mode::from_raw_mode(0o700)).unwrap();
            directory = rustix::fs::openat(&directory, "deeper", OFlags::PATH, Mode::empty()).unwrap();
        }
        remove_tree(&tree, Method::Kernel).unwrap();
        assert!(!tree.exists());
    }

    #[test]
    fn what_is_mounted_within_is_never_emptied() {
        for method in METHODS {
            for deep in ["tree", "tree/a", "tree/a/b"] {
                let place = Place::new();
                let precious = place.directory("precious");
                fs::write(precious.join("file"), "content").unwrap();
                place.directory("tree/a/b");
                // The same file system, so that only the mount itself tells it from what may be removed.
                mounts::bind(&precious, &place.path().join(deep), false).unwrap();
                let error = remove_tree(&place.path().join("tree"), method).unwrap_err();
                assert!(
                    matches!(&error, TearDownError::StillMounted(path) if *path == place.path().join(deep)),
                    "{deep}: {error:?}"
                );
                assert_eq!(fs::read_to_string(precious.join("file")).unwrap(), "content");
            }
        }
    }

    #[test]
    fn a_file_that_something_is_mounted_on_stays() {
        let place = Place::new();
        let tree = place.directory("tree");
        fs::write(place.path().join("precious"), "content").unwrap();
        fs::write(tree.join("target"), "").unwrap();
        mounts::bind(&place.path().join("precious"), &tree.join("target"), false).unwrap();
        let error = remove_tree(&tree, Method::Kernel).unwrap_err();
        assert!(matches!(error, TearDownError::StillMounted(_)), "{error:?}");
        assert_eq!(fs::read_to_string(place.path().join("precious")).unwrap(), "content");
    }
}
