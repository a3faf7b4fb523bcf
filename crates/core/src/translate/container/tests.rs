use std::collections::BTreeMap;

use crablet_api::Gate;
use crablet_api::testing::pod_yaml;

use super::*;
use crate::testing::{Described as _, container, observed};
use crate::translate::MountedVolume;
use crate::translate::environment::{EnvironmentInput, Objects};
use crate::translate::testing::node;

fn pod(spec: &str, container: &str) -> Pod {
    pod_yaml(&format!(
        "metadata: {{name: p, namespace: ns, uid: u}}
spec:
  enableServiceLinks: false
  securityContext: {{}}
  {spec}
  containers:
  - name: c
    image: busybox
    {container}
"
    ))
}

fn made_on(
    node: &NodeContext,
    pod: &Pod,
    change: impl FnOnce(&mut ContainerInput<'_>),
) -> Result<v1::ContainerConfig, ContainerRefusal> {
    let container = &pod.spec.containers[0];
    let environment = Environment::of_container(&EnvironmentInput {
        pod,
        container,
        node,
        pod_ips: &[],
        services: &[],
        services_read: true,
        objects: &Objects::default(),
        files: &[],
        granted: &[],
    })?;
    let (volumes, sub_paths) = (BTreeMap::new(), BTreeMap::new());
    let granted = Granted {
        annotations: vec![("vendor/a".to_owned(), "1".to_owned())],
        mounts: vec![v1::Mount { container_path: "/vendor".to_owned(), ..v1::Mount::default() }],
        devices: vec![v1::Device { container_path: "/dev/v".to_owned(), ..v1::Device::default() }],
        cdi_devices: vec!["vendor.com/gpu=0".to_owned()],
        cpus: "1-2".to_owned(),
        memory_nodes: "0".to_owned(),
        exclusive_cpus: true,
    };
    let mapping = v1::IdMapping { host_id: 65536, container_id: 0, length: 65536 };
    let users = UserNamespaces::Mapped { uids: vec![mapping], gids: vec![mapping] };
    let mut input = ContainerInput {
        pod,
        container,
        node,
        restart_count: 3,
        image_ref: "sha256:1",
        image_user: None,
        mounts: MountInput {
            volumes: &volumes,
            sub_paths: &sub_paths,
            etc_hosts: "/hosts",
            has_address: true,
            termination_log: None,
            recursive_read_only: false,
        },
        runtime_handler: "",
        users: &users,
        extra_groups: &[],
        target: None,
        granted: &granted,
    };
    change(&mut input);
    super::container(&input, environment)
}

fn made(spec: &str, container: &str) -> v1::ContainerConfig {
    made_on(&node(), &pod(spec, container), |_| {}).unwrap()
}

#[test]
fn a_container_has_its_name_its_image_and_its_log() {
    let config = made("", "workingDir: /w\n    stdin: true\n    stdinOnce: true\n    tty: true");
    let metadata = config.metadata.unwrap();
    assert_eq!((metadata.name.as_str(), metadata.attempt), ("c", 3));
    let image = config.image.unwrap();
    assert_eq!((image.image.as_str(), image.user_specified_image.as_str()), ("sha256:1", "busybox"));
    assert_eq!((config.log_path.as_str(), config.working_dir.as_str()), ("c/3.log", "/w"));
    assert!(config.stdin && config.stdin_once && config.tty);
    assert_eq!(config.annotations["io.kubernetes.container.restartCount"], "3");
    assert_eq!(config.labels["io.kubernetes.container.name"], "c");
}

#[test]
fn commands_see_the_environment() {
    let config = made("", "env: [{name: A, value: a}]\n    command: [x, $(A)]\n    args: [$$(A), $(B)]");
    assert_eq!(
        (config.command, config.args),
        (vec!["x".into(), "a".into()], vec!["$(A)".into(), "$(B)".to_owned()])
    );
    assert_eq!(config.envs.len(), 1);
}

#[test]
fn what_was_granted_is_given() {
    let config = made("", "resources: {limits: {cpu: 2, memory: 1Gi}}");
    assert_eq!(config.annotations["vendor/a"], "1");
    assert_eq!(config.mounts[0].container_path, "/vendor");
    assert_eq!(config.devices[0].container_path, "/dev/v");
    assert_eq!(config.cdi_devices[0].name, "vendor.com/gpu=0");
    let resources = config.linux.unwrap().resources.unwrap();
    assert_eq!((resources.cpuset_cpus.as_str(), resources.cpuset_mems.as_str()), ("1-2", "0"));
    assert_eq!(resources.cpu_quota, -1);
}

#[test]
fn a_container_can_look_into_another_unless_it_sees_all_anyway() {
    let namespaces = |spec: &str| {
        let config = made_on(&node(), &pod(spec, ""), |input| input.target = Some("id")).unwrap();
        let options = config.linux.unwrap().security_context.unwrap().namespace_options.unwrap();
        (options.pid(), options.target_id)
    };
    assert_eq!(namespaces(""), (v1::NamespaceMode::Target, "id".to_owned()));
    assert_eq!(namespaces("shareProcessNamespace: true"), (v1::NamespaceMode::Pod, String::new()));
    assert_eq!(namespaces("hostPID: true"), (v1::NamespaceMode::Node, String::new()));
}

#[test]
fn mounts_are_mapped_to_the_users_of_the_pod() {
    let config = made("hostUsers: false", "");
    assert!(config.mounts.iter().all(|mount| mount.uid_mappings.len() == 1 && mount.gid_mappings.len() == 1));
    let config = made("", "");
    assert!(config.mounts.iter().all(|mount| mount.uid_mappings.is_empty()));
}

#[test]
fn an_image_that_is_mounted_names_the_handler_only_where_its_feature_is_on() {
    let pod = pod("", "volumeMounts: [{name: v, mountPath: /v}]");
    let image = MountedVolume::Image(v1::ImageSpec { image: "i".to_owned(), ..v1::ImageSpec::default() });
    let volumes: &'static _ = Box::leak(Box::new(BTreeMap::from([("v", image)])));
    let mut node = node();
    for (is_on, expected) in [(false, ""), (true, "kata")] {
        node.features = node.features.with(Gate::RuntimeClassInImageCriApi, is_on);
        let config = made_on(&node, &pod, |input| {
            input.runtime_handler = "kata";
            input.mounts.volumes = volumes;
        });
        let mounts = config.unwrap().mounts;
        let image = mounts.iter().find_map(|mount| mount.image.as_ref()).unwrap();
        assert_eq!(image.runtime_handler, expected);
    }
}

#[test]
fn a_stop_signal_is_set_only_where_its_feature_is_on() {
    let pod = pod("", "lifecycle: {stopSignal: SIGUSR1}");
    let mut node = node();
    assert_eq!(made_on(&node, &pod, |_| {}).unwrap().stop_signal(), v1::Signal::RuntimeDefault);
    node.features = node.features.with(Gate::ContainerStopSignals, true);
    assert_eq!(made_on(&node, &pod, |_| {}).unwrap().stop_signal(), v1::Signal::Sigusr1);
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |spec: &str, container: &str| {
        made_on(&node(), &pod(spec, container), |_| {}).unwrap_err().to_string()
    };
    assert!(refused("hostNetwork: true\n  hostname: NOT_ONE", "").starts_with("pod Hostname \"NOT_ONE\""));
    assert_eq!(
        refused("", "securityContext: {runAsNonRoot: true}"),
        "container has runAsNonRoot and image will run as root (pod: \"p_ns(u)\", container: c)"
    );
    assert_eq!(
        refused("", "volumeDevices: [{name: v, devicePath: /dev/x}]"),
        "cannot find volume \"v\" to pass into container \"c\""
    );
    assert_eq!(ContainerRefusal::REASON, "CreateContainerConfigError");
}

#[test]
fn an_ephemeral_container_sees_the_processes_of_the_container_that_it_names() {
    let pod = pod_yaml(
        "metadata: {name: p, uid: u}
spec:
  containers: [{name: c}, {name: gone}]
  ephemeralContainers: [{name: debug, targetContainerName: c}, {name: lost, targetContainerName: gone}, {name: alone}]",
    );
    let observed = observed(&pod, [container("c", 0).exited(1), container("c", 1).running()]);
    let ephemeral = |index: usize| &pod.spec.ephemeral_containers[index].container;
    assert_eq!(target(&pod, ephemeral(0), &observed), Ok(Some("c-1")));
    assert_eq!(
        target(&pod, ephemeral(1), &observed).unwrap_err().to_string(),
        "unable to find target container gone"
    );
    assert_eq!(target(&pod, ephemeral(2), &observed), Ok(None));
    assert_eq!(target(&pod, &pod.spec.containers[0], &observed), Ok(None));
}
