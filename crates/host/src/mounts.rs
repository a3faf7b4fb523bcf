//! What is mounted where, and mounting.
//!
//! Nothing here looks at a mounted file system itself: one on a server that is gone would never answer. The kernel tells
//! what is mounted, by its table, or of one place whether a step there leads to another mount.

mod act;
mod places;
mod shared;

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;

pub use act::{
    MountError, Tmpfs, UnmountMode, Unmounted, bind, make_shared, mount_huge_pages, mount_tmpfs,
    remount_bind_read_only, unmount,
};
pub use places::is_free_of_mounts;

/// The mount table of this process.
pub const PROC_SELF_MOUNTINFO: &str = "/proc/self/mountinfo";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The mount's number.
    pub id: u64,
    /// The number of the mount that this one is mounted on.
    pub parent: u64,
    /// The device's major and minor number, which tell file systems apart.
    pub device: (u32, u32),
    /// Which directory of the file system is mounted; not `/` for a bind mount of a part.
    pub root: PathBuf,
    /// Where it is mounted.
    pub mount_point: PathBuf,
    /// The options of this mount: `ro,nosuid`.
    pub options: String,
    /// How mounts below are shared with others: `shared:5`, `master:3`; none for a private one.
    pub propagation: Vec<String>,
    /// The type of the file system.
    pub file_system: String,
    /// What is mounted: a device, a remote path, or a word.
    pub source: OsString,
    /// The options of the file system.
    pub super_options: String,
}

impl Mount {
    /// Whether this mount has an option, such as `ro`.
    pub fn has_option(&self, option: &str) -> bool {
        self.options.split(',').any(|given| given == option)
    }

    /// Whether what is mounted below it is seen wherever else it is mounted, and the other way round.
    pub fn is_shared(&self) -> bool {
        self.propagation.iter().any(|word| word.starts_with("shared:"))
    }

    /// Whether its file system has SELinux labels for its files.
    pub fn has_labels(&self) -> bool {
        self.super_options.split(',').any(|given| given == "seclabel")
    }
}

/// A mount table at one moment, oldest mount first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MountTable(Vec<Mount>);

impl MountTable {
    /// Reads a table in the form of [`PROC_SELF_MOUNTINFO`].
    pub fn read(path: &Path) -> io::Result<MountTable> {
        MountTable::parse(&std::fs::read(path)?)
    }

    /// The table in a text of that form.
    pub fn parse(text: &[u8]) -> io::Result<MountTable> {
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let mounts = lines.map(|line| {
            parse_line(line).ok_or_else(|| {
                let line = String::from_utf8_lossy(line);
                io::Error::new(io::ErrorKind::InvalidData, format!("{line:?} is not the line of a mount"))
            })
        });
        mounts.collect::<io::Result<Vec<Mount>>>().map(MountTable)
    }

    /// Every mount.
    pub fn iter(&self) -> impl Iterator<Item = &Mount> {
        self.0.iter()
    }

    /// What is mounted at a path: the mount on top, if there are several. The path is compared as it is; see
    /// [`resolved`].
    pub fn at(&self, path: &Path) -> Option<&Mount> {
        self.0.iter().rev().find(|mount| mount.mount_point == path)
    }

    /// The mount that a path is on: of those on the same path the one on top. The path is compared as it is; see
    /// [`resolved`].
    pub fn of(&self, path: &Path) -> Option<&Mount> {
        let mounts = self.0.iter().filter(|mount| is_below(path, &mount.mount_point));
        mounts.max_by_key(|mount| mount.mount_point.as_os_str().len())
    }

    /// The mounts elsewhere that show what is at a path. The path is compared as it is; see [`resolved`].
    pub fn elsewhere(&self, path: &Path) -> Vec<&Mount> {
        let Some(own) = self.of(path) else { return Vec::new() };
        let Ok(below) = path.strip_prefix(&own.mount_point) else { return Vec::new() };
        let root = match below.as_os_str().is_empty() {
            true => own.root.clone(),
            false => own.root.join(below),
        };
        let shows = |mount: &&Mount| mount.device == own.device && mount.root.as_os_str() == root.as_os_str();
        self.0.iter().filter(shows).filter(|mount| mount.mount_point != path).collect()
    }

