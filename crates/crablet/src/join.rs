//! The agent in a cluster: the client that its kubeconfig describes, and what is done with it.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use crablet_agent::agent::Agent;
use crablet_agent::sources::{Feed, SourcesReady};
use crablet_agent::tasks::Tasks;
use crablet_api::document;
use crablet_client::{Chance, Client, Https, Kubeconfig, Limit, ProxyEnvironment};
use crablet_cluster::objects::{self, ClusterObjects};
use crablet_cluster::{Joining, node};
use crablet_config::Effective;
use crablet_cri::Runtime;
use crablet_host::clock::Clock;
use crablet_server::NodeHandles;
use serde_json::Value;

use crate::version;

/// A node's way into its cluster.
pub(crate) struct Membership<'a> {
    effective: &'a Effective,
    client: Client,
    seed: u64,
    tasks: Tasks,
}

impl<'a> Membership<'a> {
    /// By the kubeconfig that the flags name. Nobody is asked yet.
    pub(crate) fn open(effective: &'a Effective, name: &str, tasks: Tasks) -> anyhow::Result<Membership<'a>> {
        let configuration = &effective.configuration;
        let user_agent = format!(
            "crablet/{} ({}) kubernetes/{}",
            version::CRABLET,
            version::platform(),
            version::KUBERNETES
        );
        let burst = u32::try_from(configuration.kube_api_burst).unwrap_or_default();
        let limit = Limit::new(f64::from(configuration.kube_api_qps), burst);
        let client = client_of(Path::new(&*effective.flags.kubeconfig), &user_agent)?.with_limit(limit);
        Ok(Membership { effective, client, seed: seed_of(name), tasks })
    }

    /// What pods refer to.
    pub(crate) fn objects(&self, clock: &Clock) -> Arc<ClusterObjects> {
        let configuration = &self.effective.configuration;
        ClusterObjects::new(objects::Parts {
            client: self.client.clone(),
            clock: clock.clone(),
            chance: Chance::new(self.seed),
            tasks: self.tasks.clone(),
            strategy: configuration.config_map_and_secret_change_detection_strategy.clone(),
            sync_frequency: configuration.sync_frequency.to_std(),
        })
    }

    /// Joins, with an agent that runs.
    pub(crate) fn join(
        self,
        agent: &Agent,
        handles: &NodeHandles,
        runtime: Arc<dyn Runtime>,
        feed: Feed,
        ready: SourcesReady,
    ) {
        let configuration = &self.effective.configuration;
        let joining = Joining {
            client: self.client,
            seed: self.seed,
            clock: handles.clock.clone(),
            runtime,
            feed,
            owners: handles.owners.clone(),
            ready,
            features: Arc::new(self.effective.features.clone()),
            node: node::Settings {
                name: handles.name.as_str().into(),
                registers: configuration.register_node,
                taints: configuration.register_with_taints.clone(),
                provider_id: (&*configuration.provider_id).into(),
                report_every: configuration.node_status_report_frequency.to_std(),
                most_images: configuration.node_status_max_images,
            },
            lease_seconds: configuration.node_lease_duration_seconds,
        };
        crablet_cluster::join(&self.tasks, agent, joining);
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
