//! The files as they really are.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use crablet_api::core::PodIdentity;
use crablet_host::files::{is_exactly, open_regular, write_atomically};
use crablet_host::lanes::Lanes;
use tokio::io::AsyncReadExt as _;

use crate::pod_files::{Places, PodFiles};
use crate::turns::Turns;

/// What says which users are a pod's is not read beyond this.
const LONGEST_USERS: usize = 64 << 10;
/// So much of a pod's name is in the name of a log's link, however long that would be: an ID and 255 bytes are what cuts
/// it.
const SHORTEST_IN_LINK: usize = 100;
/// How many threads work on files at the same time.
const THREADS: usize = 16;

/// Files on the node's own disk. Threads work on them, since a disk can take its time; at most one on those of a pod.
#[derive(Debug, Clone)]
pub struct OnDisk {
    places: Arc<Places>,
    lanes: Arc<Lanes>,
    turns: Turns,
}

impl OnDisk {
    /// Files in these places.
    pub fn new(places: Places) -> OnDisk {
        OnDisk { places: Arc::new(places), lanes: Arc::default(), turns: Turns::new(THREADS) }
    }

    /// Does something to a pod's files, once what was done to them before is over.
    async fn change(
        &self,
        uid: &str,
        work: impl FnOnce(&Places) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let lane = self.lanes.enter(uid).await;
        self.read(move |places| {
            let _lane = lane;
            work(places)
        })
        .await
    }

    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Places) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let places = Arc::clone(&self.places);
        let done = self.turns.take(|| tokio::task::spawn_blocking(move || work(&places))).await;
        done.unwrap_or_else(|_| Err(io::Error::other("the work on files was abandoned")))
    }
}

#[async_trait]
impl PodFiles for OnDisk {
    fn places(&self) -> &Places {
        &self.places
    }

    async fn make_pod(&self, owner: &PodIdentity) -> io::Result<()> {
        let of = owner.clone();
        self.change(&owner.uid, move |places| make_pod(places, &of)).await
    }

    async fn make_container(&self, owner: &PodIdentity, container: &str, attempt: u32) -> io::Result<()> {
        let (of, container) = (owner.clone(), container.to_owned());
        self.change(&owner.uid, move |places| make_container(places, &of, &container, attempt)).await
    }

    async fn write_hosts(&self, uid: &str, text: &[u8]) -> io::Result<()> {
        let (path, text) = (self.places.hosts(uid), text.to_owned());
        self.change(uid, move |_| write_in_place(&path, &text)).await
    }

    async fn users(&self, uid: &str) -> io::Result<Option<Vec<u8>>> {
        let path = self.places.users(uid);
        self.read(move |_| part(&path, |_| 0, LONGEST_USERS)).await
    }

    async fn write_users(&self, uid: &str, text: &[u8]) -> io::Result<()> {
        let (of, text) = (uid.to_owned(), text.to_owned());
        let write = move |places: &Places| {
            make_directory(&places.pod(&of), 0o750)?;
            write_atomically(&places.users(&of), &text, 0o600).map_err(|error| error.source)
        };
        self.change(uid, write).await
    }

    async fn remove_users(&self, uid: &str) -> io::Result<()> {
        let path = self.places.users(uid);
        self.change(uid, move |_| absent_is_fine(fs::remove_file(path))).await
    }

    async fn logs(&self, owner: &PodIdentity, container: &str) -> io::Result<Vec<String>> {
        let directory = self.places.pod_logs(owner).join(container);
        self.read(move |_| names(&directory)).await
    }

