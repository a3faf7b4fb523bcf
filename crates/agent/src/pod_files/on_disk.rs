//! The files as they really are.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use crablet_api::core::PodIdentity;
use crablet_host::files::{is_exactly, open_regular, write_atomically};
use crablet_host::lanes::Lanes;
use tokio::io::AsyncReadExt as _;

use crate::pod_files::{Attempt, Places, PodFiles};
use crate::turns::Turns;

/// What says which users are a pod's is not read beyond this.
const LONGEST_USERS: usize = 64 << 10;
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

    async fn link_log(&self, owner: &PodIdentity, attempt: Attempt<'_>) -> io::Result<()> {
        let (link, log) = (self.places.log_link(owner, &attempt), attempt.log.to_owned());
        self.change(&owner.uid, move |places| link_log(places, &link, &log)).await
    }

    async fn remove_dead_links(&self) -> io::Result<()> {
        self.read(remove_dead_links).await
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

    async fn remove_container(&self, owner: &PodIdentity, attempt: Attempt<'_>) -> io::Result<()> {
        let (link, log) = (self.places.log_link(owner, &attempt), attempt.log.to_owned());
        let termination_log = self.places.termination_log(&owner.uid, attempt.container, attempt.number);
        self.change(&owner.uid, move |_| remove_container(&termination_log, &log, &link)).await
    }

    async fn remove_pod(&self, owner: &PodIdentity) -> io::Result<()> {
        let of = owner.clone();
        self.change(&owner.uid, move |places| remove_pod(places, &of)).await
    }

    async fn remove_pod_but_logs(&self, owner: &PodIdentity) -> io::Result<()> {
        let of = owner.clone();
        self.change(&owner.uid, move |places| remove_pod_but_logs(places, &of)).await
    }

    async fn pods(&self) -> io::Result<Vec<String>> {
        self.read(pods).await
    }

    async fn log_end(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        let path = path.to_owned();
        let end = move |_: &Places| {
            part(&path.canonicalize()?, |length| length.saturating_sub(limit as u64), limit)
        };
        self.read(end).await?.ok_or_else(|| io::ErrorKind::NotFound.into())
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

fn link_log(places: &Places, link: &Path, log: &Path) -> io::Result<()> {
    make_directory(&places.links, 0o755)?;
    if fs::read_link(link).is_ok_and(|target| target == log) {
        return Ok(());
    }
    absent_is_fine(fs::remove_file(link))?;
    symlink(log, link)
}

/// Removes the link to a log. Of a pod with a long name, the links to several logs have one name: it leads to the last
/// one.
fn unlink_log(link: &Path, log: &Path) -> io::Result<()> {
    match fs::read_link(link) {
        Ok(target) if target == log || is_gone(&target) => absent_is_fine(fs::remove_file(link)),
        Ok(_) => Ok(()),
        Err(error) => absent_is_fine(Err(error)),
    }
}

/// While the logs as a whole are away, nothing is known of any. One link that cannot be removed keeps no other.
fn remove_dead_links(places: &Places) -> io::Result<()> {
    if !places.logs.try_exists()? {
        return Ok(());
    }
    let mut result = Ok(());
    for entry in entries(&places.links)?.into_iter().flatten() {
        let link = entry?.path();
        if link.extension().is_some_and(|extension| extension == "log")
            && fs::read_link(&link).is_ok_and(|log| is_dead(places, &log))
        {
            result = result.and(absent_is_fine(fs::remove_file(&link)));
        }
    }
    result
}

/// Whether nothing is left of a log: one that is being rotated is away for a moment, and a rotated one is beside it. What
/// is elsewhere is somebody else's.
fn is_dead(places: &Places, log: &Path) -> bool {
    // <the pod's directory>/<container>/<attempt>.log
    if log.ancestors().nth(3) != Some(&places.logs) {
        return false;
    }
    matches!(logs_of(log), Ok(logs) if logs.is_empty())
}

/// A log, and those that were rotated: they have its name with a time behind it.
fn logs_of(log: &Path) -> io::Result<Vec<PathBuf>> {
    let (Some(directory), Some(name)) = (log.parent(), log.file_name().and_then(|name| name.to_str())) else {
        return Ok(Vec::new());
    };
    let names = names(directory)?;
    Ok(names
        .iter()
        .filter(|other| is_log_or_rotated(other, name))
        .map(|other| directory.join(other))
        .collect())
}

/// Whether it is known that nothing is there.
fn is_gone(path: &Path) -> bool {
    matches!(path.try_exists(), Ok(false))
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

fn remove_container(termination_log: &Path, log: &Path, link: &Path) -> io::Result<()> {
    absent_is_fine(fs::remove_file(termination_log))?;
    for log in logs_of(log)? {
        absent_is_fine(fs::remove_file(log))?;
    }
    unlink_log(link, log)
}

fn remove_pod(places: &Places, owner: &PodIdentity) -> io::Result<()> {
    if owner.name.is_empty() {
        remove_logs_by_uid(places, &owner.uid)?;
    }
    absent_is_fine(fs::remove_dir_all(places.pod_logs(owner)))?;
    remove_pod_but_logs(places, owner)
}

fn remove_pod_but_logs(places: &Places, owner: &PodIdentity) -> io::Result<()> {
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
        let attempt = Attempt { container: "c", number: 0, id: "1", log: &log };
        files.link_log(&owner, attempt).await.unwrap();
        files.link_log(&owner, attempt).await.unwrap();
        assert_eq!(fs::read(places.links.join("pod_ns_c-1.log")).unwrap(), b"x");
        assert_eq!(files.pods().await.unwrap(), ["uid"]);

        for _again in 0..2 {
            files.remove_container(&owner, attempt).await.unwrap();
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
        let attempt = Attempt { container: "c", number: 1, id: "1", log: &directory.join("1.log") };
        files.remove_container(&owner, attempt).await.unwrap();
        let mut left: Vec<_> =
            fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["0.log", "10.log"]);
    }

    #[tokio::test]
    async fn a_link_that_leads_to_the_log_of_another_container_by_now_stays() {
        let (_directory, files, _) = files();
        // The link's name has no room for an ID.
        let (owner, container) = (PodIdentity::new("n".repeat(63), "p".repeat(150), "uid"), "c".repeat(63));
        files.make_pod(&owner).await.unwrap();
        let logs = ["0.log", "1.log"].map(|name| files.places().pod_logs(&owner).join(&container).join(name));
        let attempt = |number, id, log| Attempt { container: &container, number, id, log };
        let attempts = [attempt(0, "one", &logs[0]), attempt(1, "two", &logs[1])];
        for attempt in attempts {
            files.make_container(&owner, &container, attempt.number).await.unwrap();
            fs::write(attempt.log, "").unwrap();
            files.link_log(&owner, attempt).await.unwrap();
        }
        let [one, two] = attempts.map(|attempt| files.places().log_link(&owner, &attempt));
        assert_eq!(one, two);
        files.remove_container(&owner, attempts[0]).await.unwrap();
        assert_eq!(fs::read_link(&one).unwrap(), logs[1]);
        files.remove_container(&owner, attempts[1]).await.unwrap();
        assert!(fs::symlink_metadata(&one).is_err());
    }

    #[tokio::test]
    async fn links_that_nobody_removed_by_name_go_when_their_logs_are_gone() {
        let (_directory, files, owner) = files();
        files.remove_dead_links().await.unwrap();
        let gone = PodIdentity::new("ns", "gone", "another");
        let directory = |owner: &PodIdentity| files.places().pod_logs(owner).join("c");
        for owner in [&owner, &gone] {
            files.make_pod(owner).await.unwrap();
            files.make_container(owner, "c", 0).await.unwrap();
            let log = directory(owner).join("0.log");
            fs::write(&log, "").unwrap();
            files.link_log(owner, Attempt { container: "c", number: 0, id: "1", log: &log }).await.unwrap();
        }
        // One is being rotated, and of another nothing is left.
        let log = directory(&owner).join("0.log");
        fs::rename(&log, directory(&owner).join("0.log.20260102-000000")).unwrap();
        let lost = directory(&owner).join("1.log");
        files.link_log(&owner, Attempt { container: "c", number: 1, id: "2", log: &lost }).await.unwrap();
        files.remove_pod(&gone).await.unwrap();
        symlink("/nowhere/at/all", files.places().links.join("other")).unwrap();
        files.remove_dead_links().await.unwrap();
        assert_eq!(names(&files.places().links).unwrap(), ["other", "pod_ns_c-1.log"]);
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

    #[tokio::test]
    async fn links_that_lead_elsewhere_stay_and_so_do_all_while_the_logs_are_away() {
        let (_directory, files, _) = files();
        let places = files.places().clone();
        make_directory(&places.links, 0o755).unwrap();
        let link = |name: &str, target: &Path| symlink(target, places.links.join(name)).unwrap();
        link("dead.log", &places.logs.join("ns_gone_uid/c/0.log"));
        link("others.log", Path::new("../elsewhere/ns_gone_uid/c/0.log"));
        let left = || {
            let mut names: Vec<_> =
                fs::read_dir(&places.links).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        files.remove_dead_links().await.unwrap();
        assert_eq!(left(), ["dead.log", "others.log"], "nothing is known of any log");
        make_directory(&places.logs, 0o755).unwrap();
        files.remove_dead_links().await.unwrap();
        assert_eq!(left(), ["others.log"]);
    }
}
