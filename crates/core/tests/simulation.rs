//! Plans carried out on a tiny model of a runtime, while things go wrong at random. Whatever happens: never two
//! containers of a name run, init containers run in order and not again in the same sandbox, a pod that has come to its
//! end stays there, and when nothing happens any more there is soon nothing left to do.

mod common;

use std::collections::BTreeSet;

use common::{World, pod};
use crablet_api::core::{PodPhase, RestartPolicy};
use crablet_core::backoff::{Limits, Restarts};
use crablet_core::hash::container_hash;
use crablet_core::labels::CONTAINER_HASH;
use crablet_core::observed::{self, Container};
use crablet_core::plan::{Plan, Role, Sandbox, Start};
use crablet_core::probes::Probes;
use crablet_core::testing::{Described, at, container, sandbox};
use crablet_cri_api::{ContainerState, SandboxState, SandboxStatus};
use jiff::SignedDuration;
use proptest::prelude::*;

/// What happens to a pod.
#[derive(Debug, Clone)]
enum Event {
    /// A container that runs ends.
    Exit { which: usize, code: i32 },
    /// All there is of the sandbox dies.
    SandboxDies,
    /// The machine is restarted: everything is dead.
    Reboot,
    /// The runtime loses everything.
    Amnesia,
    /// Containers that ended are collected, all but the newest of each name or all of them.
    Collect { all: bool },
    /// The agent is restarted: what only it knew is lost.
    AgentRestarts,
    /// The agent dies between making a container and starting it.
    AgentDiesWhileStarting,
    /// The runtime does not know a container's state any more.
    Unknown { which: usize },
    /// A container turns out to run twice.
    Twin { which: usize },
    /// A startup or liveness probe fails.
    ProbeFails { which: usize, startup: bool },
    /// A container's image is changed.
    NewImage { which: usize },
    /// Time passes.
    Wait { seconds: i64 },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let which = 0..4usize;
    let event = prop_oneof![
        6 => (which.clone(), prop_oneof![Just(0), Just(1)]).prop_map(|(which, code)| Event::Exit { which, code }),
        1 => Just(Event::SandboxDies),
        1 => Just(Event::Reboot),
        1 => Just(Event::Amnesia),
        2 => any::<bool>().prop_map(|all| Event::Collect { all }),
        2 => Just(Event::AgentRestarts),
        2 => Just(Event::AgentDiesWhileStarting),
        1 => which.clone().prop_map(|which| Event::Unknown { which }),
        1 => which.clone().prop_map(|which| Event::Twin { which }),
        1 => (which.clone(), any::<bool>()).prop_map(|(which, startup)| Event::ProbeFails { which, startup }),
        1 => which.prop_map(|which| Event::NewImage { which }),
        3 => (0..400i64).prop_map(|seconds| Event::Wait { seconds }),
    ];
    proptest::collection::vec(event, 1..25)
}

fn pods() -> impl Strategy<Value = String> {
    let policy = prop_oneof![Just("Always"), Just("OnFailure"), Just("Never")];
    let init = prop_oneof![
        Just(""),
        Just("i"),
        Just("i j"),
        Just("s*"),
        Just("s* i"),
        Just("i s?"),
        Just("s* i t*"),
        Just("s? t*"),
    ];
    let main = prop_oneof![Just("c"), Just("c d")];
    (policy, init, main).prop_map(|(policy, init, main)| format!("{policy}: {init} | {main}"))
}

struct Model {
    world: World,
    seconds: i64,
    sandboxes: Vec<SandboxStatus>,
    containers: Vec<Container>,
    /// Init containers that were done, by their sandbox.
    done: BTreeSet<(String, String)>,
    /// Sidecars that ran, by their sandbox.
    ran: BTreeSet<(String, String)>,
    ended: Option<PodPhase>,
    dies_while_starting: bool,
}

impl Model {
    fn new(line: &str) -> Model {
        Model {
            world: World::new(pod(line), "none").at(0),
            seconds: 0,
            sandboxes: vec![],
            containers: vec![],
            done: BTreeSet::new(),
            ran: BTreeSet::new(),
            ended: None,
            dies_while_starting: false,
        }
    }

    fn tick(&mut self) {
        self.seconds += 1;
        self.world.now = at(self.seconds);
    }

    fn look(&mut self) {
        self.world.observed = observed::Pod::new(self.sandboxes.clone(), self.containers.clone());
        for container in self.containers.iter().filter(|run| run.state == ContainerState::Running) {
            let probes = self.world.probes.0.entry(container.id.clone()).or_default();
            probes.startup.get_or_insert(crablet_core::probes::ProbeResult::Success);
        }
    }

