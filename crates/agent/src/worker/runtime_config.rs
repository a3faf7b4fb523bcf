//! What sandboxes and containers are made from, with everything on the node that they need made before.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crablet_api::Gate;
use crablet_api::core::{ConfigMap, Container, Pod, Secret, Service};
use crablet_core::plan::Start;
use crablet_core::pod_cgroup::{PodResources, pod_cgroup, pod_resources, protected_memory};
use crablet_core::qos::PodLevel;
use crablet_core::status::StartError;
use crablet_core::translate::{
    self, About, ContainerInput, ContainerRefusal, EnvFile, Environment, EnvironmentInput, Granted, HostName,
    HostResolver, MemoryReservation, MountInput, MountedVolume, Objects, ResolvConfError, RuntimeClassError,
    SandboxInput, SandboxRefusal, Unavailable, UserNamespaces, parse_resolv_conf,
};
use crablet_cri_api::v1;
use crablet_host::cgroup::{
    Bound, CgroupError, CpuBandwidth, Ensured, HugePages, Limits, NameError, PodCgroup,
};
use crablet_volumes::VolumeFile;
use tokio::time::Instant;
use tracing::warn;

use crate::metrics::CgroupChange;
use crate::pod_files::Attempt;
use crate::recorder::reason;
use crate::worker::Worker;
use crate::worker::carry_out::NotStarted;
use crate::worker::pull::ContainerImages;
use crate::worker::resize::CgroupState;

/// A sandbox to make, or what the one that is there was made from.
pub(super) struct SandboxConfig {
    pub(super) config: v1::PodSandboxConfig,
    /// The handler that runs it; empty for the runtime's default.
    pub(super) handler: String,
}

impl SandboxConfig {
    /// What is not as with most pods, in the words of the pod's story.
    pub(super) fn remarks(&self) -> String {
        let mut remarks = String::new();
        if !self.handler.is_empty() {
            remarks.push_str(&format!(", run by {}", self.handler));
        }
        if let Some(ids) = self.users().first() {
            let last = u64::from(ids.host_id) + u64::from(ids.length) - 1;
            remarks.push_str(&format!(", with the node's users {} to {last} as its own", ids.host_id));
        }
        remarks
    }

    fn users(&self) -> &[v1::IdMapping] {
        let context = self.config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
        let namespaces = context.and_then(|context| context.namespace_options.as_ref());
        namespaces
            .and_then(|namespaces| namespaces.userns_options.as_ref())
            .map_or(&[], |users| users.uids.as_slice())
    }
}

/// Why a pod has no sandbox, in the words of its event.
pub(super) struct NotMade {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl NotMade {
    /// The sandbox itself could not be made.
    pub(super) fn sandbox(error: &str) -> NotMade {
        let message = format!("Failed to create pod sandbox: {error}");
        NotMade { reason: reason::FAILED_CREATE_POD_SANDBOX, message }
    }
}

/// Why a pod's cgroup is not as it should be.
#[derive(Debug, thiserror::Error)]
pub(super) enum PodCgroupError {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
}

/// A container to make.
pub(super) struct ContainerConfig {
    pub(super) config: v1::ContainerConfig,
    pub(super) sandbox: v1::PodSandboxConfig,
    log: PathBuf,
}

impl Worker {
    /// Makes the pod's directories and its cgroup, and says what its sandbox is made from.
    pub(super) async fn prepare_sandbox(&mut self, attempt: u32) -> Result<SandboxConfig, NotMade> {
        self.allocation.cgroup = CgroupState::Unknown;
        // It is made from what is allocated.
        self.allocation.sandbox_is_behind = false;
        self.note_actuated();
        self.fit_cgroup().await.map_err(|error| {
            let message = format!("unable to ensure pod container exists: {error}");
            NotMade { reason: reason::FAILED_CREATE_POD_CONTAINER, message }
        })?;
        let (node, owner) = (Arc::clone(&self.node), self.owner.clone());
        self.see_through(node.host.files.make_pod(&owner)).await.map_err(|error| {
            let message = format!("error making pod data directories: {error}");
            NotMade { reason: reason::FAILED, message }
        })?;
        let (sandbox, handler) =
            self.sandbox(attempt).await.map_err(|refusal| NotMade::sandbox(&refusal.to_string()))?;
        for warning in &sandbox.warnings {
            match warning.about {
                About::Pod => self.warn_pod(warning.reason, &warning.message),
                About::Node => self.warn_node(warning.reason, &warning.message),
            }
        }
        Ok(SandboxConfig { config: sandbox.config, handler })
    }

