//! Settings of the kernel that a kubelet wants, as upstream has them: memory is promised beyond what there is, and who takes
//! too much of it is ended; a kernel in trouble starts the machine anew; root may hold a key for each container.

use std::io;
use std::path::{Path, PathBuf};

/// Each with its name and value.
const WANTED: [(&str, i64); 6] = [
    ("kernel/keys/root_maxbytes", 25_000_000),
    ("kernel/keys/root_maxkeys", 1_000_000),
    ("kernel/panic", 10),
    ("kernel/panic_on_oops", 1),
    ("vm/overcommit_memory", 1),
    ("vm/panic_on_oom", 0),
];

/// A setting that is not as it is wanted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid kernel flag: {flag}, expected value: {expected}, actual value: {actual}")]
pub struct InvalidFlag {
    pub flag: &'static str,
    pub expected: i64,
    pub actual: i64,
}

/// Why a setting is not known, or not as it is wanted.
#[derive(Debug, thiserror::Error)]
pub enum KernelTunableError {
    /// It could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no number.
    #[error("{} holds {value:?}, which is not a number", path.display())]
    Malformed { path: PathBuf, value: String },
    /// It could not be written.
    #[error("cannot write {value:?} to {}", path.display())]
    Write {
        path: PathBuf,
        value: String,
        /// Why.
        source: io::Error,
    },
}

/// The settings that are not as they are wanted, by the files below a root, and those that cannot be read.
pub fn invalid(root: &Path) -> (Vec<InvalidFlag>, Vec<KernelTunableError>) {
    let (mut invalid, mut errors) = (Vec::new(), Vec::new());
    for (flag, expected) in WANTED {
        match read(root, flag) {
            Ok(actual) if actual == expected => {}
            Ok(actual) => invalid.push(InvalidFlag { flag, expected, actual }),
            Err(error) => errors.push(error),
        }
    }
    (invalid, errors)
}

/// Makes a setting as it is wanted, in the files below a root.
pub fn correct(root: &Path, invalid: &InvalidFlag) -> Result<(), KernelTunableError> {
    let (path, value) = (path(root, invalid.flag), invalid.expected.to_string());
    std::fs::write(&path, &value).map_err(|source| KernelTunableError::Write { path, value, source })
}

/// Whether the users that this process sees are others than the machine's: then the kernel's settings are not its own.
pub fn in_user_namespace(root: &Path) -> bool {
    let Ok(map) = std::fs::read_to_string(root.join("proc/self/uid_map")) else { return false };
    map.split_whitespace().ne(["0", "0", "4294967295"])
}

fn path(root: &Path, flag: &str) -> PathBuf {
    root.join("proc/sys").join(flag)
}

fn read(root: &Path, flag: &str) -> Result<i64, KernelTunableError> {
    let path = path(root, flag);
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let value = text.trim();
            let malformed = |_| KernelTunableError::Malformed { path, value: value.to_owned() };
            value.parse().map_err(malformed)
        }
        Err(source) => Err(KernelTunableError::Read { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with these settings.
    fn machine(settings: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in settings {
            let path = path(root.path(), file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn what_differs_is_told_as_elsewhere_in_kubernetes_and_can_be_set() {
        let root = machine(&[
            ("kernel/keys/root_maxbytes", "25000000\n"),
            ("kernel/keys/root_maxkeys", "1000000\n"),
            ("kernel/panic", "0\n"),
            ("kernel/panic_on_oops", "1\n"),
            ("vm/overcommit_memory", "0\n"),
            ("vm/panic_on_oom", "0\n"),
        ]);
        let (found, errors) = invalid(root.path());
        assert!(errors.is_empty());
        assert_eq!(
            found.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [
                "invalid kernel flag: kernel/panic, expected value: 10, actual value: 0",
                "invalid kernel flag: vm/overcommit_memory, expected value: 1, actual value: 0",
            ]
        );
        found.iter().for_each(|flag| correct(root.path(), flag).unwrap());
        assert_eq!(invalid(root.path()).0, []);
    }

    #[test]
    fn a_setting_that_is_missing_or_no_number_is_an_error_and_hides_no_other() {
        let root = machine(&[("kernel/panic", "soon"), ("vm/overcommit_memory", "0")]);
        let (found, errors) = invalid(root.path());
        assert_eq!(found.len(), 1);
        let malformed = errors.iter().filter(|error| matches!(error, KernelTunableError::Malformed { .. }));
        assert_eq!((errors.len(), malformed.count()), (5, 1));
        std::fs::remove_dir_all(root.path().join("proc/sys/vm")).unwrap();
        let refused = correct(root.path(), &found[0]).unwrap_err().to_string();
        assert!(refused.starts_with("cannot write \"1\" to "), "{refused}");
    }

    #[test]
    fn who_has_all_users_as_they_are_is_in_no_user_namespace() {
        for (map, expected) in [("         0          0 4294967295\n", false), ("0 100000 65536\n", true)] {
            let root = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(root.path().join("proc/self")).unwrap();
            std::fs::write(root.path().join("proc/self/uid_map"), map).unwrap();
            assert_eq!(in_user_namespace(root.path()), expected, "{map}");
        }
    }
}
