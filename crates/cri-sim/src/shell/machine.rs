//! A program that runs, as a state: what it does next, and when.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::applets;
use super::parse::{Command, List, Part, Redirect, Simple, Target, When, Word, parse};
use super::signal::Signal;

/// How many commands run without a pause before the program is made to wait: a loop without `sleep` must not hold up
/// the simulation.
const BURST: usize = 200;
const PAUSE_AFTER_BURST: Duration = Duration::from_millis(100);

/// A stream that a program writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Output,
    Error,
}

/// What a program finds around it.
pub(crate) trait Host {
    /// Takes what the program writes.
    fn write(&mut self, stream: Stream, bytes: &[u8], at: Instant);
    fn read_file(&mut self, path: &str) -> Option<Vec<u8>>;
    /// Whether it could be written.
    fn write_file(&mut self, path: &str, bytes: &[u8], append: bool) -> bool;
    /// Whether it was there.
    fn remove_file(&mut self, path: &str) -> bool;
    /// Sends a signal to the first process of the container, once this one pauses.
    fn signal_first(&mut self, signal: Signal);
}

/// A program that runs.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(super) frames: Vec<Frame>,
    pub(super) variables: BTreeMap<String, String>,
    pub(super) last: i32,
    pub(super) state: State,
    /// What the program does on a signal, where that is not to end.
    pub(super) traps: BTreeMap<Signal, Trap>,
    /// A signal whose trap waits for the end of the command in the foreground.
    pending: Option<Signal>,
    /// Whether it is the first process of a PID namespace: then a signal that it does not handle is not delivered.
    is_init: bool,
    /// When the last of the commands in the background ends, if there are any.
    pub(super) background: Option<Until>,
    /// What it holds, in bytes.
    pub(crate) memory: u64,
    /// What it is called by its own kind.
    pub(super) pid: u32,
}

/// When something ends; nothing says: never.
pub(super) type Until = Option<Instant>;

#[derive(Debug, Clone)]
pub(super) enum State {
    Ready,
    /// Waits: for ever, if for no time; and whether a trapped signal ends it.
    Waits {
        until: Until,
        interruptible: bool,
    },
    Exited {
        code: i32,
        at: Instant,
    },
}

#[derive(Debug, Clone)]
pub(super) enum Frame {
    List { list: List, next: usize },
    Loop { until: bool, condition: List, body: List, in_condition: bool },
    If { then: List, otherwise: List },
}

#[derive(Debug, Clone)]
pub(super) enum Trap {
    Ignore,
    Run(List),
}

impl Machine {
    /// A shell that runs a script; or one that has ended already, when the script makes no sense.
    pub(crate) fn script(script: &str, variables: BTreeMap<String, String>) -> Machine {
        let list = parse(script).unwrap_or_else(|error| {
            let complain = format!("echo '{}' >&2; exit 2", error.replace('\'', "\""));
            parse(&complain).unwrap_or_else(|_| Arc::from([]))
        });
        Machine::list(list, variables)
    }

    /// One command with its words as they are.
    pub(crate) fn words(words: &[String], variables: BTreeMap<String, String>) -> Machine {
        let words = words.iter().map(|word| vec![Part::Text(word.clone())]).collect();
        let command = Command::Simple(Simple { words, ..Simple::default() });
        let item = super::parse::Item { when: When::Always, command };
        Machine::list(Arc::from([item]), variables)
    }

    fn list(list: List, variables: BTreeMap<String, String>) -> Machine {
        Machine {
            frames: vec![Frame::List { list, next: 0 }],
            variables,
            last: 0,
            state: State::Ready,
            traps: BTreeMap::new(),
            pending: None,
            is_init: false,
            background: None,
            memory: applets::MEMORY,
            pid: 1,
        }
    }

    /// Makes it a command that is run beside the container's first process.
    pub(crate) fn made_guest(mut self) -> Machine {
        self.pid = 100;
        self
    }

    /// Makes it the first process of a PID namespace.
    pub(crate) fn made_init(mut self) -> Machine {
        self.is_init = true;
        self
    }

    /// Lets it use this much memory from now on.
    pub(crate) fn using(mut self, memory: u64) -> Machine {
        self.memory = memory;
        self
    }

    /// Has it handle a signal: by ending with this code, or not at all.
    pub(crate) fn handling(mut self, signal: Signal, exit: Option<i32>) -> Machine {
        let trap = match exit {
            None => Trap::Ignore,
            Some(code) => Trap::Run(parse(&format!("exit {code}")).unwrap_or_else(|_| Arc::from([]))),
        };
        self.traps.insert(signal, trap);
        self
    }

