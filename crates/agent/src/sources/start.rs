//! [`start`]: all sources that a configuration asks for.

use std::sync::Arc;

use crablet_config::KubeletConfiguration;
use crablet_host::checkpoint::{CheckpointError, Checkpoints};
use crablet_host::clock::Clock;
use tokio::task::JoinSet;

use super::{
    Changes, Feed, FileSource, Owners, PodConfig, Problems, Push, SourceKind, SourcesReady, StaticPods,
    TrustStore, UrlError, UrlSource,
};

/// What the sources need beside the configuration.
pub struct Settings {
    /// How manifests become pods of this node.
    pub pods: StaticPods,
    /// Where pods that are given to the agent itself are kept. Without it there are none.
    pub pushed: Option<Arc<dyn Checkpoints>>,
    /// Whether an API server will say what it wants, through [`Sources::api`].
    pub has_api: bool,
    /// The time.
    pub clock: Clock,
    /// Whose word is taken for who a web server is.
    pub trust: TrustStore,
}

/// The sources at work. They stop when this is dropped.
pub struct Sources {
    /// What happens to the pods of the node.
    pub changes: Changes,
    /// Whether all sources have been heard.
    pub ready: SourcesReady,
    /// What is wrong with manifests.
    pub problems: Problems,
    /// Who wants which pod.
    pub owners: Owners,
    /// Takes pods in, where they are kept.
    pub push: Option<Push>,
    /// What the API server wants goes in here, where there is one.
    pub api: Option<Feed>,
    /// The tasks, none of which ends by itself.
    pub tasks: JoinSet<()>,
}

/// Why sources could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be asked.
    #[error("staticPodURL {0}")]
    Url(#[source] UrlError),
    /// What was kept cannot be taken up.
    #[error("the pods that were given to the agent cannot be taken up")]
    Pushed(#[from] CheckpointError),
}

/// Starts all sources that a configuration asks for.
pub async fn start(config: &KubeletConfiguration, settings: Settings) -> Result<Sources, StartError> {
    let Settings { pods, pushed, has_api, clock, trust } = settings;
    let problems = Problems::new();
    let (mut merge, changes) = PodConfig::new(clock.clone(), problems.clone());
    let owners = merge.owners();
    let mut tasks = JoinSet::new();

    if !config.static_pod_url.is_empty() {
        let (url, headers) = (&config.static_pod_url, &config.static_pod_url_header);
        let period = config.http_check_frequency.to_std();
        let source =
            UrlSource::new(url, headers, period, pods.clone(), problems.clone(), clock.clone(), trust);
        tasks.spawn(source.map_err(StartError::Url)?.run(merge.feed(SourceKind::Url)));
    }
    if !config.static_pod_path.is_empty() {
        let (path, period) = (&*config.static_pod_path, config.file_check_frequency.to_std());
        let source = FileSource::new(path, period, pods.clone(), problems.clone(), clock.clone());
        tasks.spawn(source.run(merge.feed(SourceKind::File)));
    }
    let push = match pushed {
        Some(store) => {
            let feed = merge.feed(SourceKind::Push);
            Some(Push::open(store, pods, owners.clone(), problems.clone(), clock, feed).await?)
        }
        None => None,
    };
    let api = has_api.then(|| merge.feed(SourceKind::Api));
    tasks.spawn(merge.run());
    Ok(Sources { ready: changes.sources_ready(), changes, problems, owners, push, api, tasks })
}
