//! What only a node can answer, and the kubelet's path for it.

use crablet_api::validate::{Errors, FieldError};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::super::{Call, Cluster};
use crate::answer::{Answer, Document, Proxy};
use crate::object;
use crate::request::Query;
use crate::resources::{NODES, PODS, Subresource};
use crate::rules::pods::CONTAINER_LISTS;
use crate::status::Refusal;

/// What Go leaves as it is in a query.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b' ');

pub(super) fn answer(cluster: &Cluster, call: &Call<'_>) -> Result<Answer, Refusal> {
    match (call.target.resource.plural, call.target.subresource) {
        ("nodes", _) => node(cluster, call),
        ("pods", Some(Subresource::Log)) => log(cluster, call),
        ("pods", Some(Subresource::Exec)) => stream(cluster, call, "exec"),
        ("pods", Some(Subresource::Attach)) => stream(cluster, call, "attach"),
        ("pods", Some(Subresource::PortForward)) => port_forward(cluster, call),
        // Pods are reached through their node's kubelet alone.
        _ => Err(Refusal::new(
            503,
            "ServiceUnavailable",
            "the server is currently unable to handle the request",
        )),
    }
}

/// The parameters in the order of their names, as Go writes them; those of one name stay in theirs.
fn proxy(node: &str, path: String, mut query: Vec<(&str, String)>) -> Answer {
    query.sort_by_key(|(key, _)| *key);
    let query: Vec<String> = query.iter().map(|(key, value)| format!("{key}={}", escaped(value))).collect();
    let path = match query.is_empty() {
        true => path,
        false => format!("{path}?{}", query.join("&")),
    };
    let is_log = path.starts_with("/containerLogs/");
    Answer::Proxy(Proxy { node: node.to_owned(), path, is_log })
}

fn escaped(text: &str) -> String {
    utf8_percent_encode(text, QUERY).to_string().replace(' ', "+")
}

/// A node's own paths: the request goes on with its path and query as they are.
fn node(cluster: &Cluster, call: &Call<'_>) -> Result<Answer, Refusal> {
    let id = call.target.name.as_str();
    let parts: Vec<&str> = id.split(':').collect();
    let (scheme, name, port) = match parts.as_slice() {
        [name] => ("", *name, ""),
        [name, port] => ("", *name, *port),
        [scheme, name, port] => (*scheme, *name, *port),
        _ => ("invalid", "", ""),
    };
    if name.is_empty() || !matches!(scheme, "" | "http" | "https") {
        return Err(Refusal::bad_request(format!("invalid node request {id:?}")));
    }
    let Some(node) = cluster.state.read(&NODES, "", name) else {
        return Err(Refusal::not_found(&NODES, name));
    };
    let own = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_i64().unwrap_or(10250);
    if !port.is_empty() && port != own.to_string() {
        return Err(Refusal::bad_request("address not allowed"));
    }
    // Behind `/api/v1/nodes/NAME/proxy`.
    let rest: Vec<&str> = call.request.path.trim_start_matches('/').splitn(6, '/').collect();
    let rest = rest.get(5).copied().unwrap_or_default();
    let path = match call.request.query.as_str() {
        "" => format!("/{rest}"),
        query => format!("/{rest}?{query}"),
    };
    Ok(Answer::Proxy(Proxy { node: name.to_owned(), path, is_log: false }))
}

fn log(cluster: &Cluster, call: &Call<'_>) -> Result<Answer, Refusal> {
    let options = LogOptions::of(&call.query)?;
    let errors = options.check();
    if !errors.is_empty() {
        return Err(Refusal::invalid_kind("", "PodLogOptions", &call.target.name, &errors));
    }
    let pod = pod(cluster, call)?;
    let container = container(&pod, call.query.text("container"))?;
    let Some(node) = node_of(cluster, &pod)? else {
        // Nothing has run yet, so there is nothing to show.
        return Ok(Document { content_type: "text/plain", ..Document::text(204, "") }.into());
    };
    let path = format!("/containerLogs/{}/{}/{container}", object::namespace(&pod), object::name(&pod));
    Ok(proxy(&node, path, options.query()))
}

/// What is asked of a log.
struct LogOptions {
    flags: Vec<&'static str>,
    since_seconds: Option<i64>,
    since_time: Option<String>,
    tail_lines: Option<i64>,
    limit_bytes: Option<i64>,
    stream: Option<String>,
}

