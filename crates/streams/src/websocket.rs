//! The server's side of a WebSocket (RFC 6455), for messages of any size in memory of one size.
//!
//! A crate for this gathers each message before it gives it. Here a message is a stretch of a stream, and passes in
//! pieces.

use std::io;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use hyper::body::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use crate::buffered::{Buffered, write_rest};

/// What the protocol proves with that it was understood.
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The largest payload of a control frame.
const LARGEST_CONTROL: usize = 125;
/// The kinds of frames that we send.
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PONG: u8 = 10;
/// The end of a connection of which nothing is wrong.
pub(crate) const NORMAL: u16 = 1000;
/// The end of one that the server gives up.
pub(crate) const GOING_AWAY: u16 = 1001;
/// The end of one whose client does not keep to the protocol.
pub(crate) const PROTOCOL_ERROR: u16 = 1002;

/// Why no WebSocket is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadHandshake {
    #[error("Method Not Allowed")]
    Method,
    #[error("missing or bad WebSocket Version")]
    Version,
    #[error("missing or bad Sec-WebSocket-Key")]
    Key,
}

impl BadHandshake {
    pub(crate) fn status(self) -> StatusCode {
        match self {
            BadHandshake::Method => StatusCode::METHOD_NOT_ALLOWED,
            BadHandshake::Version | BadHandshake::Key => StatusCode::BAD_REQUEST,
        }
    }
}

/// What a client's key is answered with, where its request opens a WebSocket.
pub(crate) fn accept(method: &Method, headers: &HeaderMap) -> Result<String, BadHandshake> {
    if method != Method::GET {
        return Err(BadHandshake::Method);
    }
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version.as_bytes().trim_ascii() != b"13") {
        return Err(BadHandshake::Version);
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).map(|key| key.as_bytes().trim_ascii()).unwrap_or_default();
    if STANDARD.decode(key).map(|key| key.len()) != Ok(16) {
        return Err(BadHandshake::Key);
    }
    let proof = [key, MAGIC.as_bytes()].concat();
    Ok(STANDARD.encode(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &proof)))
}

/// The answer that opens it.
pub(crate) fn switching(accept: &str, protocol: Option<&str>) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    for (name, value) in [(SEC_WEBSOCKET_ACCEPT, Some(accept)), (SEC_WEBSOCKET_PROTOCOL, protocol)] {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            headers.insert(name, value);
        }
    }
    response
}

/// Why a client is not listened to any longer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the client does not keep to the WebSocket protocol: {0}")]
    Protocol(&'static str),
}

/// What a client sends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// A part of a message: whether it begins and whether it ends it.
    Data {
        is_first: bool,
        is_last: bool,
        is_text: bool,
        bytes: &'a [u8],
    },
    /// To be answered with the same bytes.
    Ping(Vec<u8>),
    /// An answer to a ping, or just a sign of life.
    Pong,
    Close,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

#[derive(Debug, Clone, Copy)]
struct Header {
    opcode: Opcode,
    is_final: bool,
    length: u64,
    mask: [u8; 4],
    /// How long it is itself.
    size: usize,
}

/// A data frame that has not ended.
struct Frame {
    left: u64,
    is_final: bool,
    is_first: bool,
    mask: [u8; 4],
}

/// Reads what a client sends. Every call may be given up while it waits.
pub(crate) struct Reader<R> {
    input: Buffered<R>,
    frame: Option<Frame>,
    /// Whether a message has begun of which more frames are to come.
    in_message: bool,
    is_text: bool,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(crate) fn new(io: R) -> Reader<R> {
        Reader { input: Buffered::new(io), frame: None, in_message: false, is_text: false }
    }

