//! `crablet solo`: an API server and the agent in one process, for one machine.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::{Arg, ArgAction, ArgMatches, Command};
use crablet_agent::node_config::node_name;
use crablet_api::core::{Node, NodeConditionType};
use crablet_api::meta::ConditionStatus;
use crablet_apiserver::server::{Options, Server};
use crablet_client::{Chance, Client, Event, Follower, Selection};
use crablet_config::Flag;
use crablet_host::clock::Clock;
use crablet_host::files::write_atomically;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::error;

use crate::apply_command;
use crate::command_line::GivenFlags;
use crate::exit::Failure;
use crate::join;
use crate::node::host_name;
use crate::run;
use crate::solo_command::network::ensure_network;

mod network;

const ABOUT: &str = "\
A whole Kubernetes for one machine in one process: an API server without etcd, and the agent, on the containerd that runs \
here. It says what it does while it comes up, and which kubeconfig to use. Stopping it touches no pod; the next start goes \
on where it was.";

const EXAMPLES: &str = "\
Examples:
  crablet solo
  crablet solo --apply web.yaml
  kubectl --kubeconfig /var/lib/crablet/apiserver/admin.conf get pods -A

In the data directory:
  kubelet.yaml              the agent's configuration; made on the first start, and yours to change
  apiserver/admin.conf      the kubeconfig of the admin
  apiserver/                objects, certificates and keys";

/// Where the runtimes that people have listen.
const SOCKETS: [&str; 4] = [
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/k3s/containerd/containerd.sock",
    "/var/snap/microk8s/common/run/containerd.sock",
];

/// How long the node may take to be ready before people are told why it is not.
const SOON: Duration = Duration::from_secs(10);

/// What is to run, and where.
#[derive(Debug)]
pub(crate) struct Solo {
    data_dir: PathBuf,
    root_dir: String,
    endpoint: Option<String>,
    node_name: String,
    port: u16,
    apply: Vec<PathBuf>,
    verbosity: String,
}

pub(crate) fn subcommand() -> Command {
    let flag = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    Command::new("solo")
        .about("Run a whole Kubernetes for this machine: an API server and the agent")
        .long_about(ABOUT)
        .after_help(EXAMPLES)
        .arg(
            flag("data-dir", "DIR", "Where the API server keeps its objects, and where the configuration is")
                .default_value("/var/lib/crablet"),
        )
        .arg(
            flag("root-dir", "DIR", "Where the agent keeps the files of pods")
                .default_value("/var/lib/kubelet"),
        )
        .arg(flag(
            "container-runtime-endpoint",
            "SOCKET",
            "The runtime's socket; looked for in the usual places if not given",
        ))
        .arg(
            flag("node-name", "NAME", "What the node is called; the machine's host name if not given")
                .default_value(""),
        )
        .arg(flag("secure-port", "PORT", "The port of the API server, on loopback").default_value("6443"))
        .arg(flag("apply", "FILE", "A manifest to begin with; may be repeated").action(ArgAction::Append))
        .arg(
            Arg::new("v")
                .short('v')
                .long("v")
                .value_name("N")
                .help("How detailed the log is")
                .default_value("0"),
        )
}

/// Reads the arguments, or says what is wrong with them.
pub(crate) fn read(matches: &ArgMatches) -> Result<Solo, String> {
    let text = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
    let port = text("secure-port");
    Ok(Solo {
        data_dir: PathBuf::from(text("data-dir")),
        root_dir: text("root-dir"),
        endpoint: matches.get_one::<String>("container-runtime-endpoint").cloned(),
        node_name: node_name(&text("node-name"), &host_name()),
        port: port.parse().map_err(|_| format!("--secure-port: {port:?} is not a port"))?,
        apply: matches.get_many::<String>("apply").unwrap_or_default().map(PathBuf::from).collect(),
        verbosity: text("v"),
    })
}

/// Runs until told to stop.
pub(crate) fn run(wanted: Solo) -> Result<(), Failure> {
    let endpoint = wanted.endpoint.clone().map_or_else(find_socket, Ok)?;
    say(&format!("container runtime: {endpoint}"));
    std::fs::create_dir_all(&wanted.data_dir)
        .with_context(|| format!("cannot make the data directory {}", wanted.data_dir.display()))?;
    // Who names a runtime has looked after its network too.
    if wanted.endpoint.is_none() {
        say(&format!("network of pods: {}", ensure_network()?));
    }
    let config = ensure_config(&wanted.data_dir)?;
    let api_dir = api_dir(&wanted.data_dir);
    let flags = [
        ("config", config.display().to_string()),
        ("kubeconfig", api_dir.join("node.conf").display().to_string()),
        ("root-dir", wanted.root_dir.clone()),
        ("hostname-override", wanted.node_name.clone()),
        ("container-runtime-endpoint", endpoint),
        ("start-remembered-pods", "true".to_owned()),
        // The machine is a person's, or a container of one.
        ("keep-kernel-settings", "true".to_owned()),
        ("v", wanted.verbosity.clone()),
    ];
    let flags = flags.into_iter().filter_map(|(name, value)| Some((Flag::find(name)?, value)));
    run::run_beside(&GivenFlags::new(flags.collect()), async move |stop, tasks| {
        serve(&wanted, api_dir, stop, tasks).await
    })
}

