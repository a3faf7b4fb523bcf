//! Lines of a log, shown.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};

use jiff::Timestamp;

use crate::cri_log::{Decoder, Line, Stream};

/// Shows the lines of a log: those that are wanted, each where its container wrote it.
pub(super) struct Show {
    decoder: Decoder,
    timestamps: bool,
    since: Option<Timestamp>,
    /// The last lines, as long as only those of what is there are wanted.
    tail: Option<(usize, VecDeque<Line>)>,
    nobody_reads: bool,
}

impl Show {
    pub(super) fn new(timestamps: bool, since: Option<Timestamp>, tail: Option<usize>) -> Show {
        let tail = tail.map(|count| (count, VecDeque::new()));
        Show { decoder: Decoder::default(), timestamps, since, tail, nobody_reads: false }
    }

    /// Takes in more of the log.
    pub(super) fn take(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let mut lines = Vec::new();
        self.decoder.feed(bytes, &mut lines);
        self.lines(lines)
    }

    /// Shows the last lines, and from here on each that comes.
    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        match self.tail.take() {
            Some((_, last)) => self.print(last),
            None => Ok(()),
        }
    }

    /// The log goes no further.
    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        let mut lines = Vec::new();
        self.decoder.finish(&mut lines);
        self.lines(lines)?;
        self.flush()
    }

    /// Whether who read what is shown has gone away.
    pub(super) fn nobody_reads(&self) -> bool {
        self.nobody_reads
    }

    fn lines(&mut self, mut lines: Vec<Line>) -> anyhow::Result<()> {
        if let Some(since) = self.since {
            lines.retain(|line| line.time.parse::<Timestamp>().is_ok_and(|time| time >= since));
        }
        match &mut self.tail {
            None => self.print(lines),
            Some((count, last)) => {
                last.extend(lines);
                last.drain(..last.len().saturating_sub(*count));
                Ok(())
            }
        }
    }

    fn print(&mut self, lines: impl IntoIterator<Item = Line>) -> anyhow::Result<()> {
        let mut pending: (Stream, Vec<u8>) = (Stream::Output, Vec::new());
        for line in lines {
            if line.stream != pending.0 {
                self.write(pending.0, &pending.1)?;
                pending = (line.stream, Vec::new());
            }
            append(&line, self.timestamps, &mut pending.1);
        }
        self.write(pending.0, &pending.1)
    }

    fn write(&mut self, stream: Stream, bytes: &[u8]) -> anyhow::Result<()> {
        if bytes.is_empty() || self.nobody_reads {
            return Ok(());
        }
        let written = match stream {
            Stream::Output => {
                let mut output = io::stdout().lock();
                output.write_all(bytes).and_then(|()| output.flush())
            }
            Stream::Error => io::stderr().lock().write_all(bytes),
        };
        match written {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => self.nobody_reads = true,
            written => written?,
        }
        Ok(())
    }
}

fn append(line: &Line, timestamps: bool, text: &mut Vec<u8>) {
    if timestamps && !line.time.is_empty() {
        text.extend_from_slice(line.time.as_bytes());
        text.push(b' ');
    }
    text.extend_from_slice(&line.text);
    if line.ends {
        text.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &[u8] = b"2026-11-15T04:00:00Z stdout F one\n2026-11-15T04:00:01Z stdout F two\n2026-11-15T04:00:02Z stdout P three\n";

    fn kept(since: Option<&str>, tail: usize) -> String {
        let mut show = Show::new(true, since.map(|since| since.parse().unwrap()), Some(tail));
        show.take(LOG).unwrap();
        let mut lines = Vec::new();
        show.decoder.finish(&mut lines);
        show.lines(lines).unwrap();
        let mut text = Vec::new();
        for line in show.tail.unwrap().1 {
            append(&line, false, &mut text);
        }
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn the_last_lines_and_those_since_a_time_are_kept() {
        assert_eq!(kept(None, 100), "one\ntwo\nthree");
        assert_eq!(kept(None, 2), "two\nthree");
        assert_eq!(kept(None, 0), "");
        assert_eq!(kept(Some("2026-11-15T04:00:01Z"), 100), "two\nthree");
        assert_eq!(kept(Some("2026-11-15T04:00:01Z"), 1), "three");
        assert_eq!(kept(Some("2026-11-15T04:00:03Z"), 1), "");
    }

    #[test]
    fn a_line_has_its_time_where_that_is_wanted() {
        let mut text = Vec::new();
        let line = Line { time: "t".into(), stream: Stream::Output, text: b"x".to_vec(), ends: true };
        append(&line, true, &mut text);
        append(&line, false, &mut text);
        append(&Line { time: String::new(), ends: false, ..line }, true, &mut text);
        assert_eq!(text, b"t x\nx\nx");
    }
}
