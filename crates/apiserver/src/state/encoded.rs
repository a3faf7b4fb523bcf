//! The JSON of an object as it is kept.

use std::borrow::Cow;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// What is smaller than this stays as it is: there is little to gain.
const WORTH_IT: usize = 1024;

/// JSON, as it is while its change is remembered and watches may read it, and deflated when it has settled: a pod takes
/// a quarter of its size then.
#[derive(Debug, PartialEq, Eq)]
pub enum Encoded {
    Plain(Box<[u8]>),
    Deflated { bytes: Box<[u8]>, length: usize },
}

impl Encoded {
    /// The JSON itself.
    pub fn json(&self) -> Cow<'_, [u8]> {
        match self {
            Encoded::Plain(json) => Cow::Borrowed(json),
            Encoded::Deflated { bytes, length } => Cow::Owned(inflate(bytes, *length)),
        }
    }

    /// How long the JSON is.
    pub fn len(&self) -> usize {
        match self {
            Encoded::Plain(json) => json.len(),
            Encoded::Deflated { length, .. } => *length,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Deflates what has settled. It keeps its tables, which are larger than most objects.
#[derive(Debug)]
pub(super) struct Deflater(Compress);

impl Default for Deflater {
    fn default() -> Deflater {
        Deflater(Compress::new(Compression::fast(), false))
    }
}

impl Deflater {
    /// The same in less room; none if it would not be much less.
    pub(super) fn deflate(&mut self, encoded: &Encoded) -> Option<Encoded> {
        let Encoded::Plain(json) = encoded else { return None };
        if json.len() < WORTH_IT {
            return None;
        }
        self.0.reset();
        let mut bytes = Vec::with_capacity(json.len() / 2);
        // It ends early if it needs more room than that.
        match self.0.compress_vec(json, &mut bytes, FlushCompress::Finish) {
            Ok(Status::StreamEnd) => Some(Encoded::Deflated { bytes: bytes.into(), length: json.len() }),
            Ok(Status::Ok | Status::BufError) | Err(_) => None,
        }
    }
}

fn inflate(bytes: &[u8], length: usize) -> Vec<u8> {
    let mut json = Vec::with_capacity(length);
    // It was deflated by us.
    let _ = Decompress::new(false).decompress_vec(bytes, &mut json, FlushDecompress::Finish);
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(json: &[u8]) -> Encoded {
        Encoded::Plain(json.into())
    }

    #[test]
    fn what_repeats_itself_takes_less_room_and_comes_back_as_it_was() {
        let mut deflater = Deflater::default();
        for text in ["\"a name\":\"a value\",".repeat(100), "x".repeat(100_000), "\"é\"".repeat(1_000)] {
            let deflated = deflater.deflate(&plain(text.as_bytes())).unwrap();
            let Encoded::Deflated { bytes, .. } = &deflated else { panic!("{deflated:?}") };
            assert!(bytes.len() < text.len() / 2);
            assert_eq!((deflated.json().as_ref(), deflated.len()), (text.as_bytes(), text.len()));
            assert_eq!(deflater.deflate(&deflated), None);
        }
    }

    #[test]
    fn what_is_small_or_like_noise_stays_as_it_is() {
        let mut deflater = Deflater::default();
        let mut state = 1_u64;
        let noise = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        });
        assert_eq!(deflater.deflate(&plain(&noise.take(5_000).collect::<Vec<_>>())), None);
        assert_eq!(deflater.deflate(&plain(&[b'x'; WORTH_IT - 1])), None);
        assert_eq!(plain(b"{}").json().as_ref(), b"{}");
    }
}