    /// The mounts at a directory and anywhere below, in the order in which they can be unmounted.
    pub fn under(&self, directory: &Path) -> Vec<&Mount> {
        let mut mounts: Vec<&Mount> =
            self.0.iter().rev().filter(|mount| mount.mount_point.starts_with(directory)).collect();
        // Deeper ones first; among those on the same path the newest, which this keeps in front.
        mounts.sort_by_key(|mount| std::cmp::Reverse(mount.mount_point.components().count()));
        mounts
    }
}

/// Whether a path is another one or below it. Both are written as the table has them, so that they are compared letter by
/// letter: part by part takes many times as long, and a table has thousands of paths.
fn is_below(path: &Path, above: &Path) -> bool {
    let [path, above] = [path, above].map(|path| path.as_os_str().as_bytes());
    path.strip_prefix(above)
        .is_some_and(|rest| rest.is_empty() || above.ends_with(b"/") || rest.starts_with(b"/"))
}

/// Whether something is mounted at a path.
pub fn is_mount_point(path: &Path) -> io::Result<bool> {
    match crosses(path)? {
        Some(crosses) => Ok(crosses),
        None => is_in_table(path),
    }
}

/// The same by the whole table, which takes long where much is mounted.
fn is_in_table(path: &Path) -> io::Result<bool> {
    let path = resolved(path)?;
    Ok(MountTable::shared()?.at(&path).is_some())
}

/// Whether the last step of a path leads to another mount, where the kernel can say so: it has been able to since 5.6. What
/// is mounted there is not looked at.
fn crosses(path: &Path) -> io::Result<Option<bool>> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let place = OFlags::PATH | OFlags::CLOEXEC;
    let parent = open(parent, place | OFlags::DIRECTORY, Mode::empty())?;
    match openat2(&parent, name, place | OFlags::NOFOLLOW, Mode::empty(), ResolveFlags::NO_XDEV) {
        Ok(_) | Err(Errno::NOENT) => Ok(Some(false)),
        Err(Errno::XDEV) => Ok(Some(true)),
        Err(_) => Ok(None),
    }
}

/// A path as the mount table has it: absolute and without symbolic links. Its last part is taken as it is, since
/// looking at it would mean to ask the file system that may be mounted there.
pub fn resolved(path: &Path) -> io::Result<PathBuf> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            Ok(parent.canonicalize()?.join(name))
        }
        (None, _) | (_, None) => path.canonicalize(),
    }
}

/// `id parent major:minor root mount-point options [propagation…] - type source super-options`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let (major, minor) = std::str::from_utf8(fields.next()?).ok()?.split_once(':')?;
    let root = unescaped(fields.next()?).into();
    let mount_point = unescaped(fields.next()?).into();
    let options = text(fields.next()?);
    let mut propagation = Vec::new();
    loop {
        match fields.next()? {
            b"-" => break,
            field => propagation.push(text(field)),
        }
    }
    Some(Mount {
        id,
        parent,
        device: (major.parse().ok()?, minor.parse().ok()?),
        root,
        mount_point,
        options,
        propagation,
        file_system: text(fields.next()?),
        source: unescaped(fields.next()?),
        super_options: text(fields.next().unwrap_or_default()),
    })
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn text(field: &[u8]) -> String {
    unescaped(field).to_string_lossy().into_owned()
}

