//! Asking a program who one is: client-go's credential plugins.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crablet_api::meta::Time;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

use crate::kubeconfig::{Cluster, Exec};
use crate::secret::Secret;

/// How long a program may take.
const DEADLINE: Duration = Duration::from_secs(60);
const LONGEST_ANSWER: usize = 1 << 20;
/// How much is kept of what a program complains about.
const LONGEST_COMPLAINT: usize = 4 << 10;
const EXEC_INFO: &str = "KUBERNETES_EXEC_INFO";

/// What a program said.
#[derive(Debug)]
pub(crate) struct Credential {
    pub(crate) token: Option<Secret>,
    /// A certificate and its key, in PEM.
    pub(crate) certificate: Option<(Secret, Secret)>,
    pub(crate) expires: Option<Time>,
}

/// Why a program said nothing that helps. It holds what the program complained about, which is meant for people; never
/// anything of its answer.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    #[error("the credential plugin {command} cannot be started: {source}{}", hint(.install_hint))]
    Start { command: String, source: std::io::Error, install_hint: String },
    #[error("the credential plugin {command} failed with {how}: {complaint}")]
    Failed { command: String, how: ExitStatus, complaint: String },
    #[error("the credential plugin {command} did not end within {} s: {complaint}", DEADLINE.as_secs())]
    Late { command: String, complaint: String },
    #[error("the credential plugin {command} answered more than {LONGEST_ANSWER} bytes")]
    TooLong { command: String },
    #[error("what the credential plugin {command} answered is not an ExecCredential of {version}")]
    Undecodable { command: String, version: &'static str },
    #[error("the credential plugin {command} answered neither a token nor a certificate with its key")]
    Nothing { command: String },
}

fn hint(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("; {text}") }
}

impl Exec {
    pub(crate) async fn ask(&self, cluster: &Cluster) -> Result<Credential, ExecError> {
        let answer = self.run(&self.info(cluster)).await?;
        self.read(&answer)
    }

    /// What the program is told.
    fn info(&self, cluster: &Cluster) -> String {
        let authority = cluster.certificate_authority.as_ref().and_then(|authority| authority.read().ok());
        let cluster = ClusterInfo {
            server: &cluster.server,
            tls_server_name: cluster.tls_server_name.as_deref(),
            insecure_skip_tls_verify: cluster.insecure_skip_tls_verify,
            certificate_authority_data: authority.map(|pem| STANDARD.encode(pem)),
            proxy_url: cluster.proxy_url.as_ref().map(Secret::expose),
        };
        let info = Info {
            kind: "ExecCredential",
            api_version: self.version.as_str(),
            spec: Spec { cluster: self.provide_cluster_info.then_some(cluster), interactive: false },
        };
        String::from_utf8(crablet_api::to_json(&info)).unwrap_or_default()
    }

    /// Runs the program until it ends, and gives what it wrote.
    async fn run(&self, info: &str) -> Result<Vec<u8>, ExecError> {
        let command = || self.command.clone();
        let started = Command::new(&self.command)
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value.expose())))
            .env(EXEC_INFO, info)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn();
        let start = |source| {
            let install_hint = self.install_hint.clone();
            ExecError::Start { command: command(), source, install_hint }
        };
        let mut child = started.map_err(start)?;
        let mut group = Group(child.id().and_then(|id| Pid::from_raw(id.cast_signed())));
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (mut answer, mut complaint) = (Vec::new(), Vec::new());
        let work = async {
            // What is beyond the limits is read too, and lost: the program may want to end.
            tokio::join!(
                read_first(stdout, LONGEST_ANSWER + 1, &mut answer),
                read_first(stderr, LONGEST_COMPLAINT, &mut complaint)
            );
            // Not before: the number of a program that has been waited for can be another's.
            child.wait().await
        };
        let ended = tokio::time::timeout(DEADLINE, work).await;
        let complaint = String::from_utf8_lossy(&complaint).trim_end().to_owned();
        let Ok(status) = ended else {
            drop(group);
            let _ = child.wait().await;
            return Err(ExecError::Late { command: command(), complaint });
        };
        group.0 = None;
        let how = status.map_err(start)?;
        if !how.success() {
            return Err(ExecError::Failed { command: command(), how, complaint });
        }
        match answer.len() > LONGEST_ANSWER {
            true => Err(ExecError::TooLong { command: command() }),
            false => Ok(answer),
        }
    }

    fn read(&self, answer: &[u8]) -> Result<Credential, ExecError> {
        let (command, version) = (self.command.clone(), self.version.as_str());
        let answer = serde_json::from_slice::<Answer>(answer).ok();
        let answer = answer.filter(|answer| answer.kind == "ExecCredential" && answer.api_version == version);
        let Some(status) = answer.and_then(|answer| answer.status) else {
            return Err(ExecError::Undecodable { command, version });
        };
        let given = |secret: Option<Secret>| secret.filter(|secret| !secret.is_empty());
        let (token, expires) = (given(status.token), status.expiration_timestamp);
        match (given(status.client_certificate_data), given(status.client_key_data)) {
            (Some(certificate), Some(key)) => {
                Ok(Credential { token, certificate: Some((certificate, key)), expires })
            }
            (None, None) if token.is_some() => Ok(Credential { token, certificate: None, expires }),
            (None, None) | (Some(_), None) | (None, Some(_)) => Err(ExecError::Nothing { command }),
        }
    }
}

/// The program and all that it started. Whatever becomes of who asked, they do not stay.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // Fails only when nobody is left.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

