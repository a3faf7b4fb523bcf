//! Whether a container that another kubelet made was made from what a manifest says.
//!
//! The Go kubelet's own hash of a container covers its name and image alone. What else it was made from the runtime may
//! tell: its command, its arguments, its environment, its mounts, what it may use and what it may do, which follow from
//! the manifest and from little else.

use std::collections::{BTreeMap, BTreeSet};

use crablet_api::Text;
use crablet_api::core::{Container, Pod, Volume, VolumeSource};
use crablet_cri_api::v1;

use crate::qos::quantity;
use crate::translate::{ETC_HOSTS, absolute, cpu_quota, cpu_shares, expand};

/// How well a container fits a manifest. Of several, the last one counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// It is what the manifest asks for, as far as can be seen.
    Fits,
    /// It has something that the manifest does not ask for, and that somebody else may have added.
    CannotTell,
    /// The manifest asks for something else.
    Differs,
}

/// Compares a container of a pod with what it was made from, as the runtime tells it.
pub fn fit(pod: &Pod, container: &Container, made_from: &v1::ContainerConfig) -> Fit {
    let had: BTreeMap<&str, &[u8]> =
        made_from.envs.iter().map(|variable| (variable.key.as_str(), variable.value.as_slice())).collect();
    let is_same = made_from.working_dir == *container.working_dir
        && words_fit(&container.command, &made_from.command, &had)
        && words_fit(&container.args, &made_from.args, &had);
    let linux = made_from.linux.as_ref();
    let resources = linux.and_then(|linux| linux.resources.as_ref());
    let context = linux.and_then(|linux| linux.security_context.as_ref());
    if !is_same
        || resources.is_some_and(|had| !resources_fit(pod, container, had))
        || context.is_some_and(|had| !security_fits(pod, container, had))
    {
        return Fit::Differs;
    }
    environment_fit(container, &had).max(mounts_fit(pod, container, &made_from.mounts))
}

/// Whether words became these when the variables in them were replaced.
fn words_fit(wanted: &[Text], had: &[String], variables: &BTreeMap<&str, &[u8]>) -> bool {
    let expanded = |word: &Text| {
        expand(word, |name, out| match variables.get(name) {
            Some(value) => {
                out.extend_from_slice(value);
                true
            }
            None => false,
        })
    };
    wanted.len() == had.len()
        && wanted.iter().zip(had).all(|(wanted, had)| expanded(wanted) == had.as_bytes())
}

/// Whether a container may use what the manifest says. What a quota depends on beside that is told with it.
fn resources_fit(pod: &Pod, container: &Container, had: &v1::LinuxContainerResources) -> bool {
    // Whether those of the pod as a whole counted depends on how its kubelet was set up.
    if pod.spec.resources.is_some() {
        return true;
    }
    let own = &container.resources;
    let cpu_limit = quantity(&own.limits, "cpu");
    let cpu_request = own.requests.get("cpu").unwrap_or(&cpu_limit);
    // There is no period where nothing has a quota, and one below zero for who has CPUs of its own.
    let has_quota = had.cpu_period > 0 && had.cpu_quota >= 0;
    had.memory_limit_in_bytes == quantity(&own.limits, "memory").value()
        && had.cpu_shares == cpu_shares(cpu_request.milli_value())
        && (!has_quota || had.cpu_quota == cpu_quota(cpu_limit.milli_value(), had.cpu_period))
}

/// Whether a container may do what the manifest says. Where that names no user, the image does.
fn security_fits(pod: &Pod, container: &Container, had: &v1::LinuxContainerSecurityContext) -> bool {
    let (own, whole) = (container.security_context.as_deref(), pod.spec.security_context.as_deref());
    let user = own.and_then(|own| own.run_as_user).or(whole.and_then(|pod| pod.run_as_user));
    let group = own.and_then(|own| own.run_as_group).or(whole.and_then(|pod| pod.run_as_group));
    let number = |number: Option<&v1::Int64Value>| number.map(|number| number.value);
    let capabilities = own.and_then(|own| own.capabilities.as_ref());
    let (add, drop) = capabilities.map(|wanted| (&*wanted.add, &*wanted.drop)).unwrap_or_default();
    let given = had.capabilities.as_ref();
    let is_given = |wanted: &[Text], given: Option<&Vec<String>>| {
        wanted.iter().map(Text::as_str).eq(given.into_iter().flatten().map(String::as_str))
    };
    had.privileged == (own.and_then(|own| own.privileged) == Some(true))
        && had.readonly_rootfs == (own.and_then(|own| own.read_only_root_filesystem) == Some(true))
        && had.no_new_privs == (own.and_then(|own| own.allow_privilege_escalation) == Some(false))
        && (user.is_none() || user == number(had.run_as_user.as_ref()))
        && group == number(had.run_as_group.as_ref())
        && is_given(add, given.map(|given| &given.add_capabilities))
        && is_given(drop, given.map(|given| &given.drop_capabilities))
}

