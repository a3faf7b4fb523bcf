//! From arguments to what is wanted: the kubelet's flags in pflag's syntax, and our subcommands.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command};
use crablet_config::{FLAGS, Flag, GivenFlag};

use crate::apiserver_command::{self, ApiServer};
use crate::apply_command::{self, Apply};
use crate::csr_command::{self, Requests};
use crate::delete_command::{self, Delete};
use crate::exit;
use crate::explain_command::{self, Explain};
use crate::logs_command::{self, Logs};
use crate::pods_command::{self, Pods};
use crate::solo_command::{self, Solo};
use crate::token_command::{self, Tokens};
use crate::version;

/// What the caller wants.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// The agent.
    Run(GivenFlags),
    /// The configuration in force, printed.
    Config {
        flags: GivenFlags,
        /// Whether a doubt is a failure.
        strict: bool,
    },
    /// The pods of a running agent.
    Pods(Pods),
    /// Why they are as they are.
    Explain(Explain),
    /// Pods for a running agent.
    Apply(Apply),
    /// Pods that are to go.
    Delete(Delete),
    /// What a container has written.
    Logs(Logs),
    ApiServer(ApiServer),
    Solo(Solo),
    Tokens(Tokens),
    /// Requests for certificates.
    Requests(Requests),
    /// A change of a running agent's log.
    Log(LogChange),
    /// A text to print.
    Text(String),
    /// Nothing that makes sense: this is why.
    Refused(String),
}

/// Flags as they were given.
#[derive(Debug, Default)]
pub(crate) struct GivenFlags(Vec<(&'static Flag, String)>);

/// A change of a running agent's log, or none: then its settings are shown.
#[derive(Debug)]
pub(crate) struct LogChange {
    /// The root directory of the agent.
    pub(crate) root_dir: PathBuf,
    /// Names of flags and their new values.
    pub(crate) settings: Vec<(&'static str, String)>,
}

impl GivenFlags {
    /// Flags that nobody typed.
    pub(crate) fn new(flags: Vec<(&'static Flag, String)>) -> GivenFlags {
        GivenFlags(flags)
    }

    /// As the configuration wants them.
    pub(crate) fn as_given(&self) -> Vec<GivenFlag<'_>> {
        self.0.iter().map(|(flag, text)| (*flag, text.as_str())).collect()
    }
}

/// Reads the arguments, the program's name first.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Wanted {
    let arguments = dashes_for_underscores(arguments.into_iter().collect());
    let name = program_name(arguments.first());
    match command(name).try_get_matches_from(arguments) {
        Ok(matches) => wanted(&matches),
        Err(error) => match error.use_stderr() {
            false => Wanted::Text(error.render().to_string()),
            true => Wanted::Refused(format!("{} (see --help)", refusal(&error))),
        },
    }
}

/// Called as `kubelet` we are the kubelet, to systemd and kubeadm and in the help.
fn program_name(first: Option<&OsString>) -> &'static str {
    let file_name = first.and_then(|path| std::path::Path::new(path).file_name());
    if file_name.is_some_and(|name| name == "kubelet") { "kubelet" } else { "crablet" }
}

/// pflag takes `_` for `-` in the names of flags.
fn dashes_for_underscores(arguments: Vec<OsString>) -> Vec<OsString> {
    let mut plain = false;
    let normalize = |argument: OsString| {
        let Some(text) = argument.to_str() else { return argument };
        plain |= text == "--";
        match text.strip_prefix("--") {
            Some(rest) if !plain => {
                let (name, value) = rest.find('=').map_or((rest, ""), |end| rest.split_at(end));
                format!("--{}{value}", name.replace('_', "-")).into()
            }
            Some(_) | None => argument,
        }
    };
    arguments.into_iter().map(normalize).collect()
}

/// Why a command line is refused, and what would be accepted.
fn refusal(error: &clap::Error) -> String {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => texts.first().cloned(),
        _ => None,
    };
    // clap names a flag with its value, as `--max-pods <N>`.
    let flag = context(ContextKind::InvalidArg)
        .map(|flag| flag.split([' ', '[']).next().unwrap_or_default().to_owned());
    match (error.kind(), flag) {
        (ErrorKind::UnknownArgument, Some(flag)) if flag.starts_with('-') => {
            match context(ContextKind::SuggestedArg) {
                Some(similar) => format!("{flag}: unknown flag; did you mean {similar}?"),
                None => format!("{flag}: unknown flag"),
            }
        }
        (ErrorKind::UnknownArgument, Some(argument)) => unexpected(&argument),
        (ErrorKind::ArgumentConflict, _) => {
            unexpected(&context(ContextKind::InvalidSubcommand).unwrap_or_default())
        }
        (ErrorKind::InvalidSubcommand, _) => {
            let command = context(ContextKind::InvalidSubcommand).unwrap_or_default();
            match context(ContextKind::SuggestedSubcommand) {
                Some(similar) => format!("unknown command {command:?}; did you mean {similar:?}?"),
                None => format!("unknown command {command:?}"),
            }
        }
        (ErrorKind::InvalidValue, Some(flag)) => format!("{flag}: a value is required"),
        _ => {
            let text = error.render().to_string();
            let text = text.trim_start_matches("error: ").split("\n\n").next().unwrap_or_default().to_owned();
            text.replace('\n', " ")
        }
    }
}

