//! `kill -9` in the middle of writes: nothing that was acknowledged is lost.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Method;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::Notify;

use crate::client::Client;
use crate::running::{CONFIG_MAPS, config_map, options};

const DATA_DIR: &str = "CRABLET_TEST_DATA_DIR";

/// The process that is killed: this program, with nothing but this test.
#[tokio::test]
#[ignore = "it is what other tests kill"]
async fn serves_until_it_is_killed() {
    let Some(data_dir) = std::env::var_os(DATA_DIR) else { return };
    let options = options(Path::new(&data_dir));
    let server =
        crablet_apiserver::server::Server::start(options, crablet_host::clock::Clock::system()).await;
    let server = server.unwrap();
    println!("serving {}", server.address());
    server.run(tokio_util::sync::CancellationToken::new()).await;
}

async fn start(data_dir: &Path) -> (Child, SocketAddr) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kills::serves_until_it_is_killed", "--ignored", "--nocapture"])
        .env(DATA_DIR, data_dir)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    loop {
        let line = lines.next_line().await.unwrap().expect("it says where it serves");
        if let Some((_, address)) = line.split_once("serving ") {
            return (child, address.parse().unwrap());
        }
    }
}

/// Writes from several clients until the server is dead, which it is after so many acknowledgements.
async fn write_and_kill(data_dir: &Path, round: usize, acknowledgements: usize) -> BTreeSet<String> {
    let (mut child, address) = start(data_dir).await;
    let client = Client::new(address, &data_dir.join("pki")).with_certificate(&data_dir.join("pki"), "admin");
    let client = client.with_header("content-type", "application/json");
    let (count, enough) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let writers = (0..4).map(|writer| {
        let (client, count, enough) = (client.clone(), Arc::clone(&count), Arc::clone(&enough));
        tokio::spawn(async move {
            let mut acknowledged = BTreeSet::new();
            let io = hyper_util::rt::TokioIo::new(client.connect().await);
            let executor = hyper_util::rt::TokioExecutor::new();
            let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
            tokio::spawn(connection);
            for turn in 0.. {
                let name = format!("r{round}-w{writer}-{turn}");
                let body = config_map(&name, &"x".repeat(turn % 7 * 900)).to_string();
                let request = client.request(Method::POST, CONFIG_MAPS, body);
                let Ok(response) = sender.send_request(request).await else { break };
                assert_eq!(response.status(), 201);
                acknowledged.insert(name);
                if count.fetch_add(1, Ordering::Relaxed) + 1 >= acknowledgements {
                    enough.notify_one();
                }
            }
            acknowledged
        })
    });
    let writers: Vec<_> = writers.collect();
    enough.notified().await;
    child.kill().await.unwrap();
    let mut acknowledged = BTreeSet::new();
    for writer in writers {
        acknowledged.extend(writer.await.unwrap());
    }
    acknowledged
}

async fn kill_again_and_again(rounds: usize, acknowledgements: usize) {
    let directory = tempfile::tempdir().unwrap();
    let mut acknowledged = BTreeSet::new();
    for round in 0..rounds {
        // Not always at the same place.
        acknowledged.extend(write_and_kill(directory.path(), round, acknowledgements + round % 13).await);
    }
    let pki = directory.path().join("pki");
    let (_child, address) = start(directory.path()).await;
    let client = Client::new(address, &pki).with_certificate(&pki, "admin");
    let list = client.get(CONFIG_MAPS).await.json();
    // One of them is the cluster's own.
    let mut items = list["items"].as_array().unwrap().clone();
    items.retain(|item| item["metadata"]["name"] != "kube-root-ca.crt");
    let found: BTreeSet<String> =
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect();
    let lost: Vec<_> = acknowledged.difference(&found).collect();
    assert!(lost.is_empty(), "{} of {} are lost: {lost:?}", lost.len(), acknowledged.len());
    // Of what was not acknowledged, each is there as a whole or not at all; and versions only grow.
    let mut versions = BTreeSet::new();
    for item in &items {
        assert!(item["data"]["key"].is_string(), "{item}");
        assert!(versions.insert(item["metadata"]["resourceVersion"].as_str().unwrap().to_owned()));
    }
}

#[tokio::test]
async fn a_killed_server_has_lost_nothing_that_it_had_acknowledged() {
    kill_again_and_again(3, 40).await;
}

#[tokio::test]
#[ignore = "takes minutes: make soak"]
async fn soak_a_server_that_is_killed_a_hundred_times_has_lost_nothing() {
    kill_again_and_again(100, 100).await;
}
