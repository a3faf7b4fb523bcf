//! The credential providers of a node, and what they said that is still good.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crablet_metrics::{RegisterError, Registry};
use futures_util::future::join_all;
use tokio::sync::OnceCell;
use tokio::time::Instant;
use tracing::{debug, error};

use crate::credential::Source;
use crate::credentials::PodCredentials;
use crate::docker_config::DockerConfig;
use crate::exec::{Answer, GoodFor, Program, Provider, ProviderError};
use crate::keyring::Keyring;
use crate::location::covers;
use crate::metrics::{Plugins, register_config};
use crate::provider_config::{ProviderConfig, TokenAttributes, TokenCacheType};
use crate::service_accounts::{NoToken, ServiceAccounts, Shown, Whose};

/// How many answers of one provider are kept.
const MOST_KEPT: usize = 1000;

/// What an answer is filed under that is good for all images. No image has such a name.
const EVERYTHING: &str = "<global>";

/// The credential providers of a node, in the order of their configuration.
#[derive(Default)]
pub struct Providers {
    asked: Vec<Asked>,
    /// Who gets tokens of pods' service accounts, if somebody does.
    accounts: Option<Arc<dyn ServiceAccounts>>,
    plugins: Option<Plugins>,
}

/// A provider, and what it said.
struct Asked {
    name: String,
    images: Vec<String>,
    default_duration: Duration,
    tokens: Option<TokenAttributes>,
    provider: Box<dyn Provider>,
    kept: Mutex<BTreeMap<(String, Whose), Kept>>,
    /// Who asks about an image for all who want to know.
    under_way: Mutex<BTreeMap<(String, Whose), Weak<Flight>>>,
}

/// A question that is under way.
type Flight = OnceCell<Arc<DockerConfig>>;

struct Kept {
    credentials: Arc<DockerConfig>,
    until: Instant,
}

impl Providers {
    /// The providers that a configuration names.
    pub fn new(configs: Vec<ProviderConfig>) -> Providers {
        let asked = |config: ProviderConfig| Asked::new(config.clone(), Box::new(Program(config)));
        Providers { asked: configs.into_iter().map(asked).collect(), accounts: None, plugins: None }
    }

    /// The same, with their runs counted, and told which configuration they have.
    pub fn counted_in(self, registry: &Registry, hash: &str) -> Result<Providers, RegisterError> {
        register_config(registry, hash)?;
        Ok(Providers { plugins: Some(Plugins::register(registry)?), ..self })
    }

    /// The same, with somebody who gets tokens of pods' service accounts for them.
    #[must_use]
    pub fn with_service_accounts(self, accounts: Option<Arc<dyn ServiceAccounts>>) -> Providers {
        Providers { accounts, ..self }
    }

    /// What the providers say about a repository, for a pod. One that fails is told in the log, and gives nothing: the
    /// pull is tried with what there is.
    pub(crate) async fn keyring(&self, repository: &str, pod: PodCredentials<'_>) -> Keyring {
        let (accounts, plugins) = (self.accounts.as_deref(), self.plugins.as_ref());
        let answers = self.asked.iter().map(|asked| async move {
            match asked.credentials(repository, pod, accounts, plugins).await {
                Ok(answer) => answer,
                Err(error) => {
                    asked.complain(repository, &error);
                    None
                }
            }
        });
        let mut keyring = Keyring::default();
        for (answer, whose) in join_all(answers).await.into_iter().flatten() {
            keyring.add(whose.as_ref(), &answer);
        }
        keyring
    }
}

impl Asked {
    fn new(config: ProviderConfig, provider: Box<dyn Provider>) -> Asked {
        Asked {
            name: config.name,
            images: config.match_images,
            default_duration: config
                .default_cache_duration
                .map_or(Duration::ZERO, |duration| duration.to_std()),
            tokens: config.token_attributes,
            provider,
            kept: Mutex::default(),
            under_way: Mutex::default(),
        }
    }

