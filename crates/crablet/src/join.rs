//! The agent in a cluster: the client that its kubeconfigs describe, and what is done with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use async_trait::async_trait;
use crablet_agent::agent::Agent;
use crablet_agent::mirrors::ServerMirrors;
use crablet_agent::sources::{Feed, SourcesReady};
use crablet_agent::story::Teller;
use crablet_agent::tasks::Tasks;
use crablet_api::document;
use crablet_api::features::Gate;
use crablet_certificates::{ClientCertificate, ClientSettings, Identities, Progress, Renewals, Stage};
use crablet_client::{
    Body, Chance, Client, Counted, Https, Kubeconfig, Lane, Limit, ProxyEnvironment, Requests, Transport,
    TransportError,
};
use crablet_cluster::memory::Memory;
use crablet_cluster::node_status::Cloud;
use crablet_cluster::objects::{self, ClusterObjects, ObjectTtl};
use crablet_cluster::{Begun, Joining, Metrics, NodeHeadline, node, node_identity};
use crablet_config::Effective;
use crablet_cri::Runtime;
use crablet_host::clock::Clock;
use crablet_metrics::Registry;
use crablet_server::NodeHandles;
use crablet_volumes::Csi;
use http::{Request, Response};
use hyper::body::Bytes;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;
use tracing::error;

use crate::version;

/// A node's way into its cluster.
pub(crate) struct Membership<'a> {
    effective: &'a Effective,
    client: Client,
    seed: u64,
    tasks: Tasks,
    /// How far the node's certificate is, and what arrives with it, where it is ours to ask for.
    certificate: Option<(watch::Receiver<Progress>, Late)>,
    object_ttl: ObjectTtl,
    /// Where what the server says is kept, if it is.
    memory: Option<Memory>,
    /// What the server has of the node's static pods.
    mirrors: watch::Sender<ServerMirrors>,
    metrics: Metrics,
}

/// What the cluster is told of the node.
pub(crate) struct OfNode {
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) cloud: Option<Cloud>,
    pub(crate) csi: Csi,
    /// What its pods refer to.
    pub(crate) objects: Arc<ClusterObjects>,
}