/// A field with `\040` and the like read as the bytes that they stand for.
fn unescaped(field: &[u8]) -> OsString {
    // Few have any, and a table has tens of thousands of fields.
    if !field.contains(&b'\\') {
        return OsString::from_vec(field.to_vec());
    }
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        match escaped_byte(rest) {
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[4..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes)
}

/// The byte that a text begins with, if it is written as a backslash and three octal digits.
fn escaped_byte(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(b"\\")?.get(..3)?;
    digits.iter().try_fold(0_u8, |byte, digit| match digit {
        b'0'..=b'7' => byte.checked_mul(8)?.checked_add(digit - b'0'),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_field_by_field() {
        let line = b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 propagate_from:7 - ext3 /dev/root rw,errors=continue\n";
        let table = MountTable::parse(line).unwrap();
        let expected = Mount {
            id: 36,
            parent: 35,
            device: (98, 0),
            root: "/mnt1".into(),
            mount_point: "/mnt2".into(),
            options: "rw,noatime".into(),
            propagation: vec!["master:1".into(), "propagate_from:7".into()],
            file_system: "ext3".into(),
            source: "/dev/root".into(),
            super_options: "rw,errors=continue".into(),
        };
        assert_eq!(table.iter().collect::<Vec<_>>(), [&expected]);
        assert!(expected.has_option("noatime"));
        assert!(!expected.has_option("ro"));
    }

    #[test]
    fn escaped_bytes_are_read_and_what_only_looks_like_it_is_kept() {
        for (field, expected) in [
            (&br"/a\040b"[..], &b"/a b"[..]),
            (br"/tab\011new\012back\134slash", b"/tab\tnew\nback\\slash"),
            (br"/\9", br"/\9"),
            (br"/end\04", br"/end\04"),
            (br"/large\777", br"/large\777"),
            (b"/\xff", b"/\xff"),
        ] {
            assert_eq!(unescaped(field).into_vec(), expected);
        }
    }

    #[test]
    fn a_mount_without_a_source_is_read() {
        let table = MountTable::parse(b"1 1 0:1 / /x rw - fuse  rw\n").unwrap();
        assert_eq!(table.at(Path::new("/x")).unwrap().source, "");
    }

    #[test]
    fn a_line_that_is_no_mount_is_an_error_that_shows_it() {
        let error = MountTable::parse(b"1 1 0:1 / /x rw\n").unwrap_err();
        assert_eq!(error.to_string(), r#""1 1 0:1 / /x rw" is not the line of a mount"#);
    }

    #[test]
    fn mounts_under_a_directory_come_deepest_and_newest_first() {
        let lines = ["/a", "/a/b", "/ab", "/a/b/c", "/a/b", "/"];
        let text: String = lines
            .iter()
            .enumerate()
            .map(|(id, path)| format!("{id} 0 0:1 / {path} rw - tmpfs t rw\n"))
            .collect();
        let table = MountTable::parse(text.as_bytes()).unwrap();
        let under: Vec<_> = table
            .under(Path::new("/a"))
            .iter()
            .map(|mount| (mount.id, mount.mount_point.to_str().unwrap()))
            .collect();
        assert_eq!(under, [(3, "/a/b/c"), (4, "/a/b"), (1, "/a/b"), (0, "/a")]);
        assert_eq!(table.at(Path::new("/a/b")).unwrap().id, 4);
    }

    #[test]
    fn what_is_at_a_path_is_found_where_else_it_is_mounted() {
        let text = b"1 0 8:1 / / rw - ext4 d rw\n\
                     2 1 8:1 /data/a /pods/1 rw - ext4 d rw\n\
                     3 1 8:1 /data/ab /pods/2 rw - ext4 d rw\n\
                     4 1 8:2 / /global rw - ext4 e rw\n\
                     5 1 8:2 / /pods/3 rw - ext4 e rw,seclabel\n";
        let table = MountTable::parse(text).unwrap();
        let elsewhere = |path: &str| -> Vec<u64> {
            table.elsewhere(Path::new(path)).iter().map(|mount| mount.id).collect()
        };
        let has_labels = |path: &str| table.of(Path::new(path)).unwrap().has_labels();
        assert!(has_labels("/pods/3/x") && !has_labels("/pods/2"));
        assert_eq!(elsewhere("/data/a"), [2], "a directory that nothing is mounted on");
        assert_eq!(elsewhere("/global"), [5]);
        assert_eq!(elsewhere("/pods/3"), [4]);
        assert_eq!(elsewhere("/pods/1"), Vec::<u64>::new());
        assert_eq!(elsewhere("/data"), Vec::<u64>::new());
    }

    #[test]
    fn the_table_of_this_process_can_be_read() {
        let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).unwrap();
        assert_eq!(table.at(Path::new("/proc")).unwrap().file_system, "proc");
        assert!(is_mount_point(Path::new("/proc")).unwrap());
        assert!(is_mount_point(Path::new("/")).unwrap());
        assert!(!is_mount_point(Path::new("/proc/self")).unwrap());
        assert!(!is_mount_point(Path::new("/proc/no-such-thing")).unwrap());
        let of_nowhere = is_mount_point(Path::new("/proc/no-such-thing/below")).unwrap_err();
        assert_eq!(of_nowhere.kind(), io::ErrorKind::NotFound);
        for path in ["/proc", "/proc/self", "/proc/no-such-thing"] {
            let path = Path::new(path);
            assert_eq!(
                crosses(path).unwrap().unwrap_or(is_in_table(path).unwrap()),
                is_in_table(path).unwrap()
            );
        }
    }
}
