//! The store beneath the map in memory: what it was told is on disk when it says so.
//!
//! One table has the objects by `group/plural/namespace/name`, each with its version and its JSON; another has the
//! version that all of it is at, which a deletion moves on as well. What happened since the tables were written is in a
//! journal, in a file of its own, which goes into the tables when it is long. [`Committer`] writes to it.

mod committer;
mod journal;
#[cfg(test)]
pub(crate) mod simulated_disk;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::backends::FileBackend;
use redb::{Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};
use tracing::warn;

pub use committer::{Committer, Progress, StoreFailed};

use crate::resources::{RESOURCES, Resource};
use crate::state::{Key, State, Stored, Write};
use journal::{Entry, Journal};

const OBJECTS: TableDefinition<&str, (u64, &[u8])> = TableDefinition::new("objects");
const NUMBERS: TableDefinition<&str, u64> = TableDefinition::new("numbers");
const REVISION: &str = "revision";
const FORMAT: &str = "format";

/// The form of what is written here. The first had no journal.
const CURRENT_FORMAT: u64 = 2;

/// How much of a journal is written before it goes into the tables. Its objects are as many as changes are remembered of,
/// so that they take no room of their own.
const LONGEST_JOURNAL: u64 = 8 << 20;

/// All is in memory already, so little of it needs to be there twice.
const CACHE: usize = 2 << 20;

#[derive(Debug)]
pub struct Store {
    database: Database,
    journal: Journal,
    /// The last that the journal says of each object.
    untabled: BTreeMap<Key, (u64, Option<Arc<Stored>>)>,
}

/// What a store had in it.
#[derive(Debug, Default)]
pub struct Restored {
    pub objects: Vec<(Key, Stored)>,
    pub revision: u64,
}

impl Restored {
    pub fn into_state(self) -> State {
        State::restore(self.objects, self.revision)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot make the store {}", path.display())]
    Make { path: PathBuf, source: io::Error },
    #[error("cannot open the store {}", path.display())]
    Open { path: PathBuf, source: Box<redb::Error> },
    #[error("cannot read the store")]
    Read(#[source] Box<redb::Error>),
    #[error("cannot write to the store")]
    Write(#[source] Box<redb::Error>),
    #[error(
        "the store was written by a newer version (its form is {found}, and {CURRENT_FORMAT} is understood)"
    )]
    Newer { found: u64 },
    #[error("the store has something at {key:?} that is no object")]
    Malformed { key: String },
}

impl Store {
    /// Opens the store in a file, or makes an empty one. A crash before that is complete leaves none.
    pub fn open(path: &Path) -> Result<(Store, Restored), StoreError> {
        let journal = path.with_extension("journal");
        let failed = |source| StoreError::Make { path: path.to_owned(), source };
        if !path.exists() {
            let new = path.with_extension("new");
            // A journal without its tables is of nothing.
            for leftover in [&new, &journal] {
                remove_file(leftover).map_err(failed)?;
            }
            drop(open_database(&new)?);
            put_in_place(&new, path).map_err(failed)?;
        }
        let database = open_database(path)?;
        let is_new = !journal.exists();
        let file = open_file(&journal)?;
        if is_new {
            sync_directory_of(&journal).map_err(failed)?;
        }
        let open = |error: redb::DatabaseError| StoreError::Open {
            path: journal.clone(),
            source: Box::new(error.into()),
        };
        Store::on(database, Journal::open(FileBackend::new(file).map_err(open)?))
    }

    /// Opens the store on something that is no file.
    pub fn open_on(
        tables: impl StorageBackend,
        journal: impl StorageBackend,
    ) -> Result<(Store, Restored), StoreError> {
        let database = Database::builder().set_cache_size(CACHE).create_with_backend(tables);
        let database = database.map_err(|error| StoreError::Read(Box::new(error.into())))?;
        Store::on(database, Journal::open(journal))
    }

