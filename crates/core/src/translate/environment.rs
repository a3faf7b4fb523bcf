//! The environment of a container: what it names, what its config maps and secrets hold, and where services are.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use crablet_api::Gate;
use crablet_api::core::{
    ConfigMap, Container, EnvVar, EnvVarSource, FileKeySelector, Pod, ResourceFieldSelector, Secret, Service,
};
use crablet_cri_api::v1;

use super::downward::{self, Addresses, DownwardError};
use super::env_file::env_file_value;
use super::expand::expand;
use super::node::NodeContext;
use super::refusal::{ContainerRefusal, ObjectKind};
use super::services;
use crate::qos::is_static;

/// What a container's environment is made from.
#[derive(Debug, Clone, Copy)]
pub struct EnvironmentInput<'a> {
    pub pod: &'a Pod,
    pub container: &'a Container,
    pub node: &'a NodeContext,
    /// The addresses of the pod, as the runtime lists them.
    pub pod_ips: &'a [IpAddr],
    /// The services of the pod's namespace, and the API server's. Others do no harm.
    pub services: &'a [&'a Service],
    /// Whether the services were read at least once, or there is nowhere to read them from.
    pub services_read: bool,
    /// The config maps and secrets that [`references`] names.
    pub objects: &'a Objects<'a>,
    /// The files of variables that [`references`] names.
    pub files: &'a [EnvFile<'a>],
    /// Variables that device plugins ask for. The container's own come after them and win.
    pub granted: &'a [(String, String)],
}

/// Config maps and secrets by their names, all in the pod's namespace. One that is not listed is not there.
#[derive(Debug, Clone, Default)]
pub struct Objects<'a> {
    pub config_maps: BTreeMap<&'a str, Result<&'a ConfigMap, Unavailable>>,
    pub secrets: BTreeMap<&'a str, Result<&'a Secret, Unavailable>>,
}

/// Why a config map, a secret or another object of the cluster could not be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unavailable {
    /// It is not there.
    NotFound,
    /// There is no API server to ask.
    NoClient,
    /// Anything else, in words.
    Other(String),
}

/// A file of variables. Its `Debug` hides what it holds.
#[derive(Clone, Copy)]
pub struct EnvFile<'a> {
    /// The volume that holds it.
    pub volume: &'a str,
    /// Its path in the volume.
    pub path: &'a str,
    /// Its path on the node.
    pub host_path: &'a str,
    /// What it holds, if it could be read.
    pub content: Option<&'a str>,
}

impl fmt::Debug for EnvFile<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("EnvFile").field(&self.host_path).finish()
    }
}

/// What a container's environment refers to, and must be at hand before it is made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct References<'a> {
    /// Names of config maps, each once.
    pub config_maps: Vec<&'a str>,
    /// Names of secrets, each once.
    pub secrets: Vec<&'a str>,
    /// Files of variables: volumes and paths in them.
    pub files: Vec<(&'a str, &'a str)>,
}

/// What a container's environment refers to.
pub fn references(container: &Container) -> References<'_> {
    let mut found = References::default();
    for source in &container.env_from {
        if let Some(reference) = &source.config_map_ref {
            once(&mut found.config_maps, reference.name.as_str());
        } else if let Some(reference) = &source.secret_ref {
            once(&mut found.secrets, reference.name.as_str());
        }
    }
    for variable in &container.env {
        match source_of(variable) {
            Some(EnvVarSource::ConfigMapKeyRef(key)) => once(&mut found.config_maps, key.name.as_str()),
            Some(EnvVarSource::SecretKeyRef(key)) => once(&mut found.secrets, key.name.as_str()),
            Some(EnvVarSource::FileKeyRef(key)) => {
                once(&mut found.files, (key.volume_name.as_str(), key.path.as_str()));
            }
            Some(EnvVarSource::FieldRef(_) | EnvVarSource::ResourceFieldRef(_)) | None => {}
        }
    }
    found
}

fn once<T: PartialEq>(list: &mut Vec<T>, entry: T) {
    if !list.contains(&entry) {
        list.push(entry);
    }
}

/// A container's environment. Its `Debug` shows the names of variables and hides their values.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Environment {
    variables: Vec<v1::KeyValue>,
}

