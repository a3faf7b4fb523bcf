//! A kubelet's root directory with drivers in it.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use crablet_csi::stand_in::{Call, NoEffects, Outcome, Settings, StandIn};
use crablet_csi::{Driver, Node as _, Plugin, PluginHandler, PluginRegistry, PluginState, PluginType};
use serde_json::Value as Json;
use tempfile::TempDir;
use tokio::sync::watch;

pub const NAME: &str = "record.csi.example.com";

/// The name of a driver that the handler cannot bear.
pub const PANICKING: &str = "panic.example.com";

/// Waits, but not for ever.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), what).await.expect("it takes too long")
}

/// A driver that does nothing on the node, and is not started yet.
pub fn quiet(settings: Settings) -> StandIn {
    StandIn::new(settings, Arc::new(NoEffects))
}

/// A root directory.
pub struct World {
    directory: TempDir,
}

impl World {
    pub fn new() -> World {
        World { directory: tempfile::tempdir().unwrap() }
    }

    pub fn root(&self) -> &Path {
        self.directory.path()
    }

    pub fn driver_socket(&self, name: &str) -> PathBuf {
        self.root().join("plugins").join(name).join("csi.sock")
    }

    pub fn registration_socket(&self, name: &str) -> PathBuf {
        self.root().join("plugins_registry").join(format!("{name}-reg.sock"))
    }

    /// A driver that makes itself known.
    pub fn start(&self, settings: Settings) -> StandIn {
        self.start_at(&settings.name.clone(), settings)
    }

    /// A driver whose sockets are not called as it is.
    pub fn start_at(&self, name: &str, settings: Settings) -> StandIn {
        let stand_in = quiet(settings);
        stand_in.start(&self.driver_socket(name), Some(&self.registration_socket(name))).unwrap();
        stand_in
    }

    /// A driver that nobody is told of, and a client of it.
    pub fn driver(&self, settings: Settings) -> (StandIn, Driver) {
        let socket = self.driver_socket(NAME);
        let stand_in = quiet(settings);
        stand_in.start(&socket, None).unwrap();
        (stand_in, Driver::new(&socket))
    }

    pub fn registry(&self) -> Registry {
        let handler = Arc::new(Handler::default());
        let events = handler.events.subscribe();
        let registry = PluginRegistry::new(self.root()).with_handler(PluginType::Csi, handler);
        let states = registry.plugins();
        Registry { events, states, task: tokio::spawn(registry.run()) }
    }
}

/// What a handler was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Registered(Box<Plugin>),
    Deregistered(String),
}

/// A handler that asks a driver for its node, as the real one does.
#[derive(Default)]
struct Handler {
    events: watch::Sender<Vec<Event>>,
}

#[async_trait]
impl PluginHandler for Handler {
    async fn register(&self, plugin: Plugin) -> Result<(), String> {
        assert_ne!(plugin.name, PANICKING);
        Driver::new(&plugin.endpoint).info().await.map_err(|error| error.to_string())?;
        self.events.send_modify(|events| events.push(Event::Registered(Box::new(plugin))));
        Ok(())
    }

    async fn deregister(&self, name: &str) {
        self.events.send_modify(|events| events.push(Event::Deregistered(name.to_owned())));
    }
}

/// A registry that runs.
pub struct Registry {
    events: watch::Receiver<Vec<Event>>,
    states: watch::Receiver<BTreeMap<PathBuf, PluginState>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Registry {
    /// Waits until the handler was told this, in few words: `+name` and `-name`.
    pub async fn told(&mut self, expected: &[&str]) {
        let in_short = |event: &Event| match event {
            Event::Registered(plugin) => format!("+{}", plugin.name),
            Event::Deregistered(name) => format!("-{name}"),
        };
        let is_so = |events: &Vec<Event>| events.iter().map(in_short).eq(expected.iter().copied());
        let waiting = self.events.wait_for(is_so);
        let in_time = tokio::time::timeout(Duration::from_secs(30), waiting).await.is_ok();
        if !in_time {
            panic!("expected {expected:?}, not {:?}", *self.events.borrow());
        }
    }

    pub fn plugins(&self) -> Vec<Plugin> {
        let plugin = |event: &Event| match event {
            Event::Registered(plugin) => Some((**plugin).clone()),
            Event::Deregistered(_) => None,
        };
        self.events.borrow().iter().filter_map(plugin).collect()
    }

    /// Waits until a plugin is refused, and says why.
    pub async fn refusal(&mut self, path: &Path) -> String {
        let is_refused = |states: &BTreeMap<PathBuf, PluginState>| {
            matches!(states.get(path), Some(PluginState::Refused(_)))
        };
        match &soon(self.states.wait_for(is_refused)).await.unwrap()[path] {
            PluginState::Refused(why) => why.clone(),
            PluginState::Pending | PluginState::Registered { .. } => unreachable!(),
        }
    }

    /// Waits until these are registered and nobody else is there.
    pub async fn all(&mut self, names: &[&str]) {
        let is_so = |states: &BTreeMap<PathBuf, PluginState>| {
            let is_one = |state: &PluginState| match state {
                PluginState::Registered { name, .. } => names.contains(&name.as_str()),
                PluginState::Pending | PluginState::Refused(_) => false,
            };
            states.len() == names.len() && states.values().all(is_one)
        };
        soon(self.states.wait_for(is_so)).await.unwrap();
    }
}

/// Waits until so many calls are answered.
pub async fn answered(stand_in: &StandIn, number: usize) -> Vec<Json> {
    let is_over = |call: &Call| call.outcome != Outcome::UnderWay;
    soon(stand_in.until(|calls| calls.len() >= number && calls.iter().all(is_over))).await;
    stand_in.calls().iter().map(Call::to_json).collect()
}

/// How often something was called.
pub fn count(calls: &[Call], call: &str) -> usize {
    calls.iter().filter(|made| made.call == call).count()
}
