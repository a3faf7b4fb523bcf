//! Where logs are, and what the links to them are called.

use super::paths::join;

/// The directory of links to the logs of containers.
pub const CONTAINER_LOGS_DIRECTORY: &str = "/var/log/containers";

/// What a file name has at most.
const MAX_FILE_NAME: usize = 255;
const LOG_SUFFIX: &str = ".log";

/// The directory of a pod's logs: `<namespace>_<name>_<uid>`.
pub fn pod_log_directory(pod_logs: &str, namespace: &str, name: &str, uid: &str) -> String {
    join(pod_logs, &format!("{namespace}_{name}_{uid}"))
}

/// The directory of a container's logs.
pub fn container_log_directory(
    pod_logs: &str,
    namespace: &str,
    name: &str,
    uid: &str,
    container: &str,
) -> String {
    join(&pod_log_directory(pod_logs, namespace, name, uid), container)
}

/// The log of a container within its pod's directory.
pub fn container_log_path(container: &str, restart_count: u32) -> String {
    format!("{container}/{restart_count}{LOG_SUFFIX}")
}

/// The UID of the pod that a directory of logs belongs to.
pub fn pod_uid_of_log_directory(name: &str) -> &str {
    name.rsplit('_').next().unwrap_or(name)
}

/// What the link to a container's log is called, by which collectors find it. A long name loses its end.
pub fn container_log_link(pod_name: &str, namespace: &str, container: &str, container_id: &str) -> String {
    let mut name = format!("{pod_name}_{namespace}_{container}-{container_id}");
    name.truncate(name.floor_char_boundary(MAX_FILE_NAME - LOG_SUFFIX.len()));
    format!("{name}{LOG_SUFFIX}")
}

/// How often a container was restarted before its last log in the directory was begun, plus one: the number of the
/// next log. It is what is left when a node was started anew and the runtime knows of nothing.
pub fn next_restart_count<'a>(file_names: impl IntoIterator<Item = &'a str>) -> u32 {
    file_names
        .into_iter()
        .filter_map(|name| name.split_once(LOG_SUFFIX))
        .filter(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit()))
        .filter_map(|(number, _)| number.parse::<u32>().ok())
        .max()
        .map_or(0, |last| last.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_have_their_places() {
        assert_eq!(pod_log_directory("/var/log/pods", "ns", "web", "u-1"), "/var/log/pods/ns_web_u-1");
        assert_eq!(
            container_log_directory("/var/log/pods/", "ns", "web", "u", "c"),
            "/var/log/pods/ns_web_u/c"
        );
        assert_eq!(container_log_path("c", 3), "c/3.log");
        assert_eq!(pod_uid_of_log_directory("ns_web_u-1"), "u-1");
    }

    #[test]
    fn links_name_pod_container_and_id_and_are_cut_at_255_bytes() {
        assert_eq!(container_log_link("web", "ns", "c", "abcdef123"), "web_ns_c-abcdef123.log");
        let long = container_log_link(&"p".repeat(200), "ns", "c", &"0".repeat(64));
        assert_eq!(long.len(), 255);
        assert_eq!(long, format!("{}_ns_c-{}.log", "p".repeat(200), "0".repeat(45)));
        let wide = container_log_link(&"ä".repeat(200), "ns", "c", "abcdef");
        assert_eq!(wide, format!("{}.log", "ä".repeat(125)));
    }

    #[test]
    fn the_next_log_follows_the_last() {
        assert_eq!(next_restart_count([]), 0);
        assert_eq!(
            next_restart_count(["0.log", "2.log", "1.log", "2.log.20260102-000000.gz", "x.log", "notes"]),
            3
        );
        assert_eq!(next_restart_count([".log", "-1.log", "99999999999.log"]), 0);
    }
}