    /// What it says about a repository, and whose that is. Nothing where it is not asked at all.
    async fn credentials(
        &self,
        repository: &str,
        pod: PodCredentials<'_>,
        accounts: Option<&dyn ServiceAccounts>,
        plugins: Option<&Plugins>,
    ) -> Result<Option<(Arc<DockerConfig>, Option<Source>)>, ProviderError> {
        if !self.images.iter().any(|pattern| covers(pattern, repository)) {
            return Ok(None);
        }
        let Some(shown) = self.shown(pod, accounts).await? else { return Ok(None) };
        let shown = shown.as_ref();
        let cache = self.tokens.as_ref().and_then(|tokens| tokens.cache_type.as_ref());
        let whose = shown.map(|shown| shown.whose(cache)).unwrap_or_default();
        let source = shown.map(|shown| Source::ServiceAccount(shown.account.clone()));
        if let Some(kept) = self.kept(repository, &whose) {
            return Ok(Some((kept, source)));
        }
        let flight = self.flight(repository, shown);
        let answer = flight.get_or_init(|| async {
            let begun = Instant::now();
            let answer = self.provider.ask(repository, shown).await;
            if let Some(plugins) = plugins {
                plugins.ran(&self.name, begun.elapsed(), answer.as_ref().err());
            }
            match answer.and_then(|answer| self.without_token(answer, shown)) {
                Ok(answer) => self.keep(repository, &whose, answer),
                Err(error) => {
                    self.complain(repository, &error);
                    Arc::default()
                }
            }
        });
        Ok(Some((answer.await.clone(), source)))
    }

    /// What it is shown of the pod's service account, which may be nothing; and nothing at all where it is not to be asked.
    /// For a pod without a service account, it says itself whether it wants to be asked.
    async fn shown(
        &self,
        pod: PodCredentials<'_>,
        accounts: Option<&dyn ServiceAccounts>,
    ) -> Result<Option<Option<Shown>>, NoToken> {
        let Some(tokens) = &self.tokens else { return Ok(Some(None)) };
        if pod.service_account.is_empty() {
            return Ok((tokens.require_service_account != Some(true)).then_some(None));
        }
        let (Some(identity), Some(accounts)) = (pod.pod, accounts) else { return Err(NoToken::NoCluster) };
        let shown = Shown::collect(tokens, identity, pod.service_account, accounts).await?;
        Ok(shown.map(Some))
    }

    /// An answer, unless it is the token itself, which would be kept for longer than that is valid.
    fn without_token(&self, answer: Answer, shown: Option<&Shown>) -> Result<Answer, ProviderError> {
        let cache = self.tokens.as_ref().and_then(|tokens| tokens.cache_type.as_ref());
        let is_token = |shown: &Shown| {
            answer.credentials.0.values().any(|credential| credential.password == shown.token)
        };
        match shown.is_some_and(is_token) && cache != Some(&TokenCacheType::Token) {
            true => Err(ProviderError::TokenAsPassword),
            false => Ok(answer),
        }
    }

    fn complain(&self, repository: &str, error: &ProviderError) {
        let cause = std::error::Error::source(error).map(ToString::to_string);
        error!(
            provider = self.name,
            image = repository,
            err = %error,
            cause,
            "Failed to provide credentials for image"
        );
    }

    /// The question about an image that is under way, or a new one. It ends when nobody waits for it.
    fn flight(&self, repository: &str, shown: Option<&Shown>) -> Arc<Flight> {
        let key = (repository.to_owned(), shown.map(Shown::same).unwrap_or_default());
        let mut under_way = locked(&self.under_way);
        if let Some(flight) = under_way.get(&key).and_then(Weak::upgrade) {
            return flight;
        }
        under_way.retain(|_, flight| flight.strong_count() > 0);
        let flight = Arc::default();
        under_way.insert(key, Arc::downgrade(&flight));
        flight
    }

    fn kept(&self, repository: &str, whose: &Whose) -> Option<Arc<DockerConfig>> {
        let now = Instant::now();
        let kept = locked(&self.kept);
        let found = [repository, registry(repository), EVERYTHING]
            .into_iter()
            .find_map(|key| kept.get(&(key.to_owned(), whose.clone())).filter(|kept| now <= kept.until));
        found.map(|kept| kept.credentials.clone())
    }

