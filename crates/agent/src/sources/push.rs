//! [`Push`]: pods that are given to the agent itself, and kept by it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crablet_api::Text;
use crablet_api::core::PodIdentity;
use crablet_host::checkpoint::{CheckpointError, Checkpoints};
use crablet_host::clock::Clock;
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;
use tracing::info;

use super::compare::mark;
use super::identity::Origin;
use super::manifest::{Made, read_pod};
use super::problems::{Consequence, Found};
use super::{Feed, Owner, Owners, Problem, Problems, SourceKind, StaticPods, Wanted};
use crate::pod_span::pod_span;

/// The most pods that are kept.
const MOST_PODS: usize = 1000;
/// The largest manifest, in bytes.
const LARGEST: usize = 1 << 20;
/// All pods of this source come from one place, as far as their UID is concerned.
const PLACE: &str = "push";

/// Takes pods in and lets them go. Clones are the same source.
#[derive(Clone)]
pub struct Push(Arc<Inner>);

struct Inner {
    store: Arc<dyn Checkpoints>,
    pods: StaticPods,
    owners: Owners,
    problems: Problems,
    clock: Clock,
    feed: Feed,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// By namespace and name.
    pods: BTreeMap<(Text, Text), Pushed>,
    /// Manifests that were taken in once and make no sense any more.
    broken: BTreeSet<String>,
}

struct Pushed {
    file: String,
    digest: Text,
    wanted: Wanted,
}

/// What became of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// What it changed.
    pub outcome: Outcome,
    /// The pod. Its name has the node's, and a changed manifest makes another UID.
    pub pod: PodIdentity,
}

/// What a manifest changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There was no such pod.
    Created,
    /// There was a pod of that name, which is replaced.
    Changed,
    /// There was that very pod.
    Unchanged,
}

/// Why a manifest was not taken in.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// It is wrong.
    #[error("{}", lines(.0))]
    Invalid(Vec<Problem>),
    #[error("the manifest has {0} bytes; at most {LARGEST} are accepted")]
    TooLarge(usize),
    /// There are too many pods.
    #[error("there are {MOST_PODS} pods already, which is as many as are kept; delete one first")]
    TooMany,
    /// Somebody else asks for a pod of that name.
    #[error("pod {namespace}/{name} is there already: {} asks for it", .owner.origin)]
    Clash {
        /// The pod's namespace.
        namespace: Text,
        /// The pod's name.
        name: Text,
        /// Who asks for it.
        owner: Owner,
    },
    /// It could not be kept.
    #[error("the manifest could not be kept")]
    Store(#[from] CheckpointError),
}

/// Why a pod was not let go.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    /// Nobody asks for such a pod.
    #[error("there is no pod {namespace}/{name}")]
    NotFound { namespace: String, name: String },
    /// It is not ours to delete.
    #[error("pod {namespace}/{name} is not deleted here: {}", removal(.owner))]
    NotOurs {
        namespace: String,
        name: String,
        /// Who asks for it.
        owner: Owner,
    },
    /// It could not be taken from what is kept.
    #[error("the manifest could not be removed")]
    Store(#[from] CheckpointError),
}

impl Push {
    /// Takes up what was kept, and tells it to `feed`. A manifest that makes no sense any more is reported and left
    /// where it is.
    pub async fn open(
        store: Arc<dyn Checkpoints>,
        pods: StaticPods,
        owners: Owners,
        problems: Problems,
        clock: Clock,
        feed: Feed,
    ) -> Result<Push, CheckpointError> {
        let loaded = store.load_all().await?;
        let push = Inner { store, pods, owners, problems, clock, feed, kept: Mutex::default() };
        {
            let mut kept = push.kept.lock().await;
            for (file, content) in &loaded.checkpoints {
                push.take_up(&mut kept, file, content);
            }
            for error in &loaded.unreadable {
                let found =
                    Found { origin: error.to_string(), line: 0, message: "cannot be taken up".to_owned() };
                push.problems.set(SourceKind::Push, &error.to_string(), Consequence::Ignored, vec![found]);
            }
            push.tell(&kept);
        }
        Ok(Push(Arc::new(push)))
    }

    /// Takes in the pod of a manifest; `source` names the manifest in what is wrong with it. When this returns, the
    /// pod is kept, also over a crash. A call that is given up is finished all the same.
    pub async fn apply(&self, source: &str, text: &str) -> Result<Applied, ApplyError> {
        let (push, source, text) = (self.0.clone(), source.to_owned(), text.to_owned());
        finished(async move { push.apply(&source, &text).await }).await
    }

    /// Lets a pod go. Its name may be that of the manifest or the one with the node's. A call that is given up is
    /// finished all the same.
    pub async fn delete(&self, namespace: &str, name: &str) -> Result<(), DeleteError> {
        let (push, namespace, name) = (self.0.clone(), namespace.to_owned(), name.to_owned());
        finished(async move { push.delete(namespace, name).await }).await
    }
}

impl Inner {
    fn read(&self, content: &[u8]) -> Result<(Made, Vec<Found>), Vec<Found>> {
        let origin = Origin { source: SourceKind::Push, place: PLACE };
        read_pod(&self.pods, origin, content)
    }

    fn take_up(&self, kept: &mut Kept, file: &str, content: &[u8]) {
        match self.read(content) {
            Ok((made, _)) => {
                let name = name_of(&made);
                kept.pods.insert(name, self.pushed(file.to_owned(), made));
            }
            Err(found) => {
                kept.broken.insert(file.to_owned());
                let found =
                    found.into_iter().map(|found| Found { origin: origin_of(file), ..found }).collect();
                self.problems.set(SourceKind::Push, file, Consequence::Ignored, found);
            }
        }
    }

