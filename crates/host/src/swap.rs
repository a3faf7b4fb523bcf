//! Swap space.

use std::io;
use std::path::Path;

use crate::cgroup;

/// The file in which the kernel lists its swap areas.
pub const PROC_SWAPS: &str = "/proc/swaps";

/// The swap areas in use, read from a file in the form of [`PROC_SWAPS`]. A kernel without swap has no such file.
pub fn areas(path: &Path) -> io::Result<Vec<String>> {
    let table = match std::fs::read_to_string(path) {
        Ok(table) => table,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let names = table.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    Ok(names.map(String::from).collect())
}

/// Whether cgroups can limit swap, below a root that is `/` but for tests. With version 2 the top cgroup says nothing of
/// it, so that our own is asked.
pub fn can_be_limited(root: &Path, version: cgroup::Version) -> bool {
    let mount_point = root.join("sys/fs/cgroup");
    let file = match version {
        cgroup::Version::V1 => mount_point.join("memory/memory.memsw.limit_in_bytes"),
        cgroup::Version::V2 => {
            let own = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
            let own = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
            mount_point.join(own.trim_start_matches('/')).join("memory.swap.max")
        }
    };
    file.exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_can_be_limited_where_the_kernel_has_a_file_for_it() {
        use cgroup::Version::{V1, V2};
        let found = |files: &[(&str, &str)], version| {
            let root = tempfile::tempdir().unwrap();
            for (file, text) in files {
                let path = root.path().join(file);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            can_be_limited(root.path(), version)
        };
        let version_one = ("sys/fs/cgroup/memory/memory.memsw.limit_in_bytes", "0");
        let own = ("proc/self/cgroup", "0::/system.slice/crablet.service\n");
        let version_two = ("sys/fs/cgroup/system.slice/crablet.service/memory.swap.max", "max");
        assert!(found(&[version_one], V1) && !found(&[version_one], V2) && !found(&[], V1));
        assert!(found(&[own, version_two], V2) && !found(&[own], V2) && !found(&[own, version_two], V1));
    }

    #[test]
    fn every_line_below_the_header_is_an_area() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("swaps");
        for (table, expected) in [
            ("Filename\tType\tSize\tUsed\tPriority\n", &[][..]),
            (
                "Filename\tType\tSize\tUsed\tPriority\n/dev/sda2 partition 1 0 -2\n/swap file 2 0 -3\n",
                &["/dev/sda2", "/swap"],
            ),
            ("", &[]),
        ] {
            std::fs::write(&path, table).unwrap();
            assert_eq!(areas(&path).unwrap(), expected);
        }
        assert_eq!(areas(&directory.path().join("missing")).unwrap(), Vec::<String>::new());
    }
}
