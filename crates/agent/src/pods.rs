//! The pods of the node, each with its worker.
//!
//! One task takes changes from the sources and events from the runtime, and tells the worker of the pod that they are
//! about. It decides nothing about a pod: it makes workers, wakes them, and sees them off.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use crablet_api::Text;
use crablet_api::core::{Pod, PodIdentity};
use crablet_core::labels;
use crablet_core::qos::is_static;
use crablet_core::status::Failure;
use crablet_cri::observer::{Event, EventKind};
use crablet_cri_api::{ContainerFilter, ContainerState, SandboxFilter, SandboxState};
use crablet_host::cgroup::CgroupError;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::mailbox::{Cause, End, Input, Mailbox};
use crate::orphan;
use crate::pod_span::{in_pod_span, pod_span};
use crate::roll_call;
use crate::shared::Shared;
use crate::sources::{Change, Changes};
use crate::sync_loop::SyncLoop;
use crate::tasks::Tasks;
use crate::worker::{Beginning, Worker};

/// The wait before a worker that panicked begins again; each further time doubles it.
const AFTER_PANIC: Duration = Duration::from_secs(1);
/// No such wait is longer.
const LONGEST_AFTER_PANIC: Duration = Duration::from_secs(300);
/// The wait after a search for pods that could not be completed.
const BETWEEN_SEARCHES: Duration = Duration::from_secs(1);
/// How many workers' ends may wait to be seen.
const ENDS: usize = 256;
/// How much may wait that was asked for.
const REQUESTS: usize = 16;

/// The pods of the node.
pub struct Pods {
    node: Arc<Shared>,
    workers: BTreeMap<String, Handle>,
    /// The worker that has a full name now, of static pods: the next one of that name comes after it.
    names: BTreeMap<(Text, Text), Text>,
    ended: mpsc::Sender<String>,
    requests: mpsc::Receiver<Request>,
    /// How pods are to end of which there is a checkpoint, and no worker yet: nobody has said yet whether they are wanted.
    early_ends: BTreeMap<String, End>,
    /// Where it is asked whether it still goes round.
    sync_loop: SyncLoop,
    tasks: Tasks,
}

/// Where those who look after the node ask for a pod to go. Clones are the same place.
#[derive(Debug, Clone)]
pub struct Evictor(mpsc::Sender<Request>);

/// What they ask for.
#[derive(Debug)]
pub enum Request {
    /// A pod has to end.
    End(String, End),
    /// Something happened to a pod that the runtime may not tell.
    Look(String),
    /// The machine is not shut down after all.
    StayUp,
}

impl Evictor {
    /// One, and what hears it.
    pub fn new() -> (Evictor, mpsc::Receiver<Request>) {
        let (evict, requests) = mpsc::channel(REQUESTS);
        (Evictor(evict), requests)
    }

    /// Has a pod ended, for a reason that its status will give. A pod that is not there is not missed.
    pub async fn evict(&self, uid: &str, failure: Failure, grace: Option<Duration>) {
        // Who takes them ends with the agent, and its pods are left as they are then.
        let _ = self.0.send(Request::End(uid.to_owned(), End::evicted(failure, grace))).await;
    }

    /// Has a pod looked at, since something happened to it that the runtime may not tell.
    pub(crate) async fn look(&self, uid: &str) {
        let _ = self.0.send(Request::Look(uid.to_owned())).await;
    }

    /// Has static pods begin anew that were ended because the machine was about to be shut down: it is not.
    pub async fn stay_up(&self) {
        let _ = self.0.send(Request::StayUp).await;
    }
}

/// A pod's worker, seen from here.
struct Handle {
    mailbox: Mailbox,
    /// Cancelled when nothing of the pod is left.
    gone: CancellationToken,
    identity: PodIdentity,
    /// What its source has; nothing once it has let it go. What is there when all of the pod is gone begins again: a
    /// static pod that was taken away and put back has the UID that it had.
    wanted: Option<Arc<Pod>>,
    /// Whether its source has let it go, ever. What it has since then is another pod's beginning.
    is_let_go: bool,
    /// Whether something of it began to run after that: a call that was given up may take effect after the worker's last
    /// look.
    is_revived: bool,
}

