//! `crablet apiserver`: the embedded API server.

use std::net::IpAddr;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Arg, ArgAction, ArgMatches, Command};
use crablet_apiserver::server::{Options, Server};
use crablet_host::clock::Clock;
use crablet_logging::Settings;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::exit::Failure;
use crate::run::{runtime, watch_for_signals, workers_of_server};
use crate::service_manager;
use crate::version;

const ABOUT: &str = "\
An API server for one machine, without etcd: pods, config maps, secrets, nodes and what else a node and a person at \
kubectl need. On its first start it makes a certificate authority, a certificate for itself and an admin's kubeconfig. \
What it has acknowledged is on disk.";

const EXAMPLES: &str = "\
Examples:
  crablet apiserver --data-dir /var/lib/crablet/apiserver
  kubectl --kubeconfig /var/lib/crablet/apiserver/admin.conf get namespaces

In the data directory, which is for its owner alone:
  admin.conf     the kubeconfig of the admin
  pki/           ca.crt and ca.key, the server's certificates, and sa.key, which signs service accounts' tokens
  store.redb     the objects
  store.journal  what was written of late, which goes into store.redb now and then

Nodes and pods reach the server if it binds to an address that they can reach; by default only this machine does. With \
--serve-pods, pods of this machine reach it too: it puts the address of the service default/kubernetes on the loopback \
interface until it stops. Do not use that on a machine whose pods are of another cluster.";

/// What is to be served, and how it is logged.
#[derive(Debug)]
pub(crate) struct ApiServer {
    options: Options,
    verbosity: u32,
}

/// The subcommand's arguments.
pub(crate) fn subcommand() -> Command {
    let flag = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    Command::new("apiserver")
        .about("Run an API server for this machine")
        .long_about(ABOUT)
        .after_help(EXAMPLES)
        .arg(flag("data-dir", "DIR", "Where objects, certificates and the kubeconfig are kept").required(true))
        .arg(flag("bind-address", "IP", "The address to listen on").default_value("127.0.0.1"))
        .arg(flag("secure-port", "PORT", "The port to listen on; 0 for any that is free").default_value("6443"))
        .arg(flag(
            "advertise-address",
            "IP",
            "The address at which nodes and pods reach the server; that of --bind-address if not given",
        ))
        .arg(
            Arg::new("serve-pods")
                .long("serve-pods")
                .help("Also listen on 10.96.0.1:443, where pods of this machine find the service default/kubernetes")
                .action(ArgAction::SetTrue),
        )
        .arg(
            flag("tls-san", "NAME", "A further name or address of the server in its certificate; may be repeated")
                .action(ArgAction::Append),
        )
        .arg(flag(
            "kubelet-certificate-authority",
            "FILE",
            "The certificates, in PEM, that sign the nodes' serving certificates; if not given, any are taken",
        ))
        .arg(Arg::new("v").short('v').long("v").value_name("N").help("How detailed the log is").default_value("0"))
}

/// Reads the arguments, or says what is wrong with them.
pub(crate) fn read(matches: &ArgMatches) -> Result<ApiServer, String> {
    let text = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let parsed = |name: &str| -> Result<Option<IpAddr>, String> {
        text(name)
            .map(|value| value.parse().map_err(|_| format!("--{name}: {value:?} is not an IP address")))
            .transpose()
    };
    let number = |name: &str, most: u32| {
        let value = text(name).unwrap_or_default();
        let number = value.parse::<u32>().ok().filter(|number| *number <= most);
        number.ok_or_else(|| format!("--{name}: {value:?} is not a number from 0 to {most}"))
    };
    let data_dir = text("data-dir").unwrap_or_default();
    if data_dir.is_empty() {
        return Err("--data-dir: a directory is required".to_owned());
    }
    let names = matches.get_many::<String>("tls-san").unwrap_or_default();
    let options = Options {
        data_dir: PathBuf::from(data_dir),
        bind_address: parsed("bind-address")?.unwrap_or(std::net::Ipv4Addr::LOCALHOST.into()),
        secure_port: u16::try_from(number("secure-port", 65_535)?).unwrap_or_default(),
        advertise_address: parsed("advertise-address")?,
        serves_pods: matches.get_flag("serve-pods"),
        names: names.map(|name| name.to_lowercase()).collect(),
        kubelet_certificate_authority: text("kubelet-certificate-authority").map(PathBuf::from),
        controllers: true,
        node: None,
    };
    Ok(ApiServer { options, verbosity: number("v", 10)? })
}

