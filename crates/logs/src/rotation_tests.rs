//! Upstream's cases, and what it has none for.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;

use async_trait::async_trait;

use super::*;

/// A runtime that begins another log where it is told to, unless it fails.
#[derive(Default)]
struct Fake {
    logs: Mutex<Vec<(String, PathBuf)>>,
    refuses: Mutex<bool>,
    reopened: Mutex<Vec<String>>,
}

#[async_trait]
impl LogRuntime for Fake {
    async fn log_path(&self, id: &str) -> Result<PathBuf, Error> {
        let logs = self.logs.lock().unwrap();
        let log = logs.iter().find(|(known, _)| known == id);
        log.map(|(_, path)| path.clone()).ok_or(Error::BadEndpoint { endpoint: id.to_owned() })
    }

    async fn reopen_container_log(&self, id: &str) -> Result<(), Error> {
        self.reopened.lock().unwrap().push(id.to_owned());
        let refuses = *self.refuses.lock().unwrap();
        match refuses {
            true => Err(Error::BadEndpoint { endpoint: id.to_owned() }),
            false => {
                let path = self.log_path(id).await?;
                fs::write(path, "").unwrap();
                Ok(())
            }
        }
    }
}

struct World {
    directory: tempfile::TempDir,
    runtime: Arc<Fake>,
    rotation: LogRotation,
}

impl World {
    fn new(max_size: u64, max_files: usize) -> World {
        let runtime = Arc::new(Fake::default());
        let clock = Clock::simulated("2026-11-16T18:00:00Z".parse().unwrap());
        let policy =
            RotationPolicy { max_size, max_files, max_workers: 2, interval: Duration::from_secs(10) };
        let rotation = LogRotation { runtime: runtime.clone(), clock, policy };
        World { directory: tempfile::tempdir().unwrap(), runtime, rotation }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// A container that runs, and whose log has that name.
    fn container(&self, name: &str) -> RunningContainer {
        let mut logs = self.runtime.logs.lock().unwrap();
        logs.push((name.to_owned(), self.path(name)));
        RunningContainer { id: name.to_owned(), log_path: self.path(name) }
    }

    /// The files, with the time that a rotation has now as `now`.
    fn files(&self) -> Vec<String> {
        let now = time_after(self.rotation.clock.now(), None);
        let entries = fs::read_dir(self.directory.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap().replace(&now, "now"))
            .collect();
        names.sort_unstable();
        names
    }
}

#[tokio::test]
async fn what_is_too_large_is_rotated_and_what_is_too_many_removed() {
    let world = World::new(10, 3);
    world.write("log-1", "short");
    world.write("log-2", "longer than 10 bytes");
    world.write("log-3", "longer than 10 bytes");
    world.write("log-4", "longer than 10 bytes");
    world.write("log-3.00000000-000001", "the length doesn't matter");
    world.write("log-3.00000000-000000.gz", "the length doesn't matter");
    let containers = ["log-1", "log-2", "log-3"].map(|name| world.container(name));
    world.rotation.look(containers.to_vec()).await;
    let expected = ["log-1", "log-2", "log-2.now", "log-3", "log-3.00000000-000001.gz", "log-3.now", "log-4"];
    assert_eq!(world.files(), expected, "of one that does not run nothing is rotated");
    assert_eq!(fs::read_to_string(world.path("log-2")).unwrap(), "");
    let mut reopened = world.runtime.reopened.lock().unwrap().clone();
    reopened.sort_unstable();
    assert_eq!(reopened, ["log-2", "log-3"]);
}

#[test]
fn what_was_left_behind_is_removed() {
    let world = World::new(10, 5);
    for name in ["log.1", "log.1.tmp", "log.2", "log.2.gz"] {
        world.write(name, "");
    }
    tidy(&world.path("log"), 3).unwrap();
    assert_eq!(world.files(), ["log.1.gz", "log.2.gz"]);
}

#[test]
fn as_many_are_kept_as_upstream_keeps() {
    for (max_files, expected) in
        [(2, &[][..]), (3, &["log.4.gz"][..]), (6, &["log.1.gz", "log.2.gz", "log.3.gz", "log.4.gz"][..])]
    {
        let world = World::new(10, max_files);
        for name in ["log.3", "log.1", "log.2", "log.4"] {
            world.write(name, "");
        }
        tidy(&world.path("log"), max_files - 2).unwrap();
        assert_eq!(world.files(), expected, "{max_files}");
    }
}

#[test]
fn a_compressed_log_has_the_same_text_and_mode() {
    let world = World::new(10, 5);
    world.write("log", "test log content");
    fs::set_permissions(world.path("log"), fs::Permissions::from_mode(0o666)).unwrap();
    compress(&world.path("log")).unwrap();
    assert_eq!(world.files(), ["log.gz"]);
    let file = File::open(world.path("log.gz")).unwrap();
    assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o666);
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    assert_eq!(text, "test log content");
    assert!(compress(&world.path("unknown")).is_err());
    assert_eq!(world.files(), ["log.gz"]);
}

