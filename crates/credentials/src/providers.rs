//! The credential providers of a node, and what they said that is still good.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::OnceCell;
use tokio::time::Instant;
use tracing::{debug, error};

use crate::docker_config::DockerConfig;
use crate::exec::{Answer, GoodFor, Program, Provider, ProviderError};
use crate::keyring::Keyring;
use crate::location::covers;
use crate::provider_config::{ProviderConfig, TokenAttributes};

/// How many answers of one provider are kept.
const MOST_KEPT: usize = 1000;

/// What an answer is filed under that is good for all images. No image has such a name.
const EVERYTHING: &str = "<global>";

/// The credential providers of a node, in the order of their configuration.
#[derive(Default)]
pub struct Providers(Vec<Asked>);

/// A provider, and what it said.
struct Asked {
    name: String,
    images: Vec<String>,
    default_duration: Duration,
    tokens: Option<TokenAttributes>,
    provider: Box<dyn Provider>,
    kept: Mutex<BTreeMap<String, Kept>>,
    /// Who asks about an image for all who want to know.
    under_way: Mutex<BTreeMap<String, Weak<OnceCell<Arc<DockerConfig>>>>>,
}

struct Kept {
    credentials: Arc<DockerConfig>,
    until: Instant,
}

impl Providers {
    /// The providers that a configuration names.
    pub fn new(configs: Vec<ProviderConfig>) -> Providers {
        let asked = |config: ProviderConfig| Asked::new(config.clone(), Box::new(Program(config)));
        Providers(configs.into_iter().map(asked).collect())
    }

    /// What the providers say about a repository, for a pod with this service account, if any. One that fails is told
    /// in the log, and gives nothing: the pull is tried with what there is.
    pub(crate) async fn keyring(&self, repository: &str, service_account: &str) -> Keyring {
        let answers = self.0.iter().map(|asked| asked.credentials(repository, service_account));
        let mut keyring = Keyring::default();
        for answer in join_all(answers).await {
            keyring.add(None, &answer);
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

    async fn credentials(&self, repository: &str, service_account: &str) -> Arc<DockerConfig> {
        if !self.images.iter().any(|pattern| covers(pattern, repository)) || !self.may_ask(service_account) {
            return Arc::default();
        }
        if let Some(kept) = self.kept(repository) {
            return kept;
        }
        let flight = self.flight(repository);
        let answer = flight.get_or_init(|| async {
            match self.provider.ask(repository).await {
                Ok(answer) => self.keep(repository, answer),
                Err(error) => {
                    self.complain(repository, &error);
                    Arc::default()
                }
            }
        });
        answer.await.clone()
    }

    /// Whether it can be asked for a pod with this service account. One that wants its token cannot: nobody here can
    /// make tokens. For a pod without one, it says itself whether it wants to be asked.
    fn may_ask(&self, service_account: &str) -> bool {
        let Some(tokens) = &self.tokens else { return true };
        if service_account.is_empty() {
            return tokens.require_service_account != Some(true);
        }
        error!(
            provider = self.name,
            service_account,
            "Failed to provide credentials: the provider wants a token of the pod's service account, and this \
             version cannot get tokens yet"
        );
        false
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
    fn flight(&self, repository: &str) -> Arc<OnceCell<Arc<DockerConfig>>> {
        let mut under_way = locked(&self.under_way);
        if let Some(flight) = under_way.get(repository).and_then(Weak::upgrade) {
            return flight;
        }
        under_way.retain(|_, flight| flight.strong_count() > 0);
        let flight = Arc::default();
        under_way.insert(repository.to_owned(), Arc::downgrade(&flight));
        flight
    }

    fn kept(&self, repository: &str) -> Option<Arc<DockerConfig>> {
        let now = Instant::now();
        let kept = locked(&self.kept);
        let found = [repository, registry(repository), EVERYTHING]
            .into_iter()
            .find_map(|key| kept.get(key).filter(|kept| now <= kept.until));
        found.map(|kept| kept.credentials.clone())
    }

    fn keep(&self, repository: &str, answer: Answer) -> Arc<DockerConfig> {
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
        let mut kept = locked(&self.kept);
        kept.retain(|_, kept| now <= kept.until);
        if kept.len() >= MOST_KEPT && !kept.contains_key(key) {
            // Whichever is the first to end is missed the least.
            let first = kept.iter().min_by_key(|(_, kept)| kept.until).map(|(key, _)| key.clone());
            first.map(|first| kept.remove(&first));
        }
        kept.insert(key.to_owned(), Kept { credentials: credentials.clone(), until });
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
    use tokio::time::{advance, sleep};

    use super::*;
    use crate::credential::Credential;

    /// Says after a second what it was told to, with a password that counts how often it was asked.
    struct Told {
        good_for: GoodFor,
        duration: Option<GoDuration>,
        fails: bool,
        asked: Arc<AtomicUsize>,
    }

    #[async_trait]
    impl Provider for Told {
        async fn ask(&self, image: &str) -> Result<Answer, ProviderError> {
            sleep(Duration::from_secs(1)).await;
            let times = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
            if self.fails {
                return Err(ProviderError::Undecodable);
            }
            let credential = Credential { password: times.to_string(), ..Credential::default() };
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
            Node { providers: Arc::new(Providers(vec![Asked::new(config, Box::new(told))])), asked }
        }

        /// The passwords that there are for an image.
        async fn passwords(&self, repository: &str) -> Vec<String> {
            let found = self.providers.keyring(repository, "").await.lookup(repository);
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
        let told = Told { good_for: GoodFor::Image, duration: None, fails: true, asked: Arc::default() };
        let node = Node::with(told, None);
        for _ in 0..2 {
            assert_eq!(node.passwords("a.io/x").await, [""; 0]);
        }
        assert_eq!(node.asked(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_much_is_kept() {
        let node = Node::new(GoodFor::Image, Some(1_000_000));
        for number in 0..=MOST_KEPT {
            node.passwords(&format!("a.io/{number}")).await;
        }
        let kept = locked(&node.providers.0[0].kept).len();
        assert_eq!((kept, node.asked()), (MOST_KEPT, MOST_KEPT + 1));
        node.passwords("a.io/0").await;
        assert_eq!(node.asked(), MOST_KEPT + 2);
        assert!(locked(&node.providers.0[0].under_way).len() <= 1);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_wants_tokens_is_asked_for_pods_without_a_service_account_if_it_likes() {
        for (requires, service_account, asked) in
            [(false, "", 1), (true, "", 0), (false, "default", 0), (true, "default", 0)]
        {
            let told = Told { good_for: GoodFor::Image, duration: None, fails: false, asked: Arc::default() };
            let tokens =
                TokenAttributes { require_service_account: Some(requires), ..TokenAttributes::default() };
            let node = Node::with(told, Some(tokens));
            node.providers.keyring("a.io/x", service_account).await;
            assert_eq!(node.asked(), asked, "{requires} {service_account:?}");
        }
    }
}
