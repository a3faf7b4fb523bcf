//! Removing everything that a run made, whether or not its containerd still lives.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::processes::{mounts, processes_of};
use crate::programs::find_program;
use crate::run::Names;
use crate::wait::eventually;

const PATIENCE: Duration = Duration::from_secs(15);

/// Where libcni remembers what it configured, one file per network and container.
const CNI_RESULTS: &str = "/var/lib/cni/results";

/// Removes all that is left of a run, its directory last: while that exists, there may be more to remove.
///
/// Each step stands on what the one before it did: processes hold mounts and cgroups, and nothing may be deleted
/// below a mount, which could be a directory of the host.
pub(crate) async fn remove(names: &Names) -> Result<()> {
    let traces = Traces::read(names);
    end_processes(names).await?;
    unmount_all(names).await?;
    remove_links(names).await?;
    remove_rules(names).await?;
    remove_cgroups(names, &traces).await?;
    for socket in &traces.sockets {
        remove_file(socket)?;
    }
    remove_cni_results(names)?;
    match fs::remove_dir_all(names.directory()) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", names.directory().display()))
        }
        _ => Ok(()),
    }
}

/// What lies outside the run's directory and only containerd's bundles know of.
#[derive(Default)]
struct Traces {
    cgroups: BTreeSet<String>,
    /// Shims listen in a directory that all instances of containerd share.
    sockets: BTreeSet<PathBuf>,
}

impl Traces {
    fn read(names: &Names) -> Traces {
        let mut traces = Traces { cgroups: BTreeSet::from([names.cgroup()]), ..Traces::default() };
        for namespace in entries(&names.bundles()) {
            for bundle in entries(&namespace) {
                traces.cgroups.extend(cgroup_of(&bundle));
                traces.sockets.extend(shim_socket_of(&bundle));
            }
        }
        traces
    }
}

fn cgroup_of(bundle: &Path) -> Option<String> {
    let specification: serde_json::Value =
        serde_json::from_slice(&fs::read(bundle.join("config.json")).ok()?).ok()?;
    let path = specification["linux"]["cgroupsPath"].as_str()?;
    // Never the root, and nothing that leads elsewhere.
    let is_plain = path.starts_with('/') && path.len() > 1 && !path.split('/').any(|part| part == "..");
    is_plain.then(|| path.to_owned())
}

fn shim_socket_of(bundle: &Path) -> Option<PathBuf> {
    let address = fs::read_to_string(bundle.join("address")).ok().or_else(|| {
        let parameters: serde_json::Value =
            serde_json::from_slice(&fs::read(bundle.join("bootstrap.json")).ok()?).ok()?;
        Some(parameters["address"].as_str()?.to_owned())
    })?;
    Some(PathBuf::from(address.trim().strip_prefix("unix://")?))
}

/// Kills until nothing is found: what is killed may just have started something.
async fn end_processes(names: &Names) -> Result<()> {
    eventually("the run's processes are gone", PATIENCE, || async {
        let found = kill_processes(names).map_err(|error| format!("{error:#}"))?;
        if found.is_empty() { Ok(()) } else { Err(format!("there are {found:?}")) }
    })
    .await
}

fn kill_processes(names: &Names) -> Result<BTreeSet<i32>> {
    let found = processes_of(names)?;
    if found.is_empty() {
        return Ok(found);
    }
    let descriptors: Vec<(i32, OwnedFd)> = found
        .iter()
        .filter_map(|process| {
            Some((*process, pidfd_open(Pid::from_raw(*process)?, PidfdFlags::empty()).ok()?))
        })
        .collect();
    // From here on a descriptor cannot come to mean another process; what was found a moment earlier could have.
    let found = processes_of(names)?;
    for (process, descriptor) in &descriptors {
        if found.contains(process) {
            // The one possible failure is that it has ended.
            let _ = pidfd_send_signal(descriptor, Signal::KILL);
        }
    }
    Ok(found)
}

