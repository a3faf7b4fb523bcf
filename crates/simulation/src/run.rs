//! A run from a seed.

use std::time::Duration;

use crablet_agent::node_config::NodeConfig;
use crablet_agent::sources::SourceKind;
use crablet_api::Gate;
use crablet_core::eviction::Resource;
use crablet_cri_sim::Method;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::acts::{Act, Actor};
use crate::faults::{self, Trouble};
use crate::invariants::{
    check_gone, check_mounted, check_none_shown, check_resized, check_settled, check_shown, check_touched,
    check_unmounted, periods, those_who_go,
};
use crate::ledger::Violation;
use crate::lies::Lie;
use crate::manifest::Variety;
use crate::random::Random;
use crate::room::Short;
use crate::storage::Victim;
use crate::trace::Trace;
use crate::world::{World, description};

/// How long all is quiet before everything must be as wanted: longer than every back-off.
const QUIET: Duration = Duration::from_secs(1500);
/// The same after the script, which has no long waits.
const SHORT_QUIET: Duration = Duration::from_secs(200);
/// How long nothing is wanted before everything must be gone.
const CLEARING: Duration = Duration::from_secs(600);
/// How long a node has to join.
const JOINING: Duration = Duration::from_secs(5);
/// Who is short of something ends somebody within so long, also after another that did not go.
const SOMEBODY_GOES_WITHIN: Duration = Duration::from_secs(60);
/// How long an idle agent is watched.
const IDLE: Duration = Duration::from_secs(600);

/// A short script: what happens, and how many seconds after what came before it.
const SCRIPT: &[(u64, Act)] = &[
    (1, Act::Add),
    (0, Act::Add),
    (0, Act::Add),
    (8, Act::Edit),
    (2, Act::Replace),
    (1, Act::Resize),
    (2, Act::Resize),
    (0, Act::Delete),
    (4, Act::Remove),
    (2, Act::Return),
];

/// What a run is like.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// What everything follows from.
    pub seed: u64,
    /// Whether the trace is kept.
    pub traced: bool,
    /// What the agent is told that is not so.
    pub lie: Option<Lie>,
    /// How many things happen by chance.
    pub acts: u64,
    /// Whether a short script is played before: pods come, one is changed, one replaced, one deleted, one removed and
    /// brought back.
    pub scripted: bool,
    /// Which pods there are.
    pub variety: Variety,
    /// Whether things fail, and the agent is killed at random.
    pub faults: bool,
    /// The step of its life at which the first agent dies.
    pub dies_at: Option<u64>,
    /// Who dies at which step of what is done to volumes of CSI drivers, in a cluster.
    pub storage_death: Option<(u64, Victim)>,
    /// Whether there is an API server, that half of the pods come from, or a source that says what it is told.
    pub in_cluster: bool,
}

impl Settings {
    /// As a seed says.
    pub fn of_seed(seed: u64) -> Settings {
        let mut random = Random::new(seed, 0);
        Settings {
            seed,
            traced: false,
            lie: None,
            acts: random.between(4, 40),
            scripted: false,
            variety: if random.percent(25) { Variety::Lasting } else { Variety::Everything },
            faults: random.percent(90),
            dies_at: None,
            storage_death: None,
            in_cluster: false,
        }
    }

    /// The same with an API server.
    pub fn in_cluster(seed: u64) -> Settings {
        Settings { in_cluster: true, ..Settings::of_seed(seed) }
    }
}

/// What became of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The broken promise, if any.
    pub violation: Option<Violation>,
    /// What happened, as far as it was kept.
    pub trace: Vec<String>,
    /// How many pods there were.
    pub pods: u64,
    /// How many things went wrong.
    pub faults: u64,
    /// How many agents were killed or stopped.
    pub crashes: u64,
    /// How many steps agents took.
    pub steps: u64,
    /// Whether whoever was to die at a step of storage has.
    pub died: bool,
}