impl<'a> Membership<'a> {
    /// By the kubeconfig that the flags name. Nobody is asked yet.
    pub(crate) fn open(
        effective: &'a Effective,
        name: &str,
        metrics: &Registry,
        tasks: Tasks,
        memory: Option<Memory>,
    ) -> anyhow::Result<Membership<'a>> {
        let configuration = &effective.configuration;
        let user_agent = version::user_agent();
        let seed = seed_of(name);
        let flags = &effective.flags;
        let bootstrap = Some(&*flags.bootstrap_kubeconfig).filter(|path| !path.is_empty());
        let settings = ClientSettings {
            kubeconfig: PathBuf::from(&*flags.kubeconfig),
            bootstrap_kubeconfig: bootstrap.map(PathBuf::from),
            directory: PathBuf::from(&*flags.cert_dir),
            node: name.to_owned(),
            rotate: configuration.rotate_certificates,
        };
        let (transport, certificate) = transport(settings, &user_agent, seed, metrics, &tasks)?;
        let burst = u32::try_from(configuration.kube_api_burst).unwrap_or_default();
        let limit = Limit::new(f64::from(configuration.kube_api_qps), burst);
        let client = Client::new(transport, &user_agent).with_limit(limit);
        let metrics = Metrics::register(metrics, begun())?;
        let object_ttl = ObjectTtl::default();
        let mirrors = watch::Sender::default();
        Ok(Membership { effective, client, seed, tasks, certificate, object_ttl, memory, mirrors, metrics })
    }

    /// How the API server is asked.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// What the server has of the node's static pods.
    pub(crate) fn mirrors(&self) -> watch::Receiver<ServerMirrors> {
        self.mirrors.subscribe()
    }

    /// What this node waits differently by than others.
    pub(crate) fn chance(&self) -> Chance {
        Chance::new(self.seed)
    }

    /// What pods refer to.
    pub(crate) fn objects(&self, clock: &Clock) -> Arc<ClusterObjects> {
        let configuration = &self.effective.configuration;
        let objects = ClusterObjects::new(objects::Parts {
            client: self.client.clone(),
            clock: clock.clone(),
            chance: Chance::new(self.seed),
            tasks: self.tasks.clone(),
            strategy: configuration.config_map_and_secret_change_detection_strategy.clone(),
            sync_frequency: configuration.sync_frequency.to_std(),
            ttl: self.object_ttl.clone(),
            memory: self.memory.clone(),
        });
        if self.effective.features.enabled(Gate::ClusterTrustBundleProjection) {
            objects.show_trust_bundles();
        }
        objects
    }

    /// Joins, with an agent that runs.
    pub(crate) fn join(
        self,
        agent: &Agent,
        handles: &NodeHandles,
        feed: Feed,
        ready: SourcesReady,
        of_node: OfNode,
    ) {
        let OfNode { runtime, cloud, csi, objects } = of_node;
        let configuration = &self.effective.configuration;
        let story = agent.stories.open(&node_identity(&handles.name));
        let headline = NodeHeadline::new(story.clone());
        if let Some((progress, late)) = self.certificate {
            self.tasks.spawn(tell(progress, late.arrives(), story, headline.clone()));
        }
        let joining = Joining {
            client: self.client,
            seed: self.seed,
            clock: handles.clock.clone(),
            runtime,
            feed,
            owners: handles.owners.clone(),
            ready,
            features: self.effective.features,
            node: node::Settings {
                name: handles.name.as_str().into(),
                registers: configuration.register_node,
                taints: configuration.register_with_taints.clone(),
                provider_id: (&*configuration.provider_id).into(),
                report_every: configuration.node_status_report_frequency.to_std(),
                most_images: configuration.node_status_max_images,
                isolates_local_storage: configuration.local_storage_capacity_isolation,
                cloud,
            },
            objects,
            object_ttl: self.object_ttl,
            lease_seconds: configuration.node_lease_duration_seconds,
            memory: self.memory,
            headline,
            csi_drivers: csi.drivers(),
            attachments: csi.attachments(),
            mirrors: self.mirrors,
            metrics: self.metrics,
        };
        crablet_cluster::join(&self.tasks, agent, joining);
    }
}

/// Since when there is a node.
fn begun() -> Begun {
    let timestamp = |seconds: f64| Timestamp::from_millisecond((seconds * 1e3) as i64).ok();
    Begun {
        booted: crablet_metrics::boot_time().and_then(timestamp),
        started: crablet_metrics::process_start_time()
            .and_then(timestamp)
            .unwrap_or_else(|| Clock::system().now()),
    }
}

/// Has it told how long the node's client certificate lasts.
fn register_ttl(metrics: &Registry, identities: Identities, clock: Clock) -> anyhow::Result<()> {
    let help = "[ALPHA] Gauge of the TTL (time-to-live) of the Kubelet's client certificate. The value is in seconds until certificate expiry (negative if already expired). If client certificate is invalid or unused, the value will be +INF.";
    let ttl = move || match identities.current() {
        Some(identity) => identity.not_after().duration_since(clock.now()).as_secs_f64(),
        None => f64::INFINITY,
    };
    metrics.gauge_fn("kubelet_certificate_manager_client_ttl_seconds", help, ttl)?;
    Ok(())
}

/// How requests get to the API server, and how far the certificate is that the node shows there, where it is ours to ask
/// for.
type Access = (Arc<dyn Transport>, Option<(watch::Receiver<Progress>, Late)>);