async fn unmount_all(names: &Names) -> Result<()> {
    let directory = names.directory();
    eventually("nothing is mounted in the run's directory", PATIENCE, || async {
        let mounts = mounts().map_err(|error| format!("{error:#}"))?;
        let own: Vec<_> =
            mounts.iter().map(|mount| &mount.path).filter(|path| path.starts_with(&directory)).collect();
        for path in own.iter().rev() {
            unmount(*path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
                .map_err(|error| format!("{}: {error}", path.display()))?;
        }
        // Mounts can be stacked: only a look that finds none is an end.
        if own.is_empty() { Ok(()) } else { Err(format!("there were {own:?}")) }
    })
    .await
}

/// Deletes the bridge and the host's ends of the pods' links, which would else go some time after their namespaces.
async fn remove_links(names: &Names) -> Result<()> {
    let bridge = Path::new("/sys/class/net").join(names.bridge());
    if !bridge.exists() {
        return Ok(());
    }
    let ip = find_program("ip")?;
    for port in entries(&bridge.join("brif")) {
        if let Some(name) = port.file_name() {
            // It may be on its way out already.
            let _ = Command::new(&ip).args(["link", "delete"]).arg(name).stderr(Stdio::null()).status().await;
        }
    }
    let output = Command::new(&ip).args(["link", "delete", &names.bridge()]).output().await?;
    if !output.status.success() {
        bail!(
            "cannot delete the bridge {}: {}",
            names.bridge(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

/// Deletes the rules for host ports. The chains `CNI-HOSTPORT-*` that all CNI networks of a machine share stay.
async fn remove_rules(names: &Names) -> Result<()> {
    let Ok(save) = find_program("iptables-save") else {
        return Ok(());
    };
    let saved = Command::new(save).args(["-t", "nat"]).output().await?;
    let Some(removal) = rules_to_remove(&String::from_utf8_lossy(&saved.stdout), &names.network()) else {
        return Ok(());
    };
    let mut restore = Command::new(find_program("iptables-restore")?)
        .args(["--noflush", "--wait"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut input) = restore.stdin.take() {
        input.write_all(removal.as_bytes()).await?;
    }
    let output = restore.wait_with_output().await?;
    if !output.status.success() {
        bail!("cannot remove iptables rules: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// Turns what `iptables-save` printed into input for `iptables-restore` that removes one CNI network's rules, and the
/// chains that these jump to. CNI's plugins write the network's name into the comment of every jump.
fn rules_to_remove(saved: &str, network: &str) -> Option<String> {
    let mark = format!(r#"name: \"{network}\""#);
    let mut deletions = String::new();
    let mut chains = BTreeSet::new();
    for rule in saved.lines().filter(|line| line.contains(&mark)) {
        let Some(rule) = rule.strip_prefix("-A ") else {
            continue;
        };
        deletions.push_str(&format!("-D {rule}\n"));
        let target = rule.split_whitespace().skip_while(|word| *word != "-j").nth(1);
        chains
            .extend(target.filter(|chain| chain.starts_with("CNI-") && !chain.starts_with("CNI-HOSTPORT-")));
    }
    if deletions.is_empty() {
        return None;
    }
    let flushes: String = chains.iter().map(|chain| format!("-F {chain}\n")).collect();
    let removals: String = chains.iter().map(|chain| format!("-X {chain}\n")).collect();
    Some(format!("*nat\n{deletions}{flushes}{removals}COMMIT\n"))
}

/// Removes the run's own cgroup and those of its containers, in every hierarchy.
///
/// A parent that containerd made for containers without one (`/k8s.io`) stays: other instances share it.
async fn remove_cgroups(names: &Names, traces: &Traces) -> Result<()> {
    let hierarchies: Vec<PathBuf> = mounts()?
        .into_iter()
        .filter(|mount| matches!(mount.filesystem.as_str(), "cgroup" | "cgroup2"))
        .map(|mount| mount.path)
        .filter(|path| !path.starts_with(names.directory()))
        .collect();
    for hierarchy in hierarchies {
        for cgroup in &traces.cgroups {
            let directory = hierarchy.join(cgroup.trim_start_matches('/'));
            // A process that has just been killed may keep its cgroup busy for a moment.
            eventually("a cgroup can be removed", PATIENCE, || async {
                remove_cgroup(&directory).map_err(|error| format!("{}: {error}", directory.display()))
            })
            .await?;
        }
    }
    Ok(())
}

/// The files in a cgroup cannot be deleted, and need not be: this removes directories alone.
pub(crate) fn remove_cgroup(directory: &Path) -> io::Result<()> {
    if !directory.exists() {
        return Ok(());
    }
    for entry in entries(directory) {
        if entry.is_dir() {
            remove_cgroup(&entry)?;
        }
    }
    match fs::remove_dir(directory) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes what is remembered of the run's sandboxes: of its own network by that name, and of their loopback devices,
/// which all runs share as one network, by the sandboxes' names.
fn remove_cni_results(names: &Names) -> Result<()> {
    let prefix = format!("{}-", names.network());
    let files = entries(Path::new(CNI_RESULTS));
    let name_of = |file: &Path| file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let sandboxes: BTreeSet<String> = files
        .iter()
        .filter_map(|file| Some(name_of(file).strip_prefix(&prefix)?.split_once('-')?.0.to_owned()))
        .collect();
    for file in &files {
        if name_of(file).split('-').any(|part| sandboxes.contains(part)) {
            remove_file(file)?;
        }
    }
    Ok(())
}

fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// The paths in a directory; none, if there is no such directory.
fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory)
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAVED: &str = r#"*nat
:PREROUTING ACCEPT [0:0]
:CNI-DN-1111111111111111 - [0:0]
:CNI-DN-2222222222222222 - [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A CNI-DN-1111111111111111 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.213.1.2:80
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"crablet-test-1\" id: \"aa\"" -m multiport --dports 8080 -j CNI-DN-1111111111111111
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"crablet-test-12\" id: \"bb\"" -m multiport --dports 8081 -j CNI-DN-2222222222222222
COMMIT
"#;

    #[test]
    fn only_the_networks_own_rules_and_chains_are_removed() {
        assert_eq!(
            rules_to_remove(SAVED, "crablet-test-1").unwrap(),
            r#"*nat
-D CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"crablet-test-1\" id: \"aa\"" -m multiport --dports 8080 -j CNI-DN-1111111111111111
-F CNI-DN-1111111111111111
-X CNI-DN-1111111111111111
COMMIT
"#
        );
        assert_eq!(rules_to_remove(SAVED, "crablet-test-2"), None);
    }

    #[test]
    fn a_bundle_tells_its_cgroup_but_never_the_root() {
        let check = |path: &str, expected: Option<&str>| {
            let bundle = tempfile::tempdir().unwrap();
            let specification = serde_json::json!({ "linux": { "cgroupsPath": path } });
            fs::write(bundle.path().join("config.json"), specification.to_string()).unwrap();
            assert_eq!(cgroup_of(bundle.path()).as_deref(), expected, "{path:?}");
        };
        check("/kubepods/pod1/aa", Some("/kubepods/pod1/aa"));
        check("/", None);
        check("", None);
        check("/a/../..", None);
        check("kubepods.slice:cri-containerd:aa", None);
    }

    #[test]
    fn a_bundle_tells_its_shims_socket_in_the_words_of_either_version() {
        let bundle = tempfile::tempdir().unwrap();
        assert_eq!(shim_socket_of(bundle.path()), None);
        fs::write(
            bundle.path().join("bootstrap.json"),
            r#"{"version":3,"address":"unix:///run/containerd/s/b","protocol":"ttrpc"}"#,
        )
        .unwrap();
        assert_eq!(shim_socket_of(bundle.path()), Some(PathBuf::from("/run/containerd/s/b")));
        fs::write(bundle.path().join("address"), "unix:///run/containerd/s/a").unwrap();
        assert_eq!(shim_socket_of(bundle.path()), Some(PathBuf::from("/run/containerd/s/a")));
    }
}
