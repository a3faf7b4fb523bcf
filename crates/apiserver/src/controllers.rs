//! What happens by itself: each controller looks at what changed and at the time, and writes as anybody would.
//!
//! A controller notes of each change what concerns it, which for most changes is nothing; and then does what it noted
//! until nobody has anything to do. Nothing of it is kept: at a start, all objects are noted as if they were new.

mod attachments;
mod binder;
mod bootstrap;
pub mod certificates;
mod expiry;
mod garbage;
mod namespaces;
mod nodes;
mod pods;
mod volumes;
mod write;

pub(crate) use bootstrap::{KUBERNETES_ADDRESS, KUBERNETES_PORT};

use jiff::Timestamp;

use crate::cluster::Cluster;
use crate::resources::{RESOURCES, Resource};
use crate::state::{Change, ChangeKind, ResourceKey, State};

/// How often the controllers answer each other at once; what is left then waits for the next look.
const MOST_ROUNDS: usize = 64;

/// One of them.
trait Controller {
    /// Remembers what of a change concerns it.
    fn note(&mut self, change: &Change, now: Timestamp);

    /// Does what is to be done.
    fn work(&mut self, cluster: &mut Cluster, now: Timestamp);

    /// When there will be something to do even if nothing changes.
    fn next(&self) -> Option<Timestamp> {
        None
    }
}

/// What the controllers remember between two looks. All of it can be found out anew.
#[derive(Debug, Default)]
pub struct Controllers {
    /// All up to this version was noted; none was before the first look.
    noted: Option<u64>,
    /// When there is something to do even if nothing changes.
    next: Option<Timestamp>,
    bootstrap: bootstrap::Bootstrap,
    namespaces: namespaces::Namespaces,
    garbage: garbage::Garbage,
    volumes: volumes::PersistentVolumes,
    binder: binder::Binder,
    certificates: certificates::Certificates,
    expiry: expiry::Expiry,
    nodes: nodes::Nodes,
    pods: pods::PodCollector,
    attachments: attachments::Attachments,
}

impl Controllers {
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.next
    }

    fn all(&mut self) -> [&mut dyn Controller; 10] {
        [
            &mut self.bootstrap,
            &mut self.namespaces,
            &mut self.garbage,
            &mut self.volumes,
            &mut self.binder,
            &mut self.certificates,
            &mut self.expiry,
            &mut self.nodes,
            &mut self.pods,
            &mut self.attachments,
        ]
    }

    /// Notes what has changed since the last look.
    fn look(&mut self, state: &State, now: Timestamp) {
        let revision = state.revision();
        let noted = self.noted.replace(revision);
        if let Some(noted) = noted
            && let Ok(changes) = state.changes_since(noted)
        {
            for change in changes {
                self.note(change, now);
            }
            return;
        }
        // Nothing is known yet, or too much was missed.
        *self = Controllers { noted: Some(revision), ..Controllers::default() };
        for resource in RESOURCES.into_iter().filter(|resource| std::ptr::eq(resource.storage(), *resource)) {
            for (key, stored) in state.list(resource, None) {
                let change = Change {
                    revision: stored.revision,
                    key: key.clone(),
                    kind: ChangeKind::Added,
                    object: stored.clone(),
                    previous: None,
                };
                self.note(&change, now);
            }
        }
    }

    fn note(&mut self, change: &Change, now: Timestamp) {
        for controller in self.all() {
            controller.note(change, now);
        }
    }
}

/// Lets each do what is to be done now; when they want to look again.
pub(crate) fn run(cluster: &mut Cluster, now: Timestamp) -> Option<Timestamp> {
    let mut controllers = std::mem::take(&mut cluster.controllers);
    let mut is_settled = false;
    for _ in 0..MOST_ROUNDS {
        controllers.look(&cluster.state, now);
        let before = cluster.state.revision();
        if cluster.settings.controllers {
            for controller in controllers.all() {
                controller.work(cluster, now);
            }
        } else {
            controllers.bootstrap.work(cluster, now);
        }
        if cluster.state.revision() == before {
            is_settled = true;
            break;
        }
    }
    let next = match is_settled {
        true => controllers.all().into_iter().filter_map(|controller| controller.next()).min(),
        false => Some(now),
    };
    controllers.next = next;
    cluster.controllers = controllers;
    next
}

fn resource_of(key: ResourceKey) -> Option<&'static Resource> {
    RESOURCES
        .into_iter()
        .find(|resource| resource.key() == key && std::ptr::eq(resource.storage(), *resource))
}

fn is_of(change: &Change, resource: &'static Resource) -> bool {
    change.key.resource == resource.key()
}