impl Pods {
    /// No pods yet; [`Pods::run`] brings them.
    pub fn new(node: Arc<Shared>, tasks: Tasks) -> (Pods, mpsc::Receiver<String>, Evictor) {
        let (ended, ends) = mpsc::channel(ENDS);
        let (evictor, requests) = Evictor::new();
        let (workers, names, sync_loop) = (BTreeMap::new(), BTreeMap::new(), SyncLoop::default());
        let early_ends = BTreeMap::new();
        let pods = Pods { node, workers, names, ended, requests, early_ends, sync_loop, tasks };
        (pods, ends, evictor)
    }

    /// Where it can be asked whether it still goes round.
    pub fn sync_loop(&self) -> SyncLoop {
        self.sync_loop.clone()
    }

    /// Follows the sources and the runtime until the sources end. Its workers stop with its tasks, where they are, and
    /// touch no pod.
    pub async fn run(
        mut self,
        mut ends: mpsc::Receiver<String>,
        mut changes: Changes,
        mut events: mpsc::Receiver<Event>,
    ) {
        let mut ready = changes.sources_ready();
        self.tasks.spawn(roll_call::begin_admission(Arc::clone(&self.node), ready.clone()));
        let mut facts = self.node.facts.subscribe();
        let mut shown_by = Arc::clone(&facts.borrow());
        let strangers = Arc::clone(&self.node.strangers);
        let mut search = Search::Due;
        loop {
            tokio::select! {
                biased;
                () = self.sync_loop.answer() => {}
                Some(uid) = ends.recv() => {
                    if self.see_off(&uid) {
                        search.is_needed();
                    }
                }
                change = changes.next() => match change {
                    Some(change) => self.change(change),
                    None => return,
                },
                Some(request) = self.requests.recv() => match request {
                    Request::End(uid, end) => self.end(uid, end),
                    Request::Look(uid) => {
                        if let Some(worker) = self.workers.get(&uid) {
                            worker.mailbox.tell(Input::Look);
                        }
                    }
                    Request::StayUp => {
                        self.workers.values().for_each(|worker| worker.mailbox.tell(Input::Look));
                    }
                },
                // What runs shows the node as it is now.
                Ok(()) = facts.changed() => {
                    let before = std::mem::replace(&mut shown_by, Arc::clone(&facts.borrow_and_update()));
                    if !shown_by.show_pods_as(&before) {
                        self.workers.values().for_each(|worker| worker.mailbox.tell(Input::Look));
                    }
                }
                // Who wants which pods is known only when all sources have spoken.
                () = ready.ready(), if matches!(search, Search::Due) => {
                    search = Search::running(find(Arc::clone(&self.node)).boxed());
                }
                found = search.found() => {
                    search = search.done();
                    self.end_orphans(found);
                }
                () = strangers.notified() => search.is_needed(),
                Some(event) = events.recv() => {
                    if self.event(&event) {
                        search.is_needed();
                    }
                }
            }
        }
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Add(pod) | Change::Update(pod) | Change::Delete(pod) => self.want(pod, Input::Spec),
            Change::Reconcile(pod) => self.want(pod, Input::Reconcile),
            Change::Remove(pod) => {
                // Who comes next may have its place: it does not wait for the end.
                self.node.admission.release(&pod.metadata.uid);
                if let Some(worker) = self.workers.get_mut(&*pod.metadata.uid) {
                    (worker.wanted, worker.is_let_go) = (None, true);
                    worker.mailbox.set_heir(false);
                    worker.mailbox.tell(Input::End(End::new(Cause::Removed, None)));
                }
            }
        }
    }

    /// A pod has to end. One that the agent before began to end hears it when it has a worker.
    fn end(&mut self, uid: String, end: End) {
        if let Some(worker) = self.workers.get(&uid) {
            worker.mailbox.tell(Input::End(end));
        } else if self.node.restored.left().contains_key(&uid) {
            self.early_ends.insert(uid, end);
        }
    }

    /// A source has this pod, in this form. While an earlier pod of that UID ends, it waits.
    fn want(&mut self, pod: Arc<Pod>, news: fn(Arc<Pod>) -> Input) {
        match self.workers.get_mut(&*pod.metadata.uid) {
            None => self.employ(pod, None),
            Some(worker) => {
                worker.wanted = Some(Arc::clone(&pod));
                worker.mailbox.set_heir(worker.is_let_go);
                if !worker.is_let_go {
                    let (deletion, news) = (deletion(&pod), news(pod));
                    // What it asks for is decided at once, however long its worker is busy.
                    if let Input::Spec(pod) = &news {
                        self.node.admission.wants(pod);
                    }
                    worker.mailbox.tell(news);
                    deletion.into_iter().for_each(|end| worker.mailbox.tell(Input::End(end)));
                }
            }
        }
    }

    /// Makes a worker for a pod.
    fn employ(&mut self, pod: Arc<Pod>, end: Option<End>) {
        let identity = pod.identity();
        let full_name = full_name(&identity);
        let after = is_static(&pod)
            .then(|| self.names.insert(full_name, identity.uid.clone()))
            .flatten()
            .and_then(|earlier| {
                self.workers.get(&*earlier).map(|worker| (earlier.to_string(), worker.gone.clone()))
            });
        let mailbox = Mailbox::new();
        let is_let_go = end.is_some();
        let wanted = (!is_let_go).then(|| Arc::clone(&pod));
        if !is_let_go {
            self.node.admission.enter(&pod, &mailbox, self.is_over(&pod));
        }
        self.node.container_gc.enter(&identity.uid, &mailbox);
        let early_end = self.early_ends.remove(&*identity.uid);
        early_end
            .into_iter()
            .chain(end.or_else(|| deletion(&pod)))
            .for_each(|end| mailbox.tell(Input::End(end)));
        let gone = CancellationToken::new();
        let handle =
            Handle { mailbox: mailbox.clone(), gone, identity, wanted, is_let_go, is_revived: false };
        let beginning = Beginning { node: Arc::clone(&self.node), mailbox, pod, after };
        let work = supervise(beginning, handle.gone.clone(), self.ended.clone()).boxed();
        self.tasks.spawn(in_pod_span(handle.identity.clone(), work));
        self.workers.insert(handle.identity.uid.to_string(), handle);
    }

    /// Whether a pod is over already when it is first seen, or its end has begun.
    fn is_over(&self, pod: &Pod) -> bool {
        let restored = self.node.restored.left();
        restored
            .get(&*pod.metadata.uid)
            .is_some_and(|checkpoint| checkpoint.is_ending_or_over(pod, self.node.readiness.now().shuts_down))
            || pod.status.is_over()
    }

    /// Tells the worker of the pod. Says whether something runs that has none.
    fn event(&mut self, event: &Event) -> bool {
        let starts = match event.kind {
            EventKind::ContainerStarted | EventKind::SandboxStarted => true,
            EventKind::ContainerDied(_)
            | EventKind::ContainerRemoved
            | EventKind::ContainerChanged
            | EventKind::ContainerOutOfMemory
            | EventKind::SandboxStopped
            | EventKind::SandboxRemoved => false,
        };
        let Some(worker) = self.workers.get_mut(&*event.pod_uid) else { return starts };
        worker.is_revived |= starts && worker.is_let_go;
        worker.mailbox.tell(Input::Look);
        false
    }

    /// Nothing is left of a pod. Says whether something of it may have begun to run behind its worker's back.
    fn see_off(&mut self, uid: &str) -> bool {
        let Some(worker) = self.workers.remove(uid) else { return false };
        worker.gone.cancel();
        let full_name = full_name(&worker.identity);
        if self.names.get(&full_name).is_some_and(|current| *current == worker.identity.uid) {
            self.names.remove(&full_name);
        }
        self.node.reports.statuses.remove(uid);
        self.node.admission.release(uid);
        self.node.container_gc.forget(uid);
        self.node.reports.stories.close(uid);
        if let Some(pod) = worker.wanted {
            self.node.metrics.restarted(&pod);
            self.employ(pod, None);
        }
        worker.is_revived
    }

    /// Gives every pod that was found and that nobody wants a worker that ends it.
    fn end_orphans(&mut self, found: Vec<FoundPod>) {
        for FoundPod { pod, runs } in found {
            if self.workers.contains_key(&*pod.metadata.uid) {
                continue;
            }
            pod_span(&pod.identity()).in_scope(|| info!("Ending a pod that nobody wants"));
            if runs {
                self.node.metrics.found_orphan();
            }
            self.employ(Arc::new(pod), Some(End::new(Cause::Orphaned, None)));
        }
    }
}

