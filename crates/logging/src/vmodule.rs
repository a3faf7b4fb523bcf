//! Verbosity by source file: the value of `--vmodule`.

use std::fmt;
use std::str::FromStr;

/// Verbosity for single files or modules, as `pattern=N,…`. The first pattern that matches decides.
///
/// A pattern is matched against the name of the source file without `.rs` (for `mod.rs` the folder, for
/// `lib.rs` the crate's folder) or, if it contains `::` or `/`, against the module path. In a pattern `*` stands
/// for any text, `?` for one character and `[a-z]` for one of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VModule(Vec<Rule>);

impl VModule {
    /// Builds the setting from patterns and their verbosities. A verbosity of zero changes nothing and is left out.
    pub fn new<P: Into<String>>(rules: impl IntoIterator<Item = (P, u32)>) -> Result<VModule, VModuleError> {
        let mut accepted = Vec::new();
        for (pattern, verbosity) in rules {
            let pattern = pattern.into();
            if pattern.is_empty() || pattern.contains([',', '=']) {
                return Err(VModuleError::Pattern(pattern));
            }
            if i32::try_from(verbosity).is_err() {
                return Err(VModuleError::Verbosity { pattern, verbosity: verbosity.to_string() });
            }
            if verbosity > 0 {
                accepted.push(Rule { pattern, verbosity });
            }
        }
        Ok(VModule(accepted))
    }

    /// Whether no file has a verbosity of its own.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The patterns and their verbosities, in order.
    pub fn rules(&self) -> impl Iterator<Item = (&str, u32)> {
        self.0.iter().map(|rule| (rule.pattern.as_str(), rule.verbosity))
    }

    /// The verbosity that the first matching pattern gives to code in this file and module, or zero.
    pub fn verbosity(&self, file: &str, module_path: &str) -> u32 {
        let stem = stem(file);
        self.0.iter().find(|rule| rule.matches(stem, module_path)).map_or(0, |rule| rule.verbosity)
    }
}

impl FromStr for VModule {
    type Err = VModuleError;

    fn from_str(text: &str) -> Result<VModule, VModuleError> {
        let mut rules = Vec::new();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (pattern, verbosity) =
                item.split_once('=').ok_or_else(|| VModuleError::Item(item.to_owned()))?;
            let number = verbosity.parse::<u32>().map_err(|_| VModuleError::Verbosity {
                pattern: pattern.to_owned(),
                verbosity: verbosity.to_owned(),
            })?;
            rules.push((pattern, number));
        }
        VModule::new(rules)
    }
}

impl fmt::Display for VModule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, rule) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(formatter, "{separator}{}={}", rule.pattern, rule.verbosity)?;
        }
        Ok(())
    }
}

/// Why a `--vmodule` value was refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum VModuleError {
    /// An item is not of the form `pattern=N`.
    #[error("vmodule item {0:?}: expected pattern=N, for example worker=4")]
    Item(String),
    /// A pattern is empty or holds one of the characters that separate items.
    #[error("vmodule pattern {0:?}: must not be empty nor contain a comma or an equals sign")]
    Pattern(String),
    /// A verbosity is not a number that fits.
    #[error(
        "vmodule pattern {pattern:?}: verbosity {verbosity:?} is not a whole number from 0 to {}",
        i32::MAX
    )]
    Verbosity {
        /// The pattern before the equals sign.
        pattern: String,
        /// What stood after it.
        verbosity: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    pattern: String,
    verbosity: u32,
}

impl Rule {
    fn matches(&self, stem: &str, module_path: &str) -> bool {
        if self.pattern.contains('/') {
            glob(&self.pattern.replace('/', "::"), module_path)
        } else if self.pattern.contains("::") {
            glob(&self.pattern, module_path)
        } else {
            glob(&self.pattern, stem)
        }
    }
}

/// The name that a file goes by: `worker` for `src/worker.rs` and for `src/worker/mod.rs`, `agent` for
/// `agent/src/lib.rs`.
fn stem(file: &str) -> &str {
    let mut parts = file.rsplit('/');
    let name = parts.next().unwrap_or(file);
    let name = name.strip_suffix(".rs").unwrap_or(name);
    match name {
        "mod" => parts.next().unwrap_or(name),
        "lib" => parts.find(|part| *part != "src").unwrap_or(name),
        _ => name,
    }
}

