//! kubeconfigs: where a server is, whom it is trusted by, and who one is to it.

use std::path::{Path, PathBuf};

use crablet_api::Bytes;
use crablet_api::document::{self, DecodeError, Limits, ParseError, Place, Problem, Tree, Value};
use crablet_host::files::{ReadError, read_bounded};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tracing::warn;

use crate::endpoint::Endpoint;
use crate::proxy::Proxy;
use crate::secret::Secret;

const LARGEST: usize = 3 << 20;

/// What a kubeconfig says for its current context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubeconfig {
    pub cluster: Cluster,
    pub user: User,
    /// Of objects that name none; `default` if it is empty.
    pub namespace: String,
}

/// Where a server is, and how it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// Its URL.
    pub server: String,
    /// Whom its certificate must be signed by; those whom the machine trusts if nothing is said.
    pub certificate_authority: Option<Pem>,
    /// The name in its certificate, where that is not the one in the URL.
    pub tls_server_name: Option<String>,
    pub insecure_skip_tls_verify: bool,
    /// A URL that may hold a password.
    pub proxy_url: Option<Secret>,
}

impl Cluster {
    /// What tells one cluster from another: the authority of its servers, which may be many; or the address of one that
    /// has none of its own.
    pub fn known_by(&self) -> Result<Vec<u8>, ReadError> {
        match &self.certificate_authority {
            Some(authority) => authority.read(),
            None => Ok(self.server.clone().into_bytes()),
        }
    }
}

/// Who one is, and what proves it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub client_certificate: Option<ClientCertificate>,
    pub token: Option<Secret>,
    /// Read again and again, and preferred to the token.
    pub token_file: Option<PathBuf>,
    pub basic: Option<Basic>,
    pub exec: Option<Exec>,
}

/// Something in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pem {
    File(PathBuf),
    Data(Bytes),
}

impl Pem {
    pub(crate) fn read(&self) -> Result<Vec<u8>, ReadError> {
        match self {
            Pem::File(path) => read_bounded(path, LARGEST),
            Pem::Data(data) => Ok(data.to_vec()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate, and those that lead to the authority.
    pub certificate: Pem,
    pub key: Pem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Basic {
    pub username: String,
    pub password: Secret,
}

/// A program that knows who one is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exec {
    pub version: ExecVersion,
    pub command: String,
    pub args: Vec<String>,
    pub env: Vec<(String, Secret)>,
    /// What to tell people who do not have the program.
    pub install_hint: String,
    /// Whether it is told which server it is for.
    pub provide_cluster_info: bool,
}

/// The words that a program expects and answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecVersion {
    V1,
    V1Beta1,
}

impl ExecVersion {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            ExecVersion::V1 => "client.authentication.k8s.io/v1",
            ExecVersion::V1Beta1 => "client.authentication.k8s.io/v1beta1",
        }
    }
}

/// Why a kubeconfig is of no use. It names file, line and field, and never what a field holds.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{} is not UTF-8 text", path.display())]
    NotText { path: PathBuf },
    #[error(transparent)]
    Parse(#[from] ParseError),
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Content(Vec<Problem>),
}

impl Kubeconfig {
    /// Reads a file. What it refers to is found relative to its directory, and not opened yet.
    pub fn read(path: &Path) -> Result<Kubeconfig, KubeconfigError> {
        let bytes = read_bounded(path, LARGEST)?;
        let text =
            String::from_utf8(bytes).map_err(|_| KubeconfigError::NotText { path: path.to_owned() })?;
        Kubeconfig::parse(path, &text)
    }

    /// What a URL without a scheme means, as in client-go.
    pub(crate) fn default_scheme(&self) -> &'static str {
        let Cluster { certificate_authority, insecure_skip_tls_verify, .. } = &self.cluster;
        let is_about_tls = certificate_authority.is_some()
            || *insecure_skip_tls_verify
            || self.user.client_certificate.is_some();
        if is_about_tls { "https" } else { "http" }
    }

    /// Reads a text, as if it were in a file there.
    pub fn parse(path: &Path, text: &str) -> Result<Kubeconfig, KubeconfigError> {
        let source = path.display().to_string();
        let (tree, doubtful) = document::parse(&source, text, Limits::MANIFEST)?;
        let (config, unknown) = document::decode::<Config>(&tree)?;
        // What is known and of no use here counts as unread.
        let is_known = |path: &str| ["apiVersion", "kind", "preferences", "extensions"].contains(&path);
        for problem in doubtful.iter().chain(&unknown).filter(|problem| !is_known(&problem.path)) {
            // Upstream passes them over without a word.
            warn!(place = %problem.place, field = problem.path, "Something in a kubeconfig is passed over");
        }
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let directory = absolute.parent().unwrap_or(Path::new("/")).to_owned();
        Reading { tree: &tree, directory, problems: Vec::new() }.finish(config)
    }
}