    /// Puts a sandbox into the groups of the pod's volumes, which are known when the volumes are there.
    pub(super) async fn join_groups(&mut self, config: &mut SandboxConfig, attempt: u32) {
        if !self.extra_groups().is_empty()
            && let Ok((sandbox, _)) = self.sandbox(attempt).await
        {
            config.config = sandbox.config;
        }
    }

    /// What a sandbox of the pod is made from, and which handler runs it.
    async fn sandbox(&mut self, attempt: u32) -> Result<(translate::Sandbox, String), SandboxRefusal> {
        let handler = self.runtime_handler().await?;
        let resolver = self.resolver().await?;
        let users = self.users(&handler).await;
        let sandbox = translate::sandbox(&SandboxInput {
            pod: &self.allocation.pod,
            node: &self.node.facts.now().translation,
            attempt,
            resolver: &resolver,
            runtime_handler: &handler,
            users: &users,
            extra_groups: &self.extra_groups(),
            exclusive_cpus: false,
        })?;
        Ok((sandbox, handler))
    }

    /// What the node's own resolver does now.
    async fn resolver(&mut self) -> Result<HostResolver, ResolvConfError> {
        let node = Arc::clone(&self.node);
        let facts = node.facts.now();
        let path = &*facts.translation.settings.resolv_conf;
        if path.is_empty() {
            return Ok(HostResolver::Off);
        }
        let text = self.see_through(node.host.files.of_node(Path::new(path), LONGEST_OF_NODE)).await;
        let text = text.map_err(|error| match error.kind() {
            ErrorKind::FileTooLarge => ResolvConfError::TooLong,
            _ => ResolvConfError::Unreadable { path: path.to_owned(), reason: in_go_words(&error) },
        })?;
        parse_resolv_conf(&String::from_utf8_lossy(&text)).map(HostResolver::File)
    }

    /// The handler that runs the pod: that of its class, or the runtime's default.
    async fn runtime_handler(&mut self) -> Result<String, RuntimeClassError> {
        let (node, pod) = (Arc::clone(&self.node), Arc::clone(&self.pod));
        match pod.spec.runtime_class_name.as_deref() {
            None | Some("") => Ok(String::new()),
            Some(name) => {
                let class = self.see_through(node.objects.runtime_class(name)).await;
                class.map(|class| class.handler.to_string()).map_err(|why| RuntimeClassError::new(name, why))
            }
        }
    }

    /// Whether the handler that runs the pod can mount read-only all the way down, if the runtime has told. Who has no
    /// sandbox yet and names a class is told later.
    pub(super) fn mounts_read_only_recursively(&self) -> Option<bool> {
        let handler = match (self.observed.active_sandbox(), self.pod.spec.runtime_class_name.as_deref()) {
            (Some(sandbox), _) => &*sandbox.runtime_handler,
            (None, None | Some("")) => "",
            (None, Some(_)) => return Some(false),
        };
        let facts = self.node.facts.now();
        let handlers = facts.handlers.as_deref();
        handlers.map(|handlers| translate::mounts_read_only_recursively(handlers, handler))
    }

    /// Which users of the node are the pod's own, under a handler; what it was not given yet, it gets.
    async fn users(&mut self, handler: &str) -> UserNamespaces {
        if !translate::wants_user_namespace(&self.pod)
            || !self.node.facts.now().translation.features.enabled(Gate::UserNamespacesSupport)
        {
            return UserNamespaces::Unsupported;
        }
        if let Some(refused) = UserNamespaces::refused_by(self.node.facts.now().handlers(), handler) {
            return refused;
        }
        let (node, uid) = (Arc::clone(&self.node), self.owner.uid.clone());
        match self.see_through(node.host.users.of_pod(&uid)).await {
            Ok(ids) => UserNamespaces::mapped(ids),
            Err(error) => UserNamespaces::NoUsers(error.to_string()),
        }
    }

    pub(super) fn cgroup(&self) -> Result<PodCgroup, NameError> {
        pod_cgroup(&self.pod, PodLevel::from(&self.node.facts.now().translation.features))
    }

    /// Makes the pod's cgroup anew if somebody has removed it. One that is there is left as it is.
    pub(super) async fn keep_cgroup(&mut self) -> Result<(), PodCgroupError> {
        let (cgroup, limits) = (self.cgroup()?, self.cgroup_limits());
        let node = Arc::clone(&self.node);
        let begun = Instant::now();
        match self.see_through(node.host.cgroups.ensure_pod(&cgroup, &limits)).await? {
            Ensured::Created => node.metrics.changed_cgroup(CgroupChange::Create, begun.elapsed()),
            Ensured::Existed => {}
        }
        Ok(())
    }

