//! Bytes as they come, in a buffer of one size: what is larger than it is given in pieces.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// How much is taken in at a time.
pub(crate) const SIZE: usize = 32 << 10;

/// Every call may be given up while it waits: what has come by then is kept.
pub(crate) struct Buffered<R> {
    io: R,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl<R: AsyncRead + Unpin> Buffered<R> {
    pub(crate) fn new(io: R) -> Buffered<R> {
        Buffered { io, buffer: vec![0; SIZE].into_boxed_slice(), start: 0, end: 0 }
    }

    /// Looks at the next `count` bytes without taking them. Nothing where there are none any more; an end amid them is
    /// an error.
    pub(crate) async fn peek(&mut self, count: usize) -> io::Result<Option<&[u8]>> {
        debug_assert!(count <= SIZE, "a header fits the buffer");
        while self.end - self.start < count {
            if self.start + count > self.buffer.len() {
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
            match self.fill().await? {
                0 if self.start == self.end => return Ok(None),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ => {}
            }
        }
        Ok(Some(&self.buffer[self.start..self.start + count]))
    }

    /// Takes what was looked at.
    pub(crate) fn take(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
    }

    /// Takes at least one byte and at most `most`: what is there, or what comes next.
    pub(crate) async fn some(&mut self, most: u64) -> io::Result<&mut [u8]> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.fill().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let there = self.end - self.start;
        let count = usize::try_from(most).unwrap_or(usize::MAX).min(there);
        let start = self.start;
        self.start += count;
        Ok(&mut self.buffer[start..start + count])
    }

    /// Takes in and forgets whatever still comes.
    pub(crate) async fn drain(&mut self) {
        (self.start, self.end) = (0, 0);
        while matches!(self.io.read(&mut self.buffer).await, Ok(1..)) {}
    }

    async fn fill(&mut self) -> io::Result<usize> {
        let count = self.io.read(&mut self.buffer[self.end..]).await?;
        self.end += count;
        Ok(count)
    }
}

/// Writes what is not written yet. May be given up at any time, and gone on with later.
pub(crate) async fn write_rest<W: AsyncWrite + Unpin>(
    io: &mut W,
    bytes: &[u8],
    written: &mut usize,
) -> io::Result<()> {
    while let Some(rest @ [_, ..]) = bytes.get(*written..) {
        match io.write(rest).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => *written += count,
        }
    }
    io.flush().await
}
