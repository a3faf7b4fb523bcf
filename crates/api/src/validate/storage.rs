//! Volumes of the node and of particular storage systems: what each source needs.

use crate::core::{
    AzureDataDiskCachingMode, AzureDataDiskKind, AzureDiskVolumeSource, CSIVolumeSource, FCVolumeSource,
    FlexVolumeSource, FlockerVolumeSource, GitRepoVolumeSource, HostPathType, HostPathVolumeSource,
    ISCSIVolumeSource, LocalObjectReference, NFSVolumeSource, QuobyteVolumeSource, RBDVolumeSource,
    StorageOSVolumeSource,
};
use crate::names::{dns1123_label_errors, dns1123_subdomain_errors};

use super::error::{Errors, Json, Word};
use super::path::Path;
use super::text;

/// Checks that none of these fields is empty.
pub(super) fn check_filled(errors: &mut Errors, path: &Path<'_>, fields: &[(&str, &str)]) {
    for (field, _) in fields.iter().filter(|(_, value)| value.is_empty()) {
        errors.required(&path.child(field), "");
    }
}

pub(super) fn check_secret_reference(
    errors: &mut Errors,
    path: &Path<'_>,
    reference: Option<&LocalObjectReference>,
) {
    if reference.is_some_and(|reference| reference.name.is_empty()) {
        let path = path.child("secretRef");
        errors.required(&path.child("name"), "");
    }
}

pub(super) fn check_host_path(errors: &mut Errors, path: &Path<'_>, source: &HostPathVolumeSource) {
    if source.path.is_empty() {
        return errors.required(&path.child("path"), "");
    }
    text::check_no_backsteps(errors, &path.child("path"), &source.path);
    if let Some(HostPathType::Other(kind)) = &source.r#type {
        let mut supported = HostPathType::WORDS.to_vec();
        supported.sort_unstable();
        errors.not_supported(&path.child("type"), Word(kind), &supported);
    }
}

pub(super) fn check_git_repo(errors: &mut Errors, path: &Path<'_>, source: &GitRepoVolumeSource) {
    check_filled(errors, path, &[("repository", &source.repository)]);
    text::check_descending_path(errors, &path.child("directory"), &source.directory);
}

pub(super) fn check_nfs(errors: &mut Errors, path: &Path<'_>, source: &NFSVolumeSource) {
    check_filled(errors, path, &[("server", &source.server), ("path", &source.path)]);
    if !source.path.starts_with('/') {
        errors.invalid(&path.child("path"), source.path.as_ref(), "must be an absolute path");
    }
}

/// A disk of a cloud, of which a pod may use a partition.
pub(super) fn check_disk(errors: &mut Errors, path: &Path<'_>, disk: (&str, &str), partition: i32) {
    check_filled(errors, path, &[disk]);
    if !(0..=255).contains(&partition) {
        errors.invalid(&path.child("partition"), partition, text::inclusive_range(1, 255));
    }
}

pub(super) fn check_iscsi(errors: &mut Errors, path: &Path<'_>, source: &ISCSIVolumeSource) {
    check_filled(errors, path, &[("targetPortal", &source.target_portal), ("iqn", &source.iqn)]);
    if !source.iqn.is_empty() {
        check_iscsi_qualified_name(errors, &path.child("iqn"), &source.iqn);
    }
    check_lun(errors, path, source.lun);
    if (source.chap_auth_discovery || source.chap_auth_session) && source.secret_ref.is_none() {
        errors.required(&path.child("secretRef"), "");
    }
    if let Some(initiator) = source.initiator_name.as_deref() {
        check_iscsi_qualified_name(errors, &path.child("initiatorname"), initiator);
    }
}

/// The volume's name becomes part of an interface's, which has its limit.
pub(super) fn check_iscsi_name(
    errors: &mut Errors,
    path: &Path<'_>,
    volume_name: &str,
    source: &ISCSIVolumeSource,
) {
    if source.initiator_name.is_some() && volume_name.len() + 1 + source.target_portal.len() > 64 {
        let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                      iscsi.initiatorName is specified.";
        errors.invalid(&path.child("name"), volume_name, detail);
    }
}

