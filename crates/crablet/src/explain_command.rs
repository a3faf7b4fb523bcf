//! `crablet explain`: why pods are as they are.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command};

use crate::agent_client::{Agent, block_on, encode};
use crate::command_line;
use crate::exit::{self, Failure};

const EXAMPLES: &str = "\
Examples:
  crablet explain               a sentence on each pod, and what is wrong with manifests
  crablet explain web           the whole story of one: what was decided and done, when, why, and how long it took
  crablet explain web -o json   the same for a program

POD is a name, NAMESPACE/NAME or a UID; also of a pod that is gone not long ago. The name may lack the node's, as it
does in the manifest.";

#[derive(Debug)]
pub(crate) struct Explain {
    root_dir: PathBuf,
    pod: Option<String>,
    as_json: bool,
}

/// The subcommand's arguments.
pub(crate) fn subcommand() -> Command {
    Command::new("explain")
        .about("Say why a pod is as it is, and what happened to it")
        .after_help(EXAMPLES)
        .arg(Arg::new("pod").value_name("POD").help("The pod; without one, each gets a sentence"))
        .arg(command_line::namespace())
        .arg(Arg::new("output").short('o').long("output").value_name("FORM").help("json, instead of text"))
        .args(command_line::root_dir())
}

/// Reads the arguments, or says what is wrong with them.
pub(crate) fn read(matches: &ArgMatches) -> Result<Explain, String> {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let as_json = match text("output").as_deref() {
        None => false,
        Some("json") => true,
        Some(other) => return Err(format!("--output: {other:?} is not known: expected json")),
    };
    let pod = match (text("namespace"), text("pod")) {
        (Some(namespace), Some(pod)) if !pod.contains('/') => Some(format!("{namespace}/{pod}")),
        (Some(_), None) => return Err("--namespace: name a pod, too".to_owned()),
        (_, pod) => pod,
    };
    Ok(Explain { root_dir: command_line::read_root_dir(matches), pod, as_json })
}

pub(crate) fn run(wanted: &Explain) -> Result<(), Failure> {
    let pod = wanted.pod.as_deref().map_or_else(String::new, |pod| format!("pod={}&", encode(pod)));
    let output = if wanted.as_json { "json" } else { "text" };
    let target = format!("/explain?{pod}output={output}");
    let answer = block_on(async {
        Agent::at(&wanted.root_dir).answer(crablet_server::Method::GET, &target, "").await
    })?;
    match answer {
        (status, text) if status.is_success() => exit::print(&exit::harmless(&text)),
        (_, text) => Err(Failure::Answer(text)),
    }
}
