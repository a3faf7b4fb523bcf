//! HTTP/2 frames (RFC 9113, section 4) as they pass by.

use super::header_block::with_readable_authorities;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD: usize = 9;

const HEADERS: u8 = 0x1;
const CONTINUATION: u8 = 0x9;

const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// The largest frame that may be sent to one who has not said otherwise.
const LARGEST_FRAME: usize = 16 << 10;

/// The most that is held back of a header block. A larger one passes as it is: who reads it will refuse it.
const LARGEST_BLOCK: usize = 128 << 10;

/// A stream of frames that are let pass, and changed where a header block has an authority that HTTP cannot read.
#[derive(Debug, Default)]
pub(super) struct Frames {
    state: State,
}

#[derive(Debug)]
enum State {
    /// So many bytes of the preface have passed.
    Preface(usize),
    /// Between frames, with what there is of the next one's head.
    Head(Vec<u8>),
    /// So many bytes of a frame are still to pass.
    Body(usize),
    /// The frames of a header block, held back, and where the last of them ends.
    Block { held: Vec<u8>, end: usize },
    /// This is no HTTP/2, or none that makes sense: who reads it will say so.
    GivenUp,
}

impl Default for State {
    fn default() -> State {
        State::Preface(0)
    }
}

impl Frames {
    /// Takes what came, and appends what passes.
    pub(super) fn pass(&mut self, mut input: &[u8], output: &mut Vec<u8>) {
        while !input.is_empty() {
            let (taken, next) = match std::mem::take(&mut self.state) {
                State::Preface(seen) => preface(seen, input, output),
                State::Head(held) => head(held, input, output),
                State::Body(left) => {
                    let taken = left.min(input.len());
                    output.extend_from_slice(&input[..taken]);
                    (taken, after_body(left - taken))
                }
                State::Block { held, end } => block(held, end, input, output),
                State::GivenUp => {
                    output.extend_from_slice(input);
                    (input.len(), State::GivenUp)
                }
            };
            self.state = next;
            input = &input[taken..];
        }
    }

    /// Gives out what is held back: nothing more comes.
    pub(super) fn finish(&mut self, output: &mut Vec<u8>) {
        match std::mem::replace(&mut self.state, State::GivenUp) {
            State::Head(held) | State::Block { held, .. } => output.extend(held),
            State::Preface(_) | State::Body(_) | State::GivenUp => {}
        }
    }
}

fn preface(seen: usize, input: &[u8], output: &mut Vec<u8>) -> (usize, State) {
    let expected = &PREFACE[seen..];
    let taken = expected.len().min(input.len());
    if input[..taken] != expected[..taken] {
        return (0, State::GivenUp);
    }
    output.extend_from_slice(&input[..taken]);
    match seen + taken == PREFACE.len() {
        true => (taken, State::Head(Vec::new())),
        false => (taken, State::Preface(seen + taken)),
    }
}

fn head(mut held: Vec<u8>, input: &[u8], output: &mut Vec<u8>) -> (usize, State) {
    let taken = (HEAD - held.len()).min(input.len());
    held.extend_from_slice(&input[..taken]);
    let Some(head) = Head::read(&held) else { return (taken, State::Head(held)) };
    let next = match head.kind {
        HEADERS if head.length <= LARGEST_FRAME => {
            let end = held.len() + head.length;
            return (taken, end_of_frame(held, end, output));
        }
        HEADERS => State::GivenUp,
        _ => after_body(head.length),
    };
    output.append(&mut held);
    (taken, next)
}

fn after_body(left: usize) -> State {
    if left == 0 { State::Head(Vec::new()) } else { State::Body(left) }
}

