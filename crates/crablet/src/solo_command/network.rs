//! The network of pods: whatever the machine is configured for, else a bridge.

use std::path::Path;

use anyhow::Context;
use crablet_host::files::write_atomically;

/// Where runtimes look for the configuration of networks, and for the programs that make them.
const CONFIGURATIONS: &str = "/etc/cni/net.d";
const PROGRAMS: [&str; 3] = ["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"];
const OURS: &str = "10-crablet.conflist";

const BRIDGE: &str = r#"{
  "cniVersion": "1.0.0",
  "name": "crablet",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "crablet0",
      "isGateway": true,
      "ipMasq": true,
      "hairpinMode": true,
      "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]}
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
"#;

/// Makes sure that pods can have a network; which it is, in words.
pub(super) fn ensure_network() -> anyhow::Result<String> {
    ensure(Path::new(CONFIGURATIONS), &PROGRAMS.map(Path::new))
}

fn ensure(configurations: &Path, programs: &[&Path]) -> anyhow::Result<String> {
    let is_configuration = |path: &Path| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| ["conf", "conflist", "json"].contains(&extension))
    };
    let mut found: Vec<_> = match std::fs::read_dir(configurations) {
        Ok(entries) => {
            entries.flatten().map(|entry| entry.path()).filter(|path| is_configuration(path)).collect()
        }
        Err(_) => Vec::new(),
    };
    found.sort();
    if let Some(first) = found.first() {
        return Ok(format!("as {} says", first.display()));
    }
    let has_all = |directory: &&&Path| {
        ["bridge", "host-local", "loopback", "portmap"].iter().all(|program| directory.join(program).exists())
    };
    if programs.iter().find(has_all).is_none() {
        let places: Vec<String> = programs.iter().map(|place| place.display().to_string()).collect();
        return Ok(format!(
            "none: {} has no configuration, and the programs of the CNI plugins are not in any of {}; install them \
             (Debian: containernetworking-plugins), or a network of your own; until then only pods with hostNetwork run",
            configurations.display(),
            places.join(", ")
        ));
    }
    std::fs::create_dir_all(configurations)
        .with_context(|| format!("cannot make the directory {}", configurations.display()))?;
    let path = configurations.join(OURS);
    write_atomically(&path, BRIDGE.as_bytes(), 0o644)?;
    Ok(format!("the bridge crablet0, which {} describes now", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_that_is_there_is_used_and_a_bridge_is_made_where_none_is() {
        let directory = tempfile::tempdir().unwrap();
        let (configurations, programs) = (directory.path().join("net.d"), directory.path().join("bin"));
        let none = ensure(&configurations, &[&programs]).unwrap();
        assert!(none.contains("install them"), "{none}");
        std::fs::create_dir_all(&programs).unwrap();
        for program in ["bridge", "host-local", "loopback", "portmap"] {
            std::fs::write(programs.join(program), "").unwrap();
        }
        let made = ensure(&configurations, &[&programs]).unwrap();
        assert!(made.starts_with("the bridge crablet0"), "{made}");
        let text = std::fs::read_to_string(configurations.join(OURS)).unwrap();
        let _: serde_json::Value = serde_json::from_str(&text).unwrap();
        let kept = ensure(&configurations, &[]).unwrap();
        assert!(kept.starts_with("as ") && kept.contains(OURS), "{kept}");
    }
}
