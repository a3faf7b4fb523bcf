//! The kernel's own notice that memory runs short, where it gives one.

use std::collections::BTreeMap;

use crablet_core::eviction::{Observations, Signal, Threshold, alarm_at};
use crablet_host::signals::{Alarm, MemoryOf, Readings, Signals};
use crablet_logging::ErrorChain;
use futures_util::future::select_all;
use tracing::debug;

/// A mark that moved by less than this is left where it is.
const NEAR: u64 = 4 << 20;

/// What the kernel watches, by the places of the thresholds.
#[derive(Default)]
pub(super) struct Alarms(BTreeMap<usize, Armed>);

struct Armed {
    mark: u64,
    /// Whether so much can be used at all: what the kernel could take back counts as used.
    is_within_reach: bool,
    alarm: Box<dyn Alarm>,
}

impl Alarms {
    /// Has every threshold of memory watched at the mark at which it would be met or over now.
    pub(super) fn set(
        &mut self,
        signals: &dyn Signals,
        thresholds: &[Threshold],
        seen: &Observations,
        readings: &Readings,
    ) {
        let mut before = std::mem::take(&mut self.0);
        for (place, threshold) in thresholds.iter().enumerate() {
            let Some(whose) = memory_of(threshold.signal) else { continue };
            let reading = match whose {
                MemoryOf::Machine => readings.memory,
                MemoryOf::Pods => readings.memory_of_pods,
            };
            let (Some(seen), Some(reading)) = (seen.get(&threshold.signal), reading) else { continue };
            let mark = alarm_at(threshold, seen, reading.usage);
            let armed = match before.remove(&place) {
                Some(armed) if armed.mark.abs_diff(mark) < NEAR => armed,
                Some(_) | None => match signals.watch_memory(whose, mark) {
                    Ok(Some(alarm)) => Armed { mark, is_within_reach: mark <= reading.capacity, alarm },
                    Ok(None) => continue,
                    Err(error) => {
                        let (signal, err) = (threshold.signal.as_str(), ErrorChain(&error));
                        debug!(signal, %err, "The kernel does not watch memory; it is looked at instead");
                        continue;
                    }
                },
            };
            self.0.insert(place, armed);
        }
    }

    /// Whether nobody needs to look for a threshold to be met.
    pub(super) fn watch(&self, place: usize) -> bool {
        self.0.get(&place).is_some_and(|armed| armed.is_within_reach)
    }

    /// Completes when the kernel tells of something.
    pub(super) async fn ring(&mut self) {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        select_all(self.0.values_mut().map(|armed| armed.alarm.rings())).await;
    }
}

fn memory_of(signal: Signal) -> Option<MemoryOf> {
    match signal {
        Signal::MemoryAvailable => Some(MemoryOf::Machine),
        Signal::AllocatableMemoryAvailable => Some(MemoryOf::Pods),
        Signal::NodeFsAvailable
        | Signal::NodeFsInodesFree
        | Signal::ImageFsAvailable
        | Signal::ImageFsInodesFree
        | Signal::ContainerFsAvailable
        | Signal::ContainerFsInodesFree
        | Signal::PidAvailable => None,
    }
}
