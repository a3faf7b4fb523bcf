//! Listening to what a runtime tells of its own accord.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use crablet_cri::{HintKind, HintSource};
use crablet_testkit::eventually;
use futures_util::StreamExt as _;
use tokio::task::JoinHandle;

use crate::world::{PATIENCE, World};

impl World {
    /// What the runtime tells of its own accord, from the best source that it has. Returns once it does tell.
    ///
    /// containerd's own events come first: of CRI's, containerd 1.7 gives each to one listener only, and cases run side
    /// by side.
    pub async fn hints(&self) -> Hints {
        let sources = [HintSource::Containerd, HintSource::Cri].map(|source| {
            let told = Arc::new(Mutex::new(Told::default()));
            let mut stream = self.runtime.hints(source);
            let task = tokio::spawn({
                let told = Arc::clone(&told);
                async move {
                    while let Some(hint) = stream.next().await {
                        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
                        match hint {
                            Ok(hint) => told.hints.push((hint.id, hint.kind)),
                            Err(error) => told.error = Some(error),
                        }
                    }
                }
            });
            Hints { told, task }
        });
        // A stream says nothing before the first event, not even that it is open. One that the runtime lacks ends.
        let number = self.listeners.fetch_add(1, Ordering::Relaxed);
        let probe = self.ran(&format!("probe-{number}")).await;
        let [containerd, cri] = sources;
        let best = || if containerd.task.is_finished() { &cri } else { &containerd };
        let told = eventually("a source of hints tells", PATIENCE, || async {
            let id = self.created(&probe, "probe", ":").await;
            self.runtime.remove_container(&id).await.map_err(|error| error.to_string())?;
            if best().tells() { Ok(()) } else { Err("none has told anything".to_owned()) }
        });
        told.await.expect("a source of hints tells");
        if containerd.task.is_finished() { cri } else { containerd }
    }
}

/// What a source told so far.
pub struct Hints {
    told: Arc<Mutex<Told>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Told {
    hints: Vec<(String, HintKind)>,
    error: Option<crablet_cri::Error>,
}

impl Hints {
    /// What it told about a sandbox or a container.
    pub fn about(&self, id: &str) -> Vec<HintKind> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.hints.iter().filter(|(about, _)| about == id).map(|(_, kind)| *kind).collect()
    }

    /// Waits until it has told this, and gives all that it told about a sandbox or a container until then.
    pub async fn until(&self, id: &str, kind: HintKind) -> Vec<HintKind> {
        let awaited = format!("{kind:?} is told");
        let told = eventually(&awaited, PATIENCE, || async {
            let told = self.about(id);
            if told.contains(&kind) { Ok(told) } else { Err(format!("{told:?}")) }
        });
        told.await.expect("it is told")
    }

    /// Waits until the stream has ended, and gives what it ended with.
    pub async fn until_the_end(&self) -> Option<crablet_cri::Error> {
        let ended = eventually("the stream of hints has ended", PATIENCE, || async {
            if self.task.is_finished() { Ok(()) } else { Err("it goes on") }
        });
        ended.await.expect("it ends");
        self.told.lock().unwrap_or_else(PoisonError::into_inner).error.clone()
    }

    fn tells(&self) -> bool {
        !self.told.lock().unwrap_or_else(PoisonError::into_inner).hints.is_empty()
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        self.task.abort();
    }
}
