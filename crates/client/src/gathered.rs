//! A stream whose writes of one turn leave together. HTTP/2 begins a request, lets the stream flush, and only then learns
//! of the request's body: two records of TLS, two system calls and two times that the server wakes, for one request.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What is gathered at most, which is what fits into a record of TLS.
const MOST: usize = 16 << 10;

/// What is written waits until it is flushed, and then until all others had their turn once.
pub(crate) struct Gathered<S> {
    stream: S,
    waiting: Vec<u8>,
    /// How much of it is with the stream already.
    written: usize,
    /// Whether the others had their turn since the first flush.
    has_waited: bool,
}

impl<S: AsyncWrite + Unpin> Gathered<S> {
    pub(crate) fn new(stream: S) -> Gathered<S> {
        Gathered { stream, waiting: Vec::new(), written: 0, has_waited: false }
    }

    fn poll_waiting(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.waiting.len() {
            let left = &self.waiting[self.written..];
            match ready!(Pin::new(&mut self.stream).poll_write(context, left))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.written += count,
            }
        }
        self.waiting.clear();
        (self.written, self.has_waited) = (0, false);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gathered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.waiting.len() == MOST {
            ready!(self.poll_waiting(context))?;
        }
        let taken = bytes.len().min(MOST - self.waiting.len());
        self.waiting.extend_from_slice(&bytes[..taken]);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.waiting.is_empty() {
            if !self.has_waited {
                self.has_waited = true;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            ready!(self.poll_waiting(context))?;
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_waiting(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gathered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    /// A stream that says how it was written to.
    #[derive(Default)]
    struct Told(Vec<usize>);

    impl AsyncWrite for Told {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.0.push(bytes.len());
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn what_is_written_while_others_had_their_turn_leaves_together() {
        let mut gathered = Gathered::new(Told::default());
        gathered.write_all(b"head").await.unwrap();
        let first = std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut gathered).poll_flush(context)));
        assert!(first.await.is_pending());
        gathered.write_all(b"body").await.unwrap();
        gathered.flush().await.unwrap();
        assert_eq!(gathered.stream.0, [8]);
        gathered.write_all(b"next").await.unwrap();
        gathered.flush().await.unwrap();
        assert_eq!(gathered.stream.0, [8, 4]);
    }

    #[tokio::test]
    async fn all_bytes_arrive_in_order_whatever_the_stream_takes_at_once() {
        let (near, mut far) = duplex(1000);
        let sent: Vec<u8> = (0..100_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        let expected = sent.clone();
        let writer = tokio::spawn(async move {
            let mut gathered = Gathered::new(near);
            for part in sent.chunks(7_001) {
                gathered.write_all(part).await.unwrap();
            }
            gathered.shutdown().await.unwrap();
        });
        let mut received = Vec::new();
        far.read_to_end(&mut received).await.unwrap();
        writer.await.unwrap();
        assert_eq!(received, expected);
    }
}
