//! Termination messages: what a container said last.

use std::borrow::Cow;

use crablet_api::core::{
    ContainerState, ContainerStatus as ApiStatus, Pod, PodStatus, TerminationMessagePolicy,
};
use crablet_api::{OneOf, Text};
use crablet_cri_api::ContainerStatus;

use crate::labels::ContainerRecord;

/// How much of the end of a termination message's file counts, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 4096;
/// How much of the end of a log counts, in bytes.
pub const MAX_LOG_BYTES: usize = 2048;
/// How much of the end of a log counts, in lines.
pub const MAX_LOG_LINES: usize = 80;
/// How much all the messages of a pod may take, in bytes.
const MAX_POD_BYTES: usize = 12 * 1024;

/// Where a container that ended has its termination message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageSource {
    /// The file on the host, where there is one: its last [`MAX_MESSAGE_BYTES`].
    pub file: Option<String>,
    /// Whether the end of its log counts where the file is missing or empty: at most [`MAX_LOG_LINES`] and
    /// [`MAX_LOG_BYTES`] of it.
    pub log: bool,
}

impl MessageSource {
    /// What to read for a container that ended.
    pub fn of(container: &ContainerStatus) -> MessageSource {
        let record = ContainerRecord::from_annotations(&container.annotations);
        // One that could not even be started has no log.
        let log = record.termination_message_policy == Some(TerminationMessagePolicy::FallbackToLogsOnError)
            && container.exit_code != 0
            && container.reason != "ContainerCannotRun";
        let path = record.termination_message_path;
        let absolute = if path.starts_with('/') { path } else { format!("/{path}") };
        let mount = container.mounts.iter().find(|mount| mount.container_path == absolute);
        let mount = mount.filter(|_| absolute.len() > 1);
        MessageSource { file: mount.map(|mount| mount.host_path.clone()), log }
    }
}

/// The message of a container that ended, from what the runtime says and from the text that it left, already read: the
/// file's, else the log's. What is no text is replaced.
pub fn termination_message(runtime_message: &str, left: &[u8]) -> String {
    let left: Cow<str> = String::from_utf8_lossy(left);
    match (runtime_message, left.as_ref()) {
        (message, "") => message.to_owned(),
        ("", left) => left.to_owned(),
        (message, left) => format!("{message}: {left}"),
    }
}

/// Cuts the messages of a pod's containers so that together they are not too long to store.
pub(super) fn shorten(pod: &Pod, status: &mut PodStatus) {
    let spec = &pod.spec;
    let containers = spec.containers.len() + spec.init_containers.len() + spec.ephemeral_containers.len();
    let limit = MAX_POD_BYTES / containers.max(1);
    let lists = [
        &mut status.container_statuses,
        &mut status.init_container_statuses,
        &mut status.ephemeral_container_statuses,
    ];
    for ApiStatus { state, last_state, .. } in lists.into_iter().flatten() {
        shorten_state(state, limit);
        shorten_state(last_state, limit);
    }
}

fn shorten_state(state: &mut OneOf<ContainerState>, limit: usize) {
    if let Some(ContainerState::Terminated(terminated)) = state.one_mut()
        && terminated.message.len() > limit
    {
        let end = terminated.message.floor_char_boundary(limit);
        terminated.message = Text::from(&terminated.message[..end]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::{
        CONTAINER_TERMINATION_MESSAGE_PATH as PATH, CONTAINER_TERMINATION_MESSAGE_POLICY as POLICY,
    };
    use crate::testing::{Described, container};
    use crablet_cri_api::v1::Mount;

    #[track_caller]
    fn check(exit_code: i32, path: &str, policy: &str, file: Option<&str>, log: bool) {
        let mut container =
            container("c", 0).exited(exit_code).annotation(PATH, path).annotation(POLICY, policy);
        let mount = |container_path: &str, host_path: &str| Mount {
            container_path: container_path.into(),
            host_path: host_path.into(),
            ..Mount::default()
        };
        container.status.mounts = vec![
            mount("/", "/h/root"),
            mount("/etc/hosts", "/h/hosts"),
            mount("/dev/termination-log", "/h/log"),
        ];
        let expected = MessageSource { file: file.map(str::to_owned), log };
        assert_eq!(MessageSource::of(&container.status), expected, "{exit_code} {path} {policy}");
    }

    #[test]
    fn the_message_is_in_the_file_that_is_mounted_for_it() {
        check(0, "/dev/termination-log", "File", Some("/h/log"), false);
        check(0, "dev/termination-log", "File", Some("/h/log"), false);
        check(0, "/elsewhere", "File", None, false);
        check(0, "", "File", None, false);
        check(0, "/", "File", None, false);
    }

    #[test]
    fn the_log_counts_only_after_a_failure_and_only_where_asked_for() {
        check(1, "/dev/termination-log", "File", Some("/h/log"), false);
        check(1, "/dev/termination-log", "FallbackToLogsOnError", Some("/h/log"), true);
        check(0, "/dev/termination-log", "FallbackToLogsOnError", Some("/h/log"), false);
        let mut never_ran = container("c", 0).exited(128).annotation(POLICY, "FallbackToLogsOnError");
        assert!(MessageSource::of(&never_ran.status).log);
        never_ran.status.reason = "ContainerCannotRun".into();
        assert!(!MessageSource::of(&never_ran.status).log);
    }

    #[test]
    fn the_runtimes_words_come_before_the_containers() {
        assert_eq!(termination_message("", b"bye\n"), "bye\n");
        assert_eq!(termination_message("oom", b""), "oom");
        assert_eq!(termination_message("oom", b"bye"), "oom: bye");
        assert_eq!(termination_message("", b"\xff!"), "\u{fffd}!");
    }
}
