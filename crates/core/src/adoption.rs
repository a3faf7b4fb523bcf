//! Whether a container that another kubelet made was made from what a manifest says.
//!
//! The Go kubelet's own hash of a container covers its name and image alone. What else it was made from the runtime may
//! tell: its command, its arguments, its environment and its mounts, which follow from the manifest and from little else.

use std::collections::{BTreeMap, BTreeSet};

use crablet_api::Text;
use crablet_api::core::{Container, Pod, Volume, VolumeSource};
use crablet_cri_api::v1;

use crate::translate::{ETC_HOSTS, absolute, expand};

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
    if !is_same {
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
        ] {
            assert!(SPEC.contains(old), "{old}");
            check(&SPEC.replacen(old, new, 1), |_| {}, Fit::Differs);
        }
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
