//! WebSocket v5 of exec and attach, which runtimes do not speak, as SPDY v4, which they do.
//!
//! Two loops in one task: what the client says goes to the runtime, and the other way round. Neither gathers anything,
//! so who reads slowly slows down who writes.

use std::convert::Infallible;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadHalf, WriteHalf, split};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::activity::Activity;
use crate::pass::LINGER;
use crate::websocket::{NORMAL, PROTOCOL_ERROR, Piece};
use crate::{spdy, status, websocket};

/// The channels of a WebSocket v5.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
const CHANNELS: u8 = 5;
/// Not a channel: the one that the next byte names is closed.
const CLOSE: u8 = 255;

/// How long the runtime may take to open the streams, as upstream.
const OPENS_WITHIN: Duration = Duration::from_secs(30);
/// How often the runtime is asked whether it is there, as upstream. Its idle time begins anew with each.
const PINGS_EVERY: Duration = Duration::from_secs(5);
/// How long a client may take to be told how all ended, as upstream.
const TOLD_WITHIN: Duration = Duration::from_secs(10);
/// The longest account of how a command ended.
const LONGEST_STATUS: usize = 64 << 10;

/// Which streams a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    pub tty: bool,
}

/// The runtime's streams, by number.
struct Streams {
    error: u32,
    stdin: Option<u32>,
    stdout: Option<u32>,
    stderr: Option<u32>,
    resize: Option<u32>,
}

impl Streams {
    /// The streams, and their kinds in the order of their numbers.
    fn of(wanted: Wanted) -> (Streams, Vec<&'static str>) {
        let mut kinds = vec!["error"];
        let mut add = |kind, is_wanted: bool| {
            is_wanted.then(|| {
                kinds.push(kind);
                kinds.len() as u32 * 2 - 1
            })
        };
        let streams = Streams {
            error: 1,
            stdin: add("stdin", wanted.stdin),
            stdout: add("stdout", wanted.stdout),
            stderr: add("stderr", wanted.stderr && !wanted.tty),
            resize: add("resize", wanted.tty),
        };
        (streams, kinds)
    }
}

/// The client's side of a translation.
pub(crate) struct Client<C> {
    from: websocket::Reader<ReadHalf<C>>,
    to: Mutex<websocket::Writer<WriteHalf<C>>>,
}

impl<C: AsyncRead + AsyncWrite> Client<C> {
    /// Tells the client that it is there: by nothing, on the first channel that it listens to.
    pub(crate) async fn greet(client: C, wanted: Wanted) -> std::io::Result<Client<C>> {
        let (from, to) = split(client);
        let mut to = websocket::Writer::new(to);
        let channel = match wanted {
            Wanted { stdout: true, .. } => STDOUT,
            Wanted { stderr: true, .. } => STDERR,
            _ => ERROR,
        };
        to.binary(Some(channel), &[]).await?;
        Ok(Client { from: websocket::Reader::new(from), to: Mutex::new(to) })
    }

    /// Tells how all ended, and parts.
    pub(crate) async fn end(&mut self, status: &str) {
        let Client { from, to } = self;
        if tell(to, status).await {
            let _ = tokio::time::timeout(LINGER, from.drain()).await;
        }
    }
}

/// Whether the client took the word on how all ended.
async fn tell<W: AsyncWrite + Unpin>(to: &Mutex<websocket::Writer<W>>, status: &str) -> bool {
    let telling = async {
        let mut to = to.lock().await;
        to.last(ERROR, status.as_bytes()).await?;
        to.shutdown().await
    };
    matches!(tokio::time::timeout(TOLD_WITHIN, telling).await, Ok(Ok(())))
}