    fn pushed(&self, file: String, made: Made) -> Pushed {
        let mut pod = made.pod;
        mark(&mut pod, SourceKind::Push, &format!("{:.9}", self.clock.now()));
        let wanted = Wanted { pod: Arc::new(pod), origin: origin_of(&file).into() };
        Pushed { file, digest: made.digest, wanted }
    }

    fn tell(&self, kept: &Kept) {
        self.feed.set(kept.pods.values().map(|pushed| pushed.wanted.clone()).collect());
    }

    async fn apply(&self, source: &str, text: &str) -> Result<Applied, ApplyError> {
        if text.len() > LARGEST {
            return Err(ApplyError::TooLarge(text.len()));
        }
        // What is read past in a file is refused here, where somebody waits for the answer.
        let made = match self.read(text.as_bytes()) {
            Ok((made, remarks)) if remarks.is_empty() => made,
            Ok((_, found)) | Err(found) => return Err(ApplyError::Invalid(problems(source, found))),
        };
        let key = name_of(&made);
        let (namespace, name) = key.clone();
        let owners = self.owners.of(&namespace, &name);
        if let Some(owner) = owners.into_iter().find(|owner| owner.source != SourceKind::Push) {
            return Err(ApplyError::Clash { namespace, name, owner });
        }
        let mut kept = self.kept.lock().await;
        let known = kept.pods.get(&key);
        let outcome = match known {
            Some(pushed) if pushed.digest == made.digest => {
                return Ok(Applied { outcome: Outcome::Unchanged, pod: pushed.wanted.pod.identity() });
            }
            Some(_) => Outcome::Changed,
            None if kept.pods.len() + kept.broken.len() >= MOST_PODS => return Err(ApplyError::TooMany),
            None => Outcome::Created,
        };
        let file =
            known.map_or_else(|| file_name(&namespace, self.own_name(&name)), |pushed| pushed.file.clone());
        self.store.save(&file, text.as_bytes()).await?;
        kept.broken.remove(&file);
        self.problems.set(SourceKind::Push, &file, Consequence::Ignored, vec![]);
        let pod = made.pod.identity();
        pod_span(&pod).in_scope(|| info!(?outcome, "A pod was given to the agent and is kept"));
        kept.pods.insert(key, self.pushed(file, made));
        self.tell(&kept);
        Ok(Applied { outcome, pod })
    }

    async fn delete(&self, namespace: String, name: String) -> Result<(), DeleteError> {
        let mut kept = self.kept.lock().await;
        let names = [Text::from(&name), self.pods.pod_name(&name)];
        for name in &names {
            let key = (Text::from(&namespace), name.clone());
            if let Some(pushed) = kept.pods.get(&key) {
                self.store.remove(&pushed.file).await?;
                pod_span(&pushed.wanted.pod.identity())
                    .in_scope(|| info!("A pod that was given to the agent is let go"));
                kept.pods.remove(&key);
                self.tell(&kept);
                return Ok(());
            }
        }
        let file = file_name(&namespace, self.own_name(&name));
        if kept.broken.contains(&file) {
            self.store.remove(&file).await?;
            kept.broken.remove(&file);
            self.problems.forget(SourceKind::Push, &file);
            return Ok(());
        }
        let owners = names.iter().flat_map(|name| self.owners.of(&namespace, name));
        match owners.into_iter().find(|owner| owner.source != SourceKind::Push) {
            Some(owner) => Err(DeleteError::NotOurs { namespace, name, owner }),
            None => Err(DeleteError::NotFound { namespace, name }),
        }
    }

    /// The name that a manifest gives its pod.
    fn own_name<'a>(&self, name: &'a str) -> &'a str {
        name.strip_suffix(self.pods.pod_name("").as_str()).unwrap_or(name)
    }
}

fn name_of(made: &Made) -> (Text, Text) {
    (made.pod.metadata.namespace.clone(), made.pod.metadata.name.clone())
}

/// The name of the file that keeps a manifest. Names can be longer than those of files.
fn file_name(namespace: &str, name: &str) -> String {
    let whole = format!("{namespace}_{name}");
    match whole.len() {
        ..=200 => format!("{whole}.yaml"),
        _ => {
            let digest = Sha256::digest(&whole);
            let digits: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            format!("{}_{digits}.yaml", &whole[..whole.floor_char_boundary(150)])
        }
    }
}

fn origin_of(file: &str) -> String {
    format!("the kept manifest {file}")
}

fn problems(source: &str, found: Vec<Found>) -> Vec<Problem> {
    let problem = |found: Found| Problem {
        source: SourceKind::Push,
        origin: source.to_owned(),
        line: found.line,
        message: found.message,
        consequence: Consequence::Ignored,
    };
    found.into_iter().map(problem).collect()
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn removal(owner: &Owner) -> String {
    match owner.source {
        SourceKind::File => format!("remove the file {}, which asks for it", owner.origin),
        SourceKind::Url => format!("{} asks for it", owner.origin),
        SourceKind::Api => "the API server asks for it; delete it there".to_owned(),
        SourceKind::Push => format!("{} asks for it", owner.origin),
    }
}

/// Does something to its end, also when nobody waits for it any more: what is on disk and what is told must agree.
async fn finished<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    match tokio::spawn(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is being shut down.
            Err(_) => std::future::pending().await,
        },
    }
}
