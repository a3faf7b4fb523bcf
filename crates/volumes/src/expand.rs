//! Making volumes larger on the node when their pieces of storage have become larger.
//!
//! What is to be done is in the claim's status, where whoever enlarges pieces of storage has put it, and what was done is
//! written there. In memory is only how large a volume is known to be on this node: one that several nodes have is
//! expanded on each, also when the claim says already that it is done. How a volume is made larger, its plugin knows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crablet_api::Quantity;
use crablet_api::core::{PersistentVolumeAccessMode, PersistentVolumeClaim, ResourceList};
use crablet_csi::Code;
use crablet_host::lanes::Lane;
use futures_util::future::BoxFuture;
use serde_json::{Value as Json, json};
use tracing::{info, warn};

use crate::claims;
use crate::contents::Contents;
use crate::error::PluginError;
use crate::events::{Occurrence, VolumeEvent};
use crate::plugin::Request;

const STORAGE: &str = "storage";
/// Says that nodes have nothing to do for a volume that several of them have.
const NOT_REQUIRED: &str = "volume.kubernetes.io/node-expansion-not-required";
/// The conditions of a claim that are about its size.
const CONDITIONS: [&str; 4] =
    ["FileSystemResizePending", "Resizing", "ControllerResizeError", "NodeResizeError"];

/// How large the volumes of a plugin are known to be, by keys of its own.
#[derive(Debug, Default)]
pub(crate) struct Sizes(Mutex<BTreeMap<String, Known>>);

/// A volume of a pod that may have become larger.
pub(crate) struct Expansion<'a> {
    pub(crate) sizes: &'a Sizes,
    pub(crate) contents: &'a dyn Contents,
    pub(crate) request: &'a Request,
    /// What the volume is known by.
    pub(crate) key: &'a str,
    pub(crate) moment: Moment,
}

/// What a volume is known to be on this node.
#[derive(Debug, Clone, Default)]
struct Known {
    size: Quantity,
    /// The driver does not expand it while it is in use: it is not asked again before no pod has it.
    is_not_while_in_use: bool,
    /// The driver has failed for good the last time.
    has_failed: bool,
}

/// When a volume is expanded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// A pod gets it.
    Mount,
    /// A pod gets it as a device.
    Map,
    /// A pod has it.
    InUse,
}

/// Why a volume was not made larger. The words are upstream's.
#[derive(Debug, thiserror::Error)]
pub enum ExpandError {
    #[error("driver name {0} not found in the list of registered CSI drivers")]
    NoDriver(String),
    #[error("NodeExpand is not supported by the CSI driver {0}")]
    NotSupported(String),
    #[error("mountVolume.NodeExpandVolume get PVC failed : {0}")]
    Claim(String),
    #[error("mountVolume.NodeExpandVolume update pvc status failed: {0}")]
    Status(String),
    #[error("{0}")]
    Secret(String),
    #[error("Expander.NodeExpand failed to check if node supports expansion : {0}")]
    Capabilities(crablet_csi::Error),
    /// It will never work.
    #[error("Expander.NodeExpand failed to expand the volume {0}")]
    Infeasible(crablet_csi::Error),
    #[error("Expander.NodeExpand failed to expand the volume : {0}")]
    Failed(crablet_csi::Error),
    /// The node's own tools could not do it.
    #[error("{0}")]
    Local(Box<PluginError>),
}

/// What a claim's status asks for.
#[derive(Debug, PartialEq)]
enum Decision {
    /// Nothing is to be done here.
    Done(Quantity),
    /// It is not the node's turn.
    NotYet,
    Expand {
        size: Quantity,
        /// Whether what is done is written into the claim's status. It is there already where another node did it.
        writes: bool,
        /// Whether progress and failures are written too, for who enlarges pieces of storage to recover from.
        recovers: bool,
    },
}

impl Known {
    /// What a claim alone says.
    fn at_first(claim: &PersistentVolumeClaim) -> Known {
        Known { size: amount(&claim.status.capacity), ..Known::default() }
    }
}

