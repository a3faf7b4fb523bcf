//! The files as they really are.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use async_trait::async_trait;
use crablet_host::files::write_atomically;
use tokio::io::AsyncReadExt as _;

use crate::pod_files::{Owner, Places, PodFiles};

/// What says which users are a pod's is not read beyond this.
const LONGEST_USERS: usize = 64 << 10;
/// So much of a pod's name is in the name of a log's link, however long that would be: an ID and 255 bytes are what cuts
/// it.
const SHORTEST_IN_LINK: usize = 100;

/// Files on the node's own disk.
#[derive(Debug, Clone)]
pub struct OnDisk {
    places: Places,
}

impl OnDisk {
    /// Files in these places.
    pub fn new(places: Places) -> OnDisk {
        OnDisk { places }
    }
}

#[async_trait]
impl PodFiles for OnDisk {
    fn places(&self) -> &Places {
        &self.places
    }

    fn make_pod(&self, owner: &Owner) -> io::Result<()> {
        let pod = self.places.pod(&owner.uid);
        make_directory(&pod, 0o750)?;
        for part in ["volumes", "plugins", "containers"] {
            make_directory(&pod.join(part), 0o750)?;
        }
        make_directory(&self.places.pod_logs(owner), 0o755)
    }

    fn make_container(&self, owner: &Owner, container: &str, attempt: u32) -> io::Result<()> {
        make_directory(&self.places.pod_logs(owner).join(container), 0o755)?;
        let log = self.places.termination_log(&owner.uid, container, attempt);
        if let Some(directory) = log.parent() {
            make_directory(directory, 0o750)?;
        }
        // Any user of the container may write to it; the mode is set apart, because a umask would narrow it.
        let file = OpenOptions::new().create(true).append(true).mode(0o666).open(&log)?;
        file.set_permissions(Permissions::from_mode(0o666))
    }

    fn write_hosts(&self, uid: &str, text: &[u8]) -> io::Result<()> {
        let path = self.places.hosts(uid);
        if fs::read(&path).is_ok_and(|current| current == text) {
            return Ok(());
        }
        // Written in place: a file that is mounted into containers must keep its inode.
        fs::write(&path, text)?;
        fs::set_permissions(&path, Permissions::from_mode(0o644))
    }

    fn users(&self, uid: &str) -> io::Result<Option<Vec<u8>>> {
        self.head(&self.places.users(uid), LONGEST_USERS)
    }

    fn write_users(&self, uid: &str, text: &[u8]) -> io::Result<()> {
        make_directory(&self.places.pod(uid), 0o750)?;
        write_atomically(&self.places.users(uid), text, 0o600).map_err(|error| error.source)
    }

    fn remove_users(&self, uid: &str) -> io::Result<()> {
        absent_is_fine(fs::remove_file(self.places.users(uid)))
    }

    fn logs(&self, owner: &Owner, container: &str) -> io::Result<Vec<String>> {
        let Some(entries) = entries(&self.places.pod_logs(owner).join(container))? else {
            return Ok(Vec::new());
        };
        let mut names = Vec::new();
        for entry in entries {
            names.extend(entry?.file_name().into_string());
        }
        names.sort();
        Ok(names)
    }

    fn link_log(&self, name: &str, log: &Path) -> io::Result<()> {
        make_directory(&self.places.links, 0o755)?;
        let link = self.places.links.join(name);
        if fs::read_link(&link).is_ok_and(|target| target == log) {
            return Ok(());
        }
        absent_is_fine(fs::remove_file(&link))?;
        symlink(log, &link)
    }

    fn unlink_logs(&self, owner: &Owner) -> io::Result<()> {
        let Some(entries) = entries(&self.places.links)? else { return Ok(()) };
        let own = self.places.pod_logs(owner);
        // Those of all containers on the node are there; a link's name begins with its pod's, which may be cut.
        let beginning: String = owner.name.chars().take(SHORTEST_IN_LINK).collect();
        for entry in entries {
            let link = entry?.path();
            let name = link.file_name().and_then(|name| name.to_str());
            if !name.is_some_and(|name| name.starts_with(&beginning)) {
                continue;
            }
            let Ok(target) = fs::read_link(&link) else { continue };
            if target.starts_with(&own) && !target.exists() {
                absent_is_fine(fs::remove_file(&link))?;
            }
        }
        Ok(())
    }

