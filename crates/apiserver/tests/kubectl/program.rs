//! The kubectl that the tests run.

use std::path::{Path, PathBuf};
use std::process::Command;

/// No older than the one whose output was recorded.
const OLDEST_MINOR: u32 = 36;

/// The one on the PATH if it is new enough, or the one that `scripts/setup` got.
pub fn kubectl() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|cache| !cache.is_empty());
    let cache = cache.map_or_else(|| home.join(".cache"), PathBuf::from);
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).take(64).collect();
    places.push(cache.join("crablet/kubectl"));
    let mut found = places.iter().map(|place| place.join("kubectl"));
    found.find(|program| minor_of(program).is_some_and(|minor| minor >= OLDEST_MINOR)).unwrap_or_else(|| {
        panic!("there is no kubectl of 1.{OLDEST_MINOR} or newer; scripts/setup test gets one")
    })
}

fn minor_of(program: &Path) -> Option<u32> {
    let output = Command::new(program).args(["version", "--client", "--output=json"]).output().ok()?;
    let version: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    let version = version["clientVersion"]["gitVersion"].as_str()?.strip_prefix("v1.")?;
    version.split('.').next()?.parse().ok()
}
