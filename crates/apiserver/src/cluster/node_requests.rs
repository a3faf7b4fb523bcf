//! Where on a node a request goes on: logs and streams of its pods, and what is asked of itself.

use crablet_api::validate::{ErrorKind, FieldError};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::{Call, Cluster};
use crate::answer::{Answer, Document, Proxy};
use crate::object;
use crate::resources::{PODS, Subresource};
use crate::status::Refusal;

/// What Go writes in a query as it is.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

impl Cluster {
    /// Where a request goes on.
    pub(super) fn proxy(&self, call: &Call<'_>) -> Result<Answer, Refusal> {
        match (call.target.resource.plural, call.target.subresource) {
            ("nodes", Some(Subresource::Proxy)) => Ok(Answer::Proxy(of_the_node_itself(call))),
            ("pods", Some(Subresource::Log)) => self.log(call),
            ("pods", Some(Subresource::Exec)) => self.stream(call, "exec", true),
            ("pods", Some(Subresource::Attach)) => self.stream(call, "attach", true),
            ("pods", Some(Subresource::PortForward)) => self.stream(call, "portForward", false),
            // To pods and services themselves nothing leads from here.
            _ => Err(Refusal::method_not_allowed(call.target.resource, call.verb.name())),
        }
    }

    fn log(&self, call: &Call<'_>) -> Result<Answer, Refusal> {
        let options = LogOptions::of(call)?;
        options.check(&call.target.name)?;
        let pod = self.pod(call)?;
        let container = container(&pod, call.query.text("container"))?;
        let node = object::text(&pod, &["spec", "nodeName"]);
        if node.is_empty() {
            // Nobody has written anything yet.
            return Ok(Document { code: 204, content_type: "text/plain", ..Document::default() }.into());
        }
        let path = format!("/containerLogs/{}/{}/{container}", call.target.namespace, call.target.name);
        Ok(Answer::Proxy(Proxy {
            node: node.to_owned(),
            path: with_query(path, &options.parameters(call)),
            is_log: true,
        }))
    }

    fn stream(&self, call: &Call<'_>, verb: &str, of_a_container: bool) -> Result<Answer, Refusal> {
        let pod = self.pod(call)?;
        let (namespace, name) = (call.target.namespace.as_str(), call.target.name.as_str());
        let mut path = format!("/{verb}/{namespace}/{name}");
        if of_a_container {
            path.push('/');
            path.push_str(container(&pod, call.query.text("container"))?);
        }
        let node = object::text(&pod, &["spec", "nodeName"]);
        if node.is_empty() {
            return Err(Refusal::bad_request(format!("pod {name} does not have a host assigned")));
        }
        let mut parameters = Vec::new();
        if of_a_container {
            parameters.extend(call.query.all("command").map(|word| ("command", word.to_owned())));
            for (asked, said) in
                [("stderr", "error"), ("stdin", "input"), ("stdout", "output"), ("tty", "tty")]
            {
                if call.query.flag(asked) {
                    parameters.push((said, "1".to_owned()));
                }
            }
        } else {
            let ports: Vec<&str> = call.query.all("ports").collect();
            if !ports.is_empty() {
                parameters.push(("port", ports.join(",")));
            }
        }
        Ok(Answer::Proxy(Proxy { node: node.to_owned(), path: with_query(path, &parameters), is_log: false }))
    }

    fn pod(&self, call: &Call<'_>) -> Result<Value, Refusal> {
        let pod = self.state.read(&PODS, &call.target.namespace, &call.target.name);
        pod.ok_or_else(|| Refusal::not_found(&PODS, &call.target.name))
    }
}

/// `nodes/<name>/proxy/…`: the rest of the path, as it came.
fn of_the_node_itself(call: &Call<'_>) -> Proxy {
    // /api/v1/nodes/<name>/proxy/<rest>
    let rest = call.request.path.splitn(7, '/').nth(6).unwrap_or_default();
    let mut path = format!("/{rest}");
    if !call.request.query.is_empty() {
        path.push('?');
        path.push_str(&call.request.query);
    }
    Proxy { node: call.target.name.clone(), path, is_log: false }
}

