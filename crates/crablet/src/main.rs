//! The Kubernetes node agent.
//!
//! - [`command_line`]: from arguments to what is wanted.
//! - [`run`]: the agent itself, from its first check to its last goodbye.
//! - [`config_command`], [`log_command`], [`sim_runtime_command`]: the subcommands.
//! - [`service_manager`]: what systemd is told.
//! - [`exit`]: how the process ends, and what each code means.

mod command_line;
mod config_command;
mod exit;
mod log_command;
mod run;
mod service_manager;
mod sim_runtime_command;
mod version;

use std::process::ExitCode;

use command_line::Wanted;
use exit::Failure;

fn main() -> ExitCode {
    let result = match command_line::parse(std::env::args_os()) {
        Wanted::Run(flags) => run::run(&flags),
        Wanted::Config { flags, strict } => config_command::run(&flags, strict),
        Wanted::Log(change) => log_command::run(&change),
        Wanted::SimRuntime(wanted) => sim_runtime_command::run(&wanted),
        Wanted::Text(text) => exit::print(&text),
        Wanted::Refused(reason) => Err(Failure::Configuration(vec![reason])),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
