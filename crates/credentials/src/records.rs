//! Who pulled which image, and so may use it. Without this, a private image that one pod pulled would be everybody's
//! on the node.
//!
//! That a pull is under way is written down before it begins, and who made it when it is done. So an image that is there
//! after a crash, and of whose pull nothing is known but that it began, is nobody's until somebody pulls it again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crablet_host::checkpoint::{CheckpointError, Checkpoints};
use crablet_host::clock::Clock;
use crablet_host::lanes::Lanes;
use crablet_metrics::{RegisterError, Registry};
use jiff::Timestamp;
use tracing::{error, warn};

use crate::credential::{Source, TrackedCredential};
use crate::metrics::{Check, Checks, register_records};
use crate::policy::{VerificationPolicy, without_tag_and_digest};
use crate::record::{
    PullCredentials, PullIntent, PulledRecord, account_of, file_name, is_record, secret_of, whole_seconds,
};

/// With so many secrets, no more is written down of one that is known under another name or hash: it is found again.
const MOST_SECRETS_BY_THE_WAY: usize = 100;

/// Who pulled which image. Records are upstream's, in upstream's files.
pub struct PullRecords {
    policy: VerificationPolicy,
    clock: Clock,
    pulling: Arc<dyn Checkpoints>,
    pulled: Arc<dyn Checkpoints>,
    state: Arc<Mutex<State>>,
    checks: Option<Checks>,
    /// One change at a time of what is written down of an image, by the name that it is pulled by, and by the runtime's.
    /// Who has both, got the first one first.
    by_name: Lanes,
    by_ref: Lanes,
}

#[derive(Default)]
struct State {
    /// How many pulls of an image are under way. None, for one that was when the agent before ended.
    pulling: BTreeMap<String, usize>,
    pulled: BTreeMap<String, PulledRecord>,
    /// Files that nobody can read. What they are about was pulled by somebody.
    unreadable: BTreeSet<String>,
}

impl PullRecords {
    /// Goes on from what is in two stores: one of pulls that are under way, `image_manager/pulling` below upstream's
    /// root directory, and one of images, `image_manager/pulled`.
    pub async fn open(
        policy: VerificationPolicy,
        clock: Clock,
        pulling: Arc<dyn Checkpoints>,
        pulled: Arc<dyn Checkpoints>,
    ) -> Result<PullRecords, CheckpointError> {
        let mut state = State::default();
        for (name, bytes) in load(&*pulling, &mut state).await? {
            match PullIntent::read(&bytes) {
                Some(intent) => _ = state.pulling.insert(intent.image, 0),
                None => warn!(name, "Cannot understand what was written down of a pull"),
            }
        }
        for (name, bytes) in load(&*pulled, &mut state).await? {
            match PulledRecord::read(&bytes) {
                Some(record) if file_name(&record.image_ref) == name => {
                    state.pulled.insert(record.image_ref.clone(), record);
                }
                Some(_) | None => {
                    warn!(
                        name,
                        "Cannot understand who may use an image; it has to be pulled again to be used"
                    );
                    state.unreadable.insert(name);
                }
            }
        }
        let (by_name, by_ref) = (Lanes::default(), Lanes::default());
        let state = Arc::new(Mutex::new(state));
        Ok(PullRecords { policy, clock, pulling, pulled, state, checks: None, by_name, by_ref })
    }

    /// Has it counted what is asked, and told how much is written down.
    pub fn counted_in(self, registry: &Registry) -> Result<PullRecords, RegisterError> {
        let state = Arc::clone(&self.state);
        register_records(registry, move || {
            let state = locked(&state);
            (state.pulling.len(), state.pulled.len())
        })?;
        Ok(PullRecords { checks: Some(Checks::register(registry)?), ..self })
    }

    /// The images whose pulls were under way when the agent before ended, as the specs of containers name them.
    pub fn unfinished(&self) -> Vec<String> {
        let state = self.state();
        state.pulling.iter().filter(|(_, pulls)| **pulls == 0).map(|(image, _)| image.clone()).collect()
    }

