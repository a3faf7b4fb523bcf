//! Docker's configuration on the node, whose credentials every pod may use.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crablet_host::files::read_bounded;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::docker_config::{BadDockerConfig, DockerConfig};
use crate::keyring::Keyring;

/// How long what was read is good for.
const LIFETIME: Duration = Duration::from_secs(5 * 60);

/// The largest file that is read.
const LARGEST_FILE: usize = 10 << 20;

/// Docker's configuration on the node: the first file that there is and that can be read.
pub struct NodeConfig {
    places: Vec<(PathBuf, Form)>,
    last: Mutex<Option<(Instant, Arc<Keyring>)>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    ConfigJson,
    Dockercfg,
}

impl NodeConfig {
    /// Looks in upstream's places: for a `config.json` in the agent's root directory, its working directory, `.docker`
    /// in the home directory and `/.docker`; then for a `.dockercfg` in the root directory, the working directory, the
    /// home directory and `/`.
    pub fn new(root_directory: &Path, home: Option<&Path>) -> NodeConfig {
        let home = home.unwrap_or(Path::new(""));
        let json = [root_directory, Path::new(""), &home.join(".docker"), Path::new("/.docker")]
            .map(|directory| (directory.join("config.json"), Form::ConfigJson));
        let dockercfg = [root_directory, Path::new(""), home, Path::new("/")]
            .map(|directory| (directory.join(".dockercfg"), Form::Dockercfg));
        NodeConfig { places: json.into_iter().chain(dockercfg).collect(), last: Mutex::default() }
    }

    /// The credentials of the node, as they were within the last five minutes.
    pub(crate) async fn keyring(&self) -> Arc<Keyring> {
        let mut last = self.last.lock().await;
        let now = Instant::now();
        if let Some((read, keyring)) = &*last
            && now < *read + LIFETIME
        {
            return keyring.clone();
        }
        let places = self.places.clone();
        let read = tokio::task::spawn_blocking(move || keyring(&places)).await;
        // A thread that died read nothing.
        let keyring = Arc::new(read.unwrap_or_default());
        *last = Some((now, keyring.clone()));
        keyring
    }
}

fn keyring(places: &[(PathBuf, Form)]) -> Keyring {
    let mut keyring = Keyring::default();
    let found = places.iter().find_map(|(path, form)| Some((path, read(path, *form)?)));
    if let Some((path, config)) = found {
        keyring.add(None, &config);
        debug!(path = %path.display(), "Read docker's configuration");
        if keyring.ignored() > 0 {
            let ignored = keyring.ignored();
            warn!(path = %path.display(), ignored, "Docker's configuration has entries for what is no registry");
        }
    }
    keyring
}

/// What a file has, if it is there and can be read.
fn read(path: &Path, form: Form) -> Option<DockerConfig> {
    let bytes = match read_bounded(path, LARGEST_FILE) {
        Ok(bytes) => bytes,
        Err(error) if error.is_not_found() => return None,
        Err(error) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            warn!(%error, cause, "Cannot read docker's configuration; looking for another");
            return None;
        }
    };
    let config: Result<DockerConfig, BadDockerConfig> = match form {
        Form::ConfigJson => DockerConfig::from_config_json(&bytes),
        Form::Dockercfg => DockerConfig::from_dockercfg(&bytes),
    };
    config
        .inspect_err(|error| {
            warn!(path = %path.display(), %error, "Cannot read docker's configuration; looking for another");
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: PathBuf, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn json(user: &str) -> String {
        format!(r#"{{"auths":{{"a.io":{{"username":"{user}"}}}}}}"#)
    }

    async fn user(config: &NodeConfig) -> String {
        let found = config.keyring().await.lookup("a.io/x");
        found.into_iter().map(|tracked| tracked.credential.username).collect()
    }

    #[tokio::test]
    async fn the_first_file_that_can_be_read_counts() {
        let directory = tempfile::tempdir().unwrap();
        let (root, home) = (directory.path().join("root"), directory.path().join("home"));
        let look = || NodeConfig::new(&root, Some(&home));
        assert_eq!(user(&look()).await, "");
        write(home.join(".dockercfg"), r#"{"a.io":{"username":"home dockercfg"}}"#);
        assert_eq!(user(&look()).await, "home dockercfg");
        write(root.join(".dockercfg"), r#"{"a.io":{"username":"root dockercfg"}}"#);
        assert_eq!(user(&look()).await, "root dockercfg");
        write(home.join(".docker/config.json"), &json("home json"));
        assert_eq!(user(&look()).await, "home json");
        write(root.join("config.json"), &json("root json"));
        assert_eq!(user(&look()).await, "root json");
        write(root.join("config.json"), "hunter2");
        assert_eq!(user(&look()).await, "home json");
    }

    #[test]
    fn the_places_are_upstreams() {
        let config = NodeConfig::new(Path::new("/var/lib/kubelet"), Some(Path::new("/root")));
        let places: Vec<String> = config.places.iter().map(|(path, _)| path.display().to_string()).collect();
        assert_eq!(
            places,
            [
                "/var/lib/kubelet/config.json",
                "config.json",
                "/root/.docker/config.json",
                "/.docker/config.json",
                "/var/lib/kubelet/.dockercfg",
                ".dockercfg",
                "/root/.dockercfg",
                "/.dockercfg",
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_read_is_good_for_five_minutes() {
        let directory = tempfile::tempdir().unwrap();
        let config = NodeConfig::new(directory.path(), Some(directory.path()));
        write(directory.path().join("config.json"), &json("old"));
        assert_eq!(user(&config).await, "old");
        write(directory.path().join("config.json"), &json("new"));
        tokio::time::advance(LIFETIME - Duration::from_millis(1)).await;
        assert_eq!(user(&config).await, "old");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(user(&config).await, "new");
    }
}
