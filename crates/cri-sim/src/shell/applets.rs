//! The programs and builtins of the small shell.

use std::collections::BTreeMap;
use std::time::Duration;

use super::machine::{Frame, Machine, Output, State, Stream, Trap};
use super::parse::parse;
use super::signal::Signal;
use crate::files::is_always_there;

/// What a small program holds, in bytes.
pub(crate) const MEMORY: u64 = 600 << 10;

/// Programs that can be run without a shell.
const PROGRAMS: &[&str] = &[
    "sh", "ash", "sleep", "true", "false", "echo", "printf", "cat", "env", "touch", "rm", "test", "[", "tail",
];

/// The program that a command names, if there is one: by its bare name, or by its path in `/bin`.
pub(crate) fn find(word: &str) -> Option<&'static str> {
    if word == "/pause" {
        return Some("/pause");
    }
    let name = word.strip_prefix("/bin/").unwrap_or(word);
    PROGRAMS.iter().copied().find(|program| *program == name)
}

/// Why a command cannot be run at all, in runc's words.
pub(crate) fn not_found(word: &str) -> String {
    match word.contains('/') {
        true if is_always_there(word) => format!("exec: \"{word}\": permission denied"),
        true => format!("exec: \"{word}\": stat {word}: no such file or directory"),
        false => format!("exec: \"{word}\": executable file not found in $PATH"),
    }
}

/// The machine that runs a command. Its first word must be one that [`find`] knows.
pub(crate) fn machine(words: &[String], variables: BTreeMap<String, String>) -> Machine {
    let name = words.first().and_then(|word| find(word));
    match (name, words) {
        (Some("sh" | "ash"), [_, option, script, ..]) if option == "-c" => Machine::script(script, variables),
        // Without a script there is no input either.
        (Some("sh" | "ash"), _) => Machine::script("exit 0", variables),
        (Some("/pause"), _) => Machine::script("sleep infinity & wait", variables)
            .handling(Signal::Terminate, Some(0))
            .handling(Signal::Interrupt, Some(0)),
        _ => Machine::words(words, variables),
    }
}

/// Runs a command in a machine.
pub(super) fn run(machine: &mut Machine, words: &[String], background: bool, output: &mut Output<'_>) {
    let words = assign(machine, words);
    let Some((name, arguments)) = words.split_first() else {
        machine.last = 0;
        return;
    };
    let name = find(name).unwrap_or(name);
    machine.last = match name {
        ":" | "true" => 0,
        "false" => 1,
        "echo" => echo(arguments, output),
        "printf" => printf(arguments, output),
        "env" => env(machine, output),
        "cat" => cat(arguments, output),
        "touch" => touch(arguments, output),
        "rm" => rm(arguments, output),
        "test" => test(arguments, output),
        "[" => match arguments.split_last() {
            Some((last, arguments)) if last == "]" => test(arguments, output),
            Some(_) | None => complain(output, "sh: missing ]", 2),
        },
        "sleep" => return sleep(machine, arguments, background, output),
        "wait" => return wait(machine, output),
        "exit" => return exit(machine, arguments, output),
        "trap" => trap(machine, arguments, output),
        "kill" => kill(machine, arguments, output),
        "break" => {
            while let Some(frame) = machine.frames.pop() {
                if let Frame::Loop { .. } = frame {
                    break;
                }
            }
            0
        }
        "exec" => return run(machine, arguments, background, output),
        "sh" | "ash" => return subshell(machine, arguments),
        "tail" if arguments == ["/dev/zero"] => return take_all_memory(machine),
        "tail" => complain(output, "tail: the simulated one reads /dev/zero only", 1),
        "take-memory" => {
            // What a program of the simulator's own is made of; no shell has it.
            machine.memory =
                machine.variables.get("MEMORY").and_then(|bytes| bytes.parse().ok()).unwrap_or(MEMORY);
            0
        }
        other => complain(output, &format!("sh: {other}: not found"), 127),
    };
}

