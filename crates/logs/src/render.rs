//! What of a container's log is shown: from CRI's format, `<time> <stream> <P|F> <text>`, to what the container wrote.

use jiff::Timestamp;
use memchr::memchr;
use tracing::debug;

use crate::LogOptions;

/// The longest line of the file that is held until its end is there. Of a longer one the rest is passed on as it comes.
const LONGEST_LINE: usize = 64 << 10;
/// How much is told of a line that is not in the format.
const TOLD: usize = 1 << 10;

/// Takes in the bytes of a log, however they are cut, and gives what is to be shown of them.
#[derive(Debug)]
pub(crate) struct Renderer {
    since: Option<Timestamp>,
    timestamps: bool,
    stdout: bool,
    stderr: bool,
    /// How many bytes may still be shown.
    bytes_left: Option<u64>,
    /// How many lines may still be shown.
    lines_left: Option<u64>,
    /// A line that has not ended.
    begun: Vec<u8>,
    /// What a line is that was too long to be held.
    long: Option<Long>,
    is_new_line: bool,
    is_first: bool,
}

/// A line whose beginning was dealt with.
#[derive(Debug, Clone, Copy)]
struct Long {
    is_shown: bool,
    is_partial: bool,
}

/// The log is in no format that is known.
#[derive(Debug, thiserror::Error)]
#[error("failed to get parse function: unsupported log format: {:?}", String::from_utf8_lossy(line))]
pub struct FormatError {
    line: Vec<u8>,
}

impl Renderer {
    pub(crate) fn new(options: &LogOptions) -> Renderer {
        Renderer {
            since: options.since,
            timestamps: options.timestamps,
            stdout: options.stdout,
            stderr: options.stderr,
            bytes_left: options.limit_bytes,
            // Who follows gets what comes after, too.
            lines_left: options.tail_lines.filter(|_| !options.follow),
            begun: Vec::new(),
            long: None,
            is_new_line: true,
            is_first: true,
        }
    }

    /// Whether nothing more is to be shown.
    pub(crate) fn is_done(&self) -> bool {
        self.bytes_left == Some(0) || self.lines_left == Some(0)
    }

    /// Nothing more is to be shown.
    pub(crate) fn end(&mut self) {
        self.bytes_left = Some(0);
    }

    /// Takes in more of the log.
    pub(crate) fn feed(&mut self, bytes: &[u8], shown: &mut Vec<u8>) -> Result<(), FormatError> {
        let mut rest = bytes;
        while !rest.is_empty() && !self.is_done() {
            let end = memchr(b'\n', rest).map(|at| at + 1);
            let (piece, after) = rest.split_at(end.unwrap_or(rest.len()));
            rest = after;
            if let Some(long) = self.long {
                self.go_on(long, piece, shown);
            } else if end.is_some() && self.begun.is_empty() {
                self.line(piece, shown)?;
            } else {
                self.begun.extend_from_slice(piece);
                if end.is_some() || self.begun.len() > LONGEST_LINE {
                    let line = std::mem::take(&mut self.begun);
                    self.line(&line, shown)?;
                }
            }
        }
        Ok(())
    }

    /// The file goes no further: what has not ended is shown as it is.
    pub(crate) fn finish(&mut self, shown: &mut Vec<u8>) -> Result<(), FormatError> {
        let line = std::mem::take(&mut self.begun);
        let result = if line.is_empty() || self.is_done() { Ok(()) } else { self.line(&line, shown) };
        self.long = None;
        result
    }

    /// Deals with a line, or with the beginning of one that is too long.
    fn line(&mut self, line: &[u8], shown: &mut Vec<u8>) -> Result<(), FormatError> {
        let has_ended = line.ends_with(b"\n");
        let message = match Message::parse(line) {
            Ok(message) => message,
            Err(reason) => {
                let told = &line[..line.len().min(TOLD)];
                if self.is_first {
                    return Err(FormatError { line: told.to_vec() });
                }
                debug!(reason, line = %String::from_utf8_lossy(told), "Left out a line of a log that is not in the format");
                self.long = (!has_ended).then_some(Long { is_shown: false, is_partial: false });
                return Ok(());
            }
        };
        self.is_first = false;
        let is_wanted = match message.stream {
            Stream::Stdout => self.stdout,
            Stream::Stderr => self.stderr,
        };
        let is_shown = is_wanted && self.since.is_none_or(|since| message.at >= since);
        if is_shown {
            if self.timestamps && self.is_new_line {
                self.show(message.fixed_time().as_bytes(), shown);
                self.show(b" ", shown);
            }
            self.show(message.text, shown);
        }
        match has_ended {
            true => self.end_line(message.text),
            false => self.long = Some(Long { is_shown, is_partial: message.is_partial }),
        }
        Ok(())
    }