/// The container that is meant.
fn container<'p>(pod: &'p Value, asked: &'p str) -> Result<&'p str, Refusal> {
    let named = |field| object::list(pod, &["spec", field]).iter().map(object_name);
    let mut all = named("initContainers").chain(named("containers")).chain(named("ephemeralContainers"));
    let name = object::name(pod);
    if !asked.is_empty() {
        return match all.any(|container| container == asked) {
            true => Ok(asked),
            false => Err(Refusal::bad_request(format!("container {asked} is not valid for pod {name}"))),
        };
    }
    let mut main = named("containers");
    match (main.next(), main.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => Err(Refusal::bad_request(format!("a container name must be specified for pod {name}"))),
        (Some(_), Some(_)) => {
            let all = all.collect::<Vec<_>>().join(" ");
            Err(Refusal::bad_request(format!(
                "a container name must be specified for pod {name}, choose one of: [{all}]"
            )))
        }
    }
}

fn object_name(container: &Value) -> &str {
    container["name"].as_str().unwrap_or_default()
}

/// What of a log is wanted.
struct LogOptions {
    tail_lines: Option<i64>,
    limit_bytes: Option<i64>,
    since_seconds: Option<i64>,
    since_time: Option<String>,
    stream: String,
}

impl LogOptions {
    fn of(call: &Call<'_>) -> Result<LogOptions, Refusal> {
        let number = |name: &str| match call.query.text(name) {
            "" => Ok(None),
            text => text.parse::<i64>().map(Some).map_err(|_| {
                Refusal::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
            }),
        };
        let since_time = match call.query.text("sinceTime") {
            "" => None,
            text => {
                let at = text
                    .parse::<jiff::Timestamp>()
                    .map_err(|error| Refusal::bad_request(error.to_string()))?;
                object::time(at).as_str().map(str::to_owned)
            }
        };
        let stream = match call.query.text("stream") {
            "" => "All",
            stream => stream,
        };
        Ok(LogOptions {
            tail_lines: number("tailLines")?,
            limit_bytes: number("limitBytes")?,
            since_seconds: number("sinceSeconds")?,
            since_time,
            stream: stream.to_owned(),
        })
    }

    fn check(&self, name: &str) -> Result<(), Refusal> {
        let mut errors = Vec::new();
        let mut error = |path: &str, kind, value: Option<String>, detail: &str| {
            errors.push(FieldError { path: path.to_owned(), kind, value, detail: detail.to_owned() });
        };
        if let Some(lines) = self.tail_lines.filter(|lines| *lines < 0) {
            let detail = "must be greater than or equal to 0";
            error("tailLines", ErrorKind::Invalid, Some(lines.to_string()), detail);
        }
        if let Some(bytes) = self.limit_bytes.filter(|bytes| *bytes < 1) {
            error("limitBytes", ErrorKind::Invalid, Some(bytes.to_string()), "must be greater than 0");
        }
        match (self.since_seconds, &self.since_time) {
            (Some(_), Some(_)) => {
                let detail = "at most one of `sinceTime` or `sinceSeconds` may be specified";
                error("", ErrorKind::Forbidden, None, detail);
            }
            (Some(seconds), None) if seconds < 1 => {
                error(
                    "sinceSeconds",
                    ErrorKind::Invalid,
                    Some(seconds.to_string()),
                    "must be greater than 0",
                );
            }
            (Some(_), None) | (None, _) => {}
        }
        let is_known = matches!(self.stream.as_str(), "All" | "Stdout" | "Stderr");
        if !is_known {
            let value = Some(format!("{:?}", self.stream));
            let detail = "supported values: \"All\", \"Stderr\", \"Stdout\"";
            error("stream", ErrorKind::NotSupported, value, detail);
        }
        if self.stream != "All" && self.tail_lines.is_some() {
            let detail = "`tailLines` and specific `stream` are mutually exclusive for now";
            error("", ErrorKind::Forbidden, None, detail);
        }
        match errors.is_empty() {
            true => Ok(()),
            false => Err(Refusal::invalid_kind("", "PodLogOptions", name, &errors)),
        }
    }