    /// What it exited with and when, if it has.
    pub(crate) fn exited(&self) -> Option<(i32, Instant)> {
        match self.state {
            State::Exited { code, at } => Some((code, at)),
            State::Ready | State::Waits { .. } => None,
        }
    }

    /// When it has something to do.
    pub(crate) fn wakes(&self) -> Option<Instant> {
        match self.state {
            State::Waits { until, .. } => until,
            State::Ready | State::Exited { .. } => None,
        }
    }

    /// Does all that is to be done up to a time.
    pub(crate) fn run(&mut self, host: &mut dyn Host, now: Instant) {
        let mut clock = now;
        loop {
            match self.state {
                State::Exited { .. } => return,
                State::Waits { until: Some(until), .. } if until <= now => {
                    clock = until;
                    self.state = State::Ready;
                    self.run_pending_trap();
                }
                State::Waits { .. } => return,
                State::Ready => {}
            }
            let mut burst = 0;
            while let State::Ready = self.state {
                burst += 1;
                if burst > BURST {
                    self.state =
                        State::Waits { until: Some(clock + PAUSE_AFTER_BURST), interruptible: false };
                    break;
                }
                self.step(host, clock);
            }
        }
    }

    /// Ends it.
    pub(crate) fn exit(&mut self, code: i32, at: Instant) {
        if self.exited().is_none() {
            self.state = State::Exited { code, at };
        }
    }

    /// Sends it a signal.
    pub(crate) fn signal(&mut self, host: &mut dyn Host, signal: Signal, now: Instant) {
        self.run(host, now);
        if self.exited().is_some() {
            return;
        }
        match self.traps.get(&signal) {
            _ if signal == Signal::Kill => self.exit(Signal::Kill.exit_code(), now),
            Some(Trap::Ignore) => {}
            Some(Trap::Run(_)) => {
                self.pending = Some(signal);
                if let State::Waits { interruptible: true, .. } = self.state {
                    self.last = signal.exit_code();
                    self.state = State::Ready;
                    self.run_pending_trap();
                    self.run(host, now);
                }
            }
            None if self.is_init => {}
            None => self.exit(signal.exit_code(), now),
        }
    }

    fn run_pending_trap(&mut self) {
        if let Some(signal) = self.pending.take()
            && let Some(Trap::Run(list)) = self.traps.get(&signal)
        {
            self.frames.push(Frame::List { list: Arc::clone(list), next: 0 });
        }
    }

    fn step(&mut self, host: &mut dyn Host, now: Instant) {
        match self.frames.last_mut() {
            None => self.exit(self.last, now),
            Some(Frame::List { list, next }) => {
                let Some(item) = list.get(*next) else {
                    self.frames.pop();
                    return;
                };
                *next += 1;
                let runs = match item.when {
                    When::Always => true,
                    When::Success => self.last == 0,
                    When::Failure => self.last != 0,
                };
                if runs {
                    let command = item.command.clone();
                    self.begin(host, &command, now);
                }
            }
            Some(Frame::Loop { until, condition, body, in_condition }) => {
                if !*in_condition {
                    *in_condition = true;
                    let list = Arc::clone(condition);
                    self.frames.push(Frame::List { list, next: 0 });
                } else if (self.last == 0) != *until {
                    *in_condition = false;
                    let list = Arc::clone(body);
                    self.frames.push(Frame::List { list, next: 0 });
                } else {
                    self.last = 0;
                    self.frames.pop();
                }
            }
            Some(Frame::If { then, otherwise }) => {
                let list = Arc::clone(if self.last == 0 { then } else { otherwise });
                if list.is_empty() {
                    self.last = 0;
                }
                self.frames.pop();
                self.frames.push(Frame::List { list, next: 0 });
            }
        }
    }

    fn begin(&mut self, host: &mut dyn Host, command: &Command, now: Instant) {
        match command {
            Command::Simple(simple) => self.simple(host, simple, now),
            Command::Loop { until, condition, body } => self.frames.push(Frame::Loop {
                until: *until,
                condition: Arc::clone(condition),
                body: Arc::clone(body),
                in_condition: false,
            }),
            Command::If { condition, then, otherwise } => {
                self.frames.push(Frame::If { then: Arc::clone(then), otherwise: Arc::clone(otherwise) });
                self.frames.push(Frame::List { list: Arc::clone(condition), next: 0 });
            }
        }
    }