fn transport(
    settings: ClientSettings,
    user_agent: &str,
    seed: u64,
    metrics: &Registry,
    tasks: &Tasks,
) -> anyhow::Result<Access> {
    let requests = Requests::register(metrics)?;
    let clock = Clock::system();
    let environment = ProxyEnvironment::of_process();
    let kubeconfig = settings.kubeconfig.clone();
    let open = {
        let (environment, clock) = (environment.clone(), clock.clone());
        move || anyhow::Ok(Https::new(&Kubeconfig::read(&kubeconfig)?, &environment, clock.clone())?)
    };
    let certificate = ClientCertificate::open(&settings, &clock, Chance::new(seed))?;
    let connect = settings.connect(environment, clock, user_agent);
    let counted = move |https: Https| -> Arc<dyn Transport> {
        https.counted_in(&requests);
        let host = https.host();
        Arc::new(Counted::new(Arc::new(https), host, requests))
    };
    let (late, arrived) = Late::new();
    let progress = match certificate {
        ClientCertificate::Given => return Ok((counted(open()?), None)),
        ClientCertificate::Bootstrap(bootstrap) => {
            let progress = bootstrap.progress();
            tasks.spawn(async move {
                bootstrap.run(&connect).await;
                arrive(&arrived, open().map(counted));
                // Who waits for it hears of it for as long as this is held.
                std::future::pending::<()>().await;
            });
            progress
        }
        ClientCertificate::Rotated(manager) => {
            let (progress, mut identities) = (manager.progress(), manager.identities());
            register_ttl(metrics, manager.identities(), Clock::system())?;
            let manager = manager.counted_in(Renewals::of_client(metrics)?);
            tasks.spawn(async move {
                manager.run(&connect).await;
            });
            tasks.spawn(async move {
                while identities.current().is_none() {
                    if !identities.changed().await {
                        return;
                    }
                }
                let https = open();
                let handle = https.as_ref().ok().cloned();
                arrive(&arrived, https.map(counted));
                if let Some(https) = handle {
                    identities.hand_to(https).await;
                }
                std::future::pending::<()>().await;
            });
            progress
        }
    };
    Ok((Arc::new(late.clone()), Some((progress, late))))
}

/// A transport that is there once the node has a certificate. Until then requests wait, each for as long as it may. Clones
/// are the same.
#[derive(Clone)]
struct Late(watch::Receiver<Option<Arc<dyn Transport>>>);

impl Late {
    fn new() -> (Late, watch::Sender<Option<Arc<dyn Transport>>>) {
        let (sender, receiver) = watch::channel(None);
        (Late(receiver), sender)
    }

