use crablet_api::Gate;
use crablet_api::testing::pod_yaml;

use super::*;
use crate::translate::environment::{EnvironmentInput, Objects};
use crate::translate::testing::node;

fn pod(mounts: &str) -> Pod {
    pod_yaml(&format!(
        "metadata: {{name: p, namespace: ns, uid: u}}
spec:
  enableServiceLinks: false
  containers:
  - name: c
    terminationMessagePath: /dev/termination-log
    env: [{{name: A, value: a}}, {{name: EMPTY}}, {{name: UP, value: ..}}]
    {mounts}
"
    ))
}

fn environment(pod: &Pod) -> Environment {
    Environment::of_container(&EnvironmentInput {
        pod,
        container: &pod.spec.containers[0],
        node: &node(),
        pod_ips: &[],
        services: &[],
        services_read: true,
        objects: &Objects::default(),
        files: &[],
        granted: &[],
    })
    .unwrap()
}

fn volumes() -> BTreeMap<&'static str, MountedVolume> {
    let files = |path: &str, read_only| MountedVolume::Files {
        host_path: path.to_owned(),
        read_only,
        relabel: !read_only,
    };
    let image = v1::ImageSpec { image: "sha256:1".to_owned(), ..v1::ImageSpec::default() };
    BTreeMap::from([
        ("v", files("/host/v", false)),
        ("ro", files("/host/ro", true)),
        ("image", MountedVolume::Image(image)),
        ("disk", MountedVolume::Device { host_path: Some("/dev/sdx".to_owned()), read_only: false }),
        ("rodisk", MountedVolume::Device { host_path: Some("/dev/sdy".to_owned()), read_only: true }),
        ("absent", MountedVolume::Device { host_path: None, read_only: false }),
    ])
}

fn made_on(
    node: &NodeContext,
    mounts: &str,
    change: impl FnOnce(&mut Pod),
) -> Result<Vec<v1::Mount>, String> {
    let mut pod = pod(&format!("volumeMounts: [{mounts}]"));
    change(&mut pod);
    let volumes = volumes();
    let sub_paths = BTreeMap::from([(0, "/host/sub/0".to_owned())]);
    let input = MountInput {
        volumes: &volumes,
        sub_paths: &sub_paths,
        etc_hosts: "/pods/u/etc-hosts",
        has_address: true,
        termination_log: Some("/pods/u/containers/c/1234"),
        recursive_read_only: true,
    };
    let container = &pod.spec.containers[0];
    of_container(&pod, container, &environment(&pod), &input, node).map_err(|refusal| refusal.to_string())
}

/// The mounts before `/etc/hosts` and the termination log, in short.
fn made(mounts: &str) -> String {
    match made_on(&node(), mounts, |_| {}) {
        Err(refusal) => refusal,
        Ok(mounts) => mounts[..mounts.len() - 2]
            .iter()
            .map(|mount| {
                let read_only = match (mount.readonly, mount.recursive_read_only) {
                    (true, true) => " rro",
                    (true, false) => " ro",
                    (false, _) => "",
                };
                let image =
                    mount.image.as_ref().map(|image| format!("{}#{}", image.image, mount.image_sub_path));
                format!(
                    "{}{} on {}{read_only}{}",
                    mount.host_path,
                    image.unwrap_or_default(),
                    mount.container_path,
                    match mount.propagation() {
                        v1::MountPropagation::PropagationPrivate => "",
                        v1::MountPropagation::PropagationHostToContainer => " slave",
                        v1::MountPropagation::PropagationBidirectional => " shared",
                    }
                )
            })
            .collect::<Vec<_>>()
            .join(", "),
    }
}

