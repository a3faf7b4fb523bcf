//! Bugs that can be planted, so that a simulated run can show that it finds them. Without the feature `planted-bugs`
//! there are none.

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
    /// Init containers that are done run again after the agent's start.
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
}