    /// Carries out plans until there is nothing left to do but wait.
    fn settle(&mut self) {
        for _ in 0..30 {
            self.tick();
            self.look();
            let status = self.world.status();
            self.check_phase(status.phase.clone().expect("a phase"));
            let plan = self.world.plan();
            self.world.previous = status;
            if self.ended.is_some() {
                // What has come to its end is stopped, and nothing is started any more.
                self.kill(|_| true);
                self.sandboxes.iter_mut().for_each(|sandbox| sandbox.state = SandboxState::NotReady);
                return;
            }
            if plan.is_empty() {
                let again = self.world.plan();
                assert!(again.is_empty(), "the same look twice, two plans: {again:?}");
                return;
            }
            self.carry_out(&plan);
            self.check();
        }
        panic!("there is always something left to do: {:?}", self.world.plan());
    }

    fn carry_out(&mut self, plan: &Plan) {
        let ids: BTreeSet<&String> = plan.kill.iter().map(|kill| &kill.id).collect();
        self.kill(|run| ids.contains(&run.id));
        let stop = match &plan.sandbox {
            Sandbox::Keep { .. } => &vec![],
            Sandbox::Create { stop, .. } | Sandbox::End { stop, .. } => stop,
        };
        let live = self.containers.iter().filter(|run| run.may_live());
        let orphaned = live.filter(|run| stop.contains(&run.sandbox_id)).count();
        assert_eq!(orphaned, 0, "a sandbox is stopped under its containers");
        for sandbox in self.sandboxes.iter_mut().filter(|sandbox| stop.contains(&sandbox.id)) {
            sandbox.state = SandboxState::NotReady;
        }
        for id in &plan.remove {
            let run = self.containers.iter().find(|run| run.id == *id).expect("what is removed is there");
            assert!(!run.may_live(), "{id} is removed while it may run");
            self.containers.retain(|run| run.id != *id);
        }
        let id = match &plan.sandbox {
            Sandbox::Keep { id } => id.clone(),
            Sandbox::End { .. } => return,
            Sandbox::Create { attempt, .. } => {
                self.tick();
                let mut made = sandbox(*attempt, true);
                made.id = format!("sandbox-at-{}", self.seconds);
                made.created_at = Some(at(self.seconds));
                self.sandboxes.push(made.clone());
                made.id
            }
        };
        for start in &plan.start {
            self.start(start, &id);
            if self.dies_while_starting {
                self.dies_while_starting = false;
                self.restart_agent();
                return;
            }
        }
    }

    fn start(&mut self, start: &Start, sandbox_id: &str) {
        self.check_start(start, sandbox_id);
        self.tick();
        let wanted = start.container(&self.world.pod).expect("it is in the pod");
        if let Some(finished) = start.last_finished {
            self.world.restarts.note_start(wanted, finished, self.world.now);
        }
        let mut made =
            container(&start.name, start.attempt).annotation(CONTAINER_HASH, &container_hash(wanted));
        made.sandbox_id = sandbox_id.into();
        made.status.id = format!("{}-at-{}", start.name, self.seconds);
        made.status.created_at = Some(at(self.seconds));
        if !self.dies_while_starting {
            made = made.running();
            self.ran.insert((sandbox_id.into(), start.name.to_string()));
        }
        self.containers.push(made);
    }

    fn kill(&mut self, which: impl Fn(&Container) -> bool) {
        let now = self.world.now;
        for run in self.containers.iter_mut().filter(|run| run.may_live() && which(run)) {
            run.status.state = ContainerState::Exited;
            run.status.exit_code = 137;
            run.status.finished_at = Some(now);
        }
    }

    fn check_start(&self, start: &Start, sandbox_id: &str) {
        assert!(
            !self.containers.iter().any(|run| *run.name == *start.name && run.may_live()),
            "{} is started while another one may run",
            start.name
        );
        let spec = &self.world.pod.spec;
        let here = |name: &str| (sandbox_id.to_owned(), name.to_owned());
        let before = match start.role {
            Role::Ephemeral => return,
            Role::Init => &spec.init_containers[..start.index],
            Role::Main => &*spec.init_containers,
        };
        for earlier in before {
            let passed = if crablet_core::restart::is_sidecar(earlier) { &self.ran } else { &self.done };
            assert!(
                passed.contains(&here(&earlier.name)),
                "{} is started before {}",
                start.name,
                earlier.name
            );
        }
        assert!(!self.done.contains(&here(&start.name)), "{} is started again", start.name);
        if spec.restart_policy == Some(RestartPolicy::Never) && start.role == Role::Main {
            let changed = self
                .world
                .observed
                .latest(&start.name)
                .is_none_or(|latest| latest.state != ContainerState::Exited);
            assert!(changed, "{} ended and is started again", start.name);
        }
    }

    fn check(&self) {
        let mut live: Vec<&str> =
            self.containers.iter().filter(|run| run.may_live()).map(|run| run.name.as_str()).collect();
        live.sort_unstable();
        let all = live.len();
        live.dedup();
        assert_eq!(all, live.len(), "two of a name run: {live:?}");
        let ready = self.sandboxes.iter().filter(|sandbox| sandbox.state == SandboxState::Ready).count();
        assert!(ready <= 1, "two sandboxes are ready");
    }

