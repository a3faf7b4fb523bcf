//! Where else it is mounted what is to be unstaged. Where much is mounted the table is long, and volumes that go with
//! their pods go many at a time: one reading of it serves all who ask at about the same time.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use tokio::time::sleep;

use super::{Csi, lock};
use crate::error::PluginError;
use crate::machine::work_on;

/// How long others who ask are waited for. Nobody waits for what is unstaged.
const GATHERED_FOR: Duration = Duration::from_millis(100);

/// For each place where else it is mounted; nothing where the thread panicked that looked.
type Found = Option<Arc<Vec<io::Result<Vec<PathBuf>>>>>;

/// A look that has not begun.
pub(super) struct Look {
    places: Vec<PathBuf>,
    /// For as long as somebody waits for it.
    found: WeakShared<BoxFuture<'static, Found>>,
}

impl Csi {
    /// Where else what is at a place is mounted, not as it was before one asked.
    pub(super) async fn mounted_elsewhere(&self, place: &Path) -> Result<Vec<PathBuf>, PluginError> {
        let (found, index) = self.join_look(place);
        let found = found.await.ok_or(PluginError::Panicked)?;
        match found.get(index) {
            Some(Ok(elsewhere)) => Ok(elsewhere.clone()),
            Some(Err(error)) => Err(PluginError::MountTable(io::Error::new(error.kind(), error.to_string()))),
            None => Err(PluginError::Panicked),
        }
    }

    /// The next look, and the place's number in it.
    fn join_look(&self, place: &Path) -> (Shared<BoxFuture<'static, Found>>, usize) {
        let mut next = lock(&self.0.look);
        if let Some(look) = &mut *next
            && let Some(found) = look.found.upgrade()
        {
            look.places.push(place.to_owned());
            return (found, look.places.len() - 1);
        }
        let found = self.clone().look().boxed().shared();
        *next = found.downgrade().map(|found| Look { places: vec![place.to_owned()], found });
        (found, 0)
    }

    async fn look(self) -> Found {
        sleep(GATHERED_FOR).await;
        // Who asks from here on is not served by it.
        let places = lock(&self.0.look).take().map(|look| look.places).unwrap_or_default();
        let look = work_on(&self.0.machine, move |machine| Ok(machine.mounted_elsewhere(&places)));
        look.await.ok().map(Arc::new)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use futures_util::poll;

    use super::*;
    use crate::attachments::Attachments;
    use crate::contents::NoContents;
    use crate::simulated::SimulatedMachine;

    fn csi(machine: &SimulatedMachine) -> Csi {
        let told = Arc::new(machine.clone());
        Csi::open_on(told, Path::new("/root"), "node", Arc::new(NoContents), Attachments::default())
    }

    #[tokio::test(start_paused = true)]
    async fn one_reading_of_the_table_serves_all_who_ask_before_it_begins() {
        let machine = SimulatedMachine::default();
        machine.mount(Path::new("/staged/3"), "three");
        machine.mount(Path::new("/elsewhere"), "three");
        let csi = csi(&machine);
        let places: Vec<PathBuf> = (0..5).map(|number| format!("/staged/{number}").into()).collect();
        let found = join_all(places.iter().map(|place| csi.mounted_elsewhere(place))).await;
        for (number, found) in found.into_iter().enumerate() {
            let expected: &[&str] = if number == 3 { &["/elsewhere"] } else { &[] };
            assert_eq!(found.unwrap(), expected.iter().map(PathBuf::from).collect::<Vec<_>>(), "{number}");
        }
        assert_eq!(machine.readings(), 1);
        machine.unmount(Path::new("/elsewhere"));
        assert_eq!(csi.mounted_elsewhere(&places[3]).await.unwrap(), Vec::<PathBuf>::new());
        assert_eq!(machine.readings(), 2, "what was read before says nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_nobody_waits_for_any_more_keeps_nobody_waiting() {
        let machine = SimulatedMachine::default();
        let csi = csi(&machine);
        let mut given_up = Box::pin(csi.mounted_elsewhere(Path::new("/a")));
        assert!(poll!(&mut given_up).is_pending());
        drop(given_up);
        let (one, other) =
            tokio::join!(csi.mounted_elsewhere(Path::new("/b")), csi.mounted_elsewhere(Path::new("/c")));
        assert!(one.is_ok() && other.is_ok());
        assert_eq!(machine.readings(), 1);
    }
}
