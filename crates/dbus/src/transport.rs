//! A unix socket on which file descriptors may come.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::message::{FIXED, Message};
use crate::wire::Malformed;

/// How many file descriptors may come with one reading.
const MOST_FDS: usize = 16;
/// How much is read at once, and how much room for it is kept.
const CHUNK: usize = 4096;

/// Why no message could be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("the bus cannot be read")]
    Io(#[from] io::Error),
    #[error("the bus sent what is no message")]
    Malformed(#[from] Malformed),
    #[error("a message lacks file descriptors that it speaks of")]
    NoFds,
}

/// What was received and not read yet.
#[derive(Debug, Default)]
pub struct Incoming {
    bytes: Vec<u8>,
    fds: VecDeque<OwnedFd>,
}

impl Incoming {
    /// The next message, or nothing where the other end has closed. What was received so far stays when this is dropped.
    pub async fn next(&mut self, socket: &UnixStream) -> Result<Option<Message>, ReadError> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            if self.receive(socket).await? == 0 {
                return Ok(None);
            }
        }
    }

    fn take(&mut self) -> Result<Option<Message>, ReadError> {
        let Some(fixed) = self.bytes.first_chunk::<FIXED>() else { return Ok(None) };
        let length = Message::length(fixed)?;
        let Some(bytes) = self.bytes.get(..length) else { return Ok(None) };
        let (mut message, fds) = Message::decode(bytes)?;
        if fds > self.fds.len() {
            return Err(ReadError::NoFds);
        }
        message.body.fds = self.fds.drain(..fds).collect();
        self.bytes.drain(..length);
        self.bytes.shrink_to(CHUNK);
        Ok(Some(message))
    }

    async fn receive(&mut self, socket: &UnixStream) -> io::Result<usize> {
        loop {
            socket.readable().await?;
            match socket.try_io(Interest::READABLE, || self.receive_now(socket)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // It closed before it had read all that we wrote.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(0),
                received => return received,
            }
        }
    }

    fn receive_now(&mut self, socket: &UnixStream) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut chunk = [0; CHUNK];
        let mut slices = [IoSliceMut::new(&mut chunk)];
        let received = recvmsg(socket, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.fds.extend(fds);
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(io::Error::other("more file descriptors came than there is room for"));
        }
        self.bytes.extend_from_slice(&chunk[..received.bytes]);
        Ok(received.bytes)
    }
}