#[test]
fn volumes_are_mounted_where_the_container_wants_them() {
    for (mounts, expected) in [
        ("{name: v, mountPath: /data}", "/host/v on /data"),
        ("{name: v, mountPath: data/../x}", "/host/v on /x"),
        ("{name: v, mountPath: /data, readOnly: true}", "/host/v on /data ro"),
        ("{name: ro, mountPath: /data}", "/host/ro on /data ro"),
        ("{name: v, mountPath: /a, mountPropagation: HostToContainer}", "/host/v on /a slave"),
        ("{name: v, mountPath: /a, mountPropagation: Bidirectional}", "/host/v on /a shared"),
        ("{name: v, mountPath: /a, mountPropagation: None}", "/host/v on /a"),
        ("{name: v, mountPath: /a, mountPropagation: Odd}", "invalid MountPropagation mode: \"Odd\""),
        ("{name: none, mountPath: /a}", "cannot find volume \"none\" to mount into container \"c\""),
        ("{name: disk, mountPath: /a}", "cannot find volume \"disk\" to mount into container \"c\""),
        ("{name: image, mountPath: /a, subPath: x/y}", "sha256:1#x/y on /a ro"),
        ("{name: image, mountPath: /a}", "sha256:1# on /a ro"),
    ] {
        assert_eq!(made(mounts), expected, "{mounts}");
    }
}

#[test]
fn sub_paths_stay_within_their_volume() {
    for (mounts, expected) in [
        ("{name: v, mountPath: /a, subPath: x}", "/host/sub/0 on /a"),
        ("{name: v, mountPath: /a, subPathExpr: $(A)/x}", "/host/sub/0 on /a"),
        ("{name: v, mountPath: /a, subPath: /x}", "error SubPath `/x` must not be an absolute path"),
        (
            "{name: v, mountPath: /a, subPath: x/../y}",
            "unable to provision SubPath `x/../y`: must not contain '..'",
        ),
        (
            "{name: v, mountPath: /a, subPathExpr: $(UP)/x}",
            "unable to provision SubPath `../x`: must not contain '..'",
        ),
        ("{name: v, mountPath: /a, subPathExpr: $(B)$(A)$(EMPTY)$(B)}", "missing value for B, EMPTY"),
        (
            "{name: v, mountPath: /a}, {name: v, mountPath: /b, subPath: x}",
            "failed to prepare subPath for volumeMount \"v\" of container \"c\"",
        ),
    ] {
        assert_eq!(made(mounts), expected, "{mounts}");
    }
    let pod = pod("volumeMounts: [{name: v, mountPath: /a, subPathExpr: x$$(A)/$(A)}]");
    let path = sub_path(&pod.spec.containers[0].volume_mounts[0], &environment(&pod)).unwrap();
    assert_eq!(path.as_deref(), Some("x$(A)/a"));
}

#[test]
fn read_only_all_the_way_down_must_be_possible() {
    let rro = |rest: &str| made(&format!("{{name: v, mountPath: /a, {rest}}}"));
    assert_eq!(rro("readOnly: true, recursiveReadOnly: Enabled"), "/host/v on /a rro");
    assert_eq!(rro("readOnly: true, recursiveReadOnly: IfPossible"), "/host/v on /a rro");
    assert_eq!(rro("readOnly: true, recursiveReadOnly: Disabled"), "/host/v on /a ro");
    assert_eq!(
        rro("recursiveReadOnly: Enabled"),
        "failed to resolve recursive read-only mode: volume \"v\" requested recursive read-only mode, but it is not \
         read-only"
    );
    assert_eq!(
        rro("readOnly: true, recursiveReadOnly: Enabled, mountPropagation: Bidirectional"),
        "failed to resolve recursive read-only mode: volume \"v\" requested recursive read-only mode, but it is not \
         compatible with propagation \"Bidirectional\""
    );
    assert_eq!(
        rro("readOnly: true, recursiveReadOnly: Odd"),
        "failed to resolve recursive read-only mode: unknown recursive read-only mode \"Odd\""
    );
    let unsupported = VolumeMount {
        name: "v".into(),
        read_only: true,
        recursive_read_only: Some(RecursiveReadOnlyMode::Enabled),
        ..VolumeMount::default()
    };
    assert_eq!(
        recursive_read_only(&unsupported, false).unwrap_err().to_string(),
        "volume \"v\" requested recursive read-only mode, but it is not supported by the runtime"
    );
    let possible =
        VolumeMount { recursive_read_only: Some(RecursiveReadOnlyMode::IfPossible), ..unsupported };
    assert!(!recursive_read_only(&possible, false).unwrap());
    let mut off = node();
    off.features = off.features.with(Gate::RecursiveReadOnlyMounts, false);
    let mount = "{name: v, mountPath: /a, readOnly: true, recursiveReadOnly: Enabled}";
    assert_eq!(
        made_on(&off, mount, |_| {}).unwrap_err(),
        "recursive read-only mount needs feature gate \"RecursiveReadOnlyMounts\" to be enabled"
    );
}