fn full_name(pod: &PodIdentity) -> (Text, Text) {
    (pod.namespace.clone(), pod.name.clone())
}

/// A pod that is on the node.
struct FoundPod {
    pod: Pod,
    /// Whether something of it lives in the runtime.
    runs: bool,
}

/// The search for pods that are on the node, to find those that nobody wants.
enum Search {
    Due,
    Running {
        search: BoxFuture<'static, Vec<FoundPod>>,
        /// Whether something came up that it may have missed.
        again: bool,
    },
    Done,
}

impl Search {
    fn running(search: BoxFuture<'static, Vec<FoundPod>>) -> Search {
        Search::Running { search, again: false }
    }

    /// There is something that belongs to no pod that is known. A search that is under way may have looked before it
    /// was there.
    fn is_needed(&mut self) {
        match self {
            Search::Due => {}
            Search::Running { again, .. } => *again = true,
            Search::Done => *self = Search::Due,
        }
    }

    async fn found(&mut self) -> Vec<FoundPod> {
        match self {
            Search::Running { search, .. } => search.await,
            Search::Due | Search::Done => std::future::pending().await,
        }
    }

    /// What follows on a search that has found what it finds.
    fn done(self) -> Search {
        match self {
            Search::Running { again: true, .. } | Search::Due => Search::Due,
            Search::Running { again: false, .. } | Search::Done => Search::Done,
        }
    }
}

