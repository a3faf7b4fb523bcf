//! Child processes that cannot outlive this one.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::{fs, io};

use anyhow::{Context, Result};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::sync::{oneshot, watch};

use crate::programs::find_program;

const LOG_TAIL_LINES: usize = 60;

/// A process in the background that writes to a log file, and that the kernel kills when this process dies, however it
/// dies. Dropping it kills it too.
///
/// It is in a process group of its own, so that an interrupt typed at a terminal reaches this process alone, which then
/// ends the other in its own way.
pub struct Daemon {
    log: PathBuf,
    process: Process,
    exit: watch::Receiver<Option<ExitStatus>>,
    keeper: Option<JoinHandle<()>>,
}

impl Daemon {
    /// Runs `program` with these arguments and additional variables, and appends what it prints to `log`.
    pub async fn spawn<Argument: AsRef<OsStr>>(
        program: &Path,
        arguments: impl IntoIterator<Item = Argument>,
        variables: impl IntoIterator<Item = (&str, &str)>,
        log: &Path,
    ) -> Result<Daemon> {
        let output = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot open the log {}", log.display()))?;
        let mut command = Command::new(find_program("setpriv")?);
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(arguments)
            .envs(variables)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0);
        let (started, has_started) = oneshot::channel();
        let (exited, exit) = watch::channel(None);
        // The kernel's promise is bound to the *thread* that spawned the process. A thread of the async runtime may end
        // early; this one waits for the process, and so lives exactly as long.
        let keeper = thread::Builder::new()
            .name("daemon-keeper".to_owned())
            .spawn(move || keep(command, started, exited))?;
        let process = has_started
            .await
            .context("the thread that spawns processes died")?
            .with_context(|| format!("cannot run {}", program.display()))?;
        Ok(Daemon { log: log.to_owned(), process, exit, keeper: Some(keeper) })
    }

    /// The process's number.
    pub fn pid(&self) -> i32 {
        self.process.pid.as_raw_pid()
    }

    /// Whether it ended, and how.
    pub fn exit(&self) -> Option<ExitStatus> {
        *self.exit.borrow()
    }

    /// Sends SIGTERM. A process that has ended already is no error.
    pub fn terminate(&self) {
        self.process.signal(Signal::TERM);
    }

    /// Sends SIGKILL. A process that has ended already is no error.
    pub fn kill(&self) {
        self.process.signal(Signal::KILL);
    }

    /// Waits until it has ended.
    pub async fn wait(&mut self) -> Result<ExitStatus> {
        let exit = self
            .exit
            .wait_for(Option::is_some)
            .await
            .context("the thread that waits for the process died")?;
        (*exit).context("the process ended without a status")
    }

    /// The last lines of its log.
    pub fn log_tail(&self) -> String {
        log_tail(&self.log)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
        if let Some(keeper) = self.keeper.take() {
            // Its panic has been printed; there is nothing to add.
            let _ = keeper.join();
        }
    }
}

/// The last lines of a log.
pub(crate) fn log_tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}

/// A process by descriptor: its number alone may come to mean another process.
struct Process {
    pid: Pid,
    descriptor: OwnedFd,
}

impl Process {
    fn signal(&self, signal: Signal) {
        // The one possible failure is that it has ended.
        let _ = pidfd_send_signal(&self.descriptor, signal);
    }
}

fn keep(
    mut command: Command,
    started: oneshot::Sender<io::Result<Process>>,
    exited: watch::Sender<Option<ExitStatus>>,
) {
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let _ = started.send(Err(error));
            return;
        }
    };
    let pid = Pid::from_child(&child);
    let process = pidfd_open(pid, PidfdFlags::empty()).map(|descriptor| Process { pid, descriptor });
    let opened = process.is_ok();
    // When nobody waits for the process any more, or nobody could end it, it must not stay.
    if started.send(process.map_err(io::Error::from)).is_err() || !opened {
        let _ = child.kill();
    }
    if let Ok(status) = child.wait() {
        exited.send_replace(Some(status));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_daemon_logs_and_tells_how_it_ended() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let mut daemon = Daemon::spawn(
            Path::new("/bin/sh"),
            ["-c", "echo to the $WHERE; exit 3"],
            [("WHERE", "log")],
            &log,
        )
        .await
        .unwrap();
        assert_eq!(daemon.wait().await.unwrap().code(), Some(3));
        assert_eq!(daemon.log_tail(), "to the log");
    }

    #[tokio::test]
    async fn a_dropped_daemon_is_dead() {
        let directory = tempfile::tempdir().unwrap();
        let daemon = Daemon::spawn(Path::new("/bin/sleep"), ["1000"], [], &directory.path().join("log"))
            .await
            .unwrap();
        let process = PathBuf::from(format!("/proc/{}", daemon.pid()));
        assert!(process.exists());
        timeout(Duration::from_secs(10), async { drop(daemon) }).await.unwrap();
        assert!(!process.exists());
    }
}