pub fn run(settings: Settings) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.unwrap_or_else(|error| panic!("no runtime for a simulated run: {error}"));
    runtime.block_on(async {
        let trace = Trace::new(settings.traced);
        let log = trace.clone();
        let subscriber = tracing_subscriber::fmt()
            .without_time()
            .with_ansi(false)
            .with_max_level(if settings.traced { tracing::Level::INFO } else { tracing::Level::ERROR })
            .with_writer(move || log.clone())
            .finish();
        let _logging = tracing::subscriber::set_default(subscriber);
        let mut run = Run::new(settings, trace);
        run.whole().await;
        run.outcome()
    })
}

/// Plays the script again and again: the first agent dies at its first step, then at a later one by `stride`, and so on
/// until it outlives the script. Gives how many runs that took, or the run that broke a promise.
pub fn dies_at_every_step(
    base: Settings,
    variety: Variety,
    stride: usize,
) -> Result<u64, Box<(Settings, Violation)>> {
    let mut runs = 0;
    for step in (1..).step_by(stride) {
        let settings =
            Settings { acts: 0, scripted: true, variety, faults: false, dies_at: Some(step), ..base };
        let outcome = run(settings);
        runs += 1;
        if let Some(violation) = outcome.violation {
            return Err(Box::new((settings, violation)));
        }
        if outcome.crashes == 0 {
            break;
        }
    }
    Ok(runs)
}

/// Plays the script with claims again and again: somebody dies at the first step of what is done to volumes, then at a
/// later one by `stride`, and so on until nobody does. Gives how many runs that took, or the run that broke a promise.
pub fn somebody_dies_at_every_step_of_storage(
    base: Settings,
    victim: Victim,
    stride: usize,
) -> Result<u64, Box<(Settings, Violation)>> {
    let mut runs = 0;
    for step in (1..).step_by(stride) {
        let settings = Settings {
            acts: 0,
            scripted: true,
            variety: Variety::Claims,
            faults: false,
            storage_death: Some((step, victim)),
            in_cluster: true,
            ..base
        };
        let outcome = run(settings);
        runs += 1;
        if let Some(violation) = outcome.violation {
            return Err(Box::new((settings, violation)));
        }
        if !outcome.died {
            break;
        }
    }
    Ok(runs)
}

/// What becomes of a shutdown of the machine.
#[derive(Debug, Clone, Copy)]
enum Shutdown {
    /// It is cancelled then.
    Cancelled(Instant),
    /// Nobody holds it up for longer than until then. What runs ends so long after that.
    HeldUp { until: Instant, lingers: Duration },
    /// The machine is down then.
    Down(Instant),
}

struct Run {
    settings: Settings,
    world: World,
    actor: Actor,
    random: Random,
    /// Apart from the rest, which is as it was without storage.
    storage: Random,
    /// The same without anything running short.
    room: Random,
    /// Likewise.
    resizes: Random,
    shutdowns: Random,
    /// The shutdown of the machine that is under way.
    shutdown: Option<Shutdown>,
    /// What is wrong now, and until when.
    troubles: Vec<(Instant, Trouble)>,
    /// When the next agent starts, where there is none.
    starts: Option<Instant>,
    /// Since when something is short and nothing else goes wrong, and how many pods and agents were gone then.
    short: Option<(Instant, usize, u64)>,
    faults: u64,
    crashes: u64,
    steps: u64,
}

impl Run {
    fn new(settings: Settings, trace: Trace) -> Run {
        let mut world = World::new(settings.seed, trace);
        world.lie = settings.lie;
        world.describe = Box::new(|| {
            let mut node = NodeConfig { shutdown_periods: periods(), ..description() };
            // An API server has pods as a whole resized where a node says that it does that.
            node.node.status.declared_features =
                [Gate::InPlacePodLevelResourcesVerticalScaling.name().into()].into();
            node
        });
        if settings.in_cluster {
            let server = world.add_api_server();
            if settings.lie == Some(Lie::StatusesAreTaken) {
                server.take_no_statuses();
            }
            let storage = world.add_storage(settings.seed, &server);
            if let Some((step, victim)) = settings.storage_death {
                storage.deaths.at(step, victim);
            }
        }
        Run {
            world,
            actor: Actor::new(settings.seed, settings.variety),
            random: Random::new(settings.seed, 2),
            storage: Random::new(settings.seed, 9),
            room: Random::new(settings.seed, 10),
            resizes: Random::new(settings.seed, 12),
            shutdowns: Random::new(settings.seed, 14),
            shutdown: None,
            settings,
            troubles: Vec::new(),
            starts: None,
            short: None,
            faults: 0,
            crashes: 0,
            steps: 0,
        }
    }