impl Sizes {
    /// Nobody has the volume any more.
    pub(crate) fn forget(&self, key: &str) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Expansion<'_> {
    /// Has the volume expanded, if it is smaller than its piece of storage. Nobody else does something to it meanwhile:
    /// work that goes on when nobody waits for it any more holds the lane.
    pub(crate) async fn run<'a>(
        self,
        lane: impl Future<Output = Lane>,
        expand: impl FnOnce(Quantity, Lane) -> BoxFuture<'a, Result<(), ExpandError>>,
    ) -> Result<(), ExpandError> {
        let (request, moment) = (self.request, self.moment);
        let Some(claimed) = &request.claimed else { return Ok(()) };
        let (claim, size) = (&claimed.claim, amount(&claimed.volume.spec.capacity));
        if !request.read_only {
            self.remember(claim);
        }
        if !may_be_larger(&self.known(claim), claim, &size, moment) {
            return Ok(());
        }
        if request.read_only {
            if moment != Moment::InUse {
                self.tell(claim, Occurrence::NotResized, ("failed", "requested read-only file system"));
            }
            return Ok(());
        }
        let lane = lane.await;
        let known = self.known(claim);
        let claim = self.contents.claim(&claim.metadata.namespace, &claim.metadata.name).await;
        let mut claim = claim.map_err(|why| {
            ExpandError::Claim(claims::words(&why, "persistentvolumeclaims", &claimed.claim.metadata.name))
        })?;
        // Another pod's worker may have been quicker.
        if !may_be_larger(&known, &claim, &size, moment) {
            return Ok(());
        }
        let (size, writes, recovers) = match decide(&claim, &size) {
            Decision::Done(size) => {
                self.note(|known| known.size = size);
                return Ok(());
            }
            Decision::NotYet => return Ok(()),
            Decision::Expand { size, writes, recovers } => (size, writes, recovers),
        };
        let is_infeasible = known.has_failed && amount(&claim.spec.resources.requests) != size;
        if writes && recovers {
            claim = self.write_status(&claim, in_progress(&claim)).await?;
        }
        match expand(size.clone(), lane.clone()).await {
            Ok(()) => {}
            Err(ExpandError::NotSupported(_)) if !(writes && recovers) => {
                self.note(|known| known.size = size);
                return Ok(());
            }
            Err(error) => return self.failed(&claim, error, recovers, is_infeasible).await,
        }
        info!(volume = self.key, size = %size, "Expanded a volume");
        let node = request.pod.spec.node_name.to_string();
        self.tell(&claim, Occurrence::Resized, ("succeeded", &node));
        if writes {
            self.write_status(&claim, finished(&claim, &size)).await?;
        }
        // Last: what is not written is tried again, by who finds that the volume is smaller than it should be.
        self.note(|known| *known = Known { size, ..Known::default() });
        Ok(())
    }

    /// A volume that could not be expanded. A driver that only does it while nobody uses the volume keeps no pod
    /// waiting.
    async fn failed(
        &self,
        claim: &PersistentVolumeClaim,
        error: ExpandError,
        recovers: bool,
        is_infeasible: bool,
    ) -> Result<(), ExpandError> {
        let (is_final, is_in_use, is_infeasible) = match &error {
            ExpandError::Infeasible(_) => (true, false, true),
            ExpandError::Failed(why) => {
                (why.is_final(), why.code() == Code::FailedPrecondition, is_infeasible && why.is_final())
            }
            ExpandError::NotSupported(_)
            | ExpandError::Capabilities(_)
            | ExpandError::Secret(_)
            | ExpandError::Local(_) => (true, false, is_infeasible),
            ExpandError::NoDriver(_) | ExpandError::Claim(_) | ExpandError::Status(_) => return Err(error),
        };
        self.note(|known| {
            known.has_failed = is_final;
            known.is_not_while_in_use = is_in_use;
        });
        if recovers {
            let now = self.request.clock.now();
            let patch = failed(claim, &error, is_infeasible, &format!("{now:.0}"));
            if let Err(error) = self.write_status(claim, patch).await {
                warn!(claim = %claim.metadata.name, %error, "Cannot say that a volume was not expanded");
            }
        }
        match is_in_use {
            true => {
                warn!(volume = self.key, %error, "A volume is not expanded while it is in use");
                Ok(())
            }
            false => Err(error),
        }
    }

    async fn write_status(
        &self,
        claim: &PersistentVolumeClaim,
        patch: Option<Json>,
    ) -> Result<Arc<PersistentVolumeClaim>, ExpandError> {
        let Some(patch) = patch else { return Ok(Arc::new(claim.clone())) };
        let metadata = &claim.metadata;
        let written =
            self.contents.patch_claim_status(&metadata.namespace, &metadata.name, patch.to_string());
        written
            .await
            .map_err(|why| ExpandError::Status(claims::words(&why, "persistentvolumeclaims", &metadata.name)))
    }

    /// Keeps what the claim says when the first pod has the volume, for as long as one has it that may write to it. Later
    /// the claim may tell of what another node did.
    fn remember(&self, claim: &PersistentVolumeClaim) {
        self.sizes.lock().entry(self.key.to_owned()).or_insert_with(|| Known::at_first(claim));
    }

    fn known(&self, claim: &PersistentVolumeClaim) -> Known {
        self.sizes.lock().get(self.key).cloned().unwrap_or_else(|| Known::at_first(claim))
    }

    fn note(&self, change: impl FnOnce(&mut Known)) {
        change(self.sizes.lock().entry(self.key.to_owned()).or_default());
    }

    fn tell(&self, claim: &PersistentVolumeClaim, what: Occurrence, (how, why): (&str, &str)) {
        let volume = self.request.spec_name();
        self.request.tell(VolumeEvent {
            what,
            message: format!("MountVolume.NodeExpandVolume {how} for volume {volume:?} {why}"),
            claim: Some(Arc::new(claim.clone())),
        });
    }
}

