//! Sources at work, and waiting for what comes of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crablet_agent::sources::{Change, Settings, Sources, StaticPods, TrustStore, start};
use crablet_config::KubeletConfiguration;
use crablet_host::checkpoint::Checkpoints;
use crablet_host::clock::Clock;
use tokio::time::timeout;

/// How long anything may take. On paused time it is no time at all.
pub const LONG: Duration = Duration::from_secs(10);

/// The clock of all tests.
pub fn clock() -> Clock {
    Clock::simulated("2026-11-15T03:46:00Z".parse().unwrap())
}

/// A pod with one container.
pub fn manifest(name: &str, image: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n  containers:\n  - name: c\n    image: {image}\n"
    )
}

/// Sources of a node called `node`, and the directory their manifests are in.
pub struct Node {
    pub folder: tempfile::TempDir,
    pub sources: Sources,
}

impl Node {
    /// One that reads a directory, and looks by itself so often.
    pub async fn reading_files(period: Duration, files: &[(&str, &[u8])]) -> Node {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            std::fs::write(folder.path().join(name), content).unwrap();
        }
        let sources = files_of(folder.path(), period).await;
        Node { folder, sources }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).unwrap();
    }

    pub fn remove(&self, name: &str) {
        std::fs::remove_file(self.path(name)).unwrap();
    }

    /// The next change, as `ADD ns/name`.
    pub async fn next(&mut self) -> String {
        next(&mut self.sources).await
    }

    /// The next changes, in any order.
    pub async fn next_of(&mut self, count: usize) -> Vec<String> {
        let mut changes = Vec::new();
        for _ in 0..count {
            changes.push(self.next().await);
        }
        changes.sort();
        changes
    }

    /// Waits until there are as many problems, and tells them with the directory left out.
    pub async fn problems(&self, count: usize) -> Vec<String> {
        let problems = problems(&self.sources, count).await;
        let folder = format!("{}/", self.folder.path().display());
        problems.into_iter().map(|problem| problem.replace(&folder, "")).collect()
    }
}

/// Sources that read a path.
pub async fn files_of(path: &Path, period: Duration) -> Sources {
    let config = KubeletConfiguration {
        static_pod_path: path.to_str().unwrap().into(),
        file_check_frequency: crablet_api::GoDuration::from_millis(period.as_millis() as i64),
        ..KubeletConfiguration::default()
    };
    started(&config, None).await
}

/// Sources as a configuration asks for them.
pub async fn started(config: &KubeletConfiguration, pushed: Option<Arc<dyn Checkpoints>>) -> Sources {
    start(config, Settings { pushed, ..settings() }).await.unwrap()
}

/// For a node called `node`, which trusts the authority of `testdata` alone.
pub fn settings() -> Settings {
    let trust = TrustStore::from_variables(|name| match name {
        "SSL_CERT_FILE" => {
            Some(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sources/testdata/authority.pem").into())
        }
        _ => Some("/nonexistent".into()),
    });
    Settings { pods: StaticPods::new("node"), pushed: None, has_api: false, clock: clock(), trust }
}

pub async fn next_change(sources: &mut Sources) -> Change {
    let waited = timeout(LONG, sources.changes.next()).await;
    let problems = sources.problems.list();
    waited.unwrap_or_else(|_| panic!("no change; {problems:?}")).expect("sources at work")
}

/// The next change, as `ADD ns/name`.
pub async fn next(sources: &mut Sources) -> String {
    shown(&next_change(sources).await)
}

pub fn shown(change: &Change) -> String {
    let metadata = &change.pod().metadata;
    format!("{} {}/{}", change.word(), metadata.namespace, metadata.name)
}

/// Waits until there are as many problems.
pub async fn problems(sources: &Sources, count: usize) -> Vec<String> {
    let list = || sources.problems.list();
    let mut reports = sources.problems.reports();
    let waited = timeout(LONG, reports.wait_for(|_| list().len() == count)).await;
    let problems = list();
    assert!(waited.is_ok(), "{problems:?}");
    problems.iter().map(|problem| format!("{problem} [{:?}]", problem.consequence)).collect()
}

/// Waits until all sources are ready while changes are taken, of which there must be none.
pub async fn ready_without_pods(sources: &mut Sources) {
    let mut ready = sources.ready.clone();
    tokio::select! {
        biased;
        change = sources.changes.next() => panic!("{change:?}"),
        waited = timeout(LONG, ready.ready()) => waited.expect("sources to be ready"),
    }
}
