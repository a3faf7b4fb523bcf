//! What the kernel's log says of processes that were ended because memory ran out, and what a container's status says of it.

use crablet_api::core::{ContainerState as Shown, PodStatus};
use crablet_cri_api::{ContainerState, ContainerStatus};

/// The reason of a container that ended because memory ran out, as runtimes give it.
pub const REASON: &str = "OOMKilled";
/// The reason that containerd gives where it does not know of that.
const UNKNOWN: &str = "Error";
/// The exit code of a process that was killed.
const KILLED: i32 = 137;

/// A process that the kernel ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutOfMemory {
    pub process: String,
    pub pid: u32,
    /// The cgroup whose limit was reached; `/` where it was the machine's memory that ran out.
    pub limited: String,
    /// The cgroup of the process; empty where that is not told.
    pub cgroup: String,
}

/// Whether a runtime tells of a container that it was killed, and not why. It may have come too late to see that memory ran
/// out: the cgroup goes with its last process.
pub fn may_be_meant(container: &ContainerStatus) -> bool {
    container.state == ContainerState::Exited && container.exit_code == KILLED && container.reason == UNKNOWN
}

/// Whether a pod's status says of a container that it ended because memory ran out.
pub fn is_told(status: &PodStatus, id: &str) -> bool {
    let all = status.init_container_statuses.iter().chain(&status.container_statuses);
    let mut all =
        all.chain(&status.ephemeral_container_statuses).flat_map(|told| [&told.state, &told.last_state]);
    all.any(|state| match state.one() {
        Some(Shown::Terminated(ended)) => {
            *ended.reason == *REASON && ended.container_id.rsplit('/').next() == Some(id)
        }
        Some(Shown::Waiting(_) | Shown::Running(_)) | None => false,
    })
}

impl OutOfMemory {
    /// The machine as a whole.
    pub const MACHINE: &str = "/";

    pub fn is_of_machine(&self) -> bool {
        self.limited == OutOfMemory::MACHINE
    }

    /// The event's message.
    pub fn message(&self) -> String {
        match (&*self.process, self.pid) {
            ("", _) | (_, 0) => "System OOM encountered".to_owned(),
            (process, pid) => format!("System OOM encountered, victim process: {process}, pid: {pid}"),
        }
    }
}

/// Reads a log line by line.
#[derive(Debug, Clone, Default)]
pub struct Reader(Option<OutOfMemory>);

impl Reader {
    /// Takes in a line, and gives what was ended where it is the last one that tells of that.
    pub fn read(&mut self, line: &str) -> Option<OutOfMemory> {
        if line.contains("invoked oom-killer:") {
            let (limited, none) = (OutOfMemory::MACHINE.to_owned(), String::new);
            self.0 = Some(OutOfMemory { process: none(), pid: 0, limited, cgroup: none() });
            return None;
        }
        let told = self.0.as_mut()?;
        if let Some(cgroup) = cgroup_of_process(line) {
            told.cgroup = cgroup;
        }
        if let Some((limited, process, pid)) = of_cgroup(line) {
            (told.limited, told.process, told.pid) = (limited, process, pid);
            return self.0.take();
        }
        if let Some((cgroup, limited)) = of_cgroup_of_old(line) {
            (told.cgroup, told.limited) = (cgroup, limited);
        }
        if let Some((process, pid)) = killed(line) {
            (told.process, told.pid) = (process, pid);
            return self.0.take();
        }
        None
    }
}

/// As kernels tell since 5.0 where a cgroup reached its limit.
fn of_cgroup(line: &str) -> Option<(String, String, u32)> {
    let rest = &line[line.find("oom-kill:constraint=")?..];
    let (_, rest) = rest.split_once(",oom_memcg=")?;
    let (limited, rest) = rest.split_once(",task_memcg=")?;
    // A name may have a comma in it.
    let (_, rest) = rest.split_once(",task=")?;
    let (rest, _) = rest.rsplit_once(",uid=")?;
    let (process, pid) = rest.rsplit_once(",pid=")?;
    Some((limited.to_owned(), process.to_owned(), pid.parse().ok()?))
}

/// As they tell also where the machine's memory ran out.
fn cgroup_of_process(line: &str) -> Option<String> {
    let rest = &line[line.find("oom-kill:constraint=")?..];
    let (_, rest) = rest.split_once(",task_memcg=")?;
    Some(rest.split_once(",task=")?.0.to_owned())
}

/// As they did before that: the cgroup of the process, and the one that reached its limit.
fn of_cgroup_of_old(line: &str) -> Option<(String, String)> {
    let (_, rest) = line.split_once("Task in ")?;
    let (cgroup, limited) = rest.split_once(" killed as a result of limit of ")?;
    Some((cgroup.to_owned(), format!("/{}", limited.trim().trim_start_matches('/'))))
}

