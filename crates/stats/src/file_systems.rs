//! The file systems of the machine, and how much room is on them.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crablet_host::mounts::{Mount, MountTable};

use crate::directory::Buffer;
use crate::proc::{DiskCounters, Proc};

/// The most file systems that are told of. Each pod with a volume in memory has one.
const MOST: usize = 1_000;

/// The room on a file system, in bytes and in files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) capacity: u64,
    /// What those who are not root can still use.
    pub(crate) available: u64,
    pub(crate) used: u64,
    pub(crate) inodes: u64,
    pub(crate) inodes_free: u64,
}

impl Room {
    pub(crate) fn of(path: &Path) -> std::io::Result<Room> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let status = rustix::fs::statvfs(&*path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(status.f_frsize);
        Ok(Room {
            capacity: bytes(status.f_blocks),
            available: bytes(status.f_bavail),
            used: bytes(status.f_blocks.saturating_sub(status.f_bfree)),
            inodes: status.f_files,
            inodes_free: status.f_ffree,
        })
    }
}

/// A file system with what its disk did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FileSystem {
    /// What cAdvisor calls it: the disk, or for one in memory where it is mounted.
    pub(crate) device: String,
    /// The kernel's number for it.
    pub(crate) number: (u32, u32),
    pub(crate) room: Room,
    pub(crate) disk: DiskCounters,
}

/// All that are on disks or in memory, by the name of their device. Those over a network could hang, and are left out; so
/// are those that a runtime or the agent made for pods, which cAdvisor tells of only if they were there before it.
pub(crate) fn file_systems(table: &MountTable, proc: &Proc, buffer: &mut Buffer) -> Vec<FileSystem> {
    let mut by_device: BTreeMap<String, &Mount> = BTreeMap::new();
    for mount in table.iter() {
        if let Some(device) = device(mount) {
            by_device.entry(device).or_insert(mount);
        }
    }
    let disks = proc.disks(buffer);
    let known = by_device.into_iter().take(MOST);
    known
        .filter_map(|(device, mount)| {
            let room = Room::of(&mount.mount_point).ok()?;
            // btrfs has a number of its own, so the name comes first.
            let named = disks.iter().find(|disk| device.strip_prefix("/dev/") == Some(&*disk.name));
            let disk = named.or_else(|| disks.iter().find(|disk| disk.number == mount.device));
            let counters = disk.map(|disk| disk.counters).unwrap_or_default();
            Some(FileSystem { device, number: mount.device, room, disk: counters })
        })
        .collect()
}

fn device(mount: &Mount) -> Option<String> {
    let source = mount.source.to_string_lossy();
    match &*mount.file_system {
        "tmpfs" if is_of_a_pod(&mount.mount_point) => None,
        "tmpfs" => Some(mount.mount_point.to_string_lossy().into_owned()),
        "overlay" if mount.mount_point != Path::new("/") => None,
        "overlay" => Some(format!("{source}_{}-{}", mount.device.0, mount.device.1)),
        "btrfs" | "xfs" | "zfs" | "squashfs" | "f2fs" | "jfs" | "reiserfs" | "hfs" | "hfsplus" | "ntfs"
        | "vfat" | "fat" | "msdos" | "exfat" | "udf" | "iso9660" => Some(source.into_owned()),
        other if other.starts_with("ext") => Some(source.into_owned()),
        _ => None,
    }
}

/// `<root-dir>/pods/<uid>/volumes/…` and `…/sandboxes/<id>/shm`.
fn is_of_a_pod(mount_point: &Path) -> bool {
    let is_shared_memory = mount_point.ends_with("shm") && mount_point != Path::new("/dev/shm");
    let parts: Vec<_> = mount_point.components().map(|part| part.as_os_str()).collect();
    is_shared_memory || parts.windows(3).any(|parts| parts[0] == "pods" && parts[2] == "volumes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_disk_is_told_once_and_each_file_system_in_memory_where_it_is() {
        let place = tempfile::tempdir().unwrap();
        let here = place.path().to_str().unwrap();
        let disks = "254 0 vda 1 2 3 4 5 6 7 8 9 10 11\n254 16 vdb 2 2 3 4 5 6 7 8 9 10 11\n";
        std::fs::write(place.path().join("diskstats"), disks).unwrap();
        let table = format!(
            "20 1 254:0 / / rw - ext4 /dev/vda rw\n21 20 254:0 /a {here} rw - ext4 /dev/vda rw\n\
             22 20 0:30 / {here} rw - tmpfs tmpfs rw\n23 20 0:31 / /proc rw - proc proc rw\n\
             24 20 0:32 / /mnt rw - nfs4 server:/x rw\n\
             25 20 0:33 / /root/pods/u/volumes/kubernetes.io~empty-dir/m rw - tmpfs tmpfs rw\n\
             26 20 0:34 / /run/sandboxes/s/shm rw - tmpfs shm rw\n\
             27 20 0:35 / /run/c/rootfs rw - overlay overlay rw\n\
             28 20 0:36 / {here} rw - btrfs /dev/vdb rw\n29 20 254:33 / {here} rw - vfat /dev/vdc1 rw\n"
        );
        let table = MountTable::parse(table.as_bytes()).unwrap();
        let proc = Proc::open(place.path()).unwrap();
        let found = file_systems(&table, &proc, &mut Buffer::default());
        let devices: Vec<&str> = found.iter().map(|known| &*known.device).collect();
        assert_eq!(devices, ["/dev/vda", "/dev/vdb", "/dev/vdc1", here]);
        assert_eq!(found[1].disk.reads, 2, "by its name: the number is not that of the disk");
        assert_eq!((found[0].disk.reads, found[0].disk.weighted_io_time), (1, 11));
        assert_eq!(found[3].disk, DiskCounters::default());
        assert!(found[0].room.capacity > found[0].room.available);
    }
}