/// Starts the API server, and has people told when the node is ready.
async fn serve(
    wanted: &Solo,
    data_dir: PathBuf,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> anyhow::Result<()> {
    let options = Options {
        data_dir,
        bind_address: Ipv4Addr::LOCALHOST.into(),
        secure_port: wanted.port,
        advertise_address: None,
        serves_pods: true,
        names: Vec::new(),
        kubelet_certificate_authority: None,
        controllers: true,
        node: Some(wanted.node_name.clone()),
    };
    let server = Server::start(options, Clock::system()).await?;
    let kubeconfig = server.kubeconfig();
    say(&format!("API server: {}", server.url()));
    tasks.spawn(server.run(stop.clone()));
    let admin = join::client_of(&kubeconfig, "crablet-solo")?;
    let (name, apply) = (wanted.node_name.clone(), wanted.apply.clone());
    let stop = stop.clone();
    tasks.spawn(async move {
        let welcome = welcome(admin, &name, &apply, &kubeconfig);
        let _ = stop.run_until_cancelled(welcome).await;
    });
    Ok(())
}

/// Waits for the node, brings in the first manifests, and says how to go on.
async fn welcome(admin: Client, name: &str, apply: &[PathBuf], kubeconfig: &Path) {
    let mut follower = Follower::<Node>::new(admin.clone(), &Selection::named("", name), Chance::new(0));
    let mut why = String::from("it has not said anything yet");
    let patience = tokio::time::sleep(SOON);
    tokio::pin!(patience);
    let mut is_late = false;
    loop {
        tokio::select! {
            event = follower.next() => {
                let nodes = match event {
                    Event::All(nodes) => nodes,
                    Event::Set(node) => vec![node],
                    Event::Gone(_) | Event::Trouble { .. } | Event::Resumed => continue,
                };
                let mut conditions = nodes.into_iter().flat_map(|node| node.status.conditions.into_vec());
                let ready = conditions.find(|condition| condition.r#type == NodeConditionType::Ready);
                match ready {
                    Some(ready) if ready.status == ConditionStatus::True => break,
                    Some(ready) => why = ready.message.to_string(),
                    None => {}
                }
                if is_late {
                    say(&format!("node {name}: not ready: {why}"));
                }
            }
            () = &mut patience, if !is_late => {
                is_late = true;
                say(&format!("node {name}: not ready yet: {why}"));
            }
        }
    }
    say(&format!("node {name}: ready"));
    for path in apply {
        if let Err(error) = bring_in(&admin, path).await {
            error!(path = %path.display(), "{error:#}");
            say(&format!("{}: {error:#}", path.display()));
        }
    }
    say(&format!("\n  export KUBECONFIG={}\n  kubectl get pods -A\n", kubeconfig.display()));
}

async fn bring_in(admin: &Client, path: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(path)?;
    for document in apply_command::documents(&text) {
        let (name, answer) = join::create_any(admin, &path.display().to_string(), &document).await?;
        say(&format!("{name}: {answer}"));
    }
    Ok(())
}

fn find_socket() -> Result<String, Failure> {
    let found = SOCKETS.into_iter().find(|path| Path::new(path).exists());
    let found = found.map(|path| format!("unix://{path}"));
    Ok(found.with_context(|| {
        format!(
            "no container runtime listens on {}; install and start containerd, or say where it listens with \
             --container-runtime-endpoint",
            SOCKETS.join(", ")
        )
    })?)
}

/// What is the API server's.
fn api_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("apiserver")
}

/// The agent's configuration, which is the user's once it is there.
fn ensure_config(data_dir: &Path) -> anyhow::Result<PathBuf> {
    let path = data_dir.join("kubelet.yaml");
    if !path.exists() {
        let text = format!(
            "\
# Made by `crablet solo` on its first start; change it as you like.
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  x509:
    clientCAFile: {:?}
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
",
            api_dir(data_dir).join("pki/ca.crt")
        );
        write_atomically(&path, text.as_bytes(), 0o644)?;
    }
    Ok(path)
}

/// What a person at the terminal reads; the log goes elsewhere.
fn say(text: &str) {
    use std::io::Write as _;
    // Nobody may read it.
    let _ = writeln!(std::io::stdout(), "{text}");
}
