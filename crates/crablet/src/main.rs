//! The Kubernetes node agent.
//!
//! - [`command_line`]: from arguments to what is wanted.
//! - [`run`]: the agent itself, from its first check ([`machine_check`], [`root_directory`], [`recalled`]) over its [`servers`] to its
//!   last goodbye; [`node`] puts it together, when [`await_runtime`] has found its runtime; [`tidying`] keeps it small.
//! - [`pods_command`], [`explain_command`], [`apply_command`], [`delete_command`], [`logs_command`]: what a person asks
//!   of a running agent and tells it, by way of [`agent_client`].
//! - [`apiserver_command`]: the embedded API server; [`solo_command`]: that and the agent in one process.
//! - [`join`]: the agent in a cluster; [`token_command`]: what nodes join one with; [`csr_command`]: what they ask for;
//!   [`administrator`]: the cluster that both are about.
//! - [`config_command`], [`log_command`]: the other subcommands.
//! - [`find_pod`]: the pod that a person means.
//! - [`service_manager`]: what systemd is told.
//! - [`exit`]: how the process ends, and what each code means.

mod administrator;
mod agent_client;
mod apiserver_command;
mod apply_command;
mod await_runtime;
mod command_line;
mod config_command;
mod csr_command;
mod delete_command;
mod exit;
mod explain_command;
mod find_pod;
mod image_access;
mod join;
mod kernel_tunables;
mod log_command;
mod log_rotation;
mod log_sizes;
mod logs_command;
mod machine_check;
mod node;
mod node_port;
mod numbers;
mod pod_resources;
mod pods_command;
mod recalled;
mod root_directory;
mod run;
mod servers;
mod service_manager;
mod solo_command;
mod swapped_volumes;
mod tidying;
mod token_command;
mod version;

use std::process::ExitCode;

use command_line::Wanted;
use exit::Failure;

/// It gives memory back soon (`.cargo/config.toml` has its settings): an agent that had much to do for a moment is
/// small again afterwards.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let result = match command_line::parse(std::env::args_os()) {
        Wanted::Run(flags) => run::run(&flags),
        Wanted::Config { flags, strict } => config_command::run(&flags, strict),
        Wanted::Pods(wanted) => pods_command::run(&wanted),
        Wanted::Explain(wanted) => explain_command::run(&wanted),
        Wanted::Apply(wanted) => apply_command::run(&wanted),
        Wanted::Delete(wanted) => delete_command::run(&wanted),
        Wanted::Logs(wanted) => logs_command::run(&wanted),
        Wanted::ApiServer(wanted) => apiserver_command::run(wanted),
        Wanted::Solo(wanted) => solo_command::run(wanted),
        Wanted::Tokens(wanted) => token_command::run(&wanted),
        Wanted::Requests(wanted) => csr_command::run(&wanted),
        Wanted::Log(change) => log_command::run(&change),
        Wanted::Text(text) => exit::print(&text),
        Wanted::Refused(reason) => Err(Failure::Configuration(vec![reason])),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
