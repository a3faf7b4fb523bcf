//! The node's main port, put together from the configuration: who serves it, whom it believes, and whom it asks.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use crablet_agent::node_facts::LiveFacts;
use crablet_agent::tasks::Tasks;
use crablet_api::core::NodeAddress;
use crablet_api::features::Gate;
use crablet_certificates::{Identities, Manager, Renewals, ServingFiles, self_signed};
use crablet_client::{Chance, Client};
use crablet_config::{AuthorizationMode, Effective, KubeletConfiguration};
use crablet_host::clock::Clock;
use crablet_host::files::read_bounded;
use crablet_host::watch::Watch;
use crablet_logging::{ErrorChain, Handle};
use crablet_logs::{LogWatcher, NodeLogs};
use crablet_metrics::Registry;
use crablet_server::{
    Access, AccessSettings, Authorities, ContainerCheckpoints, ContainerLogs, Debugging, Health, Lasts,
    NodeHandles, NodeLogSettings, NodePort, Status, StreamMetrics, Streams, TlsSettings, node_router,
    serve_tls, tls_config,
};
use crablet_streams::Streamer;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::node::Started;
use crate::servers::bind;
use crate::version;

/// The largest file of authorities that is read.
const LARGEST_FILE: usize = 4 << 20;
/// How often that file is looked at, whether the kernel tells of a change or not.
const LOOKS_EVERY: Duration = Duration::from_secs(60);
/// How long streams may take to end when the node stops.
const STREAMS_PART_WITHIN: Duration = Duration::from_secs(2);

/// What it is made of.
pub(crate) struct Parts<'a> {
    pub(crate) effective: &'a Effective,
    pub(crate) logging: &'a Handle,
    pub(crate) health: &'a Health,
    pub(crate) started: Started,
}

/// Serves it until `stop`, unless it is not wanted. What is being answered then is answered to its end, if that is near, and
/// whoever is in a container hears that it ends: `parting` waits for both.
pub(crate) async fn start(
    parts: Parts<'_>,
    stop: &CancellationToken,
    tasks: &Tasks,
    parting: &TaskTracker,
) -> anyhow::Result<()> {
    let Parts { effective, logging, health, started } = parts;
    let Started { node, agent, runtime, of_cluster } = started;
    let configuration = &effective.configuration;
    if !configuration.enable_server || configuration.port == 0 {
        return Ok(());
    }
    if of_cluster.is_none() && asks_somebody(configuration) {
        info!(
            "The node's API is not served: there is no API server to ask who may use it. With authentication.webhook.enabled: \
             false and authorization.mode: AlwaysAllow it is, for whoever has a certificate of clientCAFile"
        );
        return Ok(());
    }
    let authorities = Authorities::default();
    if !configuration.authentication.x509.client_ca_file.is_empty() {
        let file =
            ClientAuthorityFile::open(&configuration.authentication.x509.client_ca_file, &authorities)?;
        tasks.spawn(file.run());
    }
    let authentication = &configuration.authentication;
    let authorization = &configuration.authorization;
    let settings = AccessSettings {
        authorities,
        tokens: authentication.webhook.enabled.then(|| authentication.webhook.cache_ttl.to_std()),
        allows_anonymous: authentication.anonymous.enabled,
        reviews: (authorization.mode != AuthorizationMode::AlwaysAllow).then(|| Lasts {
            allowed: authorization.webhook.cache_authorized_ttl.to_std(),
            denied: authorization.webhook.cache_unauthorized_ttl.to_std(),
        }),
        metrics: node.metrics.kubelet.clone(),
    };
    let client = of_cluster.as_ref().map(|(client, _)| client.clone());
    let access = Access::new(settings, &node.name, client, node.clock.clone())?;
    let identities = serving_certificate(effective, &node, &agent.facts, of_cluster, tasks)?;
    let tls = TlsSettings {
        min_version: &configuration.tls_min_version,
        cipher_suites: &configuration.tls_cipher_suites,
        curve_preferences: &configuration.tls_curve_preferences,
    };
    let tls = tls_config(tls, Arc::new(identities))?;
    let Some(listener) = bind(configuration.address, configuration.port, "the node's API").await? else {
        return Ok(());
    };
    let runtime = Arc::new(runtime);
    let container_logs = ContainerLogs {
        node: node.clone(),
        runtime: Arc::clone(&runtime) as _,
        watcher: LogWatcher::default(),
        split_streams: effective.features.enabled(Gate::PodLogsQuerySplitStreams),
    };
    let node_logs = NodeLogSettings {
        logs: NodeLogs::default(),
        is_enabled: configuration.enable_system_log_handler,
        has_query: configuration.enable_system_log_query,
    };
    let idle = configuration.streaming_connection_idle_timeout.to_std();
    let streamer = Streamer::new((!idle.is_zero()).then_some(idle), stop.clone());
    let streams = Streams {
        node: node.clone(),
        runtime: Arc::clone(&runtime) as _,
        streamer: streamer.clone(),
        extends_websockets: effective.features.enabled(Gate::ExtendWebSocketsToKubelet),
        metrics: StreamMetrics::new(&node.metrics.kubelet)?,
    };
    let router = node_router(NodePort {
        health: health.clone(),
        logging: logging.clone(),
        debugging: debugging(effective, &node, Arc::clone(&runtime))?,
        node,
        access,
        runtime,
        kubelet_config: effective.to_json(),
        container_logs,
        node_logs,
        streams,
    })?;
    parting.spawn(serve_tls(listener, tls, router, stop.clone().cancelled_owned()));
    let stopping = stop.clone().cancelled_owned();
    parting.spawn(async move {
        stopping.await;
        let _ = tokio::time::timeout(STREAMS_PART_WITHIN, streamer.none_open()).await;
    });
    Ok(())
}