    fn on(database: Database, journal: Journal) -> Result<(Store, Restored), StoreError> {
        let store = Store { database, journal, untabled: BTreeMap::new() };
        store.check_format()?;
        let entries = store.journal.read().map_err(|error| StoreError::Read(Box::new(error.into())))?;
        store.catch_up(&entries).map_err(|error| StoreError::Write(Box::new(error)))?;
        drop(entries);
        let restored = store.restore().map_err(|error| StoreError::Read(Box::new(error)))?;
        Ok((store, restored?))
    }

    fn check_format(&self) -> Result<(), StoreError> {
        let found = self.format().map_err(|error| StoreError::Write(Box::new(error)))?;
        match found > CURRENT_FORMAT {
            true => Err(StoreError::Newer { found }),
            false => Ok(()),
        }
    }

    /// The form that the store is in. One that is new or older comes into ours.
    fn format(&self) -> Result<u64, redb::Error> {
        let transaction = self.database.begin_write()?;
        let found = {
            let mut numbers = transaction.open_table(NUMBERS)?;
            let found = numbers.get(FORMAT)?.map(|number| number.value());
            if found.is_none_or(|found| found < CURRENT_FORMAT) {
                numbers.insert(FORMAT, CURRENT_FORMAT)?;
                transaction.open_table(OBJECTS)?;
            }
            found
        };
        match found {
            Some(found) if found >= CURRENT_FORMAT => {
                transaction.abort()?;
                Ok(found)
            }
            Some(_) | None => {
                transaction.commit()?;
                Ok(CURRENT_FORMAT)
            }
        }
    }

    /// Puts into the tables what only the journal has.
    fn catch_up(&self, entries: &[Entry]) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        let has_news = {
            let mut numbers = transaction.open_table(NUMBERS)?;
            let mut objects = transaction.open_table(OBJECTS)?;
            let known = numbers.get(REVISION)?.map_or(0, |number| number.value());
            let mut last = known;
            for Entry { revision, key, json } in entries.iter().filter(|entry| entry.revision > known) {
                match json {
                    Some(json) => drop(objects.insert(key.as_str(), (*revision, json.as_slice()))?),
                    None => drop(objects.remove(key.as_str())?),
                }
                last = *revision;
            }
            numbers.insert(REVISION, last)?;
            last > known
        };
        match has_news {
            true => transaction.commit()?,
            false => transaction.abort()?,
        }
        Ok(())
    }

    fn restore(&self) -> Result<Result<Restored, StoreError>, redb::Error> {
        let transaction = self.database.begin_read()?;
        let revision = transaction.open_table(NUMBERS)?.get(REVISION)?.map_or(0, |number| number.value());
        let mut objects = Vec::new();
        for entry in transaction.open_table(OBJECTS)?.iter()? {
            let (text, value) = entry?;
            let (revision, json) = value.value();
            let Some((resource, key)) = parse_key(text.value()) else {
                // It stays where it is, for the version that knows it.
                warn!(key = text.value(), "The store has an object of a kind that is not served");
                continue;
            };
            match Stored::restored(resource, revision, json) {
                Some(stored) => objects.push((key, stored)),
                None => return Ok(Err(StoreError::Malformed { key: text.value().to_owned() })),
            }
        }
        Ok(Ok(Restored { objects, revision }))
    }

    /// Writes what happened, in its order, all or nothing. It is on disk when this returns.
    pub fn write(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        if writes.is_empty() {
            return Ok(());
        }
        self.journal.append(writes).map_err(|error| StoreError::Write(Box::new(error.into())))?;
        for write in writes {
            self.untabled.insert(write.key.clone(), (write.revision, write.object.clone()));
        }
        Ok(())
    }

    /// Puts a journal that has become long into the tables.
    pub fn tidy_up(&mut self) -> Result<(), StoreError> {
        match self.journal.len() > LONGEST_JOURNAL {
            true => self.fill_tables().map_err(|error| StoreError::Write(Box::new(error))),
            false => Ok(()),
        }
    }

