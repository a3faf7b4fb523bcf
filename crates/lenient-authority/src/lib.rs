//! Lets clients in whose `:authority` is the path of the socket that they dialled.
//!
//! gRPC in Go, Python and C++ dials a unix socket by its path, and some put that path, as it is or percent-encoded,
//! where HTTP/2 wants a host's name. Their servers do not mind; the `h2` crate ends the stream with `PROTOCOL_ERROR`
//! before any of our code sees it. So the bytes are changed on their way: [`LenientAuthority`] stands between the socket
//! and the server, follows the frames, and in header blocks puts dashes where an authority cannot be read.
//!
//! All else passes as it came, and so does what makes no sense, so that `h2` says what is wrong with it. What is held
//! back is bounded.

mod frames;
mod header_block;
mod huffman;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

use self::frames::Frames;

/// How many bytes are read at a time.
const READ: usize = 8 << 10;

/// A connection to a server, whose client may say any authority.
#[derive(Debug)]
pub struct LenientAuthority<Connection> {
    connection: Connection,
    frames: Frames,
    /// What has passed and was not read yet, and how much of it was.
    passed: Vec<u8>,
    taken: usize,
}

impl<Connection> LenientAuthority<Connection> {
    /// Stands between this connection and a server.
    pub fn new(connection: Connection) -> LenientAuthority<Connection> {
        LenientAuthority { connection, frames: Frames::default(), passed: Vec::new(), taken: 0 }
    }
}

impl<Connection: AsyncRead + Unpin> AsyncRead for LenientAuthority<Connection> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.taken == this.passed.len() {
            this.passed.clear();
            this.taken = 0;
            let mut bytes = [0; READ];
            let mut read = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut this.connection).poll_read(context, &mut read))?;
            match read.filled() {
                [] => {
                    this.frames.finish(&mut this.passed);
                    if this.passed.is_empty() {
                        return Poll::Ready(Ok(()));
                    }
                }
                bytes => this.frames.pass(bytes, &mut this.passed),
            }
        }
        let ready = &this.passed[this.taken..];
        let taken = ready.len().min(buffer.remaining());
        buffer.put_slice(&ready[..taken]);
        this.taken += taken;
        Poll::Ready(Ok(()))
    }
}

impl<Connection: AsyncWrite + Unpin> AsyncWrite for LenientAuthority<Connection> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().connection).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().connection).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().connection).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().connection).poll_shutdown(context)
    }
}

impl<Connection: Connected> Connected for LenientAuthority<Connection> {
    type ConnectInfo = Connection::ConnectInfo;

    fn connect_info(&self) -> Connection::ConnectInfo {
        self.connection.connect_info()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn what_is_written_to_one_end_is_read_at_the_other_up_to_the_end() {
        let (mut client, server) = duplex(16);
        let mut server = LenientAuthority::new(server);
        let text = b"this is no HTTP/2, and longer than one read".repeat(1000);
        let sent = text.clone();
        let writing = tokio::spawn(async move {
            client.write_all(&sent).await.unwrap();
            client.shutdown().await.unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            answer
        });
        let mut read = Vec::new();
        server.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, text);
        server.write_all(b"seen").await.unwrap();
        drop(server);
        assert_eq!(writing.await.unwrap(), "seen");
    }
}