    async fn link_log(&self, owner: &PodIdentity, name: &str, log: &Path) -> io::Result<()> {
        let (name, log) = (name.to_owned(), log.to_owned());
        self.change(&owner.uid, move |places| link_log(places, &name, &log)).await
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

    async fn tail(&self, path: &Path, limit: usize) -> io::Result<Option<Vec<u8>>> {
        let path = path.to_owned();
        self.read(move |_| part(&path, |length| length.saturating_sub(limit as u64), limit)).await
    }

    async fn remove_container(
        &self,
        owner: &PodIdentity,
        container: &str,
        attempt: u32,
        log: &Path,
    ) -> io::Result<()> {
        let (of, log) = (owner.clone(), log.to_owned());
        let termination_log = self.places.termination_log(&owner.uid, container, attempt);
        self.change(&owner.uid, move |places| remove_container(places, &of, &termination_log, &log)).await
    }

    async fn remove_pod(&self, owner: &PodIdentity) -> io::Result<()> {
        let of = owner.clone();
        self.change(&owner.uid, move |places| remove_pod(places, &of)).await
    }

    async fn pods(&self) -> io::Result<Vec<String>> {
        self.read(pods).await
    }
}

fn make_pod(places: &Places, owner: &PodIdentity) -> io::Result<()> {
    let pod = places.pod(&owner.uid);
    make_directory(&pod, 0o750)?;
    for part in ["volumes", "plugins", "containers"] {
        make_directory(&pod.join(part), 0o750)?;
    }
    make_directory(&places.pod_logs(owner), 0o755)
}

fn make_container(places: &Places, owner: &PodIdentity, container: &str, attempt: u32) -> io::Result<()> {
    make_directory(&places.pod_logs(owner).join(container), 0o755)?;
    let log = places.termination_log(&owner.uid, container, attempt);
    if let Some(directory) = log.parent() {
        make_directory(directory, 0o750)?;
    }
    // Any user of the container may write to it; the mode is set apart, because a umask would narrow it.
    let file = open_regular(&log, File::options().create(true).append(true).mode(0o666))?;
    file.set_permissions(Permissions::from_mode(0o666))
}

/// Writes a file that is mounted into containers, and so must keep its inode. They may have made anything of it: of what
/// is there, no more is read than it takes to see that it differs.
fn write_in_place(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut options = File::options();
    let mut file =
        open_regular(path, options.read(true).write(true).create(true).truncate(false).mode(0o644))?;
    if is_exactly(&file, text)? {
        return Ok(());
    }
    // Cut last, so that nobody reads an empty file.
    file.rewind()?;
    file.write_all(text)?;
    file.set_len(text.len() as u64)?;
    file.set_permissions(Permissions::from_mode(0o644))
}

fn names(directory: &Path) -> io::Result<Vec<String>> {
    let Some(entries) = entries(directory)? else { return Ok(Vec::new()) };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string());
    }
    names.sort();
    Ok(names)
}

fn link_log(places: &Places, name: &str, log: &Path) -> io::Result<()> {
    make_directory(&places.links, 0o755)?;
    let link = places.links.join(name);
    if fs::read_link(&link).is_ok_and(|target| target == log) {
        return Ok(());
    }
    absent_is_fine(fs::remove_file(&link))?;
    symlink(log, &link)
}

