//! What was written since the tables were: batches one after the other, in the order in which they happened. A batch is
//! one write and one sync, where a transaction of the tables is a dozen of each kind.
//!
//! A batch is a length, a checksum and its entries. When all of them are in the tables, the next one begins at the front
//! again; what is left behind it of older ones is known by its versions, which are in the tables already.

use std::io;

use flate2::Crc;
use redb::StorageBackend;

use super::key_text;
use crate::state::Write;

/// The length of a batch and its checksum.
const HEADER: usize = 8;

#[derive(Debug)]
pub(super) struct Journal {
    file: Box<dyn StorageBackend>,
    /// Where the next batch begins.
    end: u64,
    buffer: Vec<u8>,
}

/// What happened to one object.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) revision: u64,
    /// As the tables have it.
    pub(super) key: String,
    /// None if it is gone.
    pub(super) json: Option<Vec<u8>>,
}

impl Journal {
    pub(super) fn open(file: impl StorageBackend) -> Journal {
        Journal { file: Box::new(file), end: 0, buffer: Vec::new() }
    }

    /// All that is there, up to a batch that is not whole; the next one is written at the front.
    pub(super) fn read(&self) -> io::Result<Vec<Entry>> {
        let length = usize::try_from(self.file.len()?).map_err(io::Error::other)?;
        let mut bytes = vec![0; length];
        self.file.read(0, &mut bytes)?;
        let (mut entries, mut rest) = (Vec::new(), bytes.as_slice());
        while let Some((batch, after)) = whole_batch(rest) {
            let Some(batch) = entries_of(batch) else { break };
            entries.extend(batch);
            rest = after;
        }
        Ok(entries)
    }

    /// Writes a batch. It is on disk when this returns.
    pub(super) fn append(&mut self, writes: &[Write]) -> io::Result<()> {
        self.buffer.clear();
        self.buffer.resize(HEADER, 0);
        for write in writes {
            let key = key_text(&write.key);
            self.buffer.extend_from_slice(&write.revision.to_le_bytes());
            put_text(&mut self.buffer, key.as_bytes())?;
            match &write.object {
                Some(stored) => {
                    self.buffer.push(1);
                    put_text(&mut self.buffer, &stored.json())?;
                }
                None => self.buffer.push(0),
            }
        }
        let (header, batch) = self.buffer.split_at_mut(HEADER);
        header[..4].copy_from_slice(&length_of(batch)?.to_le_bytes());
        header[4..].copy_from_slice(&checksum(batch).to_le_bytes());
        self.file.write(self.end, &self.buffer)?;
        self.file.sync_data()?;
        self.end += self.buffer.len() as u64;
        Ok(())
    }

    /// How much is in it.
    pub(super) fn len(&self) -> u64 {
        self.end
    }

    /// Begins anew: all that is there is in the tables.
    pub(super) fn rewind(&mut self) {
        self.end = 0;
        self.buffer = Vec::new();
    }
}

fn checksum(batch: &[u8]) -> u32 {
    let mut sum = Crc::new();
    sum.update(batch);
    sum.sum()
}

fn length_of(bytes: &[u8]) -> io::Result<u32> {
    u32::try_from(bytes.len()).map_err(io::Error::other)
}

fn put_text(buffer: &mut Vec<u8>, text: &[u8]) -> io::Result<()> {
    buffer.extend_from_slice(&length_of(text)?.to_le_bytes());
    buffer.extend_from_slice(text);
    Ok(())
}

fn take_number(bytes: &mut &[u8]) -> Option<usize> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    usize::try_from(u32::from_le_bytes(*number)).ok()
}

fn take_text<'b>(bytes: &mut &'b [u8]) -> Option<&'b [u8]> {
    let length = take_number(bytes)?;
    let (text, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(text)
}

/// The batch that bytes begin with, and what follows it; none if it is not whole.
fn whole_batch(mut bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = take_number(&mut bytes)?;
    let sum = take_number(&mut bytes)?;
    let (batch, rest) = bytes.split_at_checked(length)?;
    (!batch.is_empty() && usize::try_from(checksum(batch)).ok() == Some(sum)).then_some((batch, rest))
}

