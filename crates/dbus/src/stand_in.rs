//! A bus to test with, whose services a test plays.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use crate::message::{Body, Kind, Message};
use crate::transport::Incoming;
use crate::value::Value;

/// How many messages may wait to be sent to one who is connected.
const MESSAGES: usize = 4096;

/// What somebody asked of a service.
#[derive(Debug, Clone, PartialEq)]
pub struct Called {
    pub destination: String,
    pub path: String,
    pub interface: String,
    pub member: String,
    pub values: Vec<Value>,
}

/// What all are told who listen.
#[derive(Debug, Clone)]
pub struct Told {
    pub path: String,
    pub interface: String,
    pub member: String,
    pub values: Vec<Value>,
}

/// What a service says.
#[derive(Debug)]
pub enum Answer {
    /// It did that.
    Return {
        values: Vec<Value>,
        /// [`Value::Fd`] says which of them is meant.
        fds: Vec<OwnedFd>,
        /// Told after it.
        then: Vec<Told>,
    },
    /// It did not.
    Error { name: String, message: String },
    /// Nothing.
    Silence,
}

impl Answer {
    /// It did that, and has this to say.
    pub fn values(values: Vec<Value>) -> Answer {
        Answer::Return { values, fds: Vec::new(), then: Vec::new() }
    }
}

/// All the services of a bus.
pub type Services = dyn Fn(&Called) -> Answer + Send + Sync;

/// The bus. It ends, with its connections, when this is dropped.
pub struct StandIn {
    inner: Arc<Inner>,
    listener: AbortHandle,
}

struct Inner {
    services: Box<Services>,
    state: Mutex<State>,
    connections: watch::Sender<usize>,
}

#[derive(Default)]
struct State {
    last: usize,
    connected: BTreeMap<usize, Connected>,
}

struct Connected {
    rules: Vec<String>,
    send: mpsc::Sender<Message>,
    task: Option<AbortHandle>,
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StandIn {
    /// A bus on a socket of its own.
    pub fn listen(
        path: &Path,
        services: impl Fn(&Called) -> Answer + Send + Sync + 'static,
    ) -> io::Result<StandIn> {
        // One that was there before may have left its socket.
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path)?;
        let inner = Arc::new(Inner {
            services: Box::new(services),
            state: Mutex::default(),
            connections: watch::Sender::new(0),
        });
        let accepts = Arc::clone(&inner);
        let listener = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (send, sends) = mpsc::channel(MESSAGES);
                let id = {
                    let mut state = accepts.state();
                    state.last += 1;
                    let id = state.last;
                    state.connected.insert(id, Connected { rules: Vec::new(), send, task: None });
                    id
                };
                let inner = Arc::clone(&accepts);
                let task = tokio::spawn(async move {
                    // Who is gone, or talks nonsense, is let go.
                    let _ = serve(&inner, id, socket, sends).await;
                    inner.state().connected.remove(&id);
                });
                if let Some(connected) = accepts.state().connected.get_mut(&id) {
                    connected.task = Some(task.abort_handle());
                }
            }
        });
        Ok(StandIn { inner, listener: listener.abort_handle() })
    }

    /// Tells it to all who added a match for it.
    pub fn tell(&self, told: Told) {
        tell(&self.inner, &told);
    }

    /// How often somebody has connected, as it changes.
    pub fn connections(&self) -> watch::Receiver<usize> {
        self.inner.connections.subscribe()
    }

    /// The matches that those who are connected added.
    pub fn rules(&self) -> Vec<String> {
        self.inner.state().connected.values().flat_map(|connected| connected.rules.clone()).collect()
    }

    /// Ends every connection.
    pub fn disconnect(&self) {
        for (_, connected) in std::mem::take(&mut self.inner.state().connected) {
            connected.task.inspect(AbortHandle::abort);
        }
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.listener.abort();
        self.disconnect();
    }
}

