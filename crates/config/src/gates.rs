//! Feature gates as a configuration sets them, and what it may not set.

use std::collections::BTreeMap;

use crablet_api::features::{FeatureGates, Gate, Stage};

/// The gates as a configuration sets them. All problems are reported, each beside the gate it is about (or none, where
/// it is about how gates go together), and the gates that could be understood are set.
pub(crate) fn from_settings(settings: &BTreeMap<Box<str>, bool>) -> (FeatureGates, Vec<GateError>) {
    let mut gates = FeatureGates::default();
    let mut errors = Vec::new();
    for (group, stage) in [(Gate::AllAlpha, Stage::Alpha), (Gate::AllBeta, Stage::Beta)] {
        if let Some(&on) = settings.get(group.name()) {
            gates = Gate::all()
                .filter(|gate| gate.stage() == stage)
                .fold(gates, |gates, gate| gates.with(gate, on));
            gates = gates.with(group, on);
        }
    }
    for (name, &on) in settings {
        match Gate::from_name(name) {
            None => errors.push(GateError::Unknown(name.clone())),
            Some(gate) if gate.locked() && gate.default_state() != on => {
                errors.push(GateError::Locked(gate, on))
            }
            Some(Gate::AllAlpha | Gate::AllBeta) => {}
            Some(gate) => gates = gates.with(gate, on),
        }
    }
    if errors.is_empty() {
        errors.extend(Gate::all().filter(|gate| gates.enabled(*gate)).filter_map(|gate| {
            let missing: Vec<Gate> =
                gate.needs().iter().copied().filter(|needed| !gates.enabled(*needed)).collect();
            if missing.is_empty() { None } else { Some(GateError::Needs(gate, missing)) }
        }));
    }
    (gates, errors)
}

/// Why a gate cannot be set so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// There is no such gate.
    #[error("unrecognized feature gate: {0}")]
    Unknown(Box<str>),
    /// Its value is fixed.
    #[error("cannot set feature gate {} to {}, feature is locked to {}", .0.name(), .1, .0.default_state())]
    Locked(Gate, bool),
    /// Another one that it needs is off.
    #[error("{} is enabled, but depends on features that are disabled: [{}]", .0.name(), names(.1))]
    Needs(Gate, Vec<Gate>),
}

impl GateError {
    /// The names of the gates that it is about: one of them was set, and so made the mistake.
    pub fn gate_names(&self) -> Vec<&str> {
        match self {
            GateError::Unknown(name) => vec![name],
            GateError::Locked(gate, _) => vec![gate.name()],
            GateError::Needs(gate, missing) => {
                let groups = [Gate::AllAlpha, Gate::AllBeta];
                [gate].into_iter().chain(missing).chain(&groups).map(|gate| gate.name()).collect()
            }
        }
    }
}

fn names(gates: &[Gate]) -> String {
    gates.iter().map(|gate| gate.name()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(settings: &[(&str, bool)]) -> Result<FeatureGates, Vec<String>> {
        let settings = settings.iter().map(|(name, on)| ((*name).into(), *on)).collect();
        match from_settings(&settings) {
            (gates, errors) if errors.is_empty() => Ok(gates),
            (_, errors) => Err(errors.iter().map(GateError::to_string).collect()),
        }
    }

    #[test]
    fn the_defaults_keep_their_own_rules() {
        assert_eq!(set(&[]), Ok(FeatureGates::default()));
    }

    #[test]
    fn a_gate_can_be_set_and_a_group_sets_what_is_not_set_itself() {
        let gates = set(&[("AllAlpha", true), ("EventedPLEG", false)]).unwrap();
        assert!(gates.enabled(Gate::PodsAPI), "an alpha gate");
        assert!(!gates.enabled(Gate::EventedPLEG), "set on its own");
        let gates = set(&[("AllBeta", false)]).unwrap();
        assert!(!gates.enabled(Gate::GracefulNodeShutdown), "a beta gate");
        assert!(gates.enabled(Gate::KubeletPSI), "not a beta gate");
    }

    #[test]
    fn what_cannot_be_set_is_refused_with_upstreams_words() {
        for (settings, expected) in [
            (&[("NoSuchGate", true)][..], vec!["unrecognized feature gate: NoSuchGate"]),
            (
                &[("CPUManagerPolicyOptions", false), ("Bogus", true)],
                vec![
                    "unrecognized feature gate: Bogus",
                    "cannot set feature gate CPUManagerPolicyOptions to false, feature is locked to true",
                ],
            ),
            (
                &[("GracefulNodeShutdown", false)],
                vec![
                    "GracefulNodeShutdownBasedOnPodPriority is enabled, but depends on features that are disabled: [GracefulNodeShutdown]",
                    "WindowsGracefulNodeShutdown is enabled, but depends on features that are disabled: [GracefulNodeShutdown]",
                ],
            ),
        ] {
            assert_eq!(set(settings), Err(expected.into_iter().map(String::from).collect()));
        }
    }
}