/// The first of what there is to read, as it comes. The rest is read too, and lost.
async fn read_first(reader: Option<impl AsyncRead + Unpin>, most: usize, bytes: &mut Vec<u8>) {
    if let Some(mut reader) = reader {
        let _ = (&mut reader).take(most as u64).read_to_end(bytes).await;
        let _ = tokio::io::copy(&mut reader, &mut tokio::io::sink()).await;
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Info<'a> {
    kind: &'a str,
    api_version: &'a str,
    spec: Spec<'a>,
}

#[derive(Serialize)]
struct Spec<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<ClusterInfo<'a>>,
    interactive: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct ClusterInfo<'a> {
    server: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_server_name: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    insecure_skip_tls_verify: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate_authority_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    proxy_url: Option<&'a str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    api_version: String,
    status: Option<AnswerStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnswerStatus {
    expiration_timestamp: Option<Time>,
    token: Option<Secret>,
    client_certificate_data: Option<Secret>,
    client_key_data: Option<Secret>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubeconfig::ExecVersion;
    use crate::kubeconfig::Pem;

    fn program(script: &str) -> Exec {
        Exec {
            version: ExecVersion::V1,
            command: "/bin/sh".to_owned(),
            args: vec!["-c".to_owned(), script.to_owned()],
            env: vec![("PASSWORD".to_owned(), "hunter2".into())],
            install_hint: "install it".to_owned(),
            provide_cluster_info: true,
        }
    }

    fn answering(status: &str) -> String {
        format!(
            "echo '{{\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/v1\",\"status\":{{{status}}}}}'"
        )
    }

    fn cluster() -> Cluster {
        Cluster {
            server: "https://192.0.2.1".to_owned(),
            certificate_authority: Some(Pem::Data("ca".into())),
            ..Cluster::default()
        }
    }

    #[tokio::test]
    async fn a_program_is_told_about_the_server_and_its_answer_is_understood() {
        let directory = tempfile::tempdir().unwrap();
        let seen = directory.path().join("seen");
        let status = answering("\"token\":\"s3cr3t\",\"expirationTimestamp\":\"2026-11-16T05:00:00Z\"");
        let script = format!("echo \"$KUBERNETES_EXEC_INFO $PASSWORD\" > {}; {status}", seen.display());
        let credential = program(&script).ask(&cluster()).await.unwrap();
        assert_eq!(
            std::fs::read_to_string(seen).unwrap(),
            "{\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/v1\",\"spec\":{\"cluster\":{\"server\":\"https://192.0.2.1\",\"certificate-authority-data\":\"Y2E=\"},\"interactive\":false}} hunter2\n"
        );
        assert_eq!(credential.token.as_ref().unwrap().expose(), "s3cr3t");
        assert_eq!(credential.expires.unwrap().unix_seconds(), 1_794_805_200);
        assert!(!format!("{credential:?}").contains("s3cr3t"));
    }

    #[tokio::test]
    async fn what_is_no_answer_is_told_and_not_shown() {
        for (script, expected) in [
            ("echo s3cr3t; echo no >&2; exit 3", "/bin/sh failed with exit status: 3: no"),
            ("echo s3cr3t", "answered is not an ExecCredential of client.authentication.k8s.io/v1"),
            (
                &answering("\"clientKeyData\":\"s3cr3t\""),
                "answered neither a token nor a certificate with its key",
            ),
            ("head -c 2000000 /dev/zero", "answered more than 1048576 bytes"),
        ] {
            let error = program(script).ask(&cluster()).await.unwrap_err().to_string();
            assert!(error.ends_with(expected) && !error.contains("s3cr3t"), "{error}");
        }
        let missing = Exec { command: "/nowhere/plugin".to_owned(), ..program("") };
        let error = missing.ask(&cluster()).await.unwrap_err().to_string();
        assert!(error.ends_with("; install it"), "{error}");
    }

    #[tokio::test]
    async fn runs_are_counted_by_how_the_program_ended_whatever_it_answered() {
        let registry = crablet_metrics::Registry::new();
        let requests = crate::Requests::register(&registry).unwrap();
        let missing = Exec { command: "/nowhere/plugin".to_owned(), ..program("") };
        for plugin in [
            program(&answering("\"token\":\"s3cr3t\"")),
            program("echo what"),
            program("exit 3"),
            program("kill -9 $$"),
            missing,
        ] {
            requests.ran_plugin(plugin.ask(&cluster()).await.as_ref());
        }
        let text = registry.render();
        let calls = text.lines().filter_map(|line| line.strip_prefix("rest_client_exec_plugin_call_total"));
        assert_eq!(
            calls.collect::<Vec<_>>(),
            [
                r#"{call_status="no_error",code="0"} 2"#,
                r#"{call_status="plugin_execution_error",code="-1"} 1"#,
                r#"{call_status="plugin_execution_error",code="3"} 1"#,
                r#"{call_status="plugin_not_found_error",code="1"} 1"#,
            ]
        );
    }

    #[tokio::test]
    async fn a_program_that_does_not_end_is_ended_with_all_that_it_started() {
        let directory = tempfile::tempdir().unwrap();
        let begun = directory.path().join("begun");
        let script = format!("echo why >&2; touch {}; sleep 1000 & sleep 1000", begun.display());
        let asking = tokio::spawn(async move { program(&script).ask(&cluster()).await });
        while !begun.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::pause();
        let error = asking.await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "the credential plugin /bin/sh did not end within 60 s: why");
    }
}
