//! A pod's spec, translated to CRI: what the runtime is asked for.
//!
//! - [`sandbox`]: a pod's sandbox. Its parts are `hostname`, `dns`, `namespaces`, `cgroup` and `resources`.
//! - [`container`]: a container, in two steps. First its [`Environment`], which needs the config maps, secrets and
//!   files that [`references`] names; then the sub paths of its mounts ([`sub_path`]), which may refer to variables
//!   and which the caller prepares on the node; then the container itself. Its parts are `mounts`, `security`,
//!   `profiles`, `resources`, `memory` and `oom`.
//! - [`SysctlAllowlist`], [`with_default_tag`]: what is checked before either.
//! - [`pod_hosts`], [`pod_log_directory`] and their like: the text and the names of files that a kubelet makes.
//!
//! What a translation must know of the node is a [`NodeContext`]. What cannot be translated is refused, in upstream's words:
//! [`SandboxRefusal`], [`ContainerRefusal`], [`ForbiddenSysctl`], [`InvalidImageName`].

mod cgroup;
mod container;
mod dns;
mod downward;
mod env_file;
mod environment;
mod event;
mod expand;
mod go_text;
mod hostname;
mod hosts;
mod image;
mod logs;
mod memory;
mod mounts;
mod namespaces;
mod node;
mod oom;
mod paths;
mod pod_references;
mod profiles;
mod refusal;
mod resources;
mod runtime_class;
mod sandbox;
mod security;
mod services;
mod signal;
mod sysctl;
#[cfg(test)]
mod testing;

pub use cgroup::{QUOTA_PERIOD, cgroup_parent, cpu_quota, cpu_shares};
pub use container::{ContainerInput, Granted, container, target};
pub use dns::{HostResolver, ResolvConfError, parse_resolv_conf};
pub use downward::{Addresses, DownwardError, field_value, map_text, resource_value};
pub use env_file::{EnvFileError, env_file_value};
pub use environment::{EnvFile, Environment, EnvironmentInput, Objects, References, Unavailable, references};
pub use event::{About, Warning};
pub use expand::expand;
pub use go_text::go_quote;
pub use hostname::{HostName, HostNameError};
pub use hosts::{host_network_hosts, pod_hosts};
pub use image::{InvalidImageName, repository, with_default_tag};
pub use logs::{
    CONTAINER_LOGS_DIRECTORY, container_log_directory, container_log_link, container_log_path,
    next_restart_count, pod_log_directory, pod_uid_of_log_directory,
};
pub use memory::may_swap;
pub use mounts::{ETC_HOSTS, MountInput, MountedVolume, sub_path};
pub use namespaces::{UserNamespaceError, UserNamespaces, network_namespace, wants_user_namespace};
pub use node::{MemoryReservation, NodeContext, NodeFacts, Settings, SwapBehavior};
pub use pod_references::pod_references;
pub use profiles::needs_app_armor;
pub use refusal::{
    ContainerRefusal, ObjectKind, RecursiveReadOnlyError, SandboxRefusal, UnsupportedGroupsPolicy,
};
pub use resources::{container_resources, overhead_resources, page_size_in_cgroups, sandbox_resources};
pub use runtime_class::{RuntimeClassError, mounts_read_only_recursively};
pub use sandbox::{Sandbox, SandboxInput, sandbox};
pub use signal::{from_runtime as signal_from_runtime, to_runtime as signal_to_runtime};
pub use sysctl::{ForbiddenSysctl, SysctlAllowlist, SysctlPatternError, normalized as normalized_sysctl};

pub(crate) use go_text::{go_json, go_json_text};
pub(crate) use paths::absolute;

use crablet_api::core::Pod;

/// A pod as messages name it: `name_namespace(uid)`.
pub fn pod_description(pod: &Pod) -> String {
    let metadata = &pod.metadata;
    format!("{}_{}({})", metadata.name, metadata.namespace, metadata.uid)
}