/// Translates until the command ended, a side is gone, or the stream is over. Of the last the client is told.
pub(crate) async fn translate<C, R>(client: &mut Client<C>, runtime: R, wanted: Wanted, activity: &Activity)
where
    C: AsyncRead + AsyncWrite,
    R: AsyncRead + AsyncWrite,
{
    let (streams, kinds) = Streams::of(wanted);
    let (from_runtime, to_runtime) = split(runtime);
    let mut to_runtime = spdy::Writer::new(to_runtime);
    if let Err(error) = to_runtime.open(&kinds).await {
        return client.end(&status::internal_error(&error.to_string())).await;
    }
    let to_runtime = Mutex::new(to_runtime);
    let opened = CancellationToken::new();
    let Client { from, to } = client;
    let mut outward = Outward {
        from: spdy::Reader::new(from_runtime),
        to_runtime: &to_runtime,
        to_client: to,
        opened: &opened,
        not_replied: kinds.len(),
        streams: &streams,
        activity,
    };
    let outward = async {
        let status = tokio::select! {
            status = outward.run() => status?,
            () = not_opened(&opened) => {
                status::internal_error("the container runtime did not open the streams in time")
            }
            never = ping(&to_runtime) => match never {},
        };
        tell(to, &status).await.then_some(())
    };
    let inward = Inward { from, to_client: to, to_runtime: &to_runtime, streams: &streams, activity };
    let code = tokio::select! {
        told = outward => {
            if told.is_some() {
                let _ = tokio::time::timeout(LINGER, client.from.drain()).await;
            }
            return;
        }
        code = inward.run(&opened) => code,
        over = activity.over() => {
            return client.end(&status::internal_error(over.reason())).await;
        }
    };
    // The client is gone. The runtime is told so in order, so that it takes what came before.
    let parting = async {
        let mut to_runtime = to_runtime.lock().await;
        if let Some(stdin) = streams.stdin {
            let _ = to_runtime.data(stdin, &[], true).await;
        }
        let _ = to_runtime.shutdown().await;
        if let Ok(mut to) = client.to.try_lock() {
            let _ = to.close(code).await;
            let _ = to.shutdown().await;
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), parting).await;
}

/// Pings the runtime every now and then. Ours have odd numbers.
async fn ping<W: AsyncWrite + Unpin>(to_runtime: &Mutex<spdy::Writer<W>>) -> Infallible {
    for number in (1..).step_by(2) {
        tokio::time::sleep(PINGS_EVERY).await;
        // Who writes to it hears by that whether it is there.
        if let Ok(mut to_runtime) = to_runtime.try_lock()
            && to_runtime.ping(number).await.is_err()
        {
            break;
        }
    }
    std::future::pending().await
}

/// Waits until it is too late for the streams to be opened.
async fn not_opened(opened: &CancellationToken) {
    if tokio::time::timeout(OPENS_WITHIN, opened.cancelled()).await.is_ok() {
        std::future::pending().await
    }
}

/// What the runtime says, for the client.
struct Outward<'a, R, W, C> {
    from: spdy::Reader<R>,
    to_runtime: &'a Mutex<spdy::Writer<W>>,
    to_client: &'a Mutex<websocket::Writer<C>>,
    opened: &'a CancellationToken,
    not_replied: usize,
    streams: &'a Streams,
    activity: &'a Activity,
}

impl<R, W, C> Outward<'_, R, W, C>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
    C: AsyncWrite + Unpin,
{
    /// How it all ended; nothing where the client does not listen.
    async fn run(&mut self) -> Option<String> {
        let Streams { error, stdout, stderr, .. } = *self.streams;
        let mut open: Vec<u32> = [Some(error), stdout, stderr].into_iter().flatten().collect();
        let mut message = Vec::new();
        while !open.is_empty() {
            let ended = match self.from.next().await {
                Ok(Some(spdy::Event::Reply { stream, is_last })) => {
                    self.not_replied = self.not_replied.saturating_sub(1);
                    if self.not_replied == 0 {
                        self.opened.cancel();
                    }
                    is_last.then_some(stream)
                }
                Ok(Some(spdy::Event::Data { stream, is_last, bytes })) => {
                    self.activity.note();
                    let channel = match Some(stream) {
                        of if of == stdout => Some(STDOUT),
                        of if of == stderr => Some(STDERR),
                        _ => None,
                    };
                    match channel {
                        Some(channel) if !bytes.is_empty() => {
                            self.to_client.lock().await.binary(Some(channel), bytes).await.ok()?;
                        }
                        None if stream == error && message.len() + bytes.len() <= LONGEST_STATUS => {
                            message.extend_from_slice(bytes);
                        }
                        _ => {}
                    }
                    is_last.then_some(stream)
                }
                Ok(Some(spdy::Event::Reset { stream })) => Some(stream),
                Ok(Some(spdy::Event::Ping(number))) => {
                    // To wait for a turn to write could be to wait for ever: the runtime may not read before it has
                    // written. Who asks every now and then is answered then.
                    if number % 2 == 0
                        && let Ok(mut to_runtime) = self.to_runtime.try_lock()
                    {
                        let _ = to_runtime.ping(number).await;
                    }
                    None
                }
                Ok(None) => break,
                Err(error) if message.is_empty() => return Some(status::internal_error(&error.to_string())),
                Err(_) => break,
            };
            open.retain(|stream| Some(*stream) != ended);
        }
        Some(match message.is_empty() {
            true => status::internal_error(
                "the container runtime closed the connection without a word on how it ended",
            ),
            false => status::of_message(&message),
        })
    }
}

