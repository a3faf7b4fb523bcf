//! Asking a credential provider: a program that reads a request from its input and writes an answer to its output.

use std::collections::BTreeMap;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use async_trait::async_trait;
use crablet_api::{GoDuration, text_enum};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use crate::credential::Credential;
use crate::docker_config::DockerConfig;
use crate::provider_config::ProviderConfig;
use crate::service_accounts::{NoToken, Shown};

/// How long a provider may take.
const DEADLINE: Duration = Duration::from_secs(60);

/// The most that a provider may answer.
const LONGEST_ANSWER: usize = 1 << 20;

/// How much is kept of what a provider complains about.
const LONGEST_COMPLAINT: usize = 4 << 10;

/// How much of a word is shown that is not one of those that were expected.
const LONGEST_WORD: usize = 32;

/// Somebody who can be asked for credentials.
#[async_trait]
pub(crate) trait Provider: Send + Sync {
    async fn ask(&self, image: &str, shown: Option<&Shown>) -> Result<Answer, ProviderError>;
}

/// What a provider says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) credentials: DockerConfig,
    /// What else the answer is good for.
    pub(crate) good_for: GoodFor,
    /// For how long it is, if it says so.
    pub(crate) duration: Option<GoDuration>,
}

/// What an answer is good for beside the image that was asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GoodFor {
    Image,
    Registry,
    Everything,
}

/// Why a provider gave nothing. It holds what the provider complained about, which is meant for people to read; never
/// anything of its answer, which holds credentials.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProviderError {
    #[error("error execing credential provider plugin {name} for image {image}")]
    Start { name: String, image: String, source: std::io::Error },
    #[error("error execing credential provider plugin {name} for image {image}: {how}: {complaint}")]
    Failed { name: String, image: String, how: String, complaint: String },
    #[error(
        "error execing credential provider plugin {name} for image {image}: context deadline exceeded: {complaint}"
    )]
    Late { name: String, image: String, complaint: String },
    #[error("credential provider plugin {name} answered more than {LONGEST_ANSWER} bytes")]
    TooLong { name: String },
    #[error("error reading GVK from response of credential provider plugin {name}")]
    NoVersion { name: String },
    #[error(
        "apiVersion from credential plugin response did not match expected apiVersion:{expected}, actual apiVersion:{actual}"
    )]
    Version { expected: String, actual: String },
    #[error("error decoding credential provider plugin response from stdout")]
    Undecodable,
    #[error(transparent)]
    NoToken(#[from] NoToken),
    #[error(
        "credential provider plugin returned the service account token as the password which is not allowed when \
         service account cache type is not set to 'Token'"
    )]
    TokenAsPassword,
    #[error("credential provider plugin did not return a valid cacheKeyType: {0}")]
    CacheKeyType(String),
}

/// A provider that is a program.
pub(crate) struct Program(pub(crate) ProviderConfig);

#[async_trait]
impl Provider for Program {
    async fn ask(&self, image: &str, shown: Option<&Shown>) -> Result<Answer, ProviderError> {
        let request = Request {
            kind: "CredentialProviderRequest",
            api_version: &self.0.api_version,
            image,
            service_account_token: shown.map(|shown| &*shown.token),
            service_account_annotations: shown.map(|shown| &shown.annotations).filter(|all| !all.is_empty()),
        };
        // Text and nothing else cannot fail to be written.
        let mut request = serde_json::to_vec(&request).unwrap_or_default();
        request.push(b'\n');
        let answer = self.run(image, &request).await?;
        read(&self.0.name, &self.0.api_version, &answer)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    kind: &'a str,
    api_version: &'a str,
    image: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_account_token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_account_annotations: Option<&'a BTreeMap<String, String>>,
}

impl Program {
    /// Runs the program until it ends, and gives what it wrote.
    async fn run(&self, image: &str, request: &[u8]) -> Result<Vec<u8>, ProviderError> {
        let (name, image) = (&self.0.name, image.to_owned());
        let mut child = self.spawn().map_err(|source| ProviderError::Start {
            name: name.clone(),
            image: image.clone(),
            source,
        })?;
        let mut all = Group(child.id().and_then(|id| Pid::from_raw(id.cast_signed())));
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let mut complaint = Vec::new();
        let work = async {
            let tell = async {
                // Who knows the answer without reading the question may close its input.
                if let Some(mut stdin) = stdin {
                    let _ = stdin.write_all(request).await;
                }
                Ok(())
            };
            let listen = async { read_at_most(stdout, LONGEST_ANSWER).await.ok_or(()) };
            let note = async {
                read_first(stderr, LONGEST_COMPLAINT, &mut complaint).await;
                Ok(())
            };
            // A long answer ends it all.
            let ((), answer, ()) = tokio::try_join!(tell, listen, note)?;
            // Not before: the number of a program that has been waited for can be another's.
            let status = child.wait().await;
            Ok::<_, ()>((answer, status))
        };
        let ended = tokio::time::timeout(DEADLINE, work).await;
        if let Ok(Ok((_, Ok(_)))) = &ended {
            all.ended();
        }
        drop(all);
        let complaint = String::from_utf8_lossy(&complaint).trim_end().to_owned();
        match ended {
            Ok(Ok((answer, Ok(status)))) if status.success() => Ok(answer),
            Ok(Ok((_, Ok(status)))) => {
                Err(ProviderError::Failed { name: name.clone(), image, how: how(status), complaint })
            }
            Ok(Ok((_, Err(source)))) => Err(ProviderError::Start { name: name.clone(), image, source }),
            Ok(Err(())) => {
                reap(child).await;
                Err(ProviderError::TooLong { name: name.clone() })
            }
            Err(_) => {
                reap(child).await;
                Err(ProviderError::Late { name: name.clone(), image, complaint })
            }
        }
    }

