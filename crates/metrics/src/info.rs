//! What is known at start and reported as metrics: the build and the feature gates.

use crate::error::RegisterError;
use crate::registry::Registry;

/// Which build this is, in upstream's words.
#[derive(Clone, Copy, Debug, Default)]
pub struct BuildInfo<'a> {
    /// When it was built, as an RFC 3339 time.
    pub build_date: &'a str,
    /// What compiled it.
    pub compiler: &'a str,
    /// The commit it was built from.
    pub git_commit: &'a str,
    /// `clean`, or `dirty` if there were changes on top of that commit.
    pub git_tree_state: &'a str,
    /// The version, as `v1.36.0`.
    pub git_version: &'a str,
    /// The version of the language. Upstream's label says Go; the value need not.
    pub go_version: &'a str,
    /// The major version.
    pub major: &'a str,
    /// The minor version.
    pub minor: &'a str,
    /// System and architecture, as `linux/amd64`.
    pub platform: &'a str,
}

/// Registers `kubernetes_build_info`.
pub fn register_build_info(registry: &Registry, info: &BuildInfo<'_>) -> Result<(), RegisterError> {
    let (names, values): ([&str; 9], [&str; 9]) = (
        [
            "build_date",
            "compiler",
            "git_commit",
            "git_tree_state",
            "git_version",
            "go_version",
            "major",
            "minor",
            "platform",
        ],
        [
            info.build_date,
            info.compiler,
            info.git_commit,
            info.git_tree_state,
            info.git_version,
            info.go_version,
            info.major,
            info.minor,
            info.platform,
        ],
    );
    let help = "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.";
    registry.gauge_family("kubernetes_build_info", help, names)?.with(values).set(1.0);
    Ok(())
}

/// Registers `kubernetes_feature_enabled`, from the name, stage and state of each feature gate.
pub fn register_features<'a>(
    registry: &Registry,
    features: impl IntoIterator<Item = (&'a str, &'a str, bool)>,
) -> Result<(), RegisterError> {
    let help = "[BETA] This metric records the data about the stage and enablement of a k8s feature.";
    let family = registry.gauge_family("kubernetes_feature_enabled", help, ["name", "stage"])?;
    for (name, stage, enabled) in features {
        family.with([name, stage]).set(if enabled { 1.0 } else { 0.0 });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_is_reported_under_upstreams_labels() {
        let registry = Registry::new();
        let info = BuildInfo { git_version: "v1.36.4", major: "1", minor: "36", ..BuildInfo::default() };
        register_build_info(&registry, &info).unwrap();
        assert!(registry.render().ends_with(
            "\nkubernetes_build_info{build_date=\"\",compiler=\"\",git_commit=\"\",git_tree_state=\"\",\
             git_version=\"v1.36.4\",go_version=\"\",major=\"1\",minor=\"36\",platform=\"\"} 1\n"
        ));
    }

    #[test]
    fn features_are_reported_by_name_and_stage() {
        let registry = Registry::new();
        register_features(&registry, [("Swap", "BETA", true), ("Old", "", false)]).unwrap();
        assert!(registry.render().ends_with(
            "kubernetes_feature_enabled{name=\"Old\",stage=\"\"} 0\n\
             kubernetes_feature_enabled{name=\"Swap\",stage=\"BETA\"} 1\n"
        ));
    }
}
