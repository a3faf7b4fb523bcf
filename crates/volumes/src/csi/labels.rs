//! SELinux labels that volumes are mounted with: a pod need not wait until each of its files has one.
//!
//! As upstream, this is for volumes that one pod alone may have, and with the gate `SELinuxMount` for all; where SELinux
//! is on, the driver says in its object that it can do it, and the pod's containers agree on a label.

use std::collections::BTreeSet;

use crablet_api::core::{PodSELinuxChangePolicy, SELinuxOptions};
use crablet_api::storage::CsiDriver;

use super::{Csi, Staged, block, is_for_one_pod, vol_data};
use crate::error::PluginError;
use crate::machine::Machine;
use crate::places::CSI;
use crate::plugin::Request;

impl Csi {
    /// Has volumes of all access modes mounted with a label: the gate `SELinuxMount`.
    pub fn label_all(&self) {
        self.0.labels_all.get_or_init(|| ());
    }

    /// The label that a volume is mounted with for a pod, if it is. Its lane is held. What is staged with another label
    /// has to go first.
    pub(super) async fn label(
        &self,
        request: &Request,
        staged: &Staged,
        of_cluster: Option<&CsiDriver>,
    ) -> Result<Option<String>, PluginError> {
        if !self.0.machine.has_selinux() || block::is_wanted(request) {
            return Ok(None);
        }
        let is_every = self.0.labels_all.get().is_some();
        let is_supported = of_cluster.is_some_and(|driver| driver.spec.se_linux_mount == Some(true));
        let is_labelled = is_every || is_for_one_pod(request);
        let on_node = self.0.places.csi_staged(&staged.driver, &staged.handle);
        let in_pod = self.0.places.volume(request.uid(), CSI, request.spec_name());
        let asked = request.clone();
        let found = self.work_for(request, move |machine| {
            let label = if is_labelled { wanted(machine, &asked)?.filter(|_| is_supported) } else { None };
            Ok((label, vol_data::readable(machine, &on_node), vol_data::readable(machine, &in_pod)))
        });
        match found.await? {
            // What a pod has stays as it is.
            (_, _, Some(own)) => Ok(own.se_linux_mount_context),
            (label, Some(there), None) if there.se_linux_mount_context != label => {
                self.use_no_more(staged, request.uid());
                Err(PluginError::OtherLabel(staged.unique_name()))
            }
            (label, _, None) => Ok(label),
        }
    }
}

/// The label that all containers with a volume agree on. None where none has one, or where the pod wants its files
/// relabelled one by one.
fn wanted(machine: &dyn Machine, request: &Request) -> Result<Option<String>, PluginError> {
    let labels = options(request).map(|options| machine.file_label(options)).filter_map(Result::transpose);
    let labels = labels.collect::<Result<BTreeSet<String>, _>>().map_err(PluginError::NoLabel)?;
    if labels.len() > 1 {
        return Err(PluginError::Labels(labels.into_iter().collect::<Vec<_>>().join(",")));
    }
    let context = request.pod.spec.security_context.as_ref();
    let policy = context.and_then(|context| context.se_linux_change_policy.as_ref());
    let is_recursive = policy == Some(&PodSELinuxChangePolicy::Recursive);
    Ok(labels.into_iter().next().filter(|_| !is_recursive))
}

/// Those of each container that mounts the volume.
fn options(request: &Request) -> impl Iterator<Item = &SELinuxOptions> {
    let spec = &request.pod.spec;
    let of_pod = spec.security_context.as_ref().and_then(|context| context.se_linux_options.as_deref());
    let containers = spec
        .all_containers()
        .filter(|container| container.volume_mounts.iter().any(|mount| *mount.name == *request.volume));
    containers.filter_map(move |container| {
        let own = container.security_context.as_ref();
        own.and_then(|context| context.se_linux_options.as_deref()).or(of_pod)
    })
}
