use std::time::Duration;

use http::Method;
use http_body_util::{BodyExt, Collected};
use hyper::body::{Bytes, Incoming};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::running::{CONFIG_MAPS, Running, config_map};

const PATIENCE: Duration = Duration::from_secs(60);

/// The next line of a watch; none at its end.
async fn next(body: &mut Incoming, rest: &mut Vec<u8>) -> Option<Value> {
    loop {
        if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            return Some(serde_json::from_slice(&line).unwrap());
        }
        let frame = timeout(PATIENCE, body.frame()).await.unwrap()?;
        rest.extend_from_slice(&frame.unwrap().into_data().unwrap());
    }
}

#[tokio::test]
async fn a_watch_tells_what_there_is_and_what_changes_until_the_server_stops() {
    let server = Running::start().await;
    let admin = server.admin();
    admin.post(CONFIG_MAPS, &config_map("a", "1")).await;
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&fieldSelector=metadata.name%3Da";
    let path = format!("{CONFIG_MAPS}?{query}");
    let mut watches = Vec::new();
    for client in [admin.clone(), admin.clone().http1()] {
        let response = client.begin(client.request(Method::GET, &path, "")).await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()["content-type"]),
            (200, &"application/json".parse().unwrap())
        );
        watches.push((response.into_body(), Vec::new()));
    }
    for (body, rest) in &mut watches {
        let first = next(body, rest).await.unwrap();
        assert_eq!((&first["type"], &first["object"]["metadata"]["name"]), (&"ADDED".into(), &"a".into()));
        let end = next(body, rest).await.unwrap();
        assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    }
    let deleted = admin.send(Method::DELETE, &format!("{CONFIG_MAPS}/a"), "").await;
    assert_eq!(deleted.code, 200);
    for (body, rest) in &mut watches {
        assert_eq!(next(body, rest).await.unwrap()["type"], "DELETED");
    }
    server.begin_to_stop();
    for (body, rest) in &mut watches {
        assert_eq!(next(body, rest).await, None);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_watch_that_nobody_reads_holds_up_neither_writes_nor_others_and_is_closed() {
    let server = Running::start().await;
    let admin = server.admin();
    let query = format!("{CONFIG_MAPS}?watch=true&resourceVersion=0");
    let unread = admin.begin(admin.request(Method::GET, &query, "")).await.unwrap();
    let mut silent = admin.clone().http1().connect().await;
    silent.write_all(format!("GET {query} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await.unwrap();
    let mut written = 0;
    for turn in 0..40 {
        let data = format!("{turn}{}", "x".repeat(500_000));
        written += data.len();
        assert_eq!(admin.post(CONFIG_MAPS, &config_map(&format!("m{turn}"), &data)).await.code, 201);
    }
    assert_eq!(admin.get("/readyz").await.code, 200);
    // The minute that the server has patience for. Nothing but the server waits for time.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    let mut rest = Vec::new();
    let end = timeout(PATIENCE, silent.read_to_end(&mut rest)).await.unwrap();
    assert!(end.is_err() && rest.len() < written, "{end:?} after {} bytes of {written}", rest.len());
    let told = timeout(PATIENCE, unread.into_body().collect()).await.unwrap();
    let told = told.map_or_else(|_| Bytes::new(), Collected::to_bytes);
    // Read on, it would be told that it is too late for the rest.
    let is_too_late = String::from_utf8_lossy(&told).contains("\"type\":\"ERROR\"");
    assert!(told.len() < written && !is_too_late, "{} bytes of {written}", told.len());
    timeout(PATIENCE, server.stop()).await.unwrap();
}
