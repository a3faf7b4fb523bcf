//! What the cgroups of pods are called, by QoS class and driver. Names alone: nothing here asks the kernel, so that
//! decisions and what acts on them mean the same by a name.

use std::fmt;

/// The cgroup of all pods, below the cgroup root.
const KUBEPODS: &str = "kubepods";
/// What the name of a pod's cgroup begins with; its UID follows.
const POD_PREFIX: &str = "pod";
/// What the name of a systemd slice ends with.
const SLICE: &str = ".slice";
/// The longest UID that still makes a file name with all that is put around it.
const LONGEST_UID: usize = 128;

/// Who makes cgroups, which decides how they are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CgroupDriver {
    /// We do, in the file system: `/kubepods/burstable/pod<uid>`.
    #[default]
    Cgroupfs,
    /// systemd does, as slices: `/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice`.
    Systemd,
}

/// How a pod is treated when resources run short, which also decides where its cgroup stands. Later ones suffer first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QosClass {
    /// Every container has limits of CPU and memory, and asks for as much.
    Guaranteed,
    /// Some container asks for something.
    Burstable,
    /// No container asks for anything.
    BestEffort,
}

impl QosClass {
    /// Every class.
    pub const ALL: [QosClass; 3] = [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort];

    /// The name of the class's cgroup. Guaranteed pods have none of their own.
    fn level(self) -> Option<&'static str> {
        match self {
            QosClass::Guaranteed => None,
            QosClass::Burstable => Some("burstable"),
            QosClass::BestEffort => Some("besteffort"),
        }
    }
}

/// Which pod's cgroup: by UID, and by the class that it stands below.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodCgroup {
    qos: QosClass,
    uid: String,
}

impl PodCgroup {
    /// The cgroup of the pod with this UID. A static pod's manifest may say any text for a UID, so it is checked here:
    /// it becomes a part of paths.
    pub fn new(qos: QosClass, uid: &str) -> Result<PodCgroup, NameError> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':');
        match uid.is_empty() || uid.len() > LONGEST_UID || !uid.bytes().all(fits) {
            true => Err(NameError { uid: uid.into() }),
            false => Ok(PodCgroup { qos, uid: uid.into() }),
        }
    }

    /// The pod's class.
    pub fn qos(&self) -> QosClass {
        self.qos
    }

    /// The pod's UID.
    pub fn uid(&self) -> &str {
        &self.uid
    }
}

/// A pod's UID cannot be part of a cgroup's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the pod UID {uid:?} cannot name a cgroup: up to 128 letters, digits, '-', '.' and ':' can")]
pub struct NameError {
    pub uid: String,
}

/// The name of a cgroup: what it is called at each level from the root down. It is the same for every driver.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CgroupName(Vec<String>);

impl CgroupName {
    /// The root of the hierarchy.
    pub fn root() -> CgroupName {
        CgroupName(Vec::new())
    }

    /// The name of a path such as `/kubepods/burstable`.
    pub fn from_cgroupfs(path: &str) -> CgroupName {
        let parts = path.split('/').filter(|part| !matches!(*part, "" | "." | ".."));
        CgroupName(parts.map(String::from).collect())
    }

    /// The name of a path such as `/kubepods.slice/kubepods-burstable.slice`: its last part says it all.
    pub fn from_systemd(path: &str) -> CgroupName {
        let last = path.rsplit('/').next().unwrap_or_default();
        let slice = last.strip_suffix(SLICE).unwrap_or(last);
        let parts = slice.split('-').filter(|part| !part.is_empty());
        CgroupName(parts.map(|part| part.replace('_', "-")).collect())
    }

    /// What it is called at each level from the root down.
    pub fn parts(&self) -> &[String] {
        &self.0
    }

    /// A cgroup below this one.
    pub fn child(&self, part: &str) -> CgroupName {
        let mut parts = self.0.clone();
        parts.push(part.into());
        CgroupName(parts)
    }