impl Environment {
    /// The environment of a container. Variables of the same name override each other in this order: services, then
    /// whole config maps and secrets as they are listed, then single variables as they are listed. They come sorted by
    /// name, with what device plugins ask for before all others; upstream's order is that of a hash map.
    pub fn of_container(input: &EnvironmentInput<'_>) -> Result<Environment, ContainerRefusal> {
        let links = input.pod.spec.enable_service_links.ok_or(ContainerRefusal::NoServiceLinks)?;
        if !input.services_read && !is_static(input.pod) {
            return Err(ContainerRefusal::ServicesNotRead);
        }
        let services = services::variables(input.services, &input.pod.metadata.namespace, links);
        let mut own: BTreeMap<Cow<'_, str>, Cow<'_, [u8]>> = BTreeMap::new();
        add_whole_objects(input, &mut own)?;
        for variable in &input.container.env {
            let value = if variable.value.is_empty() {
                match source_of(variable) {
                    None => Cow::Borrowed(&[][..]),
                    Some(source) => match resolve(input, source)? {
                        Some(value) => value,
                        None => continue,
                    },
                }
            } else if variable.value.contains('$') {
                Cow::Owned(expand(&variable.value, |name, out| {
                    match own
                        .get(name)
                        .map(|value| &**value)
                        .or_else(|| services.get(name).map(String::as_bytes))
                    {
                        Some(value) => {
                            out.extend_from_slice(value);
                            true
                        }
                        None => false,
                    }
                }))
            } else {
                Cow::Borrowed(variable.value.as_bytes())
            };
            own.insert(Cow::Borrowed(&variable.name), value);
        }
        let mut variables = Vec::with_capacity(input.granted.len() + own.len() + services.len());
        for (key, value) in input.granted {
            variables.push(v1::KeyValue { key: key.clone(), value: value.clone().into_bytes() });
        }
        let remaining = services.into_iter().filter(|(name, _)| !own.contains_key(name.as_str()));
        let remaining: Vec<v1::KeyValue> =
            remaining.map(|(key, value)| v1::KeyValue { key, value: value.into_bytes() }).collect();
        let own = own.into_iter();
        variables.extend(
            own.map(|(key, value)| v1::KeyValue { key: key.into_owned(), value: value.into_owned() }),
        );
        variables.extend(remaining);
        Ok(Environment { variables })
    }

    /// The variables, as the runtime takes them.
    pub fn variables(&self) -> &[v1::KeyValue] {
        &self.variables
    }

    pub(super) fn into_variables(self) -> Vec<v1::KeyValue> {
        self.variables
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.variables.iter().rev().find(|variable| variable.key == name).map(|variable| &*variable.value)
    }

    /// A word of a command with its references replaced.
    pub fn expand(&self, text: &str) -> String {
        if !text.contains('$') {
            return text.to_owned();
        }
        let bytes = expand(text, |name, out| match self.get(name) {
            Some(value) => {
                out.extend_from_slice(value);
                true
            }
            None => false,
        });
        // A secret that is not text can be a variable, but not a part of a command.
        String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }
}

fn add_whole_objects<'a>(
    input: &EnvironmentInput<'a>,
    own: &mut BTreeMap<Cow<'a, str>, Cow<'a, [u8]>>,
) -> Result<(), ContainerRefusal> {
    let named = |prefix: &str, key: &'a str| match prefix {
        "" => Cow::Borrowed(key),
        prefix => Cow::Owned(format!("{prefix}{key}")),
    };
    for source in &input.container.env_from {
        if let Some(reference) = &source.config_map_ref {
            if let Some(map) = config_map(input, &reference.name, reference.optional)? {
                for (key, value) in map.data.iter() {
                    own.insert(named(&source.prefix, key), Cow::Borrowed(value.as_bytes()));
                }
            }
        } else if let Some(reference) = &source.secret_ref
            && let Some(secret) = secret(input, &reference.name, reference.optional)?
        {
            for (key, value) in secret.data.iter() {
                own.insert(named(&source.prefix, key), Cow::Borrowed(&**value));
            }
        }
    }
    Ok(())
}

/// The value of a variable that comes from elsewhere; none where that is missing and may be.
fn resolve<'a>(
    input: &EnvironmentInput<'a>,
    source: &'a EnvVarSource,
) -> Result<Option<Cow<'a, [u8]>>, ContainerRefusal> {
    let no_key = |kind: ObjectKind, key: &str, name: &str| ContainerRefusal::NoKey {
        key: key.to_owned(),
        kind,
        namespace: input.pod.metadata.namespace.to_string(),
        name: name.to_owned(),
    };
    let text = |text: String| Some(Cow::Owned(text.into_bytes()));
    match source {
        EnvVarSource::FieldRef(field) => {
            let facts = &input.node.facts;
            // Who is on the node's network has the node's addresses, of which the runtime knows nothing.
            let pod_ips = match input.pod.spec.host_network && input.pod_ips.is_empty() {
                true => &*facts.host_ips,
                false => input.pod_ips,
            };
            let addresses = Addresses { pod: pod_ips, host: &facts.host_ips, node: &facts.node_ips };
            Ok(text(downward::field_value(input.pod, field, addresses)?))
        }
        EnvVarSource::ResourceFieldRef(selector) => Ok(text(resource(input, selector)?)),
        EnvVarSource::ConfigMapKeyRef(key) => {
            let Some(map) = config_map(input, &key.name, key.optional)? else { return Ok(None) };
            match map.data.get(&key.key) {
                Some(value) => Ok(Some(Cow::Borrowed(value.as_bytes()))),
                None if key.optional == Some(true) => Ok(None),
                None => Err(no_key(ObjectKind::ConfigMap, &key.key, &key.name)),
            }
        }
        EnvVarSource::SecretKeyRef(key) => {
            let Some(secret) = secret(input, &key.name, key.optional)? else { return Ok(None) };
            match secret.data.get(&key.key) {
                Some(value) => Ok(Some(Cow::Borrowed(&**value))),
                None if key.optional == Some(true) => Ok(None),
                None => Err(no_key(ObjectKind::Secret, &key.key, &key.name)),
            }
        }
        EnvVarSource::FileKeyRef(_) if !input.node.features.enabled(Gate::EnvFiles) => {
            Ok(text(String::new()))
        }
        EnvVarSource::FileKeyRef(key) => {
            file(input, key).map(|value| value.map(|value| value.into_bytes().into()))
        }
    }
}

