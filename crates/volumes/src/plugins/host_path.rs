//! `hostPath`: a file or directory of the node.

use std::fs;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use async_trait::async_trait;
use crablet_api::core::{HostPathType, PersistentVolumeSource, VolumeSource};
use crablet_core::translate::MountedVolume;

use crate::claims::mount_options;
use crate::error::{PluginError, failed};
use crate::files::make_all;
use crate::plugin::{Plugin, Request};

/// Volumes of the kind `hostPath`.
#[derive(Debug, Clone, Copy)]
pub struct HostPath;

#[async_trait]
impl Plugin for HostPath {
    fn supports(&self, source: &VolumeSource) -> bool {
        matches!(source, VolumeSource::HostPath(_))
    }

    fn supports_persistent(&self, source: &PersistentVolumeSource) -> bool {
        matches!(source, PersistentVolumeSource::HostPath(_))
    }

    fn refreshes(&self) -> bool {
        false
    }

    async fn set_up(&self, request: &Request) -> Result<MountedVolume, PluginError> {
        let source = match (request.persistent_source(), &*request.source) {
            (Some(PersistentVolumeSource::HostPath(source)), _) | (None, VolumeSource::HostPath(source)) => {
                source
            }
            _ => return Err(PluginError::NoSource),
        };
        if request.claimed.as_ref().is_some_and(|claimed| !mount_options(&claimed.volume).is_empty()) {
            return Err(PluginError::Check {
                check: "MountVolume.MountOptionSupport",
                why: "mount options are not supported for this volume type",
            });
        }
        let path = source.path.to_string();
        if path.split('/').any(|part| part == "..") {
            return Err(PluginError::HostPathBacksteps(path));
        }
        if let Some(wanted) = source.r#type.clone().filter(|wanted| *wanted != HostPathType::Unset) {
            let path = path.clone();
            // The path may be on a server that does not answer.
            request.blocking(move |_| check(&path, &wanted)).await?;
        }
        Ok(MountedVolume::Files { host_path: path, read_only: request.read_only, relabel: false })
    }
}

/// Checks that a path is what it should be, and makes it if that is asked for.
fn check(path: &str, wanted: &HostPathType) -> Result<(), PluginError> {
    let file = Path::new(path);
    let exists = fs::metadata(file).is_ok();
    match wanted {
        HostPathType::DirectoryOrCreate if !exists => {
            return Ok(make_all(file, 0o755)?);
        }
        HostPathType::FileOrCreate if !exists => {
            let made = fs::File::options().append(true).create(true).mode(0o644).open(file);
            return Ok(made.map(drop).map_err(failed("open", file))?);
        }
        _ => {}
    }
    let kind = fs::metadata(file).map(|metadata| metadata.file_type()).ok();
    let is = |test: fn(&fs::FileType) -> bool| kind.as_ref().is_some_and(test);
    let (right, words) = match wanted {
        HostPathType::Unset => (true, ""),
        HostPathType::DirectoryOrCreate | HostPathType::Directory => {
            (is(fs::FileType::is_dir), "a directory")
        }
        HostPathType::FileOrCreate | HostPathType::File => (is(fs::FileType::is_file), "a file"),
        HostPathType::Socket => (is(fs::FileType::is_socket), "a socket file"),
        HostPathType::CharDevice => (is(fs::FileType::is_char_device), "a character device"),
        HostPathType::BlockDevice => (is(fs::FileType::is_block_device), "a block device"),
        HostPathType::Other(word) => return Err(PluginError::HostPathUnknownType(word.to_string())),
    };
    match right {
        true => Ok(()),
        false => Err(PluginError::HostPathType { path: path.to_owned(), wanted: words }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn said(path: &Path, wanted: &str) -> String {
        match check(path.to_str().unwrap(), &wanted.into()) {
            Ok(()) => "ok".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn each_type_takes_its_own_kind_and_refuses_the_others() {
        let place = tempfile::tempdir().unwrap();
        let (directory, file, socket) =
            (place.path().join("directory"), place.path().join("file"), place.path().join("socket"));
        fs::create_dir(&directory).unwrap();
        fs::write(&file, "").unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let kinds = [
            ("directory", directory.as_path()),
            ("file", file.as_path()),
            ("socket", socket.as_path()),
            ("device", Path::new("/dev/null")),
            ("nothing", Path::new("/no/such/dir")),
        ];
        for (wanted, right, words) in [
            ("Directory", "directory", "a directory"),
            ("DirectoryOrCreate", "directory", "a directory"),
            ("File", "file", "a file"),
            ("FileOrCreate", "file", "a file"),
            ("Socket", "socket", "a socket file"),
            ("CharDevice", "device", "a character device"),
            ("BlockDevice", "", "a block device"),
        ] {
            for (kind, path) in kinds {
                if kind == "nothing" && wanted.ends_with("OrCreate") {
                    continue;
                }
                let expected = match kind == right {
                    true => "ok".to_owned(),
                    false => format!("hostPath type check failed: {} is not {words}", path.display()),
                };
                assert_eq!(said(path, wanted), expected, "{wanted} {kind}");
            }
        }
        assert_eq!(said(&file, "Chair"), "Chair is an invalid volume type");
    }

    #[test]
    fn links_are_followed_to_what_is_there() {
        let place = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(place.path(), place.path().join("link")).unwrap();
        assert_eq!(said(&place.path().join("link"), "Directory"), "ok");
        std::os::unix::fs::symlink("nowhere", place.path().join("broken")).unwrap();
        let broken = place.path().join("broken");
        assert_eq!(
            said(&broken, "Directory"),
            format!("hostPath type check failed: {} is not a directory", broken.display())
        );
    }

    #[test]
    fn what_is_missing_is_made_when_asked_for_and_kept_when_there() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("a/b");
        assert_eq!(said(&directory, "DirectoryOrCreate"), "ok");
        assert!(directory.is_dir());
        let file = directory.join("file");
        assert_eq!(said(&file, "FileOrCreate"), "ok");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
        fs::write(&file, "kept").unwrap();
        assert_eq!(said(&file, "FileOrCreate"), "ok");
        assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
        let below = file.join("below");
        assert_eq!(said(&below, "FileOrCreate"), format!("open {}: not a directory", below.display()));
        let missing = place.path().join("no/file");
        let expected = format!("open {}: no such file or directory", missing.display());
        assert_eq!(said(&missing, "FileOrCreate"), expected);
    }
}
