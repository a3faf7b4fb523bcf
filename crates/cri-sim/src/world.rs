//! All that the simulated runtime has, and what is to happen when.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

use crablet_cri_api::v1;
use tokio::time::Instant;
use tonic::{Code, Status};

use super::call::{Asked, Call};
use super::container::Container;
use super::event::{Event, Happening, Listeners};
use super::fault::{EventFault, Faults};
use super::image::Images;
use super::random::Random;
use super::sandbox::Sandbox;
use super::settings::Settings;
use super::time::Clock;

/// How long an event that is to come after the next one waits for it.
const HELD: Duration = Duration::from_secs(1);

/// The state of the simulated runtime. Nothing in here waits; what takes time is a timer.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) sandboxes: BTreeMap<String, Sandbox>,
    pub(crate) sandbox_names: BTreeMap<String, String>,
    pub(crate) containers: BTreeMap<String, Container>,
    pub(crate) container_names: BTreeMap<String, String>,
    /// The IDs of each sandbox's containers.
    pub(crate) members: BTreeMap<String, BTreeSet<String>>,
    pub(crate) images: Images,
    pub(crate) listeners: Listeners,
    pub(crate) faults: Faults,
    pub(crate) calls: VecDeque<Call>,
    pub(crate) asked: VecDeque<Asked>,
    pub(crate) conditions: Conditions,
    pub(crate) alive: bool,
    timers: BTreeMap<(Instant, u64), Timer>,
    timer_number: u64,
    last_created: i64,
    last_pid: u32,
    last_address: u16,
}

/// What the runtime says of itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Conditions {
    /// Why it is not ready.
    pub(crate) runtime_not_ready: Option<(String, String)>,
    /// Why its network is not ready.
    pub(crate) network_not_ready: Option<(String, String)>,
}

/// What is to happen at some time.
#[derive(Debug)]
enum Timer {
    /// A container's process has something to do.
    Process(String),
    /// CRI sees that a container has ended.
    ContainerExit(String),
    /// CRI sees that a sandbox has ended.
    SandboxExit(String),
    /// A late event goes out.
    Event(Box<Event>),
    /// Events that waited for a next one go out.
    Release,
}

impl World {
    pub(crate) fn new(settings: Settings) -> World {
        let mut images = Images::default();
        for image in &settings.images {
            images.import(image.clone());
        }
        World {
            clock: Clock::starting_at(settings.start),
            random: Random::new(settings.seed),
            sandboxes: BTreeMap::new(),
            sandbox_names: BTreeMap::new(),
            containers: BTreeMap::new(),
            container_names: BTreeMap::new(),
            members: BTreeMap::new(),
            images,
            listeners: Listeners::new(),
            // Its own chance, so that a fault does not change the IDs that follow.
            faults: Faults::new(settings.chaos.clone(), settings.seed ^ 0x5eed_fa17),
            calls: VecDeque::new(),
            asked: VecDeque::new(),
            conditions: Conditions::default(),
            alive: true,
            timers: BTreeMap::new(),
            timer_number: 0,
            last_created: 0,
            last_pid: 1000,
            last_address: 1,
            settings,
        }
    }