    fn fill_tables(&mut self) -> Result<(), redb::Error> {
        let Some(last) = self.untabled.values().map(|(revision, _)| *revision).max() else { return Ok(()) };
        let transaction = self.database.begin_write()?;
        {
            let mut objects = transaction.open_table(OBJECTS)?;
            for (key, (revision, object)) in &self.untabled {
                let key = key_text(key);
                match object {
                    Some(stored) => drop(objects.insert(key.as_str(), (*revision, &*stored.json()))?),
                    None => drop(objects.remove(key.as_str())?),
                }
            }
            transaction.open_table(NUMBERS)?.insert(REVISION, last)?;
        }
        transaction.commit()?;
        self.untabled.clear();
        self.journal.rewind();
        Ok(())
    }
}

fn open_file(path: &Path) -> Result<File, StoreError> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.open(path).map_err(|source| StoreError::Make { path: path.to_owned(), source })
}

fn open_database(path: &Path) -> Result<Database, StoreError> {
    let database = Database::builder().set_cache_size(CACHE).create_file(open_file(path)?);
    database.map_err(|error| StoreError::Open { path: path.to_owned(), source: Box::new(error.into()) })
}

fn remove_file(path: &Path) -> io::Result<()> {
    std::fs::remove_file(path).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })
}

/// Renames a complete file, on disk.
fn put_in_place(new: &Path, path: &Path) -> io::Result<()> {
    File::open(new)?.sync_all()?;
    std::fs::rename(new, path)?;
    sync_directory_of(path)
}

fn sync_directory_of(path: &Path) -> io::Result<()> {
    match path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        Some(directory) => File::open(directory)?.sync_all(),
        None => File::open(".")?.sync_all(),
    }
}

fn key_text(key: &Key) -> String {
    let Key { resource, namespace, name } = key;
    format!("{}/{}/{namespace}/{name}", resource.group, resource.plural)
}

