//! A containerd that belongs to one test.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::geteuid;
use tokio::process::Command;
use tokio::runtime;
use tokio::time::timeout;

use crate::daemon::{Daemon, log_tail};
use crate::image::Image;
use crate::programs::Programs;
use crate::run::{Names, Run};
use crate::wait::eventually;
use crate::{cleanup, configuration};

/// The namespace in which CRI keeps its images and containers.
const NAMESPACE: &str = "k8s.io";

/// What containerd logs right before its CRI service answers.
const READY: &str = "Start streaming server";

/// The label that the CRI service gives an image once it knows it.
const MANAGED: &str = "io.cri-containerd.image=managed";

/// Long enough for a machine under load: what takes this long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A containerd with a root, state, socket, network and cgroup of its own.
///
/// Containers outlive containerd, on purpose; they do not outlive this value. Dropping it removes everything: processes,
/// mounts, links, cgroups, files. What a killed process could not remove, the next [`Containerd::start`] on this machine
/// does.
///
/// It is a real process: tests that use it must not pause tokio's time.
pub struct Containerd {
    programs: Programs,
    daemon: Option<Daemon>,
    /// `None` once everything has been removed. Declared after the daemon: its lock must be the last thing to go.
    run: Option<Run>,
    names: Names,
}

impl Containerd {
    /// Starts a containerd and waits until its CRI service answers. Needs root.
    ///
    /// It is the one in `PATH`, or the one that the variable `CRABLET_CONTAINERD` names; `ctr` and the shim are looked
    /// for beside that one first.
    pub async fn start() -> Result<Containerd> {
        if !geteuid().is_root() {
            bail!("a private containerd needs root: run this as root");
        }
        let programs = Programs::find().await?;
        let run = Run::claim().await?;
        let names = *run.names();
        // From here on, dropping it removes what follows.
        let mut containerd = Containerd { programs, daemon: None, run: Some(run), names };
        configuration::write(&containerd.names, &containerd.programs)?;
        containerd.start_again().await?;
        Ok(containerd)
    }

    /// The CRI endpoint, as `unix://` and a path.
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// The path of the socket.
    pub fn socket(&self) -> PathBuf {
        self.names.socket()
    }

    /// The process number of containerd, while it runs.
    pub fn pid(&self) -> Option<i32> {
        self.daemon.as_ref().map(Daemon::pid)
    }

    /// A cgroup for this run alone, to use as parent of all others (`cgroupRoot` of a kubelet). It is removed at the
    /// end with all that is in it; it need not exist.
    pub fn cgroup(&self) -> String {
        self.names.cgroup()
    }

    /// The bridge that pods are connected to. It exists once the first pod with a network does.
    pub fn bridge(&self) -> String {
        self.names.bridge()
    }

    /// The subnet from which pods get their addresses, such as `10.213.1.0/24`.
    pub fn subnet(&self) -> String {
        self.names.subnet()
    }

