//! What of a container's log is shown: from CRI's format, `<time> <stream> <P|F> <text>`, or from Docker's, which is JSON, to
//! what the container wrote.

use std::borrow::Cow;

use jiff::Timestamp;
use memchr::memchr;
use serde_json::Value;
use tracing::debug;

use crate::LogOptions;

/// The longest line of the file that is held until its end is there. Of a longer one the rest is passed on as it comes.
const LONGEST_LINE: usize = 64 << 10;
/// The same of one in JSON, which says nothing before its end. A longer one is left out: Docker writes pieces of 16 KiB.
const LONGEST_DOCUMENT: usize = 1 << 20;
/// How much is told of a line that is not in the format.
const TOLD: usize = 1 << 10;

/// Where a container wrote something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What a container wrote, in its order.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct LogText {
    bytes: Vec<u8>,
    /// Where what went to one stream ends.
    ends: Vec<(LogStream, usize)>,
}

impl LogText {
    /// All of it, wherever it went.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// What went to one stream, then what went to the other, and so on.
    pub fn by_stream(&self) -> impl Iterator<Item = (LogStream, &[u8])> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(_, end)| *end));
        starts.zip(&self.ends).map(|(start, (stream, end))| (*stream, &self.bytes[start..*end]))
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn push(&mut self, stream: LogStream, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        let end = self.bytes.len();
        match self.ends.last_mut() {
            Some((last, last_end)) if *last == stream => *last_end = end,
            Some(_) | None => self.ends.push((stream, end)),
        }
    }
}

/// The last lines that fit into so many bytes, of a log or of its end: one that is longer than this begins in the middle of a
/// line, which says nothing, and could be taken for one in another format. Lines that cannot be understood are left out;
/// an error says that there is none that can.
pub fn last_lines(end: &LogEnd, lines: usize, bytes: usize) -> Result<Vec<u8>, FormatError> {
    let log = match end.is_cut {
        true => memchr(b'\n', &end.bytes).map_or(&[][..], |at| &end.bytes[at + 1..]),
        false => &end.bytes,
    };
    let start = memchr::memrchr_iter(b'\n', log).nth(lines).map_or(0, |at| at + 1);
    let (mut renderer, mut shown) = (Renderer::new(&LogOptions::default()), LogText::default());
    let mut understood = Ok(());
    for line in log[start..].split_inclusive(|byte| *byte == b'\n') {
        understood = understood.and(renderer.feed(line, &mut shown));
    }
    understood = understood.and(renderer.finish(&mut shown));
    let mut text = shown.into_bytes();
    text.drain(..text.len().saturating_sub(bytes));
    match text.is_empty() {
        true => understood.map(|()| text),
        false => Ok(text),
    }
}

/// The end of a log.
#[derive(Debug, Default)]
pub struct LogEnd {
    pub bytes: Vec<u8>,
    /// Whether there was something before.
    pub is_cut: bool,
}

impl LogEnd {
    /// How much of a log is read to find its last lines: a runtime cuts lines at 16 KiB, so that there is a whole one in it.
    pub const LENGTH: usize = 40 << 10;

    /// What reading the last [`LogEnd::LENGTH`] bytes gave.
    pub fn new(bytes: Vec<u8>) -> LogEnd {
        LogEnd { is_cut: bytes.len() >= LogEnd::LENGTH, bytes }
    }
}

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
    /// Known from the first line on.
    format: Option<Format>,
    /// A line that has not ended.
    begun: Vec<u8>,
    /// What a line is that was too long to be held.
    long: Option<Long>,
    is_new_line: bool,
}

/// What a line of a log is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Cri,
    /// `{"log":"…\n","stream":"stdout","time":"…"}`
    Docker,
}

/// A line whose beginning was dealt with.
#[derive(Debug, Clone, Copy)]
struct Long {
    /// Where it is shown.
    shown: Option<LogStream>,
    is_partial: bool,
}

