//! A container's log on the machine's disk, in CRI's format.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use jiff::Timestamp;

use super::shell::Stream;

/// The longest line that is written in one piece, as containerd has it.
const LONGEST_LINE: usize = 16 << 10;

/// A container's log.
#[derive(Debug)]
pub(crate) struct LogFile {
    file: Option<File>,
    /// What each stream has of a line that has not ended.
    begun: [Vec<u8>; 2],
}

impl LogFile {
    /// Opens it, and makes the directories above it, as containerd does. Without a path, nothing is kept.
    pub(crate) fn open(path: &str) -> io::Result<LogFile> {
        Ok(LogFile { file: open(path)?, begun: [Vec::new(), Vec::new()] })
    }

    /// Opens it anew: what it wrote to so far may have been moved away.
    pub(crate) fn reopen(&mut self, path: &str) -> io::Result<()> {
        self.file = open(path)?;
        Ok(())
    }

    pub(crate) fn write(&mut self, stream: Stream, bytes: &[u8], at: Timestamp) {
        let mut begun = std::mem::take(self.begun_mut(stream));
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            begun.extend_from_slice(piece);
            let ended = begun.last() == Some(&b'\n');
            if ended {
                begun.pop();
                begun.pop_if(|last| *last == b'\r');
            }
            while begun.len() > LONGEST_LINE {
                let rest = begun.split_off(LONGEST_LINE);
                self.line(stream, 'P', &begun, at);
                begun = rest;
            }
            if ended {
                self.line(stream, 'F', &begun, at);
                begun.clear();
            }
        }
        *self.begun_mut(stream) = begun;
    }

    /// Writes out what has been begun: the program has ended.
    pub(crate) fn finish(&mut self, at: Timestamp) {
        for stream in [Stream::Output, Stream::Error] {
            let begun = std::mem::take(self.begun_mut(stream));
            if !begun.is_empty() {
                self.line(stream, 'P', &begun, at);
            }
        }
        self.file = None;
    }

    fn begun_mut(&mut self, stream: Stream) -> &mut Vec<u8> {
        match stream {
            Stream::Output => &mut self.begun[0],
            Stream::Error => &mut self.begun[1],
        }
    }

    fn line(&mut self, stream: Stream, tag: char, text: &[u8], at: Timestamp) {
        let Some(file) = &mut self.file else { return };
        let name = match stream {
            Stream::Output => "stdout",
            Stream::Error => "stderr",
        };
        let mut line = format!("{at} {name} {tag} ").into_bytes();
        line.extend_from_slice(text);
        line.push(b'\n');
        // A container goes on when its log cannot be written, as with containerd.
        let _ = file.write_all(&line);
    }
}

fn open(path: &str) -> io::Result<Option<File>> {
    if path.is_empty() {
        return Ok(None);
    }
    if let Some(directory) = Path::new(path).parent() {
        fs::create_dir_all(directory)?;
    }
    OpenOptions::new().create(true).append(true).mode(0o640).open(path).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_cris_format_and_what_is_begun_is_written_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pod/c.log");
        let path = path.to_str().unwrap();
        let at = Timestamp::constant(1_790_000_000, 120_000_000);
        let mut log = LogFile::open(path).unwrap();
        log.write(Stream::Output, b"one\ntw", at);
        log.write(Stream::Error, b"oops\n", at);
        log.write(Stream::Output, b"o\n\nend", at);
        log.finish(at);
        let lines = ["stdout F one", "stderr F oops", "stdout F two", "stdout F ", "stdout P end"];
        let expected: String = lines.iter().map(|line| format!("2026-09-21T14:13:20.12Z {line}\n")).collect();
        assert_eq!(fs::read_to_string(path).unwrap(), expected);
    }

    #[test]
    fn a_long_line_is_written_in_pieces() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c.log");
        let path = path.to_str().unwrap();
        let mut log = LogFile::open(path).unwrap();
        log.write(
            Stream::Output,
            format!("{}\n", "x".repeat(LONGEST_LINE * 2 + 1)).as_bytes(),
            Timestamp::UNIX_EPOCH,
        );
        let text = fs::read_to_string(path).unwrap();
        let tags: Vec<&str> = text.lines().map(|line| line.split(' ').nth(2).unwrap()).collect();
        assert_eq!(tags, ["P", "P", "F"]);
    }

    #[test]
    fn after_a_rotation_it_writes_to_the_new_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c.log");
        let mut log = LogFile::open(path.to_str().unwrap()).unwrap();
        log.write(Stream::Output, b"old\n", Timestamp::UNIX_EPOCH);
        fs::rename(&path, directory.path().join("c.log.1")).unwrap();
        log.write(Stream::Output, b"still old\n", Timestamp::UNIX_EPOCH);
        log.reopen(path.to_str().unwrap()).unwrap();
        log.write(Stream::Output, b"new\n", Timestamp::UNIX_EPOCH);
        assert_eq!(fs::read_to_string(&path).unwrap(), "1970-01-01T00:00:00Z stdout F new\n");
        assert_eq!(fs::read_to_string(directory.path().join("c.log.1")).unwrap().lines().count(), 2);
    }
}
