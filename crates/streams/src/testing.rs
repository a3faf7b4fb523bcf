//! What must hold whatever either side of a stream sends.

#![allow(clippy::panic, clippy::expect_used, reason = "what does not hold is told by a panic")]

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::activity::Activity;
use crate::spdy;
use crate::translate::{Client, Wanted, translate};
use crate::tunnel::tunnel;
use crate::websocket::{self, Piece};

/// Plays a client and a runtime, and panics unless frames are the same however they are cut, and each side hears nothing
/// but whole frames.
///
/// The first byte says how many bytes come at a time, the second what is wanted, and the next two how many of the rest are
/// the client's; the others are the runtime's.
pub fn check_streams(input: &[u8]) {
    let [cut, wanted, high, low, rest @ ..] = input else { return };
    let cut = usize::from(*cut).max(1);
    let (client, runtime) = rest.split_at(rest.len().min(usize::from(u16::from_be_bytes([*high, *low]))));
    let has = |bit: u8| wanted & (1 << bit) != 0;
    let wanted = Wanted { stdin: has(0), stdout: has(1), stderr: has(2), tty: has(3) };
    let waiting = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    waiting.expect("a thread can wait").block_on(async {
        let messages = messages(client, client.len().max(1)).await;
        assert_eq!(self::messages(client, cut).await, messages, "{cut} bytes at a time");
        let events = events(runtime, runtime.len().max(1)).await;
        assert_eq!(self::events(runtime, cut).await, events, "{cut} bytes at a time");
        let (near, to_client) = Side::new(client, cut);
        let (far, to_runtime) = Side::new(runtime, cut);
        if has(4) {
            tunnel(near, far, &Activity::new()).await;
            assert_frames(&to_client.taken(), None);
            assert_eq!(to_runtime.taken(), carried(&messages), "what the messages carry");
            return;
        }
        let Ok(mut client) = Client::greet(near, wanted).await else { return };
        translate(&mut client, far, wanted, &Activity::new()).await;
        assert_frames(&to_client.taken(), Some(1..=3));
        assert_spdy(&to_runtime.taken());
    });
}

/// What a client said, however its frames were cut.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Message { is_text: bool, has_ended: bool, bytes: Vec<u8> },
    Ping(Vec<u8>),
    Pong,
    Close,
    Error(String),
}

async fn messages(bytes: &[u8], cut: usize) -> Vec<Said> {
    let mut reader = websocket::Reader::new(Side::new(bytes, cut).0);
    let (mut said, mut begun) = (Vec::new(), 0);
    loop {
        let next = match reader.next().await {
            Ok(None) => return said,
            Ok(Some(Piece::Data { is_first, is_last, is_text, bytes })) => {
                if is_first {
                    begun = said.len();
                    said.push(Said::Message { is_text, has_ended: false, bytes: Vec::new() });
                }
                let Some(Said::Message { has_ended, bytes: so_far, .. }) = said.get_mut(begun) else {
                    panic!("a piece of no message");
                };
                assert!(!*has_ended, "a piece of a message that has ended");
                *has_ended = is_last;
                so_far.extend_from_slice(bytes);
                continue;
            }
            Ok(Some(Piece::Ping(payload))) => Said::Ping(payload),
            Ok(Some(Piece::Pong)) => Said::Pong,
            Ok(Some(Piece::Close)) => Said::Close,
            Err(error) => {
                said.push(Said::Error(error.to_string()));
                return said;
            }
        };
        said.push(next);
    }
}

/// What goes to a runtime of messages that carry its own protocol: nothing of the first that does not, and of what is behind.
fn carried(said: &[Said]) -> Vec<u8> {
    let mut carried = Vec::new();
    for said in said {
        match said {
            Said::Message { is_text: false, bytes, .. } => carried.extend_from_slice(bytes),
            Said::Message { is_text: true, .. } | Said::Close | Said::Error(_) => break,
            Said::Ping(_) | Said::Pong => {}
        }
    }
    carried
}

