//! What a container does not say.

use crate::core::{
    Container, EnvVar, EnvVarSource, HTTPGetAction, Lifecycle, LifecycleHandler, ObjectFieldSelector, Probe,
    ProbeHandler, Protocol, TerminationMessagePolicy, URIScheme,
};

use super::{fill, image};

pub(super) fn default_container(container: &mut Container) {
    fill(&mut container.image_pull_policy, image::pull_policy(&container.image));
    fill(&mut container.termination_message_path, "/dev/termination-log");
    fill(&mut container.termination_message_policy, TerminationMessagePolicy::File);
    for port in &mut container.ports {
        fill(&mut port.protocol, Protocol::Tcp);
    }
    for variable in &mut container.env {
        default_variable(variable);
    }
    let probes =
        [&mut container.liveness_probe, &mut container.readiness_probe, &mut container.startup_probe];
    for probe in probes.into_iter().flatten() {
        default_probe(probe);
    }
    if let Some(lifecycle) = &mut container.lifecycle {
        default_lifecycle(lifecycle);
    }
}

/// On the node's network a container's port is the node's port.
pub(super) fn default_host_ports(container: &mut Container) {
    for port in &mut container.ports {
        let container_port = port.container_port;
        fill(&mut port.host_port, container_port);
    }
}

pub(super) fn default_field_selector(selector: &mut ObjectFieldSelector) {
    fill(&mut selector.api_version, "v1");
}

fn default_variable(variable: &mut EnvVar) {
    let Some(sources) = &mut variable.value_from else { return };
    for source in sources.as_mut_slice() {
        match source {
            EnvVarSource::FieldRef(selector) => default_field_selector(selector),
            EnvVarSource::FileKeyRef(selector) => fill(&mut selector.optional, false),
            EnvVarSource::ResourceFieldRef(_)
            | EnvVarSource::ConfigMapKeyRef(_)
            | EnvVarSource::SecretKeyRef(_) => {}
        }
    }
}

fn default_probe(probe: &mut Probe) {
    fill(&mut probe.timeout_seconds, 1);
    fill(&mut probe.period_seconds, 10);
    fill(&mut probe.success_threshold, 1);
    fill(&mut probe.failure_threshold, 3);
    for handler in probe.handler.as_mut_slice() {
        match handler {
            ProbeHandler::HttpGet(action) => default_http_get(action),
            ProbeHandler::Grpc(action) => fill(&mut action.service, Some("".into())),
            ProbeHandler::Exec(_) | ProbeHandler::TcpSocket(_) => {}
        }
    }
}

fn default_lifecycle(lifecycle: &mut Lifecycle) {
    for handlers in [&mut lifecycle.post_start, &mut lifecycle.pre_stop].into_iter().flatten() {
        for handler in handlers.as_mut_slice() {
            match handler {
                LifecycleHandler::HttpGet(action) => default_http_get(action),
                LifecycleHandler::Exec(_) | LifecycleHandler::TcpSocket(_) | LifecycleHandler::Sleep(_) => {}
            }
        }
    }
}

fn default_http_get(action: &mut HTTPGetAction) {
    fill(&mut action.path, "/");
    fill(&mut action.scheme, URIScheme::Http);
}
