//! What becomes of an image that a container needs.

use std::sync::Arc;
use std::time::Duration;

use crablet_api::Bytes;
use crablet_api::core::{PodIdentity, PullPolicy, Secret};
use crablet_host::clock::Clock;
use proptest::prelude::*;
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, sleep};

use super::testing::FakeImages;
use super::*;
use crate::recorder::{ContainerKind, EventQueue};
use crate::story::Stories;

const ANY: Settings = Settings { parallel: None, rate: None };

/// An owner of images, and all that one can see of it.
struct Node {
    fake: Arc<FakeImages>,
    images: Images,
    events: EventQueue,
}

impl Node {
    fn new(settings: Settings) -> Node {
        Node::with(settings, Access::default())
    }

    fn with(settings: Settings, access: Access) -> Node {
        let clock = Clock::simulated("2026-11-15T03:46:00Z".parse().unwrap());
        let recorder = Recorder::new(clock.clone(), Stories::new(clock.clone()));
        let events = recorder.queue();
        let fake = FakeImages::new();
        Node { images: Images::of(fake.clone(), access, recorder, clock, settings), fake, events }
    }

    /// A pod asks for an image, in a task of its own.
    fn ask(&self, pod: &str, image: &str, policy: PullPolicy) -> JoinHandle<Result<Ensured, ImageError>> {
        self.ask_as(pod, image, policy, &[])
    }

    fn ask_as(
        &self,
        pod: &str,
        image: &str,
        policy: PullPolicy,
        users: &[&str],
    ) -> JoinHandle<Result<Ensured, ImageError>> {
        let secrets: Vec<Arc<Secret>> = users.iter().map(|user| secret(user)).collect();
        let (images, image, pod) = (self.images.clone(), image.to_owned(), pod.to_owned());
        tokio::spawn(async move {
            let involved = Involved::pod(PodIdentity::new("default", &*pod, &*pod))
                .in_container(ContainerKind::Main, "c");
            let request = Request {
                involved: &involved,
                image: &image,
                policy: Some(&policy),
                secrets: &secrets,
                service_account: "",
                runtime_handler: "",
                sandbox: None,
            };
            images.ensure(request).await
        })
    }

    async fn get(&self, pod: &str, image: &str, policy: PullPolicy) -> Result<Ensured, ImageError> {
        self.ask(pod, image, policy).await.unwrap()
    }

    async fn fails(&self, pod: &str, image: &str, policy: PullPolicy) -> (&'static str, String) {
        let error = self.get(pod, image, policy).await.unwrap_err();
        (error.reason.as_str(), error.message)
    }

    /// The events since the last time.
    fn events(&self) -> Vec<String> {
        std::iter::from_fn(|| self.events.try_next())
            .map(|event| format!("{} {} {}", event.event_type, event.reason, event.message))
            .collect()
    }
}

/// A secret that is named as its user is, for all images of Docker Hub.
fn secret(user: &str) -> Arc<Secret> {
    let mut secret = Secret::default();
    secret.metadata.namespace = "default".into();
    secret.metadata.name = user.into();
    secret.r#type = Some("kubernetes.io/dockercfg".into());
    let config = format!("{{\"docker.io\":{{\"username\":\"{user}\",\"password\":\"hunter2\"}}}}");
    secret.data.insert(".dockercfg", Bytes::from(config.as_str()));
    Arc::new(secret)
}

#[tokio::test(start_paused = true)]
async fn an_image_that_is_there_is_taken() {
    let node = Node::new(ANY);
    node.fake.has("busybox:latest");
    for policy in [PullPolicy::IfNotPresent, PullPolicy::Never] {
        let ensured = node.get("p", "busybox", policy).await.unwrap();
        assert_eq!((&*ensured.reference, ensured.was_pulled), ("id of busybox:latest", false));
        assert_eq!(ensured.image.unwrap().size, 1234);
        let expected = "Normal Pulled Container image \"busybox\" already present on machine";
        assert_eq!(node.events(), [expected]);
    }
    assert_eq!(node.fake.pulled(), []);
}

