//! How much of pods' volumes is used. It is measured when somebody asks, and not again for a minute: nobody asks on an
//! idle node, and then nothing is done.
//!
//! A volume that does not answer keeps nobody waiting for long: what was measured before is told, and it is not asked
//! again while it is asked.

use std::io::{Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use crablet_api::Text;
use crablet_csi::VolumeCondition;
use crablet_host::clock::Clock;
use futures_util::future::join_all;
use jiff::Timestamp;
use rustix::io::Errno;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tracing::debug;

use crate::csi::Csi;
use crate::disk_usage::disk_usage;
use crate::events::{Events, Occurrence, VolumeEvent};
use crate::inventory::{Held, Inventory, Meter};
use crate::metrics::Metrics;

/// For how long what was measured is told: `volumeStatsAggPeriod`, where nobody says otherwise.
const PERIOD: Duration = Duration::from_secs(60);
/// How many are measured at once.
const AT_ONCE: usize = 8;
/// For how long one that is measured keeps others waiting.
const PATIENCE: Duration = Duration::from_secs(5);

/// For how long a page of metrics waits for what it tells.
const PATIENCE_OF_A_PAGE: Duration = Duration::from_secs(1);

/// How much of a volume of a pod is used.
#[derive(Debug, Clone, PartialEq)]
pub struct VolumeStats {
    /// Its name in the pod.
    pub name: Text,
    /// The pod's namespace.
    pub namespace: Text,
    /// The name of its claim, if it is one.
    pub claim: Option<Text>,
    /// Whether what it takes counts as the pod's use of the node's own disk.
    pub is_local_ephemeral: bool,
    pub usage: VolumeUsage,
}

/// How much there is of something, and how much of it is used.
#[derive(Debug, Clone, PartialEq)]
pub struct VolumeUsage {
    /// When it was measured.
    pub time: Timestamp,
    pub capacity: u64,
    pub available: u64,
    pub used: u64,
    pub inodes: u64,
    pub inodes_free: u64,
    pub inodes_used: u64,
    /// How its driver says it is, if it does.
    pub condition: Option<VolumeCondition>,
}

/// Who measures volumes. Clones are the same.
#[derive(Clone)]
pub(crate) struct Stats {
    pub(crate) inventory: Inventory,
    pub(crate) csi: Option<Csi>,
    pub(crate) clock: Clock,
    /// Whether volumes are measured, and how old what is told may be.
    pub(crate) period: Option<Duration>,
    /// Whether drivers are asked how volumes are: the gate `CSIVolumeHealth`.
    pub(crate) tells_health: bool,
    pub(crate) metrics: Option<Arc<Metrics>>,
    events: Events,
    permits: Arc<Semaphore>,
}

/// Why a volume is not measured.
#[derive(Debug, thiserror::Error)]
enum Unmeasured {
    #[error(transparent)]
    Kernel(#[from] Errno),
    #[error(transparent)]
    Csi(#[from] crate::error::PluginError),
    #[error("failed to get usage from response. usage is nil")]
    NoUsage,
    #[error("its measuring ended by a panic")]
    Panicked,
}

impl Stats {
    pub(crate) fn new(inventory: Inventory, clock: Clock, events: Events) -> Stats {
        Stats {
            inventory,
            csi: None,
            clock,
            period: Some(PERIOD),
            tells_health: false,
            metrics: None,
            events,
            permits: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Those of a pod, measured anew where they are old. Who does not answer soon is left out, or is told of as before.
    pub(crate) async fn of_pod(&self, uid: &str) -> Vec<VolumeStats> {
        let under_way = self.measure_old(|of, _| of == uid);
        // They go on if this is given up.
        let _ = timeout(PATIENCE, join_all(under_way)).await;
        let pods = self.inventory.lock();
        pods.get(uid).into_iter().flatten().filter_map(told).collect()
    }

    /// Those of claims, measured anew where they are old. Who does not answer at once is told of as before, and measured
    /// for whoever asks next. This thread waits for them, so it must not be one that they need.
    pub(crate) fn of_claims(&self) -> Vec<VolumeStats> {
        if let Ok(runtime) = Handle::try_current() {
            let under_way = self.measure_old(|_, held| held.claim.is_some());
            if !under_way.is_empty() {
                let (is_done, all_are_done) = sync_channel::<()>(0);
                runtime.spawn(async move {
                    join_all(under_way).await;
                    drop(is_done);
                });
                let _ = all_are_done.recv_timeout(PATIENCE_OF_A_PAGE);
            }
        }
        let pods = self.inventory.lock();
        let of_claims = pods.values().flatten().filter(|held| held.claim.is_some());
        of_claims.filter_map(told).collect()
    }

    fn measure_old(&self, is_asked_for: impl Fn(&str, &Held) -> bool) -> Vec<JoinHandle<()>> {
        let Some(period) = self.period else { return Vec::new() };
        let mut under_way = Vec::new();
        let mut pods = self.inventory.lock();
        for (uid, volumes) in pods.iter_mut() {
            for held in volumes.iter_mut().filter(|held| is_asked_for(uid, held)) {
                let is_new = held.latest.as_ref().is_some_and(|latest| latest.0.elapsed() < period);
                let Some(meter) = held.meter.clone().filter(|meter| *meter != Meter::Nothing) else {
                    continue;
                };
                if is_new || held.is_measured {
                    continue;
                }
                held.is_measured = true;
                under_way.push(tokio::spawn(self.clone().measure(uid.clone(), held.name.clone(), meter)));
            }
        }
        under_way
    }

    async fn measure(self, uid: Text, name: Text, meter: Meter) {
        let permit = self.permits.acquire().await;
        let mut work = Box::pin(self.usage(meter));
        let usage = match timeout(PATIENCE, &mut work).await {
            Ok(usage) => usage,
            Err(_) => {
                drop(permit);
                work.await
            }
        };
        if let Err(error) = &usage {
            debug!(%uid, volume = %name, %error, "Cannot measure a volume");
        }
        let condition = usage.as_ref().ok().and_then(|usage| usage.condition.as_ref());
        if let Some(condition) = condition.filter(|condition| condition.abnormal) {
            let message = format!("Volume {name}: {}", condition.message);
            self.events.push(&uid, VolumeEvent { what: Occurrence::Abnormal, message, claim: None });
        }
        let mut pods = self.inventory.lock();
        let held = pods.get_mut(&uid).and_then(|volumes| volumes.iter_mut().find(|held| held.name == name));
        if let Some(held) = held {
            held.is_measured = false;
            held.latest = usage.ok().map(|usage| Box::new((Instant::now(), usage)));
        }
    }

    async fn usage(&self, meter: Meter) -> Result<VolumeUsage, Unmeasured> {
        let (began, time) = (Instant::now(), self.clock.now());
        let took = |source: &str| {
            if let Some(metrics) = &self.metrics {
                metrics.measured(source, began.elapsed());
            }
        };
        match meter {
            Meter::Nothing => Err(Unmeasured::NoUsage),
            Meter::Content(path) => {
                let usage = blocking(move || {
                    let used = disk_usage(&path)?;
                    let usage = file_system(&path, time)?;
                    Ok(VolumeUsage { used: used.bytes, inodes_used: used.inodes, ..usage })
                });
                let usage = usage.await;
                took("du");
                usage
            }
            Meter::FileSystem(path) => blocking(move || file_system(&path, time)).await,
            Meter::Device(path) => blocking(move || device(&path, time)).await,
            Meter::Driver { driver, handle, path } => {
                let Some(csi) = &self.csi else { return Err(Unmeasured::NoUsage) };
                let found = csi.stats(&driver, &handle, &path).await;
                took(&driver);
                let (stats, can_tell_health) = found?;
                let condition = stats.condition.filter(|_| self.tells_health && can_tell_health);
                if stats.bytes.is_none() && stats.inodes.is_none() && condition.is_none() {
                    return Err(Unmeasured::NoUsage);
                }
                let (bytes, inodes) = (stats.bytes.unwrap_or_default(), stats.inodes.unwrap_or_default());
                Ok(VolumeUsage {
                    time,
                    capacity: count(bytes.total),
                    available: count(bytes.available),
                    used: count(bytes.used),
                    inodes: count(inodes.total),
                    inodes_free: count(inodes.available),
                    inodes_used: count(inodes.used),
                    condition,
                })
            }
        }
    }
}

fn told(held: &Held) -> Option<VolumeStats> {
    let (_, usage) = &**held.latest.as_ref()?;
    Some(VolumeStats {
        name: held.name.clone(),
        namespace: held.namespace.clone(),
        claim: held.claim.clone(),
        is_local_ephemeral: held.is_local_ephemeral,
        usage: usage.clone(),
    })
}

fn file_system(path: &Path, time: Timestamp) -> Result<VolumeUsage, Unmeasured> {
    let found = rustix::fs::statfs(path)?;
    let size = u64::try_from(found.f_bsize).unwrap_or_default();
    Ok(VolumeUsage {
        time,
        capacity: found.f_blocks * size,
        available: found.f_bavail * size,
        used: found.f_blocks.saturating_sub(found.f_bfree) * size,
        inodes: found.f_files,
        inodes_free: found.f_ffree,
        inodes_used: found.f_files.saturating_sub(found.f_ffree),
        condition: None,
    })
}

/// Of a device only its size is known.
fn device(path: &Path, time: Timestamp) -> Result<VolumeUsage, Unmeasured> {
    let size = std::fs::File::open(path).and_then(|mut file| file.seek(SeekFrom::End(0)));
    let capacity = size.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(VolumeUsage {
        time,
        capacity,
        available: 0,
        used: 0,
        inodes: 0,
        inodes_free: 0,
        inodes_used: 0,
        condition: None,
    })
}

fn count(amount: i64) -> u64 {
    amount.try_into().unwrap_or_default()
}

async fn blocking(
    work: impl FnOnce() -> Result<VolumeUsage, Unmeasured> + Send + 'static,
) -> Result<VolumeUsage, Unmeasured> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(Unmeasured::Panicked))
}
