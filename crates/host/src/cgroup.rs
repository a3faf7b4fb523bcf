//! Control groups.

use std::io;
use std::path::Path;

/// Where the system mounts cgroups.
pub const MOUNT_POINT: &str = "/sys/fs/cgroup";

/// The file system type of cgroup v2, as `statfs` tells it.
const CGROUP2_SUPER_MAGIC: i64 = 0x6367_7270;

/// A version of cgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// A hierarchy for each controller; also where a v2 hierarchy without them stands beside these.
    V1,
    /// One hierarchy for all controllers.
    V2,
}

/// Which version is mounted at a path, usually [`MOUNT_POINT`].
pub fn version(mount_point: &Path) -> io::Result<Version> {
    let file_system = rustix::fs::statfs(mount_point)?;
    match file_system.f_type == CGROUP2_SUPER_MAGIC {
        true => Ok(Version::V2),
        false => Ok(Version::V1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_no_cgroup2_mount_counts_as_v1() {
        assert_eq!(version(Path::new("/proc")).unwrap(), Version::V1);
    }

    #[test]
    fn a_missing_mount_point_is_an_error() {
        assert_eq!(version(Path::new("/no/such/path")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn the_version_agrees_with_the_mount_table() {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let unified = mounts.lines().any(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            fields[1] == MOUNT_POINT && fields[2] == "cgroup2"
        });
        let expected = if unified { Version::V2 } else { Version::V1 };
        assert_eq!(version(Path::new(MOUNT_POINT)).unwrap(), expected);
    }
}
