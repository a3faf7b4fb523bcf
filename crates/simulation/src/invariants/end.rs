//! What must be there when all is quiet.

use crablet_agent::statuses::Reported;
use crablet_api::core::{ContainerState as Shown, Pod, PodPhase, RestartPolicy};
use crablet_cri_sim::ContainerView;

use super::shutdown::was_shut_down;
use crate::behaviour::Behaviour;
use crate::ledger::{Ledger, Life, State};
use crate::world::Leftovers;

/// What becomes of a pod that is left alone.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// Its init containers never get done.
    Stuck,
    Ends,
    GoesOn,
}

/// Checks that every pod is as it should be, after a long time without faults.
pub fn check_settled(ledger: &Ledger, leftovers: &Leftovers) {
    let containers = ledger.simulator.containers();
    let mut state = ledger.state();
    let Some((statuses, _)) = state.statuses.clone() else { return };
    let mut broken = Vec::new();
    for (uid, life) in &state.lives {
        if !life.wanted {
            continue;
        }
        match statuses.get(uid) {
            None => broken.push(format!("{uid} is wanted, and there is nothing of it")),
            Some(view) => broken.extend(
                wrong(life, &view, &containers, state.disk_failed).map(|what| format!("{uid}: {what}")),
            ),
        }
    }
    for view in statuses.list() {
        let uid = view.pod.metadata.uid.as_str();
        if !state.lives.get(uid).is_some_and(|life| life.wanted) {
            broken.push(format!("{uid} is still shown, and nobody wants it"));
        }
    }
    for what in broken {
        ledger.broken(&mut state, 0, what);
    }
    let unwanted = |uid: &&String| !state.lives.get(*uid).is_some_and(|life| life.wanted);
    let left: Vec<String> = leftovers.uids().filter(unwanted).cloned().collect();
    report_left(ledger, &mut state, leftovers, &left);
}

/// Checks that nothing is left when nothing is wanted.
pub fn check_gone(ledger: &Ledger, leftovers: &Leftovers) {
    let left: Vec<String> = leftovers.uids().cloned().collect();
    report_left(ledger, &mut ledger.state(), leftovers, &left);
}

fn report_left(ledger: &Ledger, state: &mut State, leftovers: &Leftovers, left: &[String]) {
    for uid in left {
        let what = leftovers.of(uid);
        // A record alone is memory that grows; all else is a pod that was not cleaned up.
        let invariant = if what == ["checkpoint"] { 12 } else { 8 };
        ledger.broken(state, invariant, format!("{what:?} of {uid} are left: nobody wants it"));
    }
}

/// What is wrong with a pod that is wanted.
fn wrong(life: &Life, view: &Reported, containers: &[ContainerView], disk_failed: bool) -> Option<String> {
    let may_have_ended = may_have_ended(life, disk_failed);
    if was_shut_down(&view.status) && !life.source.is_static() {
        return None;
    }
    if life.evicted {
        if !life.eviction_is_written {
            return None;
        }
        let is_told = view.status.phase == Some(PodPhase::Failed) && *view.status.reason == *"Evicted";
        return (!is_told).then(|| format!("it was evicted, and is {:?}", view.status.phase));
    }
    let pod = &life.pod;
    let uid = pod.metadata.uid.as_str();
    let alive = |name: &str| {
        containers
            .iter()
            .filter(|container| container.alive && container.pod_uid == uid && container.name == name)
            .count()
    };
    let is_over = view.status.is_over();
    // Who asks for more before the node has taken it may not fit.
    if is_over && view.status.reason.starts_with("OutOf") && life.forms().count() > 1 {
        return None;
    }
    if is_over {
        let may_end = pod.spec.active_deadline_seconds.is_some() || may_have_ended;
        return (fate(pod) != Fate::Ends && !may_end).then(|| "it ended, and should go on".to_owned());
    }
    if pod.spec.active_deadline_seconds.is_some() {
        return Some("its deadline has passed, and it is not over".to_owned());
    }
    match fate(pod) {
        // A static pod that lost its sandbox before it was done keeps its phase, as upstream's does.
        Fate::Ends if life.harmed => return None,
        Fate::Ends => return Some(format!("it should be over, and is {:?}", view.status.phase)),
        Fate::Stuck => return None,
        Fate::GoesOn => {}
    }
    for (name, is_sidecar) in life.inits() {
        let image = pod.spec.init_containers.iter().find(|init| *init.name == *name)?.image.as_str();
        if is_sidecar && lasts(image) && alive(name) != 1 && !may_have_ended {
            return Some(format!("sidecar {name} does not run"));
        }
    }
    for main in &pod.spec.containers {
        let name = main.name.as_str();
        if lasts(&main.image) && alive(name) != 1 && !may_have_ended {
            return Some(format!("{name} does not run"));
        }
        let shown = view.status.container_statuses.iter().find(|shown| *shown.name == *name);
        let state = shown.and_then(|shown| shown.state.one().cloned());
        let is_right = matches!(
            (&state, alive(name)),
            (Some(Shown::Running(_)), 1) | (Some(Shown::Waiting(_) | Shown::Terminated(_)), 0)
        );
        // As upstream, a container is not shown as running before the hook after its start is done.
        let has_hook = main.lifecycle.as_ref().is_some_and(|lifecycle| lifecycle.post_start.is_some());
        let may_be_starting = has_hook && !lasts(&main.image) && alive(name) == 1;
        if !is_right && !may_be_starting {
            return Some(format!("{name} is shown as {state:?}, and {} run", alive(name)));
        }
    }
    None
}

/// Whether it is up to the restart policy of a pod what became of it. An agent that dies between stopping what changed
/// and starting it again leaves that to the policy only where it could not write down what it was about.
fn may_have_ended(life: &Life, disk_failed: bool) -> bool {
    let was_stopped = life.harmed || (life.edited && disk_failed);
    was_stopped && life.pod.spec.restart_policy != Some(RestartPolicy::Always)
}

fn lasts(image: &str) -> bool {
    matches!(Behaviour::of(image), Behaviour::Forever | Behaviour::Stubborn)
}

/// What becomes of a pod that nobody touches.
fn fate(pod: &Pod) -> Fate {
    let spec = &pod.spec;
    let policy = spec.restart_policy.as_ref();
    for init in spec.init_containers.iter().filter(|init| init.restart_policy.is_none()) {
        match Behaviour::of(&init.image) {
            Behaviour::Exits { code: 0, .. } => {}
            Behaviour::Exits { .. } if policy == Some(&RestartPolicy::Never) => return Fate::Ends,
            Behaviour::Exits { .. } | Behaviour::Missing | Behaviour::Forever | Behaviour::Stubborn => {
                return Fate::Stuck;
            }
        }
    }
    let ends = spec.containers.iter().all(|main| {
        matches!(
            (Behaviour::of(&main.image), policy),
            (Behaviour::Exits { .. }, Some(RestartPolicy::Never))
                | (Behaviour::Exits { code: 0, .. }, Some(RestartPolicy::OnFailure))
        )
    });
    if ends { Fate::Ends } else { Fate::GoesOn }
}