fn parse_key(text: &str) -> Option<(&'static Resource, Key)> {
    let mut parts = text.splitn(4, '/');
    let (group, plural) = (parts.next()?, parts.next()?);
    let (namespace, name) = (parts.next()?, parts.next()?);
    let mut all = RESOURCES.iter().copied();
    let resource = all.find(|resource| resource.group == group && resource.plural == plural)?;
    Some((resource, Key::new(resource, namespace, name)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::simulated_disk::SimulatedDisk;
    use super::*;
    use crate::chance::Chance;
    use crate::resources::{CONFIG_MAPS, LEASES, NODES};

    fn config_map(name: &str, data: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "default", "labels": {"a": name}}, "data": {"key": data}})
    }

    /// What is in a state, to be compared.
    fn content(state: &State) -> Vec<(String, u64, Value)> {
        let resources = [&CONFIG_MAPS, &LEASES, &NODES];
        let all = resources.into_iter().flat_map(|resource| state.list(resource, None));
        all.map(|(key, stored)| (key_text(key), stored.revision, stored.decode())).collect()
    }

    #[test]
    fn what_was_written_is_there_when_the_store_is_opened_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.redb");
        let (mut store, restored) = Store::open(&path).unwrap();
        let mut state = restored.into_state();
        assert_eq!((state.revision(), content(&state).len()), (0, 0));
        state.put(&CONFIG_MAPS, config_map("a", "1"));
        state.put(&CONFIG_MAPS, config_map("b", "1"));
        state.put(&LEASES, json!({"metadata": {"name": "n1", "namespace": "kube-node-lease"}}));
        state.put(&NODES, json!({"metadata": {"name": "n1"}}));
        store.write(&state.take_unwritten()).unwrap();
        state.put(&CONFIG_MAPS, config_map("a", "2"));
        state.remove(&CONFIG_MAPS, &Key::new(&CONFIG_MAPS, "default", "b"));
        store.write(&state.take_unwritten()).unwrap();
        store.fill_tables().unwrap();
        state.put(&NODES, json!({"metadata": {"name": "n2"}}));
        store.write(&state.take_unwritten()).unwrap();
        drop(store);
        let again = Store::open(&path).unwrap().1.into_state();
        assert_eq!((again.revision(), content(&again)), (7, content(&state)));
        let key = Key::new(&CONFIG_MAPS, "default", "a");
        assert_eq!(again.get(&key), state.get(&key), "with what selectors ask about");
    }

    #[test]
    fn one_store_is_opened_by_one_process_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.redb");
        let _store = Store::open(&path).unwrap();
        let error = Store::open(&path).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot open the store {}", path.display()));
    }

    #[test]
    fn a_store_of_a_newer_version_is_left_alone() {
        let disk = SimulatedDisk::default();
        let (store, _) = Store::open_on(disk.clone(), disk.journal()).unwrap();
        let transaction = store.database.begin_write().unwrap();
        transaction.open_table(NUMBERS).unwrap().insert(FORMAT, CURRENT_FORMAT + 1).unwrap();
        transaction.commit().unwrap();
        drop(store);
        let error = Store::open_on(disk.clone(), disk.journal()).unwrap_err();
        assert!(matches!(error, StoreError::Newer { found: 3 }), "{error}");
    }

    #[test]
    fn kinds_that_are_not_served_stay_in_the_store() {
        let disk = SimulatedDisk::default();
        let (store, _) = Store::open_on(disk.clone(), disk.journal()).unwrap();
        let transaction = store.database.begin_write().unwrap();
        let other: (u64, &[u8]) = (1, b"{}");
        transaction.open_table(OBJECTS).unwrap().insert("apps/deployments/default/web", other).unwrap();
        transaction.commit().unwrap();
        drop(store);
        let (store, restored) = Store::open_on(disk.clone(), disk.journal()).unwrap();
        assert!(restored.objects.is_empty());
        let transaction = store.database.begin_read().unwrap();
        let table = transaction.open_table(OBJECTS).unwrap();
        assert!(table.get("apps/deployments/default/web").unwrap().is_some());
    }

    #[test]
    fn a_store_that_was_not_made_completely_is_made_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.redb");
        for leftover in ["store.new", "store.journal"] {
            std::fs::write(directory.path().join(leftover), "half of it").unwrap();
        }
        drop(Store::open(&path).unwrap());
        let left = std::fs::read_dir(directory.path()).unwrap();
        let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["store.journal", "store.redb"]);
    }

    /// A disk with an empty store on it: one is only there when it is complete.
    fn empty_store() -> SimulatedDisk {
        let disk = SimulatedDisk::default();
        drop(Store::open_on(disk.clone(), disk.journal()).unwrap());
        disk.copy(None)
    }

    /// Writes batches until the disk dies; what the state was after each, and how many batches were acknowledged.
    fn write_until_death(disk: SimulatedDisk) -> (Vec<State>, usize) {
        let mut states = vec![State::default()];
        let Ok((mut store, restored)) = Store::open_on(disk.clone(), disk.journal()) else {
            return (states, 0);
        };
        assert_eq!(restored.revision, 0);
        let mut state = State::default();
        let mut chance = Chance::new(7);
        let mut acknowledged = 0;
        for turn in 0..12_u64 {
            for _ in 0..=chance.number() % 5 {
                let name = format!("m{}", chance.number() % 8);
                let key = Key::new(&CONFIG_MAPS, "default", &name);
                match chance.number() % 4 {
                    0 => drop(state.remove(&CONFIG_MAPS, &key)),
                    // Some are larger than a page.
                    1 => drop(state.put(&CONFIG_MAPS, config_map(&name, &"x".repeat(9000 + turn as usize)))),
                    _ => drop(state.put(&CONFIG_MAPS, config_map(&name, &turn.to_string()))),
                }
            }
            let batch = state.take_unwritten();
            let objects = CONFIG_MAPS.key();
            let now = state.list(&CONFIG_MAPS, None).map(|(key, stored)| {
                assert_eq!(key.resource, objects);
                (key.clone(), Stored::restored(&CONFIG_MAPS, stored.revision, &stored.json()).unwrap())
            });
            states.push(State::restore(now.collect::<Vec<_>>(), state.revision()));
            if store.write(&batch).is_err() {
                break;
            }
            acknowledged = states.len() - 1;
            // Now and then the journal goes into the tables, and begins anew.
            if turn % 3 == 2 && store.fill_tables().is_err() {
                break;
            }
        }
        (states, acknowledged)
    }

    fn check_after_death(disk: &SimulatedDisk, states: &[State], acknowledged: usize, what: &str) {
        let (_, restored) =
            Store::open_on(disk.clone(), disk.journal()).unwrap_or_else(|error| panic!("{what}: {error:?}"));
        let found = restored.into_state();
        let whole = states[acknowledged..]
            .iter()
            .any(|state| (state.revision(), content(state)) == (found.revision(), content(&found)));
        assert!(
            whole,
            "{what}: {acknowledged} batches were acknowledged, and version {} is there",
            found.revision()
        );
    }

    /// Dies at each write in turn; then again at each write of the recovery.
    fn die_everywhere(seeds: u64, recovery_step: u64) {
        let empty = empty_store();
        let whole = empty.copy(None);
        let (_, acknowledged) = write_until_death(whole.clone());
        assert_eq!(acknowledged, 12);
        for dies_at in 0..whole.operations() {
            for seed in 0..seeds {
                let disk = empty.copy(Some(dies_at));
                let (states, acknowledged) = write_until_death(disk.clone());
                let left = disk.after_power_cut(&mut Chance::new(seed));
                check_after_death(
                    &left.copy(None),
                    &states,
                    acknowledged,
                    &format!("death at {dies_at}, seed {seed}"),
                );
                if (dies_at + seed) % recovery_step != 0 {
                    continue;
                }
                let recovery = left.copy(None);
                drop(Store::open_on(recovery.clone(), recovery.journal()));
                for dies_again_at in 0..recovery.operations() {
                    let second = left.copy(Some(dies_again_at));
                    drop(Store::open_on(second.clone(), second.journal()));
                    let second = second.after_power_cut(&mut Chance::new(seed + 100));
                    let what = format!("death at {dies_at}, then at {dies_again_at}, seed {seed}");
                    check_after_death(&second, &states, acknowledged, &what);
                }
            }
        }
    }

    #[test]
    fn no_acknowledged_write_is_lost_and_none_is_half_there_wherever_the_disk_dies() {
        die_everywhere(1, 9);
    }

    #[test]
    #[ignore = "takes minutes: make soak"]
    fn soak_no_acknowledged_write_is_lost_wherever_the_disk_dies() {
        die_everywhere(10, 2);
    }

    #[test]
    fn a_journal_goes_into_the_tables_when_it_is_long() {
        let disk = SimulatedDisk::default();
        let (mut store, _) = Store::open_on(disk.clone(), disk.journal()).unwrap();
        let mut state = State::default();
        let large = "x".repeat(1 << 20);
        for turn in 0..10 {
            state.put(&CONFIG_MAPS, config_map(&format!("m{}", turn % 3), &large));
            store.write(&state.take_unwritten()).unwrap();
            store.tidy_up().unwrap();
        }
        assert_eq!((store.untabled.len(), store.journal.len() < 3 << 20), (2, true));
        drop(store);
        let again = Store::open_on(disk.clone(), disk.journal()).unwrap().1.into_state();
        assert_eq!((again.revision(), content(&again)), (10, content(&state)));
    }

    #[test]
    fn a_store_that_had_no_journal_gets_one() {
        let disk = SimulatedDisk::default();
        let (mut store, _) = Store::open_on(disk.clone(), disk.journal()).unwrap();
        let mut state = State::default();
        state.put(&CONFIG_MAPS, config_map("a", "1"));
        store.write(&state.take_unwritten()).unwrap();
        store.fill_tables().unwrap();
        let transaction = store.database.begin_write().unwrap();
        transaction.open_table(NUMBERS).unwrap().insert(FORMAT, 1).unwrap();
        transaction.commit().unwrap();
        drop(store);
        let (store, restored) = Store::open_on(disk.clone(), SimulatedDisk::default()).unwrap();
        assert_eq!(content(&restored.into_state()), content(&state));
        let transaction = store.database.begin_read().unwrap();
        let format = transaction.open_table(NUMBERS).unwrap().get(FORMAT).unwrap().unwrap().value();
        assert_eq!(format, CURRENT_FORMAT, "an older version would not see the journal");
    }
}