fn entries_of(mut batch: &[u8]) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    while !batch.is_empty() {
        let (revision, rest) = batch.split_first_chunk()?;
        batch = rest;
        let key = String::from_utf8(take_text(&mut batch)?.to_vec()).ok()?;
        let (is_there, rest) = batch.split_first()?;
        batch = rest;
        let json = match is_there {
            0 => None,
            _ => Some(take_text(&mut batch)?.to_vec()),
        };
        entries.push(Entry { revision: u64::from_le_bytes(*revision), key, json });
    }
    Some(entries)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::simulated_disk::SimulatedDisk;
    use super::*;
    use crate::resources::CONFIG_MAPS;
    use crate::state::{Key, State};

    /// A batch with an object that is there and one that is gone.
    fn batch(state: &mut State, turn: usize) -> Vec<Write> {
        let name = format!("m{turn}");
        let metadata = json!({"name": name, "namespace": "default"});
        state.put(&CONFIG_MAPS, json!({"metadata": metadata, "data": {"key": "x".repeat(turn * 700)}}));
        state.put(&CONFIG_MAPS, json!({"metadata": {"name": "other", "namespace": "default"}}));
        state.remove(&CONFIG_MAPS, &Key::new(&CONFIG_MAPS, "default", "other"));
        state.take_unwritten()
    }

    fn revisions(disk: &SimulatedDisk) -> Vec<u64> {
        Journal::open(disk.clone()).read().unwrap().iter().map(|entry| entry.revision).collect()
    }

    #[test]
    fn what_was_written_is_read_again_in_its_order() {
        let disk = SimulatedDisk::default();
        let (mut journal, mut state) = (Journal::open(disk.clone()), State::default());
        let batches: Vec<Vec<Write>> = (0..3).map(|turn| batch(&mut state, turn)).collect();
        for batch in &batches {
            journal.append(batch).unwrap();
        }
        let read = Journal::open(disk).read().unwrap();
        let written = batches.iter().flatten().map(|write| Entry {
            revision: write.revision,
            key: key_text(&write.key),
            json: write.object.as_ref().map(|stored| stored.json().into_owned()),
        });
        assert_eq!(read, written.collect::<Vec<_>>());
    }

    #[test]
    fn a_batch_that_is_not_whole_is_not_there_and_neither_is_what_follows() {
        let disk = SimulatedDisk::default();
        let (mut journal, mut state) = (Journal::open(disk.clone()), State::default());
        journal.append(&batch(&mut state, 1)).unwrap();
        let second = usize::try_from(journal.len()).unwrap();
        journal.append(&batch(&mut state, 1)).unwrap();
        let third = usize::try_from(journal.len()).unwrap();
        journal.append(&batch(&mut state, 1)).unwrap();
        assert_eq!(revisions(&disk), (1..=9).collect::<Vec<_>>());
        for at in second..third {
            let damaged = disk.copy(None);
            let mut byte = [0];
            damaged.read(at as u64, &mut byte).unwrap();
            damaged.write(at as u64, &[byte[0] ^ 0x40]).unwrap();
            assert_eq!(revisions(&damaged), [1, 2, 3], "damage at {at}");
        }
        for length in 0..second {
            let cut = disk.copy(None);
            cut.set_len(length as u64).unwrap();
            assert_eq!(revisions(&cut), Vec::<u64>::new(), "cut at {length}");
        }
    }

    #[test]
    fn what_begins_anew_is_followed_by_what_is_older_at_most() {
        let disk = SimulatedDisk::default();
        let (mut journal, mut state) = (Journal::open(disk.clone()), State::default());
        for _ in 0..3 {
            journal.append(&batch(&mut state, 1)).unwrap();
        }
        journal.rewind();
        journal.append(&batch(&mut state, 1)).unwrap();
        let read = revisions(&disk);
        assert!(
            read.starts_with(&[10, 11, 12]) && read[3..].iter().all(|revision| *revision < 10),
            "{read:?}"
        );
    }
}
