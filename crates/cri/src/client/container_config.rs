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
    linux: Option<Linux>,
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

#[derive(Deserialize, Default)]
#[serde(default)]
struct Linux {
    resources: Option<Resources>,
    security_context: Option<SecurityContext>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Resources {
    cpu_period: i64,
    cpu_quota: i64,
    cpu_shares: i64,
    memory_limit_in_bytes: i64,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SecurityContext {
    capabilities: Option<Capabilities>,
    privileged: bool,
    run_as_user: Option<Number>,
    run_as_group: Option<Number>,
    readonly_rootfs: bool,
    no_new_privs: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Capabilities {
    add_capabilities: Vec<String>,
    drop_capabilities: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Number {
    value: i64,
}

impl From<Linux> for v1::LinuxContainerConfig {
    fn from(linux: Linux) -> v1::LinuxContainerConfig {
        let number = |Number { value }| v1::Int64Value { value };
        v1::LinuxContainerConfig {
            resources: linux.resources.map(|had| v1::LinuxContainerResources {
                cpu_period: had.cpu_period,
                cpu_quota: had.cpu_quota,
                cpu_shares: had.cpu_shares,
                memory_limit_in_bytes: had.memory_limit_in_bytes,
                ..v1::LinuxContainerResources::default()
            }),
            security_context: linux.security_context.map(|had| v1::LinuxContainerSecurityContext {
                capabilities: had.capabilities.map(|given| v1::Capability {
                    add_capabilities: given.add_capabilities,
                    drop_capabilities: given.drop_capabilities,
                    ..v1::Capability::default()
                }),
                privileged: had.privileged,
                run_as_user: had.run_as_user.map(number),
                run_as_group: had.run_as_group.map(number),
                readonly_rootfs: had.readonly_rootfs,
                no_new_privs: had.no_new_privs,
                ..v1::LinuxContainerSecurityContext::default()
            }),
        }
    }
}

/// What a container was made from, where the text says it.
pub(super) fn container_config(info: &str) -> Option<v1::ContainerConfig> {
    let Config { command, args, working_dir, envs, mounts, linux } =
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
        linux: linux.map(v1::LinuxContainerConfig::from),
        ..v1::ContainerConfig::default()
    })
}

/// The image of a sandbox, where the text says it. CRI-O uses the same word.
pub(super) fn sandbox_image(info: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Info {
        image: String,
    }
    serde_json::from_str::<Info>(info).ok().map(|info| info.image).filter(|image| !image.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_of_a_sandbox_is_read_where_it_is_told() {
        let info = r#"{"pid":7,"processStatus":"running","image":"example.org/pause:3.10","snapshotter":"overlayfs"}"#;
        assert_eq!(sandbox_image(info).as_deref(), Some("example.org/pause:3.10"));
        for other in ["", "{}", r#"{"image":""}"#, r#"{"image":{"image":"x"}}"#] {
            assert_eq!(sandbox_image(other), None, "{other}");
        }
    }

    #[test]
    fn what_containerd_tells_is_read_and_what_others_tell_is_none() {
        let info = r#"{"sandboxID":"s","pid":7,"config":{"metadata":{"name":"c"},"image":{"image":"i"},
            "command":["sh","-c"],"args":["true"],"envs":[{"key":"A","value":"b"},{"key":"EMPTY"}],
            "mounts":[{"container_path":"/c","host_path":"/h","readonly":true},{"container_path":"/d"}],
            "linux":{"resources":{"cpu_period":100000,"cpu_quota":5000,"cpu_shares":51,"memory_limit_in_bytes":64,
            "unified":{"memory.oom.group":"1"}},"security_context":{"namespace_options":{"pid":1},"privileged":true,
            "run_as_user":{},"run_as_group":{"value":7},"capabilities":{"drop_capabilities":["ALL"]}}}},
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
        let linux = config.linux.unwrap();
        let (resources, context) = (linux.resources.unwrap(), linux.security_context.unwrap());
        assert_eq!(
            (resources.cpu_quota, resources.cpu_shares, resources.memory_limit_in_bytes),
            (5000, 51, 64)
        );
        assert!(context.privileged && !context.readonly_rootfs);
        let number = |number: Option<v1::Int64Value>| number.unwrap().value;
        assert_eq!((number(context.run_as_user), number(context.run_as_group)), (0, 7));
        assert_eq!(context.capabilities.unwrap().drop_capabilities, ["ALL"]);
        for other in
            ["", "[]", r#"{"sandboxID":"s"}"#, r#"{"config":null}"#, r#"{"config":{"command":"sh"}}"#]
        {
            assert!(container_config(other).is_none(), "{other}");
        }
    }
}
