//! Stand-ins for upstream's packages: what they own, and what their scripts do. Their kubelet says who it is and waits.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// The version of its kubelet, with the revision that its packages have.
pub const KUBELET: &str = "1.36.3-1.1";

/// A package of files and scripts, written as `NAME.deb` into a directory.
struct Package {
    name: &'static str,
    version: &'static str,
    /// Further lines of its description.
    fields: &'static str,
    files: &'static [(&'static str, &'static str, u32)],
    configuration: &'static str,
    scripts: &'static [(&'static str, &'static str)],
}

impl Package {
    fn build(&self, directory: &Path) {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, content: &str, mode: u32| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        self.files.iter().for_each(|(path, content, mode)| put(path, content, *mode));
        let Package { name, version, fields, .. } = self;
        let control = format!(
            "Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: Nobody <root@localhost>\n{fields}\
             Description: stand-in for upstream's {name}\n"
        );
        put("DEBIAN/control", &control, 0o644);
        put("DEBIAN/conffiles", self.configuration, 0o644);
        self.scripts.iter().for_each(|(script, text)| put(&format!("DEBIAN/{script}"), text, 0o755));
        let package = directory.join(format!("{name}.deb"));
        let built = Command::new("dpkg-deb")
            .args(["--root-owner-group", "-Znone", "--build"])
            .args([root.path(), &package])
            .output()
            .unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    }
}

/// Writes `kubelet.deb` and `kubeadm.deb`.
pub fn build(directory: &Path) {
    let kubelet = Package {
        name: "kubelet",
        version: KUBELET,
        fields: "",
        files: &[
            (
                "usr/bin/kubelet",
                "#!/bin/sh\ncase $1 in --version) echo Kubernetes v1.36.3 ;; *) exec sleep infinity ;; esac\n",
                0o755,
            ),
            (
                "usr/lib/systemd/system/kubelet.service",
                "[Service]\nExecStart=/usr/bin/kubelet\nRestart=always\nRestartSec=10\n\
                 [Install]\nWantedBy=multi-user.target\n",
                0o644,
            ),
            ("etc/default/kubelet", "KUBELET_EXTRA_ARGS=\n", 0o644),
            ("etc/kubernetes/manifests/.kubelet-keep", "", 0o644),
            ("var/lib/kubelet/.kubelet-keep", "", 0o644),
        ],
        configuration: "/etc/default/kubelet\n",
        // As Debian's helpers for packages write them.
        scripts: &[
            (
                "postinst",
                "#!/bin/sh\nset -e\n\
                 if [ \"$1\" = configure ]; then\n\
                 deb-systemd-helper unmask kubelet.service >/dev/null || true\n\
                 if deb-systemd-helper --quiet was-enabled kubelet.service; then\n\
                 deb-systemd-helper enable kubelet.service >/dev/null || true\n\
                 else deb-systemd-helper update-state kubelet.service >/dev/null || true; fi\n\
                 [ ! -d /run/systemd/system ] || systemctl --system daemon-reload\n\
                 fi\n",
            ),
            (
                "prerm",
                "#!/bin/sh\nset -e\n\
                 if [ \"$1\" = remove ] && [ -d /run/systemd/system ]; then deb-systemd-invoke stop kubelet.service; fi\n",
            ),
            (
                "postrm",
                "#!/bin/sh\nset -e\n\
                 [ ! -d /run/systemd/system ] || systemctl --system daemon-reload\n\
                 case $1 in\n\
                 remove) deb-systemd-helper mask kubelet.service >/dev/null || true ;;\n\
                 purge)\n\
                 deb-systemd-helper purge kubelet.service >/dev/null || true\n\
                 deb-systemd-helper unmask kubelet.service >/dev/null || true ;;\n\
                 esac\n",
            ),
        ],
    };
    let kubeadm = Package {
        name: "kubeadm",
        version: "1.36.4-1.1",
        // Since 1.32 it depends on nothing. One that still does has to be content, too.
        fields: "Depends: kubelet (>= 1.36.3)\n",
        files: &[
            ("usr/bin/kubeadm", "#!/bin/sh\n", 0o755),
            (
                "usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf",
                include_str!("../data/10-kubeadm.conf"),
                0o644,
            ),
        ],
        configuration: "",
        scripts: &[],
    };
    kubelet.build(directory);
    kubeadm.build(directory);
}
