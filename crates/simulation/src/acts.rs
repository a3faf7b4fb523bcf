//! What people and programs do to pods: they come, change, go, and die.

use std::sync::Arc;

use crablet_agent::sources::{CONFIG_MIRROR, SourceKind};
use crablet_api::core::{Container, Pod, ResourceResizeRestartPolicy};
use crablet_api::meta::Time;
use crablet_cri::Runtime as _;
use crablet_cri_sim::ContainerView;

use crate::at_server;
use crate::manifest::{self, Resourced, Variety};
use crate::random::Random;
use crate::storage;
use crate::world::World;

/// What can happen to pods.
#[derive(Debug, Clone, Copy)]
pub enum Act {
    /// A new one is wanted.
    Add,
    /// One with another image is wanted.
    Edit,
    /// One asks for more of the CPU, or less.
    Resize,
    /// One is deleted, or deleted sooner.
    Delete,
    /// One is not wanted any more, at once.
    Remove,
    /// One that was removed is wanted again.
    Return,
    /// A static pod's manifest changes.
    Replace,
    /// A container ends.
    Exit,
    /// A container runs out of memory.
    OutOfMemory,
    /// A sandbox dies.
    KillSandbox,
    /// Somebody removes an init container that is done.
    CollectInit,
    /// Somebody deletes a mirror at the API server.
    DeleteMirror,
}

/// Does pods' acts by chance.
pub struct Actor {
    pub(crate) random: Random,
    /// Apart from the rest, which is as it was without claims.
    claims: Random,
    /// The same for resources.
    resizes: Random,
    /// And for priorities.
    priorities: Random,
    pub(crate) variety: Variety,
    /// How many pods there were so far.
    pub(crate) pods: u64,
    /// Static pods that were removed.
    removed: Vec<Arc<Pod>>,
}

impl Actor {
    pub fn new(seed: u64, variety: Variety) -> Actor {
        let (random, claims) = (Random::new(seed, 1), Random::new(seed, 8));
        Actor {
            random,
            claims,
            resizes: Random::new(seed, 11),
            priorities: Random::new(seed, 13),
            variety,
            pods: 0,
            removed: Vec::new(),
        }
    }

    /// Does one thing, where it can be done. The sources are told by whoever calls.
    pub async fn act(&mut self, world: &mut World, act: Act) {
        world.refresh();
        match act {
            Act::Add => self.add(world),
            Act::Edit => self.edit(world),
            Act::Resize => self.resize(world),
            Act::Delete => self.delete(world),
            Act::Remove => {
                if let Some((source, pod)) = self.any(world) {
                    self.remove(world, source, &pod);
                }
            }
            Act::Return => self.bring_back(world),
            Act::Replace => self.replace(world),
            Act::Exit => {
                let code = self.random.weighted(&[(1, 0), (1, 1), (1, 137)]);
                if let Some(victim) = self.victim(world) {
                    note(world, format!("{} exits with {code}", world.ledger.describe(&victim)));
                    world.simulator.exit_container(&victim.id, code);
                }
            }
            Act::OutOfMemory => {
                if let Some(victim) = self.victim(world) {
                    note(world, format!("{} is out of memory", world.ledger.describe(&victim)));
                    world.simulator.oom(&victim.id);
                }
            }
            Act::KillSandbox => self.kill_sandbox(world),
            Act::CollectInit => self.collect_init(world).await,
            Act::DeleteMirror => self.delete_mirror(world),
        }
        world.ledger.touch();
        world.ledger.look();
    }

    /// Nobody wants anything any more.
    pub fn remove_all(&mut self, world: &mut World) {
        world.refresh();
        let all: Vec<(SourceKind, Arc<Pod>)> = of(world, |_| true);
        for (source, pod) in all {
            self.remove(world, source, &pod);
        }
    }

    fn add(&mut self, world: &mut World) {
        self.pods += 1;
        let name = format!("p{}", self.pods);
        let source = match self.random.percent(50) {
            true if self.variety != Variety::Claims => SourceKind::File,
            true | false => SourceKind::Api,
        };
        let pod = manifest::pod(&mut self.random, &name, &format!("{name}-v1"), self.variety);
        self.want(world, source, &pod);
    }

