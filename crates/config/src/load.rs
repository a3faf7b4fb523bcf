//! From files and flags to the configuration in force.
//!
//! The order is Kubernetes': the `--config` file, then each `*.conf` of `--config-dir` laid over it, then the flags;
//! then it is decoded, completed with defaults, and checked. Everything that is wrong is reported at once, with the
//! place it was written at.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use crablet_api::document::{self, DecodeError, Limits, ParseError, Place, Problem, Tree, Value};
use crablet_api::features::{FeatureGates, Gate, Stage};

use crate::acted_on;
use crate::defaults;
use crate::files;
use crate::flags::{self, Flag, Kind, KubeletFlags, Target};
use crate::gates::{self, GateError};
use crate::kubelet_configuration::{API_VERSION, KIND, KubeletConfiguration};
use crate::validate::{self, Invalid};

/// The configuration in force, and what it was made of.
#[derive(Debug, Clone)]
pub struct Effective {
    pub configuration: KubeletConfiguration,
    /// What only flags can say.
    pub flags: KubeletFlags,
    pub features: FeatureGates,
    /// What is doubtful, though it does not stop the agent.
    pub warnings: Vec<String>,
    /// The fields and flags that are set and that the agent does not act on yet.
    pub not_acted_on: Vec<String>,
    /// Every flag with its value, as given or by default, in the order of their names.
    pub shown_flags: Vec<(&'static str, Cow<'static, str>)>,
    /// What somebody set, and where.
    pub(crate) tree: Tree,
}

/// A flag as it was given: once for each time, in order.
pub type GivenFlag<'a> = (&'static Flag, &'a str);

/// Everything that is wrong with files and flags.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.join("\n"))]
pub struct ConfigError {
    /// One line for each problem.
    pub problems: Vec<String>,
}

/// Puts the configuration together.
pub fn load(given: &[GivenFlag<'_>]) -> Result<Effective, ConfigError> {
    let mut loader = Loader { problems: Vec::new(), warnings: Vec::new() };
    let given = group(given);
    loader.deprecated(&given);
    let flags_tree = loader.own_flags(&given);
    let flags: KubeletFlags = loader.decode(&flags_tree).unwrap_or_default();

    let mut tree = loader.files(&flags);
    defaults::drop_zeros(&mut tree);
    loader.lay_flags_over(&mut tree, &given);
    loader.stop_on_problems()?;

    let mut configuration: KubeletConfiguration = loader.decode(&tree).unwrap_or_default();
    loader.stop_on_problems()?;
    let (features, gate_errors) = gates::from_settings(&configuration.feature_gates);
    loader.gates(&gate_errors, &configuration, &tree);
    defaults::complete(&mut configuration, &tree, &features);
    loader.invalid(validate::flags(&flags), &flags_tree);
    loader.invalid(validate::configuration(&configuration, &features), &tree);
    loader.doubts(&configuration, &tree);
    loader.stop_on_problems()?;

    let not_acted_on = acted_on::missing(&tree, &features, &flags_tree);
    let shown_flags = flags::shown(&given);
    let warnings = loader.warnings;
    Ok(Effective { configuration, flags, features, warnings, not_acted_on, shown_flags, tree })
}

struct Loader {
    problems: Vec<String>,
    warnings: Vec<String>,
}

type Grouped<'a> = Vec<(&'static Flag, Vec<&'a str>)>;

/// The texts of each flag, by flag, in the order of first mention.
fn group<'a>(given: &[GivenFlag<'a>]) -> Grouped<'a> {
    let mut grouped: Grouped<'a> = Vec::new();
    for (flag, text) in given {
        match grouped.iter_mut().find(|(known, _)| known.name == flag.name) {
            Some((_, texts)) => texts.push(text),
            None => grouped.push((flag, vec![text])),
        }
    }
    grouped
}

impl Loader {
    fn stop_on_problems(&mut self) -> Result<(), ConfigError> {
        match std::mem::take(&mut self.problems) {
            problems if problems.is_empty() => Ok(()),
            problems => Err(ConfigError { problems }),
        }
    }

