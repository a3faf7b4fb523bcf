//! The resources of a pod that is resized in place: three things that are the same most of the time.
//!
//! What a pod *asks for* is its spec. What the node *allocated* to it is a pod with the same containers; whoever grants
//! resources makes it follow the spec. What a container was *actuated* with is what the runtime was last told for it:
//! [`plan`](crate::plan) makes it follow what is allocated. What the runtime says that a container has is for the status
//! alone, and never compared: it is rounded, and others may change it.

use crablet_api::core::{Container, Pod, ResourceList, ResourceRequirements};
use serde::{Deserialize, Serialize};

/// What containers were given last. A container that is not named was given what is allocated.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Actuated(Vec<Given>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Given {
    /// The runtime's name of the container: another run has other resources.
    id: String,
    resources: ResourceRequirements,
}

impl Actuated {
    /// What a container was given, by the runtime's name for it.
    pub fn get(&self, id: &str) -> Option<&ResourceRequirements> {
        self.0.iter().find(|given| given.id == id).map(|given| &given.resources)
    }

    /// A container was given something.
    pub fn set(&mut self, id: &str, resources: ResourceRequirements) {
        match self.0.iter_mut().find(|given| given.id == id) {
            Some(given) => given.resources = resources,
            None => self.0.push(Given { id: id.to_owned(), resources }),
        }
    }

    /// Forgets the containers that do not matter any more.
    pub fn retain(&mut self, mut matters: impl FnMut(&str) -> bool) {
        self.0.retain(|given| matters(&given.id));
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What is allocated to a container, given the pod with what the node granted. What it does not know was not granted
/// apart: it gets what it asks for.
pub fn allocated<'p>(granted: &'p Pod, container: &'p Container) -> &'p ResourceRequirements {
    &granted.spec.find_container(&container.name).unwrap_or(container).resources
}

/// What of a container's resources can change while it runs, in whole bytes and thousandths of a CPU; 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resizable {
    pub(crate) limit: i64,
    pub(crate) request: i64,
}

/// A resource that can change while a container runs. Memory is changed first, as upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Resource {
    Memory,
    Cpu,
}

impl Resource {
    pub(crate) const ALL: [Resource; 2] = [Resource::Memory, Resource::Cpu];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Resource::Memory => "memory",
            Resource::Cpu => "cpu",
        }
    }

    pub(crate) fn of(self, resources: &ResourceRequirements) -> Resizable {
        let amount = |list: &ResourceList| {
            list.get(self.name()).map_or(0, |amount| match self {
                Resource::Memory => amount.value(),
                Resource::Cpu => amount.milli_value(),
            })
        };
        Resizable { limit: amount(&resources.limits), request: amount(&resources.requests) }
    }

    /// These resources, with this one as in the others.
    pub(crate) fn taken_from(
        self,
        from: &ResourceRequirements,
        mut resources: ResourceRequirements,
    ) -> ResourceRequirements {
        let take = |to: &mut ResourceList, from: &ResourceList| match from.get(self.name()) {
            Some(amount) => {
                to.insert(self.name(), amount.clone());
            }
            None => {
                to.remove(self.name());
            }
        };
        take(&mut resources.limits, &from.limits);
        take(&mut resources.requests, &from.requests);
        resources
    }
}
