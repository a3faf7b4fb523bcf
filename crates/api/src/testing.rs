//! Pods for tests, in few words: `pod("web").container("c", "img").restart(RestartPolicy::Never).build()`.

use crate::codec::from_manifest;
use crate::core::{
    Container, EmptyDirVolumeSource, EnvVar, Pod, Probe, RestartPolicy, Toleration, Volume, VolumeMount,
    VolumeSource,
};
use crate::meta::Time;
use crate::text::Text;

/// A pod of that name in the namespace `default`, with a UID made from its name.
pub fn pod(name: &str) -> PodBuilder {
    let mut pod = Pod::default();
    pod.metadata.name = name.into();
    pod.metadata.namespace = "default".into();
    pod.metadata.uid = format!("uid-{name}").into();
    PodBuilder { pod }
}

/// A pod from YAML, whose `apiVersion` and `kind` may be left out. Panics where it is not one.
#[track_caller]
pub fn pod_yaml(text: &str) -> Pod {
    let head = if text.contains("kind:") { "" } else { "apiVersion: v1\nkind: Pod\n" };
    match from_manifest(
        &format!("line {} of", std::panic::Location::caller().line()),
        &format!("{head}{text}"),
    ) {
        Ok((pod, _)) => pod,
        Err(error) => panic!("not a pod: {error}"),
    }
}

/// A pod in the making. What is said of a container is said of the last one that was added.
#[derive(Clone, Debug)]
#[must_use]
pub struct PodBuilder {
    pod: Pod,
}

impl PodBuilder {
    /// Another namespace.
    pub fn namespace(mut self, namespace: &str) -> PodBuilder {
        self.pod.metadata.namespace = namespace.into();
        self
    }

    /// Another UID.
    pub fn uid(mut self, uid: &str) -> PodBuilder {
        self.pod.metadata.uid = uid.into();
        self
    }

    /// One more label.
    pub fn label(mut self, key: &str, value: &str) -> PodBuilder {
        self.pod.metadata.labels.insert(key, value.into());
        self
    }

    /// One more annotation.
    pub fn annotation(mut self, key: &str, value: &str) -> PodBuilder {
        self.pod.metadata.annotations.insert(key, value.into());
        self
    }

    /// The time of creation, in seconds since 1970.
    pub fn created(mut self, seconds: i64) -> PodBuilder {
        self.pod.metadata.creation_timestamp = Some(Time::from_unix_seconds(seconds));
        self
    }

    /// The node it is bound to.
    pub fn node(mut self, name: &str) -> PodBuilder {
        self.pod.spec.node_name = name.into();
        self
    }

    /// When its containers are started again.
    pub fn restart(mut self, policy: RestartPolicy) -> PodBuilder {
        self.pod.spec.restart_policy = Some(policy);
        self
    }

    /// How long it may take to stop, in seconds.
    pub fn grace(mut self, seconds: i64) -> PodBuilder {
        self.pod.spec.termination_grace_period_seconds = Some(seconds);
        self
    }

    /// One more toleration.
    pub fn toleration(mut self, toleration: Toleration) -> PodBuilder {
        push(&mut self.pod.spec.tolerations, toleration);
        self
    }

    /// One more container.
    pub fn container(self, name: &str, image: &str) -> PodBuilder {
        self.with_container(container(name, image))
    }

    /// One more container, made elsewhere.
    pub fn with_container(mut self, container: Container) -> PodBuilder {
        push(&mut self.pod.spec.containers, container);
        self
    }

    /// One more init container.
    pub fn init_container(mut self, name: &str, image: &str) -> PodBuilder {
        push(&mut self.pod.spec.init_containers, container(name, image));
        self
    }

    /// One more sidecar: an init container that goes on running.
    pub fn sidecar(mut self, name: &str, image: &str) -> PodBuilder {
        let sidecar = Container {
            restart_policy: Some(crate::core::ContainerRestartPolicy::Always),
            ..container(name, image)
        };
        push(&mut self.pod.spec.init_containers, sidecar);
        self
    }

