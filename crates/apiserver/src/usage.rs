//! What nodes and pods use (`metrics.k8s.io`), from what nodes say of themselves (`/metrics/resource`). Nothing is
//! gathered ahead: a node is asked when somebody asks us, and what it used is the difference to what it said before.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::answer::Document;
use crate::cluster::{Call, Cluster};
use crate::object;
use crate::request::{Query, Target};
use crate::resources::{NODES, PODS, Resource};
use crate::selectors::Selection;
use crate::status::Refusal;

/// The most series of one node that are taken in.
const MOST_SERIES: usize = 20_000;

/// Whose use is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageQuery {
    pub resource: &'static Resource,
    pub namespace: String,
    /// Empty for all.
    pub name: String,
    pub query: String,
    /// The nodes that know.
    pub nodes: Vec<String>,
}

/// The objects that a resource of `metrics.k8s.io` is about.
fn counted(resource: &Resource) -> &'static Resource {
    if resource.is_namespaced() { &PODS } else { &NODES }
}

/// What a node said at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    node: Reading,
    /// By namespace, pod and container.
    containers: BTreeMap<(String, String, String), Reading>,
}

/// One counter of CPU, when it was read, and the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Reading {
    cpu_seconds: Option<(f64, Timestamp)>,
    memory: Option<u64>,
}

impl Sample {
    /// Reads what a node says of itself. What is not understood is left out.
    pub fn parse(text: &str, now: Timestamp) -> Sample {
        let mut sample = Sample::default();
        for line in text.lines().filter(|line| !line.starts_with('#')).take(MOST_SERIES) {
            let Some(Series { name, labels, value, at }) = series(line, now) else { continue };
            let reading = match name {
                "node_cpu_usage_seconds_total" | "node_memory_working_set_bytes" => &mut sample.node,
                "container_cpu_usage_seconds_total" | "container_memory_working_set_bytes" => {
                    let label = |wanted| labels.iter().find(|(name, _)| *name == wanted);
                    let (Some(namespace), Some(pod), Some(container)) =
                        (label("namespace"), label("pod"), label("container"))
                    else {
                        continue;
                    };
                    let owned = |label: &(&str, String)| label.1.clone();
                    let key = (owned(namespace), owned(pod), owned(container));
                    sample.containers.entry(key).or_default()
                }
                _ => continue,
            };
            match name.ends_with("_bytes") {
                true => reading.memory = Some(value as u64),
                false => reading.cpu_seconds = Some((value, at)),
            }
        }
        sample
    }

    /// Whether the node has looked at itself since the other one.
    pub fn is_newer_than(&self, other: &Sample) -> bool {
        match (self.node.cpu_seconds, other.node.cpu_seconds) {
            (Some((_, at)), Some((_, before))) => at > before,
            // It says nothing of itself, and waiting will not help.
            (None, _) | (_, None) => true,
        }
    }
}

type Labels<'t> = Vec<(&'t str, String)>;

struct Series<'t> {
    name: &'t str,
    labels: Labels<'t>,
    value: f64,
    at: Timestamp,
}

/// `name{label="value",…} value milliseconds`.
fn series(line: &str, now: Timestamp) -> Option<Series<'_>> {
    let (name, (labels, rest)) = match line.split_once('{') {
        Some((name, rest)) => (name, labels(rest)?),
        None => line.split_once(' ').map(|(name, rest)| (name, (Labels::new(), rest)))?,
    };
    let mut words = rest.split_whitespace();
    let value: f64 = words.next()?.parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0)?;
    let at = match words.next() {
        Some(milliseconds) => Timestamp::from_millisecond(milliseconds.parse().ok()?).ok()?,
        None => now,
    };
    Some(Series { name, labels, value, at })
}

