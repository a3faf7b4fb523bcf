//! The kernel's own notice that memory runs short, where it gives one.

use std::collections::BTreeMap;
use std::time::Duration;

use crablet_core::eviction::{Observations, Signal, Threshold, alarm_at};
use crablet_host::signals::{Alarm, MemoryOf, Readings, Signals};
use crablet_logging::ErrorChain;
use futures_util::future::select_all;
use tokio::time::Instant;
use tracing::debug;

/// A mark that moved by less than this is left where it is: the kernel takes milliseconds to set one.
const NEAR: u64 = 4 << 20;
/// A way that is shorter has no mark in its middle.
const SHORT_WAY: u64 = 64 << 20;
/// For how long memory counts as moving after the kernel told of it.
const MOVES_FOR: Duration = Duration::from_secs(2);

/// What the kernel watches.
#[derive(Default)]
pub(super) struct Alarms {
    /// By the places of the thresholds.
    watched: BTreeMap<usize, Watched>,
    /// Until when the marks are not relied on. What the kernel could take back is part of where they are, and becomes less
    /// when much is asked for, so that a threshold can be met before its mark is reached.
    moves_until: Option<Instant>,
}

struct Watched {
    /// Where the threshold would be met or over now.
    mark: Armed,
    /// Half way there, so that it is looked again, and the marks are set anew, before that.
    middle: Option<Armed>,
    /// Whether so much can be used at all: what the kernel could take back counts as used.
    is_within_reach: bool,
}

struct Armed {
    at: u64,
    alarm: Box<dyn Alarm>,
}

impl Alarms {
    /// Has every threshold of memory watched.
    pub(super) fn set(
        &mut self,
        signals: &dyn Signals,
        thresholds: &[Threshold],
        seen: &Observations,
        readings: &Readings,
    ) {
        let mut before = std::mem::take(&mut self.watched);
        for (place, threshold) in thresholds.iter().enumerate() {
            let Some(whose) = memory_of(threshold.signal) else { continue };
            let reading = match whose {
                MemoryOf::Machine => readings.memory,
                MemoryOf::Pods => readings.memory_of_pods,
            };
            let (Some(seen), Some(reading)) = (seen.get(&threshold.signal), reading) else { continue };
            let armed = |at| match signals.watch_memory(whose, at) {
                Ok(alarm) => alarm.map(|alarm| Armed { at, alarm }),
                Err(error) => {
                    let (signal, err) = (threshold.signal.as_str(), ErrorChain(&error));
                    debug!(signal, %err, "The kernel does not watch memory; it is looked at instead");
                    None
                }
            };
            let (mark_before, middle_before) =
                before.remove(&place).map_or((None, None), |watched| (Some(watched.mark), watched.middle));
            let at = alarm_at(threshold, seen, reading.usage);
            let way = at.saturating_sub(reading.usage);
            let is_good = |mark: &Armed| match mark.at <= at {
                // It rings too soon, and once.
                true => mark.at > reading.usage || at - mark.at < NEAR,
                // It is set anew half way.
                false => mark.at - at < NEAR.max(way / 16),
            };
            let mark = mark_before.filter(is_good).or_else(|| armed(at));
            let Some(mark) = mark else { continue };
            let is_between = |middle: &Armed| reading.usage < middle.at && middle.at < mark.at;
            let middle = middle_before
                .filter(is_between)
                .or_else(|| (way >= SHORT_WAY).then(|| armed(reading.usage + way / 2)).flatten());
            self.watched.insert(place, Watched { is_within_reach: at <= reading.capacity, mark, middle });
        }
    }

    /// Whether nobody needs to look for a threshold to be met.
    pub(super) fn watch(&self, place: usize) -> bool {
        let moves = self.moves_until.is_some_and(|until| Instant::now() < until);
        !moves && self.watched.get(&place).is_some_and(|watched| watched.is_within_reach)
    }

    /// Completes when the kernel tells of something.
    pub(super) async fn ring(&mut self) {
        if self.watched.is_empty() {
            return std::future::pending().await;
        }
        let armed =
            self.watched.values_mut().flat_map(|watched| [Some(&mut watched.mark), watched.middle.as_mut()]);
        select_all(armed.flatten().map(|armed| armed.alarm.rings())).await;
        self.moves_until = Some(Instant::now() + MOVES_FOR);
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