// What is on the wire. Everything may be null.

#[derive(Deserialize)]
struct Config {
    #[serde(rename = "apiVersion")]
    _api_version: Option<IgnoredAny>,
    #[serde(rename = "kind")]
    _kind: Option<IgnoredAny>,
    #[serde(rename = "preferences")]
    _preferences: Option<IgnoredAny>,
    #[serde(rename = "extensions")]
    _extensions: Option<IgnoredAny>,
    clusters: Option<Vec<NamedCluster>>,
    users: Option<Vec<NamedUser>>,
    contexts: Option<Vec<NamedContext>>,
    #[serde(rename = "current-context")]
    current_context: Option<String>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Option<RawCluster>,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    user: Option<RawUser>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: Option<RawContext>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawCluster {
    server: Option<String>,
    certificate_authority: Option<String>,
    certificate_authority_data: Option<Bytes>,
    tls_server_name: Option<String>,
    insecure_skip_tls_verify: Option<bool>,
    proxy_url: Option<Secret>,
    #[serde(rename = "disable-compression")]
    _disable_compression: Option<bool>,
    #[serde(rename = "extensions")]
    _extensions: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawUser {
    client_certificate: Option<String>,
    client_certificate_data: Option<Bytes>,
    client_key: Option<String>,
    client_key_data: Option<Bytes>,
    token: Option<Secret>,
    #[serde(rename = "tokenFile")]
    token_file: Option<String>,
    username: Option<String>,
    password: Option<Secret>,
    exec: Option<RawExec>,
    auth_provider: Option<IgnoredAny>,
    #[serde(rename = "as")]
    impersonate: Option<String>,
    as_uid: Option<String>,
    as_groups: Option<Vec<String>>,
    as_user_extra: Option<IgnoredAny>,
    #[serde(rename = "extensions")]
    _extensions: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
struct RawContext {
    cluster: Option<String>,
    user: Option<String>,
    namespace: Option<String>,
    #[serde(rename = "extensions")]
    _extensions: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawExec {
    command: Option<String>,
    args: Option<Vec<String>>,
    env: Option<Vec<RawVariable>>,
    api_version: Option<String>,
    install_hint: Option<String>,
    provide_cluster_info: Option<bool>,
    interactive_mode: Option<String>,
}

#[derive(Deserialize)]
struct RawVariable {
    name: String,
    value: Secret,
}

/// From what is written to what is meant.
struct Reading<'a> {
    tree: &'a Tree,
    directory: PathBuf,
    problems: Vec<Problem>,
}

impl Reading<'_> {
    fn finish(mut self, config: Config) -> Result<Kubeconfig, KubeconfigError> {
        let found = self.current(config);
        match found {
            Some(found) if self.problems.is_empty() => Ok(found),
            Some(_) | None => Err(KubeconfigError::Content(self.problems)),
        }
    }

    fn current(&mut self, config: Config) -> Option<Kubeconfig> {
        let name = config.current_context.unwrap_or_default();
        if name.is_empty() {
            self.problem("current-context", "expected the name of one of the contexts, found nothing");
            return None;
        }
        let contexts = config.contexts.unwrap_or_default();
        let contexts = contexts.into_iter().map(|named| (named.name, named.context.unwrap_or_default()));
        let (at, context) = self.named("contexts", contexts.collect(), &name, "current-context")?;
        let refers = |field: &str| format!("contexts[{at}].context.{field}");
        let clusters = config.clusters.unwrap_or_default();
        let clusters = clusters.into_iter().map(|named| (named.name, named.cluster.unwrap_or_default()));
        let wanted = context.cluster.unwrap_or_default();
        let cluster = self.named("clusters", clusters.collect(), &wanted, &refers("cluster"));
        let users = config.users.unwrap_or_default();
        let users: Vec<_> =
            users.into_iter().map(|named| (named.name, named.user.unwrap_or_default())).collect();
        let user = match context.user.unwrap_or_default() {
            // Somebody without a name has nothing to prove it with.
            nobody if nobody.is_empty() => Some((0, RawUser::default())),
            wanted => self.named("users", users, &wanted, &refers("user")),
        };
        let (cluster, user) = (cluster?, user?);
        Some(Kubeconfig {
            cluster: self.cluster(&format!("clusters[{}].cluster", cluster.0), cluster.1),
            user: self.user(&format!("users[{}].user", user.0), user.1),
            namespace: context.namespace.unwrap_or_default(),
        })
    }

    /// The entry of a name in a list.
    fn named<T>(
        &mut self,
        list: &str,
        entries: Vec<(String, T)>,
        wanted: &str,
        asked_by: &str,
    ) -> Option<(usize, T)> {
        let mut found = None;
        for (index, (name, entry)) in entries.into_iter().enumerate() {
            if name != wanted {
                continue;
            }
            if found.is_some() {
                self.problem(&format!("{list}[{index}].name"), "another one has this name already");
            }
            found = Some((index, entry));
        }
        if found.is_none() {
            self.problem(asked_by, &format!("there is none of this name in {list}"));
        }
        found
    }

    fn cluster(&mut self, path: &str, raw: RawCluster) -> Cluster {
        let at = |field: &str| format!("{path}.{field}");
        let certificate_authority = self.pem(raw.certificate_authority, raw.certificate_authority_data);
        let insecure_skip_tls_verify = raw.insecure_skip_tls_verify.unwrap_or_default();
        if insecure_skip_tls_verify && certificate_authority.is_some() {
            let message = "cannot be set beside a certificate authority, which would not be looked at";
            self.problem(&at("insecure-skip-tls-verify"), message);
        }
        let server = raw.server.unwrap_or_default();
        if let Err(error) = Endpoint::of_server(&server, "https") {
            self.problem(&at("server"), &error.to_string());
        }
        let proxy_url = raw.proxy_url.filter(|url| !url.is_empty());
        if let Some(Err(error)) = proxy_url.as_ref().map(|url| Proxy::parse(url.expose())) {
            self.problem(&at("proxy-url"), &error.to_string());
        }
        Cluster {
            server,
            certificate_authority,
            tls_server_name: raw.tls_server_name.filter(|name| !name.is_empty()),
            insecure_skip_tls_verify,
            proxy_url,
        }
    }

    fn user(&mut self, path: &str, raw: RawUser) -> User {
        let at = |field: &str| format!("{path}.{field}");
        let certificate = self.pem(raw.client_certificate, raw.client_certificate_data);
        let key = self.pem(raw.client_key, raw.client_key_data);
        let client_certificate = match (certificate, key) {
            (Some(certificate), Some(key)) => Some(ClientCertificate { certificate, key }),
            (Some(_), None) => {
                self.problem(&at("client-key"), "a client certificate needs its key");
                None
            }
            (None, Some(_)) => {
                self.problem(&at("client-certificate"), "a client key needs its certificate");
                None
            }
            (None, None) => None,
        };
        let token = raw.token.filter(|token| !token.is_empty());
        let token_file = raw.token_file.filter(|file| !file.is_empty()).map(|file| self.directory.join(file));
        let basic = raw
            .username
            .filter(|name| !name.is_empty())
            .map(|username| Basic { username, password: raw.password.unwrap_or_default() });
        if basic.is_some() && (token.is_some() || token_file.is_some()) {
            self.problem(&at("username"), "cannot be set beside a token: only one of them can be sent");
        }
        if raw.auth_provider.is_some() {
            self.problem(&at("auth-provider"), "is not supported; use exec");
        }
        let groups = raw.as_groups.is_some_and(|groups| !groups.is_empty());
        if [raw.impersonate, raw.as_uid].into_iter().flatten().any(|word| !word.is_empty())
            || groups
            || raw.as_user_extra.is_some()
        {
            self.problem(&at("as"), "a node cannot act as somebody else");
        }
        let exec = raw.exec.and_then(|exec| self.exec(&at("exec"), exec));
        User { client_certificate, token, token_file, basic, exec }
    }

    fn exec(&mut self, path: &str, raw: RawExec) -> Option<Exec> {
        let at = |field: &str| format!("{path}.{field}");
        let command = raw.command.unwrap_or_default();
        if command.is_empty() {
            self.problem(&at("command"), "expected a program, found nothing");
        }
        let versions = [ExecVersion::V1, ExecVersion::V1Beta1];
        let version =
            versions.into_iter().find(|version| Some(version.as_str()) == raw.api_version.as_deref());
        let Some(version) = version else {
            let [v1, beta] = versions.map(ExecVersion::as_str);
            self.problem(&at("apiVersion"), &format!("expected {v1} or {beta}"));
            return None;
        };
        match (version, raw.interactive_mode.as_deref().unwrap_or_default()) {
            (_, "Never" | "IfAvailable") | (ExecVersion::V1Beta1, "") => {}
            (_, "Always") => {
                self.problem(&at("interactiveMode"), "there is nobody whom the program could ask here");
            }
            (ExecVersion::V1 | ExecVersion::V1Beta1, _) => {
                self.problem(&at("interactiveMode"), "expected Never, IfAvailable or Always");
            }
        }
        // One without a slash is looked for where programs are.
        let command = match command.contains('/') {
            true => self.directory.join(command).to_string_lossy().into_owned(),
            false => command,
        };
        let env = raw.env.unwrap_or_default();
        Some(Exec {
            version,
            command,
            args: raw.args.unwrap_or_default(),
            env: env.into_iter().map(|variable| (variable.name, variable.value)).collect(),
            install_hint: raw.install_hint.unwrap_or_default(),
            provide_cluster_info: raw.provide_cluster_info.unwrap_or_default(),
        })
    }

    /// What is in place counts before what is in a file.
    fn pem(&self, file: Option<String>, data: Option<Bytes>) -> Option<Pem> {
        let data = data.filter(|data| !data.is_empty()).map(Pem::Data);
        data.or_else(|| file.filter(|file| !file.is_empty()).map(|file| Pem::File(self.directory.join(file))))
    }

    fn problem(&mut self, path: &str, message: &str) {
        let problem = Problem { place: self.place(path), path: path.to_owned(), message: message.to_owned() };
        self.problems.push(problem);
    }

    /// Where a field is, or what it should be in.
    fn place(&self, path: &str) -> Place {
        let mut node = self.tree;
        for part in path.split(['.', '[']) {
            let next = match (&node.value, part.strip_suffix(']')) {
                (Value::List(items), Some(index)) => {
                    index.parse::<usize>().ok().and_then(|index| items.get(index))
                }
                _ => node.get(part),
            };
            let Some(next) = next else { break };
            node = next;
        }
        node.place.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Kubeconfig, String> {
        Kubeconfig::parse(Path::new("/etc/kubernetes/kubelet.conf"), text).map_err(|error| error.to_string())
    }

    /// A kubeconfig with this cluster and this user, each in one line.
    fn with(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\npreferences: {{}}\ncurrent-context: c\ncontexts:\n- name: other\n  context: null\n- name: c\n  context: {{cluster: k, user: u, namespace: ns}}\nclusters:\n- name: k\n  cluster: {{{cluster}}}\nusers:\n- name: u\n  user: {{{user}}}\n"
        )
    }

    const SERVER: &str = "server: 'https://192.0.2.1:6443'";

    #[test]
    fn what_the_current_context_names_is_found_and_paths_are_relative_to_the_file() {
        let cluster = format!(
            "{SERVER}, certificate-authority: pki/ca.crt, tls-server-name: kubernetes, proxy-url: 'http://me:hunter2@proxy:3128'"
        );
        let user = "client-certificate: /var/lib/kubelet/pki/current.pem, client-key-data: aHVudGVyMg==, tokenFile: ../token, token: hunter2";
        let config = parse(&with(&cluster, user)).unwrap();
        assert_eq!(config.namespace, "ns");
        assert_eq!(config.cluster.server, "https://192.0.2.1:6443");
        let authority = Pem::File("/etc/kubernetes/pki/ca.crt".into());
        assert_eq!(config.cluster.certificate_authority, Some(authority));
        assert_eq!(config.cluster.tls_server_name.as_deref(), Some("kubernetes"));
        let certificate = config.user.client_certificate.as_ref().unwrap();
        assert_eq!(certificate.certificate, Pem::File("/var/lib/kubelet/pki/current.pem".into()));
        assert_eq!(certificate.key, Pem::Data("hunter2".into()));
        assert_eq!(config.user.token_file.as_deref(), Some(Path::new("/etc/kubernetes/../token")));
        assert_eq!(config.user.token.as_ref().unwrap().expose(), "hunter2");
        let shown = format!("{config:?}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn data_counts_before_files_and_an_empty_user_is_nobody() {
        let cluster = format!("{SERVER}, certificate-authority: a, certificate-authority-data: Y2E=");
        let config = parse(&with(&cluster, "")).unwrap();
        assert_eq!(config.cluster.certificate_authority, Some(Pem::Data("ca".into())));
        assert_eq!(config.user, User::default());
    }

    #[test]
    fn a_program_is_described_in_either_version() {
        let user = "exec: {apiVersion: client.authentication.k8s.io/v1, command: bin/login, args: [get, token], env: [{name: A, value: hunter2}], interactiveMode: IfAvailable, provideClusterInfo: true, installHint: ask}";
        let exec = parse(&with(SERVER, user)).unwrap().user.exec.unwrap();
        assert_eq!((exec.version, &*exec.command), (ExecVersion::V1, "/etc/kubernetes/bin/login"));
        assert_eq!(exec.args, ["get", "token"]);
        assert_eq!((&*exec.env[0].0, exec.env[0].1.expose()), ("A", "hunter2"));
        assert!(exec.provide_cluster_info && !format!("{exec:?}").contains("hunter2"));
        let user =
            "exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: login, args: null, env: null}";
        let exec = parse(&with(SERVER, user)).unwrap().user.exec.unwrap();
        assert_eq!((exec.version, &*exec.command), (ExecVersion::V1Beta1, "login"));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place_and_without_what_it_holds() {
        const FILE: &str = "/etc/kubernetes/kubelet.conf";
        for (text, expected) in [
            ("".to_owned(), ": is empty"),
            (
                "current-context: ''\n".to_owned(),
                ":1: current-context: expected the name of one of the contexts, found nothing",
            ),
            ("a: [".to_owned(), ":1: is not valid YAML: unclosed bracket '['"),
            (
                "current-context: x\n".to_owned(),
                ":1: current-context: there is none of this name in contexts",
            ),
            (
                with(SERVER, "").replace("user: u,", "user: v,"),
                ":9: contexts[1].context.user: there is none of this name in users",
            ),
            (
                with(SERVER, "").replace("name: other", "name: c"),
                ":8: contexts[1].name: another one has this name already",
            ),
            (with("", ""), ":12: clusters[0].cluster.server: expected a URL such as https://192.0.2.1:6443"),
            (
                with("server: 'https://me:hunter2@a'", ""),
                ":12: clusters[0].cluster.server: a user or a password has no place in this URL",
            ),
            (
                with(&format!("{SERVER}, insecure-skip-tls-verify: true, certificate-authority: a"), ""),
                ":12: clusters[0].cluster.insecure-skip-tls-verify: cannot be set beside a certificate authority, which would not be looked at",
            ),
            (
                with(&format!("{SERVER}, certificate-authority-data: 'hunter2!'"), ""),
                ":12: clusters[0].cluster.certificate-authority-data: expected base64 text",
            ),
            (
                with(&format!("{SERVER}, proxy-url: 'gopher://me:hunter2@a'"), ""),
                ":12: clusters[0].cluster.proxy-url: expected a URL that begins with one of: http, https, socks5, socks5h",
            ),
            (
                with(SERVER, "client-certificate: a"),
                ":15: users[0].user.client-key: a client certificate needs its key",
            ),
            (with(SERVER, "token: [hunter2]"), ":15: users[0].user.token: expected text, found a list"),
            (
                with(SERVER, "token: hunter2, username: me, password: hunter2"),
                ":15: users[0].user.username: cannot be set beside a token: only one of them can be sent",
            ),
            (
                with(SERVER, "auth-provider: {name: gcp}"),
                ":15: users[0].user.auth-provider: is not supported; use exec",
            ),
            (with(SERVER, "as: admin"), ":15: users[0].user.as: a node cannot act as somebody else"),
            (
                with(SERVER, "exec: {apiVersion: client.authentication.k8s.io/v1alpha1, command: c}"),
                ":15: users[0].user.exec.apiVersion: expected client.authentication.k8s.io/v1 or client.authentication.k8s.io/v1beta1",
            ),
            (
                with(SERVER, "exec: {apiVersion: client.authentication.k8s.io/v1, command: c}"),
                ":15: users[0].user.exec.interactiveMode: expected Never, IfAvailable or Always",
            ),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.starts_with(FILE) && error.ends_with(expected), "{error}\n{expected}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = Kubeconfig::read(Path::new("/nowhere/kubeconfig")).unwrap_err();
        assert_eq!(error.to_string(), "cannot read /nowhere/kubeconfig");
    }
}