    async fn whole(&mut self) {
        self.world.start(self.settings.dies_at).await;
        self.world.tell_all();
        if self.settings.in_cluster {
            // Pods of a node that nobody knows are not kept for long.
            self.pass(JOINING).await;
        }
        if self.settings.scripted {
            self.play().await;
        }
        for _ in 0..self.settings.acts {
            let pause = self.random.weighted(&[(3, 0), (2, 100), (3, 3000), (3, 20_000), (1, 120_000)]);
            let pause = self.random.up_to(Duration::from_millis(pause));
            self.pass(pause).await;
            if self.is_broken() {
                return;
            }
            self.happen().await;
        }
        self.calm().await;
        self.pass(if self.settings.scripted { SHORT_QUIET } else { QUIET }).await;
        self.await_stillness().await;
        if self.is_broken() {
            return;
        }
        check_settled(&self.world.ledger, &self.world.leftovers());
        check_resized(&self.world.ledger);
        if let Some(server) = &self.world.api_server {
            check_shown(&self.world.ledger, server);
        }
        if let Some(storage) = &self.world.storage {
            check_mounted(&self.world.ledger, storage);
        }
        self.actor.remove_all(&mut self.world);
        self.world.tell_all();
        self.pass(if self.settings.scripted { SHORT_QUIET } else { CLEARING }).await;
        if self.is_broken() {
            return;
        }
        check_gone(&self.world.ledger, &self.world.leftovers());
        if let Some(server) = &self.world.api_server {
            check_none_shown(&self.world.ledger, &server.pods());
            if let Some(storage) = &self.world.storage {
                check_unmounted(&self.world.ledger, storage, server);
            }
        }
        if !self.settings.scripted {
            self.idle().await;
        }
    }

    /// Lets time pass until nothing has started or ended, and nobody waits for the runtime, for a second, however the pods go
    /// on: what is shown follows what happens by some milliseconds, or after a call that the pod waits for.
    async fn await_stillness(&mut self) {
        let alive = |run: &Run| {
            let containers = run.world.simulator.containers();
            let ids = containers.into_iter().map(|container| (container.id, container.alive));
            (ids.collect::<Vec<_>>(), run.world.ledger.state().waited_for)
        };
        for _ in 0..60 {
            let before = alive(self);
            self.pass(Duration::from_secs(1)).await;
            if alive(self) == before && before.1 == 0 {
                return;
            }
        }
    }

    async fn play(&mut self) {
        for (seconds, act) in SCRIPT {
            self.pass(Duration::from_secs(*seconds)).await;
            self.actor.act(&mut self.world, *act).await;
            self.world.tell_all();
        }
        self.pass(Duration::from_secs(20)).await;
    }

    fn is_broken(&self) -> bool {
        self.world.ledger.state().violation.is_some()
    }

    /// Lets time pass: troubles end, killed agents come back, deleted pods go.
    async fn pass(&mut self, time: Duration) {
        let end = Instant::now() + time;
        loop {
            self.put_right();
            self.forget_deleted();
            self.look_at_server();
            self.look_at_storage().await;
            self.look_at_room();
            self.go_down().await;
            self.come_back().await;
            if self.is_broken() {
                return;
            }
            let step = end.min(Instant::now() + Duration::from_secs(1));
            let death = self.world.agent.as_ref().map(|agent| agent.crash.clone());
            match death {
                Some(crash) => {
                    if timeout(step - Instant::now(), crash.death()).await.is_ok() {
                        self.bury().await;
                    }
                }
                None => sleep_until(step).await,
            }
            if Instant::now() >= end {
                return;
            }
        }
    }

    fn put_right(&mut self) {
        let now = Instant::now();
        let (over, on): (Vec<_>, Vec<_>) = self.troubles.drain(..).partition(|(until, _)| *until <= now);
        self.troubles = on;
        for (_, trouble) in over {
            if !self.troubles.iter().any(|(_, other)| *other == trouble) {
                faults::end(&self.world, trouble);
            }
        }
    }

