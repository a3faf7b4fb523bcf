//! Finding static pods that another kubelet runs already, so that nothing restarts when crablet takes its place.
//!
//! The Go kubelet makes a static pod's UID from a dump of its own types, which nobody should reproduce. A pod that runs
//! is recognised by what it is instead: its name, what its containers were made from, and a manifest that has not
//! changed since its sandbox was made.

use std::collections::BTreeMap;
use std::sync::Arc;

use crablet_api::Text;
use crablet_core::{hash, labels};
use crablet_cri::{Error, Runtime};
use crablet_cri_api::{Container, ContainerFilter, ContainerState, Sandbox, SandboxFilter, SandboxState};
use jiff::Timestamp;

use crate::sources::{AdoptUid, CONFIG_SOURCE, Candidate};

/// A static pod that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Running {
    uid: String,
    made: Option<Timestamp>,
    /// What each of its running containers was made from.
    hashes: BTreeMap<String, String>,
}

/// What the runtime has now, as a way to find the UID under which a static pod runs.
pub async fn adoption(runtime: &dyn Runtime) -> Result<AdoptUid, Error> {
    let state = Some(SandboxState::Ready);
    let sandboxes = runtime.list_sandboxes(SandboxFilter { state, ..SandboxFilter::default() }).await?;
    let state = Some(ContainerState::Running);
    let containers = runtime.list_containers(ContainerFilter { state, ..ContainerFilter::default() }).await?;
    let running = running(&sandboxes, &containers);
    Ok(Arc::new(move |candidate: &Candidate<'_>| find(&running, candidate)))
}

type FullName = (String, String);

fn running(sandboxes: &[Sandbox], containers: &[Container]) -> BTreeMap<FullName, Running> {
    let is_static = |sandbox: &&Sandbox| {
        sandbox
            .annotations
            .get(CONFIG_SOURCE)
            .is_some_and(|source| matches!(source.as_str(), "file" | "http"))
    };
    let mut found = BTreeMap::new();
    for sandbox in sandboxes.iter().filter(is_static) {
        let hashes = containers
            .iter()
            .filter(|container| container.sandbox_id == sandbox.id)
            .filter_map(|container| {
                let hash = container.annotations.get(labels::CONTAINER_HASH)?;
                Some((container.name.clone(), hash.clone()))
            })
            .collect();
        let metadata = &sandbox.metadata;
        let running = Running { uid: metadata.uid.clone(), made: sandbox.created_at, hashes };
        found.insert((metadata.namespace.clone(), metadata.name.clone()), running);
    }
    found
}

fn find(running: &BTreeMap<FullName, Running>, candidate: &Candidate<'_>) -> Option<Text> {
    let running = running.get(&(candidate.namespace.to_owned(), candidate.name.to_owned()))?;
    let is_older = candidate.modified.zip(running.made).is_some_and(|(modified, made)| modified <= made);
    let spec = &candidate.pod.spec;
    let wanted = spec.containers.iter().chain(&spec.init_containers);
    let hashes: BTreeMap<&str, String> =
        wanted.map(|container| (&*container.name, hash::container_hash(container))).collect();
    let is_same = !running.hashes.is_empty()
        && running.hashes.iter().all(|(name, hash)| hashes.get(name.as_str()) == Some(hash));
    (is_older && is_same).then(|| running.uid.as_str().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crablet_api::testing::pod_yaml;
    use crablet_cri_api::SandboxMetadata;

    const MADE: &str = "2026-11-15T08:00:00Z";

    fn node(hash: &str, source: &str) -> BTreeMap<FullName, Running> {
        let sandbox = Sandbox {
            id: "s".into(),
            metadata: SandboxMetadata {
                name: "web-node".into(),
                namespace: "default".into(),
                uid: "go-uid".into(),
                attempt: 0,
            },
            state: SandboxState::Ready,
            created_at: Some(MADE.parse().unwrap()),
            labels: BTreeMap::new(),
            annotations: BTreeMap::from([(CONFIG_SOURCE.into(), source.into())]),
            runtime_handler: String::new(),
        };
        let container = Container {
            id: "c".into(),
            sandbox_id: "s".into(),
            name: "c".into(),
            attempt: 0,
            image: String::new(),
            image_ref: String::new(),
            image_id: String::new(),
            state: ContainerState::Running,
            created_at: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::from([(labels::CONTAINER_HASH.into(), hash.into())]),
        };
        running(&[sandbox], &[container])
    }

    fn check(hash: &str, source: &str, modified: Option<&str>, expected: Option<&str>) {
        let pod = pod_yaml("metadata: {name: web-node}\nspec: {containers: [{name: c, image: busybox}]}");
        let candidate = Candidate {
            namespace: "default",
            name: "web-node",
            pod: &pod,
            modified: modified.map(|time| time.parse().unwrap()),
        };
        assert_eq!(
            find(&node(hash, source), &candidate).as_deref(),
            expected,
            "{hash} {source} {modified:?}"
        );
    }

    #[test]
    fn a_static_pod_that_runs_unchanged_keeps_its_uid() {
        let pod = pod_yaml("spec: {containers: [{name: c, image: busybox}]}");
        let hash = hash::container_hash(&pod.spec.containers[0]);
        let before = Some("2026-11-15T07:00:00Z");
        check(&hash, "file", before, Some("go-uid"));
        check(&hash, "http", before, Some("go-uid"));
        // Its manifest was changed after it was started, or nobody knows.
        check(&hash, "file", Some("2026-11-15T09:00:00Z"), None);
        check(&hash, "file", None, None);
        check("0", "file", before, None);
        // An API server's pod is not ours to take.
        check(&hash, "api", before, None);
    }
}