    /// In the order of their names.
    fn parameters(self, call: &Call<'_>) -> Vec<(&'static str, String)> {
        let flag = |name: &str| call.query.flag(name).then(|| "true".to_owned());
        let number = |number: Option<i64>| number.map(|number| number.to_string());
        let all = [
            ("follow", flag("follow")),
            ("limitBytes", number(self.limit_bytes)),
            ("previous", flag("previous")),
            ("sinceSeconds", number(self.since_seconds)),
            ("sinceTime", self.since_time),
            // Every node takes a log without it for all of it.
            ("stream", Some(self.stream).filter(|stream| stream != "All")),
            ("tailLines", number(self.tail_lines)),
            ("timestamps", flag("timestamps")),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

fn with_query(mut path: String, parameters: &[(&str, String)]) -> String {
    for (position, (name, value)) in parameters.iter().enumerate() {
        path.push(if position == 0 { '?' } else { '&' });
        path.push_str(name);
        path.push('=');
        path.extend(utf8_percent_encode(value, ESCAPED));
    }
    path
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::json;

    use super::*;
    use crate::cluster::Settings;
    use crate::request::Request;
    use crate::state::State;
    use crate::who::User;

    fn ask(method: &Method, url: &str) -> String {
        let mut state = State::default();
        let pod = |name: &str, node: &str, containers: &[&str]| {
            let containers: Vec<Value> = containers.iter().map(|name| json!({"name": name})).collect();
            json!({
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"nodeName": node, "initContainers": [{"name": "init"}], "containers": containers},
            })
        };
        state.put(&PODS, pod("web", "n1", &["main"]));
        state.put(&PODS, pod("two", "n1", &["a", "b"]));
        state.put(&PODS, pod("new", "", &["main"]));
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let request = Request {
            method: method.clone(),
            path: path.to_owned(),
            query: query.to_owned(),
            accept: String::new(),
            content_type: String::new(),
            user: User::new("admin", &["system:masters"]),
            body: Vec::new(),
        };
        match Cluster::new(state, Settings::default(), 1).handle(&request, jiff::Timestamp::UNIX_EPOCH) {
            Answer::Proxy(Proxy { node, path, .. }) => format!("{node} {path}"),
            Answer::Document(document) => {
                let body: Value = serde_json::from_slice(&document.body).unwrap_or_default();
                format!("{} {}", document.code, body["message"].as_str().unwrap_or_default())
            }
            Answer::Watch(_) => "watch".to_owned(),
        }
    }

    #[test]
    fn requests_go_on_to_the_pods_node() {
        for (url, expected) in [
            ("web/log", "n1 /containerLogs/default/web/main"),
            (
                "web/log?container=init&follow=true&previous=false&tailLines=5&timestamps=1&sinceTime=2026-11-15T12%3A00%3A00Z",
                "n1 /containerLogs/default/web/init?follow=true&sinceTime=2026-11-15T12%3A00%3A00Z&tailLines=5&timestamps=true",
            ),
            ("new/log", "204 "),
            ("gone/log", "404 pods \"gone\" not found"),
            ("web/log?container=x", "400 container x is not valid for pod web"),
            ("two/log", "400 a container name must be specified for pod two, choose one of: [init a b]"),
            ("web/log?tailLines=x", "400 strconv.ParseInt: parsing \"x\": invalid syntax"),
            (
                "web/log?tailLines=-1&limitBytes=0",
                "422 PodLogOptions \"web\" is invalid: [tailLines: Invalid value: -1: must be greater than or equal to 0, limitBytes: Invalid value: 0: must be greater than 0]",
            ),
            (
                "web/exec?command=sh&command=-c&command=a+b%26c&stdin=true&stdout=true&tty=false",
                "n1 /exec/default/web/main?command=sh&command=-c&command=a%20b%26c&input=1&output=1",
            ),
            ("web/attach?stderr=1", "n1 /attach/default/web/main?error=1"),
            ("new/exec", "400 pod new does not have a host assigned"),
            ("two/portforward", "n1 /portForward/default/two"),
            ("two/portforward?ports=80", "n1 /portForward/default/two?port=80"),
        ] {
            let url = format!("/api/v1/namespaces/default/pods/{url}");
            assert_eq!(ask(&Method::GET, &url), expected, "{url}");
        }
    }

    #[test]
    fn what_is_asked_of_a_node_goes_on_as_it_came() {
        for (url, expected) in [
            ("n1/proxy", "n1 /"),
            ("n1/proxy/", "n1 /"),
            ("n1/proxy/stats/summary?only=%41", "n1 /stats/summary?only=%41"),
            ("n1/proxy/a%20b/c/d/e/f/g/h/i", "n1 /a%20b/c/d/e/f/g/h/i"),
        ] {
            assert_eq!(ask(&Method::GET, &format!("/api/v1/nodes/{url}")), expected);
            assert_eq!(ask(&Method::POST, &format!("/api/v1/nodes/{url}")), expected);
        }
    }
}
