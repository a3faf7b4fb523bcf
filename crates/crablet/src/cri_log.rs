//! The format of a container's log: `<time> <stream> <F|P> <text>`, where P is a piece of a line that goes on.

/// The longest line that is put together from its pieces. A longer one is given in parts.
const LONGEST_LINE: usize = 1 << 20;

/// Where a container wrote something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// A line that a container wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// When, as the log has it; empty for what is not in the format.
    pub(crate) time: String,
    /// Where.
    pub(crate) stream: Stream,
    /// What, without its end.
    pub(crate) text: Vec<u8>,
    /// Whether it has ended.
    pub(crate) ends: bool,
}

/// Puts lines together from the bytes of a log.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// A line of the file that has not ended.
    raw: Vec<u8>,
    /// What each stream has of a line that has not ended.
    begun: [Option<Line>; 2],
}

impl Decoder {
    /// Takes in more of the log, and gives the lines that are complete.
    pub(crate) fn feed(&mut self, bytes: &[u8], lines: &mut Vec<Line>) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.raw.extend_from_slice(piece);
            let has_ended = self.raw.pop_if(|last| *last == b'\n').is_some();
            if has_ended || self.raw.len() > LONGEST_LINE {
                let raw = std::mem::take(&mut self.raw);
                self.take(read(&raw), lines);
            }
        }
    }

    /// The log goes no further: gives what has not ended.
    pub(crate) fn finish(&mut self, lines: &mut Vec<Line>) {
        if !self.raw.is_empty() {
            let raw = std::mem::take(&mut self.raw);
            self.take(Line { ends: false, ..read(&raw) }, lines);
        }
        lines.extend(self.begun.iter_mut().filter_map(Option::take));
    }

    fn take(&mut self, line: Line, lines: &mut Vec<Line>) {
        let begun = match line.stream {
            Stream::Output => &mut self.begun[0],
            Stream::Error => &mut self.begun[1],
        };
        let whole = match begun.take() {
            None => line,
            Some(mut whole) => {
                whole.text.extend(line.text);
                whole.ends = line.ends;
                whole
            }
        };
        match whole.ends || whole.text.len() > LONGEST_LINE {
            true => lines.push(whole),
            false => *begun = Some(whole),
        }
    }
}

fn read(raw: &[u8]) -> Line {
    let mut parts = raw.splitn(4, |byte| *byte == b' ');
    let (time, stream, tags, text) = (parts.next(), parts.next(), parts.next(), parts.next());
    let stream = match stream {
        Some(b"stdout") => Some(Stream::Output),
        Some(b"stderr") => Some(Stream::Error),
        _ => None,
    };
    match (time, stream, tags, text) {
        (Some(time), Some(stream), Some(tags), Some(text)) => Line {
            time: String::from_utf8_lossy(time).into_owned(),
            stream,
            text: text.to_vec(),
            // There may be more tags, of which nobody knows any yet.
            ends: tags.split(|byte| *byte == b':').next() != Some(b"P"),
        },
        // What is not in the format is better shown than lost.
        _ => Line { time: String::new(), stream: Stream::Output, text: raw.to_vec(), ends: true },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(lines: &[Line]) -> Vec<String> {
        let word = |line: &Line| {
            let end = if line.ends { "" } else { "…" };
            format!("{} {:?} {}{end}", line.time, line.stream, String::from_utf8_lossy(&line.text))
        };
        lines.iter().map(word).collect()
    }

    const LOG: &[u8] =
        b"t1 stdout F one\nt2 stdout P tw\nt3 stderr F oops\nt4 stdout F o\nt5 stderr F \nt6 stdout P end\n";

    #[test]
    fn lines_are_put_together_from_their_pieces_however_the_log_is_cut() {
        for size in [1, 2, 7, LOG.len()] {
            let (mut decoder, mut lines) = (Decoder::default(), Vec::new());
            for bytes in LOG.chunks(size) {
                decoder.feed(bytes, &mut lines);
            }
            assert_eq!(words(&lines), ["t1 Output one", "t3 Error oops", "t2 Output two", "t5 Error "]);
            decoder.finish(&mut lines);
            assert_eq!(words(&lines[4..]), ["t6 Output end…"]);
        }
    }

    #[test]
    fn what_is_not_in_the_format_is_shown_as_it_is() {
        let (mut decoder, mut lines) = (Decoder::default(), Vec::new());
        decoder.feed(b"garbage\nt1 stdout F:X a  b\nt2 std", &mut lines);
        decoder.finish(&mut lines);
        assert_eq!(words(&lines), [" Output garbage", "t1 Output a  b", " Output t2 std…"]);
    }

    #[test]
    fn a_line_without_end_takes_no_more_than_its_share() {
        let (mut decoder, mut lines) = (Decoder::default(), Vec::new());
        for _ in 0..(LONGEST_LINE / 1000 + 2) {
            decoder.feed(format!("t stdout P {}\n", "x".repeat(1000)).as_bytes(), &mut lines);
        }
        assert_eq!(lines.len(), 1);
        assert!(!lines[0].ends);
    }
}
