//! `crablet config`: the configuration in force, printed.

use crate::command_line::GivenFlags;
use crate::exit::{self, Failure};

/// Prints the configuration, and what is doubtful about it to standard error. A strict reader gets nothing doubtful
/// on standard output.
pub(crate) fn run(flags: &GivenFlags, strict: bool) -> Result<(), Failure> {
    let effective =
        crablet_config::load(&flags.as_given()).map_err(|error| Failure::Configuration(error.problems))?;
    exit::say(effective.warnings.iter().map(|warning| format!("warning: {warning}")));
    match effective.warnings.len() {
        doubts if strict && doubts > 0 => Err(Failure::Doubtful(doubts)),
        _ => exit::print(&effective.to_yaml()),
    }
}
