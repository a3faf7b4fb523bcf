//! `crablet logs`: what a container has written.

mod choose;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Arg, ArgAction, ArgMatches, Command};
use crablet_api::GoDuration;
use crablet_api::core::PodIdentity;
use crablet_core::translate::container_log_directory;
use crablet_host::clock::Clock;
use crablet_logs::{Followed, LogOptions, LogStream, LogText, LogWatcher, read_logs};
use futures_util::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;

use crate::agent_client::{Agent, PodList, block_on};
use crate::command_line;
use crate::exit::{self, Failure};
use crate::find_pod::find_pod;
use choose::{Chosen, Log};

/// The pause before an agent is asked again that did not answer.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a log may take to be there after its container has started, and how often it is looked for.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(100);

const EXAMPLES: &str = "\
Examples:
  crablet logs web                        what the container of a pod has written
  crablet logs -f web                     and what it writes, until it ends
  crablet logs -f --tail 10 -c app web    of one of several containers, from the last 10 lines on
  crablet logs --previous web             of the one before its last restart
  crablet logs --since 5m --timestamps web

What the container wrote to standard error goes to standard error.";

/// What is to be shown.
#[derive(Debug)]
pub(crate) struct Logs {
    root_dir: PathBuf,
    namespace: Option<String>,
    pod: String,
    container: Option<String>,
    follow: bool,
    previous: bool,
    tail: Option<u64>,
    since: Option<Duration>,
    timestamps: bool,
}

/// The subcommand's arguments.
pub(crate) fn subcommand() -> Command {
    let switch = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
    Command::new("logs")
        .about("Show what a container of a pod has written")
        .after_help(EXAMPLES)
        .arg(
            Arg::new("pod").value_name("POD").required(true).help("The pod: its name, NAMESPACE/NAME or UID"),
        )
        .arg(
            switch("follow")
                .short('f')
                .help("Go on with what it writes, until it ends; wait for it to start"),
        )
        .arg(
            Arg::new("container")
                .short('c')
                .long("container")
                .value_name("CONTAINER")
                .help("Which container; the first, if nothing is said"),
        )
        .arg(switch("previous").short('p').help("Of the container before its last restart"))
        .arg(Arg::new("tail").long("tail").value_name("N").help("The last N lines alone"))
        .arg(
            Arg::new("since")
                .long("since")
                .value_name("DURATION")
                .help("What is no older than this, such as 5s, 2m or 3h"),
        )
        .arg(switch("timestamps").help("The time before each line"))
        .arg(command_line::namespace())
        .args(command_line::root_dir())
}

/// Reads the arguments, or says what is wrong with them.
pub(crate) fn read(matches: &ArgMatches) -> Result<Logs, String> {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let tail =
        text("tail").map(|tail| tail.parse().map_err(|_| format!("--tail: {tail:?} is no number of lines")));
    let since = text("since").map(|since| {
        let duration: Result<GoDuration, _> = since.parse();
        let duration = duration.ok().filter(|duration| duration.as_nanos() > 0);
        duration
            .map(GoDuration::to_std)
            .ok_or_else(|| format!("--since: {since:?} is no duration: expected such as 5s, 2m or 3h"))
    });
    Ok(Logs {
        root_dir: command_line::read_root_dir(matches),
        namespace: text("namespace"),
        pod: text("pod").unwrap_or_default(),
        container: text("container"),
        follow: matches.get_flag("follow"),
        previous: matches.get_flag("previous"),
        tail: tail.transpose()?,
        since: since.transpose()?,
        timestamps: matches.get_flag("timestamps"),
    })
}

/// Shows it.
pub(crate) fn run(wanted: &Logs) -> Result<(), Failure> {
    block_on(logs(wanted))
}

