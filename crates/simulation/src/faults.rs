//! What goes wrong: with the runtime, the disk, the cgroups, the files, the volumes and the API server.

use std::io::ErrorKind;
use std::time::Duration;

use crablet_cri::{HintKind, HintSource};
use crablet_cri_sim::{Chaos, Fault, Method};
use crablet_host::simulation::Fault as HostFault;
use crablet_host::{cgroup, checkpoint};
use crablet_volumes as volumes;
use tonic::Code;

use crate::api_server::{self, ApiServer};
use crate::random::Random;
use crate::room::Short;
use crate::storage::{self, SimulatedDriver, Victim};
use crate::world::World;

/// What goes wrong for a while, and is to be put right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    RuntimeAway,
    NetworkAway,
    /// The machine runs short of something.
    Short(Short),
    Chaos,
    DiskFull,
    VolumesFail,
    VolumesHang,
    /// With what lies between the agent and the API server.
    Api(api_server::Trouble),
    /// Watches of the API server tell nothing.
    Silence,
    /// With a CSI driver.
    Driver(usize, storage::Trouble),
    /// A CSI driver is not there.
    DriverAway(usize),
    /// A CSI driver says that it can do what it cannot, and cannot what it can.
    DriverLies(usize),
}

/// Begins some trouble.
pub(crate) fn begin(world: &World, trouble: Trouble, random: &mut Random) {
    world.ledger.trace.note(format_args!("~~~ {trouble:?} begins"));
    match trouble {
        Trouble::RuntimeAway => {
            world.ledger.state().runtime_answers = false;
            world.simulator.die();
        }
        Trouble::NetworkAway => {
            world.simulator.set_network_ready(Err(("NetworkPluginNotReady", "no network")))
        }
        Trouble::Short(of) => {
            let percent = random.weighted(&[(3, 1), (3, 20), (2, 60), (1, 150)]);
            world.room.run_short(of, percent);
        }
        Trouble::Chaos => {
            let probability = random.weighted(&[(1, 0.02), (1, 0.1)]);
            world.simulator.set_chaos(Chaos {
                call_fails: probability,
                call_times_out_before_effect: probability / 4.0,
                call_times_out_after_effect: probability / 4.0,
                event_is_lost: probability,
                event_is_doubled: probability,
                event_is_late: probability,
                event_delay: Duration::from_secs(5),
            });
        }
        Trouble::DiskFull => {
            world.ledger.state().fail_disk(FOR_EVER);
            world.checkpoints.set_capacity(0);
            world.state_files.set_capacity(0);
        }
        Trouble::VolumesFail => {
            world.volumes.set_trouble(Some(volumes::Trouble::Fail(ErrorKind::HostUnreachable)));
        }
        Trouble::VolumesHang => world.volumes.set_trouble(Some(volumes::Trouble::Hang)),
        Trouble::Api(trouble) => at_server(world, |server| server.set_trouble(Some(trouble))),
        Trouble::Silence => at_server(world, |server| server.silence_watches(true)),
        Trouble::Driver(index, trouble) => {
            at_driver(world, index, |driver| driver.set_trouble(Some(trouble)))
        }
        Trouble::DriverAway(index) => at_driver(world, index, SimulatedDriver::die),
        Trouble::DriverLies(index) => at_driver(world, index, |driver| driver.start_as(false)),
    }
}

/// Longer than a run.
const FOR_EVER: Duration = Duration::from_secs(1_000_000);
/// What could not be written is tried again within a minute.
const UNTIL_WRITTEN: Duration = Duration::from_secs(120);
/// What is planned for one of the next few writes has happened.
const UNTIL_MET: Duration = Duration::from_secs(1200);
/// How long a command takes that is lost.
const LOST_COMMAND: Duration = Duration::from_secs(300);