fn block(mut held: Vec<u8>, end: usize, input: &[u8], output: &mut Vec<u8>) -> (usize, State) {
    // Up to the end of the frame, or of the next one's head when that is where we are.
    let wanted = if held.len() < end { end } else { end + HEAD };
    let taken = (wanted - held.len()).min(input.len());
    held.extend_from_slice(&input[..taken]);
    if held.len() < wanted {
        return (taken, State::Block { held, end });
    }
    if wanted == end {
        return (taken, end_of_frame(held, end, output));
    }
    let next = Head::read(&held[end..]);
    let continued = next.filter(|head| {
        head.kind == CONTINUATION
            && head.stream == Head::read(&held).map_or(0, |first| first.stream)
            && head.length <= LARGEST_FRAME
            && held.len() + head.length <= LARGEST_BLOCK
    });
    match continued {
        Some(head) => {
            let end = held.len() + head.length;
            (taken, end_of_frame(held, end, output))
        }
        None => {
            output.append(&mut held);
            (taken, State::GivenUp)
        }
    }
}

/// What follows once a frame of a header block may be there in full.
fn end_of_frame(held: Vec<u8>, end: usize, output: &mut Vec<u8>) -> State {
    if held.len() < end {
        return State::Block { held, end };
    }
    if !is_whole(&held) {
        return State::Block { held, end };
    }
    output.extend(changed(&held).unwrap_or(held));
    State::Head(Vec::new())
}

/// Whether the last of these frames ends the block.
fn is_whole(held: &[u8]) -> bool {
    frames(held).last().is_some_and(|(head, _)| head.flags & END_HEADERS != 0)
}

/// The frames of a block with an authority that HTTP can read; nothing, if they can stay as they are.
fn changed(held: &[u8]) -> Option<Vec<u8>> {
    let (first, _) = frames(held).next()?;
    let mut priority: &[u8] = &[];
    let mut block = Vec::new();
    for (head, body) in frames(held) {
        let mut body = body;
        if head.kind == HEADERS && head.flags & PADDED != 0 {
            let (padding, rest) = body.split_first()?;
            body = &rest[..rest.len().checked_sub(usize::from(*padding))?];
        }
        if head.kind == HEADERS && head.flags & PRIORITY != 0 {
            (priority, body) = body.split_at_checked(5)?;
        }
        block.extend_from_slice(body);
    }
    let block = with_readable_authorities(&block)?;
    Some(written(first, priority, &block))
}

/// A header block in as many frames as it needs, without padding.
fn written(first: Head, priority: &[u8], block: &[u8]) -> Vec<u8> {
    let mut frames = Vec::with_capacity(block.len() + 2 * HEAD);
    let (start, mut rest) = block.split_at(block.len().min(LARGEST_FRAME - priority.len()));
    let flag = |rest: &[u8]| if rest.is_empty() { END_HEADERS } else { 0 };
    let flags = first.flags & (END_STREAM | PRIORITY) | flag(rest);
    Head { length: priority.len() + start.len(), flags, ..first }.write(&mut frames);
    frames.extend_from_slice(priority);
    frames.extend_from_slice(start);
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.len().min(LARGEST_FRAME));
        rest = after;
        let head = Head { length: piece.len(), kind: CONTINUATION, flags: flag(rest), stream: first.stream };
        head.write(&mut frames);
        frames.extend_from_slice(piece);
    }
    frames
}