fn environment_fit(container: &Container, had: &BTreeMap<&str, &[u8]>) -> Fit {
    let wanted: BTreeMap<&str, _> =
        container.env.iter().map(|variable| (variable.name.as_str(), variable)).collect();
    for (name, variable) in &wanted {
        // What refers to something else may have had another value, or none.
        let is_plain = variable.value_from.is_none() && !variable.value.contains('$');
        if is_plain && had.get(name) != Some(&variable.value.as_bytes()) {
            return Fit::Differs;
        }
    }
    let is_explained = |name: &str| wanted.contains_key(name) || is_of_service(name);
    match container.env_from.is_empty() && !had.keys().all(|name| is_explained(name)) {
        true => Fit::CannotTell,
        false => Fit::Fits,
    }
}

/// Whether a variable may be one of those that tell of a service.
fn is_of_service(name: &str) -> bool {
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.ends_with("_PORT")
        || name.contains("_PORT_")
}

fn mounts_fit(pod: &Pod, container: &Container, had: &[v1::Mount]) -> Fit {
    let had: BTreeMap<&str, &v1::Mount> =
        had.iter().map(|mount| (mount.container_path.as_str(), mount)).collect();
    let mut explained = BTreeSet::from([ETC_HOSTS.to_owned(), absolute(&container.termination_message_path)]);
    for wanted in &container.volume_mounts {
        let path = absolute(&wanted.mount_path);
        let found = had.get(path.as_str()).or_else(|| had.get(wanted.mount_path.as_str()));
        let Some(mount) = found else { return Fit::Differs };
        explained.insert(mount.container_path.clone());
        let volume = pod.spec.volumes.iter().find(|volume| volume.name == wanted.name);
        let is_whole = wanted.sub_path.is_empty() && wanted.sub_path_expr.is_empty();
        match volume.and_then(|volume: &Volume| volume.source.one()) {
            Some(VolumeSource::HostPath(host)) => {
                let is_other = is_whole && absolute(&host.path) != absolute(&mount.host_path);
                if is_other || wanted.read_only != mount.readonly {
                    return Fit::Differs;
                }
            }
            // Others may be read-only without being asked.
            Some(_) | None if wanted.read_only && !mount.readonly => return Fit::Differs,
            Some(_) | None => {}
        }
    }
    match had.keys().all(|path| explained.contains(*path)) {
        true => Fit::Fits,
        false => Fit::CannotTell,
    }
}

#[cfg(test)]
mod tests {
    use crablet_api::testing::pod_yaml;

    use super::*;

    const SPEC: &str = "{volumes: [{name: h, hostPath: {path: /data/}}, {name: e, emptyDir: {}}, \
                        {name: s, secret: {secretName: s}}], containers: [{name: c, image: i, \
                        terminationMessagePath: /dev/termination-log, workingDir: /w, \
                        resources: {limits: {cpu: 1, memory: 64Mi}, requests: {cpu: 500m, memory: 32Mi}}, \
                        securityContext: {runAsGroup: 7, capabilities: {add: [NET_ADMIN]}}, \
                        command: [sh, -c, 'echo $(WHO) $$(WHO) $(NOBODY)'], args: [a], \
                        env: [{name: WHO, value: world}, {name: TWICE, value: $(WHO)}], \
                        volumeMounts: [{name: h, mountPath: /data}, {name: e, mountPath: /e, subPath: x}, \
                        {name: s, mountPath: /s}]}]}";

    fn pod(spec: &str) -> Pod {
        pod_yaml(&format!("metadata: {{name: p, uid: u}}\nspec: {spec}"))
    }

    fn mount(container_path: &str, host_path: &str, readonly: bool) -> v1::Mount {
        let (container_path, host_path) = (container_path.to_owned(), host_path.to_owned());
        v1::Mount { container_path, host_path, readonly, ..v1::Mount::default() }
    }

    fn variable(key: &str, value: &str) -> v1::KeyValue {
        v1::KeyValue { key: key.to_owned(), value: value.into() }
    }

