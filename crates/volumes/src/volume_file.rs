//! The beginning of a file in a volume, whatever the containers that write to the volume make of it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::beneath::{Base, Method, Refused};
use crate::sub_path::downwards;

/// A file in a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeFile {
    /// The pod's UID.
    pub uid: String,
    /// Where the volume is on the node: `host_path` of its `MountedVolume`.
    pub volume_path: PathBuf,
    /// The path below it.
    pub path: String,
}

/// Reads the beginning of a file. Links are followed as long as they stay within the volume.
pub(crate) fn read(file: &VolumeFile, limit: usize, method: Method) -> io::Result<Vec<u8>> {
    let outside = || io::Error::new(io::ErrorKind::InvalidInput, "it leads out of the volume");
    let path = downwards(&file.path).ok_or_else(outside)?;
    let place = Base::open(&file.volume_path, method)?.place(&path).map_err(|refused| match refused {
        Refused::Missing => io::Error::from(Errno::NOENT),
        Refused::Outside => outside(),
        Refused::Failed(error) => error.into(),
    })?;
    // Nothing is opened for reading before it is known to be a plain file: a pipe would be waited for.
    if FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
    }
    let opened = File::open(Path::new(&format!("/proc/self/fd/{}", place.as_raw_fd())))?;
    let mut content = Vec::new();
    opened.take(limit as u64).read_to_end(&mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::testing::Place;

    #[test]
    fn a_file_is_read_within_its_volume_and_nothing_else_is() {
        for method in [Method::Kernel, Method::PartByPart] {
            let place = Place::new();
            let volume = place.directory("volume");
            place.directory("volume/a");
            fs::write(volume.join("a/file"), "content").unwrap();
            fs::write(place.path().join("secret"), "hunter2").unwrap();
            symlink("a/file", volume.join("link")).unwrap();
            symlink("../secret", volume.join("out")).unwrap();
            symlink(place.path().join("secret"), volume.join("out-from-the-root")).unwrap();
            let pipe = volume.join("pipe");
            rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, 0o600.into(), 0).unwrap();
            let read = |path: &str| {
                let file = VolumeFile { uid: "u".into(), volume_path: volume.clone(), path: path.to_owned() };
                match super::read(&file, 5, method) {
                    Ok(content) => String::from_utf8(content).unwrap(),
                    Err(error) => error.to_string(),
                }
            };
            assert_eq!([read("a/file"), read("./a//file"), read("link")], ["conte", "conte", "conte"]);
            let outside = "it leads out of the volume";
            for path in ["out", "out-from-the-root", "../secret", "/etc/passwd", "a/../../secret"] {
                assert_eq!(read(path), outside, "{method:?} {path}");
            }
            assert_eq!([read("a"), read("pipe")], ["it is not a file", "it is not a file"]);
            assert_eq!(read("missing"), "No such file or directory (os error 2)");
        }
    }
}
