//! Which processes and mounts belong to a run.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::run::Names;

/// The processes of a run: its containerd and shims, which name its socket or its configuration as an argument; what
/// runs in its containers, which has a root directory made of its snapshots; and the descendants of these.
///
/// Nothing else is a reason: a process is never taken for one of ours by its name.
pub(crate) fn processes_of(names: &Names) -> Result<BTreeSet<i32>> {
    let own_mount_namespace = fs::read_link("/proc/self/ns/mnt")?;
    let mut parents = BTreeMap::new();
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        // A process may end while it is looked at: what cannot be read belongs to nobody any more.
        let directory = entry.path();
        if let Some(parent) = parent(&directory) {
            parents.insert(process, parent);
        }
        let arguments = fs::read(directory.join("cmdline")).unwrap_or_default();
        let in_container = || {
            fs::read_link(directory.join("ns/mnt")).is_ok_and(|namespace| namespace != own_mount_namespace)
                && fs::read(directory.join("mountinfo")).is_ok_and(|mounts| root_is_of(&mounts, names))
        };
        if arguments_are_of(&arguments, names) || in_container() {
            found.insert(process);
        }
    }
    loop {
        let descendants: Vec<i32> = parents
            .iter()
            .filter(|(process, parent)| found.contains(parent) && !found.contains(process))
            .map(|(process, _)| *process)
            .collect();
        if descendants.is_empty() {
            return Ok(found);
        }
        found.extend(descendants);
    }
}

/// A line of `/proc/self/mountinfo`.
pub(crate) struct Mount {
    pub(crate) path: PathBuf,
    pub(crate) filesystem: String,
    options: Vec<u8>,
}

/// What is mounted, in the order in which it was.
pub(crate) fn mounts() -> Result<Vec<Mount>> {
    Ok(parse_mounts(&fs::read("/proc/self/mountinfo").context("cannot read the mount table")?))
}

fn parent(process: &Path) -> Option<i32> {
    // The second field is the program's name in parentheses, and may hold anything, parentheses too.
    let stat = fs::read(process.join("stat")).ok()?;
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    str::from_utf8(&stat[after_name..]).ok()?.split_whitespace().nth(1)?.parse().ok()
}

fn arguments_are_of(arguments: &[u8], names: &Names) -> bool {
    let arguments: Vec<&[u8]> = arguments.split(|byte| *byte == 0).collect();
    arguments.windows(2).any(|pair| {
        let value = Path::new(OsStr::from_bytes(pair[1]));
        match pair[0] {
            b"-address" | b"--address" => value == names.socket(),
            b"--config" => value == names.configuration(),
            b"--root" => value.starts_with(names.runc_root()),
            _ => false,
        }
    })
}

fn root_is_of(mounts: &[u8], names: &Names) -> bool {
    let snapshots = format!("upperdir={}/", names.directory().display());
    parse_mounts(mounts).iter().any(|mount| {
        mount.path == Path::new("/")
            && mount.filesystem == "overlay"
            && mount
                .options
                .split(|byte| *byte == b',')
                .any(|option| option.starts_with(snapshots.as_bytes()))
    })
}

/// Reads lines like `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`.
fn parse_mounts(text: &[u8]) -> Vec<Mount> {
    text.split(|byte| *byte == b'\n')
        .filter_map(|line| {
            let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
            let separator = fields.iter().position(|field| *field == b"-")?;
            Some(Mount {
                path: unescape(fields.get(4)?),
                filesystem: String::from_utf8_lossy(fields.get(separator + 1)?).into_owned(),
                options: fields.get(separator + 3)?.to_vec(),
            })
        })
        .collect()
}

/// The kernel writes blanks and backslashes in paths as three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let code = (*first == b'\\')
            .then(|| tail.get(..3))
            .flatten()
            .and_then(|digits| str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(byte) => {
                path.push(byte);
                rest = &tail[3..];
            }
            None => {
                path.push(*first);
                rest = tail;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_arguments_that_name_the_run_itself_make_a_process_its_own() {
        let names = Names::of(1);
        let check = |arguments: &str, expected| {
            assert_eq!(
                arguments_are_of(arguments.replace(' ', "\0").as_bytes(), &names),
                expected,
                "{arguments}"
            );
        };
        check("/usr/bin/containerd --config /run/crablet-test/1/config.toml", true);
        check(
            "containerd-shim-runc-v2 -namespace k8s.io -id a -address /run/crablet-test/1/containerd.sock",
            true,
        );
        check("runc --root /run/crablet-test/1/runc/k8s.io state a", true);
        check(
            "containerd-shim-runc-v2 -namespace k8s.io -id a -address /run/crablet-test/11/containerd.sock",
            false,
        );
        check(
            "containerd-shim-runc-v2 -namespace k8s.io -id a -address /run/containerd/containerd.sock",
            false,
        );
        check("less /run/crablet-test/1/config.toml", false);
        check("/usr/bin/containerd", false);
    }

    #[test]
    fn a_container_is_known_by_the_snapshot_below_its_root() {
        let inside = b"640 586 0:50 / / rw,relatime - overlay overlay rw,lowerdir=/run/crablet-test/1/root/1/fs,upperdir=/run/crablet-test/1/root/5/fs,workdir=/w\n";
        // The same overlay as the host sees it: not a reason to call the host's processes ours.
        let outside = b"640 586 0:50 / /run/crablet-test/1/state/rootfs rw,relatime - overlay overlay rw,upperdir=/run/crablet-test/1/root/5/fs\n";
        assert!(root_is_of(inside, &Names::of(1)));
        assert!(!root_is_of(inside, &Names::of(2)));
        assert!(!root_is_of(outside, &Names::of(1)));
    }

    #[test]
    fn paths_in_the_mount_table_are_unescaped() {
        let mounts = parse_mounts(b"36 35 98:0 / /mnt/a\\040b\\134c rw shared:1 - tmpfs tmpfs rw\n");
        assert_eq!(mounts.len(), 1);
        assert_eq!(mounts[0].path, Path::new("/mnt/a b\\c"));
        assert_eq!(mounts[0].filesystem, "tmpfs");
    }
}
