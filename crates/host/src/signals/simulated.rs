//! A machine in memory that runs short of something when it is told to.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tokio::sync::Notify;

use super::{Alarm, DiskReadings, FileSystems, MemoryOf, Places, Readings, Signals};

/// What a machine in memory has left. Clones are the same machine.
#[derive(Debug, Clone, Default)]
pub struct SimulatedSignals(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    readings: Readings,
    disks: DiskReadings,
    file_systems: Option<FileSystems>,
    has_alarms: bool,
    looks: u64,
}

impl SimulatedSignals {
    /// One of which nothing can be read.
    pub fn new() -> SimulatedSignals {
        SimulatedSignals::default()
    }

    /// Changes what is left. Alarms for what that passes ring.
    pub fn change(&self, change: impl FnOnce(&mut Readings)) {
        change(&mut self.state().readings);
        self.0.changed.notify_waiters();
    }

    /// Says what is left on disks.
    pub fn set_disks(&self, disks: DiskReadings) {
        self.state().disks = disks;
    }

    pub fn set_file_systems(&self, file_systems: FileSystems) {
        self.state().file_systems = Some(file_systems);
    }

    /// Whether its kernel can tell when memory is short.
    pub fn set_alarms(&self, has_alarms: bool) {
        self.state().has_alarms = has_alarms;
    }

    /// How often somebody looked.
    pub fn looks(&self) -> u64 {
        self.state().looks
    }

    fn usage(&self, whose: MemoryOf) -> Option<u64> {
        let readings = self.state().readings;
        let memory = match whose {
            MemoryOf::Machine => readings.memory,
            MemoryOf::Pods => readings.memory_of_pods,
        };
        memory.map(|memory| memory.usage)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Signals for SimulatedSignals {
    fn read(&self) -> Readings {
        let mut state = self.state();
        state.looks += 1;
        state.readings
    }

    async fn read_disks(&self, _: &Places) -> DiskReadings {
        tokio::task::yield_now().await;
        self.state().disks
    }

    async fn file_systems(&self, _: &Places) -> Option<FileSystems> {
        self.state().file_systems.clone()
    }

    fn watch_memory(&self, whose: MemoryOf, usage: u64) -> io::Result<Option<Box<dyn Alarm>>> {
        if !self.state().has_alarms {
            return Ok(None);
        }
        let is_above = self.usage(whose).is_some_and(|now| now >= usage);
        Ok(Some(Box::new(SimulatedAlarm { machine: self.clone(), whose, usage, is_above })))
    }
}

struct SimulatedAlarm {
    machine: SimulatedSignals,
    whose: MemoryOf,
    usage: u64,
    is_above: bool,
}

#[async_trait]
impl Alarm for SimulatedAlarm {
    async fn rings(&mut self) {
        let machine = self.machine.clone();
        loop {
            let changed = machine.0.changed.notified();
            let is_above = machine.usage(self.whose).is_some_and(|now| now >= self.usage);
            if std::mem::replace(&mut self.is_above, is_above) != is_above {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signals::MemoryReading;

    #[tokio::test(start_paused = true)]
    async fn an_alarm_rings_when_use_passes_its_mark_in_either_direction() {
        let machine = SimulatedSignals::new();
        let used = |usage| {
            machine.change(|readings| {
                readings.memory = Some(MemoryReading { capacity: 100, usage, working_set: usage });
            });
        };
        used(10);
        assert!(machine.watch_memory(MemoryOf::Machine, 50).unwrap().is_none());
        machine.set_alarms(true);
        let mut alarm = machine.watch_memory(MemoryOf::Machine, 50).unwrap().unwrap();
        for usage in [50, 49, 90] {
            used(usage);
            alarm.rings().await;
        }
        used(95);
        let waited = tokio::time::timeout(std::time::Duration::from_secs(1), alarm.rings());
        assert!(waited.await.is_err());
        assert_eq!(machine.read().memory.map(|memory| memory.available()), Some(5));
        assert_eq!(machine.looks(), 1);
    }
}