    /// What comes next; nothing where the client left without a word.
    pub(crate) async fn next(&mut self) -> Result<Option<Piece<'_>>, ReadError> {
        while self.frame.is_none() {
            let Some(header) = self.header().await? else { return Ok(None) };
            match header.opcode {
                Opcode::Continuation | Opcode::Text | Opcode::Binary => self.begin(header)?,
                Opcode::Close | Opcode::Ping | Opcode::Pong => {
                    let payload = self.control(header).await?;
                    match header.opcode {
                        Opcode::Close => return Ok(Some(Piece::Close)),
                        Opcode::Ping => return Ok(Some(Piece::Ping(payload))),
                        _ => return Ok(Some(Piece::Pong)),
                    }
                }
            }
        }
        let Some(frame) = &mut self.frame else { return Ok(None) };
        let bytes = match frame.left {
            0 => &mut [],
            left => self.input.some(left).await?,
        };
        unmask(bytes, frame.mask);
        frame.mask.rotate_left(bytes.len() % 4);
        frame.left -= bytes.len() as u64;
        let (is_first, ended) = (std::mem::take(&mut frame.is_first), frame.left == 0);
        let is_last = ended && frame.is_final;
        if ended {
            self.in_message = !frame.is_final;
            self.frame = None;
        }
        Ok(Some(Piece::Data { is_first, is_last, is_text: self.is_text, bytes }))
    }

    /// Takes in and forgets whatever still comes.
    pub(crate) async fn drain(&mut self) {
        self.input.drain().await;
    }

    fn begin(&mut self, header: Header) -> Result<(), ReadError> {
        let is_first = header.opcode != Opcode::Continuation;
        match (is_first, self.in_message) {
            (true, true) => return Err(ReadError::Protocol("a message within a message")),
            (false, false) => return Err(ReadError::Protocol("a continuation of nothing")),
            (true, false) => self.is_text = header.opcode == Opcode::Text,
            (false, true) => {}
        }
        self.input.take(header.size);
        let Header { length: left, is_final, mask, .. } = header;
        self.in_message = true;
        self.frame = Some(Frame { left, is_final, is_first, mask });
        Ok(())
    }

    async fn control(&mut self, header: Header) -> Result<Vec<u8>, ReadError> {
        let length = usize::try_from(header.length).unwrap_or(usize::MAX);
        if !header.is_final || length > LARGEST_CONTROL {
            return Err(ReadError::Protocol("a control frame in parts, or a large one"));
        }
        let whole = self.input.peek(header.size + length).await?;
        let payload = whole.ok_or(io::ErrorKind::UnexpectedEof).map_err(io::Error::from)?;
        let payload = payload[header.size..].iter().zip(header.mask.iter().cycle());
        let payload = payload.map(|(byte, mask)| byte ^ mask).collect();
        self.input.take(header.size + length);
        Ok(payload)
    }

    async fn header(&mut self) -> Result<Option<Header>, ReadError> {
        let Some(&[first, second]) = self.input.peek(2).await?.and_then(|two| two.first_chunk()) else {
            return Ok(None);
        };
        if first & 0x70 != 0 {
            return Err(ReadError::Protocol("an extension that was not agreed on"));
        }
        if second & 0x80 == 0 {
            return Err(ReadError::Protocol("bytes that are not masked"));
        }
        let opcode = match first & 0x0f {
            0 => Opcode::Continuation,
            1 => Opcode::Text,
            2 => Opcode::Binary,
            8 => Opcode::Close,
            9 => Opcode::Ping,
            10 => Opcode::Pong,
            _ => return Err(ReadError::Protocol("a kind of frame that there is not")),
        };
        let (short, extended) = match second & 0x7f {
            126 => (0, 2),
            127 => (0, 8),
            short => (u64::from(short), 0),
        };
        let size = 2 + extended + 4;
        let header =
            self.input.peek(size).await?.ok_or(io::ErrorKind::UnexpectedEof).map_err(io::Error::from)?;
        let (length, mask) = header[2..].split_at(extended);
        let length = length.iter().fold(short, |length, byte| (length << 8) | u64::from(*byte));
        if length >> 63 != 0 {
            return Err(ReadError::Protocol("a length that there is not"));
        }
        let mask = [mask[0], mask[1], mask[2], mask[3]];
        Ok(Some(Header { opcode, is_final: first & 0x80 != 0, length, mask, size }))
    }
}

/// Four bytes at a time, which the compiler makes more of.
fn unmask(bytes: &mut [u8], mask: [u8; 4]) {
    let mut fours = bytes.chunks_exact_mut(4);
    for four in &mut fours {
        for (byte, mask) in four.iter_mut().zip(mask) {
            *byte ^= mask;
        }
    }
    for (byte, mask) in fours.into_remainder().iter_mut().zip(mask) {
        *byte ^= mask;
    }
}

/// Writes to a client. What a call leaves behind that is given up goes before what the next one writes.
pub(crate) struct Writer<W> {
    io: W,
    frames: Vec<u8>,
    /// How much of them is written.
    written: usize,
    is_closed: bool,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    pub(crate) fn new(io: W) -> Writer<W> {
        Writer { io, frames: Vec::new(), written: 0, is_closed: false }
    }

    /// Sends a message, behind the number of its channel where there are several.
    pub(crate) async fn binary(&mut self, channel: Option<u8>, bytes: &[u8]) -> io::Result<()> {
        self.begin().await?;
        self.push(BINARY, &[channel.as_slice(), bytes]);
        self.flush().await
    }

    pub(crate) async fn pong(&mut self, payload: &[u8]) -> io::Result<()> {
        self.begin().await?;
        self.push(PONG, &[payload]);
        self.flush().await
    }

    pub(crate) async fn close(&mut self, code: u16) -> io::Result<()> {
        self.begin().await?;
        self.push_close(code);
        self.flush().await
    }

    /// Sends a message that is the last one: nothing comes between it and the close.
    pub(crate) async fn last(&mut self, channel: u8, bytes: &[u8]) -> io::Result<()> {
        self.begin().await?;
        self.push(BINARY, &[&[channel], bytes]);
        self.push_close(NORMAL);
        self.flush().await
    }

    /// Says that nothing more comes.
    pub(crate) async fn shutdown(&mut self) -> io::Result<()> {
        self.io.shutdown().await
    }

    async fn begin(&mut self) -> io::Result<()> {
        if self.written < self.frames.len() {
            self.flush().await?;
        }
        if self.is_closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.frames.clear();
        self.written = 0;
        Ok(())
    }

    fn push_close(&mut self, code: u16) {
        self.push(CLOSE, &[&code.to_be_bytes()]);
        self.is_closed = true;
    }

    fn push(&mut self, opcode: u8, parts: &[&[u8]]) {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.frames.push(0x80 | opcode);
        match length {
            0..=125 => self.frames.push(length as u8),
            126..=0xffff => {
                self.frames.push(126);
                self.frames.extend_from_slice(&(length as u16).to_be_bytes());
            }
            _ => {
                self.frames.push(127);
                self.frames.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        for part in parts {
            self.frames.extend_from_slice(part);
        }
    }

    async fn flush(&mut self) -> io::Result<()> {
        write_rest(&mut self.io, &self.frames, &mut self.written).await
    }
}

#[cfg(test)]
#[path = "websocket_tests.rs"]
mod tests;