    pub(super) async fn make_cgroup(&mut self) -> Result<(), PodCgroupError> {
        let (cgroup, limits) = (self.cgroup()?, self.cgroup_limits());
        let node = Arc::clone(&self.node);
        let make = async {
            let begun = Instant::now();
            let change = match node.host.cgroups.ensure_pod(&cgroup, &limits).await? {
                Ensured::Created => CgroupChange::Create,
                // An agent that died between making and limiting left one without limits.
                Ensured::Existed => {
                    node.host.cgroups.update_pod(&cgroup, &limits).await?;
                    CgroupChange::Update
                }
            };
            node.metrics.changed_cgroup(change, begun.elapsed());
            Ok::<(), CgroupError>(())
        };
        self.see_through(make).await?;
        self.note_cgroup();
        Ok(())
    }

    pub(super) fn cgroup_limits(&self) -> Limits {
        let (resources, period) = self.cgroup_of(&self.allocation.pod);
        Limits {
            cpu_shares: Some(resources.cpu_shares),
            cpu_bandwidth: resources.cpu_quota.map(|quota| CpuBandwidth {
                quota: u64::try_from(quota)
                    .ok()
                    .filter(|quota| *quota > 0)
                    .map_or(Bound::Unlimited, Bound::At),
                period: period.unsigned_abs(),
            }),
            memory: resources.memory.filter(|memory| *memory > 0).map(Bound::At),
            processes: self.node.limits.pids.map(Bound::At),
            huge_pages: HugePages::Only(resources.huge_pages),
            unified: self.protected_memory(),
            ..Limits::default()
        }
    }

    /// What a pod's cgroup allows, and the period in microseconds in which its CPU is counted.
    pub(super) fn cgroup_of(&self, pod: &Pod) -> (PodResources, i64) {
        let facts = self.node.facts.now();
        let settings = &facts.translation.settings;
        let period = settings.cpu_cfs_quota_period;
        let pod_level = PodLevel::from(&facts.translation.features);
        (pod_resources(pod, pod_level, settings.cpu_cfs_quota, period), period)
    }

    /// The file by which the kernel protects the pod's memory, where that is wanted.
    fn protected_memory(&self) -> BTreeMap<String, String> {
        let facts = self.node.facts.now();
        let translation = &facts.translation;
        let protects = translation.facts.cgroup_v2
            && translation.features.enabled(Gate::MemoryQoS)
            && translation.settings.memory_reservation == MemoryReservation::Tiered;
        let pod_level = PodLevel::from(&translation.features);
        let protected = protects.then(|| protected_memory(&self.allocation.pod, pod_level)).flatten();
        protected.map(|(file, bytes)| (file.to_owned(), bytes.to_string())).into_iter().collect()
    }

    /// Makes what a container needs on the node, and says what it is made from.
    pub(super) async fn prepare_container(
        &mut self,
        start: &Start,
        container: &Container,
        images: &ContainerImages,
        sandbox: SandboxConfig,
    ) -> Result<ContainerConfig, NotStarted> {
        let attempt = self.attempt(start).await;
        let refused = |worker: &Worker, message: String| {
            worker.warn(&container.name, reason::FAILED, &format!("Error: {message}"));
            let error = StartError::new(ContainerRefusal::REASON, message);
            NotStarted { error, until: None, has_event: true }
        };
        let environment = self.environment(container).await;
        let environment = environment.map_err(|refusal| refused(self, refusal.to_string()))?;
        let sub_paths = self.sub_paths(container, &environment).await;
        let sub_paths = sub_paths.map_err(|error| refused(self, error.to_string()))?;
        let config =
            self.container(container, attempt, images, environment, &sub_paths, &sandbox.handler).await;
        let config = config.map_err(|refusal| refused(self, refusal.to_string()))?;
        let made = self.make_files(container, attempt).await;
        made.map_err(|error| {
            let message =
                format!("create container log directory for container {} failed: {error}", container.name);
            self.warn(&container.name, reason::FAILED, &format!("Error: {message}"));
            let error = StartError::new(ContainerRefusal::REASON, message);
            NotStarted { error, until: None, has_event: true }
        })?;
        let log = Path::new(&sandbox.config.log_directory).join(&config.log_path);
        Ok(ContainerConfig { config, sandbox: sandbox.config, log })
    }