    /// Says what became of one of the [unfinished](Self::unfinished): the runtime's name for the image, if it is there.
    /// Nobody knows who may use it. If a pull of it began meanwhile, that one will tell.
    pub async fn resolve(&self, image: &str, image_ref: Option<&str>) {
        let _lane = self.by_name.enter(image).await;
        if self.state().pulling.get(image) != Some(&0) {
            return;
        }
        if let Some(image_ref) = image_ref {
            self.end(image, image_ref, &PullCredentials::default()).await;
        } else {
            self.no_longer_pulling(image).await;
        }
    }

    /// A pull begins. Before this is written down, it must not.
    pub async fn begin(&self, image: &str) -> Result<(), CheckpointError> {
        let _lane = self.by_name.enter(image).await;
        self.pulling.save(&file_name(image), &PullIntent::new(image).write()).await?;
        *self.state().pulling.entry(image.to_owned()).or_default() += 1;
        Ok(())
    }

    /// A pull succeeded with this credential, or without any.
    pub async fn succeeded(&self, image: &str, image_ref: &str, with: Option<&TrackedCredential>) {
        let _lane = self.by_name.enter(image).await;
        self.end(image, image_ref, &PullCredentials::of(with)).await;
    }

    /// A pull failed, and nothing is there of it.
    pub async fn failed(&self, image: &str) {
        let _lane = self.by_name.enter(image).await;
        self.no_longer_pulling(image).await;
    }

    /// A pull was given up. It may yet have succeeded: that it began stays written down.
    pub fn abandoned(&self, image: &str) {
        if let Some(pulls) = self.state().pulling.get_mut(image) {
            *pulls = pulls.saturating_sub(1);
        }
    }

    /// Whether a pod may use an image that is there, without pulling it first. The pod's credentials are asked for only
    /// if it depends on them. The image is named as the pod's spec has it, and also with the tag that is meant.
    pub async fn may_use<E>(
        &self,
        image: &str,
        tagged: &str,
        image_ref: &str,
        credentials: impl Future<Output = Result<Vec<TrackedCredential>, E>>,
    ) -> Result<bool, E> {
        let check = self.check(image, tagged, image_ref, credentials).await;
        if let Some(checks) = &self.checks {
            checks.count(*check.as_ref().unwrap_or(&Check::Failed));
        }
        check.map(Check::may_use)
    }

    async fn check<E>(
        &self,
        image: &str,
        tagged: &str,
        image_ref: &str,
        credentials: impl Future<Output = Result<Vec<TrackedCredential>, E>>,
    ) -> Result<Check, E> {
        let name = without_tag_and_digest(image);
        let known = {
            // Who just pulled it is waited for.
            let _lane = self.by_ref.enter(image_ref).await;
            let state = self.state();
            if state.unreadable.contains(&file_name(image_ref)) {
                return Ok(Check::Failed);
            }
            let record = state.pulled.get(image_ref);
            if !self.policy.asks(image, record.is_some() || state.is_pulling(image, tagged)) {
                return Ok(Check::PolicyAllows);
            }
            record.and_then(|record| record.credential_mapping.get(name)).cloned().unwrap_or_default()
        };
        if known.node_pods_accessible {
            return Ok(Check::RecordFound);
        }
        if known == PullCredentials::default() {
            return Ok(Check::MustAuthenticate);
        }
        for tracked in credentials.await? {
            match &tracked.source {
                Some(Source::Secret(secret)) => {
                    let secret = secret_of(secret, &tracked.hash);
                    let may_write = known.kubernetes_secrets.len() < MOST_SECRETS_BY_THE_WAY;
                    let mut same = known.kubernetes_secrets.iter().filter(|known| {
                        let same_content = known.credential_hash == secret.credential_hash
                            && !known.credential_hash.is_empty();
                        same_content || (known.is_same_secret(&secret) && may_write)
                    });
                    if same.next().is_some() {
                        if may_write {
                            let who = PullCredentials::of(Some(&tracked));
                            self.write_down(image, image_ref, &who).await;
                        }
                        return Ok(Check::RecordFound);
                    }
                }
                Some(Source::ServiceAccount(account))
                    if known.kubernetes_service_accounts.contains(&account_of(account)) =>
                {
                    return Ok(Check::RecordFound);
                }
                // The node's own are tried by a pull.
                Some(Source::ServiceAccount(_)) | None => {}
            }
        }
        Ok(Check::MustAuthenticate)
    }

