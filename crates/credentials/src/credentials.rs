//! All credentials that may do for an image of a pod: its own, then the node's, then those of providers.

use std::sync::Arc;

use crablet_api::core::{PodIdentity, Secret, SecretType};

use crate::credential::{Coordinates, Source, TrackedCredential};
use crate::docker_config::{BadDockerConfig, DockerConfig};
use crate::keyring::Keyring;
use crate::node_config::NodeConfig;
use crate::providers::Providers;

/// Where credentials for images come from. The default has none but those of pods.
#[derive(Default)]
pub struct Credentials {
    node: Option<NodeConfig>,
    providers: Providers,
}

/// What a pod brings.
#[derive(Debug, Clone, Copy, Default)]
pub struct PodCredentials<'a> {
    /// The secrets that it names, as far as they are there.
    pub secrets: &'a [Arc<Secret>],
    /// Its service account, if it has one.
    pub service_account: &'a str,
    /// Who it is. Without that it has no tokens.
    pub pod: Option<&'a PodIdentity>,
}

/// A secret does not hold what its type says. Nothing of what it holds instead is told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("image pull secret {namespace}/{name}: {problem}")]
pub struct BadSecret {
    pub namespace: String,
    pub name: String,
    /// What is wrong.
    pub problem: BadDockerConfig,
}

impl Credentials {
    pub fn new(node: NodeConfig, providers: Providers) -> Credentials {
        Credentials { node: Some(node), providers }
    }

    /// The credentials that may do for a repository such as `docker.io/library/busybox`, in the order in which they are
    /// to be tried. As upstream, a secret that cannot be read spoils all; one of another type is passed by.
    pub async fn of(
        &self,
        repository: &str,
        pod: PodCredentials<'_>,
    ) -> Result<Vec<TrackedCredential>, BadSecret> {
        let mut found = of_secrets(pod.secrets)?.lookup(repository);
        if let Some(node) = &self.node {
            found.extend(node.keyring().await.lookup(repository));
        }
        found.extend(self.providers.keyring(repository, pod).await.lookup(repository));
        Ok(found)
    }
}

fn of_secrets(secrets: &[Arc<Secret>]) -> Result<Keyring, BadSecret> {
    let mut keyring = Keyring::default();
    for secret in secrets {
        let data = |key: &str| secret.data.get(key).filter(|data| !data.is_empty());
        let read = match &secret.r#type {
            Some(SecretType::DockerConfigJson) => {
                data(".dockerconfigjson").map(|data| DockerConfig::from_config_json(data))
            }
            Some(SecretType::Dockercfg) => data(".dockercfg").map(|data| DockerConfig::from_dockercfg(data)),
            Some(_) | None => None,
        };
        let Some(read) = read else { continue };
        let metadata = &secret.metadata;
        let (namespace, name) = (metadata.namespace.to_string(), metadata.name.to_string());
        let config =
            read.map_err(|problem| BadSecret { namespace: namespace.clone(), name: name.clone(), problem })?;
        let source = Source::Secret(Coordinates { uid: metadata.uid.to_string(), namespace, name });
        keyring.add(Some(&source), &config);
    }
    Ok(keyring)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Mutex;

    use crablet_api::{Bytes, GoDuration};

    use super::*;
    use crate::provider_config::ProviderConfig;

    fn secret(name: &str, r#type: &str, key: &str, data: &str) -> Arc<Secret> {
        let mut secret = Secret::default();
        secret.metadata.namespace = "ns".into();
        secret.metadata.name = name.into();
        secret.metadata.uid = "uid".into();
        secret.r#type = Some(r#type.into());
        secret.data.insert(key, Bytes::from(data));
        Arc::new(secret)
    }

    async fn users(credentials: &Credentials, secrets: &[Arc<Secret>]) -> Result<Vec<String>, String> {
        let pod = PodCredentials { secrets, ..PodCredentials::default() };
        match credentials.of("a.io/team/image", pod).await {
            Ok(found) => Ok(found.into_iter().map(|tracked| tracked.credential.username).collect()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[tokio::test]
    async fn a_pods_secrets_of_both_types_are_used_and_others_passed_by() {
        let secrets = [
            secret(
                "a",
                "kubernetes.io/dockerconfigjson",
                ".dockerconfigjson",
                r#"{"auths":{"a.io":{"username":"json"}}}"#,
            ),
            secret("b", "kubernetes.io/dockercfg", ".dockercfg", r#"{"a.io/team":{"username":"cfg"}}"#),
            secret("c", "Opaque", ".dockerconfigjson", "hunter2"),
            secret("d", "kubernetes.io/dockerconfigjson", ".dockercfg", "hunter2"),
            secret("e", "kubernetes.io/dockercfg", ".dockercfg", ""),
        ];
        assert_eq!(users(&Credentials::default(), &secrets).await.unwrap(), ["cfg", "json"]);
    }

    #[tokio::test]
    async fn a_secret_that_cannot_be_read_is_named_and_not_shown() {
        let secrets = [secret("a", "kubernetes.io/dockercfg", ".dockercfg", "{\"hunter2\":1}")];
        assert_eq!(
            users(&Credentials::default(), &secrets).await.unwrap_err(),
            "image pull secret ns/a: an entry: expected an object, found a number"
        );
    }

    /// Keeps what is logged.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_pods_own_come_first_then_the_nodes_then_the_providers_and_none_is_logged() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_writer(move || writer.clone())
            .finish();
        let _guard = tracing::subscriber::set_default(subscriber);

        let directory = tempfile::tempdir().unwrap();
        let entry = |user: &str| format!(r#""a.io":{{"username":"{user}","password":"hunter2"}}"#);
        let config = format!("{{\"auths\":{{{}}}}}", entry("node"));
        std::fs::write(directory.path().join("config.json"), config).unwrap();
        let provider = |name: &str, text: &str| {
            let program = directory.path().join(name);
            std::fs::write(&program, format!("#!/bin/sh\ncat >/dev/null\n{text}\n")).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
            ProviderConfig {
                name: name.to_owned(),
                match_images: vec!["a.io".to_owned()],
                default_cache_duration: Some(GoDuration::from_secs(60)),
                api_version: "credentialprovider.kubelet.k8s.io/v1".to_owned(),
                program,
                ..ProviderConfig::default()
            }
        };
        let answer = format!(
            "echo '{{\"kind\":\"CredentialProviderResponse\",\"apiVersion\":\"credentialprovider.kubelet.k8s.io/v1\",\
             \"cacheKeyType\":\"Global\",\"auth\":{{{}}}}}'",
            entry("provider")
        );
        let providers = Providers::new(vec![
            provider("broken", "echo '{\"hunter2\":\"hunter2\"}'"),
            provider("failing", "echo hunter2; exit 1"),
            provider("good", &answer),
        ]);
        let node = NodeConfig::new(directory.path(), Some(directory.path()));
        let credentials = Credentials::new(node, providers);
        let secret_text = format!("{{{}}}", entry("secret"));
        let secrets = [secret("a", "kubernetes.io/dockercfg", ".dockercfg", &secret_text)];
        for _ in 0..2 {
            assert_eq!(users(&credentials, &secrets).await.unwrap(), ["secret", "node", "provider"]);
        }
        let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert_eq!(log.matches("Failed to provide credentials for image").count(), 4, "{log}");
        assert!(!log.contains("hunter2"), "{log}");
    }
}