    fn deprecated(&mut self, given: &Grouped<'_>) {
        for (flag, _) in given.iter().filter(|(flag, _)| flag.deprecated) {
            self.warnings.push(match flag.target {
                Target::Configuration(path) => {
                    format!(
                        "--{}: is deprecated; set {} in the file of --config instead",
                        flag.name,
                        path.join(".")
                    )
                }
                Target::Flags => format!("--{}: is deprecated", flag.name),
                Target::Nothing => format!("--{}: is deprecated and has no effect", flag.name),
            });
        }
    }

    fn own_flags(&mut self, given: &Grouped<'_>) -> Tree {
        let mut tree = empty("flags");
        for (flag, texts) in given {
            let Target::Flags = flag.target else { continue };
            match flags::node(flag, texts, None) {
                Ok(Some(node)) => tree.set(&[flag.name], node),
                Ok(None) => {}
                Err(problem) => self.problems.push(line(&problem)),
            }
        }
        tree
    }

    fn lay_flags_over(&mut self, tree: &mut Tree, given: &Grouped<'_>) {
        for (flag, texts) in given {
            let path = match flag.target {
                Target::Configuration(path) => path,
                Target::Flags => continue,
                // It has no effect, but a value of the wrong kind is refused all the same.
                Target::Nothing => &[],
            };
            match flags::node(flag, texts, tree.at(path)) {
                Ok(Some(_)) if path.is_empty() => {}
                // Gates of the file stay unless the flag names them; any other map is replaced as a whole.
                Ok(Some(node)) if flag.kind == Kind::BoolMap => tree.set(path, node),
                Ok(Some(node)) => {
                    tree.set(path, Tree { value: Value::Null, place: node.place.clone() });
                    tree.set(path, node);
                }
                Ok(None) => {}
                Err(problem) => self.problems.push(line(&problem)),
            }
        }
    }

    fn files(&mut self, flags: &KubeletFlags) -> Tree {
        let mut tree = empty(defaults::DEFAULT_SOURCE);
        if !flags.config.is_empty()
            && let Some(mut file) = self.file(Path::new(flags.config.as_ref()))
        {
            defaults::drop_zeros(&mut file);
            defaults::complete_file(&mut file);
            resolve_relative_paths(&mut file, Path::new(flags.config.as_ref()));
            tree = file;
        }
        if !flags.config_dir.is_empty() {
            match files::drop_ins(Path::new(flags.config_dir.as_ref())) {
                Ok(paths) => {
                    paths.iter().filter_map(|path| self.file(path)).for_each(|file| tree.merge(file))
                }
                Err(problem) => self.problems.push(problem),
            }
        }
        tree
    }

    /// Reads one file, and checks that it is a kubelet's configuration and that every field can hold its value.
    fn file(&mut self, path: &Path) -> Option<Tree> {
        let name = path.display().to_string();
        let parsed = files::read(path, Limits::MANIFEST.bytes)
            .map_err(|reason| format!("{name}{reason}"))
            .and_then(|text| document::parse(&name, &text, Limits::MANIFEST).map_err(parse_problem));
        match parsed {
            Ok((node, doubts)) => {
                self.warnings.extend(doubts.iter().map(Problem::to_string));
                let right_kind = self.kind(&node);
                // Decoded here for its own sake: a mistake belongs to this file, whatever is laid over it later.
                let decoded = right_kind && self.decode::<KubeletConfiguration>(&node).is_some();
                decoded.then_some(node)
            }
            Err(problem) => {
                self.problems.push(problem);
                None
            }
        }
    }

    fn kind(&mut self, node: &Tree) -> bool {
        if !matches!(node.value, Value::Map(_)) {
            let found = node.value.kind();
            self.problems
                .push(format!("{}: expected a mapping with apiVersion and kind, found {found}", node.place));
            return false;
        }
        let mut right = true;
        for (field, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
            match node.get(field) {
                Some(value) if value.as_text() == Some(expected) => continue,
                Some(value) => {
                    let found =
                        value.as_text().map_or_else(|| value.value.kind().into(), |text| format!("{text:?}"));
                    self.problems
                        .push(format!("{}: {field}: expected {expected:?}, found {found}", value.place));
                }
                None => self
                    .problems
                    .push(format!("{}: {field}: is missing; expected {expected:?}", node.place.source)),
            }
            right = false;
        }
        right
    }