/// What the client says, for the runtime.
struct Inward<'a, C, D, W> {
    from: &'a mut websocket::Reader<C>,
    to_client: &'a Mutex<websocket::Writer<D>>,
    to_runtime: &'a Mutex<spdy::Writer<W>>,
    streams: &'a Streams,
    activity: &'a Activity,
}

/// Where in a message we are.
enum At {
    /// Before its first byte, which names the channel.
    Start,
    /// Within a channel's bytes.
    Channel(u8),
    /// Behind the sign that a channel is closed: which one.
    Close(Option<u8>),
}

impl<C, D, W> Inward<'_, C, D, W>
where
    C: AsyncRead + Unpin,
    D: AsyncWrite + Unpin,
    W: AsyncWrite + Unpin,
{
    /// Ends when the client is gone, with the code to part with.
    async fn run(self, opened: &CancellationToken) -> u16 {
        let Inward { from, to_client, to_runtime, streams, activity } = self;
        // Before that, the runtime would forget it.
        opened.cancelled().await;
        let mut stdin = streams.stdin;
        let mut resize = streams.resize;
        let mut at = At::Start;
        loop {
            let (is_last, mut bytes) = match from.next().await {
                Ok(Some(Piece::Data { is_last, bytes, .. })) => (is_last, bytes),
                Ok(Some(Piece::Ping(payload))) => {
                    activity.note();
                    if to_client.lock().await.pong(&payload).await.is_err() {
                        return NORMAL;
                    }
                    continue;
                }
                Ok(Some(Piece::Pong)) => {
                    activity.note();
                    continue;
                }
                Ok(Some(Piece::Close) | None) => return NORMAL,
                Err(websocket::ReadError::Protocol(_)) => return PROTOCOL_ERROR,
                Err(websocket::ReadError::Io(_)) => return NORMAL,
            };
            activity.note();
            if let (At::Start, [first, rest @ ..]) = (&at, bytes) {
                at = if *first == CLOSE { At::Close(None) } else { At::Channel(*first) };
                bytes = rest;
            }
            let (channel, is_end) = match at {
                At::Channel(channel) => (channel, false),
                At::Close(ref mut closed) => {
                    match (bytes, *closed) {
                        ([], _) => {}
                        ([channel], None) if *channel < CHANNELS => *closed = Some(*channel),
                        _ => return PROTOCOL_ERROR,
                    }
                    match (*closed, is_last) {
                        (Some(channel), true) => (channel, true),
                        (None, true) => return PROTOCOL_ERROR,
                        (_, false) => continue,
                    }
                }
                // An empty message says nothing.
                At::Start => continue,
            };
            if is_last {
                at = At::Start;
            }
            let stream = match channel {
                STDIN => &mut stdin,
                RESIZE => &mut resize,
                // Nobody reads those.
                _ => continue,
            };
            let Some(number) = *stream else { continue };
            let bytes = if is_end { &[] } else { bytes };
            if is_end {
                *stream = None;
            } else if bytes.is_empty() {
                continue;
            }
            let sent = to_runtime.lock().await.data(number, bytes, is_end).await;
            if sent.is_err() {
                // Its end is told by the other direction.
                (stdin, resize) = (None, None);
            }
            activity.note();
        }
    }
}

#[cfg(test)]
#[path = "translate_tests.rs"]
mod tests;
