use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use crablet_api::core::ConfigMap;
use http::{Request, Response};
use hyper::body::Bytes;

use super::*;
use crate::transport::{Body, Lane, Transport, TransportError};

/// A server that does what it is told, request by request, and hangs when it was told nothing more.
#[derive(Default)]
struct Script {
    answers: Mutex<VecDeque<Answer>>,
    asked: Mutex<Vec<(Duration, String)>>,
    began: Mutex<Option<Instant>>,
}

enum Answer {
    /// Nobody is there.
    Away,
    Says(u16, &'static str, String),
    /// Parts with the time before each, and what is then.
    Streams(Vec<(Duration, String)>, End),
}

#[derive(Clone, Copy)]
enum End {
    Closed,
    Broken,
    Silent,
}

#[async_trait]
impl Transport for Script {
    async fn send(&self, request: Request<Bytes>, _: Lane) -> Result<Response<Body>, TransportError> {
        let since = self.began.lock().unwrap().get_or_insert_with(Instant::now).elapsed();
        self.asked.lock().unwrap().push((since, request.uri().to_string()));
        let answer = self.answers.lock().unwrap().pop_front();
        let answered = |code: u16, retry_after: &str, body: Body| {
            let answer = Response::builder().status(code).header("retry-after", retry_after);
            Ok(answer.body(body).unwrap())
        };
        match answer {
            None => std::future::pending().await,
            Some(Answer::Away) => Err(TransportError::new("connection refused")),
            Some(Answer::Says(code, retry_after, body)) => {
                let parts = [Ok(Bytes::from(body))];
                answered(code, retry_after, Box::pin(stream::iter(parts)))
            }
            Some(Answer::Streams(parts, end)) => {
                let parts = stream::iter(parts).then(|(after, part)| async move {
                    tokio::time::sleep(after).await;
                    Ok(Bytes::from(part))
                });
                let end: Body = match end {
                    End::Closed => Box::pin(stream::empty()),
                    End::Broken => Box::pin(stream::iter([Err(TransportError::new("reset"))])),
                    End::Silent => Box::pin(stream::pending()),
                };
                answered(200, "", Box::pin(parts.chain(end)))
            }
        }
    }
}

impl Script {
    fn of(answers: impl IntoIterator<Item = Answer>) -> Arc<Script> {
        Arc::new(Script { answers: Mutex::new(answers.into_iter().collect()), ..Script::default() })
    }

    fn follow(self: &Arc<Script>) -> Follower<ConfigMap> {
        let client = Client::new(self.clone(), "test");
        Follower::new(client, &Selection::default(), Chance::new(1))
    }

    /// What was asked for, without what is the same each time.
    fn asked(&self) -> Vec<String> {
        let shortened = |query: &str| {
            let parts = query.split(['?', '&']).skip(1).filter(|part| {
                !["allowWatchBookmarks", "timeoutSeconds"].iter().any(|name| part.starts_with(name))
            });
            parts.collect::<Vec<_>>().join(" ")
        };
        self.asked.lock().unwrap().iter().map(|(_, path)| shortened(path)).collect()
    }

