//! What the containers of an image do.

use std::collections::BTreeMap;
use std::time::Duration;

use super::shell::{Machine, Signal};

/// What a container does from its start to its end.
///
/// ```
/// # use std::time::Duration;
/// # use crablet_cri_sim::Program;
/// Program::run_forever();
/// Program::exit_after(Duration::from_secs(5), 3).printing("about to fail\n");
/// Program::run_forever().ignoring_term();
/// Program::run_forever().using_memory(100 << 20).failing_exec(1);
/// assert_eq!("exit=3,after=5s".parse(), Ok(Program::exit_after(Duration::from_secs(5), 3)));
/// ```
///
/// A pod chooses one by the annotation [`Program::ANNOTATION`], on its container or its sandbox (there also with a dot
/// and the name of a container after it), in the form that [`Program`] is parsed from: parts with commas between them. `forever`; `exit=CODE`, `after=DURATION`; `term=ignore`
/// or `term=CODE`; `memory=BYTES`, `memory-after=DURATION`; `cpu=MILLICORES`; `exec=CODE` or `exec=hang`.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    pub(crate) output: String,
    /// Ends after this time with this code.
    exit: Option<(Duration, i32)>,
    /// The code it ends with when asked to; none when it does not care.
    on_term: Option<i32>,
    pub(crate) exec: Exec,
    memory: Option<u64>,
    memory_after: Duration,
    pub(crate) cpu: u32,
}

/// What a command does that is run in a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exec {
    /// What it says.
    Runs,
    /// Ends at once with this code.
    Exits(i32),
    /// Never ends.
    Hangs,
}

impl Program {
    /// The annotation that chooses a program.
    pub const ANNOTATION: &str = "sim.crablet.dev/program";

    /// Runs until it is asked to stop, and then ends with 143.
    pub fn run_forever() -> Program {
        Program {
            output: String::new(),
            exit: None,
            on_term: Some(Signal::Terminate.exit_code()),
            exec: Exec::Runs,
            memory: None,
            memory_after: Duration::ZERO,
            cpu: 1,
        }
    }

    /// Ends by itself.
    pub fn exit_after(after: Duration, code: i32) -> Program {
        Program { exit: Some((after, code)), ..Program::run_forever() }
    }

    /// Writes this first.
    pub fn printing(mut self, text: &str) -> Program {
        self.output = text.to_owned();
        self
    }

    /// Does not stop when asked to, but only when killed.
    pub fn ignoring_term(mut self) -> Program {
        self.on_term = None;
        self
    }

    /// Ends with this code when asked to stop.
    pub fn exiting_on_term_with(mut self, code: i32) -> Program {
        self.on_term = Some(code);
        self
    }

    /// Uses this much memory, in bytes. What is more than the container may use has it killed.
    pub fn using_memory(mut self, bytes: u64) -> Program {
        self.memory = Some(bytes);
        self
    }

    /// Takes that memory only after a while.
    pub fn taking_it_after(mut self, after: Duration) -> Program {
        self.memory_after = after;
        self
    }

    /// Uses this much CPU, in thousandths of a core.
    pub fn using_cpu(mut self, millicores: u32) -> Program {
        self.cpu = millicores;
        self
    }

    /// Every command that is run in the container ends with this code.
    pub fn failing_exec(mut self, code: i32) -> Program {
        self.exec = Exec::Exits(code);
        self
    }

    /// No command that is run in the container ever ends.
    pub fn hanging_exec(mut self) -> Program {
        self.exec = Exec::Hangs;
        self
    }

    pub(crate) fn machine(&self) -> Machine {
        // Waiting in the background is what a program does that answers signals at once.
        let mut script = String::new();
        if !self.output.is_empty() {
            script.push_str("printf %s \"$OUTPUT\"; ");
        }
        let late_memory = self.memory.filter(|_| !self.memory_after.is_zero());
        if late_memory.is_some() {
            script.push_str(&format!("sleep {} & wait; take-memory; ", self.memory_after.as_secs_f64()));
        }
        match self.exit {
            Some((after, code)) => {
                script.push_str(&format!("sleep {} & wait; exit {code}", after.as_secs_f64()));
            }
            None => script.push_str("sleep infinity & wait"),
        }
        let mut variables = BTreeMap::from([("OUTPUT".to_owned(), self.output.clone())]);
        if let Some(bytes) = late_memory {
            variables.insert("MEMORY".to_owned(), bytes.to_string());
        }
        let machine = Machine::script(&script, variables).handling(Signal::Terminate, self.on_term);
        match self.memory.filter(|_| self.memory_after.is_zero()) {
            Some(bytes) => machine.using(bytes),
            None => machine,
        }
    }
}

/// A program that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{part:?} is no part of a program: expected forever, {expected}")]
pub struct BadProgram {
    part: String,
    expected: &'static str,
}

impl std::str::FromStr for Program {
    type Err = BadProgram;

    fn from_str(text: &str) -> Result<Program, BadProgram> {
        let mut program = Program::run_forever();
        let mut after = Duration::ZERO;
        let mut code = None;
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let bad = || BadProgram {
                part: part.to_owned(),
                expected: "exit=CODE, after=5s, term=ignore, term=CODE, memory=BYTES, memory-after=5s, \
                           cpu=MILLICORES, exec=CODE or exec=hang",
            };
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let number = || value.parse::<i32>().map_err(|_| bad());
            match (name, value) {
                ("forever", "") => {}
                ("exit", _) => code = Some(number()?),
                ("after", _) => after = duration(value).ok_or_else(bad)?,
                ("term", "ignore") => program.on_term = None,
                ("term", _) => program.on_term = Some(number()?),
                ("memory", _) => program.memory = Some(value.parse().map_err(|_| bad())?),
                ("memory-after", _) => program.memory_after = duration(value).ok_or_else(bad)?,
                ("cpu", _) => program.cpu = value.parse().map_err(|_| bad())?,
                ("exec", "hang") => program.exec = Exec::Hangs,
                ("exec", _) => program.exec = Exec::Exits(number()?),
                _ => return Err(bad()),
            }
        }
        program.exit = code.map(|code| (after, code));
        Ok(program)
    }
}

/// Reads `5s`, `100ms` or `2m`.
fn duration(text: &str) -> Option<Duration> {
    let (number, unit) =
        text.split_at(text.find(|character: char| character.is_ascii_alphabetic()).unwrap_or(text.len()));
    let number: f64 = number.parse().ok()?;
    let seconds = match unit {
        "ms" => number / 1000.0,
        "s" | "" => number,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_read_from_an_annotation() {
        let read = |text: &str| text.parse::<Program>();
        assert_eq!(read(""), Ok(Program::run_forever()));
        assert_eq!(read("forever"), Ok(Program::run_forever()));
        assert_eq!(
            read("exit=3, after=1.5s,term=ignore,exec=2,cpu=50"),
            Ok(Program::exit_after(Duration::from_millis(1500), 3)
                .ignoring_term()
                .failing_exec(2)
                .using_cpu(50))
        );
        assert_eq!(
            read("memory=100,memory-after=100ms,exec=hang,term=0"),
            Ok(Program::run_forever()
                .using_memory(100)
                .taking_it_after(Duration::from_millis(100))
                .hanging_exec()
                .exiting_on_term_with(0))
        );
        let error = read("exit=soon").unwrap_err().to_string();
        assert!(
            error.starts_with("\"exit=soon\" is no part of a program: expected forever, exit=CODE"),
            "{error}"
        );
    }
}