/// Takes `NAME=value` words off the front. They hold from then on, also where a shell would have them for one command.
fn assign<'a>(machine: &mut Machine, words: &'a [String]) -> &'a [String] {
    let is_name = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let mut rest = words;
    while let Some((name, value)) = rest.first().and_then(|word| word.split_once('='))
        && is_name(name)
    {
        machine.variables.insert(name.to_owned(), value.to_owned());
        rest = &rest[1..];
    }
    rest
}

fn complain(output: &mut Output<'_>, text: &str, code: i32) -> i32 {
    output.write(Stream::Error, format!("{text}\n").as_bytes());
    code
}

fn echo(arguments: &[String], output: &mut Output<'_>) -> i32 {
    let (arguments, end) = match arguments.split_first() {
        Some((first, rest)) if first == "-n" => (rest, ""),
        Some(_) | None => (arguments, "\n"),
    };
    output.write(Stream::Output, format!("{}{end}", arguments.join(" ")).as_bytes());
    0
}

/// Knows `%s`, `%d`, `%%`, `\n`, `\t` and `\\`.
fn printf(arguments: &[String], output: &mut Output<'_>) -> i32 {
    let Some((format, values)) = arguments.split_first() else {
        return complain(output, "printf: format is missing", 1);
    };
    let mut values = values.iter();
    let mut text = String::new();
    let mut rest = format.chars();
    while let Some(character) = rest.next() {
        match character {
            '%' => match rest.next() {
                Some('s' | 'd') => text.push_str(values.next().map_or("", String::as_str)),
                Some('%') | None => text.push('%'),
                Some(other) => text.extend(['%', other]),
            },
            '\\' => match rest.next() {
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some('\\') | None => text.push('\\'),
                Some(other) => text.extend(['\\', other]),
            },
            other => text.push(other),
        }
    }
    output.write(Stream::Output, text.as_bytes());
    0
}

fn env(machine: &Machine, output: &mut Output<'_>) -> i32 {
    for (name, value) in &machine.variables {
        output.write(Stream::Output, format!("{name}={value}\n").as_bytes());
    }
    0
}

fn cat(arguments: &[String], output: &mut Output<'_>) -> i32 {
    let mut code = 0;
    for path in arguments {
        match output.host.read_file(path) {
            Some(bytes) => output.write(Stream::Output, &bytes),
            None => {
                code = complain(output, &format!("cat: can't open '{path}': No such file or directory"), 1);
            }
        }
    }
    code
}

fn touch(arguments: &[String], output: &mut Output<'_>) -> i32 {
    let mut code = 0;
    for path in arguments {
        if !output.host.write_file(path, b"", true) {
            code = complain(output, &format!("touch: {path}: No such file or directory"), 1);
        }
    }
    code
}

fn rm(arguments: &[String], output: &mut Output<'_>) -> i32 {
    let (options, paths): (Vec<&String>, Vec<&String>) =
        arguments.iter().partition(|argument| argument.starts_with('-'));
    let force = options.iter().any(|option| option.contains('f'));
    let mut code = 0;
    for path in paths {
        if !output.host.remove_file(path) && !force {
            code = complain(output, &format!("rm: can't remove '{path}': No such file or directory"), 1);
        }
    }
    code
}

fn test(arguments: &[String], output: &mut Output<'_>) -> i32 {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (words, negated) = match words.split_first() {
        Some((&"!", rest)) => (rest, true),
        Some(_) | None => (words.as_slice(), false),
    };
    let holds = match words {
        [] => false,
        [word] => !word.is_empty(),
        ["-e" | "-f", path] => output.host.read_file(path).is_some(),
        ["-n", word] => !word.is_empty(),
        ["-z", word] => word.is_empty(),
        [left, "=" | "==", right] => left == right,
        [left, "!=", right] => left != right,
        _ => return complain(output, "sh: the simulated test does not know this", 2),
    };
    i32::from(holds == negated)
}