fn resource(input: &EnvironmentInput<'_>, selector: &ResourceFieldSelector) -> Result<String, DownwardError> {
    let EnvironmentInput { pod, container, node, .. } = input;
    let defaults = || {
        downward::default_limits(pod, &node.facts.allocatable, node.features.enabled(Gate::PodLevelResources))
    };
    let name = selector.container_name.as_str();
    if name.is_empty() {
        return downward::resource_value(container, selector, Some(&defaults()));
    }
    if let Some(named) = pod.spec.containers.iter().find(|container| container.name == name) {
        return downward::resource_value(named, selector, Some(&defaults()));
    }
    // Upstream fills in the limits of containers, and not of init containers that are asked for by name.
    match pod.spec.init_containers.iter().find(|container| container.name == name) {
        Some(named) => downward::resource_value(named, selector, None),
        None => Err(DownwardError::Container(name.to_owned())),
    }
}

fn file(input: &EnvironmentInput<'_>, key: &FileKeySelector) -> Result<Option<String>, ContainerRefusal> {
    let file = (input.files.iter())
        .find(|file| file.volume == key.volume_name && file.path == key.path)
        .ok_or_else(|| ContainerRefusal::NoEnvVolume(key.volume_name.to_string()))?;
    let content = file.content.ok_or(ContainerRefusal::EnvFile)?;
    let value = env_file_value(content, &key.key).map_err(|_| ContainerRefusal::EnvFile)?;
    match (value.is_empty(), key.optional == Some(true)) {
        (false, _) => Ok(Some(value)),
        (true, true) => Ok(None),
        (true, false) => {
            Err(ContainerRefusal::NoEnvKey { key: key.key.to_string(), file: file.host_path.to_owned() })
        }
    }
}

fn config_map<'a>(
    input: &EnvironmentInput<'a>,
    name: &str,
    optional: Option<bool>,
) -> Result<Option<&'a ConfigMap>, ContainerRefusal> {
    found(input, input.objects.config_maps.get(name), ObjectKind::ConfigMap, name, optional)
}

fn secret<'a>(
    input: &EnvironmentInput<'a>,
    name: &str,
    optional: Option<bool>,
) -> Result<Option<&'a Secret>, ContainerRefusal> {
    found(input, input.objects.secrets.get(name), ObjectKind::Secret, name, optional)
}

fn found<'a, T>(
    input: &EnvironmentInput<'a>,
    fetched: Option<&Result<&'a T, Unavailable>>,
    kind: ObjectKind,
    name: &str,
    optional: Option<bool>,
) -> Result<Option<&'a T>, ContainerRefusal> {
    match fetched {
        Some(Ok(object)) => Ok(Some(object)),
        Some(Err(Unavailable::NotFound)) | None => match optional {
            Some(true) => Ok(None),
            Some(false) | None => Err(ContainerRefusal::NotFound { kind, name: name.to_owned() }),
        },
        Some(Err(Unavailable::NoClient)) => Err(ContainerRefusal::NoClient {
            kind,
            namespace: input.pod.metadata.namespace.to_string(),
            name: name.to_owned(),
        }),
        Some(Err(Unavailable::Other(message))) => Err(ContainerRefusal::Unavailable(message.clone())),
    }
}

/// Where a variable comes from. An invalid one can name several sources: they have an order.
fn source_of(variable: &EnvVar) -> Option<&EnvVarSource> {
    let rank = |source: &&EnvVarSource| match source {
        EnvVarSource::FieldRef(_) => 0,
        EnvVarSource::ResourceFieldRef(_) => 1,
        EnvVarSource::ConfigMapKeyRef(_) => 2,
        EnvVarSource::SecretKeyRef(_) => 3,
        EnvVarSource::FileKeyRef(_) => 4,
    };
    variable.value_from.as_ref()?.as_slice().iter().min_by_key(rank)
}

#[cfg(test)]
mod tests;