/// The labels after an opening brace, and what follows the closing one.
fn labels(mut text: &str) -> Option<(Labels<'_>, &str)> {
    let mut labels = Labels::new();
    loop {
        text = text.trim_start_matches([',', ' ']);
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, rest) = text.split_once("=\"")?;
        let (mut value, mut letters) = (String::new(), rest.char_indices());
        text = loop {
            let (at, letter) = letters.next()?;
            match letter {
                '"' => break rest.get(at + 1..)?,
                '\\' => match letters.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                other => value.push(other),
            }
        };
        labels.push((name, value));
    }
}

/// What was used between two readings: CPU in billionths, memory now, until when, and over how long.
struct Use {
    nanocores: u64,
    memory: u64,
    until: Timestamp,
    window: SignedDuration,
}

impl Use {
    /// None where it cannot be told yet.
    fn between(before: &Reading, after: &Reading) -> Option<Use> {
        let ((earlier, since), (later, until)) = (before.cpu_seconds?, after.cpu_seconds?);
        let window = until.duration_since(since);
        // A container that started anew counts from zero.
        if later < earlier || window <= SignedDuration::ZERO {
            return None;
        }
        let nanocores = ((later - earlier) / window.as_secs_f64() * 1e9) as u64;
        Some(Use { nanocores, memory: after.memory?, until, window })
    }

    fn quantities(&self) -> Value {
        let memory = match self.memory % 1024 {
            0 => format!("{}Ki", self.memory / 1024),
            _ => self.memory.to_string(),
        };
        let cpu = if self.nanocores == 0 { "0".to_owned() } else { format!("{}n", self.nanocores) };
        json!({"cpu": cpu, "memory": memory})
    }

    /// What a document says of the time.
    fn times(&self) -> (Value, Value) {
        (object::time(self.until), format!("{:.3}s", self.window.as_secs_f64()).into())
    }
}

impl Cluster {
    /// What has to be found out for a question about use. A server that is an API server alone has none.
    pub(crate) fn usage(&self, call: &Call<'_>) -> Result<UsageQuery, Refusal> {
        let Target { resource, namespace, name, .. } = call.target.clone();
        if !self.settings.controllers {
            return Err(Refusal::no_such_path());
        }
        let nodes = self.state.list(&NODES, None).map(|(key, _)| key.name.to_string());
        let nodes = nodes.filter(|node| resource.is_namespaced() || name.is_empty() || *node == name);
        Ok(UsageQuery {
            resource,
            nodes: nodes.collect(),
            query: call.request.query.clone(),
            namespace,
            name,
        })
    }

