//! What the agent asks of the runtime and of volumes.

use std::time::Duration;

use crablet_api::core::RestartPolicy;
use crablet_cri_api::{ContainerState, v1};
use crablet_cri_sim::ContainerView;
use tokio::time::Instant;

use super::eviction::check_evicted;
use super::shutdown::{check_begins, check_ends};
use crate::ledger::{Ledger, Life, State};

/// Seconds are whole, calls take a while, and every kill has two seconds.
const SLACK: Duration = Duration::from_secs(4);

/// Something that the agent asks for.
#[derive(Debug)]
pub enum Doing<'a> {
    RunSandbox { uid: &'a str, users: &'a [v1::IdMapping] },
    StopSandbox { id: &'a str },
    RemoveSandbox { id: &'a str },
    CreateContainer { uid: &'a str, name: &'a str },
    StartContainer { id: &'a str },
    StopContainer { id: &'a str, grace: Duration },
    RemoveContainer { id: &'a str },
    Exec { id: &'a str },
    TearDownVolumes { uid: &'a str },
}

/// Checks what is asked for, and says it in words.
pub fn check_call(ledger: &Ledger, doing: &Doing<'_>) -> String {
    let containers = ledger.simulator.containers();
    let mut state = ledger.state();
    let find = |id: &str| containers.iter().find(|container| container.id == id);
    let describe = |id: &str| find(id).map_or_else(|| short(id), |container| ledger.describe(container));
    let words = match doing {
        Doing::RunSandbox { uid, .. } => format!("RunPodSandbox {uid}"),
        Doing::StopSandbox { id } => format!("StopPodSandbox {}", short(id)),
        Doing::RemoveSandbox { id } => format!("RemovePodSandbox {}", short(id)),
        Doing::CreateContainer { uid, name } => format!("CreateContainer {name} of {uid}"),
        Doing::StartContainer { id } => format!("StartContainer {}", describe(id)),
        Doing::StopContainer { id, grace } => {
            format!("StopContainer {} within {} s", describe(id), grace.as_secs())
        }
        Doing::RemoveContainer { id } => format!("RemoveContainer {}", describe(id)),
        Doing::Exec { id } => format!("ExecSync {}", describe(id)),
        Doing::TearDownVolumes { uid } => format!("tear down volumes of {uid}"),
    };
    ledger.trace.note(format_args!("  > {words}"));
    let check = Check { ledger, containers: &containers, words: &words };
    match doing {
        Doing::RunSandbox { uid, users } => {
            check.begins(&mut state, uid);
            check.has_users(&mut state, uid, users);
        }
        Doing::CreateContainer { uid, .. } => check.begins(&mut state, uid),
        Doing::StartContainer { id } => {
            if let Some(container) = find(id) {
                check.begins(&mut state, &container.pod_uid);
                check.starts(&mut state, container);
            }
        }
        Doing::StopContainer { id, grace } => {
            if let Some(container) = find(id).filter(|container| container.alive) {
                check.stops(&mut state, container, *grace);
            }
        }
        Doing::RemoveContainer { id } => {
            if let Some(container) = find(id).filter(|container| container.alive) {
                let what = format!("{} is removed while it runs", ledger.describe(container));
                ledger.broken(&mut state, 3, what);
            }
        }
        Doing::StopSandbox { id } | Doing::RemoveSandbox { id } => {
            let lives = |container: &&ContainerView| container.alive && container.sandbox_id == **id;
            if let Some(container) = containers.iter().find(lives) {
                let what = format!("{words} while {} runs", ledger.describe(container));
                ledger.broken(&mut state, 3, what);
            }
            // Its network, which has an address to give back, may outlive its process.
            if matches!(doing, Doing::RemoveSandbox { .. }) && !state.stopped_sandboxes.contains(*id) {
                ledger.broken(&mut state, 14, format!("{words}, which was never stopped"));
            }
        }
        Doing::TearDownVolumes { uid } => {
            if let Some(container) = check.alive(uid).next() {
                let what = format!("{words} while {} runs", ledger.describe(container));
                ledger.broken(&mut state, 4, what);
            }
        }
        Doing::Exec { .. } => {}
    }
    words
}

struct Check<'a> {
    ledger: &'a Ledger,
    containers: &'a [ContainerView],
    words: &'a str,
}

impl Check<'_> {
    fn alive(&self, uid: &str) -> impl Iterator<Item = &ContainerView> {
        self.containers.iter().filter(move |container| container.alive && container.pod_uid == uid)
    }

    /// Something of a pod is begun.
    fn begins(&self, state: &mut State, uid: &str) {
        check_begins(self.ledger, state, uid, self.words);
        let Some(life) = state.lives.get(uid) else { return };
        if life.over && !state.disk_failed {
            let what = format!("{}, which was over", self.words);
            return self.ledger.broken(state, 3, what);
        }
        if !life.source.is_static() {
            return;
        }
        let earlier = state.lives.iter().find(|(other, earlier)| {
            *other != uid
                && earlier.source.is_static()
                && earlier.full_name() == life.full_name()
                && self.alive(other).next().is_some()
        });
        if let Some((earlier, _)) = earlier {
            let what = format!("{} while {earlier}, of the same name, runs", self.words);
            self.ledger.broken(state, 9, what);
        }
    }

    /// A sandbox is made, which is to have users of its own, or not.
    fn has_users(&self, state: &mut State, uid: &str, users: &[v1::IdMapping]) {
        let overlap = |one: &v1::IdMapping, other: &v1::IdMapping| {
            let end = |ids: &v1::IdMapping| u64::from(ids.host_id) + u64::from(ids.length);
            u64::from(one.host_id) < end(other) && u64::from(other.host_id) < end(one)
        };
        if users.is_empty() {
            return;
        }
        let sandboxes = self.ledger.simulator.sandboxes();
        let others = sandboxes.iter().filter(|sandbox| sandbox.ready && sandbox.metadata.uid != uid);
        let mut shared = others
            .filter(|sandbox| sandbox.users.iter().any(|ids| users.iter().any(|own| overlap(ids, own))));
        if let Some(other) = shared.next() {
            let what = format!("{} with users that {} has", self.words, other.metadata.uid);
            self.ledger.broken(state, 13, what);
        }
    }

    /// A container is started: those before it in the order must be done or run.
    fn starts(&self, state: &mut State, container: &ContainerView) {
        let Some(life) = state.lives.get(&container.pod_uid) else { return };
        let in_sandbox = |name: &str| (container.sandbox_id.clone(), name.to_owned());
        // One that ran is not started again by this: the runtime refuses.
        if container.state == ContainerState::Created && life.done.contains(&in_sandbox(&container.name)) {
            let what = format!("{}: it was done in this sandbox", self.words);
            return self.ledger.broken(state, 6, what);
        }
        let missing =
            life.inits().take_while(|(init, _)| *init != container.name).find(|(init, is_sidecar)| {
                let has_begun = self.containers.iter().any(|other| {
                    other.pod_uid == container.pod_uid
                        && other.name == *init
                        && other.sandbox_id == container.sandbox_id
                        && other.state != ContainerState::Created
                });
                !if *is_sidecar { has_begun } else { life.done.contains(&in_sandbox(init)) }
            });
        if let Some(what) =
            missing.map(|(init, _)| format!("{} before {init}, which comes first", self.words))
        {
            self.ledger.broken(state, 7, what);
        }
    }

    /// A container that lives is stopped.
    fn stops(&self, state: &mut State, container: &ContainerView, grace: Duration) {
        let now = Instant::now();
        let killed = now + grace;
        let ledger = self.ledger;
        let sandboxes = ledger.simulator.sandboxes();
        let remembers = !state.disk_failed;
        check_ends(ledger, state, self.containers, container, self.words);
        // What the agent shows may be from the same step as this call.
        let shown = state.statuses.as_ref().and_then(|(statuses, _)| statuses.get(&container.pod_uid));
        if let Some(shown) = shown {
            check_evicted(ledger, state, &shown);
        }
        let Some(life) = state.lives.get_mut(&container.pod_uid) else { return };
        let mut broken = None;
        if let Some(ends) = life.ends {
            // The end of a pod that was done has begun earlier, with its own time.
            let ends = life.sidecars_end.map_or(ends, |own| own.min(ends));
            let promised = ends.max(now);
            // One that stops by itself has its own time.
            let began_by_itself = life.harmed
                || life.may_be_evicted
                || life.may_be_shut_down
                || life.pod.spec.active_deadline_seconds.is_some();
            if !began_by_itself && killed + SLACK < promised {
                broken = Some((9, format!("{}, and was promised {:?}", self.words, promised - now)));
            }
            let before = life.stops.entry(container.id.clone()).or_insert(killed);
            if remembers && killed > (*before).max(now + Duration::from_secs(2)) + SLACK {
                broken = Some((3, format!("{}: it had {:?} left", self.words, before.duration_since(now))));
            }
            *before = killed.min(*before);
            // Who waits for others waits for the pod's own time, and the runtime is told of two seconds at least.
            if remembers
                && !began_by_itself
                && now + Duration::from_millis(1_100) < ends
                && let Some(other) = self.needs(life, container)
            {
                let other = ledger.describe(other);
                broken = Some((7, format!("{} while {other} runs, which stops first", self.words)));
            }
        } else if life.wanted && !may_stop(life, container, self.containers, &sandboxes) {
            broken = Some((1, format!("{}, for no reason", self.words)));
        } else if life.sidecar(&container.name).is_some()
            && life.pod.spec.restart_policy != Some(RestartPolicy::Always)
            && mains_end(life, self.containers)
        {
            life.sidecars_end.get_or_insert(killed);
        }
        if let Some((invariant, what)) = broken {
            ledger.broken(state, invariant, what);
        }
    }

    /// A container that has to end before this one.
    fn needs(&self, life: &Life, container: &ContainerView) -> Option<&ContainerView> {
        let place = life.sidecar(&container.name)?;
        self.alive(&container.pod_uid).find(|other| {
            life.is_main(&other.name) || life.sidecar(&other.name).is_some_and(|later| later > place)
        })
    }
}

/// Whether there is a reason to stop a container of a pod that is wanted.
fn may_stop(
    life: &Life,
    container: &ContainerView,
    containers: &[ContainerView],
    sandboxes: &[crablet_cri_sim::SandboxView],
) -> bool {
    let spec = &life.pod.spec;
    // The newest sandbox counts, and only where it is ready.
    let of_pod = || sandboxes.iter().filter(|sandbox| sandbox.metadata.uid == container.pod_uid);
    let active = of_pod().max_by_key(|sandbox| sandbox.metadata.attempt);
    let in_sandbox = active.is_some_and(|active| active.ready && active.id == container.sandbox_id);
    let one_ready = of_pod().filter(|sandbox| sandbox.ready).count() == 1;
    life.edited
        || life.returned
        || life.may_be_evicted
        || life.may_be_shut_down
        || life.failed_commands.contains(&container.id)
        || spec.active_deadline_seconds.is_some()
        || !in_sandbox
        || !one_ready
        || (life.sidecar(&container.name).is_some() && mains_end(life, containers))
}

/// Whether none of a pod's regular containers runs.
fn mains_end(life: &Life, containers: &[ContainerView]) -> bool {
    let uid = life.pod.metadata.uid.as_str();
    !containers.iter().any(|other| other.alive && other.pod_uid == uid && life.is_main(&other.name))
}

fn short(id: &str) -> String {
    id.chars().take(8).collect()
}
