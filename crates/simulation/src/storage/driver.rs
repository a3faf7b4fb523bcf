//! A CSI driver that mounts on a simulated machine, and fails when told to.
//!
//! What it is asked for it does in a task of its own, as another process would: it goes on when whoever asked is gone,
//! and ends when the driver dies. One volume is worked on once at a time; who asks for more meanwhile is told so.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use crablet_csi::{
    Code, Error, ExpandVolume, Node, NodeCapabilities, NodeInfo, PublishVolume, Result, StageVolume,
    VolumeStats,
};
use crablet_volumes::SimulatedMachine;
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use super::{Deaths, Kind};
use crate::api_server::ApiServer;
use crate::ledger::Ledger;
use crate::lies::Lie;
use crate::random::Random;
use crate::world::NODE;

/// How long whoever asks waits for an answer, as the agent does with a real driver.
const TIMEOUT: Duration = Duration::from_secs(120);

/// What is wrong with a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// It does not do what it is asked for, and says so.
    Fails,
    /// It does what it is asked for, and says that it may not have.
    FailsAfterEffect,
    /// It does not answer, and does what it was asked for when it is put right.
    Hangs,
    /// It does what it is asked for, and answers after that nobody waits any more.
    AnswersLate,
}

/// The process that a driver is.
#[derive(Debug, Clone, Copy)]
pub struct Process {
    pub generation: u64,
    pub is_up: bool,
    /// Whether the socket is there by which it made itself known.
    pub has_socket: bool,
    /// Whether it says that it stages. It need not be true.
    says_it_stages: bool,
}

impl Process {
    pub(super) fn die(&mut self) {
        self.is_up = false;
        // Every other one is taken down in order.
        self.has_socket = self.generation.is_multiple_of(2);
        self.generation += 1;
    }

    pub(super) fn come_back(&mut self) {
        (self.is_up, self.has_socket) = (true, true);
    }
}

/// A driver. Clones are the same one.
#[derive(Clone)]
pub struct SimulatedDriver(Arc<Inner>);

struct Inner {
    kind: Kind,
    machine: SimulatedMachine,
    server: ApiServer,
    deaths: Arc<Deaths>,
    ledger: Arc<Ledger>,
    lie: Option<Lie>,
    process: watch::Sender<Process>,
    trouble: watch::Sender<Option<Trouble>>,
    state: Mutex<State>,
}

struct State {
    random: Random,
    /// The volumes that are worked on.
    busy: BTreeSet<String>,
    /// The last process that said what it can do. Who is asked by somebody that knows only an earlier one's word may be
    /// asked for what it cannot.
    told_by: u64,
}

/// What a driver is asked for.
#[derive(Debug, Clone)]
enum Asked {
    Stage { place: PathBuf },
    Unstage { place: PathBuf },
    Publish { staged: Option<PathBuf>, target: PathBuf },
    Unpublish { target: PathBuf },
}

impl SimulatedDriver {
    pub(super) fn new(
        kind: Kind,
        random: Random,
        machine: SimulatedMachine,
        server: ApiServer,
        deaths: Arc<Deaths>,
        ledger: Arc<Ledger>,
        lie: Option<Lie>,
    ) -> SimulatedDriver {
        let process = Process { generation: 1, is_up: true, has_socket: true, says_it_stages: kind.stages };
        SimulatedDriver(Arc::new(Inner {
            kind,
            machine,
            server,
            deaths,
            ledger,
            lie,
            process: watch::Sender::new(process),
            trouble: watch::Sender::default(),
            state: Mutex::new(State { random, busy: BTreeSet::new(), told_by: 0 }),
        }))
    }