    /// When something is to happen next.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers.first_key_value().map(|((at, _), _)| *at)
    }

    /// Lets all happen that is due, each at its own time.
    pub(crate) fn advance(&mut self, now: Instant) {
        while let Some(entry) = self.timers.first_entry()
            && entry.key().0 <= now
        {
            let ((at, _), timer) = entry.remove_entry();
            match timer {
                Timer::Process(id) => self.run_process(&id, at),
                Timer::ContainerExit(id) => self.container_exit_is_seen(&id, at),
                Timer::SandboxExit(id) => self.sandbox_exit_is_seen(&id, at),
                Timer::Event(event) => self.listeners.send(&event),
                Timer::Release => self.listeners.release(),
            }
        }
    }

    fn at(&mut self, at: Instant, timer: Timer) {
        self.timer_number += 1;
        self.timers.insert((at, self.timer_number), timer);
    }

    pub(crate) fn wake_process_at(&mut self, at: Instant, id: &str) {
        self.at(at, Timer::Process(id.to_owned()));
    }

    pub(crate) fn see_container_exit_at(&mut self, at: Instant, id: &str) {
        self.at(at, Timer::ContainerExit(id.to_owned()));
    }

    pub(crate) fn see_sandbox_exit_at(&mut self, at: Instant, id: &str) {
        self.at(at, Timer::SandboxExit(id.to_owned()));
    }

    /// A time of creation. No two are the same, as on a real machine.
    pub(crate) fn created_now(&mut self, now: Instant) -> i64 {
        self.last_created = self.clock.nanoseconds(now).max(self.last_created + 1);
        self.last_created
    }

    pub(crate) fn next_pid(&mut self) -> u32 {
        self.last_pid += 1;
        self.last_pid
    }

    pub(crate) fn next_address(&mut self) -> String {
        // Those that end in 0 and 255 are no machine's.
        self.last_address = match self.last_address.wrapping_add(1) {
            address if address % 256 == 255 => address.wrapping_add(2),
            0 => 2,
            address => address,
        };
        let [first, second, third] = self.settings.pod_network;
        let [above, last] = self.last_address.to_be_bytes();
        format!("{first}.{second}.{}.{last}", third.wrapping_add(above))
    }

    /// Tells what happened to those who listen to containerd.
    pub(crate) fn tell(&mut self, happening: Happening<'_>, at: Instant) {
        if self.settings.capabilities.containerd_events {
            let event = Event::containerd(happening, self.clock.timestamp(at));
            self.publish(event, at);
        }
    }

    /// Tells what happened to those who listen to CRI's events, with the state of the whole pod.
    pub(crate) fn tell_cri(&mut self, id: &str, sandbox_id: &str, kind: v1::ContainerEventType, at: Instant) {
        if !self.settings.capabilities.cri_events || !self.listeners.hears_cri() {
            return;
        }
        let event = v1::ContainerEventResponse {
            container_id: id.to_owned(),
            container_event_type: kind.into(),
            created_at: self.clock.nanoseconds(at),
            pod_sandbox_status: self.sandboxes.get(sandbox_id).map(Sandbox::to_status),
            containers_statuses: self.statuses_in(sandbox_id),
        };
        self.publish(Event::cri(event), at);
    }

    pub(crate) fn statuses_in(&self, sandbox_id: &str) -> Vec<v1::ContainerStatus> {
        let ids = self.members.get(sandbox_id).into_iter().flatten();
        ids.filter_map(|id| self.containers.get(id))
            .map(|container| container.to_status(&self.images))
            .collect()
    }

    fn publish(&mut self, event: Event, at: Instant) {
        if !self.alive {
            return;
        }
        match self.faults.of_event(event.source(), event.kind) {
            None => self.listeners.send(&event),
            Some(EventFault::Lost) => {}
            Some(EventFault::Doubled) => {
                self.listeners.send(&event);
                self.listeners.send(&event);
            }
            Some(EventFault::Late(by)) => self.at(at + by, Timer::Event(Box::new(event))),
            Some(EventFault::AfterNext) => {
                self.listeners.hold(event);
                self.at(at + HELD, Timer::Release);
            }
        }
    }

    /// The runtime is gone. Containers live on, and events are not told.
    pub(crate) fn die(&mut self) {
        self.alive = false;
        self.listeners.forget();
        self.timers.retain(|_, timer| !matches!(timer, Timer::Event(_) | Timer::Release));
    }

    pub(crate) fn remember(&mut self, call: Call) {
        if self.calls.len() >= self.settings.remembered_calls {
            self.calls.pop_front();
        }
        self.calls.push_back(call);
    }

    /// Remembers something that was asked for, if anything of the kind is remembered.
    pub(crate) fn remember_asked(&mut self, asked: impl FnOnce() -> Option<Asked>) {
        if self.settings.remembered_asked == 0 {
            return;
        }
        if self.asked.len() >= self.settings.remembered_asked {
            self.asked.pop_front();
        }
        self.asked.extend(asked());
    }

    /// Finds a container by its ID or the beginning of it.
    pub(crate) fn find_container(&self, id: &str) -> Result<String, Missing> {
        find(&self.containers, id)
    }

    /// Finds a sandbox by its ID or the beginning of it.
    pub(crate) fn find_sandbox(&self, id: &str) -> Result<String, Missing> {
        find(&self.sandboxes, id)
    }

    pub(crate) fn container(&self, id: &str) -> Result<&Container, Status> {
        self.containers.get(id).ok_or_else(|| Status::not_found(format!("container {id:?}: not found")))
    }

    pub(crate) fn container_mut(&mut self, id: &str) -> Result<&mut Container, Status> {
        self.containers.get_mut(id).ok_or_else(|| Status::not_found(format!("container {id:?}: not found")))
    }

    pub(crate) fn sandbox(&self, id: &str) -> Result<&Sandbox, Status> {
        self.sandboxes.get(id).ok_or_else(|| Status::not_found(format!("sandbox {id:?}: not found")))
    }
}

fn find<T>(map: &BTreeMap<String, T>, prefix: &str) -> Result<String, Missing> {
    if prefix.is_empty() {
        return Err(Missing::Empty);
    }
    let mut matching = map.range(prefix.to_owned()..).take_while(|(id, _)| id.starts_with(prefix));
    match (matching.next(), matching.next()) {
        (None, _) => Err(Missing::NotFound),
        (Some((id, _)), None) => Ok(id.clone()),
        (Some(_), Some(_)) => Err(Missing::Ambiguous(prefix.to_owned())),
    }
}

/// Why an ID names nothing, in containerd's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Missing {
    NotFound,
    Empty,
    Ambiguous(String),
}

impl Missing {
    pub(crate) fn status(&self, context: impl fmt::Display) -> Status {
        let code = match self {
            Missing::NotFound => Code::NotFound,
            Missing::Empty | Missing::Ambiguous(_) => Code::Unknown,
        };
        Status::new(code, format!("{context}: {self}"))
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::NotFound => f.write_str("not found"),
            Missing::Empty => f.write_str("Prefix can't be empty"),
            Missing::Ambiguous(prefix) => write!(f, "Multiple IDs found with provided prefix: {prefix}"),
        }
    }
}