/// The log cannot be understood.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// It is in no format that is known.
    #[error("failed to get parse function: unsupported log format: {:?}", String::from_utf8_lossy(line))]
    Unsupported {
        /// Its first line.
        line: Vec<u8>,
    },
    /// There is no such stream.
    #[error("unexpected stream type {stream:?}")]
    NoStream {
        /// What is said to be one.
        stream: String,
    },
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
            format: None,
            begun: Vec::new(),
            long: None,
            is_new_line: true,
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
    pub(crate) fn feed(&mut self, bytes: &[u8], shown: &mut LogText) -> Result<(), FormatError> {
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
                if end.is_some() || self.begun.len() > self.longest() {
                    let line = std::mem::take(&mut self.begun);
                    self.line(&line, shown)?;
                }
            }
        }
        Ok(())
    }

    fn longest(&self) -> usize {
        match self.format {
            Some(Format::Cri) => LONGEST_LINE,
            Some(Format::Docker) => LONGEST_DOCUMENT,
            None if self.begun.starts_with(b"{") => LONGEST_DOCUMENT,
            None => LONGEST_LINE,
        }
    }

    /// The file goes no further: what has not ended is shown as it is.
    pub(crate) fn finish(&mut self, shown: &mut LogText) -> Result<(), FormatError> {
        let line = std::mem::take(&mut self.begun);
        let result = if line.is_empty() || self.is_done() { Ok(()) } else { self.line(&line, shown) };
        self.long = None;
        result
    }

    /// Deals with a line, or with the beginning of one that is too long.
    fn line(&mut self, line: &[u8], shown: &mut LogText) -> Result<(), FormatError> {
        let has_ended = line.ends_with(b"\n");
        let read = match self.format {
            Some(format) => format.read(line).map(|message| (format, message)),
            None => {
                let by_cri = Format::Cri.read(line).map(|message| (Format::Cri, message));
                by_cri.or_else(|_| Format::Docker.read(line).map(|message| (Format::Docker, message)))
            }
        };
        let message = match read {
            Ok((format, message)) => {
                self.format = Some(format);
                message
            }
            Err(reason) => {
                let told = &line[..line.len().min(TOLD)];
                if self.format.is_none() {
                    return Err(FormatError::Unsupported { line: told.to_vec() });
                }
                debug!(reason, line = %String::from_utf8_lossy(told), "Left out a line of a log that is not in the format");
                self.long = (!has_ended).then_some(Long { shown: None, is_partial: false });
                return Ok(());
            }
        };
        let to = match message.is_since(self.since) {
            true => self.wanted(&message.stream)?,
            false => None,
        };
        if let Some(stream) = to {
            if self.timestamps && self.is_new_line {
                self.show(stream, message.fixed_time().as_bytes(), shown);
                self.show(stream, b" ", shown);
            }
            self.show(stream, &message.text, shown);
        }
        match has_ended || self.format == Some(Format::Docker) {
            true => self.end_line(&message.text),
            false => self.long = Some(Long { shown: to, is_partial: message.is_partial }),
        }
        Ok(())
    }

    /// The stream of this name, if it is to be shown.
    fn wanted(&self, stream: &str) -> Result<Option<LogStream>, FormatError> {
        match stream {
            "stdout" => Ok(self.stdout.then_some(LogStream::Stdout)),
            "stderr" => Ok(self.stderr.then_some(LogStream::Stderr)),
            _ => Err(FormatError::NoStream { stream: stream.to_owned() }),
        }
    }

    fn go_on(&mut self, long: Long, piece: &[u8], shown: &mut LogText) {
        let text = if long.is_partial { piece.strip_suffix(b"\n").unwrap_or(piece) } else { piece };
        if let Some(stream) = long.shown {
            self.show(stream, text, shown);
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

    fn show(&mut self, stream: LogStream, text: &[u8], shown: &mut LogText) {
        let length = match self.bytes_left {
            None => text.len(),
            Some(left) => text.len().min(usize::try_from(left).unwrap_or(usize::MAX)),
        };
        shown.push(stream, &text[..length]);
        self.bytes_left = self.bytes_left.map(|left| left - length as u64);
    }
}

/// A line of a log.
#[derive(Debug, PartialEq, Eq)]
struct Message<'a> {
    /// As it stands there. Docker's may have none.
    time: Cow<'a, str>,
    at: Option<Timestamp>,
    stream: Cow<'a, str>,
    /// With its end, unless the next piece belongs to the same line.
    text: Cow<'a, [u8]>,
    is_partial: bool,
}

impl Format {
    fn read(self, line: &[u8]) -> Result<Message<'_>, &'static str> {
        match self {
            Format::Cri => Message::parse(line),
            Format::Docker => Message::parse_json(line),
        }
    }
}