/// Puts it right.
pub(crate) fn end(world: &World, trouble: Trouble) {
    world.ledger.trace.note(format_args!("~~~ {trouble:?} is over"));
    match trouble {
        Trouble::RuntimeAway => {
            world.simulator.come_back();
            world.ledger.state().runtime_answers = true;
        }
        Trouble::NetworkAway => world.simulator.set_network_ready(Ok(())),
        Trouble::Short(of) => world.room.recover(of),
        Trouble::Chaos => world.simulator.set_chaos(Chaos::default()),
        Trouble::DiskFull => {
            world.ledger.state().fail_disk(UNTIL_WRITTEN);
            world.checkpoints.set_capacity(usize::MAX);
            world.state_files.set_capacity(usize::MAX);
        }
        Trouble::VolumesFail | Trouble::VolumesHang => world.volumes.set_trouble(None),
        Trouble::Api(_) => at_server(world, |server| server.set_trouble(None)),
        Trouble::Silence => at_server(world, |server| server.silence_watches(false)),
        Trouble::Driver(index, _) => at_driver(world, index, |driver| driver.set_trouble(None)),
        Trouble::DriverAway(index) => at_driver(world, index, SimulatedDriver::come_back),
        Trouble::DriverLies(index) => at_driver(world, index, |driver| driver.start_as(true)),
    }
}

fn at_driver(world: &World, index: usize, act: impl FnOnce(&SimulatedDriver)) {
    if let Some(driver) = world.storage.as_ref().and_then(|storage| storage.drivers.get(index)) {
        act(driver);
    }
}

/// Some trouble of a CSI driver by chance; nothing where somebody is only to die soon.
pub(crate) fn of_storage(world: &World, random: &mut Random) -> Option<Trouble> {
    use storage::Trouble::{AnswersLate, Fails, FailsAfterEffect, Hangs};
    let driver = random.weighted(&[(3, 0), (2, 1), (1, 2)]);
    if random.percent(40) {
        let victim = random.weighted(&[(4, Victim::Agent), (4, Victim::Drivers), (1, Victim::Node)]);
        let steps = random.weighted(&[(2, 4), (2, 20), (1, 60)]);
        let steps = random.between(1, steps);
        world.ledger.trace.note(format_args!("~~~ {victim:?} in {steps} steps of storage"));
        if let Some(storage) = &world.storage {
            storage.deaths.after(steps, victim);
        }
        return None;
    }
    Some(random.weighted(&[
        (2, Trouble::Driver(driver, Fails)),
        (2, Trouble::Driver(driver, FailsAfterEffect)),
        (2, Trouble::Driver(driver, Hangs)),
        (1, Trouble::Driver(driver, AnswersLate)),
        (2, Trouble::DriverAway(driver)),
        (1, Trouble::DriverLies(driver)),
    ]))
}

fn at_server(world: &World, act: impl FnOnce(&ApiServer)) {
    if let Some(server) = &world.api_server {
        act(server);
    }
}

/// Some trouble of the API server by chance; nothing where one only ends all watches, which is done then.
pub(crate) fn of_server(world: &World, random: &mut Random) -> Option<Trouble> {
    use api_server::Trouble::{AnswersAreLost, Hangs, Refused, Says};
    let trouble = random.weighted(&[
        (3, Some(Trouble::Api(Refused))),
        (2, Some(Trouble::Api(Hangs))),
        (2, Some(Trouble::Api(AnswersAreLost))),
        (1, Some(Trouble::Api(Says(500, None)))),
        (1, Some(Trouble::Api(Says(429, Some(2))))),
        (1, Some(Trouble::Api(Says(403, None)))),
        (1, Some(Trouble::Api(Says(409, None)))),
        (1, Some(Trouble::Api(Says(410, None)))),
        (1, Some(Trouble::Silence)),
        (3, None),
    ]);
    if trouble.is_none() {
        world.ledger.trace.note("~~~ watches end");
        at_server(world, ApiServer::close_watches);
    }
    trouble
}