    /// Decodes a tree, or says of every value that does not fit its field.
    fn decode<T: serde::de::DeserializeOwned>(&mut self, tree: &Tree) -> Option<T> {
        match document::decode(tree) {
            Ok((value, unknown)) => {
                let said: BTreeSet<String> = self.warnings.iter().cloned().collect();
                let warnings = unknown.iter().map(Problem::to_string);
                self.warnings.extend(warnings.filter(|warning| !said.contains(warning)));
                Some(value)
            }
            Err(first) => {
                let mut rest = tree.clone();
                let mut next = Some(first);
                let mut found = 0;
                // The decoder stops at the first mistake: it is taken out, and the rest decoded for the next.
                while let Some(DecodeError(problem)) = next {
                    if found == MOST_MISTAKES {
                        self.problems.push(format!("{}: has more mistakes than these", problem.place.source));
                        break;
                    }
                    found += 1;
                    self.problems.push(line(&problem));
                    let taken_out = take_out(&mut rest, &document::Path::Root, &problem.path);
                    next = taken_out.then(|| document::decode::<T>(&rest).err()).flatten();
                }
                None
            }
        }
    }

    fn gates(&mut self, errors: &[GateError], configuration: &KubeletConfiguration, tree: &Tree) {
        let place = |name: &str| {
            tree.at(&["featureGates", name]).map(|node| format!("{}: featureGates.{name}: ", node.place))
        };
        for error in errors {
            let place = error.gate_names().into_iter().find_map(place);
            self.problems.push(place.unwrap_or_default() + &error.to_string());
        }
        for name in configuration.feature_gates.keys() {
            let stage = match Gate::from_name(name).map(Gate::stage) {
                Some(Stage::Ga) => "GA",
                Some(Stage::Deprecated) => "deprecated",
                Some(Stage::Alpha | Stage::Beta) | None => continue,
            };
            let warning =
                format!("setting {stage} feature gate {name}. It will be removed in a future release");
            self.warnings.push(place(name).unwrap_or_default() + &warning);
        }
    }

    fn invalid(&mut self, invalid: Vec<Invalid>, tree: &Tree) {
        self.problems.extend(invalid.into_iter().map(|invalid| {
            let place = [Some(invalid.path), invalid.or]
                .into_iter()
                .flatten()
                .filter_map(|path| Some(&tree.at(path)?.place))
                .find(|place| place.source.as_ref() != defaults::DEFAULT_SOURCE);
            match place {
                Some(place) => format!("{place}: {}", invalid.message),
                None => invalid.message,
            }
        }));
    }

    /// What the Go kubelet accepts and cannot use.
    fn doubts(&mut self, configuration: &KubeletConfiguration, tree: &Tree) {
        for address in &configuration.cluster_dns {
            if address.parse::<std::net::IpAddr>().is_err() {
                let place =
                    tree.get("clusterDNS").map_or_else(String::new, |node| format!("{}: ", node.place));
                self.warnings
                    .push(format!("{place}clusterDNS: {address:?} is not an IP address and is not used"));
            }
        }
        let thresholds = [
            ("evictionHard", configuration.eviction_hard.keys().collect::<Vec<_>>()),
            ("evictionSoft", configuration.eviction_soft.keys().collect()),
        ];
        for (field, signals) in thresholds {
            for signal in signals.into_iter().filter(|signal| signal.as_str().starts_with("containerfs.")) {
                let place = tree.get(field).map_or_else(String::new, |node| format!("{}: ", node.place));
                let signal = signal.as_str();
                self.warnings.push(format!(
                    "{place}{field}: {signal} is not used; what containers write has the thresholds of the file system that it is on"
                ));
            }
        }
        let (kubelet, reserved) = (&configuration.kubelet_cgroups, &configuration.kube_reserved_cgroup);
        if !kubelet.is_empty() && !reserved.is_empty() && !kubelet.starts_with(reserved.as_ref()) {
            self.warnings
                .push("unsupported configuration: kubeletCgroups is not within kubeReservedCgroup".into());
        }
    }
}

