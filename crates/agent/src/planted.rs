//! Bugs that can be planted, so that a simulated run can show that it finds them. Without the feature `planted-bugs`
//! there are none.

use crablet_api::core::Pod;
use crablet_core::observed;
use crablet_cri::Error;

/// A bug, named after the promise that it breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// Containers are stopped when the agent begins again.
    RestartsContainersWithTheAgent,
    /// A container is started although one of its name runs.
    StartsTwice,
    /// A pod that has terminated is forgotten.
    ForgetsTerminated,
    /// A pod is said to be over before its containers are.
    EndsTooEarly,
    /// The status before the agent's start is not gone on from.
    ForgetsReadiness,
    /// Init containers that are done are not seen, and run again.
    RepeatsInitContainers,
    /// Sidecars are stopped before what needs them.
    StopsInWrongOrder,
    /// What nobody wants is left alone.
    IgnoresOrphans,
    /// A static pod does not wait for the earlier one of its name.
    IgnoresNames,
    /// What the runtime does not answer about is taken to be gone.
    TakesSilenceForDeath,
    /// What was written down of a pod stays for ever.
    LeaksCheckpoints,
    /// Volumes are taken away while containers use them.
    TearsVolumesDownTooEarly,
    /// What pods have as their own users is forgotten with the agent.
    ForgetsUsers,
}

/// Which bug there is, if any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Planted(Option<Bug>);

impl Planted {
    /// One bug.
    #[cfg(feature = "planted-bugs")]
    pub fn one(bug: Bug) -> Planted {
        Planted(Some(bug))
    }

    /// Whether there is this one.
    pub(crate) fn has(self, bug: Bug) -> bool {
        cfg!(feature = "planted-bugs") && self.0 == Some(bug)
    }

    /// What the bugs make of a look at the runtime.
    pub(crate) fn misread(
        self,
        looked: Result<observed::Pod, Error>,
        pod: &Pod,
        has_looked_before: bool,
    ) -> Result<observed::Pod, Error> {
        let observed = match looked {
            Err(_) if self.has(Bug::TakesSilenceForDeath) => return Ok(observed::Pod::default()),
            looked => looked?,
        };
        let is_done_init = |container: &observed::Container| {
            container.succeeded() && pod.spec.init_containers.iter().any(|init| *init.name == *container.name)
        };
        let is_overlooked = |container: &observed::Container| {
            (self.has(Bug::StartsTwice) && !has_looked_before)
                || (self.has(Bug::RepeatsInitContainers) && is_done_init(container))
        };
        if !observed.containers().iter().any(is_overlooked) {
            return Ok(observed);
        }
        let seen = observed.containers().iter().filter(|container| !is_overlooked(container)).cloned();
        Ok(observed::Pod::new(observed.sandboxes().to_vec(), seen.collect()))
    }
}
