//! The embedded server, within the process.

use crablet_apiserver::answer::Answer;
use crablet_apiserver::cluster::{Cluster, Settings};
use crablet_apiserver::request::Request;
use crablet_apiserver::state::State;
use crablet_apiserver::watch::Next;
use crablet_apiserver::who::User;
use jiff::{SignedDuration, Timestamp};

use crate::{Asked, Body, Server};

pub struct Embedded {
    cluster: Cluster,
    now: Timestamp,
}

impl Embedded {
    pub fn start() -> Embedded {
        // The real one was alone as well, without a controller manager.
        let settings = Settings { controllers: false, ..Settings::default() };
        let mut cluster = Cluster::new(State::default(), settings, 1);
        let now = "2026-01-02T03:04:05Z".parse().unwrap();
        cluster.tick(now);
        Embedded { cluster, now }
    }
}

impl Server for Embedded {
    fn ask(&mut self, asked: &Asked) -> (u16, Body) {
        let header = |name: &str| {
            let found = asked.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.clone())
        };
        let user = match header("Impersonate-User") {
            None => User::new("admin", &["system:masters", "system:authenticated"]),
            Some(name) => {
                let groups = asked.headers.iter().filter(|(key, _)| key == "Impersonate-Group");
                let mut groups: Vec<&str> = groups.map(|(_, group)| group.as_str()).collect();
                groups.push("system:authenticated");
                User::new(&name, &groups)
            }
        };
        let request = Request {
            method: asked.method.parse().unwrap(),
            path: asked.path.clone(),
            query: asked.query.clone(),
            accept: header("Accept").unwrap_or_else(|| "application/json".to_owned()),
            content_type: header("Content-Type").unwrap_or_else(|| "application/json".to_owned()),
            user,
            body: asked.body.clone().into_bytes(),
        };
        let answer = self.cluster.handle(&request, self.now);
        self.cluster.tick(self.now);
        match answer {
            Answer::Document(document) => {
                let is_json = document.content_type.starts_with("application/json");
                let text = String::from_utf8(document.body).unwrap();
                let json = serde_json::from_str(&text).ok().filter(|_| is_json);
                (document.code, json.map_or(Body::Text(text.trim_end().to_owned()), Body::Json))
            }
            Answer::Watch(mut watch) => {
                let mut lines = Vec::new();
                let mut now = self.now;
                loop {
                    match watch.next(&self.cluster.state, u64::MAX, now) {
                        Next::Line(line) => lines.push(serde_json::from_slice(&line).unwrap()),
                        // A real one is given a second.
                        Next::Wait(_) if now > self.now => break,
                        Next::Wait(_) => now += SignedDuration::from_secs(1),
                        Next::End => break,
                    }
                }
                (200, Body::Lines(lines))
            }
            Answer::Usage(asked) => (200, Body::Text(format!("{asked:?}"))),
            Answer::Proxy(proxy) => (200, Body::Text(format!("{} {}", proxy.node, proxy.path))),
        }
    }
}
