//! What becomes of the kernel's settings that are not as a kubelet wants them: set, refused, or told.

use std::path::Path;

use anyhow::bail;
use crablet_api::Gate;
use crablet_config::Effective;
use crablet_host::kernel_tunables::{InvalidFlag, KernelTunableError, correct, in_user_namespace, invalid};
use crablet_logging::ErrorChain;
use tracing::{debug, info};

use crate::exit::Failure;

/// Refuses a machine whose settings differ, where nobody may change them.
pub(crate) fn check(effective: &Effective, root: &Path) -> Result<(), Failure> {
    if !effective.configuration.protect_kernel_defaults {
        return Ok(());
    }
    let (invalid, errors) = invalid(root);
    let problems: Vec<String> = invalid
        .iter()
        .map(ToString::to_string)
        .chain(errors.iter().map(|error| ErrorChain(error).to_string()))
        .collect();
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Failure::Configuration(problems)),
    }
}

/// Sets what differs. Who does not want that knows of it.
pub(crate) fn set_up(effective: &Effective, root: &Path) -> anyhow::Result<()> {
    let (invalid, mut errors) = invalid(root);
    if effective.flags.keep_kernel_settings {
        for flag in &invalid {
            let InvalidFlag { flag, expected, actual } = flag;
            debug!(
                flag,
                expected, actual, "The kernel is set otherwise than is good for pods; it is left so"
            );
        }
        return Ok(());
    }
    for flag in &invalid {
        let InvalidFlag { flag: name, expected, actual } = flag;
        match correct(root, flag) {
            Ok(()) => info!(flag = name, from = actual, to = expected, "Set the kernel as is good for pods"),
            Err(error) if is_not_ours(effective, root) => {
                info!(flag = name, err = %ErrorChain(&error), "Cannot set the kernel from a user namespace");
            }
            Err(error) => errors.push(error),
        }
    }
    refuse(&errors)
}

fn is_not_ours(effective: &Effective, root: &Path) -> bool {
    effective.features.enabled(Gate::KubeletInUserNamespace) && in_user_namespace(root)
}

fn refuse(errors: &[KernelTunableError]) -> anyhow::Result<()> {
    if errors.is_empty() {
        return Ok(());
    }
    let errors: Vec<String> = errors.iter().map(|error| ErrorChain(error).to_string()).collect();
    bail!(
        "{}; who has set the kernel otherwise on purpose, or runs where it cannot be set, leaves it so with \
         --keep-kernel-settings",
        errors.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use crablet_config::Flag;

    use super::*;

    const SETTINGS: [&str; 6] = [
        "kernel/keys/root_maxbytes",
        "kernel/keys/root_maxkeys",
        "kernel/panic",
        "kernel/panic_on_oops",
        "vm/overcommit_memory",
        "vm/panic_on_oom",
    ];

    /// A machine, and how the agent is started on it.
    struct Case {
        root: tempfile::TempDir,
        effective: Effective,
    }

    fn case(flags: &[(&str, &str)]) -> Case {
        let root = tempfile::tempdir().unwrap();
        for setting in SETTINGS {
            let path = root.path().join("proc/sys").join(setting);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "0\n").unwrap();
        }
        let given: Vec<_> = flags.iter().map(|(name, text)| (Flag::find(name).unwrap(), *text)).collect();
        Case { root, effective: crablet_config::load(&given).unwrap() }
    }

    impl Case {
        fn settings(&self) -> Vec<String> {
            let read =
                |setting| std::fs::read_to_string(self.root.path().join("proc/sys").join(setting)).unwrap();
            SETTINGS.map(read).map(|text| text.trim().to_owned()).into()
        }

        fn start(&self) -> Result<(), String> {
            check(&self.effective, self.root.path()).map_err(|failure| failure.to_string())?;
            set_up(&self.effective, self.root.path()).map_err(|error| error.to_string())
        }
    }

    #[test]
    fn the_kernel_is_set_as_upstream_sets_it() {
        let case = case(&[]);
        case.start().unwrap();
        assert_eq!(case.settings(), ["25000000", "1000000", "10", "1", "1", "0"]);
    }

    #[test]
    fn who_protects_the_kernels_settings_is_told_of_all_that_differ_and_nothing_is_set() {
        let case = case(&[("protect-kernel-defaults", "true")]);
        let refused = case.start().unwrap_err();
        assert!(
            refused
                .ends_with("invalid kernel flag: vm/overcommit_memory, expected value: 1, actual value: 0"),
            "{refused}"
        );
        assert_eq!(refused.matches("invalid kernel flag").count(), 5);
        assert_eq!(case.settings(), ["0"; 6]);
    }

    #[test]
    fn who_keeps_them_starts_and_leaves_them() {
        let case = case(&[("keep-kernel-settings", "true")]);
        case.start().unwrap();
        assert_eq!(case.settings(), ["0"; 6]);
    }

    #[test]
    fn a_kernel_that_cannot_be_set_is_refused_but_where_it_is_somebody_elses() {
        let mut read_only = case(&[("feature-gates", "KubeletInUserNamespace=true")]);
        std::fs::create_dir_all(read_only.root.path().join("proc/self")).unwrap();
        let map = |map: &str| std::fs::write(read_only.root.path().join("proc/self/uid_map"), map).unwrap();
        let panic = read_only.root.path().join("proc/sys/kernel/panic");
        std::fs::remove_file(&panic).unwrap();
        // A number that nobody can write, not even root.
        std::os::unix::fs::symlink("/proc/self/oom_score", &panic).unwrap();
        map("0 0 4294967295");
        let refused = read_only.start().unwrap_err();
        assert!(refused.starts_with("cannot write \"10\" to "), "{refused}");
        assert!(refused.ends_with("--keep-kernel-settings"), "{refused}");
        map("0 100000 65536");
        read_only.start().unwrap();
        read_only.effective.features = crablet_api::FeatureGates::default();
        read_only.start().unwrap_err();
        read_only.effective.flags.keep_kernel_settings = true;
        read_only.start().unwrap();
    }
}