    /// Forgets images that are gone: all but these, and but those of which something was written down since.
    pub async fn prune(&self, images: &BTreeSet<String>, before: Timestamp) {
        // As exact as what is written down is.
        let before = whole_seconds(before);
        let is_gone = |record: &PulledRecord| {
            !images.contains(&record.image_ref) && record.last_updated_time.is_none_or(|time| time < before)
        };
        let gone: Vec<String> = self
            .state()
            .pulled
            .values()
            .filter(|record| is_gone(record))
            .map(|r| r.image_ref.clone())
            .collect();
        for image_ref in gone {
            let _lane = self.by_ref.enter(&image_ref).await;
            if !self.state().pulled.get(&image_ref).is_some_and(is_gone) {
                continue;
            }
            match self.pulled.remove(&file_name(&image_ref)).await {
                Ok(()) => _ = self.state().pulled.remove(&image_ref),
                Err(error) => error!(%error, image_ref, "Failed to remove an ImagePulledRecord"),
            }
        }
    }

    async fn end(&self, image: &str, image_ref: &str, who: &PullCredentials) {
        // Where it cannot be written down who pulled it, that somebody did stays written down.
        if self.write_down(image, image_ref, who).await {
            self.no_longer_pulling(image).await;
        }
    }

    /// Writes down who may use an image, and says whether that succeeded.
    async fn write_down(&self, image: &str, image_ref: &str, who: &PullCredentials) -> bool {
        let _lane = self.by_ref.enter(image_ref).await;
        let name = without_tag_and_digest(image);
        let now = self.clock.now();
        let record = match self.state().pulled.get(image_ref) {
            Some(record) => record.with(name, who, now),
            None => {
                let new = PulledRecord::new(image_ref, now);
                Some(new.with(name, who, now).unwrap_or(new))
            }
        };
        let Some(record) = record else { return true };
        let file = file_name(image_ref);
        match self.pulled.save(&file, &record.write()).await {
            Ok(()) => {
                let mut state = self.state();
                state.unreadable.remove(&file);
                state.pulled.insert(image_ref.to_owned(), record);
                true
            }
            Err(error) => {
                error!(%error, image, image_ref, "Failed to write image pulled record");
                false
            }
        }
    }

    async fn no_longer_pulling(&self, image: &str) {
        if let Some(pulls) = self.state().pulling.get_mut(image).filter(|pulls| **pulls > 1) {
            *pulls -= 1;
            return;
        }
        match self.pulling.remove(&file_name(image)).await {
            Ok(()) => _ = self.state().pulling.remove(image),
            Err(error) => error!(%error, image, "Failed to remove image pull intent"),
        }
    }

    /// What is known. It is never held for as long as a disk takes.
    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Whether a pull of an image is under way, by whichever of its names.
    fn is_pulling(&self, image: &str, tagged: &str) -> bool {
        self.pulling.keys().any(|pulling| {
            pulling == image || pulling == tagged || tagged.strip_suffix(":latest") == Some(pulling)
        })
    }
}