    /// Returns once it is there, if it ever is.
    async fn arrives(mut self) {
        if self.0.wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

fn arrive(late: &watch::Sender<Option<Arc<dyn Transport>>>, transport: anyhow::Result<Arc<dyn Transport>>) {
    match transport {
        Ok(transport) => drop(late.send_replace(Some(transport))),
        Err(error) => error!("{error:#}; the agent must be started again when that is put right"),
    }
}

#[async_trait]
impl Transport for Late {
    async fn send(&self, request: Request<Bytes>, lane: Lane) -> Result<Response<Body>, TransportError> {
        let mut late = self.0.clone();
        let transport = match late.wait_for(Option::is_some).await {
            Ok(transport) => transport.clone(),
            Err(_) => None,
        };
        let transport = transport.ok_or_else(|| TransportError::new("the node has no certificate"))?;
        transport.send(request, lane).await
    }
}

/// Tells the node's story of how far its certificate is. Until the first one arrives, nothing else can be done.
async fn tell(
    mut progress: watch::Receiver<Progress>,
    arrives: impl Future<Output = ()>,
    story: Teller,
    headline: NodeHeadline,
) {
    tokio::pin!(arrives);
    let mut is_awaited = true;
    loop {
        let now = progress.borrow_and_update().clone();
        match (&now.stage, &now.trouble) {
            (Stage::Begun, None) => {}
            (_, None) => story.note("certificate", format_args!("{now}")),
            (_, Some(_)) => story.warn("certificate", format_args!("{now}")),
        }
        if is_awaited {
            headline.waits_for_certificate(Some(now.to_string()));
            tokio::select! {
                Ok(()) = progress.changed() => continue,
                () = &mut arrives => {}
            }
            is_awaited = false;
            headline.waits_for_certificate(None);
        }
        if progress.changed().await.is_err() {
            return;
        }
    }
}

/// What the waits of this node are spread by: other nodes have other names.
fn seed_of(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// A client of the server that a kubeconfig names.
pub(crate) fn client_of(kubeconfig: &Path, user_agent: &str) -> anyhow::Result<Client> {
    let read = Kubeconfig::read(kubeconfig)?;
    let transport = Https::new(&read, &ProxyEnvironment::of_process(), Clock::system())?;
    Ok(Client::new(Arc::new(transport), user_agent))
}

/// Creates an object of any kind that the server has, from a document in YAML or JSON. Says what it is, and what became
/// of it.
pub(crate) async fn create_any(
    client: &Client,
    source: &str,
    text: &str,
) -> anyhow::Result<(String, &'static str)> {
    let (tree, _) = document::parse(source, text, document::Limits::MANIFEST)?;
    let (object, _): (Value, _) = document::decode(&tree)?;
    let field = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (version, kind, name) = (field("/apiVersion"), field("/kind"), field("/metadata/name"));
    let root = if version.contains('/') { "/apis" } else { "/api" };
    let resources: Value = client
        .read(&format!("{root}/{version}"))
        .await
        .with_context(|| format!("the API server does not have {version}"))?;
    let found = resources["resources"].as_array().into_iter().flatten();
    let Some(resource) = found
        .filter(|resource| !resource["name"].as_str().unwrap_or_default().contains('/'))
        .find(|resource| resource["kind"] == kind.as_str())
    else {
        bail!("the API server does not have the kind {kind:?} of {version}");
    };
    let plural = resource["name"].as_str().unwrap_or_default();
    let namespace = match field("/metadata/namespace") {
        namespace if namespace.is_empty() => "default".to_owned(),
        namespace => namespace,
    };
    let path = match resource["namespaced"].as_bool().unwrap_or_default() {
        true => format!("{root}/{version}/namespaces/{namespace}/{plural}"),
        false => format!("{root}/{version}/{plural}"),
    };
    let what = format!("{plural}/{name}");
    match client.post::<Value>(&path, &object).await {
        Ok(_) => Ok((what, "created")),
        Err(error) if error.is_already_exists() => Ok((what, "there already; left as it is")),
        Err(error) => Err(error).with_context(|| format!("cannot create {what}")),
    }
}

#[cfg(test)]
mod tests {
    use crablet_agent::story::{Stories, Story};
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_node_says_that_it_waits_for_its_certificate_until_it_has_one_and_not_when_it_is_renewed() {
        let stories = Stories::new(Clock::simulated("2026-11-15T03:46:00Z".parse().unwrap()));
        let story = stories.open(&node_identity("n"));
        let begun = Progress { stage: Stage::Begun, trouble: None };
        let (progress, heard) = watch::channel(begun.clone());
        let (arrive, arrives) = oneshot::channel::<()>();
        let headline = NodeHeadline::new(story.clone());
        tokio::spawn(tell(heard, async { arrives.await.unwrap() }, story.clone(), headline));
        let since = "2026-11-15T03:46:01Z".parse().unwrap();
        let pending = |request: &str| Progress {
            stage: Stage::Pending { request: request.into(), since },
            ..begun.clone()
        };
        let told = async |what: &str| {
            for _ in 0..100 {
                let Story { summary, entries, .. } = story.story();
                if entries.iter().any(|entry| entry.text.contains(what)) {
                    return summary.headline.to_string();
                }
                tokio::task::yield_now().await;
            }
            panic!("{what} is not told");
        };
        progress.send_replace(pending("csr-1"));
        assert_eq!(
            told("csr-1").await,
            "is not running yet: it waits for its certificate: the request csr-1 waits since \
             2026-11-15T03:46:01Z for somebody to approve it (kubectl certificate approve csr-1)"
        );
        arrive.send(()).unwrap();
        progress.send_replace(Progress {
            stage: Stage::Held { ends: since, renewed_at: since },
            ..begun.clone()
        });
        let waits = "is not running yet: it waits for the API server to know it";
        assert_eq!(told("valid until").await, waits);
        progress.send_replace(pending("csr-2"));
        assert_eq!(told("csr-2").await, waits);
    }
}
