//! Commands that are run in containers.

use std::future::pending;
use std::time::Duration;

use crablet_cri_api::v1;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::event::Happening;
use super::files::Files;
use super::program::Exec;
use super::shell::{Host, Machine, Signal, Stream, applets};
use super::simulator::Simulator;
use super::world::World;

/// The most that is kept of a stream, in bytes, as with containerd.
const LARGEST_OUTPUT: usize = 16 << 20;

/// A command that runs in a container.
struct Command {
    container_id: String,
    exec_id: String,
    pid: u32,
    machine: Machine,
    /// Ends when the container does.
    container_stopped: CancellationToken,
    output: Vec<u8>,
    errors: Vec<u8>,
}

impl Simulator {
    pub(crate) async fn exec_sync(
        &self,
        request: v1::ExecSyncRequest,
    ) -> Result<v1::ExecSyncResponse, Status> {
        let started = Instant::now();
        let limit = u64::try_from(request.timeout).ok().filter(|seconds| *seconds > 0);
        let deadline = limit.and_then(|seconds| started.checked_add(Duration::from_secs(seconds)));
        let mut command = self.with(|world, _| world.begin_exec(&request))?;
        loop {
            let ended = self.with(|world, now| world.run_exec(&mut command, now));
            if let Some(code) = ended {
                return Ok(v1::ExecSyncResponse {
                    stdout: command.output,
                    stderr: command.errors,
                    exit_code: code,
                });
            }
            let wakes = command.machine.wakes();
            tokio::select! {
                biased;
                () = command.container_stopped.cancelled() => {}
                () = until(wakes) => {}
                () = until(deadline) => {
                    command.machine.exit(Signal::Kill.exit_code(), Instant::now());
                    self.with(|world, now| world.run_exec(&mut command, now));
                    return Err(Status::deadline_exceeded(format!(
                        "failed to exec in container: timeout {} exceeded: context deadline exceeded",
                        in_go_words(limit.unwrap_or(0))
                    )));
                }
            }
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

impl World {
    fn begin_exec(&mut self, request: &v1::ExecSyncRequest) -> Result<Command, Status> {
        let asked = &request.container_id;
        let id = self.find_container(asked).map_err(|missing| {
            missing
                .status(format!("failed to exec in container: failed to find container {asked:?} in store"))
        })?;
        let exec_id = self.random.id();
        let pid = self.next_pid();
        let container = self.container(&id)?;
        if !container.is_running() {
            return Err(Status::unknown(format!(
                "failed to exec in container: container is in {} state",
                container.state().as_str_name()
            )));
        }
        let refused = |problem: String| {
            Status::unknown(format!(
                "failed to exec in container: failed to start exec {exec_id:?}: OCI runtime exec failed: exec failed: \
                 {problem}: unknown"
            ))
        };
        let program = container.program.as_ref().or(container.image.program.as_ref());
        let script = |text: &str| Machine::script(text, container.environment.clone());
        let machine = match (program.map_or(Exec::Runs, |program| program.exec), request.cmd.first()) {
            (_, None) => return Err(refused("args must not be empty".to_owned())),
            (Exec::Exits(code), _) => script(&format!("exit {code}")),
            (Exec::Hangs, _) => script("sleep infinity"),
            (Exec::Runs, Some(word)) if applets::find(word).is_some() => {
                applets::machine(&request.cmd, container.environment.clone())
            }
            (Exec::Runs, Some(_)) if container.image.runs_anything => script("true"),
            (Exec::Runs, Some(word)) => {
                let problem = format!("unable to start container process: {}", applets::not_found(word));
                return Err(refused(problem));
            }
        };
        let container_stopped = container.stopped.subscribe();
        Ok(Command {
            container_id: id,
            exec_id,
            pid,
            machine: machine.made_guest(),
            container_stopped,
            output: Vec::new(),
            errors: Vec::new(),
        })
    }

    /// Lets a command do what is due, and gives its code when it has ended.
    fn run_exec(&mut self, command: &mut Command, now: Instant) -> Option<i32> {
        let mut signals = Vec::new();
        match self.containers.get_mut(&command.container_id) {
            Some(container) if container.process.as_ref().is_some_and(|process| !process.ended) => {
                let mut host = Around {
                    files: &mut container.files,
                    mounts: &container.config.mounts,
                    output: &mut command.output,
                    errors: &mut command.errors,
                    signals: &mut signals,
                };
                command.machine.run(&mut host, now);
            }
            // All processes of a container end with its first.
            Some(_) | None => command.machine.exit(Signal::Kill.exit_code(), now),
        }
        for signal in signals {
            self.signal(&command.container_id, signal, now);
        }
        let (code, ended) = command.machine.exited()?;
        let happening = Happening::TaskExit {
            id: &command.container_id,
            exec: &command.exec_id,
            pid: command.pid,
            code,
            exited_at: self.clock.timestamp(ended),
        };
        self.tell(happening, now);
        Some(code)
    }
}

/// What a command finds around it.
struct Around<'a> {
    files: &'a mut Files,
    mounts: &'a [v1::Mount],
    output: &'a mut Vec<u8>,
    errors: &'a mut Vec<u8>,
    /// What the container's first process is to get.
    signals: &'a mut Vec<Signal>,
}

impl Host for Around<'_> {
    fn write(&mut self, stream: Stream, bytes: &[u8], _at: Instant) {
        let buffer = match stream {
            Stream::Output => &mut *self.output,
            Stream::Error => &mut *self.errors,
        };
        let room = LARGEST_OUTPUT.saturating_sub(buffer.len());
        buffer.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn read_file(&mut self, path: &str) -> Option<Vec<u8>> {
        self.files.read(self.mounts, path)
    }

    fn write_file(&mut self, path: &str, bytes: &[u8], append: bool) -> bool {
        self.files.write(self.mounts, path, bytes, append)
    }

    fn remove_file(&mut self, path: &str) -> bool {
        self.files.remove(self.mounts, path)
    }

    fn signal_first(&mut self, signal: Signal) {
        // From within its own PID namespace, nothing kills the first process that it does not handle.
        if signal != Signal::Kill {
            self.signals.push(signal);
        }
    }
}

/// Whole seconds as Go writes a duration: `1s`, `1m30s`, `1h0m0s`.
fn in_go_words(seconds: u64) -> String {
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, minutes) => format!("{minutes}m{rest}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{rest}s"),
    }
}