    /// What the sandbox that is there was made from.
    pub(super) async fn active_sandbox(&mut self) -> Result<SandboxConfig, NotStarted> {
        let attempt = self.observed.active_sandbox().map_or(0, |sandbox| sandbox.metadata.attempt);
        let sandbox = self.sandbox(attempt).await;
        let (sandbox, handler) = sandbox.map_err(|refusal| NotStarted {
            error: StartError::new(SandboxRefusal::REASON, refusal.message(&self.pod)),
            until: None,
            has_event: false,
        })?;
        Ok(SandboxConfig { config: sandbox.config, handler })
    }

    /// Where the runtime has forgotten all earlier runs, the logs may know of more.
    async fn attempt(&mut self, start: &Start) -> u32 {
        if !start.ask_logs {
            return start.attempt;
        }
        let (node, owner) = (Arc::clone(&self.node), self.owner.clone());
        let names = self.see_through(node.host.files.logs(&owner, &start.name)).await.unwrap_or_default();
        start.attempt.max(translate::next_restart_count(names.iter().map(String::as_str)))
    }

    async fn environment(&mut self, container: &Container) -> Result<Environment, ContainerRefusal> {
        let referred = self.referred(container).await;
        let files = self.env_files(container).await;
        let files: Vec<EnvFile<'_>> = files.iter().map(ReadFile::borrowed).collect();
        let services = self.node.objects.services();
        let services_read = services.is_some();
        let services = services.unwrap_or_default();
        let services: Vec<&Service> = services.iter().map(|service| &**service).collect();
        Environment::of_container(&EnvironmentInput {
            pod: &self.allocation.pod,
            container,
            node: &self.node.facts.now().translation,
            pod_ips: &self.pod_ips(),
            services: &services,
            services_read,
            objects: &referred.borrowed(),
            files: &files,
            granted: &[],
        })
    }

    async fn container(
        &mut self,
        container: &Container,
        attempt: u32,
        images: &ContainerImages,
        environment: Environment,
        sub_paths: &BTreeMap<usize, String>,
        handler: &str,
    ) -> Result<v1::ContainerConfig, ContainerRefusal> {
        let users = self.users(handler).await;
        let ips = self.pod_ips();
        let places = self.node.host.files.places();
        let hosts = places.hosts(&self.owner.uid).display().to_string();
        let termination_log = places.termination_log(&self.owner.uid, &container.name, attempt);
        let image = images.own.image.as_ref();
        let image = image.map_err(|error| ContainerRefusal::ImageUserUnknown(error.to_string()))?;
        let mut volumes = self.volumes.mounted();
        for (name, image) in &images.volumes {
            volumes.insert(name, MountedVolume::Image(image.clone()));
        }
        translate::container(
            &ContainerInput {
                pod: &self.allocation.pod,
                container,
                node: &self.node.facts.now().translation,
                restart_count: attempt,
                image_ref: &images.own.reference,
                image_user: image.user.as_ref(),
                mounts: MountInput {
                    volumes: &volumes,
                    sub_paths,
                    etc_hosts: &hosts,
                    has_address: !ips.is_empty() || self.pod.spec.host_network,
                    termination_log: Some(&termination_log.display().to_string()),
                    recursive_read_only: translate::mounts_read_only_recursively(
                        self.node.facts.now().handlers(),
                        handler,
                    ),
                },
                runtime_handler: handler,
                users: &users,
                extra_groups: &self.extra_groups(),
                target: translate::target(&self.pod, container, &self.observed)?,
                granted: &Granted::default(),
            },
            environment,
        )
    }

