//! A body line by line, as it streams: no more of it is held than a line.

use futures_util::StreamExt as _;
use hyper::body::Bytes;

use crate::error::Error;
use crate::transport::Body;

pub(crate) struct Lines {
    body: Body,
    /// The beginning of a line whose end has not come yet.
    begun: Vec<u8>,
    /// What came after it.
    rest: Bytes,
    longest: usize,
}

impl Lines {
    /// Lines of at most so many bytes.
    pub(crate) fn of(body: Body, longest: usize) -> Lines {
        Lines { body, begun: Vec::new(), rest: Bytes::new(), longest }
    }

    /// The next line, without its end; nothing when the body is over. What breaks off within a line was never a line.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let end = self.rest.iter().position(|byte| *byte == b'\n');
            let part = end.unwrap_or(self.rest.len());
            if self.begun.len() + part > self.longest {
                return Err(Error::TooLarge { limit: self.longest });
            }
            if end.is_some() {
                let line = self.take(part);
                if !line.iter().all(u8::is_ascii_whitespace) {
                    return Ok(Some(line));
                }
                continue;
            }
            self.begun.extend_from_slice(&self.rest);
            // An idle watch keeps nothing of what came last.
            self.rest = Bytes::new();
            match self.body.next().await {
                Some(part) => self.rest = part?,
                None => return Ok(None),
            }
        }
    }

    /// The line that ends after so many bytes of the rest.
    fn take(&mut self, part: usize) -> Bytes {
        let end = self.rest.split_to(part);
        let _ = self.rest.split_to(1);
        if self.rest.is_empty() {
            self.rest = Bytes::new();
        }
        match self.begun.is_empty() {
            true => end,
            false => {
                self.begun.extend_from_slice(&end);
                std::mem::take(&mut self.begun).into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;
    use crate::transport::TransportError;

    async fn lines(parts: &[&str], longest: usize) -> (Vec<String>, Option<String>) {
        let parts: Vec<_> =
            parts.iter().map(|part| Ok::<_, TransportError>(Bytes::from((*part).to_owned()))).collect();
        let mut lines = Lines::of(Box::pin(stream::iter(parts)), longest);
        let mut found = Vec::new();
        loop {
            match lines.next().await {
                Ok(Some(line)) => found.push(String::from_utf8(line.to_vec()).unwrap()),
                Ok(None) => return (found, None),
                Err(error) => return (found, Some(error.to_string())),
            }
        }
    }

    #[tokio::test]
    async fn lines_are_found_however_they_are_cut() {
        let expected = vec!["one".to_owned(), "two".to_owned(), "three".to_owned()];
        for parts in [
            vec!["one\ntwo\nthree\n"],
            vec!["o", "", "ne", "\n", "two\nth", "r", "ee\n"],
            vec!["one\n\r\n\ntwo\n", "three\n", "half"],
        ] {
            assert_eq!(lines(&parts, 5).await, (expected.clone(), None), "{parts:?}");
        }
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_ends_it() {
        let error = Some("the API server's answer is larger than 4 bytes".to_owned());
        for parts in [vec!["four\n", "fiv", "e!\n"], vec!["four\nfive!\n"], vec!["four\n", "five!"]] {
            assert_eq!(lines(&parts, 4).await, (vec!["four".to_owned()], error.clone()), "{parts:?}");
        }
    }
}