/// What is there for who looks for a fault, if that is wanted.
fn debugging(
    effective: &Effective,
    node: &NodeHandles,
    runtime: Arc<crablet_cri::Client>,
) -> anyhow::Result<Option<Debugging>> {
    let configuration = &effective.configuration;
    if !configuration.enable_debugging_handlers {
        return Ok(None);
    }
    let clock = &node.clock;
    let has = |gate| effective.features.enabled(gate);
    let statusz = || {
        let started_at = crablet_metrics::process_start_time()
            .and_then(|seconds| Timestamp::from_second(seconds as i64).ok())
            .unwrap_or_else(|| clock.now());
        Status::new(clock.clone(), started_at, version::KUBERNETES.trim_start_matches('v'))
    };
    let checkpoints = match has(Gate::ContainerCheckpoint) {
        true => Some(checkpoints(effective, node, runtime)?),
        false => None,
    };
    Ok(Some(Debugging {
        checkpoints,
        profiling: configuration.enable_profiling_handler,
        flags_handler: configuration.enable_debug_flags_handler,
        flagz: has(Gate::ComponentFlagz).then(|| effective.shown_flags.as_slice().into()),
        statusz: has(Gate::ComponentStatusz).then(statusz),
    }))
}

/// Where containers are written to.
fn checkpoints(
    effective: &Effective,
    node: &NodeHandles,
    runtime: Arc<crablet_cri::Client>,
) -> anyhow::Result<ContainerCheckpoints> {
    let folder = Path::new(&*effective.flags.root_dir).join("checkpoints");
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .with_context(|| format!("cannot make the directory {}", folder.display()))?;
    Ok(ContainerCheckpoints { node: node.clone(), runtime, folder })
}

/// Whether the API server is asked about those who come.
fn asks_somebody(configuration: &KubeletConfiguration) -> bool {
    configuration.authentication.webhook.enabled
        || configuration.authorization.mode != AuthorizationMode::AlwaysAllow
}