fn sleep(machine: &mut Machine, arguments: &[String], background: bool, output: &mut Output<'_>) {
    let Some(duration) = arguments.first().and_then(|text| seconds(text)) else {
        let text = arguments.first().map_or("", String::as_str);
        machine.last = complain(output, &format!("sleep: invalid number '{text}'"), 1);
        return;
    };
    let until = duration.and_then(|duration| output.at.checked_add(duration));
    machine.last = 0;
    match (background, machine.background) {
        (false, _) => machine.state = State::Waits { until, interruptible: false },
        (true, None) => machine.background = Some(until),
        (true, Some(other)) => machine.background = Some(until.zip(other).map(|(a, b)| a.max(b))),
    }
}

/// Reads what `sleep` takes: `1`, `0.5`, `2m`; and `infinity`, which is no time at all.
fn seconds(text: &str) -> Option<Option<Duration>> {
    if text == "infinity" {
        return Some(None);
    }
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h', 'd']) {
        Some(number) => (number, &text[number.len()..]),
        None => (text, "s"),
    };
    let factor = match unit {
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => 1.0,
    };
    let number: f64 = number.parse().ok()?;
    Duration::try_from_secs_f64(number * factor).ok().map(Some)
}

fn wait(machine: &mut Machine, output: &Output<'_>) {
    machine.last = 0;
    if let Some(until) = machine.background.take()
        && until.is_none_or(|until| until > output.at)
    {
        machine.state = State::Waits { until, interruptible: true };
    }
}

fn exit(machine: &mut Machine, arguments: &[String], output: &mut Output<'_>) {
    let code = match arguments.first() {
        None => machine.last,
        Some(text) => match text.parse::<u32>() {
            Ok(number) => (number & 0xff) as i32,
            Err(_) => complain(output, &format!("sh: exit: line 0: Illegal number: {text}"), 2),
        },
    };
    machine.exit(code, output.at);
}

fn trap(machine: &mut Machine, arguments: &[String], output: &mut Output<'_>) -> i32 {
    let Some((action, names)) = arguments.split_first() else { return 0 };
    for name in names {
        let Some(signal) = Signal::parse(name) else {
            return complain(output, &format!("sh: trap: {name}: invalid signal specification"), 1);
        };
        match action.as_str() {
            "" => machine.traps.insert(signal, Trap::Ignore),
            "-" => machine.traps.remove(&signal),
            action => match parse(action) {
                Ok(list) => machine.traps.insert(signal, Trap::Run(list)),
                Err(error) => return complain(output, &error, 2),
            },
        };
    }
    0
}

/// Signals itself or, from a command in a container, the container's first process. There are no others.
fn kill(machine: &mut Machine, arguments: &[String], output: &mut Output<'_>) -> i32 {
    let (name, pids) = match arguments {
        [option, name, pids @ ..] if option == "-s" => (name.as_str(), pids),
        [option, pids @ ..] if option.starts_with('-') => (&option[1..], pids),
        pids => ("TERM", pids),
    };
    let Some(signal) = Signal::parse(name) else {
        return complain(output, &format!("sh: bad signal name '{name}'"), 1);
    };
    let mut code = 0;
    for pid in pids {
        match pid.parse() {
            Ok(pid) if pid == machine.pid => {
                if signal == Signal::Kill || !machine.traps.contains_key(&signal) {
                    machine.exit(signal.exit_code(), output.at);
                }
            }
            Ok(1) => output.host.signal_first(signal),
            Ok(_) | Err(_) => {
                code = complain(output, &format!("sh: can't kill pid {pid}: No such process"), 1);
            }
        }
    }
    code
}

/// `sh -c` in a shell: its commands run in this one. An `exit` in it ends both, which is as far as the likeness goes.
fn subshell(machine: &mut Machine, arguments: &[String]) {
    machine.last = 0;
    if let [option, script, ..] = arguments
        && option == "-c"
    {
        match parse(script) {
            Ok(list) => machine.frames.push(Frame::List { list, next: 0 }),
            Err(_) => machine.last = 2,
        }
    }
}

fn take_all_memory(machine: &mut Machine) {
    machine.memory = u64::MAX;
    machine.state = State::Waits { until: None, interruptible: false };
}
