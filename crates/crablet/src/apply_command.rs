//! `crablet apply`: gives manifests to the agent, which keeps them and runs their pods.

mod documents;

use std::io::Read;
use std::path::PathBuf;

use anyhow::{Context, anyhow, bail};
use clap::{Arg, ArgAction, ArgMatches, Command};
use crablet_server::Method;
use serde_json::Value;

use crate::agent_client::{Agent, block_on, encode};
use crate::command_line;
use crate::exit::{self, Failure};

pub(crate) use documents::split as documents;

/// The most that is read of a file.
const LARGEST_FILE: u64 = 4 << 20;

const EXAMPLES: &str = "\
Examples:
  crablet apply pod.yaml               make the pod of a manifest, or change it
  crablet apply a.yaml b.json          of several; a file may hold several YAML documents
  some-template | crablet apply -      of one on standard input

Each pod is told of in a line: pod/NAME created, changed or unchanged. The agent keeps the manifests and runs the pods
again after a restart, until `crablet delete`. A changed manifest makes another pod, which starts when the earlier one
has stopped. The name of the pod is that in the manifest and the node's.";

/// What is to be given to the agent.
#[derive(Debug)]
pub(crate) struct Apply {
    root_dir: PathBuf,
    files: Vec<String>,
}

/// The subcommand's arguments.
pub(crate) fn subcommand() -> Command {
    Command::new("apply")
        .about("Give pods to a running agent, which keeps them")
        .after_help(EXAMPLES)
        .arg(
            Arg::new("file")
                .value_name("FILE")
                .action(ArgAction::Append)
                .num_args(1..)
                .required(true)
                .help("Manifests, as YAML or JSON; - is standard input"),
        )
        .args(command_line::root_dir())
}

/// Reads the arguments.
pub(crate) fn read(matches: &ArgMatches) -> Apply {
    let files = matches.get_many::<String>("file").into_iter().flatten().cloned();
    Apply { root_dir: command_line::read_root_dir(matches), files: files.collect() }
}

/// Gives all of them to the agent. One that is refused does not keep it from the others.
pub(crate) fn run(wanted: &Apply) -> Result<(), Failure> {
    let (mut refused, mut all) = (Vec::new(), 0);
    let agent = Agent::at(&wanted.root_dir);
    block_on(async {
        for file in &wanted.files {
            let (source, text) = read_file(file)?;
            let documents = documents::split(&text);
            if documents.is_empty() {
                bail!("{source}: there is no manifest in it");
            }
            all += documents.len();
            for document in documents {
                match apply(&agent, &source, &document).await? {
                    Ok(done) => exit::print(&done)?,
                    Err(reason) => refused.push(reason),
                }
            }
        }
        Ok(())
    })?;
    match refused.len() {
        0 => Ok(()),
        count => {
            exit::say(refused.iter().flat_map(|reason| reason.lines().map(str::to_owned)));
            let are = if all == 1 { "manifest was" } else { "manifests were" };
            Err(Failure::Other(anyhow!("{count} of {all} {are} refused")))
        }
    }
}

/// What became of a manifest, or why it was refused.
async fn apply(agent: &Agent, source: &str, text: &str) -> anyhow::Result<Result<String, String>> {
    let target = format!("/pods?source={}", encode(source));
    let (status, answer) = agent.answer(Method::POST, &target, text).await?;
    if !status.is_success() {
        return Ok(Err(answer));
    }
    let answer: Value = serde_json::from_str(&answer).context("the agent's answer is no JSON")?;
    let word = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
    let namespace = match &*word("namespace") {
        "default" => String::new(),
        other => format!(" (namespace {other})"),
    };
    Ok(Ok(format!("pod/{} {}{namespace}\n", word("name"), word("outcome"))))
}

fn read_file(path: &str) -> anyhow::Result<(String, String)> {
    let read = |reader: &mut dyn Read| {
        let mut text = Vec::new();
        reader.take(LARGEST_FILE + 1).read_to_end(&mut text).map(|_| text)
    };
    let (name, read) = match path {
        "-" => ("stdin", read(&mut std::io::stdin())),
        path => (path, std::fs::File::open(path).and_then(|mut file| read(&mut file))),
    };
    let bytes = read.with_context(|| format!("cannot read {name}"))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > LARGEST_FILE) {
        bail!("{name} has more than {LARGEST_FILE} bytes, which no manifest has");
    }
    let text = String::from_utf8(bytes).map_err(|_| anyhow!("{name} is not UTF-8 text"))?;
    Ok((name.to_owned(), text))
}
