//! Who gets a private image, on the simulated runtime.

use std::sync::Arc;

use crablet_api::Bytes;
use crablet_api::core::{PodIdentity, PullPolicy, Secret};
use crablet_credentials::{Credentials, PullRecords, VerificationPolicy};
use crablet_cri::client::{self, Client};
use crablet_cri_sim::{Image, Method, Settings, Simulator};
use crablet_host::checkpoint::SimulatedCheckpoints;
use crablet_host::clock::Clock;

use super::*;
use crate::recorder::{ContainerKind, EventQueue};
use crate::story::Stories;

const PRIVATE: &str = "private.test/team/app:1";
const DENIED: &str = "failed to pull and unpack image \"private.test/team/app:1\": failed to resolve reference \
                      \"private.test/team/app:1\": pull access denied, repository does not exist or may require \
                      authorization: authorization failed: no basic auth credentials";

/// A runtime with a private image in its registry, and what is on the node's disk.
struct World {
    simulator: Simulator,
    pulling: SimulatedCheckpoints,
    pulled: SimulatedCheckpoints,
    clock: Clock,
}

/// An owner of images, and what it tells.
struct Owner {
    images: Images,
    records: Arc<PullRecords>,
    events: EventQueue,
}

impl World {
    fn new() -> World {
        let registry = vec![Image::new(PRIVATE).private_to("me", "hunter2"), Image::new("public.test/app:1")];
        let simulator = Simulator::new(Settings { registry, ..Settings::default() });
        let clock = Clock::simulated(simulator.now());
        World { simulator, clock, pulling: SimulatedCheckpoints::new(), pulled: SimulatedCheckpoints::new() }
    }

    /// An agent that starts.
    async fn start(&self) -> Owner {
        let client = Client::in_process("sim", self.simulator.services(), client::Settings::default());
        let recorder = Recorder::new(self.clock.clone(), Stories::new(self.clock.clone()));
        let events = recorder.queue();
        let (pulling, pulled) = (Arc::new(self.pulling.clone()), Arc::new(self.pulled.clone()));
        let policy = VerificationPolicy::NeverVerifyPreloadedImages;
        let records = PullRecords::open(policy, self.clock.clone(), pulling, pulled).await.unwrap();
        let records = Arc::new(records);
        let access = Access { credentials: Arc::new(Credentials::default()), records: Some(records.clone()) };
        let runtime: Arc<dyn Runtime> = Arc::new(client);
        let images = Images::new(runtime, access, recorder, self.clock.clone(), super::Settings::default());
        images.clone().resume().await;
        Owner { images, records, events }
    }

    fn pulls(&self) -> usize {
        self.simulator.calls().iter().filter(|call| call.method == Method::PullImage).count()
    }
}

impl Owner {
    /// What becomes of a pod's wish for an image: whether it was pulled, or why not.
    async fn ask(
        &self,
        pod: &str,
        image: &str,
        policy: PullPolicy,
        secrets: &[Arc<Secret>],
    ) -> Result<bool, (ImageErrorReason, String)> {
        let involved =
            Involved::pod(PodIdentity::new("default", pod, pod)).in_container(ContainerKind::Main, "c");
        let request = Request {
            involved: &involved,
            image,
            policy: Some(&policy),
            secrets,
            service_account: "",
            runtime_handler: "",
            sandbox: None,
        };
        let ensured = self.images.ensure(request).await;
        ensured.map(|ensured| ensured.was_pulled).map_err(|error| (error.reason, error.message))
    }

    fn events(&self) -> String {
        std::iter::from_fn(|| self.events.try_next()).map(|event| event.message.to_string() + "\n").collect()
    }
}

fn secret(name: &str, config: &str) -> Arc<Secret> {
    let mut secret = Secret::default();
    secret.metadata.namespace = "default".into();
    secret.metadata.name = name.into();
    secret.metadata.uid = format!("uid of {name}").as_str().into();
    secret.r#type = Some("kubernetes.io/dockerconfigjson".into());
    secret.data.insert(".dockerconfigjson", Bytes::from(config));
    Arc::new(secret)
}

fn of(name: &str, password: &str) -> Arc<Secret> {
    let config =
        format!("{{\"auths\":{{\"private.test\":{{\"username\":\"me\",\"password\":\"{password}\"}}}}}}");
    secret(name, &config)
}