    /// The path that it has when we make it ourselves.
    pub fn to_cgroupfs(&self) -> String {
        format!("/{}", self.0.join("/"))
    }

    /// The path that it has when systemd makes it. Each slice's name repeats those above it, joined by `-`, for which
    /// a `-` in a name is written `_`.
    pub fn to_systemd(&self) -> String {
        let mut path = String::new();
        let mut slice = String::new();
        for part in &self.0 {
            if !slice.is_empty() {
                slice.push('-');
            }
            slice.push_str(&part.replace('-', "_"));
            path.push('/');
            path.push_str(&slice);
            path.push_str(SLICE);
        }
        match path.is_empty() {
            true => "/".into(),
            false => path,
        }
    }

    pub fn path(&self, driver: CgroupDriver) -> String {
        match driver {
            CgroupDriver::Cgroupfs => self.to_cgroupfs(),
            CgroupDriver::Systemd => self.to_systemd(),
        }
    }
}

impl fmt::Display for CgroupName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.to_cgroupfs())
    }
}

/// Where the agent's cgroups stand and what they are called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    root: CgroupName,
    driver: CgroupDriver,
}

impl Layout {
    /// A layout below a cgroup root, as `--cgroup-root` gives it: empty or `/` for the root of the hierarchy.
    pub fn new(cgroup_root: &str, driver: CgroupDriver) -> Layout {
        let root = match driver == CgroupDriver::Systemd && cgroup_root.ends_with(SLICE) {
            true => CgroupName::from_systemd(cgroup_root),
            false => CgroupName::from_cgroupfs(cgroup_root),
        };
        Layout { root, driver }
    }

    /// Who makes the cgroups.
    pub fn driver(&self) -> CgroupDriver {
        self.driver
    }

    /// The cgroup that must be there already, and below which all of ours are.
    pub fn root(&self) -> &CgroupName {
        &self.root
    }

    /// The cgroup of all pods.
    pub fn kubepods(&self) -> CgroupName {
        self.root.child(KUBEPODS)
    }

    /// The cgroup below which a class's pods stand.
    pub fn qos(&self, qos: QosClass) -> CgroupName {
        match qos.level() {
            Some(level) => self.kubepods().child(level),
            None => self.kubepods(),
        }
    }

    /// A pod's cgroup.
    pub fn pod(&self, pod: &PodCgroup) -> CgroupName {
        self.qos(pod.qos).child(&format!("{POD_PREFIX}{}", pod.uid))
    }

    /// The path of a cgroup below the mount of its hierarchy.
    pub fn path(&self, name: &CgroupName) -> String {
        name.path(self.driver)
    }

    /// The name of a cgroup that is not ours, as a configuration gives it.
    pub fn given(&self, path: &str) -> CgroupName {
        match self.driver {
            CgroupDriver::Cgroupfs => CgroupName::from_cgroupfs(path),
            CgroupDriver::Systemd => CgroupName::from_systemd(path),
        }
    }

    /// The pod whose cgroup is a directory of this name below a class's cgroup, if it is a pod's.
    pub fn pod_from_directory(&self, qos: QosClass, directory: &str) -> Option<PodCgroup> {
        let last = match self.driver {
            CgroupDriver::Cgroupfs => directory.to_owned(),
            CgroupDriver::Systemd => {
                let name = CgroupName::from_systemd(directory.strip_suffix(SLICE).map(|_| directory)?);
                name.0.last()?.clone()
            }
        };
        let pod = PodCgroup::new(qos, last.strip_prefix(POD_PREFIX)?).ok()?;
        // Only a directory that we would name so ourselves: what else is there belongs to somebody else.
        let ours = self.path(&self.pod(&pod));
        ours.ends_with(&format!("/{directory}")).then_some(pod)
    }

