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

/// The plugins that make themselves known in `<root>/plugins_registry`.
pub struct PluginRegistry {
    root: PathBuf,
    handlers: BTreeMap<PluginType, Arc<dyn PluginHandler>>,
    problems: Problems,
}

impl PluginRegistry {
    /// The registry of the kubelet with this root directory.
    pub fn new(root: &Path) -> PluginRegistry {
        let problems = Problems(Arc::new(watch::Sender::default()));
        PluginRegistry { root: root.to_owned(), handlers: BTreeMap::new(), problems }
    }

    /// Tells a handler of the plugins of a type. Types without a handler are refused.
    #[must_use]
    pub fn with_handler(mut self, kind: PluginType, handler: Arc<dyn PluginHandler>) -> PluginRegistry {
        self.handlers.insert(kind, handler);
        self
    }

    /// What is in the folder and not registered, by its path, and why.
    pub fn problems(&self) -> watch::Receiver<BTreeMap<PathBuf, String>> {
        self.problems.0.subscribe()
    }

    /// Works for as long as it is polled. What is registered then stays so.
    pub async fn run(self) {
        let directory = self.root.join("plugins_registry");
        let registrar = Arc::new(Registrar {
            root: self.root,
            handlers: self.handlers,
            claims: Claims::default(),
            problems: self.problems.clone(),
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
                    self.problems.replace(&refused, &found.refused);
                    refused.clone_from(&found.refused);
                    sockets.follow(&found);
                }
                Err(error) => {
                    self.problems.set(&directory, error.to_string());
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
                () = retry => self.problems.clear(&directory),
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
        for (path, present) in &self.present {
            let now = found.sockets.get(path).copied();
            // Where the task is gone that was to hear it, it is begun anew below.
            if !present.is_closed() {
                present.send_if_modified(|present| std::mem::replace(present, now) != now);
            }
        }
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
            Some(Err(error)) => error!(%error, "The registration of a plugin failed unexpectedly"),
            None => std::future::pending().await,
        }
    }
}

/// What is wrong, by its path. Each is logged when it is new.
#[derive(Clone)]
struct Problems(Arc<watch::Sender<BTreeMap<PathBuf, String>>>);

impl Problems {
    fn set(&self, path: &Path, problem: String) {
        let is_new = self.0.send_if_modified(|problems| match problems.get(path) {
            Some(known) if *known == problem => false,
            Some(_) | None => {
                problems.insert(path.to_owned(), problem.clone());
                true
            }
        });
        if is_new {
            warn!(path = %path.display(), %problem, "A plugin is not registered");
        }
    }

    fn clear(&self, path: &Path) {
        self.0.send_if_modified(|problems| problems.remove(path).is_some());
    }

    fn replace(&self, old: &BTreeMap<PathBuf, String>, new: &BTreeMap<PathBuf, String>) {
        for path in old.keys().filter(|path| !new.contains_key(*path)) {
            self.clear(path);
        }
        for (path, problem) in new {
            self.set(path, problem.clone());
        }
    }
}