#[tokio::test]
async fn a_log_is_moved_back_when_no_other_is_begun_and_others_are_rotated_all_the_same() {
    let world = World::new(1, 2);
    world.write("log", "old");
    let container = world.container("log");
    *world.runtime.refuses.lock().unwrap() = true;
    world.rotation.look(vec![container.clone()]).await;
    assert_eq!(world.files(), ["log"]);
    assert_eq!(fs::read_to_string(world.path("log")).unwrap(), "old");
    *world.runtime.refuses.lock().unwrap() = false;
    // One whose log is in no directory, and whom nobody knows.
    let lost = RunningContainer { id: "lost".to_owned(), log_path: "/nonexistent/0.log".into() };
    world.rotation.look(vec![lost, container]).await;
    assert_eq!(world.files(), ["log", "log.now"]);
}

#[tokio::test]
async fn a_log_that_was_begun_although_the_call_failed_is_not_replaced() {
    struct Late(PathBuf);
    #[async_trait]
    impl LogRuntime for Late {
        async fn log_path(&self, _: &str) -> Result<PathBuf, Error> {
            Ok(self.0.clone())
        }
        async fn reopen_container_log(&self, id: &str) -> Result<(), Error> {
            fs::write(&self.0, "new").unwrap();
            Err(Error::BadEndpoint { endpoint: id.to_owned() })
        }
    }
    let mut world = World::new(1, 5);
    world.write("log", "old");
    world.rotation.runtime = Arc::new(Late(world.path("log")));
    world.rotation.look(vec![world.container("log")]).await;
    assert_eq!(world.files(), ["log", "log.now"]);
    assert_eq!(fs::read_to_string(world.path("log")).unwrap(), "new");
}

#[tokio::test]
async fn who_was_cut_off_before_another_log_was_begun_is_helped_by_the_next() {
    let world = World::new(10, 5);
    world.write("log.20261116-170000", "moved away by somebody who was killed");
    world.rotation.look(vec![world.container("log")]).await;
    assert_eq!(world.files(), ["log", "log.20261116-170000"]);
}

#[tokio::test]
async fn a_log_that_is_elsewhere_is_found_by_the_runtime() {
    let world = World::new(10, 5);
    world.write("log", "longer than 10 bytes");
    let container = RunningContainer { log_path: "/nonexistent/0.log".into(), ..world.container("log") };
    world.rotation.look(vec![container]).await;
    assert_eq!(world.files(), ["log", "log.now"]);
}

#[test]
fn the_name_of_what_is_moved_away_sorts_behind_those_before_whatever_the_clock_says() {
    let now: Timestamp = "2026-11-16T18:00:00Z".parse().unwrap();
    let name = time_after(now, None);
    assert_eq!(time_after(now, Some("20200101-000000.gz")), name);
    assert_eq!(time_after(now, Some("20991231-235959")), "21000101-000000");
    assert_eq!(time_after(now, Some("20991231-235959.gz")), "21000101-000000");
    assert!(time_after(now, Some(&name)) > name);
    assert_eq!(time_after(now, Some("zzz")), name, "what is no time of ours counts nothing");
}

#[tokio::test(start_paused = true)]
async fn logs_are_looked_at_once_in_an_interval() {
    let world = World::new(10, 3);
    let looks = Mutex::new(0);
    let running = || {
        *looks.lock().unwrap() += 1;
        Vec::new()
    };
    let run = world.rotation.run(running);
    let _ = tokio::time::timeout(Duration::from_secs(95), run).await;
    assert_eq!(*looks.lock().unwrap(), 10);
}

#[test]
fn a_log_is_moved_away_where_the_file_system_knows_no_exclusive_rename() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("0.log"), directory.path().join("0.log.1"));
    let cannot = |_: &Path, _: &Path| Err(Errno::INVAL);
    fs::write(&from, "one").unwrap();
    rename_by(cannot, &from, &to).unwrap();
    assert_eq!(fs::read_to_string(&to).unwrap(), "one");
    fs::write(&from, "two").unwrap();
    rename_by(cannot, &from, &to).unwrap_err();
    assert_eq!(fs::read_to_string(&to).unwrap(), "one", "never onto a file that is there");
}