fn unexpected(argument: &str) -> String {
    match argument {
        "true" | "false" => format!(
            "unexpected argument {argument:?}; a flag that may stand alone takes its value after an equals sign"
        ),
        "apiserver" | "apply" | "config" | "csr" | "delete" | "explain" | "log" | "logs" | "pods"
        | "solo" | "token" | "version" => {
            format!("unexpected argument {argument:?}; a command stands before its flags")
        }
        _ => format!("unexpected argument {argument:?}"),
    }
}

fn wanted(matches: &ArgMatches) -> Wanted {
    match matches.subcommand() {
        None => match matches.get_many::<String>("version").and_then(Iterator::last).map(String::as_str) {
            Some("raw") => Wanted::Text(version::raw()),
            Some("1" | "t" | "T" | "TRUE" | "true" | "True") => Wanted::Text(version::plain()),
            // As the Go kubelet does with `--version=false`; a value that makes no sense is refused with the others.
            Some(_) | None => Wanted::Run(given(matches)),
        },
        Some(("config", matches)) => {
            Wanted::Config { flags: given(matches), strict: matches.get_flag("strict") }
        }
        Some(("log", matches)) => Wanted::Log(log_change(matches)),
        Some(("apply", matches)) => Wanted::Apply(apply_command::read(matches)),
        Some(("pods", matches)) => or_refused(pods_command::read(matches), Wanted::Pods),
        Some(("explain", matches)) => or_refused(explain_command::read(matches), Wanted::Explain),
        Some(("delete", matches)) => or_refused(delete_command::read(matches), Wanted::Delete),
        Some(("logs", matches)) => or_refused(logs_command::read(matches), Wanted::Logs),
        Some(("apiserver", matches)) => or_refused(apiserver_command::read(matches), Wanted::ApiServer),
        Some(("solo", matches)) => or_refused(solo_command::read(matches), Wanted::Solo),
        Some(("token", matches)) => or_refused(token_command::read(matches), Wanted::Tokens),
        Some(("csr", matches)) => or_refused(csr_command::read(matches), Wanted::Requests),
        Some(("version", _)) => Wanted::Text(version::raw()),
        Some((other, _)) => Wanted::Refused(format!("unknown command {other:?}")),
    }
}

fn or_refused<T>(read: Result<T, String>, wanted: impl FnOnce(T) -> Wanted) -> Wanted {
    match read {
        Ok(read) => wanted(read),
        Err(reason) => Wanted::Refused(format!("{reason} (see --help)")),
    }
}