    async fn of_node(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        // Nothing is waited for, whatever it is.
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = tokio::fs::OpenOptions::new().read(true).custom_flags(flags).open(path).await?;
        let mut content = Vec::new();
        file.take(limit as u64 + 1).read_to_end(&mut content).await?;
        match content.len() > limit {
            true => Err(io::ErrorKind::FileTooLarge.into()),
            false => Ok(content),
        }
    }

    fn head(&self, path: &Path, limit: usize) -> io::Result<Option<Vec<u8>>> {
        let Some(file) = open_regular(path)? else { return Ok(None) };
        let mut content = Vec::new();
        file.take(limit as u64).read_to_end(&mut content)?;
        Ok(Some(content))
    }

    fn tail(&self, path: &Path, limit: usize) -> io::Result<Option<Vec<u8>>> {
        let Some(mut file) = open_regular(path)? else { return Ok(None) };
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(limit as u64)))?;
        let mut content = Vec::new();
        file.take(limit as u64).read_to_end(&mut content)?;
        Ok(Some(content))
    }

    fn remove_container(&self, owner: &Owner, container: &str, attempt: u32, log: &Path) -> io::Result<()> {
        absent_is_fine(fs::remove_file(self.places.termination_log(&owner.uid, container, attempt)))?;
        if let (Some(directory), Some(name)) = (log.parent(), log.file_name().and_then(|name| name.to_str()))
            && let Some(entries) = entries(directory)?
        {
            // A log that was rotated has its name with a time behind it.
            for entry in entries {
                let entry = entry?;
                if entry.file_name().to_str().is_some_and(|other| is_log_or_rotated(other, name)) {
                    absent_is_fine(fs::remove_file(entry.path()))?;
                }
            }
        }
        self.unlink_logs(owner)
    }

    fn remove_pod(&self, owner: &Owner) -> io::Result<()> {
        if owner.name.is_empty() {
            self.remove_logs_by_uid(&owner.uid)?;
        }
        absent_is_fine(fs::remove_dir_all(self.places.pod_logs(owner)))?;
        self.unlink_logs(owner)?;
        // Volumes are mounted in there, and what is mounted is not the pod's.
        crablet_volumes::remove_directory(&self.places.pod(&owner.uid)).map_err(io::Error::other)
    }

    fn pods(&self) -> io::Result<Vec<String>> {
        let Some(entries) = entries(&self.places.root.join("pods"))? else { return Ok(Vec::new()) };
        let mut pods = Vec::new();
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                pods.extend(entry.file_name().into_string());
            }
        }
        pods.sort();
        Ok(pods)
    }
}

impl OnDisk {
    /// Of a pod that nobody knows by name any more, the directory of its logs still ends with its UID.
    fn remove_logs_by_uid(&self, uid: &str) -> io::Result<()> {
        let ending = format!("_{uid}");
        for entry in entries(&self.places.logs)?.into_iter().flatten() {
            let entry = entry?;
            if entry.file_name().to_str().is_some_and(|name| name.ends_with(&ending)) {
                absent_is_fine(fs::remove_dir_all(entry.path()))?;
            }
        }
        Ok(())
    }
}

fn is_log_or_rotated(other: &str, name: &str) -> bool {
    other.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn make_directory(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(mode).create(path)
}

/// A container can put anything at the place of its own files: only a plain file is read, and nothing is waited for.
fn open_regular(path: &Path) -> io::Result<Option<File>> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not a file", path.display())));
    }
    Ok(Some(file))
}

