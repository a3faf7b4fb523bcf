//! Where volumes appear in a container: as directories and as devices.

use std::collections::{BTreeMap, BTreeSet};

use crate::core::{Container, MountPropagationMode, RecursiveReadOnlyMode, VolumeMount, VolumeSource};

use super::error::{Errors, Word};
use super::path::Path;
use super::text;
use super::volumes::Volumes;

pub(super) fn check_volume_mounts(
    errors: &mut Errors,
    path: &Path<'_>,
    container: &Container,
    volumes: &Volumes<'_>,
) {
    let devices: BTreeMap<&str, &str> =
        container.volume_devices.iter().map(|it| (it.name.as_ref(), it.device_path.as_ref())).collect();
    let mut mount_paths = BTreeSet::new();
    for (index, mount) in container.volume_mounts.iter().enumerate() {
        let list_path = path;
        let path = path.index(index);
        let (name, mount_path) = (mount.name.as_ref(), mount.mount_path.as_ref());
        if name.is_empty() {
            errors.required(&path.child("name"), "");
        }
        if !volumes.contains_key(name) {
            errors.not_found(&path.child("name"), name, String::new());
        }
        if mount_path.is_empty() {
            errors.required(&path.child("mountPath"), "");
        }
        if !mount_paths.insert(mount_path) {
            errors.invalid(&path.child("mountPath"), mount_path, "must be unique");
        }
        if devices.contains_key(name) {
            errors.invalid(&path.child("name"), name, "must not already exist in volumeDevices");
        }
        if devices.values().any(|device_path| *device_path == mount_path) {
            let detail = "must not already exist as a path in volumeDevices";
            errors.invalid(&path.child("mountPath"), mount_path, detail);
        }
        if !mount.sub_path.is_empty() {
            text::check_descending_path(errors, &list_path.child("subPath"), &mount.sub_path);
        }
        if !mount.sub_path_expr.is_empty() {
            let expression = mount.sub_path_expr.as_ref();
            if !mount.sub_path.is_empty() {
                let detail = "subPathExpr and subPath are mutually exclusive";
                errors.invalid(&path.child("subPathExpr"), expression, detail);
            }
            text::check_descending_path(errors, &list_path.child("subPathExpr"), expression);
        }
        check_propagation(errors, &list_path.child("mountPropagation"), mount, container);
        check_recursive_read_only(errors, &list_path.child("recursiveReadOnly"), mount);
    }
}

fn check_propagation(errors: &mut Errors, path: &Path<'_>, mount: &VolumeMount, container: &Container) {
    match &mount.mount_propagation {
        None | Some(MountPropagationMode::None | MountPropagationMode::HostToContainer) => {}
        Some(MountPropagationMode::Bidirectional) => {
            let context = container.security_context.as_deref();
            if context.and_then(|context| context.privileged) != Some(true) {
                let detail = "Bidirectional mount propagation is available only to privileged containers";
                errors.forbidden(path, detail);
            }
        }
        Some(MountPropagationMode::Other(mode)) => {
            errors.not_supported(path, Word(mode), &["Bidirectional", "HostToContainer", "None"]);
        }
    }
}

fn check_recursive_read_only(errors: &mut Errors, path: &Path<'_>, mount: &VolumeMount) {
    match &mount.recursive_read_only {
        None | Some(RecursiveReadOnlyMode::Disabled) => {}
        Some(RecursiveReadOnlyMode::Enabled | RecursiveReadOnlyMode::IfPossible) => {
            if !mount.read_only {
                errors.forbidden(path, "may only be specified when readOnly is true");
            }
            if mount.mount_propagation.as_ref().is_some_and(|mode| *mode != MountPropagationMode::None) {
                let detail = "may only be specified when mountPropagation is None or not specified";
                errors.forbidden(path, detail);
            }
        }
        Some(RecursiveReadOnlyMode::Other(mode)) => {
            errors.not_supported(path, Word(mode), &["Disabled", "Enabled", "IfPossible"]);
        }
    }
}

pub(super) fn check_volume_devices(
    errors: &mut Errors,
    path: &Path<'_>,
    container: &Container,
    volumes: &Volumes<'_>,
) {
    let mounts: BTreeMap<&str, &str> =
        container.volume_mounts.iter().map(|it| (it.name.as_ref(), it.mount_path.as_ref())).collect();
    let (mut names, mut device_paths) = (BTreeSet::new(), BTreeSet::new());
    for (index, device) in container.volume_devices.iter().enumerate() {
        let path = path.index(index);
        let (name, device_path) = (device.name.as_ref(), device.device_path.as_ref());
        let (name_field, path_field) = (path.child("name"), path.child("devicePath"));
        if name.is_empty() {
            errors.required(&name_field, "");
        }
        if names.contains(name) {
            errors.invalid(&name_field, name, "must be unique");
        }
        match volumes.get(name) {
            Some(VolumeSource::PersistentVolumeClaim(_) | VolumeSource::Ephemeral(_)) => {}
            Some(_) => {
                let detail =
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.invalid(&name_field, name, detail);
            }
            None => errors.not_found(&name_field, name, String::new()),
        }
        if device_path.is_empty() {
            errors.required(&path_field, "");
        }
        if device_paths.contains(device_path) {
            errors.invalid(&path_field, device_path, "must be unique");
        }
        if text::has_backsteps(device_path) {
            errors.invalid(&path_field, device_path, "can not contain backsteps ('..')");
        } else {
            device_paths.insert(device_path);
        }
        if mounts.contains_key(name) {
            errors.invalid(&name_field, name, "must not already exist in volumeMounts");
        }
        if mounts.values().any(|mount_path| *mount_path == device_path) {
            let detail = "must not already exist as a path in volumeMounts";
            errors.invalid(&path_field, device_path, detail);
        }
        if !name.is_empty() {
            names.insert(name);
        }
    }
}
