//! Kubernetes' feature gates: which exist, and which are on.
//!
//! There is one set for a whole agent. Whoever decides something takes it by reference and asks for the gate by
//! upstream's name; how a configuration sets gates, and what it may not set, is the configuration's business.

mod table;

pub use table::Known as Gate;
use table::SPECS;

const WORDS: usize = SPECS.len().div_ceil(64);

/// Which gates are on. The default is that of Kubernetes 1.36.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FeatureGates {
    enabled: [u64; WORDS],
}

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
    /// Whether the gate is on.
    pub fn enabled(&self, gate: Gate) -> bool {
        let index = gate as usize;
        self.enabled[index / 64] & (1 << (index % 64)) != 0
    }

    /// The same gates, but for this one.
    #[must_use]
    pub fn with(mut self, gate: Gate, on: bool) -> FeatureGates {
        let index = gate as usize;
        let (word, bit) = (&mut self.enabled[index / 64], 1 << (index % 64));
        *word = if on { *word | bit } else { *word & !bit };
        self
    }
}

impl Default for FeatureGates {
    fn default() -> FeatureGates {
        let none = FeatureGates { enabled: [0; WORDS] };
        SPECS.iter().fold(none, |gates, spec| gates.with(spec.gate, spec.default))
    }
}

impl std::fmt::Debug for FeatureGates {
    /// The gates that are on.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_set().entries(Gate::all().filter(|gate| self.enabled(*gate))).finish()
    }
}

impl Gate {
    /// Every gate, by name.
    pub fn all() -> impl Iterator<Item = Gate> {
        SPECS.iter().map(|spec| spec.gate)
    }

    pub fn from_name(name: &str) -> Option<Gate> {
        SPECS.iter().find(|spec| spec.name == name).map(|spec| spec.gate)
    }

    pub fn name(self) -> &'static str {
        self.spec().name
    }

    pub fn stage(self) -> Stage {
        self.spec().stage
    }

    /// Whether it is on unless somebody sets it.
    pub fn default_state(self) -> bool {
        self.spec().default
    }

    /// Whether it may not be changed.
    pub fn locked(self) -> bool {
        self.spec().locked
    }

    /// The gates that must be on where this one is.
    pub fn needs(self) -> &'static [Gate] {
        self.spec().needs
    }

    fn spec(self) -> &'static Spec {
        &SPECS[self as usize]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_enum() {
        for (index, spec) in SPECS.iter().enumerate() {
            assert_eq!(spec.gate as usize, index, "{}", spec.name);
            assert_eq!(Gate::from_name(spec.name), Some(spec.gate));
        }
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
        let ours: String = SPECS
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
    fn each_gate_is_on_by_default_as_the_table_says_and_can_be_turned_without_touching_another() {
        let defaults = FeatureGates::default();
        for gate in Gate::all() {
            assert_eq!(defaults.enabled(gate), gate.default_state(), "{gate:?}");
            let turned = defaults.with(gate, !gate.default_state());
            let differing: Vec<Gate> =
                Gate::all().filter(|other| turned.enabled(*other) != defaults.enabled(*other)).collect();
            assert_eq!(differing, [gate]);
            assert_eq!(turned.with(gate, gate.default_state()), defaults);
        }
    }
}
