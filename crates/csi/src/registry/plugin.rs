//! What a plugin says of itself, and whether that is accepted.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::claims::Holder;
use super::version::Version;
use crate::registration::PluginInfo;

/// The longest name of a CSI driver.
const LONGEST_NAME: usize = 63;

/// What a plugin is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PluginType {
    Csi,
    Device,
    Dra,
}

impl PluginType {
    /// A type by its name in the protocol.
    fn parse(name: &str) -> Option<PluginType> {
        match name {
            "CSIPlugin" => Some(PluginType::Csi),
            "DevicePlugin" => Some(PluginType::Device),
            "DRAPlugin" => Some(PluginType::Dra),
            _ => None,
        }
    }
}

impl fmt::Display for PluginType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PluginType::Csi => "CSIPlugin",
            PluginType::Device => "DevicePlugin",
            PluginType::Dra => "DRAPlugin",
        })
    }
}

/// A plugin that made itself known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plugin {
    pub kind: PluginType,
    pub name: String,
    /// Where the plugin itself listens.
    pub endpoint: PathBuf,
    /// What it says that it speaks.
    pub supported_versions: Vec<String>,
    /// The highest of these that the node speaks too; of a CSI driver alone.
    pub version: Option<Version>,
    /// Where it made itself known.
    pub socket: PathBuf,
}

/// Why what a plugin says of itself is not accepted, in upstream's words where upstream refuses it too.
#[derive(Debug, thiserror::Error)]
pub(super) enum Invalid {
    #[error("no handler registered for plugin type: {kind} at socket {}", socket.display())]
    Type { kind: String, socket: PathBuf },
    #[error(
        "plugin validation failed with err: validation failed for CSI Driver {name} at endpoint {endpoint}: \
         kubernetes.io/csi: ValidatePlugin for CSI driver {name:?} failed. {reason}"
    )]
    Csi { name: String, endpoint: String, reason: InvalidCsi },
    #[error(
        "plugin validation failed with err: another plugin called {name:?} is registered at socket {}",
        socket.display()
    )]
    Taken { name: String, socket: PathBuf },
    #[error("plugin validation failed with err: the endpoint {endpoint:?} is not accepted: {reason}")]
    Endpoint { endpoint: String, reason: InvalidEndpoint },
}

/// What is wrong with a CSI driver.
#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidCsi {
    #[error("Plugin returned an empty list for supported versions")]
    NoVersions,
    #[error("None of the versions specified {} are supported. err={error}", quoted(versions))]
    Versions { versions: Vec<String>, error: String },
    #[error(
        "Its name must be at most {LONGEST_NAME} letters, digits, '-' and '.', beginning and ending with a letter \
         or digit around each dot"
    )]
    Name,
    #[error(
        "Another driver with the same name is already registered with a higher supported version: \"{version}\" \
         (at socket {})",
        socket.display()
    )]
    Taken { version: String, socket: PathBuf },
}

/// What is wrong with an endpoint.
#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidEndpoint {
    #[error("it must be an absolute path of a unix socket, without \"..\"")]
    NotAPath,
    #[error("it is outside of {}, or among its pods", root.display())]
    Outside { root: PathBuf },
    #[error("it is a symbolic link, not a socket")]
    Link,
    #[error("{0}")]
    Unreadable(io::Error),
}

impl Invalid {
    /// Whether another has its name.
    pub(super) fn is_taken(&self) -> bool {
        match self {
            Invalid::Csi { reason: InvalidCsi::Taken { .. }, .. } | Invalid::Taken { .. } => true,
            Invalid::Csi { .. } | Invalid::Type { .. } | Invalid::Endpoint { .. } => false,
        }
    }
}

