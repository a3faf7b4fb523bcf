//! A disk that forgets what was not synced, tears what was being written, and dies when told to. It has two files, which
//! are synced one by one.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

use crate::chance::Chance;

/// What a disk writes all of or nothing.
const SECTOR: usize = 512;

#[derive(Clone, Debug, Default)]
pub(crate) struct SimulatedDisk {
    disk: Arc<Mutex<Disk>>,
    /// Which of its files this is.
    file: usize,
    /// Whether syncs must wait.
    held: Arc<(Mutex<bool>, Condvar)>,
}

/// Syncs wait until this is dropped.
pub(crate) struct HeldSyncs(SimulatedDisk);

impl Drop for HeldSyncs {
    fn drop(&mut self) {
        let (held, changed) = &*self.0.held;
        *held.lock().unwrap() = false;
        changed.notify_all();
    }
}

#[derive(Debug, Default)]
struct File {
    /// What a reader sees.
    content: Vec<u8>,
    /// What was there at the last sync.
    synced: Vec<u8>,
    /// What was done since: where, and how many bytes; or a new length.
    since: Vec<Change>,
}

impl File {
    fn of(content: Vec<u8>) -> File {
        File { synced: content.clone(), content, since: Vec::new() }
    }

    /// What is found after a power cut: all that was synced, and of the rest any sectors, in any order.
    fn after_power_cut(&self, likelihood: u64, chance: &mut Chance) -> File {
        let mut content = self.synced.clone();
        for change in &self.since {
            match change {
                Change::Length(length) => {
                    if chance.number() % 4 < likelihood {
                        content.resize(*length, 0);
                    }
                }
                Change::Write { offset, bytes } => {
                    for (start, sector) in sectors(*offset, bytes) {
                        if chance.number() % 4 < likelihood {
                            if content.len() < start + sector.len() {
                                content.resize(start + sector.len(), 0);
                            }
                            content[start..start + sector.len()].copy_from_slice(sector);
                        }
                    }
                }
            }
        }
        File::of(content)
    }
}

#[derive(Debug, Default)]
struct Disk {
    files: [File; 2],
    operations: u64,
    syncs: u64,
    dies_at: Option<u64>,
    is_dead: bool,
}

#[derive(Clone, Debug)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Length(usize),
}

impl SimulatedDisk {
    pub(crate) fn die_now(&self) {
        let mut disk = self.lock();
        disk.dies_at = Some(disk.operations);
    }

    pub(crate) fn hold_syncs(&self) -> HeldSyncs {
        *self.held.0.lock().unwrap() = true;
        HeldSyncs(self.clone())
    }

    pub(crate) fn operations(&self) -> u64 {
        self.lock().operations
    }

    pub(crate) fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    /// The other file.
    pub(crate) fn journal(&self) -> SimulatedDisk {
        SimulatedDisk { file: 1, ..self.clone() }
    }

    fn with(&self, files: [File; 2], dies_at: Option<u64>) -> SimulatedDisk {
        let disk = Disk { files, dies_at, ..Disk::default() };
        SimulatedDisk { disk: Arc::new(Mutex::new(disk)), file: self.file, held: Arc::default() }
    }

    /// The same content on a disk that may die again.
    pub(crate) fn copy(&self, dies_at: Option<u64>) -> SimulatedDisk {
        let files = self.lock().files.each_ref().map(|file| File::of(file.content.clone()));
        self.with(files, dies_at)
    }

    /// What is found after a power cut.
    pub(crate) fn after_power_cut(&self, chance: &mut Chance) -> SimulatedDisk {
        // Some cuts lose nearly everything, and some nearly nothing.
        let likelihood = chance.number() % 5;
        let files = self.lock().files.each_ref().map(|file| file.after_power_cut(likelihood, chance));
        self.with(files, None)
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A write, cut where sectors end.
fn sectors(offset: usize, bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut start = 0;
    std::iter::from_fn(move || {
        if start == bytes.len() {
            return None;
        }
        let end = (start + SECTOR - (offset + start) % SECTOR).min(bytes.len());
        let sector = (offset + start, &bytes[start..end]);
        start = end;
        Some(sector)
    })
}

impl Disk {
    /// Counts what changes something; past the end of its life nothing works.
    fn operate(&mut self) -> io::Result<()> {
        if self.dies_at.is_some_and(|end| self.operations >= end) {
            self.is_dead = true;
            return Err(io::Error::other("the disk died"));
        }
        self.operations += 1;
        Ok(())
    }
}

fn place(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(io::Error::other)
}

impl StorageBackend for SimulatedDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().files[self.file].content.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let (disk, start) = (self.lock(), place(offset)?);
        let bytes = disk.files[self.file].content.get(start..start + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut disk = self.lock();
        disk.operate()?;
        let length = place(len)?;
        let file = &mut disk.files[self.file];
        file.content.resize(length, 0);
        file.since.push(Change::Length(length));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let (held, changed) = &*self.held;
        drop(changed.wait_while(held.lock().unwrap(), |held| *held).unwrap());
        let mut disk = self.lock();
        disk.operate()?;
        disk.syncs += 1;
        let file = &mut disk.files[self.file];
        file.synced = file.content.clone();
        file.since.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut disk = self.lock();
        let start = place(offset)?;
        // What is being written when it dies may get there in part.
        if !disk.is_dead {
            disk.files[self.file].since.push(Change::Write { offset: start, bytes: data.to_vec() });
        }
        disk.operate()?;
        let file = &mut disk.files[self.file];
        let end = start + data.len();
        if file.content.len() < end {
            file.content.resize(end, 0);
        }
        file.content[start..end].copy_from_slice(data);
        Ok(())
    }
}