    pub fn name(&self) -> &'static str {
        self.0.kind.name
    }

    pub fn process(&self) -> watch::Sender<Process> {
        self.0.process.clone()
    }

    /// Lets something be wrong with it, or puts it right.
    pub fn set_trouble(&self, trouble: Option<Trouble>) {
        self.0.trouble.send_replace(trouble);
    }

    /// Ends it where it is.
    pub fn die(&self) {
        self.0.process.send_modify(Process::die);
    }

    /// Starts it, if it is not there.
    pub fn come_back(&self) {
        self.0.process.send_if_modified(|process| {
            let was_down = !process.is_up;
            process.come_back();
            was_down
        });
    }

    /// Starts it anew; what it says of itself then is true or not.
    pub fn start_as(&self, truthful: bool) {
        self.0.process.send_modify(|process| {
            process.die();
            process.says_it_stages = self.0.kind.stages == truthful;
            process.come_back();
        });
    }

    async fn ask(&self, volume: &str, asked: Asked) -> Result<()> {
        self.note(format_args!("  > {} {asked:?}", self.name()));
        let answer = self.answer(volume, asked.clone()).await;
        match &answer {
            Ok(()) => self.note(format_args!("    {} {asked:?}: ok", self.name())),
            Err(error) => self.note(format_args!("    {} {asked:?}: {error}", self.name())),
        }
        answer
    }

    async fn answer(&self, volume: &str, asked: Asked) -> Result<()> {
        tokio::task::yield_now().await;
        let process = *self.0.process.borrow();
        if !process.is_up {
            return Err(unreachable());
        }
        if !self.state().busy.insert(volume.to_owned()) {
            return Err(says(Code::Aborted, "an operation with the given volume already exists"));
        }
        let (answer, answered) = oneshot::channel();
        let (driver, volume) = (self.clone(), volume.to_owned());
        tokio::spawn(async move {
            let mut deaths = driver.0.process.subscribe();
            let done = tokio::select! {
                biased;
                _ = deaths.wait_for(|now| now.generation != process.generation) => None,
                done = driver.work(&volume, &asked, process) => Some(done),
            };
            driver.state().busy.remove(&volume);
            if let Some(done) = done {
                let _ = answer.send(done);
            }
        });
        match timeout(TIMEOUT, answered).await {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => Err(unreachable()),
            Err(_) => Err(Error::Deadline { within: TIMEOUT }),
        }
    }

    /// What the driver's own process does.
    async fn work(&self, volume: &str, asked: &Asked, process: Process) -> Result<()> {
        let (latency, is_hit) = {
            let mut state = self.state();
            (state.random.up_to(Duration::from_millis(200)), state.random.percent(70))
        };
        self.step().await;
        sleep(latency).await;
        let trouble = self.0.trouble.borrow().filter(|_| is_hit);
        match trouble {
            Some(Trouble::Fails) => return Err(says(Code::Internal, "a planned fault")),
            Some(Trouble::Hangs) => {
                let mut put_right = self.0.trouble.subscribe();
                // The sender is here.
                let _ = put_right.wait_for(|trouble| *trouble != Some(Trouble::Hangs)).await;
            }
            Some(Trouble::FailsAfterEffect | Trouble::AnswersLate) | None => {}
        }
        self.step().await;
        self.effect(volume, asked, process)?;
        self.step().await;
        match trouble {
            Some(Trouble::FailsAfterEffect) => Err(says(Code::Aborted, "a planned fault after the effect")),
            Some(Trouble::AnswersLate) => {
                sleep(TIMEOUT + latency).await;
                Ok(())
            }
            Some(Trouble::Fails | Trouble::Hangs) | None => Ok(()),
        }
    }

    /// A step at which somebody may die: the driver itself is not there any more after it.
    async fn step(&self) {
        self.0.deaths.step();
        tokio::task::yield_now().await;
    }

    fn effect(&self, volume: &str, asked: &Asked, process: Process) -> Result<()> {
        let machine = &self.0.machine;
        let is_there =
            matches!(asked, Asked::Stage { .. }) || machine.mounts().values().any(|it| it == volume);
        if self.0.kind.attach_required && is_there {
            let name = format!("kubernetes.io/csi/{}^{volume}", self.name());
            if !crate::at_server::volumes_in_use(&self.0.server).contains(&name) {
                self.broken(16, format!("{asked:?} of what the API server does not know to be in use"));
            }
        }
        let elsewhere = |place: &Path| {
            let mut mounts = machine.mounts().into_iter();
            mounts.find(|(at, what)| what == volume && at != place).map(|(at, _)| at)
        };
        match asked {
            Asked::Stage { .. } if !self.0.kind.stages => {
                return Err(says(Code::Unimplemented, "it cannot stage"));
            }
            Asked::Stage { place } => {
                if self.0.lie != Some(Lie::VolumesAreStaged) {
                    machine.mount(place, volume);
                }
            }
            Asked::Unstage { place } => {
                if let Some(at) = elsewhere(place) {
                    self.broken(
                        17,
                        format!("{volume} is unstaged while it is published at {}", at.display()),
                    );
                }
                if self.0.lie != Some(Lie::VolumesAreUnstaged) {
                    machine.unmount(place);
                }
            }
            Asked::Publish { staged, target } => {
                let is_staged = staged.as_ref().is_some_and(|place| machine.mounts().contains_key(place));
                if self.0.kind.stages && !is_staged {
                    if process.says_it_stages && self.state().told_by == process.generation {
                        let what =
                            format!("{volume} is published at {} before it is staged", target.display());
                        self.broken(16, what);
                    }
                    return Err(says(Code::FailedPrecondition, "it is not staged"));
                }
                let Some(directory) = target.parent().filter(|directory| machine.exists(directory)) else {
                    return Err(says(Code::Internal, "there is no directory to publish in"));
                };
                if self.0.lie == Some(Lie::MountsAreAbove) {
                    machine.mount(directory, volume);
                }
                machine.mount(target, volume);
            }
            Asked::Unpublish { target } => {
                let uid = target.iter().skip_while(|part| *part != "pods").nth(1).unwrap_or_default();
                let runs = self.0.ledger.simulator.containers();
                if runs.iter().any(|container| container.alive && *container.pod_uid == *uid) {
                    self.broken(17, format!("{} is unpublished while its pod runs", target.display()));
                }
                if self.0.lie == Some(Lie::VolumesAreUnpublished) {
                    machine.remove_place(target);
                    return Ok(());
                }
                machine.unmount(target);
                // Some leave the place to who asks.
                if self.state().random.percent(50) {
                    machine.remove_place(target);
                }
            }
        }
        Ok(())
    }

    fn broken(&self, invariant: u8, what: String) {
        self.0.ledger.broken(&mut self.0.ledger.state(), invariant, what);
    }

    fn note(&self, line: std::fmt::Arguments<'_>) {
        self.0.ledger.trace.note(line);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn says(code: Code, message: &str) -> Error {
    Error::Answer { code, message: message.to_owned() }
}

fn unreachable() -> Error {
    Error::Unreachable { reason: "connection refused".to_owned() }
}

#[async_trait]
impl Node for SimulatedDriver {
    async fn info(&self) -> Result<NodeInfo> {
        tokio::task::yield_now().await;
        match self.0.process.borrow().is_up {
            true => Ok(NodeInfo { node_id: NODE.to_owned(), ..NodeInfo::default() }),
            false => Err(unreachable()),
        }
    }

    async fn capabilities(&self) -> Result<NodeCapabilities> {
        tokio::task::yield_now().await;
        let process = *self.0.process.borrow();
        if !process.is_up {
            return Err(unreachable());
        }
        self.state().told_by = process.generation;
        Ok(NodeCapabilities { stage_unstage_volume: process.says_it_stages, ..NodeCapabilities::default() })
    }

    async fn stage(&self, volume: StageVolume) -> Result<()> {
        self.ask(&volume.volume_id, Asked::Stage { place: volume.staging_target_path.into() }).await
    }

    async fn unstage(&self, volume_id: &str, staging_target_path: &str) -> Result<()> {
        self.ask(volume_id, Asked::Unstage { place: staging_target_path.into() }).await
    }

    async fn publish(&self, volume: PublishVolume) -> Result<()> {
        let staged = Some(volume.staging_target_path).filter(|place| !place.is_empty());
        let asked = Asked::Publish { staged: staged.map(PathBuf::from), target: volume.target_path.into() };
        self.ask(&volume.volume_id, asked).await
    }

    async fn unpublish(&self, volume_id: &str, target_path: &str) -> Result<()> {
        self.ask(volume_id, Asked::Unpublish { target: target_path.into() }).await
    }

    async fn stats(&self, _: &str, _: &str) -> Result<VolumeStats> {
        Err(says(Code::Unimplemented, "it has no stats"))
    }

    async fn expand(&self, _: ExpandVolume) -> Result<i64> {
        Err(says(Code::Unimplemented, "it cannot expand"))
    }
}
