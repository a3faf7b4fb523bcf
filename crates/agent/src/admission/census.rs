//! Who is on the node, as far as admission knows.

use std::sync::Arc;

use crablet_api::core::Pod;
use crablet_core::qos::{Overhead, PodLevel, QosClass, pod_requests, qos_class, quantity};

use super::{Admission, State};

/// What the pods on the node ask for together, by class of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Asked {
    /// Thousandths of a CPU.
    pub burstable_milli_cpu: i64,
    /// Bytes of memory.
    pub burstable_memory: i64,
    pub guaranteed_memory: i64,
}

/// What a pod's state says of it. Those that leave run until they are gone, and their place is another's already.
impl State {
    /// Whether what the pod asks for is taken.
    pub(super) fn counts(&self) -> bool {
        match self {
            State::Granted { .. } | State::MakesRoom(_) => true,
            State::Waits
            | State::Asked
            | State::Late
            | State::Doubted
            | State::Leaves
            | State::Rejected(_) => false,
        }
    }

    /// Whether the node took it, and it has not come to its end.
    fn is_active(&self) -> bool {
        match self {
            State::Granted { .. } => true,
            State::Waits
            | State::Asked
            | State::Late
            | State::Doubted
            | State::MakesRoom(_)
            | State::Leaves
            | State::Rejected(_) => false,
        }
    }

    /// Whether it was told to run.
    fn runs(&self) -> bool {
        self.is_active() || matches!(self, State::Leaves)
    }

    /// Whether it may run. The end of one that is late may have begun under an agent before this one.
    fn may_run(&self) -> bool {
        match self {
            State::Granted { .. } | State::MakesRoom(_) | State::Leaves | State::Late => true,
            State::Waits | State::Asked | State::Doubted | State::Rejected(_) => false,
        }
    }
}

impl Admission {
    /// What the pods on the node ask for together; nothing while it is not known who runs.
    pub fn asked(&self) -> Option<Asked> {
        let books = self.books();
        if !books.stage.knows_who_runs() {
            return None;
        }
        let pod_level = PodLevel::from(&self.gate.features());
        let mut asked = Asked::default();
        for entry in books.pods.values().filter(|entry| entry.state.runs()) {
            let class = qos_class(&entry.pod, pod_level);
            let requests = match class {
                QosClass::BestEffort => continue,
                QosClass::Guaranteed | QosClass::Burstable => {
                    pod_requests(&entry.pod, pod_level, Overhead::Included)
                }
            };
            let memory = match class {
                QosClass::Burstable => {
                    asked.burstable_milli_cpu += quantity(&requests, "cpu").milli_value();
                    &mut asked.burstable_memory
                }
                QosClass::Guaranteed | QosClass::BestEffort => &mut asked.guaranteed_memory,
            };
            *memory = memory.saturating_add(quantity(&requests, "memory").value());
        }
        Some(asked)
    }

    /// The pods that the node has taken and that may still run.
    pub fn taken(&self) -> Vec<Arc<Pod>> {
        self.in_state(State::may_run)
    }

    /// The pods that the node took and that have not come to their end, with what they were given.
    pub fn active(&self) -> Vec<Arc<Pod>> {
        self.in_state(State::is_active)
    }

    fn in_state(&self, is_it: fn(&State) -> bool) -> Vec<Arc<Pod>> {
        let books = self.books();
        let pods = books.pods.values().filter(|entry| is_it(&entry.state));
        pods.map(|entry| Arc::clone(&entry.pod)).collect()
    }

    /// Whether a pod wants in, or is in.
    pub fn knows(&self, uid: &str) -> bool {
        self.books().pods.contains_key(uid)
    }

    /// A pod with what it has, or is to have, if it counts or wants in.
    pub(crate) fn allocated(&self, uid: &str) -> Option<Arc<Pod>> {
        self.books().pods.get(uid).map(|entry| Arc::clone(&entry.pod))
    }
}