/// By the names in their rules: all that a test needs.
fn tell(inner: &Inner, told: &Told) {
    for connected in inner.state().connected.values() {
        let fits = |rule: &String| {
            let pairs = rule.split(',').filter_map(|pair| pair.split_once('='));
            pairs.into_iter().all(|(key, value)| match key {
                "member" => value.trim_matches('\'') == told.member,
                "interface" => value.trim_matches('\'') == told.interface,
                "path" => value.trim_matches('\'') == told.path,
                _ => true,
            })
        };
        if connected.rules.iter().any(fits) {
            let mut signal = Message::new(Kind::Signal, 1);
            signal.path.clone_from(&told.path);
            signal.interface.clone_from(&told.interface);
            signal.member.clone_from(&told.member);
            signal.sender = ":1.0".into();
            signal.body.values.clone_from(&told.values);
            // Who does not read that many is not there any more.
            let _ = connected.send.try_send(signal);
        }
    }
}

async fn serve(
    inner: &Inner,
    id: usize,
    mut socket: UnixStream,
    mut sends: mpsc::Receiver<Message>,
) -> io::Result<()> {
    welcome(&mut socket).await?;
    let mut incoming = Incoming::default();
    loop {
        tokio::select! {
            biased;
            message = sends.recv() => match message {
                Some(message) => send(&socket, message).await?,
                None => return Ok(()),
            },
            message = incoming.next(&socket) => match message.map_err(io::Error::other)? {
                Some(message) if message.kind == Kind::Call => called(inner, id, &socket, message).await?,
                Some(_) => {}
                None => return Ok(()),
            },
        }
    }
}

async fn welcome(socket: &mut UnixStream) -> io::Result<()> {
    if socket.read_u8().await? != 0 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    loop {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.push(socket.read_u8().await?);
        }
        let answer: &[u8] = match line.trim_ascii() {
            b"BEGIN" => return Ok(()),
            b"NEGOTIATE_UNIX_FD" => b"AGREE_UNIX_FD\r\n",
            line if line.starts_with(b"AUTH EXTERNAL ") => b"OK 0123456789abcdef0123456789abcdef\r\n",
            _ => b"ERROR\r\n",
        };
        socket.write_all(answer).await?;
    }
}

async fn called(inner: &Inner, id: usize, socket: &UnixStream, message: Message) -> io::Result<()> {
    let serial = message.serial;
    let Message { path, interface, member, destination, body, .. } = message;
    let call = Called { destination, path, interface, member, values: body.values };
    let answer = match (&*call.destination, &*call.member) {
        ("org.freedesktop.DBus", "Hello") => {
            inner.connections.send_modify(|count| *count += 1);
            Answer::values(vec![format!(":1.{id}").into()])
        }
        ("org.freedesktop.DBus", "AddMatch") => {
            let rule = call.values.first().and_then(Value::as_text).unwrap_or_default().to_owned();
            if let Some(connected) = inner.state().connected.get_mut(&id) {
                connected.rules.push(rule);
            }
            Answer::values(Vec::new())
        }
        _ => (inner.services)(&call),
    };
    let (mut message, then) = match answer {
        Answer::Return { values, fds, then } => {
            let mut message = Message::new(Kind::Return, 1);
            message.body = Body { values, fds };
            (message, then)
        }
        Answer::Error { name, message: text } => {
            let mut message = Message::new(Kind::Error, 1);
            message.error_name = name;
            message.body.values = vec![text.into()];
            (message, Vec::new())
        }
        Answer::Silence => return Ok(()),
    };
    message.reply_serial = serial;
    message.sender = call.destination;
    send(socket, message).await?;
    then.iter().for_each(|told| tell(inner, told));
    Ok(())
}

async fn send(socket: &UnixStream, message: Message) -> io::Result<()> {
    let bytes = message.encode().map_err(io::Error::other)?;
    let mut fds: Vec<BorrowedFd<'_>> = message.body.fds.iter().map(|fd| fd.as_fd()).collect();
    let mut rest = &*bytes;
    while !rest.is_empty() {
        socket.writable().await?;
        let sent = socket.try_io(Interest::WRITABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
                return Err(io::Error::other("so many file descriptors cannot be sent"));
            }
            Ok(sendmsg(socket, &[IoSlice::new(rest)], &mut ancillary, SendFlags::NOSIGNAL)?)
        });
        match sent {
            Ok(sent) => {
                fds.clear();
                rest = &rest[sent..];
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