fn check_lun(errors: &mut Errors, path: &Path<'_>, lun: i32) {
    if !(0..=255).contains(&lun) {
        errors.invalid(&path.child("lun"), lun, text::inclusive_range(0, 255));
    }
}

fn check_iscsi_qualified_name(errors: &mut Errors, path: &Path<'_>, name: &str) {
    let identifier = |length: usize| {
        let mut characters = name.chars().skip(3);
        let separated = characters.next().is_some_and(|separator| separator != '\n');
        let rest: Vec<char> = characters.collect();
        separated && rest.len() == length && rest.iter().all(char::is_ascii_alphanumeric)
    };
    let fits = match name.get(..3) {
        Some("iqn") => {
            name.match_indices("iqn.").any(|(start, prefix)| is_iqn(&name[start + prefix.len()..]))
        }
        Some("eui") => identifier(16),
        Some("naa") => identifier(32),
        _ => return errors.invalid(path, name, "must be valid format starting with iqn, eui, or naa"),
    };
    if !fits {
        errors.invalid(path, name, "must be valid format");
    }
}

/// What follows `iqn.`: year and month, the authority's name, and a name that it gave.
fn is_iqn(text: &str) -> bool {
    let is_date = |date: &str| {
        date.len() == 8
            && date.bytes().enumerate().all(|(index, byte)| match index {
                4 => byte == b'-',
                7 => byte == b'.',
                _ => byte.is_ascii_digit(),
            })
    };
    let Some((date, rest)) = text.split_at_checked(8) else { return false };
    let Some((authority, name)) = rest.split_once(':') else { return false };
    let in_authority = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    is_date(date)
        && !authority.is_empty()
        && authority.bytes().all(in_authority)
        && !name.is_empty()
        && !name.contains([',', ';', '*', '&', '$', '|', ' ', '\t', '\n', '\r', '\u{c}'])
}

pub(super) fn check_fibre_channel(errors: &mut Errors, path: &Path<'_>, source: &FCVolumeSource) {
    let names = path.child("targetWWNs");
    match (source.target_wwns.is_empty(), source.wwids.is_empty()) {
        (true, true) => errors.required(&names, "must specify either targetWWNs or wwids, but not both"),
        (false, false) => {
            let detail = "targetWWNs and wwids can not be specified simultaneously";
            errors.invalid(&names, Json::list(&source.target_wwns), detail);
        }
        (true, false) | (false, true) => {}
    }
    match source.lun {
        _ if source.target_wwns.is_empty() => {}
        None => errors.required(&path.child("lun"), "lun is required if targetWWNs is specified"),
        Some(lun) => check_lun(errors, path, lun),
    }
}

pub(super) fn check_flocker(errors: &mut Errors, path: &Path<'_>, source: &FlockerVolumeSource) {
    match (source.dataset_name.is_empty(), source.dataset_uuid.is_empty()) {
        (true, true) => errors.required(path, "one of datasetName and datasetUUID is required"),
        (false, false) => {
            let detail = "datasetName and datasetUUID can not be specified simultaneously";
            errors.invalid(path, "resource", detail);
        }
        (true, false) | (false, true) => {}
    }
    if source.dataset_name.contains('/') {
        errors.invalid(&path.child("datasetName"), source.dataset_name.as_ref(), "must not contain '/'");
    }
}

pub(super) fn check_rbd(errors: &mut Errors, path: &Path<'_>, source: &RBDVolumeSource) {
    if source.monitors.is_empty() {
        errors.required(&path.child("monitors"), "");
    }
    check_filled(errors, path, &[("image", &source.image)]);
}