    /// The answer to a question about use, from what each node said before and now.
    pub fn show_usage(
        &self,
        asked: &UsageQuery,
        said: &BTreeMap<String, (Sample, Sample)>,
        now: Timestamp,
    ) -> Result<Document, Refusal> {
        let query = Query::parse(&asked.query);
        let selection = Selection::of(counted(asked.resource), &query)?;
        let is_meant = |key: &crate::state::Key| asked.name.is_empty() || *key.name == *asked.name;
        let namespace = Some(asked.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        let is_nodes = !asked.resource.is_namespaced();
        let objects = self.state.list(counted(asked.resource), namespace);
        let mut items = Vec::new();
        for (key, stored) in objects.filter(|(key, stored)| is_meant(key) && selection.matches(key, stored)) {
            let object = stored.decode();
            let item = if is_nodes { node_use(&object, said) } else { pod_use(&object, said) };
            items.extend(item.map(|item| {
                let mut metadata = json!({
                    "name": *key.name,
                    "creationTimestamp": object::time(now),
                });
                if !is_nodes {
                    metadata["namespace"] = (*key.namespace).into();
                }
                if let Some(labels) = object["metadata"].get("labels") {
                    metadata["labels"] = labels.clone();
                }
                with_metadata(metadata, item)
            }));
        }
        let (kind, version) = (asked.resource.kind, asked.resource.api_version());
        if asked.name.is_empty() {
            let list =
                json!({"kind": format!("{kind}List"), "apiVersion": version, "metadata": {}, "items": items});
            return Ok(Document::json(200, &list));
        }
        let mut item = items.pop().ok_or_else(|| not_found(asked))?;
        item["kind"] = kind.into();
        item["apiVersion"] = version.into();
        Ok(Document::json(200, &item))
    }
}

/// In the words of metrics-server, which has it in real clusters.
fn not_found(asked: &UsageQuery) -> Refusal {
    let (group, kind) = (asked.resource.group, asked.resource.kind.to_lowercase());
    let name = match asked.namespace.as_str() {
        "" => asked.name.clone(),
        namespace => format!("{namespace}/{}", asked.name),
    };
    let mut refusal = Refusal::new(404, "NotFound", format!("{kind}.{group} {name:?} not found"));
    refusal.details = Some(json!({"name": name, "group": group, "kind": kind}));
    refusal
}

fn with_metadata(metadata: Value, mut item: Value) -> Value {
    item["metadata"] = metadata;
    item
}

fn node_use(node: &Value, said: &BTreeMap<String, (Sample, Sample)>) -> Option<Value> {
    let (before, after) = said.get(object::name(node))?;
    let used = Use::between(&before.node, &after.node)?;
    let (timestamp, window) = used.times();
    Some(json!({"timestamp": timestamp, "window": window, "usage": used.quantities()}))
}

/// Nothing as long as one of its containers that should run is not known yet, as upstream's server has it.
fn pod_use(pod: &Value, said: &BTreeMap<String, (Sample, Sample)>) -> Option<Value> {
    let (before, after) = said.get(object::text(pod, &["spec", "nodeName"]))?;
    let (namespace, name) = (object::namespace(pod), object::name(pod));
    let mut containers = Vec::new();
    let mut last: Option<Use> = None;
    let of_pod =
        after.containers.iter().filter(|((in_namespace, of, _), _)| in_namespace == namespace && of == name);
    for (key, reading) in of_pod {
        let used = Use::between(before.containers.get(key)?, reading)?;
        containers.push(json!({"name": key.2, "usage": used.quantities()}));
        if last.as_ref().is_none_or(|last| used.until > last.until) {
            last = Some(used);
        }
    }
    let (timestamp, window) = last?.times();
    Some(json!({"timestamp": timestamp, "window": window, "containers": containers}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Settings;
    use crate::resources::{METRICS_OF_NODES, METRICS_OF_PODS};
    use crate::state::State;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    /// As a kubelet says it.
    fn said(cpu: f64, at: i64) -> String {
        format!(
            "# TYPE container_cpu_usage_seconds_total counter\n\
             container_cpu_usage_seconds_total{{container=\"a\",namespace=\"shop\",pod=\"two\"}} {cpu} {at}\n\
             container_cpu_usage_seconds_total{{container=\"b\",namespace=\"shop\",pod=\"two\"}} 0.5 {at}\n\
             container_memory_working_set_bytes{{container=\"a\",namespace=\"shop\",pod=\"two\"}} 1.028096e+06 {at}\n\
             container_memory_working_set_bytes{{container=\"b\",namespace=\"shop\",pod=\"two\"}} 1000 {at}\n\
             container_start_time_seconds{{container=\"a\",namespace=\"shop\",pod=\"two\"}} 1.7e+09\n\
             node_cpu_usage_seconds_total {} {at}\n\
             node_memory_working_set_bytes 1.290653696e+09 {at}\n\
             resource_scrape_error 0\n",
            cpu * 10.0
        )
    }

    fn cluster() -> Cluster {
        let mut state = State::default();
        state.put(&NODES, json!({"metadata": {"name": "n", "labels": {"a": "b"}}}));
        state.put(&NODES, json!({"metadata": {"name": "silent"}}));
        for name in ["two", "unknown"] {
            state.put(
                &PODS,
                json!({"metadata": {"name": name, "namespace": "shop"}, "spec": {"nodeName": "n"}}),
            );
        }
        Cluster::new(state, Settings::default(), 1)
    }

    fn show(resource: &'static Resource, name: &str, query: &str, second: &str) -> Result<Value, u16> {
        let parse = |text: &str| Sample::parse(text, NOW);
        let said = BTreeMap::from([("n".to_owned(), (parse(&said(1.0, 10_000)), parse(second)))]);
        let namespace = if resource.is_namespaced() { "shop" } else { "" }.to_owned();
        let asked =
            UsageQuery { resource, namespace, name: name.into(), query: query.into(), nodes: Vec::new() };
        let document = cluster().show_usage(&asked, &said, NOW);
        document
            .map(|document| serde_json::from_slice(&document.body).unwrap())
            .map_err(|refusal| refusal.code)
    }

    #[test]
    fn use_is_the_difference_over_the_time_between() {
        let shown = show(&METRICS_OF_NODES, "", "", &said(1.5, 12_000)).unwrap();
        let expected = json!({
            "kind": "NodeMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {},
            "items": [{
                "metadata": {"name": "n", "creationTimestamp": "1970-01-01T00:00:00Z", "labels": {"a": "b"}},
                "timestamp": "1970-01-01T00:00:12Z", "window": "2.000s",
                "usage": {"cpu": "2500000000n", "memory": "1260404Ki"},
            }],
        });
        assert_eq!(shown, expected);
        let shown = show(&METRICS_OF_PODS, "two", "", &said(1.5, 12_000)).unwrap();
        assert_eq!((&shown["kind"], &shown["metadata"]["namespace"]), (&"PodMetrics".into(), &"shop".into()));
        assert_eq!(
            shown["containers"],
            json!([
                {"name": "a", "usage": {"cpu": "250000000n", "memory": "1004Ki"}},
                {"name": "b", "usage": {"cpu": "0", "memory": "1000"}},
            ])
        );
    }

    #[test]
    fn what_cannot_be_told_is_left_out_and_what_is_asked_for_by_name_is_not_there() {
        let items =
            |second: &str| show(&METRICS_OF_PODS, "", "", second).unwrap()["items"].as_array().unwrap().len();
        assert_eq!(items(&said(1.5, 12_000)), 1);
        assert_eq!(items(&said(0.5, 12_000)), 0, "it started anew");
        assert_eq!(items(&said(1.5, 10_000)), 0, "the node has not looked again");
        assert_eq!(items(""), 0);
        assert_eq!(show(&METRICS_OF_PODS, "unknown", "", &said(1.5, 12_000)), Err(404));
        assert_eq!(show(&METRICS_OF_NODES, "silent", "", &said(1.5, 12_000)), Err(404));
        let nodes = |query| {
            show(&METRICS_OF_NODES, "", query, &said(1.5, 12_000))
                .map(|list| list["items"].as_array().unwrap().len())
        };
        assert_eq!((nodes("labelSelector=a%3Db"), nodes("labelSelector=a%3Dc")), (Ok(1), Ok(0)));
        assert_eq!(nodes("labelSelector=%3D%3D"), Err(400));
    }

    #[test]
    fn lines_that_make_no_sense_are_passed_over() {
        for line in [
            "",
            "node_cpu_usage_seconds_total",
            "node_cpu_usage_seconds_total x",
            "node_cpu_usage_seconds_total NaN 1",
            "node_cpu_usage_seconds_total -1 1",
            "node_cpu_usage_seconds_total 1 x",
            "container_cpu_usage_seconds_total{container=\"a\"} 1 1",
            "container_cpu_usage_seconds_total{a=\"b} 1 1",
            "container_cpu_usage_seconds_total{",
            "container_cpu_usage_seconds_total{a=\"\\",
        ] {
            assert_eq!(Sample::parse(line, NOW), Sample::default(), "{line}");
        }
        let (labels, rest) = labels(r#"a="x\"y\\z\n",b="",} 1"#).unwrap();
        assert_eq!((labels, rest), (vec![("a", "x\"y\\z\n".to_owned()), ("b", String::new())], " 1"));
    }
}