    fn want(&mut self, world: &mut World, source: SourceKind, pod: &Arc<Pod>) {
        let pod = match (&world.api_server, source) {
            (None, _) => {
                let mut pod = Pod::clone(pod);
                pod.spec.priority = self.priorities.weighted(&[(2, None), (1, Some(100)), (1, Some(1000))]);
                Some(Arc::new(pod))
            }
            (Some(server), SourceKind::Api) => {
                let has_claims = self.variety == Variety::Claims || self.claims.percent(40);
                let pod = match has_claims && world.storage.is_some() {
                    true => Arc::new(storage::with_claims(pod, &mut self.claims)),
                    false => Arc::clone(pod),
                };
                let each =
                    [Resourced::First, Resourced::Each, Resourced::Whole].map(|whose| (1, Some(whose)));
                let whose = self.resizes.weighted(&[(3, None), each[0], each[1], each[2]]);
                let pod =
                    whose.map_or(Arc::clone(&pod), |whose| Arc::new(manifest::with_resources(&pod, whose)));
                at_server::create(server, &pod).map(Arc::new)
            }
            (Some(_), _) => Some(Arc::new(at_server::local(pod))),
        };
        let Some(pod) = pod else { return };
        let spec = &pod.spec;
        let list = |containers: &[crablet_api::core::Container]| {
            containers.iter().map(|container| container.image.to_string()).collect::<Vec<_>>().join(" ")
        };
        let uid = &pod.metadata.uid;
        note(
            world,
            format!(
                "{source} wants {uid}: {:?}, inits [{}], mains [{}], grace {:?}, deadline {:?}",
                spec.restart_policy,
                list(&spec.init_containers),
                list(&spec.containers),
                spec.termination_grace_period_seconds,
                spec.active_deadline_seconds
            ),
        );
        world.ledger.want(&pod, source);
        world.wanted.entry(source).or_default().insert(uid.to_string(), Arc::clone(&pod));
    }

    fn edit(&mut self, world: &mut World) {
        let Some((_, pod)) = self.random.pick(&of(world, |source| source == SourceKind::Api)).cloned() else {
            return;
        };
        let mut edited = (*pod).clone();
        let Some(container) = edited.spec.containers.first_mut() else { return };
        let other = match container.image.as_str() {
            "sim/forever:1" => "sim/forever:2",
            "sim/forever:2" => "sim/forever:1",
            "sim/stubborn:1" => "sim/stubborn:2",
            _ => return,
        };
        note(world, format!("{} is edited: {other}", pod.metadata.uid));
        container.image = other.into();
        if let Some(server) = &world.api_server {
            let Some(pod) = at_server::set_image(server, &pod, other) else { return };
            edited = pod;
        }
        self.update(world, edited);
    }

    /// Some ask for so much that two of them fit, and not three. Some use so much memory for a while that it cannot be taken
    /// away.
    fn resize(&mut self, world: &mut World) {
        let Some(server) = world.api_server.clone() else { return };
        let mut pods = of(world, |source| source == SourceKind::Api);
        pods.retain(|(_, pod)| !resizable(pod).is_empty());
        let Some((_, pod)) = self.resizes.pick(&pods).cloned() else { return };
        let uid = pod.metadata.uid.to_string();
        if self.resizes.percent(30) {
            let used = self.resizes.weighted(&[(1, 0), (2, 25 << 20), (1, 450 << 30)]);
            note(world, format!("{uid} uses {used} bytes of memory"));
            world.use_memory(&uid, used);
        }
        let Some((at, is_restarted)) = self.resizes.pick(&resizable(&pod)).cloned() else { return };
        let cpu = self.resizes.weighted(&[(2, "20m"), (2, "50m"), (3, "29500m")]);
        let memory = self.resizes.weighted(&[(2, "10Mi"), (2, "15Mi"), (1, "400Gi")]);
        let limit = match memory {
            "400Gi" => self.resizes.weighted(&[(1, "500Gi"), (1, "600Gi")]),
            _ => self.resizes.weighted(&[(2, "20Mi"), (2, "30Mi"), (1, "600Gi")]),
        };
        note(world, format!("{uid} asks at {at} for {cpu} of the CPU and {memory} of memory up to {limit}"));
        if let Some(pod) = at_server::resize(&server, &pod, &at, [cpu, memory, limit]) {
            self.change(world, pod, is_restarted);
        }
    }

