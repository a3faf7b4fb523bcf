//! `crablet delete`: lets pods go that were given to the agent.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command};
use crablet_server::Method;

use crate::agent_client::{Agent, PodList, block_on, encode};
use crate::command_line;
use crate::exit::{self, Failure};
use crate::find_pod::{FindError, find_pod};

const EXAMPLES: &str = "\
Examples:
  crablet delete web                stop a pod and forget its manifest; returns when it is gone
  crablet delete --wait=false web   return at once; `crablet pods --watch` shows how it ends

Only a pod that came by `crablet apply` is deleted here. One that a file asks for goes with its file.";

/// What is to go.
#[derive(Debug)]
pub(crate) struct Delete {
    root_dir: PathBuf,
    namespace: Option<String>,
    pods: Vec<String>,
    wait: bool,
}

/// The subcommand's arguments.
pub(crate) fn subcommand() -> Command {
    Command::new("delete")
        .about("Stop and forget pods that were given to a running agent")
        .after_help(EXAMPLES)
        .arg(
            Arg::new("pod")
                .value_name("POD")
                .action(ArgAction::Append)
                .num_args(1..)
                .required(true)
                .help("Their names, NAMESPACE/NAME or UIDs"),
        )
        .arg(command_line::namespace())
        .arg(
            Arg::new("wait")
                .long("wait")
                .value_name("BOOL")
                .num_args(0..=1)
                .require_equals(true)
                .default_value("true")
                .default_missing_value("true")
                .help("Whether to return only when they are gone"),
        )
        .args(command_line::root_dir())
}

/// Reads the arguments, or says what is wrong with them.
pub(crate) fn read(matches: &ArgMatches) -> Result<Delete, String> {
    let wait = matches.get_one::<String>("wait").map_or("true", String::as_str);
    Ok(Delete {
        root_dir: command_line::read_root_dir(matches),
        namespace: matches.get_one::<String>("namespace").cloned(),
        pods: matches.get_many::<String>("pod").into_iter().flatten().cloned().collect(),
        wait: wait.parse().map_err(|_| format!("--wait: {wait:?} is neither true nor false"))?,
    })
}

/// Lets them go.
pub(crate) fn run(wanted: &Delete) -> Result<(), Failure> {
    let agent = Agent::at(&wanted.root_dir);
    for text in &wanted.pods {
        block_on(delete(&agent, wanted, text))?;
    }
    Ok(())
}

async fn delete(agent: &Agent, wanted: &Delete, text: &str) -> anyhow::Result<()> {
    // Without a runtime there are no pods, but manifests can be forgotten all the same.
    let list = agent.pods().await.ok();
    let (namespace, name) = named(list.as_ref(), text, wanted.namespace.as_deref())?;
    let target = format!("/pods/{}/{}", encode(&namespace), encode(&name));
    let (status, answer) = agent.answer(Method::DELETE, &target, "").await?;
    if !status.is_success() {
        anyhow::bail!("{}", answer.trim_end());
    }
    match list {
        Some(list) if wanted.wait => {
            gone(agent, list, &namespace, &name).await?;
            exit::print(&format!("pod/{name} deleted\n"))?;
        }
        Some(_) | None => exit::print(&format!("pod/{name} is being deleted\n"))?,
    }
    Ok(())
}

/// The namespace and name of the pod that is meant.
fn named(list: Option<&PodList>, text: &str, namespace: Option<&str>) -> anyhow::Result<(String, String)> {
    match list.map(|list| find_pod(&list.items, text, namespace)) {
        Some(Ok(pod)) => return Ok((pod.metadata.namespace.to_string(), pod.metadata.name.to_string())),
        Some(Err(several @ FindError::Several { .. })) => return Err(several.into()),
        // There may be a manifest that makes no sense any more.
        Some(Err(FindError::Unknown { .. })) | None => {}
    }
    let (in_text, name) = text.split_once('/').map_or((None, text), |(space, name)| (Some(space), name));
    Ok((in_text.or(namespace).unwrap_or("default").to_owned(), name.to_owned()))
}

/// Waits until the pods of a name that are there now are gone.
async fn gone(agent: &Agent, mut list: PodList, namespace: &str, name: &str) -> anyhow::Result<()> {
    let uids = |list: &PodList| -> Vec<String> {
        let is_meant = |pod: &&crablet_api::core::Pod| {
            *pod.metadata.namespace == *namespace && *pod.metadata.name == *name
        };
        list.items.iter().filter(is_meant).map(|pod| pod.metadata.uid.to_string()).collect()
    };
    let awaited = uids(&list);
    while uids(&list).iter().any(|uid| awaited.contains(uid)) {
        list = agent.pods_after(&list.metadata.resource_version).await?;
    }
    Ok(())
}
