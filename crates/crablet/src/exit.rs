//! How the process ends.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use anyhow::Context;
use crablet_logging::ErrorChain;

/// A failure that ends the process, with the code that says which kind it is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The flags or the configuration are not valid.
    #[error("{}", .0.join("; "))]
    Configuration(Vec<String>),
    /// Another agent holds the root directory.
    #[error(
        "another agent is running with the root directory {root_dir}; stop it, or choose another with --root-dir"
    )]
    RootDirectoryHeld {
        /// The directory.
        root_dir: String,
        /// Who holds it.
        #[source]
        source: crablet_host::lock::LockError,
    },
    /// The machine has cgroup v1, and the configuration does not want that.
    #[error(
        "kubelet is configured to not run on a host using cgroup v1. cgroup v1 support is unsupported and will be \
         removed in a future release; set failCgroupV1 (--fail-cgroupv1) to false to run here all the same"
    )]
    CgroupV1,
    /// The machine swaps, and the configuration does not want that.
    #[error(
        "running with swap on is not supported, please disable swap or set --fail-swap-on flag to false; in use: {}",
        .0.join(", ")
    )]
    SwapOn(Vec<String>),
    /// `crablet config --strict` found something doubtful.
    #[error("{} doubtful {} found", .0, if *.0 == 1 { "thing was" } else { "things were" })]
    Doubtful(usize),
    /// The agent refused to answer, and said why, perhaps in several lines.
    #[error("{0}")]
    Answer(String),
    /// Anything else.
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

/// What each exit code means, for the help.
pub(crate) const CODES: &str = "\
Exit codes:
  0  stopped as asked
  1  failed for a reason that is none of the following
  2  the flags or the configuration are not valid
  3  another agent is running with the same root directory
  4  the machine has cgroup v1, and failCgroupV1 is true
  5  the machine has swap on, and failSwapOn is true";

impl Failure {
    /// Tells the user, and gives the code to exit with.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Failure::Configuration(problems) => {
                say(problems.iter().map(|problem| format!("crablet: {problem}")));
            }
            Failure::Answer(answer) => say(format!("crablet: {answer}").lines().map(str::to_owned)),
            Failure::Other(error) => say([format!("crablet: {}", ErrorChain(error.as_ref()))]),
            other => say([format!("crablet: {}", ErrorChain(other))]),
        }
        ExitCode::from(self.code())
    }

    pub(crate) fn code(&self) -> u8 {
        match self {
            Failure::Other(_) | Failure::Answer(_) | Failure::Doubtful(_) => 1,
            Failure::Configuration(_) => 2,
            Failure::RootDirectoryHeld { .. } => 3,
            Failure::CgroupV1 => 4,
            Failure::SwapOn(_) => 5,
        }
    }
}

/// Says each line on standard error. What a line quotes from a file cannot pose as another line, or as an order to
/// the terminal.
pub(crate) fn say(lines: impl IntoIterator<Item = String>) {
    let mut text = String::new();
    for line in lines {
        for character in line.chars() {
            match character.is_control() {
                true => text.extend(character.escape_default()),
                false => text.push(character),
            }
        }
        text.push('\n');
    }
    // Nothing is left to do if even this cannot be said.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Prints what was asked for on standard output.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_while_read(text).map(|_| ())
}

/// The same, for what goes on: says whether somebody still reads it.
pub(crate) fn print_while_read(text: &str) -> Result<bool, Failure> {
    let mut output = std::io::stdout();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        // A reader that went away (`crablet config | head`) is not a failure of ours.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => {
            written.context("cannot write to standard output")?;
            Ok(true)
        }
    }
}

/// A text of several lines whose content, which others wrote, can give no order to the terminal.
pub(crate) fn harmless(text: &str) -> String {
    let mut harmless = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => harmless.push('\n'),
            control if control.is_control() => harmless.extend(control.escape_default()),
            plain => harmless.push(plain),
        }
    }
    harmless
}