    fn keep(&self, repository: &str, whose: &Whose, answer: Answer) -> Arc<DockerConfig> {
        let credentials = Arc::new(answer.credentials);
        let duration = match answer.duration {
            Some(duration) if duration.is_negative() => Duration::ZERO,
            Some(duration) => duration.to_std(),
            None => self.default_duration,
        };
        let now = Instant::now();
        // What is good until the end of time is asked for again.
        let Some(until) = now.checked_add(duration).filter(|_| !duration.is_zero()) else {
            return credentials;
        };
        let key = match answer.good_for {
            GoodFor::Image => repository,
            GoodFor::Registry => registry(repository),
            GoodFor::Everything => EVERYTHING,
        };
        debug!(provider = self.name, key, "Keeping the credentials of a provider");
        let key = (key.to_owned(), whose.clone());
        let mut kept = locked(&self.kept);
        kept.retain(|_, kept| now <= kept.until);
        if kept.len() >= MOST_KEPT && !kept.contains_key(&key) {
            // Whichever is the first to end is missed the least.
            let first = kept.iter().min_by_key(|(_, kept)| kept.until).map(|(key, _)| key.clone());
            first.map(|first| kept.remove(&first));
        }
        kept.insert(key, Kept { credentials: credentials.clone(), until });
        credentials
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn registry(repository: &str) -> &str {
    repository.split('/').next().unwrap_or(repository)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use crablet_api::GoDuration;
    use crablet_api::core::PodIdentity;
    use tokio::time::{advance, sleep};

    use super::*;
    use crate::credential::{Coordinates, Credential};
    use crate::service_accounts::{ServiceAccount, ServiceAccountError, WantedToken};

    /// Says after a second what it was told to, with a password that counts how often it was asked.
    struct Told {
        good_for: GoodFor,
        duration: Option<GoDuration>,
        fails: bool,
        /// Whether it says as a password what it was shown.
        echoes: bool,
        asked: Arc<AtomicUsize>,
    }

    #[async_trait]
    impl Provider for Told {
        async fn ask(&self, image: &str, shown: Option<&Shown>) -> Result<Answer, ProviderError> {
            sleep(Duration::from_secs(1)).await;
            let times = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
            if self.fails {
                return Err(ProviderError::Undecodable);
            }
            let username = match shown {
                Some(shown) => format!("{} {:?}", shown.token, shown.annotations),
                None => String::new(),
            };
            let password = match (self.echoes, shown) {
                (true, Some(shown)) => shown.token.clone(),
                (true, None) | (false, _) => times.to_string(),
            };
            let credential = Credential { username, password, ..Credential::default() };
            let credentials = DockerConfig([(registry(image).to_owned(), credential)].into());
            Ok(Answer { credentials, good_for: self.good_for, duration: self.duration })
        }
    }

    struct Node {
        providers: Arc<Providers>,
        asked: Arc<AtomicUsize>,
    }

    impl Node {
        fn new(good_for: GoodFor, duration: Option<i64>) -> Node {
            Node::with(
                Told {
                    good_for,
                    duration: duration.map(GoDuration::from_secs),
                    fails: false,
                    echoes: false,
                    asked: Arc::default(),
                },
                None,
            )
        }

        fn with(told: Told, tokens: Option<TokenAttributes>) -> Node {
            let config = ProviderConfig {
                name: "told".to_owned(),
                match_images: vec!["*.io".to_owned()],
                default_cache_duration: Some(GoDuration::from_secs(60)),
                token_attributes: tokens,
                ..ProviderConfig::default()
            };
            let asked = told.asked.clone();
            let providers =
                Providers { asked: vec![Asked::new(config, Box::new(told))], accounts: None, plugins: None };
            Node { providers: Arc::new(providers), asked }
        }

        /// The passwords that there are for an image.
        async fn passwords(&self, repository: &str) -> Vec<String> {
            let found =
                self.providers.keyring(repository, PodCredentials::default()).await.lookup(repository);
            found.into_iter().map(|tracked| tracked.credential.password).collect()
        }

        fn asked(&self) -> usize {
            self.asked.load(Ordering::Relaxed)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_kept_for_what_it_is_good_for() {
        for (good_for, asked) in [(GoodFor::Image, 3), (GoodFor::Registry, 2), (GoodFor::Everything, 1)] {
            let node = Node::new(good_for, Some(100));
            for image in ["a.io/x", "a.io/x", "a.io/y", "b.io/x", "b.io/x"] {
                node.passwords(image).await;
            }
            assert_eq!(node.asked(), asked, "{good_for:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_kept_for_as_long_as_it_says_or_else_as_configured() {
        for (duration, seconds) in [(Some(100), 100), (None, 60)] {
            let node = Node::new(GoodFor::Image, duration);
            assert_eq!(node.passwords("a.io/x").await, ["1"]);
            advance(Duration::from_secs(seconds)).await;
            assert_eq!(node.passwords("a.io/x").await, ["1"]);
            advance(Duration::from_millis(1)).await;
            assert_eq!(node.passwords("a.io/x").await, ["2"]);
        }
        for duration in [Some(0), Some(-5)] {
            let node = Node::new(GoodFor::Image, duration);
            assert_eq!(node.passwords("a.io/x").await, ["1"]);
            assert_eq!(node.passwords("a.io/x").await, ["2"]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn images_of_others_are_not_asked_about() {
        let node = Node::new(GoodFor::Image, None);
        assert_eq!(node.passwords("a.com/x").await, [""; 0]);
        assert_eq!(node.asked(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_at_the_same_time_gets_the_same_answer_even_if_it_is_not_kept() {
        let node = Node::new(GoodFor::Image, Some(0));
        let (first, second) = tokio::join!(node.passwords("a.io/x"), node.passwords("a.io/x"));
        assert_eq!((first, second), (vec!["1".to_owned()], vec!["1".to_owned()]));
        assert_eq!(node.passwords("a.io/x").await, ["2"]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_goes_away_leaves_the_question_to_the_next() {
        let node = Node::new(GoodFor::Image, None);
        let gives_up = tokio::time::timeout(Duration::from_millis(500), node.passwords("a.io/x"));
        let (first, second) = tokio::join!(gives_up, node.passwords("a.io/x"));
        assert!(first.is_err());
        assert_eq!(second, ["1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_fails_gives_nothing_and_is_asked_again() {
        let told = Told {
            good_for: GoodFor::Image,
            duration: None,
            fails: true,
            echoes: false,
            asked: Arc::default(),
        };
        let node = Node::with(told, None);
        for _ in 0..2 {
            assert_eq!(node.passwords("a.io/x").await, [""; 0]);
        }
        assert_eq!(node.asked(), 2);
    }

    #[tokio::test]
    async fn runs_are_counted_and_so_are_those_that_fail_but_not_what_is_kept_or_not_understood() {
        let program = |name: &str, script: &str| ProviderConfig {
            name: name.to_owned(),
            match_images: vec!["*.io".to_owned()],
            default_cache_duration: Some(GoDuration::from_secs(60)),
            program: "/bin/sh".into(),
            args: vec!["-c".to_owned(), script.to_owned()],
            ..ProviderConfig::default()
        };
        let registry = Registry::new();
        let configs = vec![program("fails", "exit 3"), program("babbles", "echo what")];
        let providers = Providers::new(configs).counted_in(&registry, "sha256:12").unwrap();
        for _ in 0..2 {
            providers.keyring("a.io/x", PodCredentials::default()).await;
        }
        let text = registry.render();
        for line in [
            r#"kubelet_credential_provider_config_info{hash="sha256:12"} 1"#,
            r#"kubelet_credential_provider_plugin_duration_count{plugin_name="babbles"} 2"#,
            r#"kubelet_credential_provider_plugin_duration_count{plugin_name="fails"} 2"#,
            r#"kubelet_credential_provider_plugin_errors_total{plugin_name="fails"} 2"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        assert!(!text.contains(r#"errors_total{plugin_name="babbles"}"#), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_much_is_kept() {
        let node = Node::new(GoodFor::Image, Some(1_000_000));
        for number in 0..=MOST_KEPT {
            node.passwords(&format!("a.io/{number}")).await;
        }
        let kept = locked(&node.providers.asked[0].kept).len();
        assert_eq!((kept, node.asked()), (MOST_KEPT, MOST_KEPT + 1));
        node.passwords("a.io/0").await;
        assert_eq!(node.asked(), MOST_KEPT + 2);
        assert!(locked(&node.providers.asked[0].under_way).len() <= 1);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_wants_tokens_is_asked_for_pods_without_a_service_account_if_it_likes() {
        for (requires, service_account, asked) in
            [(false, "", 1), (true, "", 0), (false, "default", 0), (true, "default", 0)]
        {
            let tokens =
                TokenAttributes { require_service_account: Some(requires), ..TokenAttributes::default() };
            let node = Node::with(told(false), Some(tokens));
            let pod = PodCredentials { service_account, ..PodCredentials::default() };
            node.providers.keyring("a.io/x", pod).await;
            assert_eq!(node.asked(), asked, "{requires} {service_account:?}");
        }
    }

    fn told(echoes: bool) -> Told {
        Told { good_for: GoodFor::Image, duration: None, fails: false, echoes, asked: Arc::default() }
    }

    /// A cluster with the service accounts `a`, whose annotations are these, and `b`, which has none.
    struct Cluster(&'static [&'static str], AtomicUsize);

    #[async_trait]
    impl ServiceAccounts for Cluster {
        async fn get(&self, namespace: &str, name: &str) -> Result<ServiceAccount, ServiceAccountError> {
            let annotations = match name {
                "a" => self.0.iter().map(|key| ((*key).to_owned(), "v".to_owned())).collect(),
                "b" => BTreeMap::new(),
                _ => return Err("not found".into()),
            };
            Ok(ServiceAccount { uid: format!("{namespace}-{name}"), annotations })
        }

        async fn token(&self, wanted: WantedToken<'_>) -> Result<String, ServiceAccountError> {
            let WantedToken { pod, service_account_uid, audience, .. } = wanted;
            let times = self.1.fetch_add(1, Ordering::Relaxed);
            Ok(format!("{audience} {service_account_uid} {} {times}", pod.uid))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_wants_tokens_is_shown_those_of_the_pods_service_account() {
        let tokens = |cache| TokenAttributes {
            service_account_token_audience: "registry".to_owned(),
            cache_type: Some(cache),
            require_service_account: Some(true),
            required_service_account_annotation_keys: vec!["needed".to_owned()],
            optional_service_account_annotation_keys: vec!["liked".to_owned(), "absent".to_owned()],
        };
        let identity = |uid: &str| PodIdentity::new("ns", "pod", uid);
        let (one, other) = (identity("u1"), identity("u2"));
        let with = |echoes: bool, cache: TokenCacheType| {
            let mut node = Node::with(told(echoes), Some(tokens(cache)));
            let cluster = Arc::new(Cluster(&["needed", "liked", "else"], AtomicUsize::new(0)));
            let providers = Arc::get_mut(&mut node.providers).unwrap();
            providers.accounts = Some(cluster);
            node
        };
        let found = async |node: &Node, pod: &PodIdentity, service_account: &str| {
            let pod = PodCredentials { service_account, pod: Some(pod), ..PodCredentials::default() };
            node.providers.keyring("a.io/x", pod).await.lookup("a.io/x")
        };

        let node = with(false, TokenCacheType::ServiceAccount);
        let first = found(&node, &one, "a").await;
        assert_eq!(first[0].credential.username, r#"registry ns-a u1 0 {"liked": "v", "needed": "v"}"#);
        let account = Coordinates { uid: "ns-a".into(), namespace: "ns".into(), name: "a".into() };
        assert_eq!(first[0].source, Some(Source::ServiceAccount(account)));
        assert_eq!(found(&node, &other, "a").await[0].credential.password, "1", "kept for the account");
        assert_eq!(found(&node, &one, "b").await, [], "it lacks an annotation");
        assert_eq!(found(&node, &one, "c").await, [], "nobody knows it");
        assert_eq!(node.asked(), 1);

        let node = with(false, TokenCacheType::Token);
        for times in ["1", "2"] {
            assert_eq!(found(&node, &one, "a").await[0].credential.password, times, "another token");
        }
        // A token is no password, but where it is kept no longer than the token.
        assert_eq!(found(&with(true, TokenCacheType::ServiceAccount), &one, "a").await, []);
        assert_eq!(found(&with(true, TokenCacheType::Token), &one, "a").await.len(), 1);
    }
}