/// What a runtime said, likewise.
async fn events(bytes: &[u8], cut: usize) -> Vec<String> {
    let mut reader = spdy::Reader::new(Side::new(bytes, cut).0);
    let (mut events, mut data) = (Vec::new(), None::<(u32, Vec<u8>)>);
    loop {
        let next = reader.next().await;
        if let Ok(Some(spdy::Event::Data { stream, is_last, bytes })) = next {
            let (_, so_far) = match &mut data {
                Some(known) if known.0 == stream => known,
                other => {
                    events.extend(other.take().map(|known| format!("{known:?}")));
                    other.insert((stream, Vec::new()))
                }
            };
            so_far.extend_from_slice(bytes);
            if is_last {
                events.extend(data.take().map(|known| format!("{known:?}, the last")));
            }
            continue;
        }
        events.extend(data.take().map(|known| format!("{known:?}")));
        match next {
            Ok(Some(event)) => events.push(format!("{event:?}")),
            Ok(None) => return events,
            Err(error) => {
                events.push(error.to_string());
                return events;
            }
        }
    }
}

/// Panics unless these are a server's frames, nothing comes after the close, and each message is of one of these channels.
fn assert_frames(bytes: &[u8], channels: Option<std::ops::RangeInclusive<u8>>) {
    let mut rest = bytes;
    let mut is_closed = false;
    while let [first, second, after @ ..] = rest {
        assert!(!is_closed, "a frame after the close");
        let (length, after) = match second {
            126 => after
                .split_first_chunk()
                .map(|(length, after)| (u64::from(u16::from_be_bytes(*length)), after)),
            127 => after.split_first_chunk().map(|(length, after)| (u64::from_be_bytes(*length), after)),
            short => Some((u64::from(*short), after)),
        }
        .expect("a whole header");
        let length = usize::try_from(length).expect("a length that there is");
        let (payload, after) = after.split_at_checked(length).expect("a whole frame");
        match first {
            0x82 => {
                let channel = payload.first().copied();
                let is_known = channels
                    .as_ref()
                    .is_none_or(|known| channel.is_some_and(|channel| known.contains(&channel)));
                assert!(is_known, "channel {channel:?}");
            }
            0x88 => is_closed = true,
            0x8a => assert!(payload.len() <= 125, "a long pong"),
            other => panic!("a frame of kind {other:#x}"),
        }
        rest = after;
    }
    assert!(rest.is_empty(), "half a header");
}

/// Panics unless these are frames as a runtime takes them.
fn assert_spdy(bytes: &[u8]) {
    let mut rest = bytes;
    while let Some((header, after)) = rest.split_first_chunk::<8>() {
        let length = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
        assert!(after.len() >= length, "a whole frame");
        match header {
            [0x80, 3, 0, 1 | 6, ..] => {}
            [0, 0, 0, stream, ..] => assert!(stream % 2 == 1 && *stream <= 9, "stream {stream}"),
            other => panic!("a frame that begins with {other:?}"),
        }
        rest = &after[length..];
    }
    assert!(rest.is_empty(), "half a header");
}

/// A side that says what it was given, so many bytes at a time, and then nothing more.
struct Side {
    says: Vec<u8>,
    at: usize,
    cut: usize,
    heard: Heard,
}

/// What it was told.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<u8>>>);

impl Heard {
    fn taken(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Side {
    fn new(says: &[u8], cut: usize) -> (Side, Heard) {
        let heard = Heard::default();
        (Side { says: says.to_vec(), at: 0, cut, heard: heard.clone() }, heard)
    }
}

impl AsyncRead for Side {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let count = self.cut.min(into.remaining()).min(self.says.len() - self.at);
        into.put_slice(&self.says[self.at..self.at + count]);
        self.at += count;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Side {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.heard.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those that fuzzing begins with.
    #[test]
    fn what_fuzzing_begins_with_holds() {
        let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/streams");
        let mut count = 0;
        for seed in std::fs::read_dir(seeds).unwrap() {
            let input = std::fs::read(seed.unwrap().path()).unwrap();
            for cut in [0, 1, 7, 255] {
                check_streams(&[&[cut], input.get(1..).unwrap_or_default()].concat());
            }
            count += 1;
        }
        assert!(count > 5, "{count} seeds");
    }
}
