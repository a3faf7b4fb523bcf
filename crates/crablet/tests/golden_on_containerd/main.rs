//! The pods that the Go kubelet was recorded with, run by the whole agent on a real containerd, and looked at from
//! inside: what a container sees is what the recording asked for.
//!
//! - [`table`]: pod by pod, what to look at and what is there.
//! - [`node`]: an agent in this process, whose pods a test gives it.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod cluster;
mod node;
mod table;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crablet_api::core::{ContainerState, ContainerStatus, Pod, PodStatus};
use crablet_testkit::eventually;
use futures_util::future::join_all;

use node::{Node, recordings};
use table::{Shows, TABLE};

/// Long enough for a machine under load: what takes this long has failed.
const PATIENCE: Duration = Duration::from_secs(150);

#[test]
fn every_recorded_pod_is_in_the_table() {
    let recorded: BTreeSet<String> = recordings().into_keys().collect();
    let known: Vec<&str> = TABLE.iter().map(|(name, _)| *name).collect();
    assert_eq!(known.len(), recorded.len(), "one is there twice, or missing");
    assert_eq!(known.into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), recorded);
    let inside = TABLE.iter().filter(|(_, shows)| !matches!(shows, Shows::Stuck { .. })).count();
    assert!(inside >= 45, "only {inside} pods are looked at from inside");
}

#[tokio::test]
async fn every_case_of_the_recordings_has_its_effect_inside_the_container_on_containerd() {
    let mut node = Node::start().await;
    let recordings = recordings();
    let pods = TABLE.iter().map(|(name, _)| recordings[*name].clone());
    node.want(pods.collect());
    let looks = join_all(TABLE.iter().map(|(name, shows)| look(&node, name, shows))).await;
    let wrong: Vec<String> = looks.into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{} of {} are wrong:\n{}", wrong.len(), TABLE.len(), wrong.join("\n"));

    node.want(Vec::new());
    eventually("all pods are gone", PATIENCE, || async {
        let left = node.agent.statuses.list();
        let names: Vec<&str> = left.iter().map(|view| view.pod.metadata.name.as_str()).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await
    .unwrap();
    node.assert_nothing_is_left().await;
    // What `host-path-create` asked for stays, as it should; if it is still empty it is nobody's.
    let _ = std::fs::remove_dir("/tmp/golden-dir");
}

/// Waits until a pod is as far as the table says, and looks.
async fn look(node: &Node, name: &str, shows: &Shows) -> Result<(), String> {
    let looked = eventually(name, PATIENCE, || async {
        let view = node.agent.statuses.list().into_iter().find(|view| *view.pod.metadata.name == *name);
        let view = view.ok_or("the agent does not show it")?;
        if let Shows::Stuck { event, .. } = shows
            && !node.has_event(&view.pod, event)
        {
            return Err(format!("nobody said {event:?}"));
        }
        reached(&view.status, shows).map(|id| (view.pod, view.status, id))
    });
    let told =
        || node.agent.stories.find(&format!("golden/{name}")).first().map(|story| story.explain(node.now()));
    let (pod, status, id) =
        looked.await.map_err(|error| format!("--- {error}\n{}", told().unwrap_or_default()))?;
    let (found, expected) = match shows {
        Shows::Prints { script, prints, .. } => {
            (node.run(&id, script).await, node.filled_in(prints, &pod, &status))
        }
        Shows::Writes { container, log } => (node.log(&pod, container), (*log).to_owned()),
        Shows::Answers { port, answer } => (node.ask(&id, *port, answer).await, (*answer).to_owned()),
        Shows::Ends { .. } | Shows::Runs { .. } | Shows::Stuck { .. } => return Ok(()),
    };
    if found == expected { Ok(()) } else { Err(format!("--- {name}: expected\n{expected}\nfound\n{found}")) }
}

/// The ID of the container that is looked at, once the pod's status says that there is something to see.
fn reached(status: &PodStatus, shows: &Shows) -> Result<String, String> {
    let container = |name: &str| {
        let all = status.init_container_statuses.iter().chain(&status.container_statuses);
        all.into_iter().find(|other| *other.name == *name).ok_or(format!("no container {name}"))
    };
    let id = |status: &ContainerStatus| {
        status.container_id.rsplit_once("//").map(|(_, id)| id.to_owned()).unwrap_or_default()
    };
    match shows {
        Shows::Prints { container: name, .. } | Shows::Runs { container: name } => {
            let status = container(name)?;
            match status.state.one() {
                Some(ContainerState::Running(_)) => Ok(id(status)),
                state => Err(format!("{state:?}")),
            }
        }
        Shows::Answers { .. } => reached(status, &Shows::Runs { container: "c" }),
        Shows::Writes { container: name, .. } => {
            let status = container(name)?;
            match status.state.one() {
                Some(ContainerState::Terminated(_)) => Ok(id(status)),
                state => Err(format!("{state:?}")),
            }
        }
        Shows::Ends { container: name, code, message, reason } => {
            let status = container(name)?;
            let ended = status.state.one().into_iter().chain(status.last_state.one());
            let is_it = ended.into_iter().any(|state| match state {
                ContainerState::Terminated(end) => {
                    (end.exit_code, &*end.message, &*end.reason) == (*code, *message, *reason)
                }
                ContainerState::Running(_) | ContainerState::Waiting(_) => false,
            });
            if is_it { Ok(id(status)) } else { Err(format!("{:?}", status.state)) }
        }
        Shows::Stuck { reason, .. } => {
            let waits = status.container_statuses.iter().any(|status| match status.state.one() {
                Some(ContainerState::Waiting(waiting)) => *waiting.reason == **reason,
                Some(ContainerState::Terminated(end)) => *end.reason == **reason,
                Some(ContainerState::Running(_)) | None => false,
            });
            if waits || *status.reason == **reason { Ok(String::new()) } else { Err(format!("{status:?}")) }
        }
    }
}

/// A pod as it was recorded, with what the recording replaced put back.
fn pod(json: &serde_json::Value, uid: &str) -> Arc<Pod> {
    let text = json["pod"].to_string().replace("<uid>", uid).replace("<node>", node::NAME);
    Arc::new(crablet_api::from_json(text.as_bytes(), crablet_api::document::Limits::API).unwrap())
}
