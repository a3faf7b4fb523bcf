//! Feature gates: which exist, which are on, and what setting one may not do.

mod table;

use std::collections::BTreeMap;

pub use table::Known as Gate;

/// How mature a gate's feature is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Off unless asked for, may change or go.
    Alpha,
    /// Mostly on.
    Beta,
    /// On for good.
    Ga,
    /// On its way out.
    Deprecated,
}

/// Which gates are on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureGates {
    enabled: Box<[bool]>,
}

/// What is known of a gate.
struct Spec {
    gate: Gate,
    name: &'static str,
    default: bool,
    stage: Stage,
    locked: bool,
    needs: &'static [Gate],
}

impl FeatureGates {
    /// The gates as a configuration sets them. All problems are reported, each beside the gate it is about (or
    /// none, where it is about how gates go together), and the gates that could be understood are set.
    pub fn from_settings(settings: &BTreeMap<Box<str>, bool>) -> (FeatureGates, Vec<GateError>) {
        let mut gates = FeatureGates::default();
        let mut errors = Vec::new();
        for (group, stage) in [(Gate::AllAlpha, Stage::Alpha), (Gate::AllBeta, Stage::Beta)] {
            if let Some(&on) = settings.get(spec(group).name) {
                table::SPECS
                    .iter()
                    .filter(|spec| spec.stage == stage)
                    .for_each(|spec| gates.set(spec.gate, on));
                gates.set(group, on);
            }
        }
        for (name, &on) in settings {
            match Gate::from_name(name) {
                None => errors.push(GateError::Unknown(name.clone())),
                Some(gate) if spec(gate).locked && spec(gate).default != on => {
                    errors.push(GateError::Locked(gate, on))
                }
                Some(Gate::AllAlpha | Gate::AllBeta) => {}
                Some(gate) => gates.set(gate, on),
            }
        }
        if errors.is_empty() {
            errors.extend(table::SPECS.iter().filter(|spec| gates.enabled(spec.gate)).filter_map(|spec| {
                let missing: Vec<Gate> =
                    spec.needs.iter().copied().filter(|gate| !gates.enabled(*gate)).collect();
                if missing.is_empty() { None } else { Some(GateError::Needs(spec.gate, missing)) }
            }));
        }
        (gates, errors)
    }

    /// Whether the gate is on.
    pub fn enabled(&self, gate: Gate) -> bool {
        self.enabled[gate as usize]
    }

    fn set(&mut self, gate: Gate, on: bool) {
        self.enabled[gate as usize] = on;
    }
}

impl Default for FeatureGates {
    fn default() -> FeatureGates {
        FeatureGates { enabled: table::SPECS.iter().map(|spec| spec.default).collect() }
    }
}

impl Gate {
    /// Every gate, by name.
    pub fn all() -> impl Iterator<Item = Gate> {
        table::SPECS.iter().map(|spec| spec.gate)
    }

    /// The gate of that name.
    pub fn from_name(name: &str) -> Option<Gate> {
        table::SPECS.iter().find(|spec| spec.name == name).map(|spec| spec.gate)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        spec(self).name
    }

    /// Its stage.
    pub fn stage(self) -> Stage {
        spec(self).stage
    }

    /// Whether it is on unless somebody sets it.
    pub fn default_state(self) -> bool {
        spec(self).default
    }

    /// Whether it may not be changed.
    pub fn locked(self) -> bool {
        spec(self).locked
    }
}

impl Stage {
    /// The stage as Kubernetes' metrics and help spell it; nothing for the general one.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Alpha => "ALPHA",
            Stage::Beta => "BETA",
            Stage::Ga => "",
            Stage::Deprecated => "DEPRECATED",
        }
    }
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

fn spec(gate: Gate) -> &'static Spec {
    &table::SPECS[gate as usize]
}

fn names(gates: &[Gate]) -> String {
    gates.iter().map(|gate| gate.name()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(settings: &[(&str, bool)]) -> Result<FeatureGates, Vec<String>> {
        let settings = settings.iter().map(|(name, on)| ((*name).into(), *on)).collect();
        match FeatureGates::from_settings(&settings) {
            (gates, errors) if errors.is_empty() => Ok(gates),
            (_, errors) => Err(errors.iter().map(GateError::to_string).collect()),
        }
    }

    #[test]
    fn the_table_is_in_the_order_of_the_enum_and_agrees_with_itself() {
        for (index, spec) in table::SPECS.iter().enumerate() {
            assert_eq!(spec.gate as usize, index, "{}", spec.name);
            assert_eq!(Gate::from_name(spec.name), Some(spec.gate));
        }
        assert_eq!(set(&[]), Ok(FeatureGates::default()), "the defaults keep their own rules");
    }

    #[test]
    fn the_table_holds_every_gate_of_the_release() {
        // The kubelet registers these four from its libraries for logs and metrics; the record was made without them.
        let libraries = [
            Gate::ContextualLogging,
            Gate::LoggingAlphaOptions,
            Gate::LoggingBetaOptions,
            Gate::NativeHistograms,
        ];
        let recorded = include_str!("../tests/data/feature-gates-1.36.4.tsv");
        let ours: String = table::SPECS
            .iter()
            .filter(|spec| !libraries.contains(&spec.gate))
            .map(|spec| {
                let stage = if spec.stage == Stage::Ga { "GA" } else { spec.stage.name() };
                format!("{}\t{}\t{stage}\t{}\n", spec.name, spec.default, spec.locked)
            })
            .collect();
        assert_eq!(format!("gate\tdefault\tstage\tlocked\n{ours}"), recorded);
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
