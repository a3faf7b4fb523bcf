//! The client's side of SPDY/3.1, as runtimes speak it: they use `moby/spdystream`.
//!
//! That library has no flow control: it sends no WINDOW_UPDATE and heeds none, so that the connection's own is all
//! there is. It forgets data that comes before it has answered a stream with SYN_REPLY, so nothing is sent until then.

mod dictionary;

use std::io;

use flate2::{Compress, CompressError, Compression, FlushCompress};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use crate::buffered::{Buffered, write_rest};

const VERSION: u16 = 3;
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const FLAG_FIN: u8 = 1;
const HEADER: usize = 8;

/// What a runtime sends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event<'a> {
    /// It takes a stream.
    Reply { stream: u32, is_last: bool },
    /// A part of a stream.
    Data { stream: u32, is_last: bool, bytes: &'a [u8] },
    /// It is through with a stream in both directions.
    Reset { stream: u32 },
    /// To be answered with the same number, unless it is one of ours: those are odd.
    Ping(u32),
}

/// Why a runtime is not listened to any longer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the container runtime does not speak SPDY/3.1")]
    Protocol,
}

/// A data frame that has not ended.
struct Frame {
    stream: u32,
    left: u64,
    is_last: bool,
}

/// Reads what a runtime sends. Every call may be given up while it waits.
pub(crate) struct Reader<R> {
    input: Buffered<R>,
    frame: Option<Frame>,
    /// How much of a control frame is of no interest.
    skip: u64,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(crate) fn new(io: R) -> Reader<R> {
        Reader { input: Buffered::new(io), frame: None, skip: 0 }
    }

    /// What comes next; nothing where the runtime closed the connection.
    pub(crate) async fn next(&mut self) -> Result<Option<Event<'_>>, ReadError> {
        while self.frame.is_none() {
            while self.skip > 0 {
                self.skip -= self.input.some(self.skip).await?.len() as u64;
            }
            let Some(header) =
                self.input.peek(HEADER).await?.and_then(|header| header.first_chunk::<HEADER>())
            else {
                return Ok(None);
            };
            let (word, flags) = (u32::from_be_bytes([header[0], header[1], header[2], header[3]]), header[4]);
            let length = u32::from_be_bytes([0, header[5], header[6], header[7]]);
            if word >> 31 == 0 {
                self.input.take(HEADER);
                self.frame =
                    Some(Frame { stream: word, left: length.into(), is_last: flags & FLAG_FIN != 0 });
                break;
            }
            if let Some(event) = self.control(word, flags, length).await? {
                return Ok(Some(event));
            }
        }
        let Some(frame) = &mut self.frame else { return Ok(None) };
        let bytes = match frame.left {
            0 => &mut [],
            left => self.input.some(left).await?,
        };
        frame.left -= bytes.len() as u64;
        let (stream, ended) = (frame.stream, frame.left == 0);
        let is_last = ended && frame.is_last;
        if ended {
            self.frame = None;
        }
        Ok(Some(Event::Data { stream, is_last, bytes }))
    }

    /// A control frame, of which no more than its first word matters.
    async fn control(
        &mut self,
        word: u32,
        flags: u8,
        length: u32,
    ) -> Result<Option<Event<'static>>, ReadError> {
        let (version, kind) = ((word >> 16) as u16 & 0x7fff, word as u16);
        if version != VERSION {
            return Err(ReadError::Protocol);
        }
        if !matches!(kind, SYN_REPLY | RST_STREAM | PING) {
            self.input.take(HEADER);
            self.skip = length.into();
            return Ok(None);
        }
        if length < 4 {
            return Err(ReadError::Protocol);
        }
        let frame = self.input.peek(HEADER + 4).await?.and_then(|frame| frame[HEADER..].first_chunk::<4>());
        let number = u32::from_be_bytes(*frame.ok_or(ReadError::Protocol)?);
        self.input.take(HEADER + 4);
        self.skip = u64::from(length) - 4;
        let stream = number & 0x7fff_ffff;
        Ok(Some(match kind {
            SYN_REPLY => Event::Reply { stream, is_last: flags & FLAG_FIN != 0 },
            RST_STREAM => Event::Reset { stream },
            _ => Event::Ping(number),
        }))
    }
}

/// Writes to a runtime. What a call leaves behind that is given up goes before what the next one writes.
pub(crate) struct Writer<W> {
    io: W,
    frames: Vec<u8>,
    /// How much of them is written.
    written: usize,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    pub(crate) fn new(io: W) -> Writer<W> {
        Writer { io, frames: Vec::new(), written: 0 }
    }

    /// Opens streams of these kinds at once, with the numbers 1, 3, 5 and so on.
    pub(crate) async fn open(&mut self, kinds: &[&str]) -> io::Result<()> {
        self.begin().await?;
        syn_streams(kinds, &mut self.frames).map_err(io::Error::other)?;
        self.flush().await
    }

    pub(crate) async fn data(&mut self, stream: u32, bytes: &[u8], is_last: bool) -> io::Result<()> {
        self.begin().await?;
        header(&mut self.frames, stream, if is_last { FLAG_FIN } else { 0 }, bytes.len());
        self.frames.extend_from_slice(bytes);
        self.flush().await
    }

    pub(crate) async fn ping(&mut self, number: u32) -> io::Result<()> {
        self.begin().await?;
        header(&mut self.frames, control(PING), 0, 4);
        self.frames.extend_from_slice(&number.to_be_bytes());
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
        self.frames.clear();
        self.written = 0;
        Ok(())
    }

    async fn flush(&mut self) -> io::Result<()> {
        write_rest(&mut self.io, &self.frames, &mut self.written).await
    }
}

/// The first word of a control frame.
fn control(kind: u16) -> u32 {
    1 << 31 | u32::from(VERSION) << 16 | u32::from(kind)
}

fn header(frame: &mut Vec<u8>, word: u32, flags: u8, length: usize) {
    let [_, length @ ..] = (length as u32).to_be_bytes();
    frame.extend_from_slice(&word.to_be_bytes());
    frame.push(flags);
    frame.extend_from_slice(&length);
}

fn syn_streams(kinds: &[&str], frames: &mut Vec<u8>) -> Result<(), CompressError> {
    // What the compressor learned of one header it uses in the next, so it is one for all. It is large, and not kept:
    // no stream is opened later.
    let mut compressor = Compress::new(Compression::fast(), true);
    compressor.set_dictionary(&dictionary::dictionary())?;
    for (kind, stream) in kinds.iter().zip((1_u32..).step_by(2)) {
        let mut block = vec![0, 0, 0, 1];
        for text in ["streamtype", kind] {
            block.extend_from_slice(&(text.len() as u32).to_be_bytes());
            block.extend_from_slice(text.as_bytes());
        }
        // A header that does not get shorter gets a little longer.
        let mut compressed = Vec::with_capacity(block.len() + 128);
        compressor.compress_vec(&block, &mut compressed, FlushCompress::Sync)?;
        header(frames, control(SYN_STREAM), 0, 10 + compressed.len());
        frames.extend_from_slice(&stream.to_be_bytes());
        // No other stream that it belongs to, no priority, no slot.
        frames.extend_from_slice(&[0; 6]);
        frames.extend_from_slice(&compressed);
    }
    Ok(())
}

#[cfg(test)]
#[path = "spdy_tests.rs"]
mod tests;
