//! What a configuration may not say, in the Go kubelet's words: all of it, not the first.
//!
//! Checks that need the machine (cgroup version, swap) are made at start and are not here: a configuration can be
//! looked at on any machine.

mod eviction;
mod images;
mod labels;
mod logging;
mod numbers;
mod pods;
mod resources;
mod servers;

use crablet_api::FeatureGates;

use crate::flags::KubeletFlags;
use crate::kubelet_configuration::KubeletConfiguration;

/// Something that a configuration may not say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// The field it is about: where it was set is where the mistake is.
    pub path: &'static [&'static str],
    /// The other field it is about, in case nobody set the first.
    pub or: Option<&'static [&'static str]>,
    /// What is wrong.
    pub message: String,
}

/// Everything that is wrong with a configuration.
pub(crate) fn configuration(configuration: &KubeletConfiguration, gates: &FeatureGates) -> Vec<Invalid> {
    let mut check = Check { invalid: Vec::new() };
    check.numbers(configuration);
    check.images(configuration, gates);
    check.resource_managers(configuration, gates);
    check.node_allocatable(configuration);
    check.reserved(configuration);
    check.eviction(configuration);
    check.shutdown(configuration, gates);
    check.pods(configuration, gates);
    check.servers(configuration, gates);
    check.logging(&configuration.logging, gates);
    check.tracing(configuration);
    check.invalid
}

/// Everything that is wrong with the flags that are not part of the configuration.
pub(crate) fn flags(flags: &KubeletFlags) -> Vec<Invalid> {
    let mut check = Check { invalid: Vec::new() };
    if flags.exit_on_lock_contention && flags.lock_file.is_empty() {
        check.fail(
            &["exit-on-lock-contention"],
            "cannot exit on lock file contention: no lock file specified; set --lock-file".into(),
        );
    }
    if flags.root_dir.is_empty() {
        check.fail(&["root-dir"], "the root directory must not be empty".into());
    }
    check.node_labels(&flags.node_labels);
    check.invalid
}

struct Check {
    invalid: Vec<Invalid>,
}

impl Check {
    fn fail(&mut self, path: &'static [&'static str], message: String) {
        self.invalid.push(Invalid { path, or: None, message });
    }

    fn invalid(&mut self, path: &'static [&'static str], message: String) {
        self.fail(path, format!("invalid configuration: {message}"));
    }

    /// About two fields that do not go together, of which one may be a default.
    fn invalid_pair(&mut self, path: &'static [&'static str], or: &'static [&'static str], message: String) {
        self.invalid.push(Invalid {
            path,
            or: Some(or),
            message: format!("invalid configuration: {message}"),
        });
    }

    fn in_range(&mut self, path: &'static [&'static str], flag: &str, value: i32, range: (i32, i32)) {
        if value < range.0 || value > range.1 {
            let message = format!(
                "{} (--{flag}) {value} must be between {} and {}, inclusive",
                path[0], range.0, range.1
            );
            self.invalid(path, message);
        }
    }
}

fn quoted(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| format!("{word:?}")).collect()
}

/// `"a", "b" or "c"`.
fn one_of(words: &[&str]) -> String {
    match quoted(words).as_slice() {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}