    /// Reads the files of variables that the container's environment refers to. Of volumes that are not there, or are
    /// no files, there are none.
    async fn env_files<'a>(&mut self, container: &'a Container) -> Vec<ReadFile<'a>> {
        let mut files = Vec::new();
        if !self.node.facts.now().translation.features.enabled(Gate::EnvFiles) {
            return files;
        }
        for (volume, path) in translate::references(container).files {
            let Some(volume_path) = self.volumes.files(volume) else { continue };
            let file = VolumeFile {
                uid: self.owner.uid.to_string(),
                volume_path: volume_path.into(),
                path: path.to_owned(),
            };
            let node = Arc::clone(&self.node);
            let content = self.see_through(node.host.volumes.read(&file, LONGEST_ENV_FILE)).await;
            let content = content.and_then(|bytes| String::from_utf8(bytes).map_err(|_| not_text()));
            if let Err(error) = &content {
                warn!(
                    container = %container.name, volume, path, %error,
                    "Cannot read a file of variables"
                );
            }
            let host_path = file.volume_path.join(path).display().to_string();
            files.push(ReadFile { volume, path, host_path, content: content.ok() });
        }
        files
    }

    /// Gets what the container's environment refers to.
    async fn referred<'a>(&mut self, container: &'a Container) -> Referred<'a> {
        let (node, namespace) = (Arc::clone(&self.node), self.owner.namespace.clone());
        let names = translate::references(container);
        let mut referred = Referred::default();
        for name in names.config_maps {
            let got = self.see_through(node.objects.config_map(&namespace, name)).await;
            referred.config_maps.push((name, got));
        }
        for name in names.secrets {
            let got = self.see_through(node.objects.secret(&namespace, name)).await;
            referred.secrets.push((name, got));
        }
        referred
    }

    async fn make_files(&mut self, container: &Container, attempt: u32) -> std::io::Result<()> {
        let (node, owner) = (Arc::clone(&self.node), self.owner.clone());
        self.see_through(node.host.files.make_container(&owner, &container.name, attempt)).await?;
        let hosts = self.hosts().await?;
        self.see_through(node.host.files.write_hosts(&owner.uid, &hosts)).await
    }

    async fn hosts(&mut self) -> std::io::Result<Vec<u8>> {
        let (node, pod) = (Arc::clone(&self.node), Arc::clone(&self.pod));
        if pod.spec.host_network {
            let read = node.host.files.of_node(Path::new(translate::ETC_HOSTS), LONGEST_OF_NODE);
            let own = match self.see_through(read).await {
                Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
                read => read?,
            };
            return Ok(translate::host_network_hosts(&own, &pod.spec.host_aliases));
        }
        let facts = node.facts.now();
        let node = &facts.translation;
        let name = HostName::of_pod(
            &pod,
            &node.settings.cluster_domain,
            node.features.enabled(Gate::HostnameOverride),
        )
        .map_err(std::io::Error::other)?;
        let ips: Vec<String> = self.pod_ips().iter().map(ToString::to_string).collect();
        Ok(translate::pod_hosts(&ips, &name, &pod.spec.host_aliases).into_bytes())
    }

    fn pod_ips(&self) -> Vec<IpAddr> {
        let sandbox = self.observed.active_sandbox();
        sandbox.iter().flat_map(|sandbox| &sandbox.ips).filter_map(|ip| ip.parse().ok()).collect()
    }

    /// Puts a link to the log where log collectors look. A pod runs well without.
    pub(super) async fn link_log(&mut self, config: &ContainerConfig, id: &str) {
        let Some(metadata) = &config.config.metadata else { return };
        let (node, owner) = (Arc::clone(&self.node), self.owner.clone());
        let attempt = Attempt { container: &metadata.name, number: metadata.attempt, id, log: &config.log };
        if let Err(error) = self.see_through(node.host.files.link_log(&owner, attempt)).await {
            warn!(container = metadata.name, %error, "Cannot link a container's log");
        }
    }
}

/// What a container's environment refers to, or why it could not be had.
#[derive(Default)]
struct Referred<'a> {
    config_maps: Vec<(&'a str, Result<Arc<ConfigMap>, Unavailable>)>,
    secrets: Vec<(&'a str, Result<Arc<Secret>, Unavailable>)>,
}

impl Referred<'_> {
    fn borrowed(&self) -> Objects<'_> {
        fn borrowed<'a, T>(
            list: &'a [(&'a str, Result<Arc<T>, Unavailable>)],
        ) -> BTreeMap<&'a str, Result<&'a T, Unavailable>> {
            list.iter().map(|(name, got)| (*name, got.as_deref().map_err(Clone::clone))).collect()
        }
        Objects { config_maps: borrowed(&self.config_maps), secrets: borrowed(&self.secrets) }
    }
}

/// A file of variables that was read, or could not be. It may hold secrets.
struct ReadFile<'a> {
    volume: &'a str,
    path: &'a str,
    host_path: String,
    content: Option<String>,
}

impl ReadFile<'_> {
    fn borrowed(&self) -> EnvFile<'_> {
        let ReadFile { volume, path, host_path, content } = self;
        EnvFile { volume, path, host_path, content: content.as_deref() }
    }
}

/// Not the error itself, which would show what is not text.
fn not_text() -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, "it is not text")
}

/// A file of variables is not read beyond this.
const LONGEST_ENV_FILE: usize = 1 << 20;

/// The longest of the node's own files that is read; upstream's limit for its `resolv.conf`.
const LONGEST_OF_NODE: usize = 10 << 20;

/// Why a file cannot be opened, as Go says it.
fn in_go_words(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "no such file or directory".to_owned(),
        ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}