/// What a frame begins with.
#[derive(Debug, Clone, Copy)]
struct Head {
    length: usize,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl Head {
    fn read(bytes: &[u8]) -> Option<Head> {
        let bytes: &[u8; HEAD] = bytes.first_chunk()?;
        let [high, middle, low, kind, flags, stream @ ..] = *bytes;
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        Some(Head { length, kind, flags, stream: u32::from_be_bytes(stream) })
    }

    fn write(self, output: &mut Vec<u8>) {
        let [_, high, middle, low] = (self.length as u32).to_be_bytes();
        output.extend_from_slice(&[high, middle, low, self.kind, self.flags]);
        output.extend_from_slice(&self.stream.to_be_bytes());
    }
}

/// The frames in these bytes, of which all are whole.
fn frames(mut bytes: &[u8]) -> impl Iterator<Item = (Head, &[u8])> {
    std::iter::from_fn(move || {
        let head = Head::read(bytes)?;
        let (body, rest) = bytes[HEAD..].split_at_checked(head.length)?;
        bytes = rest;
        Some((head, body))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        Head { length: body.len(), kind, flags, stream }.write(&mut frame);
        frame.extend_from_slice(body);
        frame
    }

    /// What comes out when these bytes come in by so many at a time.
    fn passed(input: &[u8], at_a_time: usize) -> Vec<u8> {
        let mut frames = Frames::default();
        let mut output = Vec::new();
        for piece in input.chunks(at_a_time.max(1)) {
            frames.pass(piece, &mut output);
        }
        frames.finish(&mut output);
        output
    }

    /// `:authority: /run/x` by its number.
    const BAD: &[u8] = b"\x41\x06/run/x";
    const GOOD: &[u8] = b"\x41\x06-run-x";

    fn stream(frames: &[Vec<u8>]) -> Vec<u8> {
        [PREFACE, &frames.concat()].concat()
    }

    #[test]
    fn a_bad_authority_is_replaced_and_all_else_passes() {
        let settings = frame(0x4, 0, 0, &[0; 6]);
        let data = frame(0x0, END_STREAM, 1, b"hello");
        let before = stream(&[settings.clone(), frame(HEADERS, END_HEADERS, 1, BAD), data.clone()]);
        let after = stream(&[settings, frame(HEADERS, END_HEADERS, 1, GOOD), data]);
        for at_a_time in 1..before.len() {
            assert_eq!(passed(&before, at_a_time), after);
        }
    }

    #[test]
    fn padding_and_priority_are_taken_off_the_block() {
        let priority = [0, 0, 0, 3, 16];
        let body = [&[4][..], &priority, BAD, &[0; 4]].concat();
        let flags = END_HEADERS | END_STREAM | PADDED | PRIORITY;
        let after = frame(HEADERS, END_HEADERS | END_STREAM | PRIORITY, 5, &[&priority[..], GOOD].concat());
        assert_eq!(passed(&stream(&[frame(HEADERS, flags, 5, &body)]), 7), stream(&[after]));
    }

    #[test]
    fn a_block_in_several_frames_is_read_as_one() {
        let pieces: Vec<Vec<u8>> = vec![
            frame(HEADERS, END_STREAM, 1, &BAD[..3]),
            frame(CONTINUATION, 0, 1, &[]),
            frame(CONTINUATION, END_HEADERS, 1, &BAD[3..]),
        ];
        let after = frame(HEADERS, END_STREAM | END_HEADERS, 1, GOOD);
        for at_a_time in [1, 2, 5, 100] {
            assert_eq!(passed(&stream(&pieces), at_a_time), stream(std::slice::from_ref(&after)));
        }
    }

    #[test]
    fn a_block_that_grows_is_written_in_frames_of_the_size_allowed() {
        // `/` has a code of 6 bits: plain, it takes more.
        let encoded = crate::huffman::encode(&vec![b'/'; 20_000]);
        let mut block = vec![0x41, 0xff];
        let length = encoded.len() - 0x7f;
        block.extend([(length & 0x7f) as u8 | 0x80, (length >> 7) as u8]);
        block.extend(encoded);
        let output = passed(&stream(&[frame(HEADERS, END_HEADERS, 1, &block)]), 1000);
        let heads: Vec<(u8, u8)> =
            frames(&output[PREFACE.len()..]).map(|(head, _)| (head.kind, head.flags)).collect();
        assert_eq!(heads, [(HEADERS, 0), (CONTINUATION, END_HEADERS)]);
    }

    #[test]
    fn what_makes_no_sense_passes_as_it_is() {
        for bytes in [
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
            PREFACE[..10].to_vec(),
            // Something else within a header block.
            stream(&[frame(HEADERS, 0, 1, &BAD[..3]), frame(0x0, 0, 1, b"x"), frame(HEADERS, 4, 3, BAD)]),
            // A frame that is too large, and padding that is.
            stream(&[frame(HEADERS, END_HEADERS, 1, &vec![0; LARGEST_FRAME + 1])]),
            stream(&[frame(HEADERS, END_HEADERS | PADDED, 1, &[200, 1, 2])]),
            // A frame that never ends.
            stream(&[frame(HEADERS, END_HEADERS, 1, BAD)[..12].to_vec()]),
            // A block that never ends.
            stream(&[frame(HEADERS, 0, 1, &[0; 100])])
                .into_iter()
                .chain(std::iter::repeat_n(frame(CONTINUATION, 0, 1, &[0; 16_000]), 20).flatten())
                .collect(),
        ] {
            assert_eq!(passed(&bytes, 1 << 20), bytes);
            assert_eq!(passed(&bytes, 3), bytes);
        }
    }

    #[test]
    fn what_is_held_back_is_bounded() {
        let mut frames = Frames::default();
        let mut output = Vec::new();
        frames.pass(&stream(&[frame(HEADERS, 0, 1, &[0x82; 16_000])]), &mut output);
        for _ in 0..1000 {
            frames.pass(&frame(CONTINUATION, 0, 1, &[0x82; 16_000]), &mut output);
            if let State::Block { held, .. } = &frames.state {
                assert!(held.len() <= LARGEST_BLOCK);
            }
        }
        assert!(matches!(frames.state, State::Body(_) | State::Head(_) | State::GivenUp));
    }

    /// `:method: GET` by its number, and `:authority: www.example.com` in Huffman's code.
    const OTHERS: [&[u8]; 2] = [b"\x82", b"\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"];

    /// The frames of a connection that makes sense, with these header blocks.
    fn connection(blocks: Vec<&'static [u8]>) -> impl Strategy<Value = Vec<u8>> {
        let one = (prop::sample::select(blocks), 0..4u8, 0..20usize, any::<Vec<u8>>());
        let one = one.prop_map(|(block, kind, split, data)| match kind {
            0 => frame(HEADERS, END_HEADERS, 1, block),
            1 => {
                let (first, second) = block.split_at(split.min(block.len()));
                [frame(HEADERS, 0, 3, first), frame(CONTINUATION, END_HEADERS, 3, second)].concat()
            }
            2 => frame(0x0, 0, 1, &data),
            _ => frame(0x6, 0, 0, &[7; 8]),
        });
        prop::collection::vec(one, 0..8).prop_map(|frames| stream(&frames))
    }

    proptest! {
        #[test]
        fn how_bytes_are_cut_into_reads_makes_no_difference(
            mut input in connection(vec![BAD, GOOD, OTHERS[0], OTHERS[1]]),
            noise in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
            end in any::<prop::sample::Index>(),
            at_a_time in 1..50usize,
        ) {
            if let Some((place, byte)) = noise {
                let place = place.index(input.len());
                input[place] = byte;
            }
            input.truncate(end.index(input.len() * 2));
            prop_assert_eq!(passed(&input, at_a_time), passed(&input, usize::MAX));
        }

        #[test]
        fn a_connection_whose_authorities_can_be_read_passes_unchanged(
            input in connection(vec![GOOD, OTHERS[0], OTHERS[1]]),
            at_a_time in 1..50usize,
        ) {
            prop_assert_eq!(passed(&input, at_a_time), input);
        }

        #[test]
        fn no_bytes_make_it_panic_or_lose_any(input: Vec<u8>, at_a_time in 1..9usize) {
            let input = [PREFACE, &input].concat();
            prop_assert!(passed(&input, at_a_time).len() + 64 >= input.len());
        }
    }
}
