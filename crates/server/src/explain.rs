//! `/explain`: why the pods of the node are as they are.

mod words;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use crablet_agent::agent::Agent;
use crablet_agent::images::Pull;
use crablet_agent::sources::Problem;
use crablet_agent::story::{Story, Summary};
use crablet_api::core::{PodSpec, VolumeSource};
use serde_json::{Value, json};

use crate::node::NodeHandles;
use crate::query;
use crate::respond::{json, text};

/// How many of the pods that are gone to tell of when nobody asked for one.
const GONE_SHOWN: usize = 5;

/// `GET /explain`: a sentence on each pod. `GET /explain?pod=<pod>`: the whole story of one, by its UID, its name, or
/// its namespace and name; also of one that is gone not long ago. Both as text, or with `output=json` as JSON.
pub(crate) async fn explain(State(node): State<NodeHandles>, RawQuery(query): RawQuery) -> Response {
    let as_json = query::value(query.as_deref(), "output").as_deref() == Some("json");
    let pod = query::value(query.as_deref(), "pod").filter(|pod| !pod.is_empty());
    match pod {
        None => {
            let overview = Overview::of(&node);
            match as_json {
                true => pretty(&overview.to_json(&node)),
                false => text(StatusCode::OK, words::overview(&overview, &node)),
            }
        }
        Some(pod) => match Explanation::of(&node, &pod) {
            Ok(told) if as_json => pretty(&told.to_json()),
            Ok(told) => text(StatusCode::OK, words::told(&told, node.clock.now())),
            Err(unknown) => text(StatusCode::NOT_FOUND, words::unknown(&unknown)),
        },
    }
}

/// What is to be said of the whole node.
struct Overview {
    /// What the agent waits for before it starts pods.
    waits_for: Option<String>,
    problems: Vec<Problem>,
    pods: Vec<(Summary, Vec<Pull>)>,
}

impl Overview {
    fn of(node: &NodeHandles) -> Overview {
        let problems = node.problems.list();
        match node.agent() {
            Err(awaited) => Overview { waits_for: Some(awaited), problems, pods: Vec::new() },
            Ok(agent) => {
                let (mut live, mut gone): (Vec<Summary>, Vec<Summary>) =
                    agent.stories.summaries().into_iter().partition(|summary| summary.gone.is_none());
                live.sort_by(|a, b| name(a).cmp(&name(b)));
                gone.truncate(GONE_SHOWN);
                let with_pulls = |summary: Summary| {
                    let pulls = pulls(&agent, &summary);
                    (summary, pulls)
                };
                Overview {
                    waits_for: None,
                    problems,
                    pods: live.into_iter().chain(gone).map(with_pulls).collect(),
                }
            }
        }
    }

    fn to_json(&self, node: &NodeHandles) -> Value {
        let now = node.clock.now();
        let pods = self.pods.iter().map(|(summary, pulls)| {
            let mut pod = json!(summary);
            pod["sentence"] = summary.sentence(now).into();
            pod["pulls"] = pulls.iter().map(pull_to_json).collect();
            pod
        });
        let problems = self.problems.iter().map(problem_to_json);
        json!({
            "waitsFor": self.waits_for,
            "problems": problems.collect::<Vec<_>>(),
            "pods": pods.collect::<Vec<_>>(),
        })
    }
}

/// What is to be said of the pods that somebody asked for. There can be several of one name.
struct Explanation {
    /// What is wrong with their manifests.
    problems: Vec<Problem>,
    stories: Vec<(Story, Vec<Pull>)>,
}

/// A pod that nothing is known of, and what might have been meant.
struct Unknown {
    text: String,
    waits_for: Option<String>,
    problems: Vec<Problem>,
    similar: Vec<String>,
    known: Vec<String>,
}