    /// What the API server was told must not be older than what it was told before.
    fn look_at_server(&self) {
        let Some(server) = &self.world.api_server else { return };
        let ledger = &self.world.ledger;
        if let Some(what) = server.take_older()
            && !ledger.state().disk_failed
        {
            ledger.broken(&mut ledger.state(), 15, what);
        }
    }

    /// Nobody may have touched what is in volumes. A node that has died starts again.
    async fn look_at_storage(&mut self) {
        let Some(storage) = self.world.storage.clone() else { return };
        check_touched(&self.world.ledger, &storage);
        if storage.deaths.take_node() {
            self.shutdown = None;
            self.reboot().await;
        }
    }

    /// Somebody goes while something is short, if anybody can.
    fn look_at_room(&mut self) {
        let is_hindered = self.world.agent.is_none()
            || self.shutdown.is_some()
            || self.troubles.iter().any(|(_, trouble)| !matches!(trouble, Trouble::Short(_)));
        let short = [Resource::Memory, Resource::Pids].into_iter().find(|of| self.world.room.is_short(*of));
        let (can_go, went) = those_who_go(&self.world.ledger);
        let (Some(of), false, true) = (short, is_hindered, can_go) else {
            self.short = None;
            return;
        };
        let now = (Instant::now(), went, self.crashes);
        let since = self.short.filter(|before| (before.1, before.2) == (now.1, now.2)).unwrap_or(now);
        self.short = Some(since);
        if since.0.elapsed() > SOMEBODY_GOES_WITHIN {
            let what = format!("nobody goes, and the node is short of {}", of.as_str());
            self.world.ledger.broken(&mut self.world.ledger.state(), 19, what);
        }
    }

    /// The API forgets a deleted pod when the agent has said the last word on it. An API server does so itself.
    fn forget_deleted(&mut self) {
        if self.settings.in_cluster {
            return;
        }
        let Some(agent) = &self.world.agent else { return };
        let is_done = |uid: &str| agent.agent.statuses.get(uid).is_some_and(|shown| shown.terminated);
        let Some(pods) = self.world.wanted.get(&SourceKind::Api) else { return };
        let gone: Vec<String> = pods
            .iter()
            .filter(|(uid, pod)| pod.metadata.deletion_timestamp.is_some() && is_done(uid))
            .map(|(uid, _)| uid.clone())
            .collect();
        if gone.is_empty() {
            return;
        }
        if let Some(pods) = self.world.wanted.get_mut(&SourceKind::Api) {
            pods.retain(|uid, _| !gone.contains(uid));
        }
        self.world.tell(SourceKind::Api);
    }

    /// Starts an agent when it is time.
    async fn come_back(&mut self) {
        if self.world.agent.is_some() || self.starts.is_some_and(|at| at > Instant::now()) {
            return;
        }
        self.world.start(None).await;
        if self.world.agent.is_none() {
            self.starts = Some(Instant::now() + Duration::from_secs(1));
            return;
        }
        self.starts = None;
        // Sources are heard when they are ready, one after another.
        for source in [SourceKind::File, SourceKind::Api] {
            if self.random.percent(30) {
                sleep(self.random.up_to(Duration::from_secs(5))).await;
            }
            self.world.tell(source);
        }
    }

    async fn bury(&mut self) {
        self.crashes += 1;
        self.count_steps();
        self.world.kill().await;
        let down = self.random.weighted(&[(3, 0), (3, 500), (3, 10_000), (1, 90_000)]);
        self.starts = Some(Instant::now() + self.random.up_to(Duration::from_millis(down)));
    }

    fn count_steps(&mut self) {
        if let Some(agent) = &self.world.agent {
            self.steps += agent.crash.steps();
        }
    }