/// Every flag that was given, each time, in the order of the command line.
fn given(matches: &ArgMatches) -> GivenFlags {
    let mut flags = Vec::new();
    for flag in FLAGS {
        let (Ok(Some(texts)), Some(places)) =
            (matches.try_get_many::<String>(flag.name), matches.indices_of(flag.name))
        else {
            continue;
        };
        flags.extend(places.zip(texts).map(|(place, text)| (place, (flag, text.clone()))));
    }
    flags.sort_by_key(|(place, _)| *place);
    GivenFlags(flags.into_iter().map(|(_, flag)| flag).collect())
}

fn log_change(matches: &ArgMatches) -> LogChange {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let settings =
        ["v", "vmodule", "logging-format"].into_iter().filter_map(|name| Some((name, text(name)?)));
    LogChange { root_dir: read_root_dir(matches), settings: settings.collect() }
}

fn command(name: &'static str) -> Command {
    let about = "The Kubernetes node agent: runs the pods that a cluster, a directory or a URL gives it.";
    with_kubelet_flags(Command::new(name))
        .about(about)
        .after_help(exit::CODES)
        .disable_version_flag(true)
        .args_conflicts_with_subcommands(true)
        .subcommand(solo_command::subcommand())
        .subcommand(pods_command::subcommand())
        .subcommand(explain_command::subcommand())
        .subcommand(logs_command::subcommand())
        .subcommand(apply_command::subcommand())
        .subcommand(delete_command::subcommand())
        .subcommand(apiserver_command::subcommand())
        .subcommand(token_command::subcommand())
        .subcommand(csr_command::subcommand())
        .subcommand(config_subcommand())
        .subcommand(log_subcommand())
        .subcommand(Command::new("version").about("Print the version"))
        .subcommand_help_heading("Commands")
        .max_term_width(120)
}

fn config_subcommand() -> Command {
    with_kubelet_flags(Command::new("config"))
        .about("Print the configuration in force, and where each value came from")
        .long_about(
            "Print the configuration that the agent would run with, as YAML that can be used as a --config file. \
             Behind each value that is not a default stands where it was set; behind each default that differs from \
             the Go kubelet's, how. Takes the agent's own flags. Header values of staticPodURLHeader are printed as \
             they are.",
        )
        .arg(
            Arg::new("strict")
                .long("strict")
                .action(ArgAction::SetTrue)
                .help("Fail on anything doubtful: unknown or duplicated fields, deprecated flags and gates"),
        )
}

fn log_subcommand() -> Command {
    let settings =
        ["v", "vmodule", "logging-format"].into_iter().filter_map(|name| Flag::find(name).map(argument));
    Command::new("log")
        .about("Change how a running agent logs, or show how it does")
        .args(settings.map(|setting| setting.help_heading(None::<&str>)))
        .args(root_dir())
}

/// The argument of a command that asks a running agent: which one.
pub(crate) fn root_dir() -> Option<Arg> {
    let root_dir = Flag::find("root-dir").map(argument)?;
    let help = "The root directory of the agent, where its socket is";
    Some(root_dir.help(help).help_heading(None::<&str>).default_value("/var/lib/kubelet"))
}

/// What was given for [`root_dir`].
pub(crate) fn read_root_dir(matches: &ArgMatches) -> PathBuf {
    matches.get_one::<String>("root-dir").map(PathBuf::from).unwrap_or_default()
}

/// The argument of a command that looks for pods: where.
pub(crate) fn namespace() -> Arg {
    Arg::new("namespace")
        .short('n')
        .long("namespace")
        .value_name("NAMESPACE")
        .help("Pods of that namespace alone")
}

fn with_kubelet_flags(command: Command) -> Command {
    command.args(FLAGS.iter().map(argument))
}

