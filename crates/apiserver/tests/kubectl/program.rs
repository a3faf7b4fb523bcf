//! The kubectl that the tests run.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The version of the one whose output was recorded.
const RECORDED_MINOR: u32 = 36;

/// One that is on the PATH, or that `scripts/setup` got: of those that are new enough, the one nearest to what was recorded.
pub fn kubectl() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|cache| !cache.is_empty());
    let cache = cache.map_or_else(|| home.join(".cache"), PathBuf::from);
    let places = std::env::split_paths(&path).chain([cache.join("crablet/kubectl")]);
    let found =
        places.map(|place| place.join("kubectl")).filter_map(|kubectl| Some((minor_of(&kubectl)?, kubectl)));
    let nearest = found.filter(|(minor, _)| *minor >= RECORDED_MINOR).min_by_key(|(minor, _)| *minor);
    let (_, kubectl) = nearest.unwrap_or_else(|| {
        panic!("there is no kubectl of 1.{RECORDED_MINOR} or newer; scripts/setup test gets one")
    });
    kubectl
}

fn minor_of(program: &Path) -> Option<u32> {
    let output = Command::new(program).args(["version", "--client", "--output=json"]).output().ok()?;
    let version: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    let version = version["clientVersion"]["gitVersion"].as_str()?.strip_prefix("v1.")?;
    version.split('.').next()?.parse().ok()
}
