//! SELinux labels of files that containers use, by the policy of the machine.

use std::io;
use std::path::Path;

use crate::files::{ReadError, read_bounded};

const LARGEST: usize = 64 << 10;

/// The label of files for processes of a level, and of a user if one is named, as runtimes have it. The machine's files are
/// below `root`.
pub fn file_label(root: &Path, user: &str, level: &str) -> io::Result<String> {
    let settings = read(&root.join("etc/selinux/config"))?;
    let policy = value(&settings, "SELINUXTYPE").unwrap_or("targeted");
    let contexts = root.join("etc/selinux").join(policy).join("contexts/lxc_contexts");
    let text = read(&contexts)?;
    let wrong = || {
        let message = format!("{} names no label for files", contexts.display());
        io::Error::new(io::ErrorKind::InvalidData, message)
    };
    let mut parts = value(&text, "file").ok_or_else(wrong)?.splitn(4, ':');
    let (Some(default_user), Some(role), Some(kind)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(wrong());
    };
    let user = if user.is_empty() { default_user } else { user };
    Ok(format!("{user}:{role}:{kind}:{level}"))
}

fn read(path: &Path) -> io::Result<String> {
    let bytes = read_bounded(path, LARGEST).map_err(|error| match error {
        ReadError::Failed { source, .. } => source,
        other => io::Error::other(other),
    })?;
    String::from_utf8(bytes).map_err(io::Error::other)
}

/// What a line `key = "value"` says.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with(['#', ';']));
    let mut pairs = lines.filter_map(|line| line.split_once('='));
    let (_, value) = pairs.find(|(found, _)| found.trim() == key)?;
    Some(value.trim().trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_label_is_that_of_the_policy_with_the_level_and_user_that_are_asked_for() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(file_label(root.path(), "", "s0").unwrap_err().kind(), io::ErrorKind::NotFound);
        let contexts = root.path().join("etc/selinux/strict/contexts");
        fs::create_dir_all(&contexts).unwrap();
        fs::write(
            root.path().join("etc/selinux/config"),
            "# SELINUXTYPE=x\nSELINUX=enforcing\nSELINUXTYPE=strict\n",
        )
        .unwrap();
        let write = |text: &str| fs::write(contexts.join("lxc_contexts"), text).unwrap();
        write(
            "process = \"system_u:system_r:container_t:s0\"\nfile = \"system_u:object_r:container_file_t:s0\"\n",
        );
        let label = |user: &str| file_label(root.path(), user, "s0:c15,c25").unwrap();
        assert_eq!(label(""), "system_u:object_r:container_file_t:s0:c15,c25");
        assert_eq!(label("other_u"), "other_u:object_r:container_file_t:s0:c15,c25");
        for wrong in ["", "file = \"container_file_t\""] {
            write(wrong);
            let error = file_label(root.path(), "", "s0").unwrap_err();
            assert!(error.to_string().ends_with("names no label for files"), "{error}");
        }
    }
}