fn argument(flag: &'static Flag) -> Arg {
    let deprecated =
        if flag.deprecated && flag.group != "Accepted without effect" { " (deprecated)" } else { "" };
    let argument = Arg::new(flag.name)
        .long(flag.name)
        .action(ArgAction::Append)
        .value_name(flag.kind.placeholder())
        .help(format!("{}{deprecated}", flag.help))
        .help_heading(flag.group)
        // `--oom-score-adj -999`, and nothing is an option's value unless pflag would take it for one.
        .allow_hyphen_values(true);
    let argument = match flag.short {
        Some(short) => argument.short(short),
        None => argument,
    };
    match flag.kind.may_stand_alone() {
        true => argument.num_args(0..=1).require_equals(true).default_missing_value("true"),
        false => argument.num_args(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a command line comes to, in words.
    fn read(arguments: &[&str]) -> String {
        match parse(std::iter::once("crablet").chain(arguments.iter().copied()).map(OsString::from)) {
            Wanted::Run(flags) => words("run", &flags),
            Wanted::Config { flags, strict } => {
                words(if strict { "strict config" } else { "config" }, &flags)
            }
            Wanted::Log(change) => format!("log {} {:?}", change.root_dir.display(), change.settings),
            Wanted::Pods(wanted) => format!("{wanted:?}"),
            Wanted::Explain(wanted) => format!("{wanted:?}"),
            Wanted::Apply(wanted) => format!("{wanted:?}"),
            Wanted::Delete(wanted) => format!("{wanted:?}"),
            Wanted::Logs(wanted) => format!("{wanted:?}"),
            Wanted::ApiServer(wanted) => format!("{wanted:?}"),
            Wanted::Solo(wanted) => format!("{wanted:?}"),
            Wanted::Tokens(wanted) => format!("{wanted:?}"),
            Wanted::Requests(wanted) => format!("{wanted:?}"),
            Wanted::Text(text) => text,
            Wanted::Refused(reason) => format!("refused: {reason}"),
        }
    }

    fn words(what: &str, flags: &GivenFlags) -> String {
        let flags = flags.0.iter().map(|(flag, text)| format!(" {}={text}", flag.name));
        format!("{what}{}", flags.collect::<String>())
    }

    #[test]
    fn the_syntax_is_pflags() {
        for (arguments, expected) in [
            (&[][..], "run"),
            (&["--max-pods=5", "--max-pods", "6"], "run max-pods=5 max-pods=6"),
            (&["--max_pods=5", "--feature_gates", "A_B=true"], "run max-pods=5 feature-gates=A_B=true"),
            (&["--fail-swap-on", "--register-node=false"], "run fail-swap-on=true register-node=false"),
            (&["-v", "4", "--v=5", "-v=6", "-v7"], "run v=4 v=5 v=6 v=7"),
            (&["--oom-score-adj", "-999"], "run oom-score-adj=-999"),
            (&["--node-labels", "a=b,c=d", "--node-labels=e=f"], "run node-labels=a=b,c=d node-labels=e=f"),
            (&["--cluster-domain="], "run cluster-domain="),
            (&["--hostname-override", "--v"], "run hostname-override=--v"),
            (&["config", "--strict", "--max-pods=5"], "strict config max-pods=5"),
            (&["log", "--v=4"], "log /var/lib/kubelet [(\"v\", \"4\")]"),
            (&["--version"], "Kubernetes v1.36.4\n"),
            (&["--version=true"], "Kubernetes v1.36.4\n"),
            (&["--version=false"], "run version=false"),
        ] {
            assert_eq!(read(arguments), expected, "{arguments:?}");
        }
    }

    #[test]
    fn the_help_names_every_flag_once_in_its_group() {
        let help = read(&["--help"]);
        for flag in FLAGS {
            let name = format!("--{}", flag.name);
            let is_its_line = |line: &&str| {
                line.trim_start().trim_start_matches("-v, ").split([' ', '[']).next() == Some(&name)
            };
            assert_eq!(help.lines().filter(is_its_line).count(), 1, "{name}");
            assert!(help.contains(&format!("{}:\n", flag.group)), "{}", flag.group);
        }
        assert!(help.contains("Exit codes:"), "{help}");
    }
}
