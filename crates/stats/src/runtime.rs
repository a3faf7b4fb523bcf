//! What is asked of the container runtime: which pods and containers there are, and what only it can tell of them.

use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;
use crablet_cri::{Client, Error, Runtime};
use crablet_cri_api::{Container, ContainerFilter, ContainerState, Sandbox, SandboxFilter, SandboxState, v1};
use jiff::Timestamp;

/// A runtime, as far as it is asked here.
#[async_trait]
pub trait RuntimeStats: Send + Sync {
    async fn sandboxes(&self) -> Result<Vec<Sandbox>, Error>;
    async fn containers(&self) -> Result<Vec<Container>, Error>;
    /// What containers use, as the runtime counts: all, or those of a sandbox.
    async fn container_stats(&self, sandbox: Option<&str>) -> Result<Vec<v1::ContainerStats>, Error>;
    /// The file systems of images.
    async fn image_file_systems(&self) -> Result<Vec<v1::FilesystemUsage>, Error>;
    /// The image of a sandbox, if the runtime tells it.
    async fn sandbox_image(&self, id: &str) -> Result<Option<String>, Error>;
}

#[async_trait]
impl RuntimeStats for Client {
    async fn sandboxes(&self) -> Result<Vec<Sandbox>, Error> {
        self.list_sandboxes(SandboxFilter::default()).await
    }

    async fn containers(&self) -> Result<Vec<Container>, Error> {
        self.list_containers(ContainerFilter::default()).await
    }

    async fn container_stats(&self, sandbox: Option<&str>) -> Result<Vec<v1::ContainerStats>, Error> {
        self.list_container_stats(sandbox).await
    }

    async fn image_file_systems(&self) -> Result<Vec<v1::FilesystemUsage>, Error> {
        Ok(Runtime::image_file_systems(self).await?.image_filesystems)
    }

    async fn sandbox_image(&self, id: &str) -> Result<Option<String>, Error> {
        Runtime::sandbox_image(self, id).await
    }
}

/// What there is, as the runtime lists it.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// What is told in the summary, by namespace and name.
    pub(crate) pods: Vec<ListedPod>,
    /// Sandboxes whose name another has now. As long as they have cgroups, these go by their names.
    pub(crate) past: Vec<ListedPod>,
}

/// A sandbox with its containers.
#[derive(Debug, Clone)]
pub(crate) struct ListedPod {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) sandbox: String,
    pub(crate) created: Option<Timestamp>,
    /// Those that run.
    pub(crate) containers: Vec<ListedContainer>,
    /// Those that do not: one that just ended may still have its cgroup.
    pub(crate) idle: Vec<ListedContainer>,
}

impl ListedPod {
    /// What the runtime calls its sandbox and its containers.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &str> {
        let containers = self.containers.iter().chain(&self.idle);
        std::iter::once(&*self.sandbox).chain(containers.map(|known| &*known.id))
    }
}

/// A container.
#[derive(Debug, Clone)]
pub(crate) struct ListedContainer {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) image: String,
    pub(crate) created: Option<Timestamp>,
}

impl Listing {
    /// Of sandboxes with one name, those that are ready count; if none is, the last.
    pub(crate) fn new(sandboxes: Vec<Sandbox>, containers: Vec<Container>) -> Listing {
        let mut by_name: BTreeMap<(String, String), Vec<Sandbox>> = BTreeMap::new();
        for sandbox in sandboxes {
            let of = (sandbox.metadata.namespace.clone(), sandbox.metadata.name.clone());
            by_name.entry(of).or_default().push(sandbox);
        }
        let mut in_sandbox: HashMap<String, [Vec<ListedContainer>; 2]> = HashMap::new();
        for container in containers {
            let Container { id, sandbox_id, name, image, created_at, state, .. } = container;
            let listed = ListedContainer { id, name, image, created: created_at };
            let of_state = usize::from(state != ContainerState::Running);
            in_sandbox.entry(sandbox_id).or_default()[of_state].push(listed);
        }
        let mut listing = Listing::default();
        for mut named in by_name.into_values() {
            named.sort_by_key(|sandbox| sandbox.created_at);
            let last = named.len() - 1;
            let has_ready = named.iter().any(|sandbox| sandbox.state == SandboxState::Ready);
            for (at, sandbox) in named.into_iter().enumerate() {
                let counts = if has_ready { sandbox.state == SandboxState::Ready } else { at == last };
                let [mut containers, idle] = in_sandbox.remove(&sandbox.id).unwrap_or_default();
                containers.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
                let list = if counts { &mut listing.pods } else { &mut listing.past };
                list.push(ListedPod {
                    uid: sandbox.metadata.uid,
                    namespace: sandbox.metadata.namespace,
                    name: sandbox.metadata.name,
                    sandbox: sandbox.id,
                    created: sandbox.created_at,
                    containers,
                    idle,
                });
            }
        }
        listing
    }

    /// All sandboxes. What is told last counts.
    pub(crate) fn all(&self) -> impl Iterator<Item = &ListedPod> {
        self.past.iter().chain(&self.pods)
    }
}

#[cfg(test)]
mod tests {
    use crablet_cri_api::SandboxMetadata;

    use super::*;

    fn sandbox(id: &str, name: &str, second: i64, state: SandboxState) -> Sandbox {
        Sandbox {
            id: id.to_owned(),
            metadata: SandboxMetadata {
                name: name.to_owned(),
                uid: format!("uid-{id}"),
                namespace: "default".to_owned(),
                attempt: 0,
            },
            state,
            created_at: Timestamp::from_second(second).ok(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            runtime_handler: String::new(),
        }
    }

    fn container(id: &str, sandbox: &str, second: i64, state: ContainerState) -> Container {
        Container {
            id: id.to_owned(),
            sandbox_id: sandbox.to_owned(),
            name: format!("name-{id}"),
            attempt: 0,
            image: "image".to_owned(),
            image_ref: String::new(),
            image_id: String::new(),
            state,
            created_at: Timestamp::from_second(second).ok(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        }
    }

    #[test]
    fn of_pods_with_one_name_those_that_are_ready_count_and_only_what_runs_is_told() {
        let sandboxes = vec![
            sandbox("s1", "again", 1, SandboxState::NotReady),
            sandbox("s2", "again", 2, SandboxState::Ready),
            sandbox("s3", "ended", 4, SandboxState::NotReady),
            sandbox("s4", "ended", 3, SandboxState::NotReady),
            sandbox("s5", "alone", 5, SandboxState::NotReady),
        ];
        let containers = vec![
            container("c1", "s1", 1, ContainerState::Running),
            container("c3", "s2", 3, ContainerState::Running),
            container("c2", "s2", 2, ContainerState::Running),
            container("c4", "s2", 2, ContainerState::Exited),
        ];
        let listing = Listing::new(sandboxes, containers);
        let told: Vec<_> = listing
            .pods
            .iter()
            .map(|pod| {
                let containers: Vec<&str> = pod.containers.iter().map(|known| &*known.id).collect();
                (&*pod.name, &*pod.sandbox, containers)
            })
            .collect();
        assert_eq!(
            told,
            [("again", "s2", vec!["c2", "c3"]), ("alone", "s5", vec![]), ("ended", "s3", vec![])]
        );
        assert_eq!(listing.pods[0].idle[0].id, "c4");
        let past: Vec<&str> = listing.past.iter().map(|pod| &*pod.sandbox).collect();
        assert_eq!(past, ["s1", "s4"]);
        assert_eq!(listing.past[0].containers[0].id, "c1", "it is still known by its name");
    }
}