    /// Creates a directory that is removed at the end with all that is in it, after all mounts in it.
    pub fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.names.directory().join("own").join(name);
        fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(path)
    }

    /// Makes an image known to the CRI service.
    pub async fn import(&self, image: &Image) -> Result<()> {
        let archive = tempfile::NamedTempFile::new_in(self.names.directory())?;
        fs::write(archive.path(), image.archive()?)?;
        self.ctr(["image".as_ref(), "import".as_ref(), archive.path().as_os_str()]).await?;
        // The CRI service learns of it by an event.
        let reference = image.reference();
        let awaited = format!("the CRI service knows the image {reference}");
        eventually(&awaited, PATIENCE, || async {
            let listed = self.ctr(["image", "list", &format!("name=={reference}")]).await?;
            if listed.contains(MANAGED) { Ok(()) } else { Err(anyhow!("{listed}")) }
        })
        .await
    }

    /// Runs `ctr` in CRI's namespace of this containerd, and returns what it prints.
    pub async fn ctr<Argument: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = Argument>,
    ) -> Result<String> {
        let arguments: Vec<Argument> = arguments.into_iter().collect();
        let mut command = Command::new(&self.programs.ctr);
        command
            .arg("--address")
            .arg(self.socket())
            .args(["--namespace", NAMESPACE])
            .args(&arguments)
            .kill_on_drop(true);
        let what = || {
            let words: Vec<_> =
                arguments.iter().map(|argument| argument.as_ref().to_string_lossy()).collect();
            format!("ctr {}", words.join(" "))
        };
        let output = timeout(PATIENCE, command.output())
            .await
            .with_context(|| format!("{} has not ended after {PATIENCE:?}", what()))?
            .with_context(|| format!("cannot run {}", self.programs.ctr.display()))?;
        if !output.status.success() {
            bail!("{} failed: {}", what(), String::from_utf8_lossy(&output.stderr).trim());
        }
        String::from_utf8(output.stdout).with_context(|| format!("{} printed no text", what()))
    }

    /// Stops containerd as a service manager would, and starts it again. Containers keep running.
    pub async fn restart(&mut self) -> Result<()> {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.terminate();
            timeout(PATIENCE, daemon.wait()).await.with_context(|| {
                format!("containerd has not stopped after {PATIENCE:?}:\n{}", daemon.log_tail())
            })??;
        }
        self.start_again().await
    }

    /// Kills containerd, and it alone, with SIGKILL. Containers keep running.
    pub async fn kill(&mut self) -> Result<()> {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill();
            daemon.wait().await?;
        }
        Ok(())
    }

    /// Starts containerd where it was killed, and waits until its CRI service answers.
    pub async fn start_again(&mut self) -> Result<()> {
        if self.daemon.as_ref().is_some_and(|daemon| daemon.exit().is_none()) {
            bail!("containerd is running");
        }
        let log = self.names.log();
        let logged_before = fs::metadata(&log).map_or(0, |metadata| metadata.len() as usize);
        let configuration = self.names.configuration();
        let arguments = [OsStr::new("--config"), configuration.as_os_str()];
        let variables = [("PATH", self.programs.search_path.as_str())];
        let daemon = Daemon::spawn(&self.programs.containerd, arguments, variables, &log).await?;
        let daemon = self.daemon.insert(daemon);
        let ended = eventually("containerd's CRI service answers", PATIENCE, || async {
            if let Some(status) = daemon.exit() {
                return Ok(Some(status));
            }
            let text = fs::read(&log).unwrap_or_default();
            let text = String::from_utf8_lossy(text.get(logged_before..).unwrap_or_default());
            if text.contains(READY) { Ok(None) } else { Err(format!("no line {READY:?} in its log")) }
        })
        .await
        .with_context(|| format!("containerd's log ends with:\n{}", daemon.log_tail()))?;
        if let Some(status) = ended {
            bail!("containerd ended with {status}; its log ends with:\n{}", daemon.log_tail());
        }
        self.ctr(["version"]).await.context("containerd does not answer")?;
        Ok(())
    }

    /// The last lines of containerd's log.
    pub fn log(&self) -> String {
        log_tail(&self.names.log())
    }

    /// Ends containerd and all containers, and removes everything that it made. Dropping does the same, but can only
    /// print an error.
    pub async fn stop(mut self) -> Result<()> {
        self.remove().await
    }

    async fn remove(&mut self) -> Result<()> {
        drop(self.daemon.take());
        let Some(run) = &self.run else {
            return Ok(());
        };
        let removed = cleanup::remove(run.names()).await;
        // Only now: if this is abandoned half way, dropping goes on with it.
        self.run = None;
        removed
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        if self.run.is_none() {
            return;
        }
        if thread::panicking() {
            eprintln!("containerd's log ends with:\n{}", self.log());
        }
        if let Err(error) = remove_now(self) {
            eprintln!("cannot remove a private containerd: {error:#}");
        }
    }
}

/// Removes it before this returns. The caller may be inside an async runtime, which must not be blocked on: another
/// thread with a small one does it.
fn remove_now(containerd: &mut Containerd) -> Result<()> {
    thread::scope(|scope| {
        let remover =
            thread::Builder::new().name("containerd-remover".to_owned()).spawn_scoped(scope, || {
                let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(containerd.remove())
            })?;
        remover.join().map_err(|_panic| anyhow!("the thread that removes it panicked"))?
    })
}