async fn logs(wanted: &Logs) -> anyhow::Result<()> {
    let agent = Agent::at(&wanted.root_dir);
    let (list, chosen) = choose_log(&agent, wanted).await?;
    let configuration = agent.configuration().await?;
    let pod_logs = configuration["podLogsDir"].as_str().context("the agent does not say where logs are")?;
    let Chosen { pod: PodIdentity { namespace, name, uid }, container, .. } = &chosen;
    let directory = PathBuf::from(container_log_directory(pod_logs, namespace, name, uid, container));
    let path = directory.join(format!("{}.log", chosen.attempt));
    let since = wanted.since.map(|since| Clock::system().now().checked_sub(since).unwrap_or(Timestamp::MIN));
    let follow = wanted.follow && chosen.is_running;
    let options = LogOptions {
        follow,
        tail_lines: wanted.tail,
        since,
        timestamps: wanted.timestamps,
        ..LogOptions::default()
    };
    let reason = cannot_read(&chosen);
    let followed = follow
        .then(|| Followed { watcher: LogWatcher::default(), ended: ended(agent, list, chosen).boxed() });
    if follow {
        let is_there = async {
            while !path.exists() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        let _ = tokio::time::timeout(PATIENCE, is_there).await;
    }
    let mut log = pin!(read_logs(path, &options, followed));
    while let Some(text) = log.next().await {
        match show(&text.with_context(|| reason.clone())?) {
            // Nobody reads any more.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
            shown => shown?,
        }
    }
    Ok(())
}

/// Shows what a container wrote, each where it wrote it.
fn show(text: &LogText) -> io::Result<()> {
    for (stream, bytes) in text.by_stream() {
        match stream {
            LogStream::Stdout => {
                let mut output = io::stdout().lock();
                output.write_all(bytes)?;
                output.flush()?;
            }
            LogStream::Stderr => io::stderr().lock().write_all(bytes)?,
        }
    }
    Ok(())
}

fn cannot_read(chosen: &Chosen) -> String {
    format!(
        "cannot read the log of container {:?} of pod {}/{}",
        chosen.container, chosen.pod.namespace, chosen.pod.name
    )
}

/// The log that is meant; who follows waits for its container to start.
async fn choose_log(agent: &Agent, wanted: &Logs) -> anyhow::Result<(PodList, Chosen)> {
    let mut list = agent.pods().await?;
    let pod = find_pod(&list.items, &wanted.pod, wanted.namespace.as_deref())?;
    let (container, note) = choose::container(pod, wanted.container.as_deref())?;
    exit::say(note);
    let uid = pod.metadata.uid.to_string();
    let mut has_said = false;
    loop {
        let Some(pod) = list.items.iter().find(|pod| *pod.metadata.uid == *uid) else {
            bail!("the pod is gone, and never started container {container:?}");
        };
        let reason = match choose::log(pod, &container, wanted.previous)? {
            Log::There(chosen) => return Ok((list, chosen)),
            Log::NotYet(reason) => reason,
        };
        if !wanted.follow {
            bail!("{reason}");
        }
        if !std::mem::replace(&mut has_said, true) {
            exit::say([format!("{reason}; waiting for it")]);
        }
        list = agent.pods_after(&list.metadata.resource_version).await?;
    }
}

/// Waits until the container has ended. An agent that is away says nothing, and the container runs on.
async fn ended(agent: Agent, mut list: PodList, chosen: Chosen) {
    loop {
        let pod = list.items.iter().find(|pod| *pod.metadata.uid == *chosen.pod.uid);
        let still = pod.and_then(|pod| choose::log(pod, &chosen.container, false).ok());
        match still {
            Some(Log::There(now)) if now.attempt == chosen.attempt && now.is_running => {}
            Some(Log::There(_) | Log::NotYet(_)) | None => return,
        }
        list = loop {
            match agent.pods_after(&list.metadata.resource_version).await {
                Ok(list) => break list,
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(arguments: &[&str]) -> Result<Logs, String> {
        let words = std::iter::once("logs").chain(arguments.iter().copied());
        read(&subcommand().try_get_matches_from(words).unwrap())
    }

    #[test]
    fn arguments_are_taken_or_refused_with_what_would_be() {
        let logs = check(&["-f", "-c", "app", "--tail=10", "--since", "1m30s", "-p", "--timestamps", "web"])
            .unwrap();
        assert_eq!((logs.pod.as_str(), logs.container.as_deref(), logs.tail), ("web", Some("app"), Some(10)));
        assert_eq!(logs.since, Some(Duration::from_secs(90)));
        assert!(logs.follow && logs.previous && logs.timestamps);
        assert_eq!(check(&["--tail", "x", "web"]).unwrap_err(), "--tail: \"x\" is no number of lines");
        assert_eq!(
            check(&["--since", "soon", "web"]).unwrap_err(),
            "--since: \"soon\" is no duration: expected such as 5s, 2m or 3h"
        );
    }
}
