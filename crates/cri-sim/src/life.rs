//! How processes of containers and sandboxes run and end.

use crablet_cri_api::v1::{ContainerEventType, NamespaceMode};
use tokio::time::Instant;

use super::event::Happening;
use super::sandbox::namespaces;
use super::shell::Signal;
use super::world::World;

/// What a process exits with that is killed.
const KILLED: i32 = 137;

impl World {
    /// Lets a container's process do what is due, and sees to what follows.
    pub(crate) fn run_process(&mut self, id: &str, at: Instant) {
        let clock = self.clock;
        if let Some(container) = self.containers.get_mut(id) {
            container.with_process(&clock, |machine, host| machine.run(host, at));
        }
        self.after_run(id, at);
    }

    /// Sends a signal to a container's process.
    pub(crate) fn signal(&mut self, id: &str, signal: Signal, at: Instant) {
        let clock = self.clock;
        if let Some(container) = self.containers.get_mut(id) {
            container.with_process(&clock, |machine, host| machine.signal(host, signal, at));
        }
        self.after_run(id, at);
    }

    /// Has a container's process end with a code. Gives whether it ran.
    pub(crate) fn exit(&mut self, id: &str, code: i32, at: Instant) -> bool {
        let Some(process) = self.containers.get_mut(id).and_then(|container| container.process.as_mut())
        else {
            return false;
        };
        let ran = process.machine.exited().is_none();
        process.machine.exit(code, at);
        self.after_run(id, at);
        ran
    }

    /// Has the kernel kill a container for want of memory. Gives whether it ran.
    pub(crate) fn out_of_memory(&mut self, id: &str, at: Instant) -> bool {
        let Some(container) = self.containers.get_mut(id).filter(|container| {
            container.process.as_ref().is_some_and(|process| process.machine.exited().is_none())
        }) else {
            return false;
        };
        "OOMKilled".clone_into(&mut container.reason);
        self.tell(Happening::TaskOom { id }, at);
        self.exit(id, KILLED, at)
    }

    fn after_run(&mut self, id: &str, at: Instant) {
        let Some(container) = self.containers.get_mut(id) else { return };
        let limit = container.memory_limit();
        let Some(process) = container.process.as_mut().filter(|process| !process.ended) else { return };
        let (pid, machine) = (process.pid, &process.machine);
        match (machine.exited(), machine.wakes()) {
            (Some((code, ended)), _) => {
                process.ended = true;
                process.log.finish(self.clock.timestamp(ended));
                let exited_at = self.clock.timestamp(ended);
                self.tell(Happening::TaskExit { id, exec: id, pid, code, exited_at }, at);
                let seen = ended + self.settings.exit_lag;
                match seen <= at {
                    true => self.container_exit_is_seen(id, at),
                    false => self.see_container_exit_at(seen, id),
                }
            }
            (None, _) if limit.is_some_and(|limit| machine.memory > limit) => {
                self.out_of_memory(id, at);
            }
            (None, Some(wakes)) => self.wake_process_at(wakes, id),
            (None, None) => {}
        }
    }

    /// CRI learns that a container has ended.
    pub(crate) fn container_exit_is_seen(&mut self, id: &str, at: Instant) {
        let clock = self.clock;
        let Some(container) = self.containers.get_mut(id) else { return };
        let Some(process) = container.process.take() else { return };
        let Some((code, ended)) = process.machine.exited() else { return };
        let lived = i64::try_from(ended.saturating_duration_since(process.started).as_nanos());
        container.finished_at = container.started_at.saturating_add(lived.unwrap_or(i64::MAX));
        container.exit_code = code;
        let sandbox_id = container.sandbox_id.clone();
        let exited_at = clock.timestamp(ended);
        self.tell(Happening::TaskDelete { id, pid: process.pid, code, exited_at }, at);
        if let Some(container) = self.containers.get(id) {
            container.stopped.tell();
        }
        self.tell_cri(id, &sandbox_id, ContainerEventType::ContainerStoppedEvent, at);
    }

    /// Has a sandbox's process end. Gives whether it ran.
    pub(crate) fn kill_sandbox(&mut self, id: &str, at: Instant) -> bool {
        let Some(sandbox) = self.sandboxes.get_mut(id).filter(|sandbox| !sandbox.ended) else { return false };
        sandbox.ended = true;
        let pid = sandbox.pid;
        let exited_at = self.clock.timestamp(at);
        self.tell(Happening::TaskExit { id, exec: id, pid, code: KILLED, exited_at }, at);
        // The first process of a PID namespace takes all others with it.
        for member in self.members.get(id).cloned().unwrap_or_default() {
            if self.shares_pids(&member) {
                self.exit(&member, KILLED, at);
            }
        }
        let seen = at + self.settings.exit_lag;
        match seen <= at {
            true => self.sandbox_exit_is_seen(id, at),
            false => self.see_sandbox_exit_at(seen, id),
        }
        true
    }

    fn shares_pids(&self, id: &str) -> bool {
        let container = self.containers.get(id);
        let context = container
            .and_then(|container| container.config.linux.as_ref())
            .and_then(|linux| linux.security_context.as_ref());
        let mode = context
            .and_then(|context| context.namespace_options.as_ref())
            .map_or(NamespaceMode::Pod, |options| options.pid());
        let sandbox = container.and_then(|container| self.sandboxes.get(&container.sandbox_id));
        let on_node = sandbox.is_some_and(|sandbox| namespaces(&sandbox.config).pid() == NamespaceMode::Node);
        mode == NamespaceMode::Pod && !on_node
    }

    /// CRI learns that a sandbox has ended.
    pub(crate) fn sandbox_exit_is_seen(&mut self, id: &str, at: Instant) {
        let Some(sandbox) = self.sandboxes.get_mut(id).filter(|sandbox| sandbox.ready) else { return };
        sandbox.ready = false;
        let pid = std::mem::take(&mut sandbox.pid);
        sandbox.stopped.tell();
        let exited_at = self.clock.timestamp(at);
        self.tell(Happening::TaskDelete { id, pid, code: KILLED, exited_at }, at);
        self.tell_cri(id, id, ContainerEventType::ContainerStoppedEvent, at);
    }
}
