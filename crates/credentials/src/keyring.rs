//! Which credentials may do for an image, the most fitting first.

use std::collections::BTreeMap;

use crate::credential::{Source, TrackedCredential};
use crate::docker_config::DockerConfig;
use crate::location::{Location, covers};

/// What credentials for Docker Hub are filed under.
const DEFAULT_REGISTRY: &str = "index.docker.io";

/// Credentials by where they are good for.
#[derive(Debug, Clone, Default)]
pub struct Keyring {
    by_location: BTreeMap<String, Vec<TrackedCredential>>,
    ignored: usize,
}

impl Keyring {
    /// Adds what a configuration has. Those that were added first are tried first, of those that fit alike.
    pub fn add(&mut self, source: Option<&Source>, config: &DockerConfig) {
        for (registry, credential) in &config.0 {
            match key(registry) {
                Some(key) => {
                    let tracked = TrackedCredential::new(credential.clone(), source.cloned());
                    self.by_location.entry(key).or_default().push(tracked);
                }
                None => self.ignored += 1,
            }
        }
    }

    /// How many entries were passed by, because what they are for is no location. Which ones is not told: such a text
    /// may be anything.
    pub fn ignored(&self) -> usize {
        self.ignored
    }

    /// The credentials that may do for a repository such as `registry.example/team/image`: those with the longest paths
    /// first. All of them are worth a try, so that a password can be changed in one place before another.
    pub fn lookup(&self, repository: &str) -> Vec<TrackedCredential> {
        // Among names that begin alike, the longer sorts behind.
        let fitting = self.by_location.iter().rev().filter(|(location, _)| covers(location, repository));
        let found: Vec<_> = fitting.flat_map(|(_, credentials)| credentials.iter().cloned()).collect();
        if !found.is_empty() || !is_of_default_registry(repository) {
            return found;
        }
        self.by_location.get(DEFAULT_REGISTRY).cloned().unwrap_or_default()
    }
}

/// What a registry's entry is filed under. A scheme says nothing, and the first part of a path that names a version of
/// the registry's API is as good as none.
fn key(registry: &str) -> Option<String> {
    let schemeless = registry.strip_prefix("https://").or_else(|| registry.strip_prefix("http://"));
    let Location { host, path } = Location::parse(schemeless.unwrap_or(registry)).ok()?;
    let path = match path.starts_with("/v2/") || path.starts_with("/v1/") {
        true => &path[3..],
        false => &path,
    };
    Some(if path == "/" { host } else { host + path })
}

