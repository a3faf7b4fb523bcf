//! Setting up a pod's volumes, all at once: one that is slow keeps no other waiting.

use std::collections::BTreeMap;
use std::sync::Arc;

use crablet_api::core::{Pod, ResourceList, Volume, VolumeSource};
use crablet_core::qos::PodLevel;
use crablet_core::translate::{MountedVolume, NodeContext};
use crablet_host::lanes::{Lane, Lanes};
use futures_util::future::join_all;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::{HostVolumes, used_volumes};
use crate::claims::{self, Claimed, is_of_others};
use crate::error::{PluginError, VolumeError};
use crate::inventory::{Meter, PluginName};
use crate::metrics::Operation;
use crate::places::is_one_name;
use crate::plugin::{Request, THREADS};

/// What volumes are looked at for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    SetUp,
    Refresh,
}

/// What is the same for all volumes of a pod.
struct Together<'a> {
    pod: Arc<Pod>,
    node: &'a NodeContext,
    allocatable: Arc<ResourceList>,
    why: Why,
    deadline: Instant,
    /// Whether something is to be looked at that others have.
    looks: bool,
    /// Held from when the first volume needs it.
    lane: OnceCell<Lane>,
    /// Two volumes of a pod may be the same piece of storage.
    same: Lanes,
    threads: Arc<Semaphore>,
}

impl HostVolumes {
    /// Sets up those of a pod's volumes that are used, or those of them that change. What failed is in the pod's order.
    pub(super) async fn each(
        &self,
        pod: &Pod,
        node: &NodeContext,
        why: Why,
    ) -> (BTreeMap<String, MountedVolume>, Vec<VolumeError>) {
        let together = Together {
            pod: Arc::new(pod.clone()),
            node,
            allocatable: Arc::new(node.facts.allocatable.clone()),
            why,
            deadline: Instant::now() + self.deadline,
            looks: self.looks(&pod.metadata.uid),
            lane: OnceCell::new(),
            same: Lanes::default(),
            threads: Arc::new(Semaphore::new(THREADS)),
        };
        let used = used_volumes(pod);
        let used = pod.spec.volumes.iter().filter(|volume| used.contains(volume.name.as_str()));
        let tried = join_all(used.map(|volume| self.one(&together, volume))).await;
        let (mut done, mut errors) = (BTreeMap::new(), Vec::new());
        for (name, tried) in tried {
            match tried {
                Ok(None) => {}
                Ok(Some(mounted)) => drop(done.insert(name, mounted)),
                Err(error) => errors.push(error),
            }
        }
        (done, errors)
    }

    /// What one volume is called, and what became of it: nothing where there was nothing to do.
    async fn one(
        &self,
        together: &Together<'_>,
        volume: &Volume,
    ) -> (String, Result<Option<MountedVolume>, VolumeError>) {
        let name = volume.name.to_string();
        // What others have changes nothing that a pod sees, but where a driver is to be asked again. What an agent before
        // this one set up is looked at once.
        let is_known = self.inventory.knows(&together.pod.metadata.uid, &name);
        if together.why == Why::Refresh && is_of_others(volume) && !together.looks && is_known {
            return (name, Ok(None));
        }
        let mut spec_name = name.clone();
        let tried = self.try_one(together, volume, &mut spec_name).await;
        let tried = tried.map_err(|cause| VolumeError { volume: name.clone(), spec_name, cause });
        (name, tried)
    }

    async fn try_one(
        &self,
        together: &Together<'_>,
        volume: &Volume,
        spec_name: &mut String,
    ) -> Result<Option<MountedVolume>, PluginError> {
        let source = volume.source.one().ok_or(PluginError::NoSource)?;
        let timed_out = |_| PluginError::TimedOut(self.deadline);
        let claimed = claims::resolve(&*self.contents, &together.pod, volume);
        let claimed = timeout_at(together.deadline, claimed).await.map_err(timed_out)??;
        if let Some(claimed) = &claimed {
            *spec_name = claimed.volume.metadata.name.to_string();
            claims::check_node(&claimed.volume, &together.node.facts.labels)?;
        }
        let plugin = self.plugin(source, claimed.as_ref())?;
        let uid = together.pod.metadata.uid.as_str();
        if let Some(name) = [uid, &volume.name, spec_name].into_iter().find(|name| !is_one_name(name)) {
            return Err(PluginError::Name { name: name.to_owned() });
        }
        let name = PluginName::new(source, claimed.as_ref());
        if together.why == Why::Refresh && !self.inventory.knows(uid, &volume.name) {
            // A pod of which something was begun has its volumes, whoever set them up.
            self.inventory.want(&together.pod, volume, name.clone());
            let meter = Meter::new(&self.places, uid, volume, claimed.as_ref());
            self.inventory.mounted(uid, &volume.name, meter);
        }
        if together.why == Why::Refresh && !plugin.refreshes() {
            return Ok(None);
        }
        let lane = together.lane.get_or_init(|| self.lanes.enter(uid));
        let lane = timeout_at(together.deadline, lane).await.map_err(|_| PluginError::Busy(self.deadline))?;
        let request = self.request(together, volume, source, claimed, lane.clone());
        let made = async {
            let _alone = together.same.enter(spec_name).await;
            match together.why {
                Why::SetUp => plugin.set_up(&request).await.map(Some),
                Why::Refresh => plugin.refresh(&request).await.map(|()| None),
            }
        };
        if together.why == Why::SetUp {
            self.inventory.want(&together.pod, volume, name.clone());
        }
        let began = Instant::now();
        let made = timeout_at(together.deadline, made).await.unwrap_or_else(|late| Err(timed_out(late)));
        if together.why == Why::SetUp {
            self.count(&name, operation(&request), made.is_ok(), began);
        }
        if let Ok(Some(_)) = &made {
            self.note_mounted(uid, volume, request.claimed.as_ref(), &name);
        }
        made
    }

    fn request(
        &self,
        together: &Together<'_>,
        volume: &Volume,
        source: &VolumeSource,
        claimed: Option<Claimed>,
        lane: Lane,
    ) -> Request {
        Request {
            pod: Arc::clone(&together.pod),
            volume: volume.name.as_str().into(),
            source: Arc::new(source.clone()),
            read_only: claimed.as_ref().is_some_and(|claimed| claimed.read_only),
            claimed,
            allocatable: Arc::clone(&together.allocatable),
            pod_level: PodLevel::from(&together.node.features),
            places: self.places.clone(),
            clock: self.clock.clone(),
            events: self.events.clone(),
            threads: Arc::clone(&together.threads),
            lane,
        }
    }
}

fn operation(request: &Request) -> Operation {
    let is_device = request.claimed.as_ref().is_some_and(|claimed| claims::is_block(&claimed.volume));
    if is_device { Operation::Map } else { Operation::Mount }
}
