//! What the files of a log that was rotated are called: `<log>.<time>`, and `<log>.<time>.gz` once it is compressed.

use std::fs;
use std::io;
use std::path::Path;

/// What a compressed log ends with.
pub(crate) const COMPRESSED: &str = ".gz";
/// What a file ends with that is being written.
pub(crate) const TEMPORARY: &str = ".tmp";

/// The files of a log beside its latest one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Rotated {
    /// Those that hold a part of the log, the oldest first.
    pub(crate) in_use: Vec<String>,
    /// What somebody left behind who was cut off.
    pub(crate) unused: Vec<String>,
}

impl Rotated {
    /// The names of the files that were made of the log `name` in a directory.
    pub(crate) fn list(directory: &Path, name: &str) -> io::Result<Rotated> {
        let mut names = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?.file_name();
            let of_the_log = entry.to_str().filter(|entry| is_rotated(entry, name));
            names.extend(of_the_log.map(ToOwned::to_owned));
        }
        Ok(Rotated::sort(names))
    }

    fn sort(mut names: Vec<String>) -> Rotated {
        names.sort_unstable();
        let is_in_use = |name: &String| {
            let compressed = || names.binary_search(&format!("{name}{COMPRESSED}")).is_ok();
            !name.ends_with(TEMPORARY) && (name.ends_with(COMPRESSED) || !compressed())
        };
        let (in_use, unused) = names.iter().cloned().partition(is_in_use);
        Rotated { in_use, unused }
    }
}

/// Whether a file was made of the log `name`.
pub(crate) fn is_rotated(file: &str, name: &str) -> bool {
    file.strip_prefix(name).is_some_and(|rest| rest.starts_with('.') && rest.len() > 1)
}

/// What a rotated log was called before it was compressed.
pub(crate) fn uncompressed(name: &str) -> &str {
    name.strip_suffix(COMPRESSED).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_log_are_told_from_what_was_left_behind() {
        let directory = tempfile::tempdir().unwrap();
        for name in [
            "test-log.11111111-111111.gz",
            "test-log",
            "test-log.00000000-000000.gz",
            "test-log.19900322-000000.gz",
            "test-log.19900322-111111.gz",
            "test-log.19880620-000000",
            "test-log.19880620-000000.gz",
            "test-log.19880620-111111.gz",
            "test-log.20180101-000000",
            "test-log.20180101-000000.tmp",
            "test-log-2.20180101-000000",
        ] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        let rotated = Rotated::list(directory.path(), "test-log").unwrap();
        let in_use = [
            "test-log.00000000-000000.gz",
            "test-log.11111111-111111.gz",
            "test-log.19880620-000000.gz",
            "test-log.19880620-111111.gz",
            "test-log.19900322-000000.gz",
            "test-log.19900322-111111.gz",
            "test-log.20180101-000000",
        ];
        assert_eq!(rotated.in_use, in_use);
        assert_eq!(rotated.unused, ["test-log.19880620-000000", "test-log.20180101-000000.tmp"]);
    }
}