    fn check_phase(&mut self, phase: PodPhase) {
        match (&self.ended, phase) {
            (Some(ended), phase) => assert_eq!(*ended, phase, "a pod came back from its end"),
            (None, phase @ (PodPhase::Succeeded | PodPhase::Failed)) => self.ended = Some(phase),
            (None, PodPhase::Pending | PodPhase::Running | PodPhase::Unknown | PodPhase::Other(_)) => {}
        }
    }

    fn restart_agent(&mut self) {
        self.world.probes = Probes::default();
        let observed = observed::Pod::new(self.sandboxes.clone(), self.containers.clone());
        self.world.restarts = Restarts::new(Limits::default());
        self.world.restarts.recover(&self.world.pod, &observed);
    }

    fn happen(&mut self, event: &Event) {
        self.tick();
        let now = self.world.now;
        let running = |containers: &mut Vec<Container>, which: usize| {
            let all: Vec<usize> = (0..containers.len())
                .filter(|index| containers[*index].state == ContainerState::Running)
                .collect();
            (!all.is_empty()).then(|| all[which % all.len()])
        };
        match *event {
            Event::Exit { which, code } => {
                let Some(index) = running(&mut self.containers, which) else { return };
                let run = &mut self.containers[index];
                run.status.state = ContainerState::Exited;
                run.status.exit_code = code;
                run.status.finished_at = Some(now);
                let done = (run.sandbox_id.clone(), run.name.clone());
                let mut init = self.world.pod.spec.init_containers.iter();
                let init = init.any(|container| {
                    *container.name == *done.1 && !crablet_core::restart::is_sidecar(container)
                });
                if code == 0 && init {
                    self.done.insert(done);
                }
            }
            Event::SandboxDies => {
                self.sandboxes.iter_mut().for_each(|sandbox| sandbox.state = SandboxState::NotReady);
            }
            Event::Reboot => {
                self.kill(|_| true);
                self.sandboxes.iter_mut().for_each(|sandbox| sandbox.state = SandboxState::NotReady);
                self.restart_agent();
            }
            Event::Amnesia => {
                self.sandboxes.clear();
                self.containers.clear();
            }
            Event::Collect { all } => {
                let kept: BTreeSet<String> = {
                    let pod = observed::Pod::new(vec![], self.containers.clone());
                    let newest = pod.containers().iter().filter(|run| {
                        run.state == ContainerState::Running
                            || (!all && pod.latest(&run.name).is_some_and(|latest| latest.id == run.id))
                    });
                    newest.map(|run| run.id.clone()).collect()
                };
                self.containers.retain(|run| kept.contains(&run.id));
            }
            Event::AgentRestarts => self.restart_agent(),
            Event::AgentDiesWhileStarting => self.dies_while_starting = true,
            Event::Unknown { which } => {
                if let Some(index) = running(&mut self.containers, which) {
                    self.containers[index].status.state = ContainerState::Unknown;
                }
            }
            Event::Twin { which } => {
                let Some(index) = running(&mut self.containers, which) else { return };
                let mut twin = self.containers[index].clone();
                twin.status.id = format!("{}-twin-at-{}", twin.name, self.seconds);
                let made = twin.created_at.expect("it was made") - SignedDuration::from_millis(1);
                (twin.status.created_at, twin.status.started_at) = (Some(made), Some(made));
                self.containers.push(twin);
            }
            Event::ProbeFails { which, startup } => {
                let Some(index) = running(&mut self.containers, which) else { return };
                let id = self.containers[index].id.clone();
                let kind = if startup { "startup" } else { "liveness" };
                self.world = self.world.clone().probe(&id, kind, "failed");
            }
            Event::NewImage { which } => {
                let containers = &mut self.world.pod.spec.containers;
                let index = which % containers.len();
                containers[index].image = format!("img:{}", self.seconds).into();
            }
            Event::Wait { seconds } => {
                self.seconds += seconds;
                self.world.now = now + SignedDuration::from_secs(seconds);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_goes_wrong_the_invariants_hold(line in pods(), events in events()) {
        let mut model = Model::new(&line);
        model.settle();
        for event in &events {
            model.happen(event);
            model.settle();
        }
    }

    #[test]
    fn a_pod_that_is_left_alone_comes_to_run(line in pods(), events in events()) {
        let mut model = Model::new(&line);
        model.settle();
        for event in &events {
            model.happen(event);
            model.settle();
        }
        for _ in 0..20 {
            // Init containers do their work, and waits are over.
            model.happen(&Event::Wait { seconds: 301 });
            model.settle();
            let init = |name: &str| {
                let mut all = model.world.pod.spec.init_containers.iter();
                all.any(|container| *container.name == *name && !crablet_core::restart::is_sidecar(container))
            };
            let live: Vec<&Container> =
                model.containers.iter().filter(|run| run.state == ContainerState::Running).collect();
            if let Some(which) = live.iter().position(|run| init(&run.name)) {
                model.happen(&Event::Exit { which, code: 0 });
                model.settle();
            }
        }
        let phase = model.world.previous.phase.clone();
        prop_assert!(
            matches!(phase, Some(PodPhase::Running | PodPhase::Succeeded | PodPhase::Failed)),
            "{phase:?}"
        );
    }
}
