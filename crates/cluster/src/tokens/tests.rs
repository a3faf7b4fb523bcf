use crablet_agent::mailbox::Mailbox;
use crablet_agent::objects::Interest;
use crablet_api::testing::pod_yaml;
use serde_json::json;

use super::*;
use crate::testing::Server;

const HOUR: u64 = 3600;

struct Node {
    server: Server,
    clock: Clock,
    tokens: Arc<Tokens>,
    mailbox: Mailbox,
    _interest: Option<Interest>,
}

/// A node with one pod, whose tokens are valid for so many seconds.
fn node(life: i64) -> Node {
    let server = Server::default();
    server.set_life(life);
    let (clock, interests) = (Clock::simulated(Timestamp::UNIX_EPOCH), Interests::new());
    let tokens = Tokens::new(server.client(), clock.clone(), Chance::new(1), interests.clone(), None);
    tokio::spawn(Arc::clone(&tokens).run());
    let pod = pod_yaml(
        "metadata: {name: p, namespace: ns, uid: u}\nspec: {volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]}",
    );
    let mailbox = Mailbox::new();
    let interest = interests.register(&pod, &mailbox);
    let held = tokens.register("u");
    let interest = interest.map(|interest| interest.with(held));
    Node { server, clock, tokens, mailbox, _interest: interest }
}

impl Node {
    async fn token(&self) -> Result<String, Unavailable> {
        self.tokens.get(&request()).await.map(|token| token.unwrap().reveal().to_owned())
    }

    fn is_told(&self) -> bool {
        self.mailbox.take().objects
    }
}

fn request() -> TokenRequest {
    TokenRequest {
        namespace: "ns".into(),
        service_account: "robot".into(),
        service_account_uid: None,
        audiences: Vec::new(),
        expiration_seconds: Some(3607),
        pod: "p".into(),
        pod_uid: "u".into(),
    }
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_token_is_asked_for_as_the_go_kubelet_does_and_kept() {
    let node = node(3607);
    assert_eq!(node.token().await.unwrap(), "token 1");
    assert_eq!(node.token().await.unwrap(), "token 1");
    assert_eq!(node.server.asked(), ["POST /api/v1/namespaces/ns/serviceaccounts/robot/token"]);
    let spec = json!({"audiences": null, "expirationSeconds": 3607,
        "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "u"}});
    assert_eq!(node.server.posted()[0]["spec"], spec);
    let other = TokenRequest { audiences: vec!["them".into()], ..request() };
    assert_eq!(node.tokens.get(&other).await.unwrap().unwrap().reveal(), "token 2");
    assert_eq!(node.server.posted()[1]["spec"]["audiences"], json!(["them"]));
}

#[tokio::test(start_paused = true)]
async fn a_token_is_renewed_after_four_fifths_of_its_life_or_a_day() {
    for (life, first) in [(3600, 2880), (7 * 24 * 3600, 24 * HOUR)] {
        let node = node(life);
        node.token().await.unwrap();
        seconds(first - 11).await;
        assert!(!node.is_told());
        assert_eq!(node.token().await.unwrap(), "token 1");
        seconds(11).await;
        assert!(node.is_told(), "after {first}");
        assert_eq!(node.token().await.unwrap(), "token 2");
        assert!(!node.is_told());
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_token_is_shown_while_it_is_valid_and_its_renewal_tried_each_minute() {
    let node = node(3600);
    node.token().await.unwrap();
    node.server.set_away(true);
    seconds(2880).await;
    for _ in 0..11 {
        assert!(node.is_told());
        assert_eq!(node.token().await.unwrap(), "token 1");
        seconds(61).await;
    }
    seconds(61).await;
    let words = "token \"robot\"/\"ns\" expired and refresh failed: the API server does not answer: connection refused";
    assert_eq!(node.token().await, Err(Unavailable::Other(words.to_owned())));
    node.server.set_away(false);
    assert_eq!(node.token().await.unwrap(), "token 2");
    let none = TokenRequest { pod_uid: "other".into(), ..request() };
    node.server.set_away(true);
    let words = "failed to fetch token: the API server does not answer: connection refused";
    assert_eq!(node.tokens.get(&none).await, Err(Unavailable::Other(words.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_got_no_token_is_told_to_ask_again_each_minute() {
    let node = node(3600);
    node.server.set_away(true);
    for _ in 0..3 {
        node.token().await.unwrap_err();
        seconds(59).await;
        assert!(!node.is_told());
        seconds(2).await;
        assert!(node.is_told());
    }
    node.server.set_away(false);
    assert_eq!(node.token().await.unwrap(), "token 1");
    seconds(600).await;
    assert!(!node.is_told());
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_costs_one_renewal_at_most() {
    let node = node(3600);
    node.token().await.unwrap();
    node.clock.set_by(-24 * 3600);
    seconds(2880).await;
    assert!(node.is_told(), "time has passed, whatever the clock shows");
    assert_eq!(node.token().await.unwrap(), "token 2");
    node.clock.set_by(48 * 3600);
    seconds(61).await;
    assert!(node.is_told(), "the machine may have slept");
    assert_eq!(node.token().await.unwrap(), "token 3");
    seconds(600).await;
    assert!(!node.is_told());
}

#[tokio::test(start_paused = true)]
async fn tokens_are_forgotten_with_their_pod() {
    let Node { server, tokens, _interest: interest, .. } = node(3600);
    tokens.get(&request()).await.unwrap();
    drop(interest);
    assert_eq!(tokens.get(&request()).await.unwrap().unwrap().reveal(), "token 2");
    assert_eq!(tokens.get(&request()).await.unwrap().unwrap().reveal(), "token 3", "nobody keeps it");
    assert!(tokens.tell().is_none());
    assert_eq!(server.posted().len(), 3);
}