    fn update(&mut self, world: &mut World, pod: Pod) {
        self.change(world, pod, true);
    }

    fn change(&mut self, world: &mut World, pod: Pod, is_edited: bool) {
        let pod = Arc::new(pod);
        let uid = pod.metadata.uid.to_string();
        if let Some(life) = world.ledger.state().lives.get_mut(&uid) {
            life.change(Arc::clone(&pod));
            life.edited |= is_edited;
        }
        world.wanted.entry(SourceKind::Api).or_default().insert(uid, pod);
    }

    /// The API has a pod deleted gracefully; it goes when the agent is done with it.
    fn delete(&mut self, world: &mut World) {
        let Some((_, pod)) = self.random.pick(&of(world, |source| source == SourceKind::Api)).cloned() else {
            return;
        };
        let grace = self.random.weighted(&[(1, 0), (2, 1), (2, 5), (2, 30)]);
        let mut grace = pod.metadata.deletion_grace_period_seconds.map_or(grace, |before| grace.min(before));
        let uid = pod.metadata.uid.to_string();
        if let Some(server) = &world.api_server {
            // One that is deleted without any time is gone at once.
            if grace == 0 {
                return self.remove(world, SourceKind::Api, &pod);
            }
            at_server::delete(server, &pod, grace);
            // It counts from when the pod was deleted first, and leaves a second where that is over.
            let at_server = server.pods().into_iter().find(|known| known.metadata.uid == pod.metadata.uid);
            grace = at_server.and_then(|pod| pod.metadata.deletion_grace_period_seconds).unwrap_or(grace);
        }
        note(world, format!("{uid} is deleted within {grace} s"));
        let mut deleted = (*pod).clone();
        deleted.metadata.deletion_grace_period_seconds = Some(grace);
        deleted.metadata.deletion_timestamp = Some(Time::from(world.simulator.now()));
        let mut state = world.ledger.state();
        state.end(&uid, grace);
        if let Some(life) = state.lives.get_mut(&uid) {
            life.wanted = false;
        }
        drop(state);
        world.wanted.entry(SourceKind::Api).or_default().insert(uid, Arc::new(deleted));
    }

    fn remove(&mut self, world: &mut World, source: SourceKind, pod: &Arc<Pod>) {
        let uid = pod.metadata.uid.to_string();
        note(world, format!("{uid} is removed"));
        if let (Some(server), SourceKind::Api) = (&world.api_server, source) {
            at_server::delete(server, pod, 0);
        }
        if let Some(pods) = world.wanted.get_mut(&source) {
            pods.remove(&uid);
        }
        let mut state = world.ledger.state();
        state.end(&uid, pod.spec.termination_grace_period_seconds.unwrap_or(30));
        if let Some(life) = state.lives.get_mut(&uid) {
            life.wanted = false;
        }
        if source == SourceKind::File {
            self.removed.push(Arc::clone(pod));
        }
    }

    /// A manifest comes back as it was: the pod has the same UID.
    fn bring_back(&mut self, world: &mut World) {
        let Some(pod) = self.random.pick(&self.removed).cloned() else { return };
        let has_name =
            world.wanted[&SourceKind::File].values().any(|other| other.metadata.name == pod.metadata.name);
        if has_name {
            return;
        }
        self.removed.retain(|other| other.metadata.uid != pod.metadata.uid);
        note(world, format!("{} is wanted again", pod.metadata.uid));
        world.ledger.want_again(&pod);
        world.wanted.entry(SourceKind::File).or_default().insert(pod.metadata.uid.to_string(), pod);
    }

    fn replace(&mut self, world: &mut World) {
        let Some((source, pod)) = self.random.pick(&of(world, SourceKind::is_static)).cloned() else {
            return;
        };
        let name = pod.metadata.name.to_string();
        let version: u64 =
            pod.metadata.uid.rsplit('v').next().and_then(|text| text.parse().ok()).unwrap_or(0);
        self.remove(world, source, &pod);
        // Nobody brings back what was replaced.
        self.removed.pop();
        let next = manifest::pod(&mut self.random, &name, &format!("{name}-v{}", version + 1), self.variety);
        self.want(world, source, &next);
    }