async fn load(
    store: &dyn Checkpoints,
    state: &mut State,
) -> Result<BTreeMap<String, Vec<u8>>, CheckpointError> {
    let loaded = store.load_all().await?;
    for error in loaded.unreadable {
        warn!(%error, "Cannot read what was written down of an image");
        let name = error.path().file_name().and_then(|name| name.to_str()).filter(|name| is_record(name));
        state.unreadable.extend(name.map(str::to_owned));
    }
    Ok(loaded.checkpoints.into_iter().filter(|(name, _)| is_record(name)).collect())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use crablet_host::checkpoint::{Operation, SimulatedCheckpoints};
    use crablet_host::simulation::Fault;

    use super::*;
    use crate::credential::{Coordinates, Credential};

    const IMAGE: &str = "a.io/team/image:1";

    /// Two disks, and what is known by what is on them.
    struct Node {
        pulling: SimulatedCheckpoints,
        pulled: SimulatedCheckpoints,
        policy: VerificationPolicy,
        clock: Clock,
    }

    impl Node {
        fn new(policy: VerificationPolicy) -> Node {
            let clock = Clock::simulated("2026-11-15T03:46:00Z".parse().unwrap());
            let (pulling, pulled) = (SimulatedCheckpoints::new(), SimulatedCheckpoints::new());
            Node { pulling, pulled, policy, clock }
        }

        /// The records of an agent that starts now.
        async fn start(&self) -> PullRecords {
            let (pulling, pulled) = (Arc::new(self.pulling.clone()), Arc::new(self.pulled.clone()));
            PullRecords::open(self.policy.clone(), self.clock.clone(), pulling, pulled).await.unwrap()
        }
    }

    fn of_secret(name: &str, password: &str) -> TrackedCredential {
        let coordinates =
            Coordinates { uid: format!("uid of {name}"), namespace: "ns".into(), name: name.into() };
        let credential = Credential { password: password.to_owned(), ..Credential::default() };
        TrackedCredential::new(credential, Some(Source::Secret(coordinates)))
    }

    fn of_node(password: &str) -> TrackedCredential {
        let credential = Credential { password: password.to_owned(), ..Credential::default() };
        TrackedCredential::new(credential, None)
    }

    async fn may(records: &PullRecords, image: &str, with: &[TrackedCredential]) -> bool {
        let credentials = async { Ok::<_, Infallible>(with.to_vec()) };
        records.may_use(image, image, "ref", credentials).await.unwrap()
    }

    async fn pull(records: &PullRecords, image: &str, with: Option<&TrackedCredential>) {
        records.begin(image).await.unwrap();
        records.succeeded(image, "ref", with).await;
    }

    #[tokio::test]
    async fn who_pulled_an_image_may_use_it_and_others_may_not_also_after_a_restart() {
        let node = Node::new(VerificationPolicy::NeverVerifyPreloadedImages);
        let mut records = node.start().await;
        let mine = of_secret("mine", "hunter2");
        assert!(may(&records, IMAGE, &[]).await, "it was there before");
        pull(&records, IMAGE, Some(&mine)).await;
        for _ in 0..2 {
            assert!(may(&records, IMAGE, &[of_node("n"), mine.clone()]).await);
            assert!(may(&records, "a.io/team/image@sha256:abc", std::slice::from_ref(&mine)).await);
            assert!(!may(&records, IMAGE, &[]).await);
            assert!(!may(&records, IMAGE, &[of_secret("other", "guess"), of_node("hunter2")]).await);
            assert!(!may(&records, "b.io/same:1", std::slice::from_ref(&mine)).await, "the name counts");
            assert!(node.pulling.content().is_empty());
            records = node.start().await;
        }
    }

    #[tokio::test]
    async fn what_the_node_pulled_or_nobody_in_particular_is_everybodys() {
        for with in [None, Some(of_node("n"))] {
            let node = Node::new(VerificationPolicy::AlwaysVerify);
            let records = node.start().await;
            assert!(!may(&records, IMAGE, &[]).await, "nobody pulled it");
            pull(&records, IMAGE, with.as_ref()).await;
            assert!(may(&records, IMAGE, &[]).await);
            assert!(may(&node.start().await, IMAGE, &[]).await);
        }
    }

    #[tokio::test]
    async fn credentials_are_asked_for_only_if_it_depends_on_them() {
        let node = Node::new(VerificationPolicy::NeverVerifyPreloadedImages);
        let records = node.start().await;
        let ask = || async { panic!("not asked") as Result<Vec<TrackedCredential>, Infallible> };
        assert_eq!(records.may_use(IMAGE, IMAGE, "ref", ask()).await, Ok(true));
        records.begin(IMAGE).await.unwrap();
        assert_eq!(records.may_use(IMAGE, IMAGE, "ref", ask()).await, Ok(false));
        records.succeeded(IMAGE, "ref", None).await;
        assert_eq!(records.may_use(IMAGE, IMAGE, "ref", ask()).await, Ok(true));
        pull(&records, "b.io/b", Some(&of_secret("mine", "p"))).await;
        let fails = async { Err("bad secret") };
        assert_eq!(records.may_use("b.io/b", "b.io/b:latest", "ref", fails).await, Err("bad secret"));
    }

    #[tokio::test]
    async fn a_secret_that_changed_and_one_with_the_same_content_count_and_are_written_down() {
        let node = Node::new(VerificationPolicy::AlwaysVerify);
        let records = node.start().await;
        pull(&records, IMAGE, Some(&of_secret("mine", "old"))).await;
        assert!(may(&records, IMAGE, &[of_secret("mine", "new")]).await);
        assert!(may(&records, IMAGE, &[of_secret("copy", "new")]).await);
        let records = node.start().await;
        assert!(may(&records, IMAGE, &[of_secret("copy", "newest")]).await);
        assert!(!may(&records, IMAGE, &[of_secret("mallory", "old")]).await);
    }

    #[tokio::test]
    async fn an_image_whose_pull_a_crash_cut_short_is_nobodys() {
        let node = Node::new(VerificationPolicy::NeverVerifyPreloadedImages);
        node.start().await.begin("busybox").await.unwrap();
        let records = node.start().await;
        assert_eq!(records.unfinished(), ["busybox"]);
        let denied = async |image: &str, tagged: &str| {
            let none = async { Ok::<_, Infallible>(Vec::new()) };
            !records.may_use(image, tagged, "ref", none).await.unwrap()
        };
        assert!(denied("busybox", "busybox:latest").await);
        assert!(denied("busybox:latest", "busybox:latest").await);
        assert!(!denied("busybox:1", "busybox:1").await);
        records.resolve("busybox", Some("ref")).await;
        assert!(records.unfinished().is_empty() && node.pulling.content().is_empty());
        let records = node.start().await;
        assert!(!may(&records, "other-name", &[]).await, "somebody pulled it");
        pull(&records, "busybox", None).await;
        assert!(may(&records, "busybox", &[]).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_is_slow_for_one_image_holds_up_no_other() {
        let node = Node::new(VerificationPolicy::AlwaysVerify);
        let records = node.start().await;
        let second = std::time::Duration::from_secs(1);
        node.pulling.slow_down(&file_name("slow"), second);
        node.pulled.slow_down(&file_name("slow ref"), second);
        let began = tokio::time::Instant::now();
        let slow = async {
            records.begin("slow").await.unwrap();
            records.succeeded("slow", "slow ref", None).await;
            began.elapsed()
        };
        let other = async {
            for _ in 0..10 {
                pull(&records, IMAGE, None).await;
                assert!(may(&records, IMAGE, &[]).await);
                tokio::time::sleep(second / 5).await;
            }
            began.elapsed()
        };
        assert_eq!(tokio::join!(slow, other), (3 * second, 2 * second));
    }

    #[tokio::test]
    async fn a_pull_is_under_way_until_the_last_one_ends() {
        let node = Node::new(VerificationPolicy::NeverVerifyPreloadedImages);
        let records = node.start().await;
        records.begin(IMAGE).await.unwrap();
        records.begin(IMAGE).await.unwrap();
        records.failed(IMAGE).await;
        assert!(!may(&records, IMAGE, &[]).await);
        records.failed(IMAGE).await;
        assert!(may(&records, IMAGE, &[]).await);
        assert!(node.pulling.content().is_empty() && node.pulled.content().is_empty());
    }

    #[tokio::test]
    async fn a_pull_that_was_given_up_stays_written_down_until_it_is_known_what_became_of_it() {
        let node = Node::new(VerificationPolicy::NeverVerifyPreloadedImages);
        let records = node.start().await;
        records.begin(IMAGE).await.unwrap();
        records.abandoned(IMAGE);
        assert!(!may(&records, IMAGE, &[]).await);
        let records = node.start().await;
        records.begin(IMAGE).await.unwrap();
        records.resolve(IMAGE, None).await;
        assert!(!may(&records, IMAGE, &[]).await, "a new pull is under way");
        records.abandoned(IMAGE);
        records.resolve(IMAGE, None).await;
        assert!(may(&records, IMAGE, &[]).await);
        assert!(node.pulling.content().is_empty());
    }

    #[tokio::test]
    async fn a_disk_that_fails_makes_nobody_an_owner() {
        let node = Node::new(VerificationPolicy::NeverVerifyPreloadedImages);
        let records = node.start().await;
        node.pulling.plan(Some(Operation::Save), 1, Fault::Fails(std::io::ErrorKind::Other));
        assert!(records.begin(IMAGE).await.is_err());
        records.begin(IMAGE).await.unwrap();
        node.pulled.plan(Some(Operation::Save), 1, Fault::Fails(std::io::ErrorKind::Other));
        records.succeeded(IMAGE, "ref", None).await;
        assert!(!may(&records, IMAGE, &[]).await);
        assert!(!may(&node.start().await, IMAGE, &[]).await);
    }

    #[tokio::test]
    async fn a_record_that_nobody_can_read_asks_for_a_pull_which_writes_it_anew() {
        let node = Node::new(VerificationPolicy::NeverVerify);
        node.pulled.save(&file_name("ref"), b"{}").await.unwrap();
        node.pulled.save("sha256-half.tmp", b"{").await.unwrap();
        let records = node.start().await;
        assert!(!may(&records, IMAGE, &[]).await);
        pull(&records, IMAGE, None).await;
        assert!(may(&records, IMAGE, &[]).await);
    }

    #[tokio::test(start_paused = true)]
    async fn images_that_are_gone_are_forgotten() {
        let node = Node::new(VerificationPolicy::NeverVerifyPreloadedImages);
        let records = node.start().await;
        for image in ["kept", "gone"] {
            records.begin(image).await.unwrap();
            records.succeeded(image, image, None).await;
        }
        let kept = BTreeSet::from(["kept".to_owned()]);
        records.prune(&kept, node.clock.now()).await;
        assert_eq!(node.pulled.content().len(), 2, "it may have been pulled while images were listed");
        records.prune(&kept, node.clock.now() + jiff::SignedDuration::from_secs(1)).await;
        assert_eq!(node.pulled.content().into_keys().collect::<Vec<_>>(), [file_name("kept")]);
    }

    #[tokio::test]
    async fn no_password_is_written_down() {
        let node = Node::new(VerificationPolicy::AlwaysVerify);
        let records = node.start().await;
        pull(&records, IMAGE, Some(&of_secret("mine", "hunter2"))).await;
        for (name, bytes) in node.pulled.content() {
            assert!(!String::from_utf8(bytes).unwrap().contains("hunter2"), "{name}");
        }
    }

    #[tokio::test]
    async fn checks_are_counted_by_what_became_of_them_and_records_as_they_are() {
        let node = Node::new(VerificationPolicy::new(None, []));
        let registry = Registry::new();
        let records = node.start().await.counted_in(&registry).unwrap();
        let nobody = async || Ok::<Vec<TrackedCredential>, &str>(Vec::new());
        // Nobody pulled it.
        assert_eq!(records.may_use(IMAGE, IMAGE, "there", nobody()).await, Ok(true));
        records.begin(IMAGE).await.unwrap();
        let intents = "kubelet_imagemanager_ondisk_pullintents 1";
        assert!(registry.render().lines().any(|line| line == intents), "{}", registry.render());
        records.succeeded(IMAGE, "pulled", Some(&of_secret("s", "p"))).await;
        assert_eq!(records.may_use(IMAGE, IMAGE, "pulled", nobody()).await, Ok(false));
        let its_own = async || Ok::<_, &str>(vec![of_secret("s", "p")]);
        assert_eq!(records.may_use(IMAGE, IMAGE, "pulled", its_own()).await, Ok(true));
        assert_eq!(records.may_use(IMAGE, IMAGE, "pulled", async { Err("no") }).await, Err("no"));
        let text = registry.render();
        for line in [
            r#"kubelet_imagemanager_image_mustpull_checks_total{result="credentialPolicyAllowed"} 1"#,
            r#"kubelet_imagemanager_image_mustpull_checks_total{result="credentialRecordFound"} 1"#,
            r#"kubelet_imagemanager_image_mustpull_checks_total{result="error"} 1"#,
            r#"kubelet_imagemanager_image_mustpull_checks_total{result="mustAuthenticate"} 1"#,
            "kubelet_imagemanager_ondisk_pulledrecords 1",
            "kubelet_imagemanager_ondisk_pullintents 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }
}