#[tokio::test(start_paused = true)]
async fn a_private_image_is_for_those_with_the_right_secret_also_once_it_is_there() {
    let world = World::new();
    let mut owner = world.start().await;
    let (right, wrong) = ([of("right", "hunter2")], [of("wrong", "guess")]);
    let denied = Err((ImageErrorReason::ErrImagePull, DENIED.to_owned()));
    assert_eq!(owner.ask("nobody", PRIVATE, PullPolicy::IfNotPresent, &[]).await, denied);
    assert_eq!(owner.ask("wrong", PRIVATE, PullPolicy::IfNotPresent, &wrong).await, denied);
    assert_eq!(owner.ask("right", PRIVATE, PullPolicy::IfNotPresent, &right).await, Ok(true));
    // Both before and after the agent starts anew.
    for round in ["a", "b"] {
        let pod = |name: &str| format!("{name} {round}");
        let pulls = world.pulls();
        assert_eq!(owner.ask(&pod("right"), PRIVATE, PullPolicy::IfNotPresent, &right).await, Ok(false));
        assert_eq!(owner.ask(&pod("never"), PRIVATE, PullPolicy::Never, &right).await, Ok(false));
        assert_eq!(world.pulls(), pulls);
        assert_eq!(owner.ask(&pod("nobody"), PRIVATE, PullPolicy::IfNotPresent, &[]).await, denied);
        assert_eq!(owner.ask(&pod("wrong"), PRIVATE, PullPolicy::IfNotPresent, &wrong).await, denied);
        let never = owner.ask(&pod("nobody never"), PRIVATE, PullPolicy::Never, &[]).await;
        assert_eq!(never.unwrap_err().0, ImageErrorReason::ErrImageNeverPull);
        let events = owner.events();
        assert!(events.contains("already present on machine and can be accessed by the pod"), "{events}");
        assert!(!events.contains("hunter2") && !events.contains("guess"), "{events}");
        owner = world.start().await;
    }
    assert!(world.pulling.content().is_empty());
    assert_eq!(world.pulled.content().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn several_secrets_are_tried_in_turn_and_the_one_that_does_is_written_down() {
    let world = World::new();
    let owner = world.start().await;
    let both = [of("wrong", "guess"), of("right", "hunter2")];
    assert_eq!(owner.ask("p", PRIVATE, PullPolicy::IfNotPresent, &both).await, Ok(true));
    assert_eq!(world.pulls(), 2);
    assert_eq!(owner.ask("q", PRIVATE, PullPolicy::IfNotPresent, &both[1..]).await, Ok(false));
    let denied = owner.ask("r", PRIVATE, PullPolicy::IfNotPresent, &both[..1]).await;
    assert_eq!(denied, Err((ImageErrorReason::ErrImagePull, DENIED.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn what_was_pulled_without_a_secret_and_what_was_there_before_is_for_all() {
    let world = World::new();
    world.simulator.add_image(Image::new("before.test/app:1"));
    let owner = world.start().await;
    assert_eq!(owner.ask("p", "before.test/app:1", PullPolicy::IfNotPresent, &[]).await, Ok(false));
    assert_eq!(owner.ask("p", "public.test/app:1", PullPolicy::IfNotPresent, &[]).await, Ok(true));
    assert_eq!(owner.ask("q", "public.test/app:1", PullPolicy::IfNotPresent, &[]).await, Ok(false));
}

#[tokio::test(start_paused = true)]
async fn an_image_whose_pull_a_crash_cut_short_is_nobodys_until_it_is_pulled() {
    let world = World::new();
    let before = world.start().await;
    before.records.begin(PRIVATE).await.unwrap();
    before.records.begin("never.test/there:1").await.unwrap();
    world.simulator.add_image(Image::new(PRIVATE));
    let owner = world.start().await;
    assert!(owner.records.unfinished().is_empty());
    assert!(world.pulling.content().is_empty());
    let denied = owner.ask("p", PRIVATE, PullPolicy::IfNotPresent, &[]).await;
    assert_eq!(denied, Err((ImageErrorReason::ErrImagePull, DENIED.to_owned())));
    let right = [of("right", "hunter2")];
    assert_eq!(owner.ask("q", PRIVATE, PullPolicy::IfNotPresent, &right).await, Ok(true));
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_cannot_be_read_fails_the_pull_and_is_named_but_not_shown() {
    let world = World::new();
    let owner = world.start().await;
    let bad = [secret("bad", "{\"auths\":{\"hunter2\":[\"hunter2\"]}}")];
    let expected = "image pull secret default/bad: an entry: expected an object, found a list";
    let failed = owner.ask("p", PRIVATE, PullPolicy::IfNotPresent, &bad).await;
    assert_eq!(failed, Err((ImageErrorReason::ErrImagePull, expected.to_owned())));
    let held = owner.ask("p", PRIVATE, PullPolicy::IfNotPresent, &bad).await.unwrap_err();
    assert_eq!(held.0, ImageErrorReason::ImagePullBackOff);
    assert_eq!(world.pulls(), 0);
    assert!(!owner.events().contains("hunter2"));
}