    fn asked_at(&self, index: usize) -> Duration {
        self.asked.lock().unwrap()[index].0
    }
}

const NEWEST: &str = "watch=true sendInitialEvents=true resourceVersionMatch=NotOlderThan resourceVersion=";

fn line(kind: &str, name: &str, version: u64) -> String {
    format!(
        "{{\"type\":\"{kind}\",\"object\":{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{{\"namespace\":\"d\",\"name\":\"{name}\",\"resourceVersion\":\"{version}\"}}}}}}\n"
    )
}

fn bookmark(version: u64) -> String {
    format!("{{\"type\":\"BOOKMARK\",\"object\":{{\"metadata\":{{\"resourceVersion\":\"{version}\"}}}}}}\n")
}

fn end_of_initial_events(version: u64) -> String {
    format!(
        "{{\"type\":\"BOOKMARK\",\"object\":{{\"metadata\":{{\"resourceVersion\":\"{version}\",\"annotations\":{{\"{INITIAL_EVENTS_END}\":\"true\"}}}}}}}}\n"
    )
}

fn refusal(code: u16, reason: &str, details: &str) -> String {
    format!(
        "{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"status\":\"Failure\",\"message\":\"no\",\"reason\":\"{reason}\",\"details\":{{{details}}},\"code\":{code}}}"
    )
}

fn expired() -> String {
    format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", refusal(410, "Expired", ""))
}

fn at_once(parts: &[String]) -> Vec<(Duration, String)> {
    parts.iter().map(|part| (Duration::ZERO, part.clone())).collect()
}

/// `a` and `b` at a version, and a watch that goes on with this.
fn two_and(version: u64, rest: Vec<(Duration, String)>, end: End) -> Answer {
    let mut parts = at_once(&[line("ADDED", "a", 1), line("ADDED", "b", 2), end_of_initial_events(version)]);
    parts.extend(rest);
    Answer::Streams(parts, end)
}

/// The next event, in a few words.
async fn next(follower: &mut Follower<ConfigMap>) -> String {
    let name = |object: &ConfigMap| object.metadata.name.to_string();
    match follower.next().await {
        Event::All(all) => format!("all {}", all.iter().map(name).collect::<Vec<_>>().join(" ")),
        Event::Set(object) => format!("set {}", name(&object)),
        Event::Gone(object) => format!("gone {}", name(&object)),
        Event::Trouble { error, .. } => format!("trouble: {error}"),
        Event::Resumed => "resumed".to_owned(),
    }
}

async fn expect(follower: &mut Follower<ConfigMap>, events: &[&str]) {
    for event in events {
        assert_eq!(next(follower).await, *event);
    }
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn all_comes_first_then_changes_and_a_closed_watch_is_resumed_from_the_last_bookmark() {
    let rest =
        vec![(MINUTE, line("MODIFIED", "a", 12)), (MINUTE, line("DELETED", "b", 13)), (MINUTE, bookmark(20))];
    let script = Script::of([
        two_and(10, rest, End::Closed),
        Answer::Streams(at_once(&[line("ADDED", "c", 21)]), End::Silent),
    ]);
    let mut follower = script.follow();
    expect(&mut follower, &["all a b", "set a", "gone b", "set c"]).await;
    assert_eq!(script.asked(), [NEWEST, "watch=true resourceVersion=20"]);
    assert_eq!(script.asked_at(1), 3 * MINUTE, "a watch that lasted is resumed at once");
}

#[tokio::test(start_paused = true)]
async fn a_follower_goes_on_where_it_was_when_somebody_asks_again() {
    let rest = vec![(MINUTE, line("MODIFIED", "a", 12)[..20].to_owned())];
    let mut parts = two_and(10, rest, End::Silent);
    if let Answer::Streams(parts, _) = &mut parts {
        parts.insert(1, (Duration::from_secs(20), String::new()));
        parts.push((MINUTE, line("MODIFIED", "a", 12)[20..].to_owned()));
    }
    let script = Script::of([parts]);
    let mut follower = script.follow();
    let mut events = Vec::new();
    while events.len() < 2 {
        if let Ok(event) = tokio::time::timeout(Duration::from_secs(1), next(&mut follower)).await {
            events.push(event);
        }
    }
    assert_eq!(events, ["all a b", "set a"]);
    assert_eq!(script.asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_stream_what_there_is_is_asked_for_pages() {
    let page = |name: &str, go_on: &str| {
        let body = format!(
            "{{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"30\",\"continue\":\"{go_on}\"}},\"items\":[{{\"metadata\":{{\"name\":\"{name}\"}}}}]}}"
        );
        Answer::Says(200, "", body)
    };
    let within = format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", refusal(500, "InternalError", ""));
    for refused in [
        Answer::Says(400, "", refusal(400, "BadRequest", "")),
        Answer::Says(422, "", refusal(422, "Invalid", "")),
        Answer::Streams(at_once(&[within]), End::Closed),
    ] {
        let script = Script::of([
            refused,
            page("a", "x/1"),
            page("b", ""),
            Answer::Streams(at_once(&[line("ADDED", "c", 31)]), End::Silent),
        ]);
        let mut follower = script.follow();
        expect(&mut follower, &["all a b", "set c"]).await;
        let asked = script.asked();
        assert_eq!(asked[1..], ["limit=100", "limit=100 continue=x%2F1", "watch=true resourceVersion=30"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_ends_the_beginning_is_asked_for_a_list() {
    let list = "{\"kind\":\"ConfigMapList\",\"metadata\":{\"resourceVersion\":\"3\"},\"items\":[]}";
    let script = Script::of([
        Answer::Streams(at_once(&[line("ADDED", "a", 1)]), End::Silent),
        Answer::Says(200, "", list.to_owned()),
    ]);
    let mut follower = script.follow();
    expect(&mut follower, &["trouble: the API server did not answer within 30 s", "all "]).await;
    assert_eq!(script.asked(), [NEWEST, "limit=100"]);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_gone_means_that_all_is_asked_for_anew() {
    let told = Script::of([
        two_and(10, vec![(MINUTE, expired())], End::Silent),
        two_and(50, Vec::new(), End::Silent),
    ]);
    let mut follower = told.follow();
    expect(&mut follower, &["all a b", "all a b"]).await;
    assert_eq!(told.asked(), [NEWEST.to_owned(), format!("{NEWEST}10")]);

    let refused = Script::of([
        two_and(10, vec![(MINUTE, bookmark(11))], End::Closed),
        Answer::Says(410, "", refusal(410, "Expired", "")),
        two_and(50, Vec::new(), End::Silent),
    ]);
    let mut follower = refused.follow();
    expect(&mut follower, &["all a b", "all a b"]).await;
    assert_eq!(
        refused.asked(),
        [NEWEST.to_owned(), "watch=true resourceVersion=11".to_owned(), format!("{NEWEST}11")]
    );
    let waited = refused.asked_at(2) - refused.asked_at(1);
    assert!(waited >= Duration::from_millis(800), "a server that always says so is not asked all the time");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_restored_from_a_backup_is_found_out() {
    let too_large = "\"causes\":[{\"reason\":\"ResourceVersionTooLarge\",\"message\":\"Too large resource version\"}],\"retryAfterSeconds\":1";
    let script = Script::of([
        two_and(1000, vec![(MINUTE, bookmark(1001))], End::Broken),
        Answer::Says(504, "1", refusal(504, "Timeout", too_large)),
        two_and(50, vec![(MINUTE, line("MODIFIED", "a", 51))], End::Silent),
    ]);
    let mut follower = script.follow();
    expect(&mut follower, &["all a b", "all a b", "set a"]).await;
    assert_eq!(script.asked(), [NEWEST.to_owned(), format!("{NEWEST}1001"), NEWEST.to_owned()]);

    // One that takes up a watch at a version which it does not have, and then tells older ones.
    let script = Script::of([
        two_and(1000, vec![(MINUTE, line("MODIFIED", "a", 60))], End::Silent),
        two_and(61, Vec::new(), End::Silent),
    ]);
    expect(&mut script.follow(), &["all a b", "all a b"]).await;
    assert_eq!(script.asked(), [NEWEST, NEWEST]);

    // One that says nothing until it has come so far.
    let script = Script::of([
        two_and(1000, vec![(MINUTE, bookmark(1000))], End::Closed),
        Answer::Streams(vec![(6 * MINUTE, String::new())], End::Closed),
        two_and(50, Vec::new(), End::Silent),
    ]);
    expect(&mut script.follow(), &["all a b", "all a b"]).await;
    assert_eq!(script.asked()[2], format!("{NEWEST}1000"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_is_asked_more_and_more_rarely_and_people_can_be_told() {
    let script = Script::of((0..8).map(|_| Answer::Away).chain([two_and(10, Vec::new(), End::Silent)]));
    let mut follower = script.follow();
    for round in 0..8_u32 {
        let Event::Trouble { error, again_in } = follower.next().await else { panic!() };
        assert_eq!(error.to_string(), "the API server does not answer: connection refused");
        let least = Duration::from_millis((800 << round).min(30_000));
        assert!(again_in >= least && again_in < 2 * least, "{again_in:?}");
    }
    expect(&mut follower, &["all a b"]).await;
    assert!(script.asked().iter().all(|asked| asked == NEWEST));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_wants_to_be_left_alone_is_and_the_watch_goes_on_after_it() {
    let script = Script::of([
        two_and(10, vec![(MINUTE, bookmark(11))], End::Closed),
        Answer::Says(429, "40", refusal(429, "TooManyRequests", "")),
        Answer::Streams(at_once(&[line("ADDED", "c", 21)]), End::Silent),
    ]);
    let mut follower = script.follow();
    expect(&mut follower, &["all a b", "trouble: no", "resumed", "set c"]).await;
    assert_eq!(script.asked_at(2) - script.asked_at(1), Duration::from_secs(40));
    assert_eq!(script.asked()[1..], ["watch=true resourceVersion=11", "watch=true resourceVersion=11"]);
}

#[tokio::test(start_paused = true)]
async fn watches_that_end_at_once_are_not_begun_anew_at_once() {
    let closes = || Answer::Streams(Vec::new(), End::Closed);
    let mut answers = vec![two_and(10, vec![(MINUTE, bookmark(11))], End::Closed)];
    answers.extend((0..5).map(|_| closes()));
    answers.push(Answer::Streams(at_once(&[line("ADDED", "c", 21)]), End::Closed));
    answers.push(Answer::Streams(Vec::new(), End::Silent));
    let script = Script::of(answers);
    let mut follower = script.follow();
    let mut events = Vec::new();
    while !events.contains(&"set c".to_owned()) {
        events.push(next(&mut follower).await);
    }
    let troubles = events.iter().filter(|event| event.starts_with("trouble")).count();
    assert_eq!(troubles, 5, "{events:?}");
    let _ = tokio::time::timeout(MINUTE, follower.next()).await;
    for index in 2..script.asked().len() {
        let waited = script.asked_at(index) - script.asked_at(index - 1);
        assert!(waited >= Duration::from_millis(800), "{index}: {waited:?}");
    }
    assert_eq!(script.asked().len(), 8);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_silent_beyond_its_time_is_given_up() {
    let script = Script::of([two_and(10, Vec::new(), End::Silent), two_and(10, Vec::new(), End::Silent)]);
    let mut follower = script.follow();
    expect(&mut follower, &["all a b", "all a b"]).await;
    let after = script.asked_at(1);
    assert!(after > 5 * MINUTE && after <= 10 * MINUTE + MAY_BE_LATE, "{after:?}");
    let asked = script.asked.lock().unwrap()[0].1.clone();
    let seconds = asked.split("timeoutSeconds=").nth(1).unwrap().split('&').next().unwrap();
    assert_eq!((after - MAY_BE_LATE).as_secs().to_string(), seconds);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_nobody_can_read_is_trouble_and_nothing_is_missed() {
    let broken = "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":5}}\n".to_owned();
    let script =
        Script::of([two_and(10, vec![(MINUTE, broken)], End::Silent), two_and(12, Vec::new(), End::Silent)]);
    let mut follower = script.follow();
    expect(
        &mut follower,
        &[
            "all a b",
            "trouble: the API server's answer cannot be read: line 1, column 41: expected a mapping, found a value of type integer",
            "all a b",
        ],
    )
    .await;
    assert_eq!(script.asked()[1], format!("{NEWEST}10"));
}

#[test]
fn a_follower_takes_little_room() {
    let Follower(events) = Script::of([]).follow();
    let size = size_of_val(&*events);
    assert!(size < 2048, "{size}");
}

#[test]
fn a_selection_is_escaped() {
    let selection = Selection::named("kube-system", "a/b");
    assert_eq!(selection.query(), "&fieldSelector=metadata.name%3Da%2Fb");
    let selection = Selection { labels: "app in (a,b)".to_owned(), ..Selection::default() };
    assert_eq!(selection.query(), "&labelSelector=app%20in%20%28a%2Cb%29");
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_one_object_lasts_longer_than_one_of_many() {
    for (selection, least) in [(Selection::default(), 300), (Selection::named("d", "a"), 1800)] {
        let script = Script::of([Answer::Streams(at_once(&[end_of_initial_events(1)]), End::Silent)]);
        let client = Client::new(script.clone(), "test");
        let mut follower = Follower::<ConfigMap>::new(client, &selection, Chance::new(1));
        follower.next().await;
        let asked = script.asked.lock().unwrap()[0].1.clone();
        let mut parts = asked.split(['?', '&']).filter_map(|part| part.strip_prefix("timeoutSeconds="));
        let seconds: u64 = parts.next().unwrap().parse().unwrap();
        assert!((least..2 * least).contains(&seconds), "{asked}");
    }
}
