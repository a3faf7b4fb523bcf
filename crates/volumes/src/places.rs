//! Where a pod's volumes are under the root directory. Upstream's layout, so that either agent finds what the other made.

use std::path::{Path, PathBuf};

/// The plugin's name in `volumes/` and `plugins/`; a slash would be another directory.
pub(crate) const EMPTY_DIR: &str = "kubernetes.io~empty-dir";
pub(crate) const DOWNWARD_API: &str = "kubernetes.io~downward-api";
pub(crate) const PROJECTED: &str = "kubernetes.io~projected";
pub(crate) const CONFIG_MAP: &str = "kubernetes.io~configmap";
pub(crate) const SECRET: &str = "kubernetes.io~secret";
pub(crate) const LOCAL: &str = "kubernetes.io~local-volume";
pub(crate) const CSI: &str = "kubernetes.io~csi";
pub(crate) const NFS: &str = "kubernetes.io~nfs";

/// Plugins whose directories hold nothing but what was made for the pod. The others' are places to mount something on.
pub(crate) const OWN_CONTENT: [&str; 5] = [EMPTY_DIR, DOWNWARD_API, PROJECTED, CONFIG_MAP, SECRET];

/// Where a pod's volumes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    root: PathBuf,
}

impl Places {
    /// Below `--root-dir`.
    pub fn new(root: impl Into<PathBuf>) -> Places {
        Places { root: root.into() }
    }

    /// `--root-dir`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A pod's own directory.
    pub fn pod(&self, uid: &str) -> PathBuf {
        self.root.join("pods").join(uid)
    }

    /// The directories of a pod's volumes, one level for the plugin and one for the volume.
    pub fn volumes(&self, uid: &str) -> PathBuf {
        self.pod(uid).join("volumes")
    }

    /// A volume's directory; `plugin` is the plugin's name with `~` for `/`.
    pub fn volume(&self, uid: &str, plugin: &str, volume: &str) -> PathBuf {
        self.volumes(uid).join(plugin).join(volume)
    }

    /// What is staged for pods by CSI drivers, one level for the driver and one for the volume.
    pub fn csi(&self) -> PathBuf {
        self.root.join("plugins/kubernetes.io/csi")
    }

    /// Where a volume of a CSI driver is staged. What the driver calls it may be any text.
    pub fn csi_staged(&self, driver: &str, handle: &str) -> PathBuf {
        self.csi().join(driver).join(crate::csi::hash(&[handle]))
    }

    /// What CSI drivers have staged and published as devices, by the names of the pieces of storage.
    pub fn csi_devices(&self) -> PathBuf {
        self.csi().join("volumeDevices")
    }

    /// Where devices of a plugin are mapped, one level for the volume and one for the pod.
    pub fn node_devices(&self, plugin: &str) -> PathBuf {
        self.root.join("plugins").join(plugin).join("volumeDevices")
    }

    /// Where devices are mounted that pieces of storage of the kind `local` name.
    pub fn local_mounts(&self) -> PathBuf {
        self.root.join("plugins/kubernetes.io/local-volume/mounts")
    }

    /// A pod's devices, one level for the plugin and one for the volume.
    pub fn devices(&self, uid: &str) -> PathBuf {
        self.pod(uid).join("volumeDevices")
    }

    /// What plugins remember of a pod.
    pub fn plugins(&self, uid: &str) -> PathBuf {
        self.pod(uid).join("plugins")
    }

    /// The directory whose file `ready` says that an empty directory was made with all that belongs to it.
    pub fn ready(&self, uid: &str, volume: &str) -> PathBuf {
        self.plugins(uid).join(EMPTY_DIR).join(volume)
    }

    /// The sub paths of a pod's mounts.
    pub fn sub_paths(&self, uid: &str) -> PathBuf {
        self.pod(uid).join("volume-subpaths")
    }

    /// What a container sees where a mount asks for a sub path; `index` is the mount's place in the list.
    pub fn sub_path(&self, uid: &str, volume: &str, container: &str, index: usize) -> PathBuf {
        self.sub_paths(uid).join(volume).join(container).join(index.to_string())
    }
}

/// Whether a name is one part of a path: what is joined to a path must not lead elsewhere.
pub(crate) fn is_one_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_upstreams() {
        let places = Places::new("/var/lib/kubelet");
        for (path, expected) in [
            (places.volume("u", EMPTY_DIR, "v"), "pods/u/volumes/kubernetes.io~empty-dir/v"),
            (places.volume("u", DOWNWARD_API, "v"), "pods/u/volumes/kubernetes.io~downward-api/v"),
            (places.volume("u", PROJECTED, "v"), "pods/u/volumes/kubernetes.io~projected/v"),
            (places.ready("u", "wrapped_v"), "pods/u/plugins/kubernetes.io~empty-dir/wrapped_v"),
            (places.sub_path("u", "v", "c", 3), "pods/u/volume-subpaths/v/c/3"),
        ] {
            assert_eq!(path, Path::new("/var/lib/kubelet").join(expected));
        }
    }

    #[test]
    fn only_one_part_of_a_path_is_a_name() {
        assert!(is_one_name("a") && is_one_name("..a") && is_one_name("a.b"));
        for bad in ["", ".", "..", "a/b", "/", "a\0"] {
            assert!(!is_one_name(bad), "{bad:?}");
        }
    }
}
