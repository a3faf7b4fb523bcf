//! What an API server shows of a node's pods.

use std::collections::BTreeMap;

use crablet_agent::sources::{CONFIG_MIRROR, SourceKind};
use crablet_api::FeatureGates;
use crablet_api::core::{ContainerState as Shown, Pod, PodConditionType, PodStatus};
use crablet_core::status::keep_what_ended;

use crate::api_server::ApiServer;
use crate::at_server;
use crate::ledger::{Ledger, Life};

/// What is wrong with what a node tells of a pod after what it told before, if it is older.
pub fn older(before: &Pod, after: &Pod) -> Option<String> {
    let uid = &after.metadata.uid;
    if after.metadata.annotations.contains_key(CONFIG_MIRROR) {
        // A static pod may come back as it was, with another life before it.
        return None;
    }
    let (before, after) = (&before.status, &after.status);
    if before.is_over() && before.phase != after.phase {
        return Some(format!("{uid} was {:?}, and is told to be {:?}", before.phase, after.phase));
    }
    if after.observed_generation < before.observed_generation {
        return Some(format!("{uid} is told of as it was before it was changed"));
    }
    for was in before.init_and_regular_statuses() {
        let Some(is) = after.init_and_regular_statuses().find(|is| is.name == was.name) else { continue };
        let what = &was.name;
        if is.restart_count < was.restart_count {
            let counts = (was.restart_count, is.restart_count);
            return Some(format!(
                "{what} of {uid} was restarted {} times, and is told to be {} times",
                counts.0, counts.1
            ));
        }
        let ended = matches!(was.state.one(), Some(Shown::Terminated(_)));
        let runs = matches!(is.state.one(), Some(Shown::Running(_)));
        if ended && runs && was.container_id == is.container_id {
            return Some(format!("{what} of {uid} had ended, and is told to run"));
        }
    }
    None
}

/// Checks that the server shows what the agent does, after a long time without faults, and nothing else.
pub fn check_shown(ledger: &Ledger, server: &ApiServer) {
    let pods = server.pods();
    let mut state = ledger.state();
    let Some((statuses, _)) = state.statuses.clone() else { return };
    let mut broken = Vec::new();
    let mut left: BTreeMap<&str, &Pod> = pods.iter().map(|pod| (pod.metadata.name.as_str(), pod)).collect();
    for (uid, life) in state.lives.iter().filter(|(_, life)| life.wanted) {
        let invariant = if life.source.is_static() { 9 } else { 10 };
        let Some(shown) = left.remove(life.pod.metadata.name.as_str()) else {
            if !(life.source.is_static() && at_server::refuses(server, &life.pod)) {
                broken.push((invariant, format!("{uid} is not at the API server")));
            }
            continue;
        };
        if let Some(what) = not_of(life, shown) {
            broken.push((invariant, format!("{uid}: {what}")));
        } else if let Some(view) = statuses.get(uid)
            && let Some(what) = difference(&as_told(life, &view.status, shown), &shown.status)
        {
            broken.push((10, format!("{uid}: {what}")));
        }
    }
    for (name, pod) in left {
        broken.push((10, format!("{name} ({}) is still at the API server", pod.metadata.uid)));
    }
    for (invariant, what) in broken {
        ledger.broken(&mut state, invariant, what);
    }
}

/// Checks that the server has no pods when nothing is wanted.
pub fn check_none_shown(ledger: &Ledger, pods: &[Pod]) {
    for pod in pods {
        let what = format!("{} is at the API server, and nobody wants it", pod.metadata.name);
        ledger.broken(&mut ledger.state(), 10, what);
    }
}

/// Why an object is not that of a pod.
fn not_of(life: &Life, shown: &Pod) -> Option<String> {
    let uid = &life.pod.metadata.uid;
    match life.source {
        SourceKind::Api => {
            (shown.metadata.uid != *uid).then(|| format!("{} has its name", shown.metadata.uid))
        }
        SourceKind::File | SourceKind::Url | SourceKind::Push => {
            let mirror = shown.metadata.annotations.get(CONFIG_MIRROR);
            (mirror != Some(uid)).then(|| format!("its mirror is that of {mirror:?}"))
        }
    }
}

/// What of a status can be told to the server. As upstream, what disturbed a pod is told with its end alone.
fn as_told(life: &Life, says: &PodStatus, shown: &Pod) -> PodStatus {
    let mut told = says.clone();
    if life.was_over_undisturbed {
        let conditions =
            told.conditions.iter().filter(|one| one.r#type != PodConditionType::DisruptionTarget);
        told.conditions = conditions.cloned().collect();
    }
    if !life.source.is_static() {
        keep_what_ended(shown, &mut told, &FeatureGates::default());
    }
    told
}

/// Where what is shown is not what the agent says.
fn difference(says: &PodStatus, shown: &PodStatus) -> Option<String> {
    if says.phase != shown.phase {
        return Some(format!("it is {:?}, and shown as {:?}", says.phase, shown.phase));
    }
    let (ours, theirs) = (says.init_and_regular_statuses(), shown.init_and_regular_statuses());
    for (ours, theirs) in ours.zip(theirs) {
        if ours != theirs {
            return Some(format!("{} is {ours:?}, and shown as {theirs:?}", ours.name));
        }
    }
    for ours in &says.conditions {
        let theirs = shown.conditions.iter().find(|theirs| theirs.r#type == ours.r#type);
        if theirs.is_none_or(|theirs| (&theirs.status, &theirs.reason) != (&ours.status, &ours.reason)) {
            return Some(format!("its condition is {ours:?}, and shown as {theirs:?}"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::from_text;

    fn told(status: &str) -> Pod {
        let spec = "containers: [{name: c, image: i}]";
        (*from_text(&format!("metadata: {{name: p, uid: u}}\nspec: {{{spec}}}\nstatus: {status}\n"))).clone()
    }

    fn container(restarts: u32, id: &str, state: &str) -> String {
        format!(
            "{{phase: Running, containerStatuses: [{{name: c, restartCount: {restarts}, containerID: '{id}', state: {state}}}]}}"
        )
    }

    #[test]
    fn a_status_is_older_where_something_is_undone_that_cannot_be() {
        let (runs, ended) = ("{running: {}}", "{terminated: {exitCode: 0}}");
        for (before, after, words) in [
            ("{phase: Running}".to_owned(), "{phase: Failed}".to_owned(), None),
            ("{phase: Failed}".to_owned(), "{phase: Running}".to_owned(), Some("and is told to be")),
            (
                "{observedGeneration: 2}".to_owned(),
                "{observedGeneration: 1}".to_owned(),
                Some("before it was changed"),
            ),
            (container(0, "a", ended), container(1, "b", runs), None),
            (container(1, "b", runs), container(0, "a", runs), Some("was restarted 1 times")),
            (container(1, "b", runs), container(1, "b", ended), None),
            (container(1, "b", ended), container(1, "b", runs), Some("had ended")),
        ] {
            let found = older(&told(&before), &told(&after));
            assert_eq!(found.is_some(), words.is_some(), "{before} then {after}: {found:?}");
            assert!(found.unwrap_or_default().contains(words.unwrap_or_default()), "{before} then {after}");
        }
    }
}
