//! How many of a driver's volumes the node can have, asked again now and then where the cluster's object of the driver
//! says so (`nodeAllocatableUpdatePeriodSeconds`), and when a volume could not be attached because the node has too many.
//! The same object may come to say that volumes are published again (`requiresRepublish`), which pods are told then.

use std::future::pending;
use std::time::Duration;

use crablet_api::storage::{CsiDriver, VolumeAttachment};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::sleep;
use tracing::warn;

use super::{Csi, Wanted, requires_republish};

/// gRPC's number for what a node is short of.
const RESOURCE_EXHAUSTED: i32 = 8;

impl Csi {
    /// Asks drivers again for as long as it is polled.
    pub(super) async fn ask_again(&self) {
        let mut drivers = self.drivers();
        loop {
            let names: Vec<String> = drivers.borrow_and_update().keys().cloned().collect();
            let mut asked: FuturesUnordered<_> =
                names.iter().map(|name| self.ask_driver_again(name)).collect();
            tokio::select! {
                // It never ends where there are drivers.
                Some(()) = asked.next() => {}
                changed = drivers.changed() => {
                    if changed.is_err() {
                        return pending().await;
                    }
                }
            }
        }
    }

    async fn ask_driver_again(&self, name: &str) {
        loop {
            let known = self.0.contents.csi_driver(name).await.ok().flatten();
            if requires_republish(known.as_deref()) && self.0.uses.may_republish(name) {
                // Pods look when they are told of a driver.
                self.0.told.send_modify(|_| {});
            }
            let other = self.0.contents.csi_driver_other_than(name, known.as_deref());
            match period(known.as_deref()) {
                None => other.await,
                Some(period) => tokio::select! {
                    () = other => {}
                    () = sleep(period) => self.ask_for_info(name).await,
                },
            }
        }
    }

    async fn ask_for_info(&self, name: &str) {
        let Ok(driver) = self.driver(name) else { return };
        match driver.node.info().await {
            Ok(info) => {
                self.0.told.send_if_modified(|told| match told.get_mut(name) {
                    Some(known) if *known != info => {
                        *known = info;
                        true
                    }
                    Some(_) | None => false,
                });
            }
            Err(error) => warn!(driver = name, %error, "A CSI driver does not say what the node can have"),
        }
    }

    /// Whether a volume is not attached since the node has too many. Then the cluster is to know how many it can have.
    pub(super) async fn is_exhausted(&self, wanted: &Wanted, of_cluster: Option<&CsiDriver>) -> bool {
        if period(of_cluster).is_none() {
            return false;
        }
        match self.0.contents.volume_attachment(&self.attachment(wanted)).await {
            Ok(found) => self.note_attachment(wanted, of_cluster, &found),
            Err(_) => false,
        }
    }

    /// Takes note of how an attachment is, and says whether the node has too many. Nobody waits for the driver to say how
    /// many that are.
    pub(super) fn note_attachment(
        &self,
        wanted: &Wanted,
        of_cluster: Option<&CsiDriver>,
        found: &VolumeAttachment,
    ) -> bool {
        let code = found.status.attach_error.as_ref().and_then(|error| error.error_code);
        let is_exhausted = code == Some(RESOURCE_EXHAUSTED) && period(of_cluster).is_some();
        if is_exhausted {
            let (csi, driver) = (self.clone(), wanted.driver.clone());
            tokio::spawn(async move { csi.ask_for_info(&driver).await });
        }
        is_exhausted
    }
}

fn period(driver: Option<&CsiDriver>) -> Option<Duration> {
    let seconds = driver?.spec.node_allocatable_update_period_seconds?;
    u64::try_from(seconds).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
}