fn killed(line: &str) -> Option<(String, u32)> {
    let (_, rest) = line.split_once("Killed process ")?;
    let (pid, rest) = rest.split_once(" (")?;
    let (process, _) = rest.rsplit_once(')')?;
    Some((process.to_owned(), pid.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told of each process that these lines say was ended.
    fn read(lines: &str) -> Vec<String> {
        let mut reader = Reader::default();
        let ended = lines.lines().filter_map(|line| reader.read(line));
        let text = |ended: OutOfMemory| {
            format!("{} {} {} {}", ended.limited, ended.process, ended.pid, ended.cgroup)
        };
        ended.map(text).collect()
    }

    #[test]
    fn the_machine_and_cgroups_are_told_apart_on_new_and_old_kernels() {
        let of_machine = "stress invoked oom-killer: gfp_mask=0x100cca, order=0, oom_score_adj=0\n\
             CPU: 1 PID: 7 Comm: stress\n\
             oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/a,task=stress,pid=7,uid=0\n\
             Out of memory: Killed process 7 (stress) total-vm:100kB, anon-rss:1kB, file-rss:0kB\n";
        let of_cgroup = "tail invoked oom-killer: gfp_mask=0xcc0, order=0, oom_score_adj=999\n\
             oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c,mems_allowed=0,oom_memcg=/kubepods/podu,task_memcg=/kubepods/podu/c,task=ta,il,pid=42,uid=1000\n\
             Memory cgroup out of memory: Killed process 42 (ta,il) total-vm:1kB\n";
        let of_old = "tail invoked oom-killer: gfp_mask=0xd0, order=0, oom_score_adj=1000\n\
             Task in /kubepods/podu/c killed as a result of limit of /kubepods/podu\n\
             Memory cgroup out of memory: Kill process 9 (tail) score 1000 or sacrifice child\n\
             Killed process 9 (tail) total-vm:1kB, anon-rss:1kB\n";
        assert_eq!(read(of_machine), ["/ stress 7 /a"]);
        assert_eq!(read(of_cgroup), ["/kubepods/podu ta,il 42 /kubepods/podu/c"]);
        assert_eq!(read(of_old), ["/kubepods/podu tail 9 /kubepods/podu/c"]);
        let all = format!("{of_machine}audit: something else\n{of_cgroup}{of_old}");
        assert_eq!(read(&all).len(), 3);
        assert!(read("Out of memory: Killed process 7 (stress)\n").is_empty(), "nobody invoked the killer");
    }

    #[test]
    fn only_a_container_of_which_the_runtime_knows_no_better_may_have_run_out_of_memory() {
        let container = |state, exit_code, reason: &str| ContainerStatus {
            state,
            exit_code,
            reason: reason.into(),
            ..crate::testing::container("c", 0).status
        };
        for (container, expected) in [
            (container(ContainerState::Exited, 137, "Error"), true),
            (container(ContainerState::Exited, 137, "OOMKilled"), false),
            (container(ContainerState::Exited, 137, "ContainerCannotRun"), false),
            (container(ContainerState::Exited, 1, "Error"), false),
            (container(ContainerState::Exited, 0, "Completed"), false),
            (container(ContainerState::Running, 137, "Error"), false),
        ] {
            assert_eq!(may_be_meant(&container), expected, "{container:?}");
        }
    }

    #[test]
    fn a_status_remembers_who_ran_out_of_memory() {
        let ended = |reason: &str, id: &str| {
            format!("{{terminated: {{exitCode: 137, reason: {reason}, containerID: 'r://{id}'}}}}")
        };
        let pod = crablet_api::testing::pod_yaml(&format!(
            "metadata: {{name: p}}\nspec: {{containers: [{{name: c}}]}}\nstatus:\n  \
             initContainerStatuses: [{{name: i, state: {}}}]\n  \
             containerStatuses: [{{name: c, state: {{running: {{}}}}, lastState: {}}}, {{name: d, state: {}}}]",
            ended("OOMKilled", "i1"),
            ended("OOMKilled", "c1"),
            ended("Error", "d1"),
        ));
        for (id, expected) in [("i1", true), ("c1", true), ("d1", false), ("1", false), ("", false)] {
            assert_eq!(is_told(&pod.status, id), expected, "{id}");
        }
    }

    #[test]
    fn an_event_names_the_process_where_it_is_known() {
        let ended = |process: &str, pid| OutOfMemory {
            process: process.into(),
            pid,
            limited: "/".into(),
            cgroup: String::new(),
        };
        let named = "System OOM encountered, victim process: tail, pid: 9";
        assert_eq!(ended("tail", 9).message(), named);
        assert_eq!(ended("", 0).message(), "System OOM encountered");
    }
}