/// Lets something go wrong once.
pub(crate) fn once(world: &World, random: &mut Random) {
    let nth = random.between(1, 4);
    let few = u32::try_from(nth).unwrap_or(1);
    match random.below(11) {
        0..5 => {
            let method = random.weighted(&[
                (3, Method::RunPodSandbox),
                (3, Method::CreateContainer),
                (3, Method::StartContainer),
                (3, Method::StopContainer),
                (1, Method::StopPodSandbox),
                (1, Method::RemovePodSandbox),
                (1, Method::RemoveContainer),
                (2, Method::ListContainers),
                (2, Method::ListPodSandbox),
                (2, Method::ContainerStatus),
                (1, Method::PodSandboxStatus),
                (1, Method::ImageStatus),
                (1, Method::PullImage),
                (1, Method::ExecSync),
                (1, Method::Status),
            ]);
            let on = Fault::on(method).nth(few);
            let fault = match random.below(5) {
                0 => on.fail(Code::Unknown, "a planned fault"),
                1 => on.fails_after_effect(Code::Unknown, "a planned fault after the effect"),
                // A command may run without a limit: nobody could tell a hang that never ends from a hook that takes long.
                2 | 3 if method == Method::ExecSync => on.takes(LOST_COMMAND),
                2 => on.times_out_before_effect(),
                3 => on.times_out_after_effect(),
                _ => on.takes(Duration::from_secs(random.between(1, 8))),
            };
            world.ledger.trace.note(format_args!("~~~ {fault:?}"));
            world.simulator.inject(fault);
        }
        5..7 => {
            let source = random.weighted(&[(1, HintSource::Cri), (2, HintSource::Containerd)]);
            let kind =
                random.weighted(&[(3, HintKind::Stopped), (1, HintKind::Started), (1, HintKind::Removed)]);
            let on = Fault::on_event(source, kind).times(few);
            let fault = match random.below(4) {
                0 => on.is_lost(),
                1 => on.is_doubled(),
                2 => on.is_late(Duration::from_secs(random.between(1, 20))),
                _ => on.comes_after_the_next(),
            };
            world.ledger.trace.note(format_args!("~~~ {fault:?}"));
            world.simulator.inject(fault);
        }
        7 => {
            let operation = random.weighted(&[
                (1, checkpoint::Operation::Save),
                (1, checkpoint::Operation::SaveUnsynced),
                (1, checkpoint::Operation::Remove),
                (1, checkpoint::Operation::LoadAll),
            ]);
            let nth = if operation == checkpoint::Operation::LoadAll { 1 } else { nth };
            let fault = host_fault(random);
            world.ledger.trace.note(format_args!("~~~ disk: {operation:?} {nth} {fault:?}"));
            world.ledger.state().fail_disk(UNTIL_MET);
            world.checkpoints.plan(Some(operation), usize::try_from(nth).unwrap_or(1), fault);
        }
        8 => {
            let operation = random.weighted(&[
                (2, cgroup::Operation::EnsurePod),
                (1, cgroup::Operation::UpdatePod),
                (2, cgroup::Operation::RemovePod),
                (1, cgroup::Operation::Pods),
                (1, cgroup::Operation::EnsureLevels),
            ]);
            let fault = host_fault(random);
            world.ledger.trace.note(format_args!("~~~ cgroups: {operation:?} {nth} {fault:?}"));
            world.cgroups.plan(Some(operation), usize::try_from(nth).unwrap_or(1), fault);
        }
        9 => {
            let operation = random.weighted(&[
                (2, volumes::Operation::SetUp),
                (1, volumes::Operation::SubPath),
                (2, volumes::Operation::TearDown),
            ]);
            let fault = host_fault(random);
            world.ledger.trace.note(format_args!("~~~ volumes: {operation:?} {nth} {fault:?}"));
            world.volumes.plan(Some(operation), usize::try_from(nth).unwrap_or(1), fault);
        }
        _ => {
            world.ledger.trace.note(format_args!("~~~ files: call {nth} fails"));
            world.files.fail(nth - 1);
        }
    }
}

fn host_fault(random: &mut Random) -> HostFault {
    match random.percent(50) {
        true => HostFault::Fails(ErrorKind::StorageFull),
        false => HostFault::FailsAfterEffect(ErrorKind::TimedOut),
    }
}
