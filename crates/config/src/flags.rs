//! The kubelet's flags: a table of what there is, and how a flag's text becomes a value.
//!
//! Most flags are another way to write a field of the configuration, and are laid over its tree as if they stood
//! in a last file; the rest fill [`KubeletFlags`] the same way. So one decoder checks both, and every value knows
//! which flag it came from.

mod shown;
mod table;
mod value;

use std::collections::BTreeMap;

use crablet_api::GoDuration;
use serde::Deserialize;

pub(crate) use shown::shown;
pub use table::FLAGS;
pub(crate) use value::node;

/// A flag of the kubelet.
#[derive(Debug, PartialEq, Eq)]
pub struct Flag {
    /// Its name, without the dashes in front.
    pub name: &'static str,
    /// One letter, where it has one.
    pub short: Option<char>,
    /// What it takes.
    pub kind: Kind,
    /// What it sets.
    pub target: Target,
    /// The part of the help it stands in.
    pub group: &'static str,
    /// Whether the Go kubelet calls it deprecated.
    pub deprecated: bool,
    /// What it is for.
    pub help: &'static str,
}

/// What a flag takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `--x`, `--x=true` or `--x=false`.
    Bool,
    /// As `Bool`, but `false` leaves what a file says.
    Switch,
    /// A whole number.
    Int,
    Text,
    /// A file or a directory.
    Path,
    /// An IP address.
    Ip,
    /// A duration in Go's syntax.
    Duration,
    Quantity,
    /// `a,b`, and again.
    List,
    /// `k=v,k=v`, and again.
    Map,
    /// `k=v`, again for each pair, so that a value may hold a comma.
    PairMap,
    /// `k=v,k`: the value may be left out.
    Labels,
    /// `k=true,k=false`.
    BoolMap,
    /// `k<v,k<v`.
    LessThanMap,
    /// `k:v,k:v`, several values for a key.
    Headers,
    /// `key=value:effect,…`.
    Taints,
    /// `node:type=quantity,…;…`.
    ReservedMemory,
    /// `pattern=N,…`.
    VModule,
    /// `--version`, `--version=raw`.
    Version,
}

/// What a flag sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A field of the configuration, by its path.
    Configuration(&'static [&'static str]),
    /// A field of [`KubeletFlags`], by the flag's own name.
    Flags,
    /// Nothing: it is accepted because the Go kubelet accepts it, and has no effect in it or here.
    Nothing,
}

/// What only flags can say.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct KubeletFlags {
    pub config: Box<str>,
    pub config_dir: Box<str>,
    pub kubeconfig: Box<str>,
    pub bootstrap_kubeconfig: Box<str>,
    pub hostname_override: Box<str>,
    pub node_ip: Box<str>,
    pub node_labels: BTreeMap<Box<str>, Box<str>>,
    pub cert_dir: Box<str>,
    pub root_dir: Box<str>,
    pub cloud_provider: Box<str>,
    pub lock_file: Box<str>,
    pub exit_on_lock_contention: bool,
    /// Our own: whether what the API server says is kept, and pods are started from that while it does not answer.
    pub start_remembered_pods: bool,
    /// Our own: whether the kernel's settings are left as they are.
    pub keep_kernel_settings: bool,
    pub runtime_cgroups: Box<str>,
    pub image_credential_provider_bin_dir: Box<str>,
    pub image_credential_provider_config: Box<str>,
    pub minimum_container_ttl_duration: GoDuration,
    pub maximum_dead_containers: i32,
    pub maximum_dead_containers_per_container: i32,
    pub experimental_allocatable_ignore_eviction: bool,
    pub experimental_mounter_path: Box<str>,
    pub version: Box<str>,
}

impl Flag {
    /// The flag of that name; `_` counts as `-`.
    pub fn find(name: &str) -> Option<&'static Flag> {
        let name = name.replace('_', "-");
        FLAGS.iter().find(|flag| flag.name == name)
    }
}

impl Kind {
    /// What to write for the value in the help.
    pub fn placeholder(self) -> &'static str {
        match self {
            Kind::Bool | Kind::Switch => "BOOL",
            Kind::Int => "N",
            Kind::Text => "TEXT",
            Kind::Path => "PATH",
            Kind::Ip => "IP",
            Kind::Duration => "DURATION",
            Kind::Quantity => "QUANTITY",
            Kind::List => "A,B,…",
            Kind::Map | Kind::Labels => "KEY=VALUE,…",
            Kind::PairMap => "KEY=VALUE",
            Kind::BoolMap => "KEY=BOOL,…",
            Kind::LessThanMap => "SIGNAL<AMOUNT,…",
            Kind::Headers => "NAME:VALUE,…",
            Kind::Taints => "KEY=VALUE:EFFECT,…",
            Kind::ReservedMemory => "NODE:TYPE=QUANTITY,…",
            Kind::VModule => "PATTERN=N,…",
            Kind::Version => "FORM",
        }
    }

    /// Whether the flag may stand alone, without a value, and is then `true`.
    pub fn may_stand_alone(self) -> bool {
        matches!(self, Kind::Bool | Kind::Switch | Kind::Version)
    }
}

impl Default for KubeletFlags {
    fn default() -> KubeletFlags {
        KubeletFlags {
            config: "".into(),
            config_dir: "".into(),
            kubeconfig: "".into(),
            bootstrap_kubeconfig: "".into(),
            hostname_override: "".into(),
            node_ip: "".into(),
            node_labels: BTreeMap::new(),
            cert_dir: "/var/lib/kubelet/pki".into(),
            root_dir: "/var/lib/kubelet".into(),
            cloud_provider: "".into(),
            lock_file: "".into(),
            exit_on_lock_contention: false,
            start_remembered_pods: false,
            keep_kernel_settings: false,
            runtime_cgroups: "".into(),
            image_credential_provider_bin_dir: "".into(),
            image_credential_provider_config: "".into(),
            minimum_container_ttl_duration: GoDuration::ZERO,
            maximum_dead_containers: -1,
            maximum_dead_containers_per_container: 1,
            experimental_allocatable_ignore_eviction: false,
            experimental_mounter_path: "".into(),
            version: "".into(),
        }
    }
}