fn entries(path: &Path) -> io::Result<Option<fs::ReadDir>> {
    match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        entries => entries.map(Some),
    }
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> (tempfile::TempDir, OnDisk, Owner) {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let places = Places { root: at("root"), logs: at("logs"), links: at("links") };
        let owner = Owner { namespace: "ns".into(), name: "pod".into(), uid: "uid".into() };
        (directory, OnDisk::new(places), owner)
    }

    #[test]
    fn a_pod_gets_its_files_and_leaves_none_behind() {
        let (_directory, files, owner) = files();
        for _again in 0..2 {
            files.make_pod(&owner).unwrap();
            files.make_container(&owner, "c", 0).unwrap();
            files.write_hosts("uid", b"127.0.0.1 localhost\n").unwrap();
        }
        let places = files.places();
        let termination_log = places.termination_log("uid", "c", 0);
        assert_eq!(fs::metadata(&termination_log).unwrap().permissions().mode() & 0o777, 0o666);
        let log = places.logs.join("ns_pod_uid/c/0.log");
        fs::write(&log, "x").unwrap();
        files.link_log("pod_ns_c-1.log", &log).unwrap();
        files.link_log("pod_ns_c-1.log", &log).unwrap();
        assert_eq!(fs::read(places.links.join("pod_ns_c-1.log")).unwrap(), b"x");
        assert_eq!(files.pods().unwrap(), ["uid"]);

        for _again in 0..2 {
            files.remove_pod(&owner).unwrap();
        }
        assert_eq!(files.pods().unwrap(), Vec::<String>::new());
        assert!(!log.exists() && fs::symlink_metadata(places.links.join("pod_ns_c-1.log")).is_err());
    }

    #[test]
    fn the_logs_of_a_pod_that_nobody_knows_by_name_go_too() {
        let (_directory, files, owner) = files();
        files.make_pod(&owner).unwrap();
        let other = Owner { uid: "other".into(), ..owner.clone() };
        files.make_pod(&other).unwrap();
        let nameless = Owner { namespace: String::new(), name: String::new(), uid: "uid".into() };
        files.remove_pod(&nameless).unwrap();
        assert!(!files.places().pod_logs(&owner).exists() && files.places().pod_logs(&other).exists());
    }

    #[test]
    fn the_hosts_file_keeps_its_inode_when_it_changes() {
        use std::os::unix::fs::MetadataExt as _;
        let (_directory, files, owner) = files();
        files.make_pod(&owner).unwrap();
        let inode = || fs::metadata(files.places().hosts("uid")).unwrap().ino();
        files.write_hosts("uid", b"one\n").unwrap();
        let before = inode();
        files.write_hosts("uid", b"two\n").unwrap();
        assert_eq!(inode(), before);
        assert_eq!(fs::read_to_string(files.places().hosts("uid")).unwrap(), "two\n");
    }

    #[test]
    fn the_users_of_a_pod_are_written_down_for_nobody_else_to_read() {
        let (_directory, files, owner) = files();
        assert_eq!(files.users("uid").unwrap(), None);
        files.write_users("uid", b"one").unwrap();
        files.write_users("uid", b"two").unwrap();
        let path = files.places().pod(&owner.uid).join("userns");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(files.users("uid").unwrap().unwrap(), b"two");
        files.remove_users("uid").unwrap();
        files.remove_users("uid").unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_container_that_goes_takes_its_logs_and_not_those_of_another_attempt() {
        let (_directory, files, owner) = files();
        files.make_pod(&owner).unwrap();
        files.make_container(&owner, "c", 1).unwrap();
        let directory = files.places().logs.join("ns_pod_uid/c");
        for name in ["1.log", "1.log.20261115-070000", "1.log.20261115-060000.gz", "10.log", "0.log"] {
            fs::write(directory.join(name), "").unwrap();
        }
        files.remove_container(&owner, "c", 1, &directory.join("1.log")).unwrap();
        let mut left: Vec<_> =
            fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["0.log", "10.log"]);
    }

    #[test]
    fn what_a_container_put_at_the_place_of_its_file_is_not_followed() {
        let (directory, files, owner) = files();
        files.make_pod(&owner).unwrap();
        files.make_container(&owner, "c", 0).unwrap();
        let log = files.places().termination_log("uid", "c", 0);
        let secret = directory.path().join("secret");
        fs::write(&secret, "hunter2").unwrap();
        fs::remove_file(&log).unwrap();
        symlink(&secret, &log).unwrap();
        assert!(files.head(&log, 10).is_err());
        fs::remove_file(&log).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &log, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(files.head(&log, 10).unwrap_err().to_string().contains("is not a file"));
    }

    #[tokio::test]
    async fn a_file_of_the_nodes_own_may_be_a_link_and_is_read_whole_or_not_at_all() {
        let (directory, files, _) = files();
        let (path, link) = (directory.path().join("file"), directory.path().join("link"));
        symlink(&path, &link).unwrap();
        assert_eq!(files.of_node(&link, 6).await.unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::write(&path, "abcdef").unwrap();
        assert_eq!(files.of_node(&link, 6).await.unwrap(), b"abcdef");
        assert_eq!(files.of_node(&link, 5).await.unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn the_beginning_and_the_end_of_a_file_are_bounded() {
        let (directory, files, _) = files();
        let path = directory.path().join("file");
        assert_eq!(files.tail(&path, 3).unwrap(), None);
        fs::write(&path, "abcdef").unwrap();
        assert_eq!(files.head(&path, 3).unwrap().unwrap(), b"abc");
        assert_eq!(files.tail(&path, 3).unwrap().unwrap(), b"def");
        assert_eq!(files.tail(&path, 30).unwrap().unwrap(), b"abcdef");
    }
}