/// Where the allocator looks for its settings, and what a server under load is better off with: threads have larger
/// caches, and what is free is kept for a second. The agent's own settings are for a process that is to be small.
const ALLOCATOR_SETTINGS: (&str, &str) = (
    "_RJEM_MALLOC_CONF",
    "lg_tcache_max:15,tcache_nslots_small_min:20,tcache_nslots_small_max:200,dirty_decay_ms:1000,muzzy_decay_ms:0",
);

/// Begins anew, as the same process, with other settings of the allocator, which reads them before anything else.
fn settle_allocator() -> anyhow::Result<()> {
    let (name, settings) = ALLOCATOR_SETTINGS;
    if std::env::var_os(name).is_some() {
        return Ok(());
    }
    let mut arguments = std::env::args_os();
    let mut program = std::process::Command::new("/proc/self/exe");
    if let Some(own_name) = arguments.next() {
        program.arg0(own_name);
    }
    Err(program.args(arguments).env(name, settings).exec()).context("cannot start anew")
}

/// Serves until told to stop.
pub(crate) fn run(wanted: ApiServer) -> Result<(), Failure> {
    settle_allocator()?;
    let logging = Settings { verbosity: wanted.verbosity, ..Settings::default() };
    crablet_logging::init(logging).context("cannot start the log")?;
    info!(version = version::CRABLET, kubernetes = version::KUBERNETES, "Starting the API server");
    runtime(workers_of_server())?.block_on(serve(wanted.options))?;
    Ok(())
}

async fn serve(options: Options) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let signals = tokio::spawn(watch_for_signals(stop.clone())?);
    let server = Server::start(options, Clock::system()).await?;
    let kubeconfig = server.kubeconfig();
    info!(url = server.url(), kubeconfig = %kubeconfig.display(), "The API server is running");
    service_manager::ready();
    server.run(stop.clone()).await;
    service_manager::stopping();
    stop.cancel();
    signals.await.context("the task that waits for signals died")?;
    info!("The API server has stopped");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(arguments: &[&str]) -> Result<ApiServer, String> {
        let arguments = ["apiserver"].iter().chain(arguments);
        let matches = subcommand().try_get_matches_from(arguments).map_err(|error| error.to_string())?;
        read(&matches)
    }

    #[test]
    fn flags_are_read_and_what_makes_no_sense_is_said() {
        let read = read_all(&["--data-dir=/d", "--tls-san=Host", "--tls-san=192.0.2.1"]).unwrap();
        assert_eq!(read.options.names, ["host", "192.0.2.1"]);
        assert_eq!(
            (read.options.bind_address.to_string().as_str(), read.options.secure_port),
            ("127.0.0.1", 6443)
        );
        for (arguments, expected) in [
            (&["--data-dir="][..], "--data-dir: a directory is required"),
            (&["--data-dir=/d", "--bind-address=here"], "--bind-address: \"here\" is not an IP address"),
            (
                &["--data-dir=/d", "--secure-port=65536"],
                "--secure-port: \"65536\" is not a number from 0 to 65535",
            ),
            (
                &["--data-dir=/d", "--advertise-address=1.2.3"],
                "--advertise-address: \"1.2.3\" is not an IP address",
            ),
        ] {
            assert_eq!(read_all(arguments).unwrap_err(), expected);
        }
        assert!(read_all(&[]).unwrap_err().contains("--data-dir <DIR>"));
    }
}