    /// The last container's command.
    pub fn command(mut self, words: &[&str]) -> PodBuilder {
        self.last().command = words.iter().map(|word| Text::from(*word)).collect();
        self
    }

    /// One more variable for the last container.
    pub fn env(mut self, name: &str, value: &str) -> PodBuilder {
        let variable = EnvVar { name: name.into(), value: value.into(), ..EnvVar::default() };
        push(&mut self.last().env, variable);
        self
    }

    /// What the last container asks for, such as `("cpu", "100m")`. Panics where that is no quantity.
    pub fn request(mut self, resource: &str, amount: &str) -> PodBuilder {
        self.last().resources.requests.insert(resource, quantity(amount));
        self
    }

    /// What the last container may use at most. Panics where that is no quantity.
    pub fn limit(mut self, resource: &str, amount: &str) -> PodBuilder {
        self.last().resources.limits.insert(resource, quantity(amount));
        self
    }

    /// The last container's liveness probe.
    pub fn liveness(mut self, probe: Probe) -> PodBuilder {
        self.last().liveness_probe = Some(Box::new(probe));
        self
    }

    /// The last container's readiness probe.
    pub fn readiness(mut self, probe: Probe) -> PodBuilder {
        self.last().readiness_probe = Some(Box::new(probe));
        self
    }

    /// The last container's startup probe.
    pub fn startup(mut self, probe: Probe) -> PodBuilder {
        self.last().startup_probe = Some(Box::new(probe));
        self
    }

    /// Where a volume appears in the last container.
    pub fn mount(mut self, volume: &str, path: &str) -> PodBuilder {
        let mount = VolumeMount { name: volume.into(), mount_path: path.into(), ..VolumeMount::default() };
        push(&mut self.last().volume_mounts, mount);
        self
    }

    /// One more volume.
    pub fn volume(mut self, name: &str, source: impl Into<VolumeSource>) -> PodBuilder {
        let volume = Volume { name: name.into(), source: source.into().into() };
        push(&mut self.pod.spec.volumes, volume);
        self
    }

    /// One more volume, an empty directory.
    pub fn empty_dir(self, name: &str) -> PodBuilder {
        self.volume(name, EmptyDirVolumeSource::default())
    }

    /// Any other change.
    pub fn with(mut self, change: impl FnOnce(&mut Pod)) -> PodBuilder {
        change(&mut self.pod);
        self
    }

    pub fn build(self) -> Pod {
        self.pod
    }

    fn last(&mut self) -> &mut Container {
        let spec = &mut self.pod.spec;
        let last = spec.containers.last_mut().or_else(|| spec.init_containers.last_mut());
        last.unwrap_or_else(|| panic!("add a container first"))
    }
}

impl From<PodBuilder> for Pod {
    fn from(builder: PodBuilder) -> Pod {
        builder.build()
    }
}

fn container(name: &str, image: &str) -> Container {
    Container { name: name.into(), image: image.into(), ..Container::default() }
}

fn quantity(text: &str) -> crate::Quantity {
    text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

fn push<T>(list: &mut Box<[T]>, element: T) {
    let mut all = std::mem::take(list).into_vec();
    all.push(element);
    *list = all.into();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_built_in_few_words() {
        let built = pod("web")
            .label("app", "web")
            .restart(RestartPolicy::Never)
            .container("c", "img")
            .command(&["sh", "-c", "true"])
            .env("A", "1")
            .request("cpu", "100m")
            .mount("data", "/data")
            .empty_dir("data")
            .build();
        let written = pod_yaml(
            "
metadata: {name: web, namespace: default, uid: uid-web, labels: {app: web}}
spec:
  restartPolicy: Never
  containers:
  - name: c
    image: img
    command: [sh, -c, 'true']
    env: [{name: A, value: '1'}]
    resources: {requests: {cpu: 100m}}
    volumeMounts: [{name: data, mountPath: /data}]
  volumes:
  - {name: data, emptyDir: {}}
",
        );
        assert_eq!(built, written);
    }
}