    /// The UID of the pod and the runtime's name for the container that a cgroup is of, by its path: also where the container
    /// made it in its own, or where there are others above the root.
    pub fn container_from_path<'p>(&self, path: &'p str) -> Option<(String, &'p str)> {
        let mut parts = path.split('/');
        let pod = |part| QosClass::ALL.into_iter().find_map(|qos| self.pod_from_directory(qos, part));
        let pod = parts.find_map(pod)?;
        Some((pod.uid, container_id(parts.next()?)?))
    }
}

/// The runtime's name for the container of a cgroup: `<id>`, or `cri-containerd-<id>.scope` where systemd names them. CRI-O
/// writes `crio-<id>` in both, and has one more for who watches the container, which is none.
pub fn container_id(directory: &str) -> Option<&str> {
    if directory.starts_with("crio-conmon-") {
        return None;
    }
    Some(match directory.strip_suffix(".scope") {
        Some(scope) => scope.rsplit('-').next().unwrap_or(scope),
        None => directory.strip_prefix("crio-").unwrap_or(directory),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "7ec5c0b2-0c1f-4b7a-8a1e-3f1f0c0e8a11";

    fn pod(qos: QosClass) -> PodCgroup {
        PodCgroup::new(qos, UID).unwrap()
    }

    #[test]
    fn pods_stand_below_the_level_of_their_class() {
        let layout = Layout::new("", CgroupDriver::Cgroupfs);
        for (qos, expected) in [
            (QosClass::Guaranteed, "/kubepods/pod"),
            (QosClass::Burstable, "/kubepods/burstable/pod"),
            (QosClass::BestEffort, "/kubepods/besteffort/pod"),
        ] {
            assert_eq!(layout.path(&layout.pod(&pod(qos))), format!("{expected}{UID}"));
        }
    }

    #[test]
    fn everything_stands_below_the_cgroup_root() {
        for (root, driver, expected) in [
            ("/", CgroupDriver::Cgroupfs, "/kubepods/burstable"),
            ("/a/b", CgroupDriver::Cgroupfs, "/a/b/kubepods/burstable"),
            ("a/", CgroupDriver::Cgroupfs, "/a/kubepods/burstable"),
            ("/../a/./b", CgroupDriver::Cgroupfs, "/a/b/kubepods/burstable"),
            ("/", CgroupDriver::Systemd, "/kubepods.slice/kubepods-burstable.slice"),
            ("/a", CgroupDriver::Systemd, "/a.slice/a-kubepods.slice/a-kubepods-burstable.slice"),
            (
                "/a.slice/a-b.slice",
                CgroupDriver::Systemd,
                "/a.slice/a-b.slice/a-b-kubepods.slice/a-b-kubepods-burstable.slice",
            ),
        ] {
            let layout = Layout::new(root, driver);
            assert_eq!(layout.path(&layout.qos(QosClass::Burstable)), expected, "{root}");
        }
    }

    #[test]
    fn systemd_slices_repeat_the_names_above_and_write_dashes_as_underscores() {
        let layout = Layout::new("", CgroupDriver::Systemd);
        let expected = "/kubepods.slice/kubepods-burstable.slice/\
                        kubepods-burstable-pod7ec5c0b2_0c1f_4b7a_8a1e_3f1f0c0e8a11.slice";
        let name = layout.pod(&pod(QosClass::Burstable));
        assert_eq!(layout.path(&name), expected);
        assert_eq!(CgroupName::from_systemd(expected), name);
        assert_eq!(CgroupName::root().to_systemd(), "/");
        assert_eq!(CgroupName::from_systemd("-.slice"), CgroupName::root());
    }

    #[test]
    fn a_pod_is_known_by_the_directory_of_its_cgroup() {
        for driver in [CgroupDriver::Cgroupfs, CgroupDriver::Systemd] {
            let layout = Layout::new("/some/root", driver);
            for qos in QosClass::ALL {
                let path = layout.path(&layout.pod(&pod(qos)));
                let directory = path.rsplit('/').next().unwrap();
                assert_eq!(layout.pod_from_directory(qos, directory), Some(pod(qos)), "{driver:?}");
            }
        }
    }

    #[test]
    fn what_is_no_pod_is_not_taken_for_one() {
        let cgroupfs = Layout::new("", CgroupDriver::Cgroupfs);
        for directory in ["burstable", "besteffort", "pod", "podman", "pod_x", "xpod1", "system.slice"] {
            let found = cgroupfs.pod_from_directory(QosClass::Guaranteed, directory);
            let expected =
                (directory == "podman").then(|| PodCgroup::new(QosClass::Guaranteed, "man").unwrap());
            assert_eq!(found, expected, "{directory}");
        }
        let systemd = Layout::new("", CgroupDriver::Systemd);
        for directory in
            ["kubepods-burstable.slice", "podabc.slice", "other-podabc.slice", "kubepods-podabc.scope"]
        {
            assert_eq!(systemd.pod_from_directory(QosClass::Guaranteed, directory), None, "{directory}");
        }
    }

    #[test]
    fn containers_are_known_by_their_cgroups_in_both_drivers() {
        for (directory, expected) in [
            ("9be25294016e", Some("9be25294016e")),
            ("cri-containerd-aaefb9d8feed.scope", Some("aaefb9d8feed")),
            ("crio-aaefb9d8feed.scope", Some("aaefb9d8feed")),
            ("crio-aaefb9d8feed", Some("aaefb9d8feed")),
            ("aaefb9d8feed.scope", Some("aaefb9d8feed")),
            ("crio-conmon-aaefb9d8feed.scope", None),
            ("crio-conmon-aaefb9d8feed", None),
        ] {
            assert_eq!(container_id(directory), expected, "{directory}");
        }
    }

    #[test]
    fn a_container_is_known_by_the_path_of_a_cgroup_in_it() {
        let slice = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod7ec5c0b2_0c1f.slice";
        for (driver, path, expected) in [
            (CgroupDriver::Cgroupfs, "/kubepods/pod7ec5c0b2-0c1f/aaef", Some("aaef")),
            (CgroupDriver::Cgroupfs, "/kubepods/besteffort/pod7ec5c0b2-0c1f/aaef/init/x", Some("aaef")),
            (
                CgroupDriver::Cgroupfs,
                "/docker/9be2/kubepods/burstable/pod7ec5c0b2-0c1f/crio-aaef",
                Some("aaef"),
            ),
            (CgroupDriver::Cgroupfs, "/kubepods/burstable/pod7ec5c0b2-0c1f", None),
            (CgroupDriver::Cgroupfs, "/system.slice/ssh.service", None),
            (CgroupDriver::Cgroupfs, "/", None),
            (CgroupDriver::Systemd, &format!("{slice}/cri-containerd-aaef.scope"), Some("aaef")),
            (CgroupDriver::Systemd, &format!("{slice}/cri-containerd-aaef.scope/init.scope"), Some("aaef")),
            (
                CgroupDriver::Systemd,
                "/kubepods.slice/kubepods-pod7ec5c0b2_0c1f.slice/crio-aaef.scope",
                Some("aaef"),
            ),
            (CgroupDriver::Systemd, "/kubepods/burstable/pod7ec5c0b2-0c1f/aaef", None),
            (CgroupDriver::Systemd, slice, None),
        ] {
            let found = Layout::new("", driver).container_from_path(path);
            assert_eq!(found, expected.map(|id| ("7ec5c0b2-0c1f".to_owned(), id)), "{path}");
        }
    }

    #[test]
    fn a_uid_that_could_leave_the_directory_is_refused() {
        for uid in ["", "..", "a/b", "a_b", "a\0b", "a b", &"a".repeat(129)] {
            let refused = PodCgroup::new(QosClass::Burstable, uid);
            // Two dots are no way up: "pod" stands before them.
            assert_eq!(refused.is_err(), uid != "..", "{uid:?}");
        }
        let message = PodCgroup::new(QosClass::Burstable, "a/b").unwrap_err().to_string();
        assert!(message.contains("\"a/b\""), "{message}");
    }
}