/// Whether a name without a registry, or with that of Docker Hub.
fn is_of_default_registry(repository: &str) -> bool {
    match repository.split_once('/') {
        None => !repository.is_empty(),
        Some(("", _)) => false,
        Some((first, _)) => ["docker.io", DEFAULT_REGISTRY].contains(&first) || !first.contains(['.', ':']),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credential::{Coordinates, Credential};

    /// A keyring with an entry for each registry, whose username is the registry.
    fn keyring(registries: &[&str]) -> Keyring {
        let mut keyring = Keyring::default();
        keyring.add(None, &config(registries));
        keyring
    }

    fn config(registries: &[&str]) -> DockerConfig {
        let entry = |registry: &&str| {
            let credential = Credential { username: (*registry).to_owned(), ..Credential::default() };
            ((*registry).to_owned(), credential)
        };
        DockerConfig(registries.iter().map(entry).collect())
    }

    fn found(keyring: &Keyring, repository: &str) -> Vec<String> {
        keyring.lookup(repository).into_iter().map(|tracked| tracked.credential.username).collect()
    }

    #[test]
    fn an_entry_is_found_as_upstream_finds_it() {
        for (registry, repository, expected) in [
            ("https://hello.kubernetes.io", "hello.kubernetes.io/foo/bar", true),
            ("http://hello.kubernetes.io", "hello.kubernetes.io/foo/bar", true),
            ("https://*.docker.io", "prefix.docker.io/foo/bar", true),
            ("https://prefix.*.io", "prefix.docker.io/foo/bar", true),
            ("https://prefix.docker.*", "prefix.docker.io/foo/bar", true),
            ("https://*.docker.io/path", "prefix.docker.io/path/foo/bar", true),
            ("https://prefix.*.io/path", "prefix.docker.io/path/subpath/foo/bar", true),
            ("https://prefix.docker.*/path", "prefix.docker.io/path/foo/bar", true),
            ("https://*.docker.io:8888", "prefix.docker.io:8888/foo/bar", true),
            ("https://prefix.*.io:8888", "prefix.docker.io:8888/foo/bar", true),
            ("https://prefix.docker.*:8888", "prefix.docker.io:8888/foo/bar", true),
            ("https://*.docker.io/path:1111", "prefix.docker.io/path:1111/foo/bar", true),
            ("https://*.docker.io/v1/", "prefix.docker.io/path:1111/foo/bar", true),
            ("https://*.docker.io/v2/", "prefix.docker.io/path:1111/foo/bar", true),
            ("https://prefix.docker.*/path:1111", "prefix.docker.io/path:1111/foo/bar", true),
            ("prefix.docker.io:1111", "prefix.docker.io:1111/path/foo/bar", true),
            ("*.docker.io:1111", "prefix.docker.io:1111/path/foo/bar", true),
            ("gcr.io/v2/team", "gcr.io/team/image", true),
            ("gcr.io/", "gcr.io/team/image", true),
            // A version of the API is the first part of a path, and a whole one.
            ("gcr.io/v2", "gcr.io/team/image", false),
            ("gcr.io/v3/", "gcr.io/team/image", false),
            ("https://hello.kubernetes.io", "world.mesos.org/foo/bar", false),
            ("https://*.docker.com", "prefix.docker.io/foo/bar", false),
            ("https://suffix.*.io", "prefix.docker.io/foo/bar", false),
            ("https://prefix.docker.c*", "prefix.docker.io/foo/bar", false),
            ("https://prefix.*.io/path:1111", "prefix.docker.io/path/subpath:1111/foo/bar", false),
            ("suffix.*.io", "prefix.docker.io/foo/bar", false),
            ("ftp://gcr.io", "gcr.io/foo", false),
            // Docker Hub has several names.
            ("https://index.docker.io/v1/", "world.mesos.org/foo/bar", false),
            ("https://index.docker.io/v1/", "google/docker-registry", true),
            ("https://index.docker.io/v1/", "jenkins", true),
            ("https://index.docker.io/v1/", "index.docker.io/google/docker-registry", true),
            ("https://index.docker.io/v1/", "docker.io/library/busybox", true),
            ("index.docker.io", "docker.io/library/busybox", true),
            ("docker.io", "docker.io/library/busybox", true),
            ("docker.io/library", "docker.io/library/busybox", true),
            ("docker.io/team", "docker.io/library/busybox", false),
            // For the hub as a whole only its old name stands in.
            ("docker.io", "jenkins", false),
            ("index.docker.io/team", "docker.io/team/image", false),
            ("registry-1.docker.io", "docker.io/library/busybox", false),
            ("https://index.docker.io/v1/", "registry.tld/foo/bar", false),
            ("https://index.docker.io/v1/", "registry:5000/foo/bar", false),
            ("https://index.docker.io/v1/", "myhostdocker.io/foo/bar", false),
            ("https://index.docker.io/v1/", "", false),
            ("https://index.docker.io/v1/", "/foo", false),
        ] {
            let expected: Vec<&str> = expected.then_some(registry).into_iter().collect();
            assert_eq!(found(&keyring(&[registry]), repository), expected, "{registry} {repository}");
        }
    }

    #[test]
    fn the_longest_path_comes_first_and_stars_before_names() {
        let keyring =
            keyring(&["quay.io", "quay.io/coreos", "quay.io/coreos/etcd", "*.io", "q*.io/coreos", "gcr.io"]);
        assert_eq!(
            found(&keyring, "quay.io/coreos/etcd"),
            ["quay.io/coreos/etcd", "quay.io/coreos", "quay.io", "q*.io/coreos", "*.io"]
        );
        assert_eq!(found(&keyring, "quay.io/other"), ["quay.io", "*.io"]);
        assert_eq!(found(&keyring, "example.com/other"), [""; 0]);
    }

    #[test]
    fn a_match_for_docker_hub_keeps_its_old_name_from_standing_in() {
        let keyring = keyring(&["docker.io/team", "https://index.docker.io/v1/"]);
        assert_eq!(found(&keyring, "docker.io/team/image"), ["docker.io/team"]);
        assert_eq!(found(&keyring, "docker.io/other/image"), ["https://index.docker.io/v1/"]);
    }

    #[test]
    fn several_credentials_for_one_registry_come_in_the_order_of_their_sources() {
        let mut keyring = Keyring::default();
        let source = |name: &str| {
            Source::Secret(Coordinates { uid: "u".into(), namespace: "ns".into(), name: name.into() })
        };
        keyring.add(Some(&source("first")), &config(&["gcr.io"]));
        keyring.add(Some(&source("second")), &config(&["https://gcr.io/v2/", "gcr.io"]));
        keyring.add(None, &config(&["gcr.io/"]));
        let sources: Vec<_> = keyring.lookup("gcr.io/team/image").into_iter().map(|t| t.source).collect();
        assert_eq!(sources, [Some(source("first")), Some(source("second")), Some(source("second")), None]);
    }

    #[test]
    fn an_entry_for_what_is_no_location_is_passed_by_and_counted() {
        let keyring = keyring(&["gcr.io:port", "hunter2 @gcr.io", "gcr.io"]);
        assert_eq!((keyring.ignored(), found(&keyring, "gcr.io/x")), (2, vec!["gcr.io".to_owned()]));
        assert!(!format!("{:?}", keyring).contains("hunter2"));
    }
}