    /// What the Go kubelet makes of it.
    fn made_from() -> v1::ContainerConfig {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        v1::ContainerConfig {
            command: words(&["sh", "-c", "echo world $(WHO) $(NOBODY)"]),
            args: words(&["a"]),
            working_dir: "/w".to_owned(),
            envs: vec![
                variable("WHO", "world"),
                variable("TWICE", "world"),
                variable("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
                variable("KUBERNETES_SERVICE_PORT_HTTPS", "443"),
                variable("KUBERNETES_PORT", "tcp://10.0.0.1:443"),
                variable("KUBERNETES_PORT_443_TCP_ADDR", "10.0.0.1"),
            ],
            mounts: vec![
                mount("/data", "/data", false),
                mount("/e", "/k/pods/u/volume-subpaths/e/c/1", false),
                mount("/s", "/k/pods/u/volumes/kubernetes.io~secret/s", true),
                mount("/etc/hosts", "/k/pods/u/etc-hosts", false),
                mount("/dev/termination-log", "/k/pods/u/containers/c/1f", false),
            ],
            linux: Some(v1::LinuxContainerConfig {
                resources: Some(v1::LinuxContainerResources {
                    cpu_period: 100_000,
                    cpu_quota: 100_000,
                    cpu_shares: 512,
                    memory_limit_in_bytes: 64 << 20,
                    ..v1::LinuxContainerResources::default()
                }),
                security_context: Some(v1::LinuxContainerSecurityContext {
                    run_as_user: Some(v1::Int64Value { value: 1000 }),
                    run_as_group: Some(v1::Int64Value { value: 7 }),
                    capabilities: Some(v1::Capability {
                        add_capabilities: words(&["NET_ADMIN"]),
                        ..v1::Capability::default()
                    }),
                    ..v1::LinuxContainerSecurityContext::default()
                }),
            }),
            ..v1::ContainerConfig::default()
        }
    }

    #[track_caller]
    fn check(spec: &str, edit: impl FnOnce(&mut v1::ContainerConfig), expected: Fit) {
        let (pod, mut made_from) = (pod(spec), made_from());
        edit(&mut made_from);
        assert_eq!(fit(&pod, &pod.spec.containers[0], &made_from), expected, "{spec}");
    }

    #[test]
    fn a_container_fits_the_manifest_that_it_was_made_from() {
        check(SPEC, |_| {}, Fit::Fits);
    }

    #[test]
    fn an_edited_manifest_does_not_fit() {
        for (old, new) in [
            ("args: [a]", "args: [b]"),
            ("args: [a]", "args: []"),
            ("[sh, -c", "[sh, -ec"),
            ("workingDir: /w", "workingDir: /x"),
            ("value: world", "value: moon"),
            ("env: [", "env: [{name: NEW, value: x}, "),
            ("path: /data/", "path: /other"),
            ("mountPath: /data", "mountPath: /elsewhere"),
            ("mountPath: /data", "mountPath: /data, readOnly: true"),
            ("mountPath: /e,", "mountPath: /e, readOnly: true,"),
            ("memory: 64Mi", "memory: 65Mi"),
            ("{cpu: 1, memory: 64Mi}", "{cpu: 1}"),
            ("{cpu: 1, ", "{cpu: 2, "),
            ("{cpu: 1, ", "{"),
            ("cpu: 500m", "cpu: 400m"),
            ("securityContext: {", "securityContext: {privileged: true, "),
            ("securityContext: {", "securityContext: {readOnlyRootFilesystem: true, "),
            ("securityContext: {", "securityContext: {allowPrivilegeEscalation: false, "),
            ("securityContext: {", "securityContext: {runAsUser: 1001, "),
            ("runAsGroup: 7, ", ""),
            ("{volumes", "{securityContext: {runAsUser: 1001}, volumes"),
            ("add: [NET_ADMIN]", "add: [NET_ADMIN, SYS_TIME]"),
            ("add: [NET_ADMIN]", "add: [NET_ADMIN], drop: [ALL]"),
            (", capabilities: {add: [NET_ADMIN]}", ""),
        ] {
            assert!(SPEC.contains(old), "{old}");
            check(&SPEC.replacen(old, new, 1), |_| {}, Fit::Differs);
        }
    }

    #[test]
    fn what_follows_from_how_its_kubelet_was_set_up_is_no_difference() {
        let resources = |made: &mut v1::ContainerConfig, period, quota| {
            let resources = made.linux.as_mut().unwrap().resources.as_mut().unwrap();
            (resources.cpu_period, resources.cpu_quota) = (period, quota);
        };
        // Quotas by another period, none at all, and CPUs of its own.
        for (period, quota) in [(50_000, 50_000), (0, 0), (100_000, -1)] {
            check(SPEC, |made| resources(made, period, quota), Fit::Fits);
        }
        let named = SPEC.replace("securityContext: {", "securityContext: {runAsUser: 1000, ");
        check(&named, |_| {}, Fit::Fits);
        let whole = SPEC.replace("{volumes", "{resources: {limits: {memory: 1Gi}}, volumes");
        check(&whole.replace("memory: 64Mi", "memory: 65Mi"), |_| {}, Fit::Fits);
        // One that does not tell.
        let unlimited = SPEC.replace("memory: 64Mi", "memory: 65Mi");
        check(&unlimited, |made| made.linux = None, Fit::Fits);
    }

    #[test]
    fn what_somebody_else_may_have_added_says_nothing() {
        check(SPEC, |made| made.envs.push(variable("NVIDIA_VISIBLE_DEVICES", "0")), Fit::CannotTell);
        check(SPEC, |made| made.mounts.push(mount("/dev/x", "/dev/x", false)), Fit::CannotTell);
        // Whatever is in a config map.
        let with_map = SPEC.replace("env: [", "envFrom: [{configMapRef: {name: m}}], env: [");
        check(&with_map, |made| made.envs.push(variable("FROM_MAP", "x")), Fit::Fits);
    }
}