    fn go_on(&mut self, long: Long, piece: &[u8], shown: &mut Vec<u8>) {
        let text = if long.is_partial { piece.strip_suffix(b"\n").unwrap_or(piece) } else { piece };
        if long.is_shown {
            self.show(text, shown);
        }
        if piece.ends_with(b"\n") {
            self.long = None;
            self.end_line(if long.is_partial { b"..." } else { b"\n" });
        }
    }

    /// A line has ended, of which this was the text. Upstream takes an empty piece for a line of its own.
    fn end_line(&mut self, text: &[u8]) {
        self.is_new_line = text.is_empty() || text.ends_with(b"\n");
        self.lines_left = self.lines_left.map(|left| left.saturating_sub(1));
    }

    fn show(&mut self, text: &[u8], shown: &mut Vec<u8>) {
        let length = match self.bytes_left {
            None => text.len(),
            Some(left) => text.len().min(usize::try_from(left).unwrap_or(usize::MAX)),
        };
        shown.extend_from_slice(&text[..length]);
        self.bytes_left = self.bytes_left.map(|left| left - length as u64);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Stdout,
    Stderr,
}

/// A line of a log.
#[derive(Debug, PartialEq, Eq)]
struct Message<'a> {
    time: &'a str,
    at: Timestamp,
    stream: Stream,
    /// With its end, unless the next piece belongs to the same line.
    text: &'a [u8],
    is_partial: bool,
}

impl Message<'_> {
    fn parse(line: &[u8]) -> Result<Message<'_>, &'static str> {
        let (time, rest) = split(line).ok_or("timestamp is not found")?;
        let time = str::from_utf8(time).map_err(|_| "unexpected timestamp format")?;
        let at = time.parse().map_err(|_| "unexpected timestamp format")?;
        let (stream, rest) = split(rest).ok_or("stream type is not found")?;
        let stream = match stream {
            b"stdout" => Stream::Stdout,
            b"stderr" => Stream::Stderr,
            _ => return Err("unexpected stream type"),
        };
        let (tags, text) = split(rest).ok_or("log tag is not found")?;
        // There may be more tags, of which nobody knows any yet.
        let is_partial = tags.split(|byte| *byte == b':').next() == Some(b"P");
        let text = if is_partial { text.strip_suffix(b"\n").unwrap_or(text) } else { text };
        Ok(Message { time, at, stream, text, is_partial })
    }

    /// The time with all its nine digits.
    fn fixed_time(&self) -> String {
        let zone = self.time.find(['Z', '+']).or_else(|| self.time.rfind('-'));
        let (time, zone) = self.time.split_at(zone.unwrap_or(self.time.len()));
        let (seconds, fraction) = time.split_once('.').unwrap_or((time, ""));
        let zone = if matches!(zone, "+00:00" | "-00:00") { "Z" } else { zone };
        format!("{seconds}.{fraction:0<9}{zone}")
    }
}

fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr(b' ', bytes)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: &str = "2016-10-20T18:39:20.57606443Z";

    #[test]
    fn lines_are_read_as_upstream_reads_them() {
        let cases = [
            ("stdout F cri stdout test log\n", Some((Stream::Stdout, "cri stdout test log\n", false))),
            ("stderr F cri stderr test log\n", Some((Stream::Stderr, "cri stderr test log\n", false))),
            (
                "stdout P cri stdout partial test log\n",
                Some((Stream::Stdout, "cri stdout partial test log", true)),
            ),
            ("stdout P:TAG1:TAG2 partial\n", Some((Stream::Stdout, "partial", true))),
            ("stdout F \n", Some((Stream::Stdout, "\n", false))),
            ("other F text\n", None),
            ("stdout F\n", None),
            ("stdout\n", None),
        ];
        for (line, expected) in cases {
            let line = format!("{TIME} {line}");
            let read = Message::parse(line.as_bytes()).ok();
            let read = read
                .map(|message| (message.stream, str::from_utf8(message.text).unwrap(), message.is_partial));
            assert_eq!(read, expected, "{line}");
        }
        assert!(Message::parse(b"unsupported log format test log\n").is_err());
    }

    fn show(options: &LogOptions, log: &[u8], cut: usize) -> String {
        let (mut renderer, mut shown) = (Renderer::new(options), Vec::new());
        for bytes in log.chunks(cut) {
            renderer.feed(bytes, &mut shown).unwrap();
        }
        renderer.finish(&mut shown).unwrap();
        String::from_utf8(shown).unwrap()
    }

    #[test]
    fn bytes_are_limited_as_upstream_limits_them() {
        const LINE: &str = "1970-01-01T00:20:34.000004321Z";
        let line = "abcdefg\n";
        let with_time = format!("{LINE} {line}{}", &LINE[..2]);
        for (stdout, stderr, limit, timestamps, expected) in [
            (3, 0, 3, false, "abc"),
            (3, 0, line.len() + 3, false, "abcdefg\nabc"),
            (3, 0, 3 * line.len(), false, "abcdefg\nabcdefg\nabcdefg\n"),
            (0, 3, line.len() + 3, false, "abcdefg\nabc"),
            (1, 2, line.len() + 3, false, "abcdefg\nabc"),
            (3, 0, LINE.len() + 1 + line.len() + 2, true, &*with_time),
            (3, 0, 0, false, ""),
        ] {
            let log = format!("{LINE} stdout F {line}").repeat(stdout)
                + &format!("{LINE} stderr F {line}").repeat(stderr);
            let options = LogOptions { limit_bytes: Some(limit as u64), timestamps, ..LogOptions::default() };
            for cut in [1, 7, 1000] {
                assert_eq!(show(&options, log.as_bytes(), cut), expected, "{limit}");
            }
        }
    }

    #[test]
    fn one_stream_alone_is_shown_and_counted() {
        let log = format!("{TIME} stdout F out1\n{TIME} stderr F err1\n{TIME} stdout F out2\n");
        let stdout = LogOptions { stderr: false, ..LogOptions::default() };
        assert_eq!(show(&stdout, log.as_bytes(), 5), "out1\nout2\n");
        let limited = LogOptions { limit_bytes: Some(7), ..stdout };
        assert_eq!(show(&limited, log.as_bytes(), 5), "out1\nou");
        let stderr = LogOptions { stdout: false, ..LogOptions::default() };
        assert_eq!(show(&stderr, log.as_bytes(), 5), "err1\n");
    }

    #[test]
    fn a_line_of_ten_thousand_pieces_has_its_time_once() {
        let time = "2022-10-29T16:10:22.592603036-05:00";
        let mut log = String::new();
        for _ in 0..2 {
            log.extend((0..10_000).map(|number| format!("{time} stdout P {number}\n")));
            log += &format!("{time} stdout F \n");
        }
        let shown = show(&LogOptions { timestamps: true, ..LogOptions::default() }, log.as_bytes(), 4096);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 2);
        for line in lines {
            assert!(line.starts_with(&format!("{time} 0123")) && line.ends_with("9999"));
            assert_eq!(line.matches(time).count(), 1);
        }
    }

    #[test]
    fn times_have_nine_digits() {
        for (time, expected) in [
            (TIME, "2016-10-20T18:39:20.576064430Z"),
            ("2016-10-20T18:39:20Z", "2016-10-20T18:39:20.000000000Z"),
            ("2016-10-20T18:39:20.1+00:00", "2016-10-20T18:39:20.100000000Z"),
            ("2016-10-20T18:39:20.1-05:30", "2016-10-20T18:39:20.100000000-05:30"),
        ] {
            let options = LogOptions { timestamps: true, ..LogOptions::default() };
            assert_eq!(
                show(&options, format!("{time} stdout F x\n").as_bytes(), 9),
                format!("{expected} x\n")
            );
        }
    }

    #[test]
    fn a_line_longer_than_is_held_is_shown_whole_and_the_next_one_too() {
        for tag in ["P", "F"] {
            let text = "x".repeat(LONGEST_LINE * 3);
            let log = format!("{TIME} stdout {tag} {text}\n{TIME} stdout F end\n");
            let end = if tag == "F" { "\n" } else { "" };
            for cut in [1000, 1 << 20] {
                assert_eq!(show(&LogOptions::default(), log.as_bytes(), cut), format!("{text}{end}end\n"));
            }
        }
    }

    #[test]
    fn a_line_without_end_takes_no_more_than_its_share_of_memory() {
        let options = LogOptions::default();
        let (mut renderer, mut shown) = (Renderer::new(&options), Vec::new());
        renderer.feed(format!("{TIME} stdout F x").as_bytes(), &mut shown).unwrap();
        for _ in 0..1000 {
            renderer.feed(&[b'x'; 4096], &mut shown).unwrap();
            assert!(renderer.begun.capacity() <= 4 * LONGEST_LINE);
        }
        assert!(shown.len() > 4000 * 1000);
    }

    #[test]
    fn what_is_not_in_the_format_is_an_error_in_the_first_line_and_left_out_later() {
        let options = LogOptions::default();
        let error = Renderer::new(&options).feed(b"garbage\n", &mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), "failed to get parse function: unsupported log format: \"garbage\\n\"");
        let log = format!("{TIME} stdout F one\ngarbage\n{TIME} stdout F two\n{TIME} std");
        assert_eq!(show(&options, log.as_bytes(), 10), "one\ntwo\n");
        let unfinished = format!("{TIME} stdout F one\n{TIME} stdout F tw");
        assert_eq!(show(&options, unfinished.as_bytes(), 10), "one\ntw");
    }
}