    fn simple(&mut self, host: &mut dyn Host, simple: &Simple, now: Instant) {
        let words: Vec<String> = simple.words.iter().flat_map(|word| self.expand(word)).collect();
        let mut output = match self.sinks(host, &simple.redirects) {
            Ok(sinks) => Output { host, sinks, at: now },
            Err(path) => {
                let text = format!("sh: can't create {path}: nonexistent directory\n");
                host.write(Stream::Error, text.as_bytes(), now);
                self.last = 1;
                return;
            }
        };
        applets::run(self, &words, simple.background, &mut output);
    }

    fn expand(&self, word: &Word) -> Vec<String> {
        let mut fields = vec![String::new()];
        let mut is_empty = true;
        for part in word {
            let (text, quoted) = match part {
                Part::Text(text) => (text.clone(), true),
                Part::Variable { name, quoted } => (self.value(name), *quoted),
            };
            is_empty &= !quoted && text.trim().is_empty();
            match quoted {
                true => fields.last_mut().unwrap_or(&mut String::new()).push_str(&text),
                false => {
                    for (number, piece) in text.split_whitespace().enumerate() {
                        if number > 0 {
                            fields.push(String::new());
                        }
                        if let Some(last) = fields.last_mut() {
                            last.push_str(piece);
                        }
                    }
                }
            }
        }
        if is_empty { Vec::new() } else { fields }
    }

    fn value(&self, name: &str) -> String {
        match name {
            "?" => self.last.to_string(),
            "$" => self.pid.to_string(),
            name => self.variables.get(name).cloned().unwrap_or_default(),
        }
    }

    /// Where the two streams go. Files are made at once, as a shell does.
    fn sinks(&self, host: &mut dyn Host, redirects: &[Redirect]) -> Result<[Sink; 2], String> {
        let mut sinks = [Sink::Stream(Stream::Output), Sink::Stream(Stream::Error)];
        for redirect in redirects {
            let sink = match &redirect.to {
                Target::Stream(to) => sinks[usize::from(*to == 2)].clone(),
                Target::File { path, append } => {
                    let path = self.expand(path).join(" ");
                    if path == "/dev/null" {
                        Sink::Nothing
                    } else if path == "/dev/stdout" || path == "/dev/stderr" {
                        sinks[usize::from(path == "/dev/stderr")].clone()
                    } else if host.write_file(&path, b"", *append) {
                        Sink::File(path)
                    } else {
                        return Err(path);
                    }
                }
            };
            sinks[usize::from(redirect.from == 2)] = sink;
        }
        Ok(sinks)
    }
}

#[derive(Debug, Clone)]
enum Sink {
    Stream(Stream),
    File(String),
    Nothing,
}

/// What a command writes to.
pub(super) struct Output<'a> {
    pub(super) host: &'a mut dyn Host,
    sinks: [Sink; 2],
    pub(super) at: Instant,
}