#[tokio::test(start_paused = true)]
async fn an_image_that_is_not_there_is_pulled() {
    let node = Node::new(ANY);
    node.fake.takes("busybox:1", 2);
    let ensured = node.get("p", "busybox:1", PullPolicy::IfNotPresent).await.unwrap();
    assert_eq!((&*ensured.reference, ensured.was_pulled), ("id of busybox:1", true));
    assert_eq!(ensured.image.unwrap().size, 1234);
    assert_eq!(
        node.events(),
        [
            "Normal Pulling Pulling image \"busybox:1\"",
            "Normal Pulled Successfully pulled image \"busybox:1\" in 2.001s (2.001s including waiting). Image size: 1234 bytes.",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_image_that_is_there_is_pulled_again_where_the_policy_says_so() {
    let node = Node::new(ANY);
    node.fake.has("busybox:latest");
    for policy in [PullPolicy::Always, PullPolicy::from("Sometimes")] {
        assert!(node.get("p", "busybox", policy).await.unwrap().was_pulled);
    }
    assert_eq!(node.fake.count("busybox:latest"), 2);
}

#[tokio::test(start_paused = true)]
async fn an_image_that_is_not_there_and_may_not_be_pulled_is_an_error() {
    let node = Node::new(ANY);
    let error = node.get("p", "docker.io/library/no-such-image:1", PullPolicy::Never).await.unwrap_err();
    let message =
        "Container image \"docker.io/library/no-such-image:1\" is not present with pull policy of Never";
    assert_eq!(
        (error.reason.as_str(), &*error.message, error.retry_at),
        ("ErrImageNeverPull", message, None)
    );
    assert_eq!(error.event_message(), "Error: ErrImageNeverPull");
    assert_eq!(node.events(), [format!("Warning ErrImageNeverPull {message}")]);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_none_is_an_error() {
    let node = Node::new(ANY);
    let message = "Failed to apply default image tag \":x\": couldn't parse image name \":x\": invalid reference format";
    assert_eq!(node.fails("p", ":x", PullPolicy::Always).await, ("InvalidImageName", message.to_owned()));
    assert_eq!(node.events(), [format!("Warning InspectFailed {message}")]);
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_cannot_say_what_is_there_is_an_error() {
    let node = Node::new(ANY);
    node.fake.is_broken("rpc error: code = Internal desc = no");
    let message = "Failed to inspect image \"\": rpc error: code = Internal desc = no";
    let failed = node.fails("p", "a:1", PullPolicy::IfNotPresent).await;
    assert_eq!(failed, ("ImageInspectError", message.to_owned()));
    assert_eq!(node.events(), [format!("Warning InspectFailed {message}")]);
    let ensured = node.get("p", "a:1", PullPolicy::Always).await.unwrap();
    let unknown = (ensured.image.unwrap_err().to_string(), &*ensured.reference);
    assert_eq!(unknown, ("no".to_owned(), "id of a:1"), "who needs to know it is told why not");
    assert!(node.events()[1].ends_with("Image size: 0 bytes."));
}

#[tokio::test(start_paused = true)]
async fn an_image_that_is_gone_after_its_pull_is_not_known() {
    let node = Node::new(ANY);
    node.fake.loses_what_is_pulled();
    let ensured = node.get("p", "a:1", PullPolicy::IfNotPresent).await.unwrap();
    assert_eq!(ensured.image.unwrap_err().to_string(), "image \"a:1\" is not there after its pull");
}

#[tokio::test(start_paused = true)]
async fn a_pull_that_fails_is_told_and_tried_again_later() {
    let node = Node::new(ANY);
    let error = "rpc error: code = NotFound desc = no such image";
    node.fake.fails("a:1", error);
    let failed = node.get("p", "a:1", PullPolicy::IfNotPresent).await.unwrap_err();
    assert_eq!((failed.reason.as_str(), &*failed.message), ("ErrImagePull", error));
    assert_eq!(failed.retry_at, Some(Instant::now() + Duration::from_secs(10)));
    let expected = [
        "Normal Pulling Pulling image \"a:1\"",
        &format!("Warning Failed Failed to pull image \"a:1\": {error}"),
    ];
    assert_eq!(node.events(), expected);

    advance(Duration::from_secs(4)).await;
    let held = node.get("p", "a:1", PullPolicy::IfNotPresent).await.unwrap_err();
    assert_eq!(held.reason.as_str(), "ImagePullBackOff");
    assert_eq!(held.message, format!("Back-off pulling image \"a:1\": ErrImagePull: {error}"));
    assert_eq!(held.retry_at, failed.retry_at);
    assert_eq!(node.events(), ["Normal BackOff Back-off pulling image \"a:1\""]);
    assert_eq!(node.fake.count("a:1"), 1);

    tokio::time::sleep_until(failed.retry_at.unwrap()).await;
    assert!(node.get("p", "a:1", PullPolicy::IfNotPresent).await.unwrap().was_pulled);
}

#[tokio::test(start_paused = true)]
async fn a_back_off_is_one_pods_and_ends_with_it() {
    let node = Node::new(ANY);
    node.fake.fails("a:1", "no");
    node.fails("p", "a:1", PullPolicy::Always).await;
    assert!(node.get("q", "a:1", PullPolicy::Always).await.is_ok());
    assert_eq!(node.fails("p", "a:1", PullPolicy::Always).await.0, "ImagePullBackOff");
    assert!(node.get("p", "a:1", PullPolicy::IfNotPresent).await.is_ok(), "q has brought it");
    node.images.forget("p");
    assert!(node.get("p", "a:1", PullPolicy::Always).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn some_errors_have_a_reason_of_their_own() {
    for (error, reason, message) in [
        (
            "RegistryUnavailable: no route",
            "RegistryUnavailable",
            "image pull failed for a:1 because the registry is unavailable: no route",
        ),
        (
            "SignatureValidationFailed: bad key",
            "SignatureValidationFailed",
            "image pull failed for a:1 because the signature validation failed: bad key",
        ),
    ] {
        let node = Node::new(ANY);
        node.fake.fails("a:1", error);
        let failed = node.fails("p", "a:1", PullPolicy::Always).await;
        assert_eq!(failed, (reason, message.to_owned()));
        let held = node.fails("p", "a:1", PullPolicy::Always).await;
        let message = format!("Back-off pulling image \"a:1\": {reason}: {message}");
        assert_eq!(held, ("ImagePullBackOff", message));
    }
}

#[tokio::test(start_paused = true)]
async fn credentials_are_tried_one_after_the_other() {
    let node = Node::new(ANY);
    node.fake.fails("a:1", "denied");
    let asked = node.ask_as("p", "a:1", PullPolicy::Always, &["one", "two", "three"]);
    assert!(asked.await.unwrap().is_ok());
    let tried: Vec<_> = node.fake.pulled().into_iter().filter_map(|(_, user)| user).collect();
    assert_eq!(tried, ["one", "two"]);

    let node = Node::new(ANY);
    ["denied", "gone"].iter().for_each(|error| node.fake.fails("a:1", error));
    let asked = node.ask_as("p", "a:1", PullPolicy::Always, &["one", "two"]);
    assert_eq!(asked.await.unwrap().unwrap_err().message, "[denied, gone]");
}

#[tokio::test(start_paused = true)]
async fn many_pods_share_one_pull_and_each_has_its_own_events() {
    let node = Node::new(ANY);
    node.fake.takes("a:1", 10);
    let first = node.ask("p0", "a:1", PullPolicy::IfNotPresent);
    sleep(Duration::from_secs(7)).await;
    let others: Vec<_> =
        (1..50).map(|number| node.ask(&format!("p{number}"), "a:1", PullPolicy::Always)).collect();
    sleep(Duration::from_secs(1)).await;
    let pulls = node.images.pulls();
    assert_eq!((pulls.len(), pulls[0].waiters), (1, 50));
    assert!(pulls[0].running_since.is_some());
    assert!(first.await.unwrap().is_ok());
    for other in others {
        assert!(other.await.unwrap().is_ok());
    }
    assert_eq!(node.fake.count("a:1"), 1);
    assert_eq!(node.images.pulls(), []);
    let events = node.events();
    assert_eq!(events.iter().filter(|event| event.starts_with("Normal Pulling")).count(), 50);
    let of_first = "in 10.001s (10.001s including waiting)";
    let of_others = "in 3.002s (3.002s including waiting)";
    assert_eq!(events.iter().filter(|event| event.contains(of_first)).count(), 1, "{events:?}");
    assert_eq!(events.iter().filter(|event| event.contains(of_others)).count(), 49, "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pull_that_ended_while_the_runtime_was_asked_is_not_repeated() {
    let node = Node::new(ANY);
    node.fake.takes("a:1", 5);
    let first = node.ask("p", "a:1", PullPolicy::IfNotPresent);
    sleep(Duration::from_secs(1)).await;
    node.fake.looks_take(30_000);
    let second = node.ask("q", "a:1", PullPolicy::IfNotPresent);
    sleep(Duration::from_secs(1)).await;
    node.fake.looks_take(1);
    assert!(first.await.unwrap().unwrap().was_pulled);
    assert!(!second.await.unwrap().unwrap().was_pulled);
    assert_eq!(node.fake.count("a:1"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_everybodys_who_waits() {
    let node = Node::new(ANY);
    node.fake.takes("a:1", 5);
    node.fake.fails("a:1", "no");
    let asked: Vec<_> =
        (0..3).map(|number| node.ask(&format!("p{number}"), "a:1", PullPolicy::Always)).collect();
    for asked in asked {
        assert_eq!(asked.await.unwrap().unwrap_err().reason, ImageErrorReason::ErrImagePull);
    }
    for number in 0..3 {
        assert_eq!(node.fails(&format!("p{number}"), "a:1", PullPolicy::Always).await.0, "ImagePullBackOff");
    }
    assert_eq!(node.fake.count("a:1"), 1);
}

#[tokio::test(start_paused = true)]
async fn other_credentials_fly_alone() {
    let node = Node::new(ANY);
    node.fake.takes("a:1", 5);
    let asked = [
        node.ask_as("p", "a:1", PullPolicy::Always, &["one"]),
        node.ask_as("q", "a:1", PullPolicy::Always, &["one"]),
        node.ask_as("r", "a:1", PullPolicy::Always, &["two"]),
        node.ask("s", "a:1", PullPolicy::Always),
    ];
    for asked in asked {
        assert!(asked.await.unwrap().is_ok());
    }
    assert_eq!(node.fake.count("a:1"), 3);
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_does_not_take_the_pull_from_the_others() {
    let node = Node::new(ANY);
    node.fake.takes("a:1", 60);
    let first = node.ask("p", "a:1", PullPolicy::Always);
    let second = node.ask("q", "a:1", PullPolicy::Always);
    sleep(Duration::from_secs(1)).await;
    first.abort();
    sleep(Duration::from_secs(30)).await;
    assert_eq!(node.images.pulls()[0].waiters, 1);
    assert!(second.await.unwrap().is_ok());
    assert_eq!((node.fake.count("a:1"), node.fake.cancelled()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_pull_that_nobody_waits_for_goes_on_for_a_while_and_is_cancelled() {
    let node = Node::new(Settings { parallel: Some(1), rate: None });
    node.fake.takes("a:1", 60);
    let first = node.ask("p", "a:1", PullPolicy::Always);
    sleep(Duration::from_secs(1)).await;
    first.abort();
    sleep(Duration::from_secs(9)).await;
    let again = node.ask("p", "a:1", PullPolicy::Always);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(
        (node.images.pulls()[0].waiters, node.fake.cancelled()),
        (1, 0),
        "who came back in time has it"
    );
    again.abort();
    let other = node.ask("q", "b:1", PullPolicy::Always);
    sleep(Duration::from_secs(9)).await;
    assert_eq!(node.fake.cancelled(), 0);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(node.fake.cancelled(), 1);
    assert!(other.await.unwrap().is_ok(), "the slot is free");
    assert_eq!(node.images.pulls(), []);
}

#[tokio::test(start_paused = true)]
async fn a_large_pull_holds_up_neither_what_is_there_nor_who_may_run_beside_it() {
    let node = Node::new(Settings { parallel: Some(2), rate: None });
    node.fake.takes("large:1", 1200);
    node.fake.has("there:1");
    let large = node.ask("p", "large:1", PullPolicy::Always);
    sleep(Duration::from_secs(1)).await;
    let before = Instant::now();
    assert!(node.get("q", "there:1", PullPolicy::IfNotPresent).await.is_ok());
    assert!(node.get("r", "small:1", PullPolicy::IfNotPresent).await.is_ok());
    assert!(before.elapsed() < Duration::from_secs(1));
    assert!(!large.is_finished());
}

#[tokio::test(start_paused = true)]
async fn pulls_wait_for_a_slot_in_turn_and_one_can_watch() {
    let node = Node::new(Settings { parallel: Some(1), rate: None });
    let mut changes = node.images.changes();
    changes.mark_unchanged();
    let mut asked = Vec::new();
    for image in ["a:1", "b:1", "c:1"] {
        node.fake.takes(image, 10);
        asked.push(node.ask("p", image, PullPolicy::Always));
        sleep(Duration::from_millis(100)).await;
    }
    assert!(changes.has_changed().unwrap());
    let shown = || {
        let pulls = node.images.pulls();
        pulls.iter().map(|pull| (pull.image.clone(), pull.running_since.is_some())).collect::<Vec<_>>()
    };
    let pull = |image: &str, runs| (image.to_owned(), runs);
    assert_eq!(shown(), [pull("a:1", true), pull("b:1", false), pull("c:1", false)]);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(shown(), [pull("b:1", true), pull("c:1", false)]);
    for asked in asked {
        assert!(asked.await.unwrap().is_ok());
    }
    let last = node.events().pop().unwrap();
    assert!(last.contains("\"c:1\" in 10.001s (29.803s including waiting)"), "{last}");
    changes.mark_unchanged();
    sleep(Duration::from_secs(60)).await;
    assert!(!changes.has_changed().unwrap(), "nothing changes when nothing happens");
}

#[tokio::test(start_paused = true)]
async fn pulls_that_come_too_fast_wait_their_turn() {
    let node = Node::new(Settings::new(false, None, 5, 10));
    let before = Instant::now();
    let asked: Vec<_> = (0..20)
        .map(|number| node.ask(&format!("p{number}"), &format!("a:{number}"), PullPolicy::Always))
        .collect();
    for asked in asked {
        assert!(asked.await.unwrap().is_ok());
    }
    assert_eq!(before.elapsed().as_millis() / 100, 20, "ten at once, and ten at five a second");
}

#[tokio::test(start_paused = true)]
async fn a_pull_that_panics_is_an_error_and_leaves_nothing_behind() {
    let node = Node::new(ANY);
    let failed = node.fails("p", "panic:1", PullPolicy::Always).await;
    assert_eq!(failed, ("ErrImagePull", "the pull was abandoned".to_owned()));
    assert_eq!(node.images.pulls(), []);
}

#[tokio::test(start_paused = true)]
async fn pulls_end_with_their_owner() {
    let node = Node::new(ANY);
    node.fake.takes("a:1", 60);
    let asked = node.ask("p", "a:1", PullPolicy::Always);
    sleep(Duration::from_secs(1)).await;
    let Node { fake, images, events: _events } = node;
    asked.abort();
    drop(images);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(fake.cancelled(), 1);
}

#[test]
fn the_configuration_says_how_pulls_are_bounded() {
    let parallel = |serialize, max| Settings::new(serialize, max, 0, 0).parallel;
    assert_eq!(parallel(true, None), Some(1));
    assert_eq!(parallel(true, Some(1)), Some(1));
    assert_eq!(parallel(false, Some(7)), Some(7));
    assert_eq!(
        (parallel(false, None), parallel(false, Some(0)), parallel(false, Some(-1))),
        (None, None, None)
    );
    assert_eq!(Settings::new(false, None, 0, 10).rate, None);
    let rate = Rate { burst: 10, every: Duration::from_millis(200) };
    assert_eq!(Settings::new(false, None, 5, 10).rate, Some(rate));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Pods ask for images at any time, and some go away again.
    #[test]
    fn slots_are_never_exceeded_and_each_image_is_pulled_once(
        parallel in 1_usize..4,
        takes in prop::collection::vec(0_u64..5, 5),
        asks in prop::collection::vec((0_usize..5, 0_u64..2000, prop::option::of(0_u64..3000)), 1..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let node = Node::new(Settings { parallel: Some(parallel), rate: None });
            for (image, takes) in takes.iter().enumerate() {
                node.fake.takes(&format!("i:{image}"), *takes);
            }
            // Somebody waits for each image to the end, so that no pull is cancelled.
            let patient: Vec<_> =
                (0..5).map(|image| node.ask("patient", &format!("i:{image}"), PullPolicy::IfNotPresent)).collect();
            let mut asked = Vec::new();
            for (number, (image, pause, leaves)) in asks.into_iter().enumerate() {
                sleep(Duration::from_millis(pause)).await;
                let ask = node.ask(&format!("p{number}"), &format!("i:{image}"), PullPolicy::IfNotPresent);
                match leaves {
                    Some(after) => {
                        tokio::spawn(async move {
                            sleep(Duration::from_millis(after)).await;
                            ask.abort();
                        });
                    }
                    None => asked.push(ask),
                }
            }
            for ask in patient.into_iter().chain(asked) {
                prop_assert!(ask.await.unwrap().is_ok());
            }
            prop_assert!(node.fake.most_running() <= parallel);
            for image in 0..5 {
                prop_assert_eq!(node.fake.count(&format!("i:{image}")), 1);
            }
            prop_assert_eq!(node.images.pulls(), Vec::new());
            Ok(())
        })?;
    }
}
