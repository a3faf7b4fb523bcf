//! What the kernel's log says of processes that were ended because memory ran out.

/// A process that the kernel ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutOfMemory {
    pub process: String,
    pub pid: u32,
    /// The cgroup whose limit was reached; `/` where it was the machine's memory that ran out.
    pub limited: String,
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
            let limited = OutOfMemory::MACHINE.to_owned();
            self.0 = Some(OutOfMemory { process: String::new(), pid: 0, limited });
            return None;
        }
        let told = self.0.as_mut()?;
        if let Some((limited, process, pid)) = of_cgroup(line) {
            (told.limited, told.process, told.pid) = (limited, process, pid);
            return self.0.take();
        }
        if let Some(limited) = of_cgroup_of_old(line) {
            told.limited = limited;
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

/// As they did before that.
fn of_cgroup_of_old(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("Task in ")?;
    let (_, limited) = rest.split_once(" killed as a result of limit of ")?;
    Some(format!("/{}", limited.trim().trim_start_matches('/')))
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
        ended.map(|ended| format!("{} {} {}", ended.limited, ended.process, ended.pid)).collect()
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
        assert_eq!(read(of_machine), ["/ stress 7"]);
        assert_eq!(read(of_cgroup), ["/kubepods/podu ta,il 42"]);
        assert_eq!(read(of_old), ["/kubepods/podu tail 9"]);
        let all = format!("{of_machine}audit: something else\n{of_cgroup}{of_old}");
        assert_eq!(read(&all).len(), 3);
        assert!(read("Out of memory: Killed process 7 (stress)\n").is_empty(), "nobody invoked the killer");
    }

    #[test]
    fn an_event_names_the_process_where_it_is_known() {
        let ended = |process: &str, pid| OutOfMemory { process: process.into(), pid, limited: "/".into() };
        let named = "System OOM encountered, victim process: tail, pid: 9";
        assert_eq!(ended("tail", 9).message(), named);
        assert_eq!(ended("", 0).message(), "System OOM encountered");
    }
}