impl Output<'_> {
    pub(super) fn write(&mut self, stream: Stream, bytes: &[u8]) {
        let sink = match stream {
            Stream::Output => &self.sinks[0],
            Stream::Error => &self.sinks[1],
        };
        match sink {
            Sink::Stream(stream) => self.host.write(*stream, bytes, self.at),
            Sink::File(path) => {
                self.host.write_file(path, bytes, true);
            }
            Sink::Nothing => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host that keeps what is written, and has files.
    #[derive(Default)]
    struct Kept {
        written: String,
        files: BTreeMap<String, Vec<u8>>,
    }

    impl Host for Kept {
        fn write(&mut self, stream: Stream, bytes: &[u8], _at: Instant) {
            let mark = if stream == Stream::Error { "!" } else { "" };
            self.written.push_str(&format!("{mark}{}", String::from_utf8_lossy(bytes)));
        }

        fn read_file(&mut self, path: &str) -> Option<Vec<u8>> {
            self.files.get(path).cloned()
        }

        fn write_file(&mut self, path: &str, bytes: &[u8], append: bool) -> bool {
            let content = self.files.entry(path.to_owned()).or_default();
            if !append {
                content.clear();
            }
            content.extend_from_slice(bytes);
            path.rfind('/') == Some(0)
        }

        fn remove_file(&mut self, path: &str) -> bool {
            self.files.remove(path).is_some()
        }

        fn signal_first(&mut self, signal: Signal) {
            self.written.push_str(&format!("<{signal:?}>"));
        }
    }

    /// Runs a script for two minutes, and says what it wrote, its code, and after how long it ended.
    fn run(script: &str) -> (String, Option<(i32, Duration)>) {
        let start = Instant::now();
        let mut host = Kept::default();
        let variables = BTreeMap::from([("NAME".to_owned(), "a  b".to_owned())]);
        let mut machine = Machine::script(script, variables);
        machine.run(&mut host, start);
        while let Some(wakes) = machine.wakes().filter(|at| *at <= start + Duration::from_secs(120)) {
            machine.run(&mut host, wakes);
        }
        (host.written, machine.exited().map(|(code, at)| (code, at - start)))
    }

    #[test]
    fn scripts_do_what_busybox_does_with_them() {
        for (script, written, code) in [
            ("echo one; printf 'two %s\\n' x; echo three >&2; exit 3", "one\ntwo x\n!three\n", 3),
            ("true && echo yes || echo no", "yes\n", 0),
            ("false && echo yes || echo no", "no\n", 0),
            ("false", "", 1),
            ("echo \"$NAME\" $NAME '$NAME' $?", "a  b a b $NAME 0\n", 0),
            ("nosuch", "!sh: nosuch: not found\n", 127),
            (
                "/no/such; cat /nofile",
                "!sh: /no/such: not found\n!cat: can't open '/nofile': No such file or directory\n",
                1,
            ),
            ("echo a | cat", "!sh: syntax error: the simulated shell has no pipes\n", 2),
            ("echo x > /f; echo y >> /f; cat /f; rm /f; test -f /f || echo gone", "x\ny\ngone\n", 0),
            ("echo quiet >/dev/null 2>&1; nosuch 2>/dev/null; echo $?", "127\n", 0),
            ("if [ -f /f ]; then echo y; else echo n; fi", "n\n", 0),
            ("touch /f; while [ -f /f ]; do rm /f; echo once; done; echo end", "once\nend\n", 0),
            ("while true; do break; done; X=5; echo $X", "5\n", 0),
            ("exit 300", "", 44),
            ("env", "NAME=a  b\n", 0),
            ("echo -n x; [ a = b ]", "x", 1),
            ("echo $$; kill -9 $$", "1\n", 137),
            ("kill 55", "!sh: can't kill pid 55: No such process\n", 1),
            ("echo a >/f/g || echo failed", "!sh: can't create /f/g: nonexistent directory\nfailed\n", 0),
        ] {
            assert_eq!(run(script), (written.to_owned(), Some((code, Duration::ZERO))), "{script}");
        }
    }

    #[test]
    fn sleeping_takes_its_time_and_no_more() {
        let seconds = Duration::from_secs_f64;
        for (script, ended) in [
            ("sleep 1; sleep 0.5; sleep 1m", Some((0, seconds(61.5)))),
            ("sleep 5 & sleep 3; wait", Some((0, seconds(5.0)))),
            ("sleep 5 & true", Some((0, seconds(0.0)))),
            ("sleep infinity", None),
            ("sleep x", Some((1, seconds(0.0)))),
            ("while true; do sleep 1; done", None),
            // One that never sleeps does not hold up the others.
            ("while true; do :; done", None),
        ] {
            assert_eq!(run(script).1, ended, "{script}");
        }
    }

    #[test]
    fn signals_are_handled_as_a_shell_handles_them() {
        let after = |script: &str, is_init: bool, signal: Signal| {
            let start = Instant::now();
            let mut host = Kept::default();
            let mut machine = Machine::script(script, BTreeMap::new());
            machine = if is_init { machine.made_init() } else { machine };
            machine.run(&mut host, start);
            machine.signal(&mut host, signal, start + Duration::from_secs(1));
            machine.run(&mut host, start + Duration::from_secs(20));
            machine.exited().map(|(code, at)| (code, (at - start).as_secs()))
        };
        use Signal::{Hangup, Kill, Terminate};
        for (script, is_init, signal, ended) in [
            ("sleep 100", false, Terminate, Some((143, 1))),
            ("sleep 100", false, Hangup, Some((129, 1))),
            ("sleep 100", true, Terminate, None),
            ("sleep 100", true, Kill, Some((137, 1))),
            ("trap '' TERM; sleep 100", false, Terminate, None),
            ("trap '' TERM; sleep 100", false, Kill, Some((137, 1))),
            // A trap runs when what is in the foreground has ended.
            ("trap 'exit 7' TERM; sleep 10", true, Terminate, Some((7, 10))),
            ("trap 'exit 7' TERM; sleep 100 & wait", true, Terminate, Some((7, 1))),
            ("trap 'echo x' TERM; sleep 100 & wait; exit 9", true, Terminate, Some((9, 1))),
            ("trap 'exit 7' TERM; trap - TERM; sleep 100", false, Terminate, Some((143, 1))),
        ] {
            assert_eq!(after(script, is_init, signal), ended, "{script} {is_init}");
        }
    }
}