impl Plugin {
    /// A plugin from what it says of itself at a socket.
    pub(super) fn new(info: PluginInfo, socket: &Path) -> Result<Plugin, Invalid> {
        let Some(kind) = PluginType::parse(&info.r#type) else {
            return Err(Invalid::Type { kind: info.r#type, socket: socket.to_owned() });
        };
        let mut plugin = Plugin {
            kind,
            name: info.name,
            endpoint: match info.endpoint.is_empty() {
                true => socket.to_owned(),
                false => info.endpoint.into(),
            },
            supported_versions: info.supported_versions,
            version: None,
            socket: socket.to_owned(),
        };
        match kind {
            PluginType::Csi => {
                plugin.version = Some(plugin.csi_version().map_err(|reason| plugin.invalid_csi(reason))?);
            }
            PluginType::Device | PluginType::Dra => {}
        }
        Ok(plugin)
    }

    /// The version of CSI that is spoken with this driver.
    fn csi_version(&self) -> Result<Version, InvalidCsi> {
        if !is_driver_name(&self.name) {
            return Err(InvalidCsi::Name);
        }
        if self.supported_versions.is_empty() {
            return Err(InvalidCsi::NoVersions);
        }
        Version::highest_supported(&self.supported_versions)
            .map_err(|error| InvalidCsi::Versions { versions: self.supported_versions.clone(), error })
    }

    /// That another has its name.
    pub(super) fn taken(&self, holder: Holder) -> Invalid {
        match self.kind {
            PluginType::Csi => {
                let version = holder.version.map(|version| version.to_string()).unwrap_or_default();
                self.invalid_csi(InvalidCsi::Taken { version, socket: holder.socket })
            }
            PluginType::Device | PluginType::Dra => {
                Invalid::Taken { name: self.name.clone(), socket: holder.socket }
            }
        }
    }

    fn invalid_csi(&self, reason: InvalidCsi) -> Invalid {
        let endpoint = self.endpoint.display().to_string();
        Invalid::Csi { name: self.name.clone(), endpoint, reason }
    }

    /// Looks at its endpoint, which must be the kubelet's: below its root directory, where those who may put a plugin
    /// there live, but for what pods write.
    pub(super) fn check_endpoint(&self, root: &Path) -> Result<(), Invalid> {
        check_endpoint(&self.endpoint, root)
            .map_err(|reason| Invalid::Endpoint { endpoint: self.endpoint.display().to_string(), reason })
    }
}

/// A DNS subdomain of letters in either case, as upstream has it for the names of CSI drivers. It becomes a part of paths.
fn is_driver_name(name: &str) -> bool {
    let is_label = |label: &str| {
        label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && label.starts_with(|first: char| first.is_ascii_alphanumeric())
            && label.ends_with(|last: char| last.is_ascii_alphanumeric())
    };
    name.len() <= LONGEST_NAME && name.split('.').all(is_label)
}

fn check_endpoint(endpoint: &Path, root: &Path) -> Result<(), InvalidEndpoint> {
    let (Some(folder), Some(_), true) = (endpoint.parent(), endpoint.file_name(), endpoint.is_absolute())
    else {
        return Err(InvalidEndpoint::NotAPath);
    };
    if endpoint.components().any(|part| part == std::path::Component::ParentDir) {
        return Err(InvalidEndpoint::NotAPath);
    }
    // Where links lead counts, in the root directory's own path too.
    let root = root.canonicalize().map_err(InvalidEndpoint::Unreadable)?;
    let inside = |folder: &Path| match folder.strip_prefix(&root) {
        Ok(below) => !below.starts_with("pods"),
        Err(_) => false,
    };
    match folder.canonicalize() {
        Ok(folder) if !inside(&folder) => return Err(InvalidEndpoint::Outside { root }),
        Ok(_) => {}
        // Whoever names what is elsewhere is not told whether it is there.
        Err(_) if !inside(folder) => return Err(InvalidEndpoint::Outside { root }),
        Err(error) => return Err(InvalidEndpoint::Unreadable(error)),
    }
    match std::fs::symlink_metadata(endpoint) {
        Ok(found) if found.is_symlink() => Err(InvalidEndpoint::Link),
        // One that is not there yet is told by the first call.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Texts as Go shows them.
fn quoted(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", texts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(name: &str, versions: &[&str]) -> PluginInfo {
        PluginInfo {
            r#type: "CSIPlugin".to_owned(),
            name: name.to_owned(),
            endpoint: "/root/plugins/x/csi.sock".to_owned(),
            supported_versions: versions.iter().map(|&version| version.to_owned()).collect(),
        }
    }

    fn refusal(info: PluginInfo) -> String {
        Plugin::new(info, Path::new("/root/plugins_registry/x.sock")).unwrap_err().to_string()
    }

    #[test]
    fn a_driver_without_a_version_that_the_node_speaks_is_refused_in_upstreams_words() {
        let begin = "plugin validation failed with err: validation failed for CSI Driver x.io at endpoint \
                     /root/plugins/x/csi.sock: kubernetes.io/csi: ValidatePlugin for CSI driver \"x.io\" failed. ";
        assert_eq!(
            refusal(info("x.io", &[])),
            format!("{begin}Plugin returned an empty list for supported versions")
        );
        assert_eq!(
            refusal(info("x.io", &["0.3.0", "2.0.0"])),
            format!(
                "{begin}None of the versions specified [\"0.3.0\" \"2.0.0\"] are supported. err=highest supported \
                 version reported is 0.3.0, must be v1.x"
            )
        );
    }

    #[test]
    fn a_name_that_could_lead_elsewhere_is_refused() {
        for name in ["", ".", "..", "../x", "a/b", "a..b", "-a", "a.", "a_b", &"a".repeat(64)] {
            assert!(refusal(info(name, &["1.0.0"])).contains("Its name must be"), "{name}");
        }
        for name in ["a", "Hostpath.csi.k8s.io", &"a".repeat(63)] {
            Plugin::new(info(name, &["1.0.0"]), Path::new("/s")).unwrap();
        }
    }

    #[test]
    fn an_unknown_type_is_refused_and_an_empty_endpoint_is_the_socket() {
        let other = PluginInfo { r#type: "Toaster".to_owned(), ..info("x.io", &["1.0.0"]) };
        assert_eq!(
            refusal(other),
            "no handler registered for plugin type: Toaster at socket /root/plugins_registry/x.sock"
        );
        let own = PluginInfo { endpoint: String::new(), ..info("x.io", &["1.0.0"]) };
        let plugin = Plugin::new(own, Path::new("/s")).unwrap();
        assert_eq!(plugin.endpoint, Path::new("/s"));
    }

    #[test]
    fn an_endpoint_is_below_the_root_and_not_among_pods() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        for folder in ["plugins/x", "csi-plugins", "pods/uid"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        std::fs::write(root.join("plugins/real"), "").unwrap();
        std::os::unix::fs::symlink("real", root.join("plugins/link")).unwrap();
        std::os::unix::fs::symlink("/", root.join("plugins/elsewhere")).unwrap();
        std::os::unix::fs::symlink(&root, place.path().join("alias")).unwrap();
        let check = |endpoint: &Path| check_endpoint(endpoint, &root).map_err(|error| error.to_string());
        for endpoint in ["plugins/x/csi.sock", "csi-plugins/csi.sock", "plugins/real"] {
            assert_eq!(check(&root.join(endpoint)), Ok(()), "{endpoint}");
        }
        assert_eq!(check(&place.path().join("alias/plugins/x/csi.sock")), Ok(()));
        let outside =
            format!("it is outside of {}, or among its pods", root.canonicalize().unwrap().display());
        for endpoint in ["pods/uid/csi.sock", "plugins/elsewhere/csi.sock"] {
            assert_eq!(check(&root.join(endpoint)), Err(outside.clone()), "{endpoint}");
        }
        for endpoint in ["/csi.sock", "/no/such/csi.sock"] {
            assert_eq!(check(Path::new(endpoint)), Err(outside.clone()), "{endpoint}");
        }
        assert_eq!(check(&root.join("plugins/link")), Err("it is a symbolic link, not a socket".to_owned()));
        let no_path = "it must be an absolute path of a unix socket, without \"..\"";
        for endpoint in [Path::new("csi.sock"), &root.join("plugins/../csi.sock"), Path::new("/")] {
            assert_eq!(check(endpoint), Err(no_path.to_owned()), "{}", endpoint.display());
        }
        let missing = check(&root.join("plugins/missing/csi.sock")).unwrap_err();
        assert!(missing.contains("No such file"), "{missing}");
    }
}
