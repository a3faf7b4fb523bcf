//! Finding the programs that the kit runs.

use std::env;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tokio::process::Command;

/// The variable that names another containerd than the one in `PATH`.
const CONTAINERD_VARIABLE: &str = "CRABLET_CONTAINERD";

/// Where distributions put the CNI plugins: Debian, and everybody else.
const CNI_DIRECTORIES: [&str; 2] = ["/usr/lib/cni", "/opt/cni/bin"];

/// A containerd and what goes with it.
pub(crate) struct Programs {
    pub(crate) containerd: PathBuf,
    pub(crate) ctr: PathBuf,
    pub(crate) cni_directory: PathBuf,
    /// Major and minor.
    pub(crate) version: (u32, u32),
    /// `PATH` for containerd: its own directory first, so that it finds the shim it was built with.
    pub(crate) search_path: String,
}

impl Programs {
    /// The containerd that `CRABLET_CONTAINERD` names, or else the one in `PATH`.
    pub(crate) async fn find() -> Result<Programs> {
        let containerd = match env::var_os(CONTAINERD_VARIABLE) {
            Some(path) => {
                let path = std::path::absolute(path)?;
                if !is_executable(&path) {
                    bail!(
                        "{CONTAINERD_VARIABLE}={} is not a program; it must be the path of a containerd",
                        path.display()
                    );
                }
                path
            }
            None => find_program("containerd")?,
        };
        let own_directory = containerd.parent().unwrap_or(Path::new("/"));
        let beside = own_directory.join("ctr");
        let ctr = if is_executable(&beside) { beside } else { find_program("ctr")? };
        let cni_directory = CNI_DIRECTORIES
            .iter()
            .map(PathBuf::from)
            .find(|directory| is_executable(&directory.join("bridge")))
            .with_context(|| {
                format!("no CNI plugins in {}: run scripts/setup", CNI_DIRECTORIES.join(" or "))
            })?;
        let search_path = format!("{}:{}", own_directory.display(), search_path());
        let version = version(&containerd).await?;
        Ok(Programs { version, containerd, ctr, cni_directory, search_path })
    }
}

/// Finds a program in `PATH`, and in the directories for administrators that a user's `PATH` may lack.
pub(crate) fn find_program(name: &str) -> Result<PathBuf> {
    search_path()
        .split(':')
        .map(|directory| Path::new(directory).join(name))
        .find(|path| is_executable(path))
        .with_context(|| format!("there is no program {name:?} in PATH: run scripts/setup"))
}

fn search_path() -> String {
    format!("{}:/usr/sbin:/sbin", env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned()))
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

async fn version(containerd: &Path) -> Result<(u32, u32)> {
    let output = Command::new(containerd)
        .arg("--version")
        .output()
        .await
        .with_context(|| format!("cannot run {} --version", containerd.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse_version(&text)
        .with_context(|| format!("{} --version says {text:?}, which names no version", containerd.display()))
}

/// Reads `containerd <package> <version> <revision>`.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let version = text.split_whitespace().nth(2)?;
    let mut parts = version.trim_start_matches('v').split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_each_packager_prints() {
        let check = |text, version| assert_eq!(parse_version(text), version, "{text}");
        check("containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3", Some((1, 6)));
        check("containerd github.com/containerd/containerd/v2 v2.0.4 1a43cb6a1035441f9aca8f56", Some((2, 0)));
        check("containerd github.com/containerd/containerd/v2 2.1.9+unknown ", Some((2, 1)));
        check("containerd containerd.io 1.7.27 05044ec0a9a75232cad458027ca83437aae3f4da", Some((1, 7)));
        check("busybox", None);
    }
}
