//! A connection that breaks when the runtime dies.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

use super::bell::Listener;

/// A connection to a runtime, for as long as that lives. Nothing passes after its death, not even what was answered
/// before it and not sent yet.
pub(crate) struct Mortal<Connection> {
    connection: Connection,
    /// Until the death; nothing after it.
    life: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<Connection> Mortal<Connection> {
    pub(crate) fn new(connection: Connection, mut deaths: Listener) -> Mortal<Connection> {
        Mortal { connection, life: Some(Box::pin(async move { deaths.changed().await })) }
    }

    /// The connection, unless it is broken. The task is woken when it breaks.
    fn alive(&mut self, context: &mut Context<'_>) -> io::Result<Pin<&mut Connection>>
    where
        Connection: Unpin,
    {
        if let Some(life) = &mut self.life
            && life.as_mut().poll(context).is_ready()
        {
            self.life = None;
        }
        match self.life {
            Some(_) => Ok(Pin::new(&mut self.connection)),
            None => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }
}

impl<Connection: AsyncRead + Unpin> AsyncRead for Mortal<Connection> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.get_mut().alive(context)?.poll_read(context, buffer)
    }
}

impl<Connection: AsyncWrite + Unpin> AsyncWrite for Mortal<Connection> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().alive(context)?.poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().alive(context)?.poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().alive(context)?.poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().alive(context)?.poll_shutdown(context)
    }
}

impl<Connection: Connected> Connected for Mortal<Connection> {
    type ConnectInfo = Connection::ConnectInfo;

    fn connect_info(&self) -> Connection::ConnectInfo {
        self.connection.connect_info()
    }
}
