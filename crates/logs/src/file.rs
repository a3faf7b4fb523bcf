//! The file of a log, which grows, and which is moved away and begun anew when it is large.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use rustix::fs::OFlags;

use crate::names::{COMPRESSED, Rotated, is_rotated, uncompressed};

/// How much is read at once from the end of a log, when its last lines are looked for.
const BLOCK: usize = 16 << 10;
/// How often a file is looked for that is compressed or removed under our hands.
const TRIES: usize = 5;

/// A log that is being read.
#[derive(Debug)]
pub(crate) struct LogFile {
    directory: PathBuf,
    /// What the latest file of the log is called.
    name: String,
    content: Content,
    position: u64,
}

#[derive(Debug)]
enum Content {
    Plain(File),
    Compressed {
        decoder: Box<MultiGzDecoder<File>>,
        /// What it was called before.
        name: String,
    },
}

/// Where a log goes on that was read to the end of a file.
#[derive(Debug)]
pub(crate) enum Next {
    /// In the same file: it is the latest.
    Same,
    /// Nowhere yet: the file was moved away, and no other was begun.
    Nothing,
    /// In this one. Into the one so far, somebody may still write who has just been told of the new one.
    File { next: LogFile, may_be_written: bool },
}

impl LogFile {
    /// Opens the latest file of a log. It may lie behind links.
    pub(crate) fn open(path: &Path) -> io::Result<LogFile> {
        for _ in 0..TRIES {
            match std::fs::canonicalize(path) {
                Ok(path) => match open_regular(&path) {
                    Ok(file) => return LogFile::of(&path, Content::Plain(file)),
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                },
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    // It may just have been moved away.
                    if let Some(log) = LogFile::open_moved_away(path)? {
                        return Ok(log);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Err(ErrorKind::NotFound.into())
    }

    fn open_moved_away(path: &Path) -> io::Result<Option<LogFile>> {
        let directory = std::fs::canonicalize(path.parent().unwrap_or(path))?;
        let path = directory.join(path.file_name().unwrap_or_default());
        let newest = Rotated::list(&directory, file_name(&path)?)?.in_use.pop();
        let Some(newest) = newest.filter(|newest| !newest.ends_with(COMPRESSED)) else {
            return Err(ErrorKind::NotFound.into());
        };
        match open_regular(&directory.join(newest)) {
            Ok(file) => LogFile::of(&path, Content::Plain(file)).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn of(path: &Path, content: Content) -> io::Result<LogFile> {
        let directory = path.parent().unwrap_or(path).to_owned();
        Ok(LogFile { directory, name: file_name(path)?.to_owned(), content, position: 0 })
    }

    /// Where the log is, and what its latest file is called there.
    pub(crate) fn place(&self) -> (&Path, &str) {
        (&self.directory, &self.name)
    }

    /// Goes to where so many lines are left. One that has not ended is none.
    pub(crate) fn seek_tail(&mut self, lines: u64) -> io::Result<()> {
        let Content::Plain(file) = &mut self.content else { return Ok(()) };
        let start = tail_start(file, lines)?;
        self.position = file.seek(SeekFrom::Start(start))?;
        Ok(())
    }

    /// Reads what comes next; nothing at the end of the file.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = match &mut self.content {
                Content::Plain(file) => file.read(buffer),
                Content::Compressed { decoder, .. } => decoder.read(buffer),
            };
            match read {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) if self.was_cut_off()? => {}
                Ok(length) => {
                    self.position += length as u64;
                    return Ok(length);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Goes to the beginning of a file that was emptied in place.
    fn was_cut_off(&mut self) -> io::Result<bool> {
        let Content::Plain(file) = &mut self.content else { return Ok(false) };
        if file.metadata()?.len() >= self.position {
            return Ok(false);
        }
        self.position = file.seek(SeekFrom::Start(0))?;
        Ok(true)
    }

    /// Where the log goes on, now that this file is read to its end.
    pub(crate) fn next(&self) -> io::Result<Next> {
        for _ in 0..TRIES {
            let own = self.own_name()?;
            if own.name == self.name && !own.is_gone {
                return Ok(Next::Same);
            }
            // Opened before the others are listed: whatever lies between the two is then among them.
            let latest = match open_regular(&self.directory.join(&self.name)) {
                Ok(latest) => Some(latest),
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
            let between = match is_rotated(&own.name, &self.name) {
                true => Rotated::list(&self.directory, &self.name)?
                    .in_use
                    .into_iter()
                    .find(|other| uncompressed(other) > &*own.name),
                false => None,
            };
            // One that was compressed meanwhile has another name at the next look.
            if let Some(between) = between {
                match self.open_rotated(&between) {
                    Ok(next) => return Ok(Next::File { next, may_be_written: false }),
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    Err(error) => return Err(error),
                }
            }
            let Some(latest) = latest else { return Ok(Next::Nothing) };
            if self.is_same(&latest)? {
                return Ok(Next::Same);
            }
            let next = LogFile {
                directory: self.directory.clone(),
                name: self.name.clone(),
                content: Content::Plain(latest),
                position: 0,
            };
            return Ok(Next::File { next, may_be_written: !own.is_gone });
        }
        Ok(Next::Nothing)
    }

    fn open_rotated(&self, name: &str) -> io::Result<LogFile> {
        let file = open_regular(&self.directory.join(name))?;
        let content = match name.strip_suffix(COMPRESSED) {
            None => Content::Plain(file),
            Some(name) => {
                Content::Compressed { decoder: Box::new(MultiGzDecoder::new(file)), name: name.to_owned() }
            }
        };
        Ok(LogFile { directory: self.directory.clone(), name: self.name.clone(), content, position: 0 })
    }

    /// What the file is called by now. The kernel knows it also of one that is not there any more, which is how the next
    /// one is found by somebody who reads so slowly that his was compressed meanwhile.
    fn own_name(&self) -> io::Result<OwnName> {
        const GONE: &[u8] = b" (deleted)";
        let file = match &self.content {
            Content::Plain(file) => file,
            Content::Compressed { name, .. } => return Ok(OwnName { name: name.clone(), is_gone: true }),
        };
        let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        let name = path.file_name().unwrap_or_default().as_bytes();
        let (name, is_gone) = match name.strip_suffix(GONE) {
            Some(name) if file.metadata()?.nlink() == 0 => (name, true),
            Some(_) | None => (name, false),
        };
        Ok(OwnName { name: String::from_utf8_lossy(name).into_owned(), is_gone })
    }

    fn is_same(&self, other: &File) -> io::Result<bool> {
        let Content::Plain(file) = &self.content else { return Ok(false) };
        let (own, other) = (file.metadata()?, other.metadata()?);
        Ok((own.dev(), own.ino()) == (other.dev(), other.ino()))
    }
}

struct OwnName {
    name: String,
    is_gone: bool,
}

fn file_name(path: &Path) -> io::Result<&str> {
    path.file_name().and_then(|name| name.to_str()).ok_or_else(|| ErrorKind::InvalidFilename.into())
}

/// Opens a file without waiting for anybody, as a pipe of that name would.
fn open_regular(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

/// Where the last so many lines begin. A line that has not ended is not counted. Only as much is read as they take.
fn tail_start(file: &mut (impl Read + Seek), lines: u64) -> io::Result<u64> {
    let mut right = file.seek(SeekFrom::End(0))?;
    let mut buffer = vec![0; BLOCK];
    let mut ends = 0;
    while right > 0 {
        let left = right.saturating_sub(BLOCK as u64);
        let block = &mut buffer[..usize::try_from(right - left).unwrap_or(BLOCK)];
        file.seek(SeekFrom::Start(left))?;
        match file.read_exact(block) {
            // It was emptied in place just now.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
            read => read?,
        }
        for at in memchr::memrchr_iter(b'\n', block) {
            if ends == lines {
                return Ok(left + at as u64 + 1);
            }
            ends += 1;
        }
        right = left;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::{Cursor, Write};

    #[test]
    fn the_last_lines_are_found_from_the_end() {
        for length in [BLOCK - 1, BLOCK, BLOCK + 1, 10] {
            let line = format!("{}\n", "a".repeat(length));
            let log = format!("{}{}", line.repeat(4), "a".repeat(length / 2));
            let whole = line.len() as u64;
            for (lines, start) in [(0, whole * 4), (1, whole * 3), (4, 0), (9999, 0)] {
                assert_eq!(tail_start(&mut Cursor::new(&log), lines).unwrap(), start, "{length} {lines}");
            }
        }
        assert_eq!(tail_start(&mut Cursor::new(""), 3).unwrap(), 0);
    }

    #[test]
    fn a_log_that_is_emptied_while_its_end_is_looked_for_is_read_from_its_beginning() {
        struct Emptied;
        impl Read for Emptied {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Ok(0)
            }
        }
        impl Seek for Emptied {
            fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
                Ok(100)
            }
        }
        assert_eq!(tail_start(&mut Emptied, 3).unwrap(), 0);
    }

    #[test]
    fn a_pipe_in_the_place_of_a_log_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
        assert_eq!(LogFile::open(&path).unwrap_err().to_string(), "it is not a regular file");
    }

    fn rest(log: &mut LogFile) -> String {
        let (mut text, mut buffer) = (Vec::new(), [0; 7]);
        loop {
            match log.read(&mut buffer).unwrap() {
                0 => return String::from_utf8(text).unwrap(),
                length => text.extend_from_slice(&buffer[..length]),
            }
        }
    }

    fn next(log: &mut LogFile) -> &'static str {
        match log.next().unwrap() {
            Next::Same => "the same",
            Next::Nothing => "nothing",
            Next::File { next, may_be_written } => {
                *log = next;
                if may_be_written { "the next" } else { "one between" }
            }
        }
    }

    fn compress(path: &Path) {
        let target = PathBuf::from(format!("{}.gz", path.display()));
        let mut encoder =
            flate2::write::GzEncoder::new(File::create(target).unwrap(), flate2::Compression::fast());
        encoder.write_all(&fs::read(path).unwrap()).unwrap();
        encoder.finish().unwrap();
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_log_goes_on_in_the_file_after_this_one_however_many_were_begun_since() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        let rotated = |number: u32| directory.path().join(format!("0.log.{number}"));
        fs::write(&path, "zero\n").unwrap();
        let mut log = LogFile::open(&path).unwrap();
        assert_eq!((rest(&mut log), next(&mut log)), ("zero\n".to_owned(), "the same"));
        for number in 1..=4 {
            fs::rename(&path, rotated(number)).unwrap();
            if number == 1 {
                assert_eq!(next(&mut log), "nothing");
            }
            fs::write(&path, format!("{number}\n")).unwrap();
        }
        compress(&rotated(1));
        compress(&rotated(2));
        for (expected, file) in
            [("1\n", "one between"), ("2\n", "one between"), ("3\n", "one between"), ("4\n", "the next")]
        {
            assert_eq!((next(&mut log), &*rest(&mut log)), (file, expected));
        }
        assert_eq!(next(&mut log), "the same");
        fs::write(&path, "a\n").unwrap();
        fs::write(&path, "").unwrap();
        fs::write(&path, "b\n").unwrap();
        assert_eq!(rest(&mut log), "", "as long as what was read");
        fs::remove_file(&path).unwrap();
        assert_eq!(next(&mut log), "nothing");
        fs::write(&path, "anew\n").unwrap();
        assert_eq!((next(&mut log), &*rest(&mut log)), ("one between", "anew\n"));
        fs::write(&path, "a\n").unwrap();
        assert_eq!(rest(&mut log), "a\n", "emptied in place");
    }

    #[test]
    fn a_log_that_was_moved_away_and_not_begun_anew_is_read_where_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        assert_eq!(LogFile::open(&path).unwrap_err().kind(), ErrorKind::NotFound);
        fs::write(directory.path().join("0.log.20261116-181700"), "old\n").unwrap();
        let mut log = LogFile::open(&path).unwrap();
        assert_eq!((rest(&mut log), next(&mut log)), ("old\n".to_owned(), "nothing"));
        fs::write(&path, "new\n").unwrap();
        assert_eq!((next(&mut log), &*rest(&mut log)), ("the next", "new\n"));
    }
}