pub(super) fn check_quobyte(errors: &mut Errors, path: &Path<'_>, source: &QuobyteVolumeSource) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    if source.registry.is_empty() {
        errors.required(&path.child("registry"), PAIRS);
    } else if source.tenant.len() >= 65 {
        let detail = "must be a UUID and may not exceed a length of 64 characters";
        errors.required(&path.child("tenant"), detail);
    } else {
        for _ in source.registry.split(',').filter(|pair| !is_host_and_port(pair)) {
            errors.invalid(&path.child("registry"), source.registry.as_ref(), PAIRS);
        }
    }
    check_filled(errors, path, &[("volume", &source.volume)]);
}

/// Whether Go can split this into a host, in brackets where it has colons, and a port.
fn is_host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let host = match host.strip_prefix('[') {
        Some(inner) => match inner.strip_suffix(']') {
            Some(inner) => inner,
            None => return false,
        },
        None if host.contains(':') => return false,
        None => host,
    };
    !host.contains(['[', ']']) && !port.contains(['[', ']'])
}

pub(super) fn check_flex_volume(errors: &mut Errors, path: &Path<'_>, source: &FlexVolumeSource) {
    check_filled(errors, path, &[("driver", &source.driver)]);
    let options = path.child("options");
    for key in source.options.keys() {
        let namespace = key.split_once('/').map_or(key, |(namespace, _)| namespace);
        let normalized = format!(".{}", namespace.to_lowercase());
        if normalized.ends_with(".kubernetes.io") || normalized.ends_with(".k8s.io") {
            errors.invalid(&options.key(key), key, "kubernetes.io and k8s.io namespaces are reserved");
        }
    }
}

pub(super) fn check_azure_disk(errors: &mut Errors, path: &Path<'_>, source: &AzureDiskVolumeSource) {
    check_filled(errors, path, &[("diskName", &source.disk_name), ("diskURI", &source.disk_uri)]);
    if let Some(AzureDataDiskCachingMode::Other(mode)) = &source.caching_mode {
        errors.not_supported(&path.child("cachingMode"), Word(mode), AzureDataDiskCachingMode::WORDS);
    }
    if let Some(AzureDataDiskKind::Other(kind)) = &source.kind {
        errors.not_supported(&path.child("kind"), Word(kind), &["Dedicated", "Managed", "Shared"]);
    }
    let (start, supported) = match &source.kind {
        None => return,
        Some(AzureDataDiskKind::Managed) => (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        ),
        Some(AzureDataDiskKind::Shared | AzureDataDiskKind::Dedicated | AzureDataDiskKind::Other(_)) => {
            ("https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd")
        }
    };
    if !source.disk_uri.starts_with(start) {
        errors.not_supported(&path.child("diskURI"), source.disk_uri.as_ref(), &[supported]);
    }
}

pub(super) fn check_storage_os(errors: &mut Errors, path: &Path<'_>, source: &StorageOSVolumeSource) {
    if source.volume_name.is_empty() {
        errors.required(&path.child("volumeName"), "");
    } else {
        let problems = dns1123_label_errors(&source.volume_name);
        errors.invalid_each(&path.child("volumeName"), &source.volume_name, problems);
    }
    if !source.volume_namespace.is_empty() {
        let problems = dns1123_label_errors(&source.volume_namespace);
        errors.invalid_each(&path.child("volumeNamespace"), &source.volume_namespace, problems);
    }
    check_secret_reference(errors, path, source.secret_ref.as_ref());
}

pub(super) fn check_csi(errors: &mut Errors, path: &Path<'_>, source: &CSIVolumeSource) {
    let driver = path.child("driver");
    if source.driver.is_empty() {
        errors.required(&driver, "");
    } else {
        if source.driver.len() > 63 {
            errors.too_long(&driver, 63);
        }
        let problems = dns1123_subdomain_errors(&source.driver.to_lowercase());
        errors.invalid_each(&driver, &source.driver, problems);
    }
    if let Some(secret) = &source.node_publish_secret_ref {
        if secret.name.is_empty() {
            let path = path.child("nodePublishSecretRef");
            errors.required(&path.child("name"), "");
        } else {
            errors.invalid_each(&path.child("name"), &secret.name, dns1123_subdomain_errors(&secret.name));
        }
    }
}