/// The certificate that clients are shown: by the cluster, from files, or signed by nobody.
fn serving_certificate(
    effective: &Effective,
    node: &NodeHandles,
    facts: &LiveFacts,
    of_cluster: Option<(Client, Chance)>,
    tasks: &Tasks,
) -> anyhow::Result<Identities> {
    let configuration = &effective.configuration;
    let directory = Path::new(&*effective.flags.cert_dir);
    let files = (!configuration.tls_cert_file.is_empty()).then(|| {
        (PathBuf::from(&*configuration.tls_cert_file), PathBuf::from(&*configuration.tls_private_key_file))
    });
    if let (true, Some((client, chance))) = (configuration.server_tls_bootstrap, of_cluster) {
        let (addresses, told) = watch::channel(facts.now().node.status.addresses.clone());
        tasks.spawn(tell_addresses(facts.subscribe(), addresses));
        let dns_only = effective.features.enabled(Gate::AllowDNSOnlyNodeCSR);
        let manager =
            Manager::serving(directory, &node.name, files, told, dns_only, node.clock.clone(), chance)?
                .counted_in(Renewals::of_serving(&node.metrics.kubelet)?);
        let identities = manager.identities();
        register_ttl(&node.metrics.kubelet, manager.identities(), node.clock.clone())?;
        tasks.spawn(async move {
            manager.run(&move |_| Ok(client.clone())).await;
        });
        return Ok(identities);
    }
    let (certificate, key) = match files {
        Some(files) => files,
        None => self_signed(directory, &node.name, node.clock.now())?,
    };
    let files = ServingFiles::open(certificate, key)?;
    let identities = files.identities();
    tasks.spawn(async move {
        files.run().await;
    });
    Ok(identities)
}

/// Has it told how long the certificate lasts that the cluster has signed.
fn register_ttl(metrics: &Registry, identities: Identities, clock: Clock) -> anyhow::Result<()> {
    let help = "[ALPHA] Gauge of the shortest TTL (time-to-live) of the Kubelet's serving certificate. The value is in seconds until certificate expiry (negative if already expired). If serving certificate is invalid or unused, the value will be +INF.";
    let ttl = move || match identities.current() {
        Some(identity) => identity.not_after().duration_since(clock.now()).as_secs_f64(),
        None => f64::INFINITY,
    };
    metrics.gauge_fn("kubelet_certificate_manager_server_ttl_seconds", help, ttl)?;
    Ok(())
}

/// Tells the node's addresses when they change.
async fn tell_addresses(
    mut facts: watch::Receiver<Arc<crablet_agent::node_facts::Facts>>,
    addresses: watch::Sender<Box<[NodeAddress]>>,
) {
    while facts.changed().await.is_ok() {
        let now = facts.borrow_and_update().node.status.addresses.clone();
        addresses.send_if_modified(|known| {
            let is_other = *known != now;
            *known = now;
            is_other
        });
    }
}

/// The file of those whose signatures on client certificates count. It is read anew when it changes.
struct ClientAuthorityFile {
    path: PathBuf,
    content: Vec<u8>,
    authorities: Authorities,
}

impl ClientAuthorityFile {
    fn open(path: &str, authorities: &Authorities) -> anyhow::Result<ClientAuthorityFile> {
        let mut file =
            ClientAuthorityFile { path: path.into(), content: Vec::new(), authorities: authorities.clone() };
        file.look().with_context(|| format!("authentication.x509.clientCAFile: {path}"))?;
        Ok(file)
    }

    fn look(&mut self) -> anyhow::Result<()> {
        let content = read_bounded(&self.path, LARGEST_FILE)?;
        if content != self.content {
            self.authorities.set(&content)?;
            info!(path = %self.path.display(), "Client certificates are checked by this file");
            self.content = content;
        }
        Ok(())
    }

    /// Works for as long as it is polled. A file that cannot be used changes nothing.
    async fn run(mut self) {
        let mut watch = Watch::file(&self.path)
            .inspect_err(|error| warn!(err = %ErrorChain(error), "A file cannot be watched; it is looked at each minute"))
            .ok();
        loop {
            let changed = async {
                match &mut watch {
                    Some(watch) => watch.changed().await.is_ok(),
                    None => std::future::pending().await,
                }
            };
            if let Ok(false) = tokio::time::timeout(LOOKS_EVERY, changed).await {
                watch = None;
            }
            if let Err(error) = self.look() {
                warn!(
                    "The client CA file {} cannot be used ({error:#}); the one from before counts on",
                    self.path.display()
                );
            }
        }
    }
}
