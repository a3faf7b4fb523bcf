//! `downwardAPI`: facts about the pod, as files.

use std::collections::BTreeMap;

use async_trait::async_trait;
use crablet_api::core::{
    DownwardAPIVolumeFile, DownwardAPIVolumeSource, ObjectFieldSelector, ResourceFieldSelector, VolumeSource,
};
use crablet_core::translate::{Addresses, DownwardError, MountedVolume, field_value, resource_value};

use super::empty_dir::Medium;
use super::files::show;
use crate::atomic_writer::{Payload, ProjectedFile};
use crate::error::PluginError;
use crate::places::DOWNWARD_API;
use crate::plugin::{Plugin, Request};

/// Volumes of the kind `downwardAPI`.
#[derive(Debug, Clone, Copy)]
pub struct DownwardApi;

#[async_trait]
impl Plugin for DownwardApi {
    fn supports(&self, source: &VolumeSource) -> bool {
        matches!(source, VolumeSource::DownwardApi(_))
    }

    fn refreshes(&self) -> bool {
        true
    }

    async fn set_up(&self, request: &Request) -> Result<MountedVolume, PluginError> {
        let VolumeSource::DownwardApi(source) = &*request.source else { return Err(PluginError::NoSource) };
        show(request, DOWNWARD_API, Medium::Memory, collect(request, source)).await
    }
}

pub(super) fn collect(request: &Request, source: &DownwardAPIVolumeSource) -> Result<Payload, PluginError> {
    let mode = source.default_mode.ok_or(PluginError::NoDefaultMode)?;
    Ok(Payload::new(files(request, &source.items, mode)?)?)
}

/// What the files say, or all that cannot be said.
pub(super) fn files(
    request: &Request,
    items: &[DownwardAPIVolumeFile],
    default_mode: i32,
) -> Result<BTreeMap<String, ProjectedFile>, PluginError> {
    let (mut files, mut errors) = (BTreeMap::new(), Vec::new());
    for item in items {
        let told = match (&item.field_ref, &item.resource_field_ref) {
            (Some(field), _) => field_of(request, field),
            (None, Some(resource)) => resource_of(request, resource),
            (None, None) => Ok(String::new()),
        };
        match told {
            Ok(text) => {
                let mode = item.mode.unwrap_or(default_mode).cast_unsigned() & 0o777;
                let file = ProjectedFile { content: text.into_bytes(), mode, user: None };
                files.insert(item.path.to_string(), file);
            }
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(files) } else { Err(PluginError::Downward(errors)) }
}

/// A volume tells of metadata alone. The rest can change, or is not known before the pod runs.
fn field_of(request: &Request, field: &ObjectFieldSelector) -> Result<String, DownwardError> {
    let path = field.field_path.as_str();
    let is_metadata = matches!(
        path.split("['").next().unwrap_or_default(),
        "metadata.annotations" | "metadata.labels" | "metadata.name" | "metadata.namespace" | "metadata.uid"
    );
    if !is_metadata {
        return Err(DownwardError::Field(path.to_owned()));
    }
    // Upstream does not look at the version here.
    let field = ObjectFieldSelector { api_version: "v1".into(), ..field.clone() };
    field_value(&request.pod, &field, Addresses { pod: &[], host: &[], node: &[] })
}

fn resource_of(request: &Request, selector: &ResourceFieldSelector) -> Result<String, DownwardError> {
    let name = &selector.container_name;
    let container = request.pod.spec.find_container(name);
    let container = container.ok_or_else(|| DownwardError::Container(name.to_string()))?;
    resource_value(container, selector, Some(&request.allocatable))
}