    fn spawn(&self) -> std::io::Result<Child> {
        Command::new(&self.0.program)
            .args(&self.0.args)
            .envs(self.0.env.iter().map(|variable| (&variable.name, &variable.value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
    }
}

/// The program and all that it started. Whatever becomes of who asked, they do not stay.
struct Group(Option<Pid>);

impl Group {
    /// The program ended by itself.
    fn ended(&mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // Fails only when nobody is left.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

/// Waits for what was killed, so that nothing stays of it.
async fn reap(mut child: Child) {
    let _ = child.wait().await;
}

/// All that there is to read, or nothing where that is more than allowed.
async fn read_at_most(reader: Option<impl AsyncRead + Unpin>, most: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(reader) = reader {
        // What breaks off is decoded, and found wanting.
        let _ = reader.take(most as u64 + 1).read_to_end(&mut bytes).await;
    }
    (bytes.len() <= most).then_some(bytes)
}

/// The first of what there is to read, as it comes. The rest is read too, and lost.
async fn read_first(reader: Option<impl AsyncRead + Unpin>, most: usize, bytes: &mut Vec<u8>) {
    if let Some(mut reader) = reader {
        let _ = (&mut reader).take(most as u64).read_to_end(bytes).await;
        let _ = tokio::io::copy(&mut reader, &mut tokio::io::sink()).await;
    }
}

fn how(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("exit status {code}"),
        None => status.to_string(),
    }
}

/// Reads an answer, strictly: of what is not expected nothing is known.
fn read(name: &str, version: &str, bytes: &[u8]) -> Result<Answer, ProviderError> {
    let fields: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(bytes).map_err(|_| ProviderError::NoVersion { name: name.to_owned() })?;
    let actual = fields.get("apiVersion").and_then(serde_json::Value::as_str).unwrap_or_default();
    if actual != version {
        return Err(ProviderError::Version { expected: version.to_owned(), actual: shortened(actual) });
    }
    let response: Response = serde_json::from_slice(bytes).map_err(|_| ProviderError::Undecodable)?;
    if response.kind != "CredentialProviderResponse" {
        return Err(ProviderError::Undecodable);
    }
    let good_for = match response.cache_key_type {
        CacheKeyType::Image => GoodFor::Image,
        CacheKeyType::Registry => GoodFor::Registry,
        CacheKeyType::Global => GoodFor::Everything,
        CacheKeyType::Other(word) => return Err(ProviderError::CacheKeyType(shortened(&word))),
    };
    let credentials = response.auth.unwrap_or_default().into_iter().map(|(image, auth)| {
        let (username, password) = (auth.username, auth.password);
        (image, Credential { username, password, email: String::new() })
    });
    Ok(Answer {
        credentials: DockerConfig(credentials.collect()),
        good_for,
        duration: response.cache_duration,
    })
}

fn shortened(word: &str) -> String {
    word.chars().take(LONGEST_WORD).collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Response {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default = "no_word")]
    cache_key_type: CacheKeyType,
    #[serde(default)]
    cache_duration: Option<GoDuration>,
    #[serde(default)]
    auth: Option<BTreeMap<String, AuthConfig>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AuthConfig {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
}

text_enum! {
    /// What an answer is good for, on the wire.
    enum CacheKeyType {
        Image = "Image",
        /// For all images of the registry.
        Registry = "Registry",
        /// For all images.
        Global = "Global",
    }
}

fn no_word() -> CacheKeyType {
    "".into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;
    use crate::credential::Coordinates;
    use crate::provider_config::ExecEnvVar;

    const V1: &str = "credentialprovider.kubelet.k8s.io/v1";

    /// A provider that is a script.
    fn script(directory: &Path, text: &str) -> Program {
        let program = directory.join("provider");
        std::fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        Program(ProviderConfig {
            name: "provider".to_owned(),
            program,
            api_version: V1.to_owned(),
            ..ProviderConfig::default()
        })
    }

    async fn ask(text: &str) -> Result<Answer, String> {
        let directory = tempfile::tempdir().unwrap();
        script(directory.path(), text).ask("gcr.io/team/image", None).await.map_err(|error| error.to_string())
    }

    fn answering(rest: &str) -> String {
        format!(
            "cat >/dev/null; echo '{{\"kind\":\"CredentialProviderResponse\",\"apiVersion\":\"{V1}\",{rest}}}'"
        )
    }

    #[tokio::test]
    async fn a_program_is_given_the_image_its_arguments_and_its_environment() {
        let directory = tempfile::tempdir().unwrap();
        let seen = directory.path().join("seen");
        let text = answering(
            r#""cacheKeyType":"Registry","cacheDuration":"5m","auth":{"gcr.io":{"username":"me","password":"hunter2"}}"#,
        );
        let mut program = script(
            directory.path(),
            &format!("{{ cat; echo \"$@\" $PROFILE; }} >{}\n{text}", seen.display()),
        );
        program.0.args = vec!["get".to_owned(), "a b".to_owned()];
        program.0.env = vec![ExecEnvVar { name: "PROFILE".to_owned(), value: "mine".to_owned() }];
        let answer = program.ask("gcr.io/team/image", None).await.unwrap();
        assert_eq!(
            std::fs::read_to_string(&seen).unwrap(),
            format!(
                "{{\"kind\":\"CredentialProviderRequest\",\"apiVersion\":\"{V1}\",\"image\":\"gcr.io/team/image\"}}\nget a b mine\n"
            )
        );
        assert_eq!((answer.good_for, answer.duration), (GoodFor::Registry, Some(GoDuration::from_secs(300))));
        let credential = &answer.credentials.0["gcr.io"];
        assert_eq!((credential.username.as_str(), credential.password.as_str()), ("me", "hunter2"));
        assert!(!format!("{answer:?}").contains("hunter2"));
    }

    #[tokio::test]
    async fn a_program_is_shown_a_token_and_what_the_service_account_is_annotated_with() {
        let directory = tempfile::tempdir().unwrap();
        let seen = directory.path().join("seen");
        let text = answering(r#""cacheKeyType":"Image""#).replace("/dev/null", &seen.display().to_string());
        let shown = Shown {
            token: "hunter2".to_owned(),
            annotations: [("role".to_owned(), "puller".to_owned())].into(),
            account: Coordinates { uid: "u".into(), namespace: "ns".into(), name: "robot".into() },
        };
        assert!(!format!("{shown:?}").contains("hunter2"));
        script(directory.path(), &text).ask("a.io/b", Some(&shown)).await.unwrap();
        assert_eq!(
            std::fs::read_to_string(&seen).unwrap(),
            format!(
                "{{\"kind\":\"CredentialProviderRequest\",\"apiVersion\":\"{V1}\",\"image\":\"a.io/b\",\
                 \"serviceAccountToken\":\"hunter2\",\"serviceAccountAnnotations\":{{\"role\":\"puller\"}}}}\n"
            )
        );
    }

    #[tokio::test]
    async fn an_answer_may_lack_all_but_its_kind_and_what_it_is_good_for() {
        let answer =
            ask(&answering(r#""cacheKeyType":"Global","auth":null,"cacheDuration":null"#)).await.unwrap();
        assert_eq!((answer.good_for, answer.duration), (GoodFor::Everything, None));
        assert!(answer.credentials.0.is_empty());
        let answer = ask(&answering(r#""cacheKeyType":"Image","cacheDuration":"0s""#)).await.unwrap();
        assert_eq!((answer.good_for, answer.duration), (GoodFor::Image, Some(GoDuration::ZERO)));
    }

    #[tokio::test]
    async fn what_is_no_answer_is_refused_and_not_shown() {
        for (text, expected) in [
            (
                "echo no >&2; echo '{\"hunter2\":1}'; exit 3",
                "error execing credential provider plugin provider for image gcr.io/team/image: exit status 3: no",
            ),
            (
                "kill -9 $$",
                "error execing credential provider plugin provider for image gcr.io/team/image: signal: 9 (SIGKILL): ",
            ),
            ("true", "error reading GVK from response of credential provider plugin provider"),
            ("echo hunter2", "error reading GVK from response of credential provider plugin provider"),
            (
                "echo '[\"hunter2\"]'",
                "error reading GVK from response of credential provider plugin provider",
            ),
            (
                "echo '{\"apiVersion\":\"credentialprovider.kubelet.k8s.io/v2\",\"auth\":\"hunter2\"}'",
                "apiVersion from credential plugin response did not match expected apiVersion:credentialprovider.kubelet.k8s.io/v1, actual apiVersion:credentialprovider.kubelet.k8s.i",
            ),
            (
                &answering(r#""cacheKeyType":"Image","auth":{"a.io":"hunter2"}"#),
                "error decoding credential provider plugin response from stdout",
            ),
            (
                &answering(r#""cacheKeyType":"Image","token":"hunter2""#),
                "error decoding credential provider plugin response from stdout",
            ),
            (
                &answering(r#""cacheKeyType":"Image","auth":{"a.io":{"username":"me","token":"hunter2"}}"#),
                "error decoding credential provider plugin response from stdout",
            ),
            (
                &answering(r#""cacheKeyType":"Image","cacheDuration":"hunter2""#),
                "error decoding credential provider plugin response from stdout",
            ),
            (
                &answering(r#""cacheKeyType":"Pod""#),
                "credential provider plugin did not return a valid cacheKeyType: Pod",
            ),
            (&answering(r#""auth":{}"#), "credential provider plugin did not return a valid cacheKeyType: "),
            (
                "echo '{\"kind\":\"Pod\",\"apiVersion\":\"credentialprovider.kubelet.k8s.io/v1\",\"cacheKeyType\":\"Image\"}'",
                "error decoding credential provider plugin response from stdout",
            ),
        ] {
            assert_eq!(ask(text).await.unwrap_err(), expected, "{text}");
        }
    }

    #[tokio::test]
    async fn a_program_that_is_none_is_told_so() {
        let directory = tempfile::tempdir().unwrap();
        let mut program = script(directory.path(), "");
        program.0.program = directory.path().join("none");
        let error = program.ask("a.io/b", None).await.unwrap_err();
        assert_eq!(error.to_string(), "error execing credential provider plugin provider for image a.io/b");
    }

    /// The process whose number a script wrote down is gone.
    async fn is_gone(file: &Path) {
        let id: i32 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
        let id = Pid::from_raw(id).unwrap();
        // Its new parent has yet to wait for it.
        let gone = || match std::fs::read_to_string(format!("/proc/{}/stat", id.as_raw_nonzero())) {
            Ok(stat) => stat.contains(") Z "),
            Err(_) => true,
        };
        while !gone() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_program_that_answers_without_end_is_stopped_with_all_that_it_started() {
        let directory = tempfile::tempdir().unwrap();
        let child = directory.path().join("child");
        let text = format!("sleep 1000 & echo $! >{}; yes", child.display());
        let error = script(directory.path(), &text).ask("a.io/b", None).await.unwrap_err();
        assert_eq!(error.to_string(), "credential provider plugin provider answered more than 1048576 bytes");
        is_gone(&child).await;
    }

    #[tokio::test]
    async fn of_an_endless_complaint_the_beginning_is_kept() {
        let error = ask("yes complaint | head -c 1000000 >&2; exit 1").await.unwrap_err();
        assert!(error.contains("exit status 1: complaint\ncomplaint"), "{error}");
        assert!(error.len() < LONGEST_COMPLAINT + 200, "{}", error.len());
    }

    #[tokio::test]
    async fn a_program_that_hangs_is_stopped_with_all_that_it_started() {
        let directory = tempfile::tempdir().unwrap();
        let child = directory.path().join("child");
        let text =
            format!("echo busy >&2; sleep 1000 & echo $! >{}.new; mv {0}.new {0}; wait", child.display());
        let program = script(directory.path(), &text);
        let asked = tokio::spawn(async move { program.ask("a.io/b", None).await });
        while !child.exists() {
            tokio::task::yield_now().await;
        }
        tokio::time::pause();
        let error = asked.await.unwrap().unwrap_err();
        assert_eq!(
            error.to_string(),
            "error execing credential provider plugin provider for image a.io/b: context deadline exceeded: busy"
        );
        is_gone(&child).await;
    }

    #[tokio::test]
    async fn a_program_does_not_outlive_the_wish_for_its_answer() {
        let directory = tempfile::tempdir().unwrap();
        let child = directory.path().join("child");
        let text = format!("sleep 1000 & echo $! >{}.new; mv {0}.new {0}; wait", child.display());
        let program = script(directory.path(), &text);
        let asked = tokio::spawn(async move { program.ask("a.io/b", None).await });
        while !child.exists() {
            tokio::task::yield_now().await;
        }
        asked.abort();
        assert!(asked.await.unwrap_err().is_cancelled());
        is_gone(&child).await;
    }
}
