//! [`PluginRegistry`]: which plugins are on the node.
//!
//! - `folder`: what the kernel tells of `plugins_registry`, and which sockets are in it.
//! - `registration`: one socket for as long as it is there, in a task of its own: asked, checked, told to the handler,
//!   and told how that went. One that says nothing holds up nobody else.
//! - `plugin`: what a plugin says of itself, and whether that is accepted.
//! - `claims`: whose a name is.

mod claims;
mod folder;
mod plugin;
mod registration;
mod version;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{error, warn};

use claims::Claims;
use folder::{Folder, Found, Identity};
pub use plugin::{Plugin, PluginType};
use registration::Registrar;
pub use version::Version;

/// How long to wait before the folder is looked at again that could not be, at first and at most.
const FOLDER_WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(120));

/// Who is told of the plugins of one type.
#[async_trait]
pub trait PluginHandler: Send + Sync {
    /// A plugin came. An error goes back to it, nothing counts as registered then, and it is asked again later.
    ///
    /// This is dropped when the plugin's socket goes meanwhile; then too it is deregistered.
    async fn register(&self, plugin: Plugin) -> Result<(), String>;
    /// A plugin went, or comes anew.
    async fn deregister(&self, name: &str);
}

/// How far a plugin is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PluginState {
    /// It is asked who it is, or its handler is at it.
    Pending,
    Registered {
        kind: PluginType,
        name: String,
    },
    /// It is not let in, and why. One that may be later is asked again.
    Refused(String),
}

/// The plugins that make themselves known in `<root>/plugins_registry`.
pub struct PluginRegistry {
    root: PathBuf,
    handlers: BTreeMap<PluginType, Arc<dyn PluginHandler>>,
    states: States,
}

impl PluginRegistry {
    /// The registry of the kubelet with this root directory.
    pub fn new(root: &Path) -> PluginRegistry {
        let states = States(Arc::new(watch::Sender::default()));
        PluginRegistry { root: root.to_owned(), handlers: BTreeMap::new(), states }
    }

    /// Tells a handler of the plugins of a type. Types without a handler are refused.
    #[must_use]
    pub fn with_handler(mut self, kind: PluginType, handler: Arc<dyn PluginHandler>) -> PluginRegistry {
        self.handlers.insert(kind, handler);
        self
    }

    /// How far each is that is in the folder, by the path of its socket.
    pub fn plugins(&self) -> watch::Receiver<BTreeMap<PathBuf, PluginState>> {
        self.states.0.subscribe()
    }

    /// Works for as long as it is polled. What is registered then stays so.
    pub async fn run(self) {
        let directory = self.root.join("plugins_registry");
        let registrar = Arc::new(Registrar {
            root: self.root,
            handlers: self.handlers,
            claims: Claims::default(),
            states: self.states.clone(),
        });
        let mut sockets = Sockets { registrar, present: BTreeMap::new(), tasks: JoinSet::new() };
        let mut folder = Folder::new(directory.clone());
        let mut wait = FOLDER_WAITS.0;
        let mut refused = BTreeMap::new();
        loop {
            let looked;
            (folder, looked) = folder.look().await;
            let mut retry = None;
            match looked {
                Ok(found) => {
                    wait = FOLDER_WAITS.0;
                    self.states.refuse(&refused, &found.refused);
                    refused.clone_from(&found.refused);
                    sockets.follow(&found);
                }
                Err(error) => {
                    self.states.set(&directory, PluginState::Refused(error.to_string()));
                    retry = Some(wait);
                    wait = (wait * 2).min(FOLDER_WAITS.1);
                }
            }
            let retry = async {
                match retry {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = folder.changed() => {}
                () = sockets.ended() => {}
                () = retry => self.states.remove(&directory),
            }
        }
    }
}

/// The sockets that are there, each with its task.
struct Sockets {
    registrar: Arc<Registrar>,
    /// Which socket is at a path now, which its task listens to.
    present: BTreeMap<PathBuf, watch::Sender<Option<Identity>>>,
    tasks: JoinSet<PathBuf>,
}

impl Sockets {
    fn follow(&mut self, found: &Found) {
        self.present.retain(|path, present| {
            let now = found.sockets.get(path).copied();
            if !present.is_closed() {
                present.send_if_modified(|present| std::mem::replace(present, now) != now);
                return true;
            }
            // The task is gone that was to hear it. For another socket one is begun below.
            if now.is_none() {
                self.registrar.states.remove(path);
            }
            now.is_some()
        });
        for (path, identity) in &found.sockets {
            let is_known = |present: &watch::Sender<Option<Identity>>| *present.borrow() == Some(*identity);
            if !self.present.get(path).is_some_and(is_known) {
                let (present, listening) = watch::channel(Some(*identity));
                self.tasks.spawn(Arc::clone(&self.registrar).attend(path.clone(), listening));
                self.present.insert(path.clone(), present);
            }
        }
    }

    /// Waits for the end of a task: its socket is gone, and may be there again since.
    async fn ended(&mut self) {
        match self.tasks.join_next().await {
            // Unless another has taken its place already.
            Some(Ok(path)) => {
                if self.present.get(&path).is_some_and(watch::Sender::is_closed) {
                    self.present.remove(&path);
                }
            }
            // The socket counts as known, so that nothing more comes of it until it is made anew.
            Some(Err(error)) => {
                error!(%error, "The registration of a plugin failed unexpectedly");
                let left = self.present.iter().filter(|(_, present)| present.is_closed());
                for (path, _) in left {
                    let why = format!("its registration failed unexpectedly: {error}");
                    self.registrar.states.set(path, PluginState::Refused(why));
                }
            }
            None => std::future::pending().await,
        }
    }
}

/// How far each is, by its path.
#[derive(Clone)]
struct States(Arc<watch::Sender<BTreeMap<PathBuf, PluginState>>>);

impl States {
    fn set(&self, path: &Path, state: PluginState) {
        let is_new = self.0.send_if_modified(|states| match states.get(path) {
            Some(known) if *known == state => false,
            Some(_) | None => {
                states.insert(path.to_owned(), state.clone());
                true
            }
        });
        match state {
            PluginState::Refused(why) if is_new => {
                warn!(path = %path.display(), why, "A plugin is not registered");
            }
            PluginState::Refused(_) | PluginState::Pending | PluginState::Registered { .. } => {}
        }
    }

    fn remove(&self, path: &Path) {
        self.0.send_if_modified(|states| states.remove(path).is_some());
    }

    /// Replaces what was refused in the folder.
    fn refuse(&self, old: &BTreeMap<PathBuf, String>, new: &BTreeMap<PathBuf, String>) {
        for path in old.keys().filter(|path| !new.contains_key(*path)) {
            self.remove(path);
        }
        for (path, why) in new {
            self.set(path, PluginState::Refused(why.clone()));
        }
    }
}