fn amount(resources: &ResourceList) -> Quantity {
    resources.get(STORAGE).cloned().unwrap_or_default()
}

/// Whether a volume may be smaller here than its piece of storage. A pod that gets it goes by what the claim says.
fn may_be_larger(known: &Known, claim: &PersistentVolumeClaim, size: &Quantity, moment: Moment) -> bool {
    match moment {
        Moment::Mount | Moment::Map => amount(&claim.status.capacity) < *size,
        Moment::InUse => {
            !known.is_not_while_in_use && !known.size.is_zero() && !size.is_zero() && known.size < *size
        }
    }
}

/// What is to be done for a claim whose piece of storage has this size.
fn decide(claim: &PersistentVolumeClaim, size: &Quantity) -> Decision {
    let status = &claim.status;
    let resize = status.allocated_resource_statuses.get(STORAGE).map(|status| &**status);
    let capacity = amount(&status.capacity);
    if resize.is_none() && status.allocated_resources.is_empty() {
        // Who enlarges pieces of storage is older than these fields.
        return Decision::Expand { writes: capacity < *size, size: size.clone(), recovers: false };
    }
    let size = amount(&status.allocated_resources);
    let has_many = claim.spec.access_modes.contains(&PersistentVolumeAccessMode::ReadWriteMany);
    match resize {
        None if capacity < size => Decision::NotYet,
        None if has_many && !claim.metadata.annotations.contains_key(NOT_REQUIRED) => {
            Decision::Expand { size, writes: false, recovers: true }
        }
        None => Decision::Done(size),
        Some("NodeResizePending" | "NodeResizeInProgress") => {
            Decision::Expand { size, writes: true, recovers: true }
        }
        Some(_) => Decision::NotYet,
    }
}

/// Says that the node is at it; nothing where that is said.
fn in_progress(claim: &PersistentVolumeClaim) -> Option<Json> {
    let word = "NodeResizeInProgress";
    let is_said = claim.status.allocated_resource_statuses.get(STORAGE).is_some_and(|said| **said == *word);
    (!is_said).then(|| {
        json!({
            "metadata": {"resourceVersion": claim.metadata.resource_version},
            "status": {"allocatedResourceStatuses": {STORAGE: word}},
        })
    })
}