fn glob(pattern: &str, text: &str) -> bool {
    let mut rest = pattern.chars();
    let Some(first) = rest.next() else { return text.is_empty() };
    if first == '*' {
        return text
            .char_indices()
            .map(|(at, _)| at)
            .chain([text.len()])
            .any(|at| glob(rest.as_str(), &text[at..]));
    }
    let mut remaining = text.chars();
    let Some(character) = remaining.next() else { return false };
    match first {
        '?' => glob(rest.as_str(), remaining.as_str()),
        '[' => match rest.as_str().split_once(']') {
            Some((set, after)) => in_set(set, character) && glob(after, remaining.as_str()),
            None => false,
        },
        _ => first == character && glob(rest.as_str(), remaining.as_str()),
    }
}

fn in_set(set: &str, character: char) -> bool {
    let (negated, set) = set.strip_prefix('^').map_or((false, set), |set| (true, set));
    let mut characters = set.chars().peekable();
    let mut found = false;
    while let Some(low) = characters.next() {
        let mut high = low;
        if characters.next_if_eq(&'-').is_some() {
            high = characters.next().unwrap_or(low);
        }
        found |= (low..=high).contains(&character);
    }
    found != negated
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verbosity(vmodule: &str, file: &str, module_path: &str) -> u32 {
        vmodule.parse::<VModule>().unwrap().verbosity(file, module_path)
    }

    #[test]
    fn a_pattern_matches_the_name_of_the_file() {
        for (pattern, file, matches) in [
            ("worker=5", "crates/agent/src/worker.rs", true),
            ("worker=5", "crates/agent/src/pod_worker.rs", false),
            ("*worker=5", "crates/agent/src/pod_worker.rs", true),
            ("wor*=5", "crates/agent/src/worker/mod.rs", true),
            ("w?rker=5", "worker.rs", true),
            ("w?rker=5", "wrker.rs", false),
            ("*=5", "crates/agent/src/anything.rs", true),
            ("w*k*r=5", "worker.rs", true),
            ("agent=5", "crates/agent/src/lib.rs", true),
            ("src=5", "crates/agent/src/lib.rs", false),
            ("main=5", "crates/crablet/src/main.rs", true),
            ("[a-m]orker=5", "worker.rs", false),
            ("[^a-m]orker=5", "worker.rs", true),
            ("[wx]orker=5", "worker.rs", true),
            ("[w=5", "w.rs", false),
        ] {
            assert_eq!(verbosity(pattern, file, "m") == 5, matches, "{pattern} against {file}");
        }
    }

    #[test]
    fn a_pattern_with_a_path_matches_the_module() {
        for (pattern, module_path, matches) in [
            ("crablet_agent::worker=5", "crablet_agent::worker", true),
            ("crablet_agent::*=5", "crablet_agent::worker::phase", true),
            ("crablet_agent/*=5", "crablet_agent::worker", true),
            ("h2::*=5", "crablet_agent::worker", false),
        ] {
            assert_eq!(
                verbosity(pattern, "src/x.rs", module_path) == 5,
                matches,
                "{pattern} on {module_path}"
            );
        }
    }

    #[test]
    fn the_first_match_decides_and_zero_counts_for_nothing() {
        assert_eq!(verbosity("wor*=2,worker=9", "worker.rs", ""), 2);
        assert_eq!(verbosity("worker=0,wor*=3", "worker.rs", ""), 3);
        assert_eq!(verbosity("", "worker.rs", ""), 0);
    }

    #[test]
    fn it_prints_as_it_is_written() {
        let parsed: VModule = "worker=4, gc*=6,,off=0".parse().unwrap();
        assert_eq!(parsed.to_string(), "worker=4,gc*=6");
        assert_eq!(parsed.rules().collect::<Vec<_>>(), [("worker", 4), ("gc*", 6)]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, message) in [
            ("worker", "vmodule item \"worker\": expected pattern=N, for example worker=4"),
            ("=4", "vmodule pattern \"\": must not be empty nor contain a comma or an equals sign"),
            (
                "worker=-1",
                "vmodule pattern \"worker\": verbosity \"-1\" is not a whole number from 0 to 2147483647",
            ),
            (
                "worker=4=5",
                "vmodule pattern \"worker\": verbosity \"4=5\" is not a whole number from 0 to 2147483647",
            ),
            (
                "a=4294967295",
                "vmodule pattern \"a\": verbosity \"4294967295\" is not a whole number from 0 to 2147483647",
            ),
        ] {
            assert_eq!(text.parse::<VModule>().unwrap_err().to_string(), message);
        }
    }
}