impl Explanation {
    fn of(node: &NodeHandles, text: &str) -> Result<Explanation, Unknown> {
        let (agent, waits_for) = match node.agent() {
            Ok(agent) => (Some(agent), None),
            Err(awaited) => (None, Some(awaited)),
        };
        let found = agent.as_ref().and_then(|agent| {
            let find = |text: &String| agent.stories.find(text);
            node.names(text).iter().map(find).find(|found| !found.is_empty())
        });
        let (Some(agent), Some(found)) = (&agent, found) else {
            let known: Vec<String> = agent.iter().flat_map(known_names).collect();
            return Err(Unknown {
                similar: similar(text, &known, &node.name),
                problems: problems_about(node, text, &[]),
                text: text.to_owned(),
                waits_for,
                known,
            });
        };
        let with_pulls = |story: Story| {
            let pulls = pulls(agent, &story.summary);
            (story, pulls)
        };
        let origins: Vec<String> = found
            .iter()
            .flat_map(|story| node.owners.of(&story.summary.pod.namespace, &story.summary.pod.name))
            .map(|owner| owner.origin.to_string())
            .collect();
        Ok(Explanation {
            problems: problems_about(node, text, &origins),
            stories: found.into_iter().map(with_pulls).collect(),
        })
    }

    fn to_json(&self) -> Value {
        let stories = self.stories.iter().map(|(story, pulls)| {
            let mut story = json!(story);
            story["pulls"] = pulls.iter().map(pull_to_json).collect();
            story
        });
        let problems = self.problems.iter().map(problem_to_json);
        json!({ "problems": problems.collect::<Vec<_>>(), "stories": stories.collect::<Vec<_>>() })
    }
}

/// What is wrong with manifests that seem to be those of a pod.
fn problems_about(node: &NodeHandles, text: &str, origins: &[String]) -> Vec<Problem> {
    let name = text.rsplit('/').next().unwrap_or(text);
    let name = name.strip_suffix(&format!("-{}", node.name.to_lowercase())).unwrap_or(name);
    let mut problems = node.problems.list();
    problems.retain(|problem| {
        let is_named = |text: &str| text.contains(name);
        let file = problem.origin.rsplit('/').next().unwrap_or_default();
        origins.contains(&problem.origin) || is_named(file) || is_named(&problem.message)
    });
    problems
}

/// The pulls that a pod waits for.
fn pulls(agent: &Agent, summary: &Summary) -> Vec<Pull> {
    let Some(view) = agent.statuses.get(&summary.pod.uid) else { return Vec::new() };
    let spec = &view.pod.spec;
    let running: Vec<&str> = view
        .status
        .init_and_regular_statuses()
        .filter(|status| !status.container_id.is_empty())
        .map(|status| &*status.name)
        .collect();
    let waiting = spec.init_and_regular_containers().filter(|container| !running.contains(&&*container.name));
    let images = waiting.flat_map(|container| {
        let mounted = container.volume_mounts.iter().filter_map(|mount| image_of_volume(spec, &mount.name));
        mounted.chain([&*container.image])
    });
    agent.images.pulls_of(images)
}

fn image_of_volume<'a>(spec: &'a PodSpec, name: &str) -> Option<&'a str> {
    match spec.volumes.iter().find(|volume| *volume.name == *name)?.source.one()? {
        VolumeSource::Image(image) => Some(&*image.reference),
        _ => None,
    }
}

fn known_names(agent: &Agent) -> Vec<String> {
    let mut names: Vec<String> =
        agent.stories.summaries().iter().map(|summary| summary.pod.to_string()).collect();
    names.sort();
    names.dedup();
    names
}

/// The names that are most like a text, the likest first.
fn similar(text: &str, known: &[String], node_name: &str) -> Vec<String> {
    let suffix = format!("-{}", node_name.to_lowercase());
    let mut near: Vec<(usize, &String)> = known
        .iter()
        .filter_map(|full| {
            let name = full.split_once('/').map_or(&**full, |(_, name)| name);
            let own = name.strip_suffix(&suffix).unwrap_or(name);
            let distance =
                [full, name, own].map(|name| strsim::damerau_levenshtein(text, name)).into_iter().min()?;
            let is_near = distance * 3 <= own.len().max(3) || (text.len() >= 3 && full.contains(text));
            is_near.then_some((distance, full))
        })
        .collect();
    near.sort();
    near.into_iter().take(3).map(|(_, name)| name.clone()).collect()
}