/// Removes the links to logs that are no longer there, of this pod.
fn unlink_logs(places: &Places, owner: &PodIdentity) -> io::Result<()> {
    let Some(entries) = entries(&places.links)? else { return Ok(()) };
    let own = places.pod_logs(owner);
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

/// A part of a file, from where `begin` says for its length. A container can put anything at the place of its own files:
/// only a plain file is read.
fn part(path: &Path, begin: impl FnOnce(u64) -> u64, limit: usize) -> io::Result<Option<Vec<u8>>> {
    let mut file = match open_regular(path, File::options().read(true)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    file.seek(SeekFrom::Start(begin(file.metadata()?.len())))?;
    let mut content = Vec::new();
    file.take(limit as u64).read_to_end(&mut content)?;
    Ok(Some(content))
}

fn remove_container(
    places: &Places,
    owner: &PodIdentity,
    termination_log: &Path,
    log: &Path,
) -> io::Result<()> {
    absent_is_fine(fs::remove_file(termination_log))?;
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
    unlink_logs(places, owner)
}

fn remove_pod(places: &Places, owner: &PodIdentity) -> io::Result<()> {
    if owner.name.is_empty() {
        remove_logs_by_uid(places, &owner.uid)?;
    }
    absent_is_fine(fs::remove_dir_all(places.pod_logs(owner)))?;
    unlink_logs(places, owner)?;
    // Volumes are mounted in there, and what is mounted is not the pod's.
    crablet_volumes::remove_directory(&places.pod(&owner.uid)).map_err(io::Error::other)
}

fn pods(places: &Places) -> io::Result<Vec<String>> {
    let Some(entries) = entries(&places.root.join("pods"))? else { return Ok(Vec::new()) };
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

/// Of a pod that nobody knows by name any more, the directory of its logs still ends with its UID.
fn remove_logs_by_uid(places: &Places, uid: &str) -> io::Result<()> {
    let ending = format!("_{uid}");
    for entry in entries(&places.logs)?.into_iter().flatten() {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.ends_with(&ending)) {
            absent_is_fine(fs::remove_dir_all(entry.path()))?;
        }
    }
    Ok(())
}

fn is_log_or_rotated(other: &str, name: &str) -> bool {
    other.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn make_directory(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(mode).create(path)
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

    fn files() -> (tempfile::TempDir, OnDisk, PodIdentity) {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let places = Places { root: at("root"), logs: at("logs"), links: at("links") };
        let owner = PodIdentity::new("ns", "pod", "uid");
        (directory, OnDisk::new(places), owner)
    }

    #[tokio::test]
    async fn a_pod_gets_its_files_and_leaves_none_behind() {
        let (_directory, files, owner) = files();
        for _again in 0..2 {
            files.make_pod(&owner).await.unwrap();
            files.make_container(&owner, "c", 0).await.unwrap();
            files.write_hosts("uid", b"127.0.0.1 localhost\n").await.unwrap();
        }
        let places = files.places();
        let termination_log = places.termination_log("uid", "c", 0);
        assert_eq!(fs::metadata(&termination_log).unwrap().permissions().mode() & 0o777, 0o666);
        let log = places.logs.join("ns_pod_uid/c/0.log");
        fs::write(&log, "x").unwrap();
        files.link_log(&owner, "pod_ns_c-1.log", &log).await.unwrap();
        files.link_log(&owner, "pod_ns_c-1.log", &log).await.unwrap();
        assert_eq!(fs::read(places.links.join("pod_ns_c-1.log")).unwrap(), b"x");
        assert_eq!(files.pods().await.unwrap(), ["uid"]);

        for _again in 0..2 {
            files.remove_pod(&owner).await.unwrap();
        }
        assert_eq!(files.pods().await.unwrap(), Vec::<String>::new());
        assert!(!log.exists() && fs::symlink_metadata(places.links.join("pod_ns_c-1.log")).is_err());
    }

    #[tokio::test]
    async fn the_logs_of_a_pod_that_nobody_knows_by_name_go_too() {
        let (_directory, files, owner) = files();
        files.make_pod(&owner).await.unwrap();
        let other = PodIdentity { uid: "other".into(), ..owner.clone() };
        files.make_pod(&other).await.unwrap();
        let nameless = PodIdentity::new("", "", "uid");
        files.remove_pod(&nameless).await.unwrap();
        assert!(!files.places().pod_logs(&owner).exists() && files.places().pod_logs(&other).exists());
    }

    #[tokio::test]
    async fn the_hosts_file_keeps_its_inode_when_it_changes() {
        use std::os::unix::fs::MetadataExt as _;
        let (_directory, files, owner) = files();
        files.make_pod(&owner).await.unwrap();
        let inode = || fs::metadata(files.places().hosts("uid")).unwrap().ino();
        files.write_hosts("uid", b"one\n").await.unwrap();
        let before = inode();
        files.write_hosts("uid", b"two\n").await.unwrap();
        assert_eq!(inode(), before);
        assert_eq!(fs::read_to_string(files.places().hosts("uid")).unwrap(), "two\n");
    }

    #[tokio::test]
    async fn a_hosts_file_that_a_container_made_20_gb_large_is_not_read() {
        let (_directory, files, owner) = files();
        files.make_pod(&owner).await.unwrap();
        let path = files.places().hosts("uid");
        for beginning in ["", "127.0.0.1 localhost\n", "127.0.0.1"] {
            fs::write(&path, beginning).unwrap();
            // A hole: it takes neither room nor time to make. To read it would take both.
            File::options().write(true).open(&path).unwrap().set_len(20 << 30).unwrap();
            files.write_hosts("uid", b"127.0.0.1 localhost\n").await.unwrap();
            assert_eq!(fs::metadata(&path).unwrap().len(), 20);
            assert_eq!(fs::read_to_string(&path).unwrap(), "127.0.0.1 localhost\n", "{beginning:?}");
        }
    }

    #[tokio::test]
    async fn what_was_given_up_is_over_before_the_next_change_of_the_same_pod() {
        let (_directory, files, owner) = files();
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
        let make = {
            let owner = owner.clone();
            move |places: &Places| {
                let _ = begun.send(());
                let _ = may_go_on.recv();
                make_pod(places, &owner)
            }
        };
        tokio::select! {
            biased;
            _ = files.change("uid", make) => panic!("it waits"),
            begun = has_begun => begun.unwrap(),
        }
        let mut removal = files.remove_pod(&owner);
        assert!(futures_util::poll!(&mut removal).is_pending());
        let other = PodIdentity { uid: "other".into(), ..owner.clone() };
        files.make_pod(&other).await.unwrap();
        files.remove_pod(&other).await.unwrap();
        go_on.send(()).unwrap();
        removal.await.unwrap();
        assert_eq!(files.pods().await.unwrap(), Vec::<String>::new());
    }

    #[tokio::test]
    async fn the_users_of_a_pod_are_written_down_for_nobody_else_to_read() {
        let (_directory, files, owner) = files();
        assert_eq!(files.users("uid").await.unwrap(), None);
        files.write_users("uid", b"one").await.unwrap();
        files.write_users("uid", b"two").await.unwrap();
        let path = files.places().pod(&owner.uid).join("userns");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(files.users("uid").await.unwrap().unwrap(), b"two");
        files.remove_users("uid").await.unwrap();
        files.remove_users("uid").await.unwrap();
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_container_that_goes_takes_its_logs_and_not_those_of_another_attempt() {
        let (_directory, files, owner) = files();
        files.make_pod(&owner).await.unwrap();
        files.make_container(&owner, "c", 1).await.unwrap();
        let directory = files.places().logs.join("ns_pod_uid/c");
        for name in ["1.log", "1.log.20261115-070000", "1.log.20261115-060000.gz", "10.log", "0.log"] {
            fs::write(directory.join(name), "").unwrap();
        }
        files.remove_container(&owner, "c", 1, &directory.join("1.log")).await.unwrap();
        let mut left: Vec<_> =
            fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["0.log", "10.log"]);
    }

    #[tokio::test]
    async fn what_a_container_put_at_the_place_of_its_file_is_not_followed() {
        let (directory, files, owner) = files();
        files.make_pod(&owner).await.unwrap();
        files.make_container(&owner, "c", 0).await.unwrap();
        let log = files.places().termination_log("uid", "c", 0);
        let secret = directory.path().join("secret");
        fs::write(&secret, "hunter2").unwrap();
        fs::remove_file(&log).unwrap();
        symlink(&secret, &log).unwrap();
        assert!(files.tail(&log, 10).await.is_err());
        fs::remove_file(&log).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &log, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(files.tail(&log, 10).await.unwrap_err().to_string().contains("is not a file"));
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

    #[tokio::test]
    async fn the_end_of_a_file_is_bounded() {
        let (directory, files, _) = files();
        let path = directory.path().join("file");
        assert_eq!(files.tail(&path, 3).await.unwrap(), None);
        fs::write(&path, "abcdef").unwrap();
        assert_eq!(files.tail(&path, 3).await.unwrap().unwrap(), b"def");
        assert_eq!(files.tail(&path, 30).await.unwrap().unwrap(), b"abcdef");
    }
}
