//! The configuration of credential providers: programs that are asked for credentials, and for which images.
//!
//! Whatever is wrong with it is told at once, with file, line and field, before anything runs.

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crablet_api::document::{self, Limits, Tree, Value};
use crablet_api::{GoDuration, qualified_name_errors, text_enum};
use crablet_host::files::read_bounded;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::credential::hex;
use crate::location::Location;

const KIND: &str = "CredentialProviderConfig";

const CONFIG_VERSIONS: &[&str] =
    &["kubelet.config.k8s.io/v1", "kubelet.config.k8s.io/v1beta1", "kubelet.config.k8s.io/v1alpha1"];

/// The versions of what is said to a provider and what it answers.
const PROVIDER_VERSIONS: &[&str] = &[
    TOKEN_VERSION,
    "credentialprovider.kubelet.k8s.io/v1alpha1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
];

/// The only version that knows of tokens.
const TOKEN_VERSION: &str = "credentialprovider.kubelet.k8s.io/v1";

/// More files than this in one directory are a mistake.
const MOST_FILES: usize = 1000;

/// A program that is asked for credentials.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProviderConfig {
    /// Its name, which is the program's in the directory of all of them.
    pub name: String,
    /// The images that it is asked about.
    pub match_images: Vec<String>,
    /// How long what it says is kept if it does not say so itself.
    pub default_cache_duration: Option<GoDuration>,
    /// The version of what is said to it and what it answers.
    pub api_version: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// What it finds in its environment, beside what the agent has in its own.
    pub env: Vec<ExecEnvVar>,
    /// Which token of the pod's service account it is given, if any.
    pub token_attributes: Option<TokenAttributes>,
    #[serde(skip)]
    pub program: PathBuf,
}

/// A variable of a provider's environment. Its `Debug` hides the value.
#[derive(Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct ExecEnvVar {
    pub name: String,
    pub value: String,
}

impl fmt::Debug for ExecEnvVar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecEnvVar").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Which token of the pod's service account a provider is given.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TokenAttributes {
    /// Whom the token is for.
    pub service_account_token_audience: String,
    /// How long credentials are kept that were given for a token.
    pub cache_type: Option<TokenCacheType>,
    /// Whether it is not asked at all for a pod without a service account.
    pub require_service_account: Option<bool>,
    /// Annotations of the service account that it needs.
    pub required_service_account_annotation_keys: Vec<String>,
    /// Annotations of the service account that it likes to have.
    pub optional_service_account_annotation_keys: Vec<String>,
}

