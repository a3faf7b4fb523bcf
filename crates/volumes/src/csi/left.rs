//! Work that was begun and that nobody waits for any more: a driver that was asked for something is not cut off, since
//! what it runs does not end with the call, and the opposite is not to be asked of it meanwhile.

use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;

use super::{Csi, lock};

/// What is left to whoever runs the node's volumes; nothing where nobody does, as when the agent ends. A pod's lane is
/// held by each, so that there are no more than its volumes.
#[derive(Default)]
pub(super) struct Left(Mutex<Option<Vec<BoxFuture<'static, ()>>>>);

/// The right to what is left. With it, that goes.
pub(super) struct Open<'a>(&'a Left);

/// Work, as long as somebody waits for it.
struct SeenThrough<T: Send + 'static> {
    csi: Csi,
    work: Option<BoxFuture<'static, T>>,
}

impl Left {
    pub(super) fn open(&self) -> Open<'_> {
        lock(&self.0).get_or_insert_default();
        Open(self)
    }
}

impl Open<'_> {
    pub(super) fn take(&self) -> Vec<BoxFuture<'static, ()>> {
        lock(&self.0.0).as_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let left = lock(&self.0.0).take();
        drop(left);
    }
}

impl Csi {
    /// Does work that goes on if whoever waits for it gives up.
    pub(super) fn see_through<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send {
        SeenThrough { csi: self.clone(), work: Some(Box::pin(work)) }
    }
}

impl<T: Send + 'static> Future for SeenThrough<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let done = ready!(work.as_mut().poll(context));
        self.work = None;
        Poll::Ready(done)
    }
}

impl<T: Send + 'static> Drop for SeenThrough<T> {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        let inner = &self.csi.0;
        if let Some(left) = &mut *lock(&inner.left.0) {
            left.push(Box::pin(async { drop(work.await) }));
            inner.news.notify_one();
        }
    }
}
