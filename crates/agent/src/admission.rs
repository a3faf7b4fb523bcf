//! Which pods the node takes: one owner of what has been granted to whom.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crablet_api::FeatureGates;
use crablet_api::core::{Node, Pod};
use crablet_core::admission::{Input, Rejection, admit};
use crablet_core::translate::{ForbiddenSysctl, SysctlAllowlist, needs_app_armor};

/// The owner. Clones are the same.
#[derive(Debug, Clone)]
pub struct Admission {
    node: Arc<Node>,
    features: FeatureGates,
    sysctls: Arc<SysctlAllowlist>,
    app_armor: bool,
    granted: Arc<Mutex<BTreeMap<String, Arc<Pod>>>>,
}

impl Admission {
    /// Nothing has been granted yet. The node is described as the API server would show it; beside that it has a list
    /// of kernel parameters that pods may set, and AppArmor or not.
    pub fn new(node: Node, features: FeatureGates, sysctls: SysctlAllowlist, app_armor: bool) -> Admission {
        let (node, sysctls) = (Arc::new(node), Arc::new(sysctls));
        Admission { node, features, sysctls, app_armor, granted: Arc::default() }
    }

    /// Decides whether the node takes a pod, and grants it what it asks for.
    pub fn admit(&self, pod: &Arc<Pod>) -> Result<(), Rejection> {
        self.sysctls
            .admit(pod)
            .map_err(|forbidden| Rejection::new(ForbiddenSysctl::REASON, forbidden.to_string()))?;
        let mut granted = self.granted();
        let others: Vec<&Pod> =
            granted.iter().filter(|(uid, _)| **uid != *pod.metadata.uid).map(|(_, pod)| &**pod).collect();
        admit(&Input { pod, node: &self.node, others: &others, features: &self.features })?;
        if !self.app_armor && needs_app_armor(pod) {
            let message = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
            return Err(Rejection::new("AppArmor", message));
        }
        granted.insert(pod.metadata.uid.to_string(), Arc::clone(pod));
        Ok(())
    }

    /// Grants without asking: for a pod whose containers run already.
    pub fn take_over(&self, pod: &Arc<Pod>) {
        self.granted().insert(pod.metadata.uid.to_string(), Arc::clone(pod));
    }

    /// Takes back what was granted.
    pub fn release(&self, uid: &str) {
        self.granted().remove(uid);
    }

    fn granted(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<Pod>>> {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crablet_api::testing::pod_yaml;

    fn check(spec: &str, app_armor: bool, expected: &str) {
        let mut node = Node::default();
        node.status.allocatable.insert("pods", "10".parse().unwrap());
        let sysctls = SysctlAllowlist::new(Some((6, 1)), &["kernel.msg*"]).unwrap();
        let admission = Admission::new(node, FeatureGates::default(), sysctls, app_armor);
        let pod =
            pod_yaml(&format!("metadata: {{name: p, uid: u}}\nspec: {{containers: [{{name: c}}], {spec}}}"));
        let verdict = match admission.admit(&Arc::new(pod)) {
            Ok(()) => "admitted".to_owned(),
            Err(Rejection { reason, message }) => format!("{reason}: {message}"),
        };
        assert_eq!(verdict, expected, "{spec}");
    }

    #[test]
    fn a_kernel_parameter_has_to_be_on_the_list() {
        let sysctl = |name: &str| format!("securityContext: {{sysctls: [{{name: {name}, value: '1'}}]}}");
        check(&sysctl("kernel.msgmax"), false, "admitted");
        check(&sysctl("net.ipv4.tcp_syncookies"), false, "admitted");
        let forbidden = "SysctlForbidden: forbidden sysctl: \"kernel.sem\" not allowlisted";
        check(&sysctl("kernel.sem"), false, forbidden);
    }

    #[test]
    fn a_pod_that_names_a_profile_needs_app_armor() {
        let profile = |word: &str| format!("securityContext: {{appArmorProfile: {{type: {word}}}}}");
        let refused = "AppArmor: Cannot enforce AppArmor: AppArmor is not enabled on the host";
        check(&profile("RuntimeDefault"), false, refused);
        check(&profile("RuntimeDefault"), true, "admitted");
        check(&profile("Unconfined"), false, "admitted");
    }
}