text_enum! {
    /// For whom credentials are kept that were given for a token.
    pub enum TokenCacheType {
        ServiceAccount = "ServiceAccount",
        Token = "Token",
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct File {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    providers: Vec<ProviderConfig>,
}

/// The configuration of providers.
#[derive(Debug, Default)]
pub struct LoadedProviders {
    pub configs: Vec<ProviderConfig>,
    /// What tells it from others: the digest of its files, as upstream takes it.
    pub hash: String,
}

/// Reads the configuration of providers: a file, or all `*.json`, `*.yaml` and `*.yml` of a directory in the order of
/// their names. Their programs have to be in `programs`. `tokens` says whether providers may be given tokens.
///
/// An error has a line for each mistake.
pub fn load_providers(config: &Path, programs: &Path, tokens: bool) -> Result<LoadedProviders, Vec<String>> {
    let (problems, providers, digest) = (Vec::new(), Vec::new(), Sha256::new());
    let mut reader = Reader { tokens, programs, problems, providers, digest };
    match std::fs::metadata(programs) {
        _ if programs.as_os_str().is_empty() => reader.fail(
            "--image-credential-provider-bin-dir",
            "is not set, and the programs of credential providers are looked for in it",
        ),
        Ok(found) if !found.is_dir() => reader.fail(
            "--image-credential-provider-bin-dir",
            &format!("{} is not a directory", programs.display()),
        ),
        Ok(_) => {}
        Err(_) => {
            let message = format!("plugin binary directory {} did not exist", programs.display());
            reader.fail("--image-credential-provider-bin-dir", &message);
        }
    }
    match files(config) {
        Ok(files) => files.iter().for_each(|file| reader.file(file)),
        Err(message) => reader.fail("--image-credential-provider-config", &message),
    }
    match reader.problems.is_empty() {
        true => {
            let hash = format!("sha256:{}", hex(&reader.digest.finalize()));
            Ok(LoadedProviders { configs: reader.providers, hash })
        }
        false => Err(reader.problems),
    }
}

fn files(config: &Path) -> Result<Vec<PathBuf>, String> {
    if config.as_os_str().is_empty() {
        return Err("credential provider config path is empty".to_owned());
    }
    let unreadable = |error: std::io::Error| format!("{}: cannot be read: {error}", config.display());
    if !std::fs::metadata(config).map_err(unreadable)?.is_dir() {
        return Ok(vec![config.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(config).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let is_ours = path.extension().is_some_and(|e| e == "json" || e == "yaml" || e == "yml");
        if is_ours && !path.is_dir() {
            files.push(path);
        }
        if files.len() > MOST_FILES {
            return Err(format!("{}: has more than {MOST_FILES} files", config.display()));
        }
    }
    files.sort();
    match files.is_empty() {
        true => Err(format!("no configuration files found in directory {:?}", config.display().to_string())),
        false => Ok(files),
    }
}

struct Reader<'a> {
    tokens: bool,
    programs: &'a Path,
    problems: Vec<String>,
    providers: Vec<ProviderConfig>,
    digest: Sha256,
}

impl Reader<'_> {
    fn fail(&mut self, place: &str, message: &str) {
        self.problems.push(format!("{place}: {message}"));
    }

    fn file(&mut self, path: &Path) {
        let name = path.display().to_string();
        let text = read_bounded(path, Limits::MANIFEST.bytes)
            .map_err(|error| match std::error::Error::source(&error) {
                Some(cause) => format!("{error}: {cause}"),
                None => error.to_string(),
            })
            .and_then(|bytes| String::from_utf8(bytes).map_err(|_| format!("{name}: is not UTF-8 text")));
        let parsed = text.and_then(|text| {
            // With its length first, so that no two sets of files are the same.
            self.digest.update((text.len() as u64).to_be_bytes());
            self.digest.update(&text);
            document::parse(&name, &text, Limits::MANIFEST).map_err(|error| error.to_string())
        });
        match parsed {
            Ok((node, doubts)) => {
                // As upstream, which is strict here: what is doubtful elsewhere is a mistake.
                self.problems.extend(doubts.iter().map(ToString::to_string));
                self.document(&node);
            }
            Err(problem) => self.problems.push(problem),
        }
    }

    fn document(&mut self, node: &Tree) {
        let kind_is_right = self.is_one_of(node, "kind", &[KIND]);
        if !self.is_one_of(node, "apiVersion", CONFIG_VERSIONS) || !kind_is_right {
            return;
        }
        let (file, unknown) = match document::decode::<File>(node) {
            Ok(decoded) => decoded,
            Err(error) => return self.problems.push(error.to_string()),
        };
        self.problems.extend(unknown.iter().map(ToString::to_string));
        let items = match node.get("providers").map(|node| &node.value) {
            Some(Value::List(items)) if !items.is_empty() => items,
            Some(_) | None => {
                let place = node.get("providers").unwrap_or(node).place.to_string();
                return self.fail(&place, "providers: at least 1 item in plugins is required");
            }
        };
        for (index, (provider, item)) in file.providers.into_iter().zip(items).enumerate() {
            let mut check = Check { node: item, index, problems: Vec::new() };
            check.name(&provider, self.programs, &self.providers);
            check.images(&provider);
            check.version_and_duration(&provider);
            check.tokens(&provider, self.tokens);
            self.problems.append(&mut check.problems);
            let program = self.programs.join(&provider.name);
            self.providers.push(ProviderConfig { program, ..provider });
        }
    }

    fn is_one_of(&mut self, node: &Tree, field: &str, expected: &[&str]) -> bool {
        let found = node.get(field);
        if found.and_then(Tree::as_text).is_some_and(|text| expected.contains(&text)) {
            return true;
        }
        let quoted: Vec<String> = expected.iter().map(|word| format!("{word:?}")).collect();
        let expected = quoted.join(" or ");
        let (place, what) = match found {
            Some(value) => {
                let what =
                    value.as_text().map_or_else(|| value.value.kind().to_owned(), |t| format!("{t:?}"));
                (&value.place, format!("expected {expected}, found {what}"))
            }
            None => (&node.place, format!("is missing; expected {expected}")),
        };
        self.fail(&place.to_string(), &format!("{field}: {what}"));
        false
    }
}

/// What one provider may not say.
struct Check<'a> {
    node: &'a Tree,
    index: usize,
    problems: Vec<String>,
}

impl Check<'_> {
    fn fail(&mut self, path: &[&str], message: &str) {
        // Where the field is, or else the innermost mapping that lacks it.
        let place = (0..=path.len()).rev().find_map(|end| self.node.at(&path[..end])).unwrap_or(self.node);
        self.problems.push(format!(
            "{}: providers[{}].{}: {message}",
            place.place,
            self.index,
            path.join(".")
        ));
    }

    fn name(&mut self, provider: &ProviderConfig, programs: &Path, others: &[ProviderConfig]) {
        let name = provider.name.as_str();
        let before = self.problems.len();
        if name.is_empty() {
            self.fail(&["name"], "is required");
        }
        if name.contains('/') {
            self.fail(&["name"], "provider name cannot contain '/'");
        }
        if name.contains(' ') {
            self.fail(&["name"], "provider name cannot contain spaces");
        }
        if name == "." || name == ".." {
            self.fail(&["name"], &format!("provider name cannot be '{name}'"));
        }
        if others.iter().any(|other| other.name == name) {
            self.fail(&["name"], &format!("duplicate provider name {name:?} found in configuration file(s)"));
        }
        if self.problems.len() > before {
            return;
        }
        let program = programs.join(name);
        match std::fs::metadata(&program) {
            Ok(found) if found.is_dir() => {
                self.fail(&["name"], &format!("plugin binary {} is a directory", program.display()));
            }
            Ok(found) if found.permissions().mode() & 0o111 == 0 => {
                self.fail(&["name"], &format!("plugin binary {} is not executable", program.display()));
            }
            Ok(_) => {}
            Err(_) => {
                self.fail(
                    &["name"],
                    &format!("plugin binary executable {} did not exist", program.display()),
                );
            }
        }
    }

    fn images(&mut self, provider: &ProviderConfig) {
        if provider.match_images.is_empty() {
            self.fail(&["matchImages"], "at least 1 item in matchImages is required");
        }
        for image in &provider.match_images {
            if let Err(error) = Location::parse(image) {
                self.fail(&["matchImages"], &format!("match image {image:?} is invalid: {error}"));
            }
        }
    }

    fn version_and_duration(&mut self, provider: &ProviderConfig) {
        if !PROVIDER_VERSIONS.contains(&provider.api_version.as_str()) {
            let supported: Vec<String> = PROVIDER_VERSIONS.iter().map(|word| format!("{word:?}")).collect();
            let found = &provider.api_version;
            self.fail(
                &["apiVersion"],
                &format!("unsupported value {found:?}, supported values: {}", supported.join(", ")),
            );
        }
        match provider.default_cache_duration {
            None => self.fail(&["defaultCacheDuration"], "is required"),
            Some(duration) if duration.is_negative() => {
                self.fail(&["defaultCacheDuration"], "must be greater than or equal to 0");
            }
            Some(_) => {}
        }
    }

    fn tokens(&mut self, provider: &ProviderConfig, are_on: bool) {
        const TOKENS: &str = "tokenAttributes";
        const REQUIRED: &str = "requiredServiceAccountAnnotationKeys";
        const OPTIONAL: &str = "optionalServiceAccountAnnotationKeys";
        let Some(tokens) = &provider.token_attributes else { return };
        if !are_on {
            self.fail(&[TOKENS], "tokenAttributes is not supported when KubeletServiceAccountTokenForCredentialProviders feature gate is disabled");
        }
        if tokens.service_account_token_audience.is_empty() {
            self.fail(&[TOKENS, "serviceAccountTokenAudience"], "is required");
        }
        if tokens.require_service_account.is_none() {
            self.fail(&[TOKENS, "requireServiceAccount"], "is required");
        }
        if provider.api_version != TOKEN_VERSION {
            self.fail(
                &[TOKENS],
                &format!("tokenAttributes is only supported for {TOKEN_VERSION} API version"),
            );
        }
        let (required, optional) = (
            &tokens.required_service_account_annotation_keys,
            &tokens.optional_service_account_annotation_keys,
        );
        if tokens.require_service_account == Some(false) && !required.is_empty() {
            self.fail(
                &[TOKENS, REQUIRED],
                "requireServiceAccount cannot be false when requiredServiceAccountAnnotationKeys is set",
            );
        }
        self.annotation_keys(&[TOKENS, REQUIRED], required);
        self.annotation_keys(&[TOKENS, OPTIONAL], optional);
        if let Some(both) = required.iter().find(|key| optional.contains(key)) {
            self.fail(&[TOKENS], &format!("annotation keys cannot be both required and optional: {both:?}"));
        }
        match &tokens.cache_type {
            Some(TokenCacheType::ServiceAccount | TokenCacheType::Token) => {}
            Some(TokenCacheType::Other(_)) | None => self.fail(
                &[TOKENS, "cacheType"],
                &format!("cacheType is required to be set when tokenAttributes is specified. Supported values are: {}", TokenCacheType::WORDS.join(", ")),
            ),
        }
    }

    fn annotation_keys(&mut self, path: &[&str], keys: &[String]) {
        for (index, key) in keys.iter().enumerate() {
            for error in qualified_name_errors(&key.to_lowercase()) {
                self.fail(path, &format!("{key:?}: {error}"));
            }
            if keys[..index].contains(key) {
                self.fail(path, &format!("duplicate value {key:?}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n";

    /// A directory with the program `ecr`, and one of configurations.
    struct Node {
        directory: tempfile::TempDir,
    }

    impl Node {
        fn new(files: &[(&str, &str)]) -> Node {
            let node = Node { directory: tempfile::tempdir().unwrap() };
            for directory in ["bin/directory", "config"] {
                std::fs::create_dir_all(node.directory.path().join(directory)).unwrap();
            }
            for (program, mode) in [("ecr", 0o755), ("gcr", 0o755), ("plain", 0o644)] {
                let path = node.directory.path().join("bin").join(program);
                std::fs::write(&path, "").unwrap();
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            }
            for (name, text) in files {
                std::fs::write(node.directory.path().join("config").join(name), text).unwrap();
            }
            node
        }

        fn load(&self, config: &str, tokens: bool) -> Result<Vec<ProviderConfig>, Vec<String>> {
            let root = self.directory.path();
            load_providers(&root.join(config), &root.join("bin"), tokens).map(|loaded| loaded.configs)
        }

        /// The mistakes, with the test's directory as `DIR`.
        fn mistakes(&self, config: &str) -> Vec<String> {
            let root = self.directory.path().display().to_string();
            self.load(config, true).unwrap_err().iter().map(|line| line.replace(&root, "DIR")).collect()
        }
    }

    /// The mistakes of a file with these providers.
    fn mistakes(providers: &str) -> Vec<String> {
        Node::new(&[("c.yaml", &format!("{HEAD}{providers}"))]).mistakes("config/c.yaml")
    }

    #[test]
    fn a_file_is_read() {
        let text = format!(
            "{HEAD}- name: ecr\n  matchImages: [\"*.dkr.ecr.*.amazonaws.com\"]\n  defaultCacheDuration: 12h\n  \
             apiVersion: credentialprovider.kubelet.k8s.io/v1\n  args: [get, --quiet]\n  \
             env: [{{name: AWS_PROFILE, value: hunter2}}]\n"
        );
        let node = Node::new(&[("c.yaml", &text)]);
        let providers = node.load("config/c.yaml", false).unwrap();
        let [provider] = &providers[..] else { panic!("{providers:?}") };
        assert_eq!(provider.name, "ecr");
        assert_eq!(provider.match_images, ["*.dkr.ecr.*.amazonaws.com"]);
        assert_eq!(provider.default_cache_duration, Some(GoDuration::from_secs(12 * 3600)));
        assert_eq!(provider.args, ["get", "--quiet"]);
        assert_eq!(provider.program, node.directory.path().join("bin/ecr"));
        assert!(!format!("{provider:?}").contains("hunter2"));
    }

    #[test]
    fn the_files_of_a_directory_are_read_in_order_and_others_are_not() {
        let provider = |name: &str, version: &str| {
            format!(
                "{{\"kind\":\"CredentialProviderConfig\",\"apiVersion\":\"kubelet.config.k8s.io/{version}\",\
                 \"providers\":[{{\"name\":\"{name}\",\"matchImages\":[\"a.io\"],\"defaultCacheDuration\":\"0s\",\
                 \"apiVersion\":\"credentialprovider.kubelet.k8s.io/v1beta1\"}}]}}"
            )
        };
        let (first, second) = (provider("gcr", "v1beta1"), provider("ecr", "v1alpha1"));
        let files = [("2.json", second.as_str()), ("1.yml", first.as_str()), ("0.conf", "nonsense")];
        let names: Vec<String> = Node::new(&files)
            .load("config", true)
            .unwrap()
            .into_iter()
            .map(|provider| provider.name)
            .collect();
        assert_eq!(names, ["gcr", "ecr"]);
        let twice = Node::new(&[("1.json", first.as_str()), ("2.json", first.as_str())]);
        assert_eq!(
            twice.mistakes("config"),
            [
                "DIR/config/2.json:1: providers[0].name: duplicate provider name \"gcr\" found in configuration file(s)"
            ]
        );
        let none = Node::new(&[]);
        assert_eq!(
            none.mistakes("config"),
            ["--image-credential-provider-config: no configuration files found in directory \"DIR/config\""]
        );
    }

    #[test]
    fn the_digest_is_upstreams_and_tells_where_one_file_ends_and_the_next_begins() {
        let one = format!(
            "{HEAD}- name: ecr\n  matchImages: [a.io]\n  defaultCacheDuration: 1h\n  \
             apiVersion: credentialprovider.kubelet.k8s.io/v1\n"
        );
        let two = one.replace("ecr", "gcr");
        let node = Node::new(&[("1.yaml", &one), ("2.yaml", &two)]);
        let root = node.directory.path();
        let hash = |path: &str| load_providers(&root.join(path), &root.join("bin"), false).unwrap().hash;
        let expected = |files: &[&str]| {
            let mut bytes = Vec::new();
            for file in files {
                bytes.extend((file.len() as u64).to_be_bytes());
                bytes.extend(file.as_bytes());
            }
            format!("sha256:{}", hex(&Sha256::digest(&bytes)))
        };
        assert_eq!(hash("config/1.yaml"), expected(&[&one]));
        assert_eq!(hash("config"), expected(&[&one, &two]));
    }

    #[test]
    fn what_is_missing_is_named() {
        let node = Node::new(&[]);
        assert_eq!(
            node.mistakes("none.yaml"),
            [
                "--image-credential-provider-config: DIR/none.yaml: cannot be read: No such file or directory (os error 2)"
            ]
        );
        let problems = load_providers(Path::new(""), Path::new("/none"), true).unwrap_err();
        assert_eq!(
            problems,
            [
                "--image-credential-provider-bin-dir: plugin binary directory /none did not exist",
                "--image-credential-provider-config: credential provider config path is empty",
            ]
        );
        let problems =
            load_providers(&node.directory.path().join("config"), Path::new(""), true).unwrap_err();
        assert!(problems[0].starts_with("--image-credential-provider-bin-dir: is not set"), "{problems:?}");
    }

    #[test]
    fn a_file_of_another_kind_is_refused() {
        let node = Node::new(&[("c.yaml", "kind: Pod\napiVersion: v1\n"), ("d.yaml", "- x\n")]);
        assert_eq!(
            node.mistakes("config/c.yaml"),
            [
                "DIR/config/c.yaml:1: kind: expected \"CredentialProviderConfig\", found \"Pod\"",
                "DIR/config/c.yaml:2: apiVersion: expected \"kubelet.config.k8s.io/v1\" or \"kubelet.config.k8s.io/v1beta1\" or \"kubelet.config.k8s.io/v1alpha1\", found \"v1\"",
            ]
        );
        assert_eq!(node.mistakes("config/d.yaml").len(), 2);
    }

    #[test]
    fn every_mistake_is_told_with_its_line_and_field() {
        assert_eq!(
            mistakes(
                "- name: a/b c\n  matchImages: [\"gcr.io:x\"]\n  defaultCacheDuration: -1s\n  apiVersion: v1\n  colour: red\n- {}\n- name: plain\n"
            ),
            [
                "DIR/config/c.yaml:8: providers[0].colour: unknown field",
                "DIR/config/c.yaml:4: providers[0].name: provider name cannot contain '/'",
                "DIR/config/c.yaml:4: providers[0].name: provider name cannot contain spaces",
                "DIR/config/c.yaml:5: providers[0].matchImages: match image \"gcr.io:x\" is invalid: has a port that is not a number",
                "DIR/config/c.yaml:7: providers[0].apiVersion: unsupported value \"v1\", supported values: \"credentialprovider.kubelet.k8s.io/v1\", \"credentialprovider.kubelet.k8s.io/v1alpha1\", \"credentialprovider.kubelet.k8s.io/v1beta1\"",
                "DIR/config/c.yaml:6: providers[0].defaultCacheDuration: must be greater than or equal to 0",
                "DIR/config/c.yaml:9: providers[1].name: is required",
                "DIR/config/c.yaml:9: providers[1].matchImages: at least 1 item in matchImages is required",
                "DIR/config/c.yaml:9: providers[1].apiVersion: unsupported value \"\", supported values: \"credentialprovider.kubelet.k8s.io/v1\", \"credentialprovider.kubelet.k8s.io/v1alpha1\", \"credentialprovider.kubelet.k8s.io/v1beta1\"",
                "DIR/config/c.yaml:9: providers[1].defaultCacheDuration: is required",
                "DIR/config/c.yaml:10: providers[2].name: plugin binary DIR/bin/plain is not executable",
                "DIR/config/c.yaml:10: providers[2].matchImages: at least 1 item in matchImages is required",
                "DIR/config/c.yaml:10: providers[2].apiVersion: unsupported value \"\", supported values: \"credentialprovider.kubelet.k8s.io/v1\", \"credentialprovider.kubelet.k8s.io/v1alpha1\", \"credentialprovider.kubelet.k8s.io/v1beta1\"",
                "DIR/config/c.yaml:10: providers[2].defaultCacheDuration: is required",
            ]
        );
        assert_eq!(
            Node::new(&[("c.yaml", HEAD)]).mistakes("config/c.yaml"),
            ["DIR/config/c.yaml:1: providers: at least 1 item in plugins is required"]
        );
        let wrong_kind = mistakes("- name: [hunter2]\n");
        assert_eq!(wrong_kind.len(), 1, "{wrong_kind:?}");
        assert!(wrong_kind[0].starts_with("DIR/config/c.yaml:4: providers[0].name: "), "{wrong_kind:?}");
        for (name, expected) in [
            ("..", "provider name cannot be '..'"),
            ("none", "plugin binary executable DIR/bin/none did not exist"),
            ("directory", "plugin binary DIR/bin/directory is a directory"),
        ] {
            let found = mistakes(&format!(
                "- {{name: {name}, matchImages: [a.io], defaultCacheDuration: 0s, apiVersion: credentialprovider.kubelet.k8s.io/v1}}\n"
            ));
            assert_eq!(found, [format!("DIR/config/c.yaml:4: providers[0].name: {expected}")]);
        }
    }

    #[test]
    fn tokens_are_checked_as_upstream_checks_them() {
        let with = |version: &str, attributes: &str| {
            format!(
                "{HEAD}- name: ecr\n  matchImages: [a.io]\n  defaultCacheDuration: 0s\n  \
                 apiVersion: credentialprovider.kubelet.k8s.io/{version}\n  tokenAttributes: {attributes}\n"
            )
        };
        let good = "{serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: true, requiredServiceAccountAnnotationKeys: [x/y], optionalServiceAccountAnnotationKeys: [z]}";
        let node = Node::new(&[("c.yaml", &with("v1", good))]);
        assert!(node.load("config", true).is_ok());
        assert_eq!(node.load("config", false).unwrap_err().len(), 1);
        let bad = "{requireServiceAccount: false, cacheType: Pod, requiredServiceAccountAnnotationKeys: [x, x, \"?\"], optionalServiceAccountAnnotationKeys: [x]}";
        let found = Node::new(&[("c.yaml", &with("v1beta1", bad))]).mistakes("config");
        let expected = [
            "serviceAccountTokenAudience: is required",
            "tokenAttributes is only supported for credentialprovider.kubelet.k8s.io/v1 API version",
            "requireServiceAccount cannot be false",
            "duplicate value \"x\"",
            "\"?\": ",
            "annotation keys cannot be both required and optional: \"x\"",
            "Supported values are: ServiceAccount, Token",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with("DIR/config/c.yaml:8: providers[0].tokenAttributes"), "{found}");
            assert!(found.contains(expected), "{found}");
        }
        let nothing = Node::new(&[("c.yaml", &with("v1", "{}"))]).mistakes("config");
        assert_eq!(nothing.len(), 3, "{nothing:#?}");
    }
}