/// Says how large the volume is. What was said of its becoming larger goes.
fn finished(claim: &PersistentVolumeClaim, size: &Quantity) -> Option<Json> {
    let is_of_size = |kind: &str| CONDITIONS.contains(&kind);
    let conditions = &claim.status.conditions;
    let mut status = json!({"capacity": {STORAGE: size}});
    if !claim.status.allocated_resource_statuses.is_empty() {
        let others = claim.status.allocated_resource_statuses.keys().any(|name| name != STORAGE);
        status["allocatedResourceStatuses"] = if others { json!({STORAGE: null}) } else { Json::Null };
    }
    let gone = conditions.iter().filter(|condition| is_of_size(&condition.r#type));
    let gone: Vec<Json> =
        gone.map(|condition| json!({"$patch": "delete", "type": condition.r#type})).collect();
    if gone.len() == conditions.len() && !gone.is_empty() {
        status["conditions"] = Json::Null;
    } else if !gone.is_empty() {
        status["conditions"] = gone.into();
    }
    Some(json!({"metadata": {"resourceVersion": claim.metadata.resource_version}, "status": status}))
}

/// Says why the volume was not made larger, and whether to try again is of no use. Whoever changed the claim meanwhile
/// does not keep it from being said, as upstream.
fn failed(
    claim: &PersistentVolumeClaim,
    error: &ExpandError,
    is_infeasible: bool,
    now: &str,
) -> Option<Json> {
    let kind = "NodeResizeError";
    let mut status = json!({});
    if is_infeasible {
        status["allocatedResourceStatuses"] = json!({STORAGE: "NodeResizeInfeasible"});
    }
    let mut conditions = claim.status.conditions.iter();
    if !conditions.any(|condition| *condition.r#type == *kind && *condition.status == *"True") {
        status["conditions"] = json!([{
            "type": kind,
            "status": "True",
            "lastProbeTime": null,
            "lastTransitionTime": now,
            "message": format!("failed to expand pvc with {error}"),
        }]);
    }
    (status != json!({})).then(|| json!({"status": status}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(status: Json, spec: Json) -> PersistentVolumeClaim {
        let metadata = json!({"name": "c", "resourceVersion": "7"});
        serde_json::from_value(json!({"metadata": metadata, "status": status, "spec": spec})).unwrap()
    }

    #[test]
    fn what_is_to_be_done_is_in_the_claims_status() {
        let size: Quantity = "2Gi".parse().unwrap();
        let expand = |writes, recovers| Decision::Expand { size: "2Gi".parse().unwrap(), writes, recovers };
        let done = || Decision::Done("2Gi".parse().unwrap());
        let many = json!({"accessModes": ["ReadWriteMany"]});
        let of = |capacity: &str, resize: Option<&str>| {
            json!({
                "capacity": {"storage": capacity},
                "allocatedResources": {"storage": "2Gi"},
                "allocatedResourceStatuses": resize.map(|resize| json!({"storage": resize})),
            })
        };
        for (status, spec, expected) in [
            (json!({"capacity": {"storage": "1Gi"}}), json!({}), expand(true, false)),
            (json!({"capacity": {"storage": "2Gi"}}), json!({}), expand(false, false)),
            (of("1Gi", Some("NodeResizePending")), json!({}), expand(true, true)),
            (of("1Gi", Some("NodeResizeInProgress")), json!({}), expand(true, true)),
            (of("1Gi", Some("NodeResizeInfeasible")), json!({}), Decision::NotYet),
            (of("1Gi", Some("ControllerResizeInProgress")), json!({}), Decision::NotYet),
            (of("1Gi", None), json!({}), Decision::NotYet),
            (of("2Gi", None), json!({}), done()),
            (of("2Gi", None), many, expand(false, true)),
        ] {
            let claim = claim(status, spec);
            assert_eq!(decide(&claim, &size), expected, "{claim:?}");
        }
        let mut not_required = claim(of("2Gi", None), json!({"accessModes": ["ReadWriteMany"]}));
        not_required.metadata.annotations.insert(NOT_REQUIRED, "true".into());
        assert_eq!(decide(&not_required, &size), done());
    }

    #[test]
    fn a_claim_that_is_expanded_keeps_conditions_that_are_not_about_its_size() {
        let of_size = json!({"type": "FileSystemResizePending", "status": "True"});
        let other = json!({"type": "ModifyingVolume", "status": "True"});
        let status = |conditions: Json| {
            claim(
                json!({"conditions": conditions, "allocatedResourceStatuses": {"storage": "NodeResizeInProgress"}}),
                json!({}),
            )
        };
        let size: Quantity = "2Gi".parse().unwrap();
        let alone = finished(&status(json!([of_size])), &size).unwrap();
        assert_eq!(
            alone,
            json!({
                "metadata": {"resourceVersion": "7"},
                "status": {"capacity": {"storage": "2Gi"}, "allocatedResourceStatuses": null, "conditions": null},
            })
        );
        let both = finished(&status(json!([of_size, other])), &size).unwrap();
        assert_eq!(
            both["status"]["conditions"],
            json!([{"$patch": "delete", "type": "FileSystemResizePending"}])
        );
    }

    #[test]
    fn who_cannot_be_expanded_says_why_and_whether_it_is_of_no_use_to_try() {
        let error = |code| crablet_csi::Error::Answer { code, message: "no".to_owned() };
        let claim = claim(json!({}), json!({}));
        let patch =
            failed(&claim, &ExpandError::Infeasible(error(Code::OutOfRange)), true, "2026-01-01T00:00:00Z");
        let status = &patch.unwrap()["status"];
        assert_eq!(status["allocatedResourceStatuses"], json!({"storage": "NodeResizeInfeasible"}));
        assert_eq!(
            status["conditions"][0]["message"],
            "failed to expand pvc with Expander.NodeExpand failed to expand the volume rpc error: code = OutOfRange desc = no"
        );
        let patch = failed(&claim, &ExpandError::Failed(error(Code::Internal)), false, "");
        assert!(patch.unwrap()["status"]["allocatedResourceStatuses"].is_null());
    }
}