    /// The pod that it mirrors is not touched.
    fn delete_mirror(&mut self, world: &World) {
        let Some(server) = &world.api_server else { return };
        let is_mirror = |pod: &Pod| pod.metadata.annotations.contains_key(CONFIG_MIRROR);
        let mirrors: Vec<Pod> = server.pods().into_iter().filter(is_mirror).collect();
        let grace = self.random.weighted(&[(1, 0), (1, 30)]);
        let Some(mirror) = self.random.pick(&mirrors) else { return };
        note(world, format!("the mirror of {} is deleted within {grace} s", mirror.metadata.name));
        at_server::delete(server, mirror, grace);
    }

    fn any(&mut self, world: &World) -> Option<(SourceKind, Arc<Pod>)> {
        self.random.pick(&of(world, |_| true)).cloned()
    }

    fn victim(&mut self, world: &World) -> Option<ContainerView> {
        let containers = world.simulator.containers();
        let alive: Vec<ContainerView> = containers.into_iter().filter(|container| container.alive).collect();
        let victim = self.random.pick(&alive).cloned()?;
        harm(world, &victim.pod_uid);
        Some(victim)
    }

    fn kill_sandbox(&mut self, world: &World) {
        let sandboxes = world.simulator.sandboxes();
        let ready: Vec<_> = sandboxes.into_iter().filter(|sandbox| sandbox.ready).collect();
        let Some(sandbox) = self.random.pick(&ready) else { return };
        note(world, format!("the sandbox of {} dies", sandbox.metadata.uid));
        harm(world, &sandbox.metadata.uid);
        world.simulator.kill_sandbox_process(&sandbox.id);
    }

    /// As somebody who tidies up would: an init container that is done, when the pod's work has begun.
    async fn collect_init(&mut self, world: &World) {
        let containers = world.simulator.containers();
        let candidates: Vec<&ContainerView> = {
            let state = world.ledger.state();
            let is_done = |container: &&ContainerView| {
                let Some(life) = state.lives.get(&container.pod_uid) else { return false };
                life.done.contains(&(container.sandbox_id.clone(), container.name.clone()))
                    && containers.iter().any(|other| {
                        other.alive && other.pod_uid == container.pod_uid && life.is_main(&other.name)
                    })
            };
            containers.iter().filter(is_done).collect()
        };
        let Some(victim) = self.random.pick(&candidates) else { return };
        note(world, format!("{} is collected", world.ledger.describe(victim)));
        let _ = world.client().remove_container(&victim.id).await;
    }
}

/// Where a pod has resources that can change, and whether somebody is restarted for that.
fn resizable(pod: &Pod) -> Vec<(String, bool)> {
    let place = |list: &'static str, containers: &[Container]| -> Vec<(String, bool)> {
        let containers = containers.iter().enumerate().filter(|(_, it)| !it.resources.requests.is_empty());
        let restarts = |container: &Container| {
            let mut policies = container.resize_policy.iter();
            policies.any(|policy| policy.restart_policy == ResourceResizeRestartPolicy::RestartContainer)
        };
        containers.map(|(index, it)| (format!("/spec/{list}/{index}"), restarts(it))).collect()
    };
    let mut places = place("initContainers", &pod.spec.init_containers);
    places.extend(place("containers", &pod.spec.containers));
    places.extend(pod.spec.resources.iter().map(|_| ("/spec".to_owned(), false)));
    places
}

/// The pods that sources want and nobody deleted yet, of those sources.
fn of(world: &World, which: impl Fn(SourceKind) -> bool) -> Vec<(SourceKind, Arc<Pod>)> {
    let sources = world.wanted.iter().filter(|(source, _)| which(**source));
    sources.flat_map(|(source, pods)| pods.values().map(|pod| (*source, Arc::clone(pod)))).collect()
}

fn harm(world: &World, uid: &str) {
    if let Some(life) = world.ledger.state().lives.get_mut(uid) {
        life.harmed = true;
    }
}

fn note(world: &World, line: String) {
    world.ledger.trace.note(format_args!("=== {line}"));
}