impl LogOptions {
    fn of(query: &Query) -> Result<LogOptions, Refusal> {
        let time = match query.get("sinceTime").filter(|text| !text.is_empty()) {
            None => None,
            Some(text) => Some(text.parse::<Timestamp>().map_err(|_| {
                Refusal::bad_request(format!(
                    "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\""
                ))
            })?),
        };
        Ok(LogOptions {
            flags: ["follow", "previous", "timestamps"].into_iter().filter(|name| query.flag(name)).collect(),
            since_seconds: query.number("sinceSeconds")?,
            since_time: time.map(|time| object::time(time).as_str().unwrap_or_default().to_owned()),
            tail_lines: query.number("tailLines")?,
            limit_bytes: query.number("limitBytes")?,
            stream: query.get("stream").map(str::to_owned),
        })
    }

    fn check(&self) -> Vec<FieldError> {
        let mut errors = Errors::default();
        if let Some(lines) = self.tail_lines.filter(|lines| *lines < 0) {
            errors.invalid("tailLines", lines, "must be greater than or equal to 0");
        }
        if let Some(bytes) = self.limit_bytes.filter(|bytes| *bytes < 1) {
            errors.invalid("limitBytes", bytes, "must be greater than 0");
        }
        match (self.since_seconds, &self.since_time) {
            (Some(_), Some(_)) => {
                errors.forbidden("[]", "at most one of `sinceTime` or `sinceSeconds` may be specified");
            }
            (Some(seconds), None) if seconds < 1 => {
                errors.invalid("sinceSeconds", seconds, "must be greater than 0");
            }
            (Some(_) | None, _) => {}
        }
        if self.stream.is_some() {
            errors.forbidden("stream", "may not be specified");
        }
        errors.into_list()
    }

    fn query(&self) -> Vec<(&'static str, String)> {
        let mut query: Vec<(&str, String)> =
            self.flags.iter().map(|flag| (*flag, "true".to_owned())).collect();
        for (name, value) in [
            ("sinceSeconds", self.since_seconds),
            ("tailLines", self.tail_lines),
            ("limitBytes", self.limit_bytes),
        ] {
            query.extend(value.map(|value| (name, value.to_string())));
        }
        query.extend(self.since_time.clone().map(|time| ("sinceTime", time)));
        query
    }
}

fn stream(cluster: &Cluster, call: &Call<'_>, verb: &str) -> Result<Answer, Refusal> {
    let pod = pod(cluster, call)?;
    let container = container(&pod, call.query.text("container"))?;
    let Some(node) = node_of(cluster, &pod)? else {
        return Err(without_host(&pod));
    };
    let mut query = Vec::new();
    if verb == "exec" {
        query.extend(call.query.all("command").map(|word| ("command", word.to_owned())));
    }
    let streams = [("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty")];
    query.extend(
        streams
            .into_iter()
            .filter(|(asked, _)| call.query.flag(asked))
            .map(|(_, sent)| (sent, "1".to_owned())),
    );
    let path = format!("/{verb}/{}/{}/{container}", object::namespace(&pod), object::name(&pod));
    Ok(proxy(&node, path, query))
}

fn port_forward(cluster: &Cluster, call: &Call<'_>) -> Result<Answer, Refusal> {
    let pod = pod(cluster, call)?;
    let Some(node) = node_of(cluster, &pod)? else {
        return Err(without_host(&pod));
    };
    let ports: Vec<&str> = call.query.all("ports").collect();
    for port in &ports {
        if port.parse::<i32>().is_err() {
            let why = format!("strconv.ParseInt: parsing {port:?}: invalid syntax");
            return Err(Refusal::bad_request(why));
        }
    }
    let query = if ports.is_empty() { vec![] } else { vec![("port", ports.join(","))] };
    let path = format!("/portForward/{}/{}", object::namespace(&pod), object::name(&pod));
    Ok(proxy(&node, path, query))
}

fn pod(cluster: &Cluster, call: &Call<'_>) -> Result<Value, Refusal> {
    let target = &call.target;
    cluster
        .state
        .read(&PODS, &target.namespace, &target.name)
        .ok_or_else(|| Refusal::not_found(&PODS, &target.name))
}

/// The node of a pod, which must be there; none if the pod has none yet.
fn node_of(cluster: &Cluster, pod: &Value) -> Result<Option<String>, Refusal> {
    let name = object::text(pod, &["spec", "nodeName"]);
    if name.is_empty() {
        return Ok(None);
    }
    match cluster.state.read(&NODES, "", name) {
        Some(_) => Ok(Some(name.to_owned())),
        // In upstream's words, which take the node for a pod.
        None => Err(Refusal::not_found(&PODS, name)),
    }
}

fn without_host(pod: &Value) -> Refusal {
    Refusal::bad_request(format!("pod {} does not have a host assigned", object::name(pod)))
}

