//! `crablet config`: the configuration in force, printed.

use std::io::Write;

use crate::command_line::GivenFlags;
use crate::exit::Failure;

/// Prints the configuration, and what is doubtful about it to standard error.
pub(crate) fn run(flags: &GivenFlags, strict: bool) -> Result<(), Failure> {
    let effective =
        crablet_config::load(&flags.as_given()).map_err(|error| Failure::Configuration(error.to_string()))?;
    for warning in &effective.warnings {
        eprintln!("warning: {warning}");
    }
    // A reader that went away (`crablet config | head`) is not a failure of ours.
    let _ = std::io::stdout().write_all(effective.to_yaml().as_bytes());
    match effective.warnings.len() {
        doubts if strict && doubts > 0 => Err(Failure::Doubtful(doubts)),
        _ => Ok(()),
    }
}