#[test]
fn an_image_is_mounted_only_where_the_feature_is_on() {
    let mut off = node();
    off.features = off.features.with(Gate::ImageVolume, false);
    let refused = made_on(&off, "{name: image, mountPath: /a}", |_| {}).unwrap_err();
    assert_eq!(refused, "cannot find volume \"image\" to mount into container \"c\"");
}

fn paths(mounts: &[v1::Mount]) -> Vec<&str> {
    mounts.iter().map(|mount| mount.container_path.as_str()).collect()
}

#[test]
fn hosts_and_the_termination_message_come_after_volumes() {
    let mounts = made_on(&node(), "{name: v, mountPath: /a}", |_| {}).unwrap();
    assert_eq!(paths(&mounts), ["/a", "/etc/hosts", "/dev/termination-log"]);
    assert_eq!(mounts[1].host_path, "/pods/u/etc-hosts");
    assert_eq!(mounts[2].host_path, "/pods/u/containers/c/1234");
    let own = made_on(&node(), "{name: v, mountPath: /etc/hosts}", |_| {}).unwrap();
    assert_eq!(paths(&own), ["/etc/hosts", "/dev/termination-log"]);
    let relative =
        made_on(&node(), "", |pod| pod.spec.containers[0].termination_message_path = "log".into()).unwrap();
    assert_eq!(paths(&relative), ["/etc/hosts", "/log"]);
    let none =
        made_on(&node(), "", |pod| pod.spec.containers[0].termination_message_path = "".into()).unwrap();
    assert_eq!(paths(&none), ["/etc/hosts"]);
}

#[test]
fn a_pod_without_an_address_has_hosts_only_on_the_nodes_network() {
    let volumes = BTreeMap::new();
    let sub_paths = BTreeMap::new();
    let input = MountInput {
        volumes: &volumes,
        sub_paths: &sub_paths,
        etc_hosts: "/hosts",
        has_address: false,
        termination_log: None,
        recursive_read_only: false,
    };
    let mut pod = pod("");
    let mounts = |pod: &Pod| {
        of_container(pod, &pod.spec.containers[0], &environment(pod), &input, &node()).unwrap().len()
    };
    assert_eq!(mounts(&pod), 0);
    pod.spec.host_network = true;
    assert_eq!(mounts(&pod), 1);
}

#[test]
fn labels_are_given_only_where_selinux_is_enabled() {
    let mut node = node();
    let mounts = "{name: v, mountPath: /a}, {name: ro, mountPath: /b}, {name: image, mountPath: /c}";
    let relabelled = |node: &NodeContext| {
        made_on(node, mounts, |_| {}).unwrap().iter().map(|mount| mount.selinux_relabel).collect::<Vec<_>>()
    };
    assert_eq!(relabelled(&node), [false; 5]);
    node.facts.selinux = true;
    assert_eq!(relabelled(&node), [true, false, false, true, true]);
}

#[test]
fn devices_are_passed_in() {
    let made = |devices: &str| {
        let pod = pod(&format!("volumeDevices: [{devices}]"));
        match super::devices(&pod.spec.containers[0], &volumes()) {
            Err(refusal) => refusal.to_string(),
            Ok(devices) => devices
                .iter()
                .map(|device| {
                    format!("{} on {} {}", device.host_path, device.container_path, device.permissions)
                })
                .collect::<Vec<_>>()
                .join(", "),
        }
    };
    assert_eq!(
        made(
            "{name: disk, devicePath: /dev/a}, {name: rodisk, devicePath: /dev/b}, {name: absent, devicePath: /c}"
        ),
        "/dev/sdx on /dev/a mrw, /dev/sdy on /dev/b r"
    );
    assert_eq!(made("{name: disk, devicePath: a}"), "error DevicePath `a` must be an absolute path");
    assert_eq!(made("{name: v, devicePath: /a}"), "cannot find volume \"v\" to pass into container \"c\"");
}
