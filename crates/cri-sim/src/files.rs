//! What a container sees of files: its own few in memory, and those on the machine that are mounted into it.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::PathBuf;

use crablet_cri_api::v1;

/// The most that is kept of a file or read from one.
const LARGEST: usize = 1 << 20;
const MOST_FILES: usize = 1000;

/// The directories that every container has; others come with mounts.
const DIRECTORIES: &[&str] =
    &["", "/bin", "/dev", "/etc", "/home", "/root", "/run", "/tmp", "/usr", "/var", "/var/log", "/var/run"];

/// The files that every container has.
const FIRST_FILES: &[(&str, &str)] = &[
    ("/etc/group", "root:x:0:\nnogroup:x:65534:\n"),
    ("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"),
];

/// Whether every container has a file or directory by this name. None of them is a program.
pub(crate) fn is_always_there(path: &str) -> bool {
    DIRECTORIES.contains(&path.trim_end_matches('/')) || FIRST_FILES.iter().any(|(name, _)| *name == path)
}

/// The files of a container.
#[derive(Debug, Default)]
pub(crate) struct Files {
    own: BTreeMap<String, Vec<u8>>,
}

impl Files {
    pub(crate) fn read(&self, mounts: &[v1::Mount], path: &str) -> Option<Vec<u8>> {
        match on_machine(mounts, path) {
            Some((path, _)) => {
                let mut content = Vec::new();
                // A named pipe would never end.
                let is_file = fs::metadata(&path).is_ok_and(|metadata| metadata.is_file());
                let file = is_file.then(|| fs::File::open(path).ok()).flatten()?;
                file.take(LARGEST as u64).read_to_end(&mut content).ok()?;
                Some(content)
            }
            None => match self.own.get(path) {
                Some(content) => Some(content.clone()),
                None => {
                    let first = FIRST_FILES.iter().find(|(name, _)| *name == path);
                    first.map(|(_, content)| content.as_bytes().to_vec())
                }
            },
        }
    }

    pub(crate) fn write(&mut self, mounts: &[v1::Mount], path: &str, bytes: &[u8], append: bool) -> bool {
        match on_machine(mounts, path) {
            Some((_, true)) => false,
            Some((path, false)) => {
                let opened =
                    OpenOptions::new().create(true).write(true).append(append).truncate(!append).open(path);
                opened.and_then(|mut file| file.write_all(bytes)).is_ok()
            }
            None => {
                let directory = path.rsplit_once('/').map(|(directory, _)| directory);
                let is_full = self.own.len() >= MOST_FILES && !self.own.contains_key(path);
                if is_full || !directory.is_some_and(|directory| DIRECTORIES.contains(&directory)) {
                    return false;
                }
                let content = self.own.entry(path.to_owned()).or_default();
                if !append {
                    content.clear();
                }
                content.extend_from_slice(&bytes[..bytes.len().min(LARGEST.saturating_sub(content.len()))]);
                true
            }
        }
    }

    pub(crate) fn remove(&mut self, mounts: &[v1::Mount], path: &str) -> bool {
        match on_machine(mounts, path) {
            Some((_, true)) => false,
            Some((path, false)) => fs::remove_file(path).is_ok(),
            None => self.own.remove(path).is_some(),
        }
    }
}

/// Where a path lies on the machine, and whether it may only be read, by the deepest mount above it.
fn on_machine(mounts: &[v1::Mount], path: &str) -> Option<(PathBuf, bool)> {
    let below = |mount: &v1::Mount| {
        let rest = path.strip_prefix(mount.container_path.trim_end_matches('/'))?;
        // What climbs out of a mount is not in it.
        let is_below = rest.is_empty() || rest.starts_with('/');
        (is_below && !rest.split('/').any(|part| part == ".."))
            .then(|| rest.trim_start_matches('/').to_owned())
    };
    let mount = mounts
        .iter()
        .filter(|mount| below(mount).is_some())
        .max_by_key(|mount| mount.container_path.len())?;
    let rest = below(mount)?;
    let host = PathBuf::from(&mount.host_path);
    Some((if rest.is_empty() { host } else { host.join(rest) }, mount.readonly))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_a_mount_is_the_machines_and_others_are_the_containers() {
        let directory = tempfile::tempdir().unwrap();
        let mount = |container_path: &str, readonly| v1::Mount {
            container_path: container_path.to_owned(),
            host_path: directory.path().to_str().unwrap().to_owned(),
            readonly,
            ..v1::Mount::default()
        };
        let mounts = [mount("/data", false), mount("/data/fixed", true)];
        let mut files = Files::default();
        assert!(files.write(&mounts, "/data/a", b"one", false));
        assert!(files.write(&mounts, "/data/a", b"two", true));
        assert_eq!(fs::read(directory.path().join("a")).unwrap(), b"onetwo");
        assert_eq!(files.read(&mounts, "/data/fixed/a").unwrap(), b"onetwo");
        assert!(!files.write(&mounts, "/data/fixed/a", b"x", false));
        assert!(!files.remove(&mounts, "/data/fixed/a"));
        assert_eq!(files.read(&mounts, "/data/../etc/passwd"), None);
        assert_eq!(files.read(&mounts, "/database"), None);

        assert!(files.write(&mounts, "/tmp/x", b"mine", false));
        assert_eq!(files.read(&mounts, "/tmp/x").unwrap(), b"mine");
        assert!(!files.write(&mounts, "/no/such/x", b"mine", false));
        assert!(files.read(&mounts, "/etc/passwd").unwrap().starts_with(b"root:"));
        assert!(files.remove(&mounts, "/tmp/x") && !files.remove(&mounts, "/tmp/x"));
        assert!(files.remove(&mounts, "/data/a"));
        assert!(!directory.path().join("a").exists());
    }
}