    async fn happen(&mut self) {
        let faulty = self.settings.faults;
        if faulty && self.world.storage.is_some() && self.storage.percent(25) {
            self.faults += 1;
            if let Some(trouble) = faults::of_storage(&self.world, &mut self.storage) {
                let until = Instant::now() + self.storage.up_to(Duration::from_secs(200));
                self.begin_until(trouble, until);
            }
        }
        if faulty && self.room.percent(12) {
            self.faults += 1;
            let of = self.room.weighted(&[(3, Short::Memory), (2, Short::Disk), (1, Short::Processes)]);
            let until = Instant::now() + self.room.up_to(Duration::from_secs(300));
            let trouble = Trouble::Short(of);
            if !self.troubles.iter().any(|(_, other)| *other == trouble) {
                faults::begin(&self.world, trouble, &mut self.room);
            }
            self.troubles.push((until, trouble));
        }
        if faulty && self.shutdown.is_none() && self.shutdowns.percent(8) {
            self.faults += 1;
            self.shut_down();
        }
        if self.settings.in_cluster && self.resizes.percent(35) {
            self.actor.act(&mut self.world, Act::Resize).await;
        }
        if faulty && self.random.percent(35) {
            self.faults += 1;
            return self.go_wrong().await;
        }
        let act = self.random.weighted(&[
            (30, Act::Add),
            (8, Act::Edit),
            (10, Act::Delete),
            (6, Act::Remove),
            (5, Act::Return),
            (7, Act::Replace),
            (if faulty { 8 } else { 0 }, Act::Exit),
            (if faulty { 3 } else { 0 }, Act::OutOfMemory),
            (if faulty { 5 } else { 0 }, Act::KillSandbox),
            (if faulty { 4 } else { 0 }, Act::CollectInit),
            (if self.settings.in_cluster { 6 } else { 0 }, Act::DeleteMirror),
        ]);
        self.actor.act(&mut self.world, act).await;
        self.world.tell_all();
    }

    /// The machine is about to be shut down, or so it is said.
    fn shut_down(&mut self) {
        self.world.announce_shutdown();
        let now = Instant::now();
        let lingers = self.shutdowns.up_to(Duration::from_secs(40));
        self.shutdown = Some(match self.shutdowns.percent(50) {
            true => Shutdown::Cancelled(now + lingers),
            false => Shutdown::HeldUp { until: now + self.world.logind.longest_delay(), lingers },
        });
        if let Some(agent) = self.world.agent.as_ref().filter(|_| self.shutdowns.percent(50)) {
            let soon = self.shutdowns.weighted(&[(1, 30), (2, 300)]);
            agent.crash.at(agent.crash.steps() + self.shutdowns.between(1, soon));
        }
    }

    /// The shutdown goes on, or does not.
    async fn go_down(&mut self) {
        let now = Instant::now();
        match self.shutdown {
            Some(Shutdown::Cancelled(at)) if at <= now => {
                self.shutdown = None;
                self.world.cancel_shutdown();
            }
            Some(Shutdown::HeldUp { until, lingers }) if until <= now || self.world.logind.locks() == 0 => {
                self.shutdown = Some(Shutdown::Down(now + lingers));
            }
            Some(Shutdown::Down(at)) if at <= now => {
                self.shutdown = None;
                self.reboot().await;
            }
            Some(Shutdown::Cancelled(_) | Shutdown::HeldUp { .. } | Shutdown::Down(_)) | None => {}
        }
    }

    async fn reboot(&mut self) {
        for life in self.world.ledger.state().lives.values_mut() {
            life.harmed = true;
        }
        self.bury().await;
        self.world.reboot().await;
    }

    async fn go_wrong(&mut self) {
        if self.settings.in_cluster && self.random.percent(35) {
            if let Some(trouble) = faults::of_server(&self.world, &mut self.random) {
                self.begin(trouble);
            }
            return;
        }
        match self.random.below(22) {
            0..6 => faults::once(&self.world, &mut self.random),
            6..10 => {
                let trouble = self.random.weighted(&[
                    (4, Trouble::RuntimeAway),
                    (1, Trouble::NetworkAway),
                    (3, Trouble::Chaos),
                    (2, Trouble::DiskFull),
                    (1, Trouble::VolumesFail),
                    (1, Trouble::VolumesHang),
                ]);
                self.begin(trouble);
            }
            10..18 => {
                if let Some(agent) = &self.world.agent {
                    let soon = self.random.weighted(&[(3, 3), (3, 30), (3, 300), (1, 3000)]);
                    agent.crash.at(agent.crash.steps() + self.random.between(1, soon));
                }
            }
            18..20 => {
                let uids: Vec<String> = self.world.ledger.state().lives.keys().cloned().collect();
                self.world.ledger.state().panics.extend(self.random.pick(&uids).cloned());
            }
            _ => {
                self.crashes += 1;
                self.count_steps();
                self.world.stop().await;
                self.starts = Some(Instant::now() + self.random.up_to(Duration::from_secs(30)));
            }
        }
    }

