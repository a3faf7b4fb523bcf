//! The files that a private containerd reads.

use std::fs;

use anyhow::{Context, Result};
use serde_json::json;

use crate::image::PAUSE;
use crate::programs::Programs;
use crate::run::Names;

const CAP_SYS_RESOURCE: u32 = 24;

/// Writes containerd's own configuration and that of its CNI network.
pub(crate) fn write(names: &Names, programs: &Programs) -> Result<()> {
    let restrict_oom_score_adj = !has_capability(CAP_SYS_RESOURCE)?;
    let text = if programs.version < (2, 0) {
        version_2(names, programs, restrict_oom_score_adj)
    } else {
        version_3(names, programs, restrict_oom_score_adj)
    };
    fs::write(names.configuration(), text).context("cannot write containerd's configuration")?;
    fs::create_dir_all(names.cni_configuration())?;
    fs::write(names.cni_configuration().join("10-crablet.conflist"), network(names).to_string())
        .context("cannot write the CNI configuration")
}

/// What containerd 1.x reads.
fn version_2(names: &Names, programs: &Programs, restrict_oom_score_adj: bool) -> String {
    let common = common(names, 2);
    let runtime = runtime(names, programs, "io.containerd.grpc.v1.cri", restrict_oom_score_adj);
    format!(
        r#"{common}
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
{runtime}"#
    )
}

/// What containerd 2.x reads: its CRI plugin is split in two.
fn version_3(names: &Names, programs: &Programs, restrict_oom_score_adj: bool) -> String {
    let common = common(names, 3);
    let runtime = runtime(names, programs, "io.containerd.cri.v1.runtime", restrict_oom_score_adj);
    // NRI listens on one socket for the whole machine.
    format!(
        r#"{common}
[plugins."io.containerd.nri.v1.nri"]
  disable = true
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
{runtime}"#
    )
}

fn common(names: &Names, version: u32) -> String {
    let directory = names.directory();
    let directory = directory.display();
    let socket = names.socket();
    let socket = socket.display();
    format!(
        r#"version = {version}
root = "{directory}/root"
state = "{directory}/state"
[grpc]
  address = "{socket}"
[debug]
  level = "info"
[plugins."io.containerd.internal.v1.opt"]
  path = "{directory}/opt"
"#
    )
}

/// The settings of the CRI plugin that only moved between the versions: the rest of its table, and the tables below it.
fn runtime(names: &Names, programs: &Programs, plugin: &str, restrict_oom_score_adj: bool) -> String {
    let cni_directory = programs.cni_directory.display();
    let cni_directory = if programs.version < (2, 1) {
        format!("bin_dir = \"{cni_directory}\"")
    } else {
        format!("bin_dirs = [\"{cni_directory}\"]")
    };
    let cni_configuration = names.cni_configuration();
    let cni_configuration = cni_configuration.display();
    let runc_root = names.runc_root();
    let runc_root = runc_root.display();
    // Network namespaces would otherwise be mounted in a directory that all runs share.
    format!(
        r#"  restrict_oom_score_adj = {restrict_oom_score_adj}
  netns_mounts_under_state_dir = true
[plugins."{plugin}".cni]
  {cni_directory}
  conf_dir = "{cni_configuration}"
[plugins."{plugin}".containerd]
  default_runtime_name = "runc"
[plugins."{plugin}".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."{plugin}".containerd.runtimes.runc.options]
  Root = "{runc_root}"
  SystemdCgroup = false
"#
    )
}

fn network(names: &Names) -> serde_json::Value {
    json!({
        "cniVersion": "0.4.0",
        "name": names.network(),
        "plugins": [
            {
                "type": "bridge",
                "bridge": names.bridge(),
                "isGateway": true,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "dataDir": names.directory().join("cni/addresses"),
                    "ranges": [[{ "subnet": names.subnet() }]],
                    "routes": [{ "dst": "0.0.0.0/0" }],
                },
            },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    })
}

/// Without the capability to lower an OOM score, runc fails on every sandbox unless containerd clamps the score; with
/// it, tests see the scores that a node would give.
fn has_capability(number: u32) -> Result<bool> {
    let status = fs::read_to_string("/proc/self/status")?;
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .context("/proc/self/status has no line CapEff")?;
    let effective =
        u64::from_str_radix(effective.trim(), 16).context("CapEff in /proc/self/status is no number")?;
    Ok(effective & (1 << number) != 0)
}