/// Every pod that the runtime, the disk, the cgroups or the checkpoints know. Tries until all could be asked.
async fn find(node: Arc<Shared>) -> Vec<FoundPod> {
    loop {
        match try_to_find(&node).await {
            Ok(found) => return found,
            Err(error) => {
                warn!(%error, "Cannot look for pods that nobody wants; trying again");
                tokio::time::sleep(BETWEEN_SEARCHES).await;
            }
        }
    }
}

/// What could not be asked for its pods.
#[derive(Debug, thiserror::Error)]
enum NotSearched {
    #[error(transparent)]
    Runtime(#[from] crablet_cri::Error),
    #[error(transparent)]
    Cgroups(#[from] CgroupError),
    #[error(transparent)]
    Files(#[from] std::io::Error),
}

async fn try_to_find(node: &Shared) -> Result<Vec<FoundPod>, NotSearched> {
    let sandboxes = node.runtime.list_sandboxes(SandboxFilter::default()).await?;
    let containers = node.runtime.list_containers(ContainerFilter::default()).await?;
    let cgroups = node.host.cgroups.pods().await?;
    let directories = node.host.files.pods().await?;
    let of_sandboxes = sandboxes.iter().filter_map(|sandbox| sandbox.labels.get(labels::POD_UID).cloned());
    let of_containers =
        containers.iter().filter_map(|container| container.labels.get(labels::POD_UID).cloned());
    let of_cgroups = cgroups.iter().map(|pod| pod.uid().to_owned());
    let uids: BTreeSet<String> = of_sandboxes
        .chain(of_containers)
        .chain(of_cgroups)
        .chain(directories)
        .chain(node.restored.left().keys().cloned())
        .collect();
    let restored = node.restored.left();
    let live_sandboxes = sandboxes.iter().filter(|sandbox| sandbox.state == SandboxState::Ready);
    let live_containers = containers.iter().filter(|one| one.state == ContainerState::Running);
    let live: BTreeSet<&str> = live_sandboxes
        .map(|sandbox| &sandbox.labels)
        .chain(live_containers.map(|container| &container.labels))
        .filter_map(|labels| labels.get(labels::POD_UID).map(String::as_str))
        .collect();
    let orphan = |uid: &String| FoundPod {
        pod: orphan::pod(uid, &sandboxes, &containers, restored.get(uid)),
        runs: live.contains(uid.as_str()),
    };
    Ok(uids.iter().map(orphan).collect())
}

/// The end of a pod that is deleted at its source. An agent that was away meets such pods for the first time.
fn deletion(pod: &Pod) -> Option<End> {
    let grace = pod.metadata.deletion_grace_period_seconds;
    let grace = grace.map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or_default()));
    pod.metadata.deletion_timestamp.map(|_| End::new(Cause::Deleted, grace))
}

/// Runs a worker to its end. One that panics is reported, and another goes on from where the pod was, a little later
/// each time.
async fn supervise(beginning: Beginning, gone: CancellationToken, ended: mpsc::Sender<String>) {
    let Beginning { node, mailbox, pod, after } = beginning;
    let uid = pod.metadata.uid.to_string();
    let mut pause = AFTER_PANIC;
    let mut worker = Worker::new(node, mailbox.clone(), pod);
    while let Err(panic) = AssertUnwindSafe(worker.begin(after.as_ref())).catch_unwind().await {
        let reason = panic_text(&*panic);
        error!(reason, ?pause, "A pod's worker panicked; only this pod is affected, and it begins again");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_AFTER_PANIC);
        mailbox.tell_again();
        worker = worker.after_panic();
    }
    let _ = ended.send(uid).await;
    drop(gone);
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no reason given")
}
