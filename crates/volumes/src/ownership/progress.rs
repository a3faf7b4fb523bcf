//! People are told where it takes long to give a volume's files to the pod's group, as upstream: the pod waits for it.

use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use super::{Ownership, walk};
use crate::error::FileError;
use crate::events::{Occurrence, VolumeEvent};
use crate::plugin::Request;

/// When it is told first, and how often then.
const FIRST_AFTER: Duration = Duration::from_secs(30);
const THEN_EVERY: Duration = Duration::from_secs(60);

/// Gives a volume, which a pod has at a place or will have there, to the pod's group.
pub(crate) fn give(
    request: &Request,
    root: &Path,
    place: &Path,
    ownership: Ownership,
) -> Result<(), FileError> {
    let tell = |message| {
        request.tell(VolumeEvent { what: Occurrence::GroupTakesLong, message, claim: None });
    };
    let path = place.display().to_string();
    let place = path.find(request.uid()).map_or(&*path, |beginning| &path[beginning..]);
    walk(root, ownership, Some(Progress::new(place, &tell)))
}

/// How far it is.
pub(super) struct Progress<'a> {
    place: &'a str,
    tell: &'a dyn Fn(String),
    files: u64,
    is_told: bool,
    next: Instant,
}

impl<'a> Progress<'a> {
    fn new(place: &'a str, tell: &'a dyn Fn(String)) -> Progress<'a> {
        Progress { place, tell, files: 0, is_told: false, next: Instant::now() + FIRST_AFTER }
    }

    /// A file is about to be changed.
    pub(super) fn one_more(&mut self) {
        self.files += 1;
        if Instant::now() < self.next {
            return;
        }
        let Progress { place, files, .. } = self;
        (self.tell)(match std::mem::replace(&mut self.is_told, true) {
            false => format!(
                "Setting volume ownership for {place} is taking longer than expected, consider using OnRootMismatch - https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods"
            ),
            true => format!("Setting volume ownership for {place}, processed {files} files."),
        });
        self.next = Instant::now() + THEN_EVERY;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_takes_long_is_told_after_half_a_minute_and_then_each_minute() {
        let told = RefCell::new(Vec::new());
        let tell = |message: String| told.borrow_mut().push(message);
        let mut progress = Progress::new("uid/volumes/v", &tell);
        for expected in [0, 0, 1, 1, 1, 1, 1, 1, 2] {
            progress.one_more();
            assert_eq!(told.borrow().len(), expected, "after {} files", progress.files);
            advance(Duration::from_secs(if expected == 0 { 15 } else { 10 })).await;
        }
        let [first, second] = &told.borrow()[..] else { panic!("{told:?}") };
        assert!(first.starts_with("Setting volume ownership for uid/volumes/v is taking longer than expected, consider using OnRootMismatch - https://"), "{first}");
        assert_eq!(second, "Setting volume ownership for uid/volumes/v, processed 9 files.");
    }
}