    fn begin(&mut self, trouble: Trouble) {
        let until = Instant::now() + self.random.up_to(Duration::from_secs(90));
        self.begin_until(trouble, until);
    }

    fn begin_until(&mut self, trouble: Trouble, until: Instant) {
        if !self.troubles.iter().any(|(_, other)| *other == trouble) {
            faults::begin(&self.world, trouble, &mut self.random);
        }
        self.troubles.push((until, trouble));
    }

    /// Nothing goes wrong any more.
    async fn calm(&mut self) {
        self.world.ledger.trace.note("--- nothing goes wrong from here on");
        for (_, trouble) in std::mem::take(&mut self.troubles) {
            faults::end(&self.world, trouble);
        }
        self.world.simulator.clear_faults();
        self.world.simulator.come_back();
        self.world.ledger.state().panics.clear();
        self.world.free_memory();
        match self.shutdown.take() {
            Some(Shutdown::Cancelled(_)) => self.world.cancel_shutdown(),
            Some(Shutdown::HeldUp { .. } | Shutdown::Down(_)) => self.reboot().await,
            None => {}
        }
        if let Some(storage) = self.world.storage.as_ref().filter(|_| self.settings.storage_death.is_none()) {
            storage.deaths.spare_all();
        }
        if let Some(agent) = &self.world.agent {
            agent.crash.at(u64::MAX);
        }
    }

    /// An idle agent asks for little and has few tasks.
    async fn idle(&mut self) {
        if self.is_broken() {
            return;
        }
        self.world.simulator.forget_calls();
        self.pass(IDLE).await;
        let ledger = &self.world.ledger;
        for call in self.world.simulator.calls() {
            let is_allowed = matches!(
                call.method,
                Method::ListContainers
                    | Method::ListPodSandbox
                    | Method::StreamContainers
                    | Method::StreamPodSandboxes
                    | Method::Status
                    | Method::Subscribe
                    | Method::GetContainerEvents
            );
            // It is known which images are used, and the node's status names them.
            let is_allowed = is_allowed
                || matches!(call.method, Method::ListImages | Method::StreamImages)
                || (self.settings.in_cluster && call.method == Method::Version);
            if !is_allowed {
                let what = format!("an idle agent asks for {}", call.method.name());
                ledger.broken(&mut ledger.state(), 12, what);
            }
        }
        // Lists each minute, and a status each ten seconds.
        let calls = self.world.simulator.calls().len();
        if calls > 150 {
            let what = format!("an idle agent made {calls} calls in {IDLE:?}");
            ledger.broken(&mut ledger.state(), 12, what);
        }
        if let Some(agent) = &self.world.agent {
            let tasks = agent.tasks.count();
            // What runs short, images, shutdowns, what the kernel says, and doubts about refusals; in a cluster: pods and
            // services from the server, statuses, events, the node's object, its lease, its drivers and their objects, who
            // registers them, who unstages, what ends them, and what the node's story has of the runtime's events.
            if tasks > if self.settings.in_cluster { 26 } else { 14 } {
                ledger.broken(&mut ledger.state(), 12, format!("an idle agent has {tasks} tasks"));
            }
        }
    }

    fn outcome(mut self) -> Outcome {
        self.count_steps();
        let violation = self.world.ledger.state().violation.clone();
        Outcome {
            violation,
            trace: self.world.ledger.trace.lines(),
            pods: self.actor.pods,
            faults: self.faults,
            crashes: self.crashes,
            steps: self.steps,
            died: self.world.storage.as_ref().is_some_and(|storage| !storage.deaths.is_due()),
        }
    }
}
