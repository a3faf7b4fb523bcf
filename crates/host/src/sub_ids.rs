//! The user and group IDs that the machine sets aside for a user: what `/etc/subuid` and `/etc/subgid` say, or a
//! directory service, as `getsubids` tells.

use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus};

/// IDs of the machine that follow one another; the same of users and of groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubIds {
    pub first: u32,
    /// How many.
    pub count: u32,
}

/// Why it could not be told which IDs are set aside.
#[derive(Debug, thiserror::Error)]
pub enum SubIdsError {
    /// It could not be told whether there is such a user.
    #[error("cannot look up user {user:?}")]
    User {
        user: String,
        /// Why.
        source: io::Error,
    },
    /// A program could not be run.
    #[error("cannot run {program}")]
    Run {
        program: &'static str,
        /// Why.
        source: io::Error,
    },
    /// There is the user and there are no IDs: whoever knows them may be away.
    #[error("error retrieving additional {what} for user {user:?}: {status}")]
    Refused {
        /// `uids` or `gids`.
        what: &'static str,
        user: String,
        /// How it ended.
        status: ExitStatus,
    },
    /// Users and groups differ.
    #[error("mismatched subuids and subgids for user {0:?}")]
    Mismatched(String),
    /// There is not one range, but none or several.
    #[error("error parsing line {0:?}: it must contain only one line")]
    NotOneLine(String),
    /// What was said is not a range.
    #[error("invalid line {0:?}")]
    Invalid(String),
}

/// The IDs that are set aside for a user; none where there is no such user, or no `getsubids`. Programs are looked for
/// in a directory, or where the environment says.
pub fn of_user(user: &str, programs: Option<&Path>) -> Result<Option<SubIds>, SubIdsError> {
    if !user_exists(user, programs)? {
        return Ok(None);
    }
    let ask = |what: &'static str, arguments: &[&str]| {
        let Some((status, text)) = output("getsubids", arguments, programs)? else { return Ok(None) };
        match status.success() {
            true => Ok(Some(text)),
            false => Err(SubIdsError::Refused { what, user: user.to_owned(), status }),
        }
    };
    let (Some(users), Some(groups)) = (ask("uids", &[user])?, ask("gids", &["-g", user])?) else {
        return Ok(None);
    };
    match users == groups {
        true => parse(&users).map(Some),
        false => Err(SubIdsError::Mismatched(user.to_owned())),
    }
}

/// `getent` knows of users that a directory service has; a machine without it has those of its file.
fn user_exists(user: &str, programs: Option<&Path>) -> Result<bool, SubIdsError> {
    if let Some((status, _)) = output("getent", &["passwd", user], programs)? {
        // 2 is its word for somebody whom nobody knows.
        return match status.code() {
            Some(0) => Ok(true),
            Some(2) => Ok(false),
            _ => {
                let source = io::Error::other(format!("getent: {status}"));
                Err(SubIdsError::User { user: user.to_owned(), source })
            }
        };
    }
    match std::fs::read_to_string("/etc/passwd") {
        Ok(users) => Ok(users.lines().any(|line| line.split(':').next() == Some(user))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(SubIdsError::User { user: user.to_owned(), source }),
    }
}

/// What a program says, and how it ends; nothing where it is not there.
fn output(
    program: &'static str,
    arguments: &[&str],
    programs: Option<&Path>,
) -> Result<Option<(ExitStatus, String)>, SubIdsError> {
    let mut command = Command::new(program);
    if let Some(directory) = programs {
        command.env("PATH", directory);
    }
    match command.args(arguments).output() {
        Ok(output) => Ok(Some((output.status, String::from_utf8_lossy(&output.stdout).into_owned()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(SubIdsError::Run { program, source }),
    }
}

/// Reads `0: kubelet 65536 2147483648`.
fn parse(text: &str) -> Result<SubIds, SubIdsError> {
    let mut lines = text.trim_matches('\n').split('\n');
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return Err(SubIdsError::NotOneLine(text.to_owned()));
    };
    let words: Vec<&str> = line.split_whitespace().collect();
    let ids = match words[..] {
        [_, _, first, count] => first.parse().ok().zip(count.parse().ok()),
        _ => None,
    };
    let (first, count) = ids.ok_or_else(|| SubIdsError::Invalid(text.to_owned()))?;
    Ok(SubIds { first, count })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// What comes of programs that do this; those that are not given are not there.
    fn found(programs: &[(&str, &str)]) -> String {
        let directory = tempfile::tempdir().unwrap();
        for (name, script) in programs {
            let path = directory.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        match of_user("kubelet", Some(directory.path())) {
            Ok(Some(SubIds { first, count })) => format!("{count} from {first}"),
            Ok(None) => "nothing".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn the_ids_of_a_user_are_those_that_getsubids_tells() {
        let known = ("getent", "[ \"$*\" = 'passwd kubelet' ]");
        assert_eq!(found(&[known, ("getsubids", "echo '0: kubelet 65536 7208960'")]), "7208960 from 65536");
        assert_eq!(found(&[("getent", "exit 2"), ("getsubids", "exit 1")]), "nothing");
        assert_eq!(found(&[known]), "nothing");
        assert_eq!(found(&[]), "nothing", "there is no such user on a machine that runs tests");
        assert_eq!(found(&[("getent", "exit 3")]), "cannot look up user \"kubelet\"");
        assert_eq!(
            found(&[known, ("getsubids", "[ \"$1\" = -g ]")]),
            "error retrieving additional uids for user \"kubelet\": exit status: 1"
        );
        assert_eq!(
            found(&[known, ("getsubids", "[ \"$1\" != -g ]")]),
            "error retrieving additional gids for user \"kubelet\": exit status: 1"
        );
        assert_eq!(
            found(&[known, ("getsubids", "echo \"0: kubelet 65536 $#\"")]),
            "mismatched subuids and subgids for user \"kubelet\""
        );
        let range = "0: kubelet 65536 65536";
        let two = format!("echo '{range}'; echo '{range}'");
        assert!(found(&[known, ("getsubids", &two)]).ends_with("it must contain only one line"));
        for line in ["", "0: kubelet 65536", "0: kubelet x 1", "0: kubelet 1 4294967296"] {
            let script = format!("echo '{line}'");
            assert_eq!(
                found(&[known, ("getsubids", &script)]),
                format!("invalid line {:?}", format!("{line}\n"))
            );
        }
    }
}