impl Message<'_> {
    fn parse(line: &[u8]) -> Result<Message<'_>, &'static str> {
        let (time, rest) = split(line).ok_or("timestamp is not found")?;
        let time = str::from_utf8(time).map_err(|_| "unexpected timestamp format")?;
        let at = time.parse().map_err(|_| "unexpected timestamp format")?;
        let (stream, rest) = split(rest).ok_or("stream type is not found")?;
        let stream = match stream {
            b"stdout" => "stdout",
            b"stderr" => "stderr",
            _ => return Err("unexpected stream type"),
        };
        let (tags, text) = split(rest).ok_or("log tag is not found")?;
        // There may be more tags, of which nobody knows any yet.
        let is_partial = tags.split(|byte| *byte == b':').next() == Some(b"P");
        let text = if is_partial { text.strip_suffix(b"\n").unwrap_or(text) } else { text };
        Ok(Message { time: time.into(), at: Some(at), stream: stream.into(), text: text.into(), is_partial })
    }

    /// What is missing is empty, as upstream reads it.
    fn parse_json(line: &[u8]) -> Result<Message<'static>, &'static str> {
        let line = String::from_utf8_lossy(line);
        let Ok(Value::Object(mut fields)) = serde_json::from_str(&line) else {
            return Err("it is no object");
        };
        let mut text = |name| match fields.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err("a field is no text"),
        };
        let (log, stream, time) = (text("log")?, text("stream")?.unwrap_or_default(), text("time")?);
        let at =
            time.as_ref().map(|time| time.parse().map_err(|_| "unexpected timestamp format")).transpose()?;
        let (text, time) = (log.unwrap_or_default().into_bytes(), time.unwrap_or_default());
        Ok(Message { time: time.into(), at, stream: stream.into(), text: text.into(), is_partial: false })
    }

    fn is_since(&self, since: Option<Timestamp>) -> bool {
        since.is_none_or(|since| self.at.is_some_and(|at| at >= since))
    }

    /// The time with all its nine digits.
    fn fixed_time(&self) -> String {
        if self.at.is_none() {
            return "0001-01-01T00:00:00.000000000Z".to_owned();
        }
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
            ("stdout F cri stdout test log\n", Some(("stdout", "cri stdout test log\n", false))),
            ("stderr F cri stderr test log\n", Some(("stderr", "cri stderr test log\n", false))),
            ("stdout P cri stdout partial test log\n", Some(("stdout", "cri stdout partial test log", true))),
            ("stdout P:TAG1:TAG2 partial\n", Some(("stdout", "partial", true))),
            ("stdout F \n", Some(("stdout", "\n", false))),
            ("other F text\n", None),
            ("stdout F\n", None),
            ("stdout\n", None),
        ];
        for (line, expected) in cases {
            let line = format!("{TIME} {line}");
            let read = Message::parse(line.as_bytes()).ok();
            let read = read.map(|message| {
                (message.stream, String::from_utf8(message.text.into_owned()).unwrap(), message.is_partial)
            });
            let expected =
                expected.map(|(stream, text, is_partial)| (stream.into(), text.to_owned(), is_partial));
            assert_eq!(read, expected, "{line}");
        }
        assert!(Message::parse(b"unsupported log format test log\n").is_err());
    }

    fn show(options: &LogOptions, log: &[u8], cut: usize) -> String {
        let (mut renderer, mut shown) = (Renderer::new(options), LogText::default());
        for bytes in log.chunks(cut) {
            renderer.feed(bytes, &mut shown).unwrap();
        }
        renderer.finish(&mut shown).unwrap();
        String::from_utf8(shown.into_bytes()).unwrap()
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
        let (mut renderer, mut shown) = (Renderer::new(&options), LogText::default());
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
        let error = Renderer::new(&options).feed(b"garbage\n", &mut LogText::default()).unwrap_err();
        assert_eq!(error.to_string(), "failed to get parse function: unsupported log format: \"garbage\\n\"");
        let log = format!("{TIME} stdout F one\ngarbage\n{TIME} stdout F two\n{TIME} std");
        assert_eq!(show(&options, log.as_bytes(), 10), "one\ntwo\n");
        let unfinished = format!("{TIME} stdout F one\n{TIME} stdout F tw");
        assert_eq!(show(&options, unfinished.as_bytes(), 10), "one\ntw");
    }

    #[test]
    fn what_went_to_each_stream_is_told_apart() {
        let log = format!(
            "{TIME} stdout F one\n{TIME} stdout F two\n{TIME} stderr P thr\n{TIME} stderr F ee\n{TIME} stdout F four\n"
        );
        let (mut renderer, mut shown) = (Renderer::new(&LogOptions::default()), LogText::default());
        renderer.feed(log.as_bytes(), &mut shown).unwrap();
        let told: Vec<_> = shown.by_stream().collect();
        let expected = [
            (LogStream::Stdout, &b"one\ntwo\n"[..]),
            (LogStream::Stderr, b"three\n"),
            (LogStream::Stdout, b"four\n"),
        ];
        assert_eq!(told, expected);
        assert_eq!(LogText::default().by_stream().count(), 0);
    }

    #[test]
    fn logs_of_docker_are_shown_too() {
        let line = |text: &str, stream: &str| {
            let text = Value::from(text);
            format!("{{\"log\":{text},\"stream\":\"{stream}\",\"time\":\"{TIME}\"}}\n")
        };
        let log = [
            line("one \u{1}\n", "stdout"),
            line("tw", "stderr"),
            line("o\n", "stderr"),
            "garbage\n".to_owned(),
            line("", "stdout"),
            line("three\n", "stdout"),
        ]
        .concat();
        for cut in [1, 7, 1000] {
            assert_eq!(show(&LogOptions::default(), log.as_bytes(), cut), "one \u{1}\ntwo\nthree\n");
            let stderr = LogOptions { stdout: false, ..LogOptions::default() };
            assert_eq!(show(&stderr, log.as_bytes(), cut), "two\n");
            let timed = LogOptions { timestamps: true, ..LogOptions::default() };
            let time = "2016-10-20T18:39:20.576064430Z";
            let expected = format!("{time} one \u{1}\n{time} two\n{time} {time} three\n");
            assert_eq!(show(&timed, log.as_bytes(), cut), expected);
        }
        // Of a line that is in the other format nothing is known, and of one that is too long neither.
        let mixed = format!("{}{TIME} stdout F cri\n", line("docker\n", "stdout"));
        assert_eq!(show(&LogOptions::default(), mixed.as_bytes(), 1000), "docker\n");
        let long =
            [line("a\n", "stdout"), line(&"x".repeat(2 << 20), "stdout"), line("b\n", "stdout")].concat();
        assert_eq!(show(&LogOptions::default(), long.as_bytes(), 4096), "a\nb\n");
        let held = line(&"x".repeat(LONGEST_LINE * 2), "stdout");
        assert_eq!(show(&LogOptions::default(), held.as_bytes(), 4096).len(), LONGEST_LINE * 2);
    }

    #[test]
    fn what_docker_left_out_is_empty_and_a_stream_that_there_is_not_ends_it() {
        let options = LogOptions { timestamps: true, ..LogOptions::default() };
        let log = b"{\"log\":\"a\\n\",\"stream\":\"stdout\",\"attrs\":{}}\n{\"log\":\"b\"}\n";
        let (mut renderer, mut shown) = (Renderer::new(&options), LogText::default());
        let error = renderer.feed(log, &mut shown).unwrap_err();
        assert_eq!(error.to_string(), "unexpected stream type \"\"");
        assert_eq!(shown.into_bytes(), b"0001-01-01T00:00:00.000000000Z a\n");
    }

    #[test]
    fn the_last_lines_are_without_what_the_format_adds() {
        let check = |log: &str, lines, bytes, expected: &str| {
            let text = last_lines(&LogEnd::new(log.as_bytes().to_vec()), lines, bytes).unwrap();
            assert_eq!(String::from_utf8(text).unwrap(), expected, "{log}");
        };
        let log = format!("{TIME} stdout F one\n{TIME} stderr P tw\n{TIME} stderr F o\n");
        check(&log, 80, 2048, "one\ntwo\n");
        check(&log, 2, 2048, "two\n");
        check(&log, 80, 3, "wo\n");
        check(&format!("stdout F begun before this and \n{log}"), 80, 2048, "one\ntwo\n");
        check(&format!("{log}{TIME} stdout F three"), 2, 2048, "two\nthree");
        // The piece of a line that what was read begins with could be anything.
        let cut = |begins: &str| {
            let rest = format!("{TIME} stdout F {}\n{TIME} stdout F end\n", "x".repeat(LogEnd::LENGTH));
            (format!("{begins}\n{rest}"), format!("{}\nend\n", "x".repeat(2043)))
        };
        for begins in ["begun before", "{\"log\":\"a\"}", "{}"] {
            let (log, expected) = cut(begins);
            assert!(log.len() >= LogEnd::LENGTH);
            check(&log, 80, 2048, &expected);
        }
        let long = format!("{TIME} stdout P {}\n{TIME} stdout F end\n", "x".repeat(16 << 10));
        check(&long, 80, 2048, &format!("{}end\n", "x".repeat(2044)));
        check("", 80, 2048, "");
        check("{\"log\":\"json\\n\",\"stream\":\"stdout\"}\n", 80, 2048, "json\n");
        let error = last_lines(&LogEnd::new(b"garbage\n".to_vec()), 80, 2048).unwrap_err();
        assert_eq!(error.to_string(), "failed to get parse function: unsupported log format: \"garbage\\n\"");
    }
}