fn empty(source: &str) -> Tree {
    Tree { value: Value::Map(BTreeMap::new()), place: Place { source: Arc::from(source), line: 0 } }
}

fn parse_problem(error: ParseError) -> String {
    match error {
        ParseError::Empty(_) => format!("{error}; expected a mapping with apiVersion and kind"),
        other => other.to_string(),
    }
}

/// How many mistakes of one tree are listed: each is found by decoding the rest once more.
const MOST_MISTAKES: usize = 100;

/// What is accepted where the API's types refuse a text in upstream's words, which do not say it.
const ACCEPTED: &[(&str, &str)] = &[
    ("time: ", "a duration such as \"10s\" or \"1h30m\""),
    ("quantities must match ", "a quantity such as \"500m\" or \"10Mi\""),
    ("unable to parse ", "a quantity such as \"500m\" or \"10Mi\""),
    ("strconv.Atoi: ", "a list of CPUs such as \"0-3,8\""),
    ("invalid CIDR address: ", "a range such as \"10.0.0.0/16\""),
    ("invalid IP address syntax", "an address such as \"10.0.0.1\" or \"fd00::1\""),
    ("failed to parse IP: ", "an address such as \"10.0.0.1\" or \"fd00::1\""),
    ("invalid taint spec: ", "key=value:effect or key:effect"),
    ("invalid taint effect: ", "NoSchedule, PreferNoSchedule or NoExecute"),
];

/// Takes out the field that a path names, or the innermost one around it, and says whether there was one.
fn take_out(node: &mut Tree, path: &document::Path<'_>, target: &str) -> bool {
    let leads_there = |path: &document::Path<'_>| {
        target
            .strip_prefix(&path.to_string())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    match &mut node.value {
        Value::Map(fields) => {
            let on_the_way =
                fields.keys().find(|name| leads_there(&document::Path::Field(path, name))).cloned();
            let Some(name) = on_the_way else { return false };
            let inner = fields
                .get_mut(&name)
                .is_some_and(|field| take_out(field, &document::Path::Field(path, &name), target));
            inner || fields.remove(&name).is_some()
        }
        Value::List(items) => items.iter_mut().enumerate().any(|(index, item)| {
            let path = document::Path::Index(path, index);
            leads_there(&path) && take_out(item, &path, target)
        }),
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_) => false,
    }
}

/// The problem as a line, with what is accepted instead.
fn line(problem: &Problem) -> String {
    match ACCEPTED.iter().find(|(words, _)| problem.message.starts_with(words)) {
        Some((_, accepted)) => format!("{problem}; expected {accepted}"),
        None => problem.to_string(),
    }
}

/// The fields that hold paths, which count from the directory of the file they stand in.
const PATHS: &[&[&str]] = &[
    &["staticPodPath"],
    &["authentication", "x509", "clientCAFile"],
    &["tlsCertFile"],
    &["tlsPrivateKeyFile"],
    &["resolvConf"],
    &["volumePluginDir"],
    &["podLogsDir"],
];

fn resolve_relative_paths(tree: &mut Tree, file: &Path) {
    let directory = std::path::absolute(file).ok().and_then(|file| file.parent().map(Path::to_owned));
    let Some(directory) = directory else { return };
    for path in PATHS {
        let Some(node) = tree.at(path) else { continue };
        let Some(text) = node.as_text().filter(|text| !text.is_empty() && !text.starts_with('/')) else {
            continue;
        };
        let value = Value::Text(directory.join(text).to_string_lossy().into());
        let place = node.place.clone();
        tree.set(path, Tree { value, place });
    }
}