fn name(summary: &Summary) -> (&str, &str) {
    (&summary.pod.namespace, &summary.pod.name)
}

fn problem_to_json(problem: &Problem) -> Value {
    json!({
        "source": problem.source.as_str(),
        "origin": problem.origin,
        "line": problem.line,
        "message": problem.message,
        "consequence": problem.consequence.as_str(),
    })
}

fn pull_to_json(pull: &Pull) -> Value {
    json!({
        "image": pull.image,
        "since": pull.since.to_string(),
        "runningSince": pull.running_since.map(|since| since.to_string()),
    })
}

fn pretty(value: &Value) -> Response {
    json(format!("{value:#}\n").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{running_node, view, waiting_node};
    use crablet_agent::story::State as PodState;
    use crablet_api::core::PodIdentity;
    use expect_test::{Expect, expect};

    async fn check(node: &NodeHandles, target: &str, expected: Expect) {
        let query = target.split_once('?').map(|(_, query)| query.to_owned());
        let answer = explain(State(node.clone()), RawQuery(query)).await;
        let status = answer.status().as_u16();
        let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        expected.assert_eq(&format!("{status}\n{}", String::from_utf8_lossy(&body)));
    }

    fn node() -> (NodeHandles, Agent) {
        let (node, agent) = running_node();
        for (name, uid) in [("web-node", "u1"), ("db-node", "u2")] {
            agent.statuses.show(view("default", name, uid));
            agent
                .stories
                .open(&PodIdentity::new("default", name, uid))
                .headline(PodState::Running, format_args!(""));
        }
        (node, agent)
    }

    #[tokio::test(start_paused = true)]
    async fn each_pod_gets_a_sentence() {
        let (node, agent) = node();
        agent
            .stories
            .open(&PodIdentity::new("default", "old-node", "u3"))
            .headline(PodState::Succeeded, format_args!(""));
        agent.stories.close("u3");
        check(
            &node,
            "/explain",
            expect![[r#"
                200
                default/db-node runs (for 0ms).
                default/web-node runs (for 0ms).
                default/old-node went 0ms ago; the last word on it was: it has finished.
            "#]],
        )
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_is_found_by_the_name_in_its_manifest_too() {
        let (node, agent) = node();
        agent
            .stories
            .open(&PodIdentity::new("default", "web-node", "u1"))
            .note("Admitted", format_args!("it fits"));
        for pod in ["web", "web-node", "default/web", "default%2Fweb-node", "u1"] {
            check(
                &node,
                &format!("/explain?pod={pod}"),
                expect![[r#"
                    200
                    default/web-node runs (for 0ms).

                    WHEN     AT                    TOOK  WHAT
                    0ms ago  2026-11-15T03:46:00Z  -     Admitted: it fits
                "#]],
            )
            .await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_nothing_has_gets_what_is_near() {
        let (node, _agent) = node();
        check(
            &node,
            "/explain?pod=wbe",
            expect![[r#"
                404
                no pod is called "wbe", and none of that name went lately
                did you mean default/web-node?
                there are: default/db-node, default/web-node
            "#]],
        )
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_has_no_runtime_yet_says_so() {
        let node = waiting_node("the container runtime at unix:///run/x.sock: it is not there");
        check(
            &node,
            "/explain",
            expect![[r#"
                200
                No pod is started yet: the agent waits for the container runtime at unix:///run/x.sock: it is not there.
            "#]],
        )
        .await;
        check(
            &node,
            "/explain?pod=web",
            expect![[r#"
                404
                no pod is started yet: the agent waits for the container runtime at unix:///run/x.sock: it is not there
            "#]],
        )
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn both_are_json_too() {
        let (node, _agent) = node();
        let answer = explain(State(node.clone()), RawQuery(Some("output=json".to_owned()))).await;
        let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        let overview: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(overview["pods"][0]["pod"]["name"], "db-node");
        assert_eq!(overview["pods"][0]["sentence"], "default/db-node runs (for 0ms).");
        let answer = explain(State(node), RawQuery(Some("pod=web&output=json".to_owned()))).await;
        let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        let told: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(told["stories"][0]["headline"]["state"], "Running");
    }
}