/// The container that is meant.
fn container(pod: &Value, asked: &str) -> Result<String, Refusal> {
    let all: Vec<&str> = CONTAINER_LISTS
        .iter()
        .flat_map(|list| object::list(pod, &["spec", list]))
        .map(|container| object::text(container, &["name"]))
        .collect();
    let name = object::name(pod);
    if !asked.is_empty() {
        return match all.contains(&asked) {
            true => Ok(asked.to_owned()),
            false => Err(Refusal::bad_request(format!("container {asked} is not valid for pod {name}"))),
        };
    }
    match object::list(pod, &["spec", "containers"]) {
        [only] => Ok(object::text(only, &["name"]).to_owned()),
        [] => Err(Refusal::bad_request(format!("a container name must be specified for pod {name}"))),
        [_, _, ..] => Err(Refusal::bad_request(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            all.join(" ")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::Settings;
    use crate::request::Request;
    use crate::state::State;
    use crate::who::User;

    fn ask(cluster: &mut Cluster, method: &str, target: &str) -> String {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let request = Request {
            method: method.parse().unwrap(),
            path: path.to_owned(),
            query: query.to_owned(),
            accept: String::new(),
            content_type: String::new(),
            user: User::new("admin", &["system:masters"]),
            body: Vec::new(),
        };
        match cluster.handle(&request, "2026-01-01T00:00:00Z".parse().unwrap()) {
            Answer::Proxy(Proxy { node, path, .. }) => format!("{node} {path}"),
            Answer::Document(document) => {
                let status: Value = serde_json::from_slice(&document.body).unwrap_or_default();
                format!("{} {}", document.code, object::text(&status, &["message"]))
            }
            Answer::Watch(_) | Answer::Usage(_) => "something else".to_owned(),
        }
    }

    #[test]
    fn requests_go_on_to_the_kubelets_paths() {
        let mut cluster = Cluster::new(State::default(), Settings::default(), 1);
        let container = |name: &str| json!({"name": name});
        cluster.state.put(&NODES, json!({"metadata": {"name": "n1"}}));
        for (name, node, containers) in [
            ("one", "n1", vec![container("c")]),
            ("two", "n1", vec![container("c"), container("d")]),
            ("lost", "gone", vec![container("c")]),
            ("early", "", vec![container("c")]),
        ] {
            let spec =
                json!({"nodeName": node, "containers": containers, "initContainers": [container("i")]});
            cluster.state.put(&PODS, json!({"metadata": {"name": name, "namespace": "a"}, "spec": spec}));
        }
        let pods = "/api/v1/namespaces/a/pods";
        for (method, target, expected) in [
            ("GET", format!("{pods}/one/log"), "n1 /containerLogs/a/one/c"),
            (
                "GET",
                format!(
                    "{pods}/one/log?follow=true&tailLines=5&timestamps=false&container=i&sinceTime=2026-01-01T00:00:00Z"
                ),
                "n1 /containerLogs/a/one/i?follow=true&sinceTime=2026-01-01T00%3A00%3A00Z&tailLines=5",
            ),
            (
                "POST",
                format!(
                    "{pods}/one/exec?tty=true&stdout=true&stdin=1&command=sh&command=-c&command=echo+%22a%22&container=c"
                ),
                "n1 /exec/a/one/c?command=sh&command=-c&command=echo+%22a%22&input=1&output=1&tty=1",
            ),
            ("GET", format!("{pods}/one/attach?stderr=true"), "n1 /attach/a/one/c?error=1"),
            (
                "POST",
                format!("{pods}/one/portforward?ports=80&ports=81"),
                "n1 /portForward/a/one?port=80%2C81",
            ),
            (
                "POST",
                format!("{pods}/two/exec?command=ls"),
                "400 a container name must be specified for pod two, choose one of: [i c d]",
            ),
            ("POST", format!("{pods}/early/exec?command=ls"), "400 pod early does not have a host assigned"),
            ("GET", format!("{pods}/early/log"), "204 "),
            ("GET", format!("{pods}/lost/log"), "404 pods \"gone\" not found"),
            ("GET", "/api/v1/nodes/n1/proxy/stats/summary?only=cpu".to_owned(), "n1 /stats/summary?only=cpu"),
            ("PUT", "/api/v1/nodes/n1:10250/proxy/run/a%2Fb/".to_owned(), "n1 /run/a%2Fb/"),
            ("GET", "/api/v1/nodes/none/proxy".to_owned(), "404 nodes \"none\" not found"),
        ] {
            assert_eq!(ask(&mut cluster, method, &target), expected, "{method} {target}");
        }
    }
}
