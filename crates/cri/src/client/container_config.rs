//! What containerd tells of how a container was made, beyond what CRI has words for: JSON, in the names of its own Go
//! types.

use crablet_cri_api::v1;
use serde::Deserialize;

#[derive(Deserialize)]
struct Info {
    config: Option<Config>,
}

/// The configuration that the container was asked for with, as far as it is read here.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Config {
    command: Vec<String>,
    args: Vec<String>,
    working_dir: String,
    envs: Vec<Variable>,
    mounts: Vec<Mount>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Variable {
    key: String,
    value: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Mount {
    container_path: String,
    host_path: String,
    readonly: bool,
}

/// What a container was made from, where the text says it.
pub(super) fn container_config(info: &str) -> Option<v1::ContainerConfig> {
    let Config { command, args, working_dir, envs, mounts } =
        serde_json::from_str::<Info>(info).ok()?.config?;
    let variable = |Variable { key, value }| v1::KeyValue { key, value: value.into_bytes() };
    let mount = |Mount { container_path, host_path, readonly }| v1::Mount {
        container_path,
        host_path,
        readonly,
        ..v1::Mount::default()
    };
    Some(v1::ContainerConfig {
        command,
        args,
        working_dir,
        envs: envs.into_iter().map(variable).collect(),
        mounts: mounts.into_iter().map(mount).collect(),
        ..v1::ContainerConfig::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_containerd_tells_is_read_and_what_others_tell_is_none() {
        let info = r#"{"sandboxID":"s","pid":7,"config":{"metadata":{"name":"c"},"image":{"image":"i"},
            "command":["sh","-c"],"args":["true"],"envs":[{"key":"A","value":"b"},{"key":"EMPTY"}],
            "mounts":[{"container_path":"/c","host_path":"/h","readonly":true},{"container_path":"/d"}]},
            "runtimeSpec":{"ociVersion":"1.0.2"}}"#;
        let config = container_config(info).unwrap();
        assert_eq!(
            (config.command.join(" "), config.args.join(" ")),
            ("sh -c".to_owned(), "true".to_owned())
        );
        assert_eq!((&*config.envs[0].value, &*config.envs[1].value), (&b"b"[..], &b""[..]));
        assert!(
            config.mounts[0].readonly && config.mounts[0].host_path == "/h" && !config.mounts[1].readonly
        );
        for other in
            ["", "[]", r#"{"sandboxID":"s"}"#, r#"{"config":null}"#, r#"{"config":{"command":"sh"}}"#]
        {
            assert!(container_config(other).is_none(), "{other}");
        }
    }
}
