//! A block of compressed headers (RFC 7541, section 6), as far as an authority in it must be found and replaced.

use tonic::codegen::http::uri::Authority;

use super::huffman;

const NAME: &[u8] = b":authority";

/// The place of `:authority` in the table that every connection begins with.
const STATIC_INDEX: usize = 1;

/// Gives the block with authorities that HTTP can read. Nothing, if nothing is to be changed, or the block makes no
/// sense.
///
/// A replaced authority is as long as the one before: both ends keep tables whose size counts the lengths of what was
/// sent, and must agree on what no longer fits in. One that names its header by an entry of such a table is not found:
/// `:authority` has a number of its own, which encoders use.
pub(super) fn with_readable_authorities(block: &[u8]) -> Option<Vec<u8>> {
    let mut changed = None;
    let mut rest = Rest(block);
    // What of the block has been copied already, once something had to be changed.
    let mut copied = 0;
    while !rest.0.is_empty() {
        let Some(value) = rest.representation()? else { continue };
        let end = block.len() - rest.0.len();
        if let Some(readable) = readable(&value.text) {
            let new = changed.get_or_insert_with(Vec::new);
            new.extend_from_slice(&block[copied..end - value.encoded_length]);
            plain_string(new, &readable);
            copied = end;
        }
    }
    let mut changed = changed?;
    changed.extend_from_slice(&block[copied..]);
    Some(changed)
}

/// An authority that HTTP can read, in the place of one that it cannot.
fn readable(text: &[u8]) -> Option<Vec<u8>> {
    if text.is_empty() || Authority::try_from(text).is_ok() {
        return None;
    }
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.';
    Some(text.iter().map(|byte| if keep(*byte) { *byte } else { b'-' }).collect())
}

/// The value of an authority.
struct Value {
    text: Vec<u8>,
    /// How many bytes it takes, with its length before it.
    encoded_length: usize,
}

/// What is left of a block.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    /// Reads one header or instruction, and gives its value if it is an authority. Nothing at all, if it makes no
    /// sense.
    fn representation(&mut self) -> Option<Option<Value>> {
        let first = *self.0.first()?;
        let prefix = match first {
            // In a table by its number: what is there was replaced when it was put there.
            0x80.. => return self.integer(7).map(|_| None),
            // To be put into the table.
            0x40.. => 6,
            // The size of the table.
            0x20.. => return self.integer(5).map(|_| None),
            // Not to be put into the table.
            _ => 4,
        };
        let is_authority = match self.integer(prefix)? {
            0 => self.string()?.0 == NAME,
            index => index == STATIC_INDEX,
        };
        let before = self.0.len();
        let (encoded, huffman) = self.raw_string()?;
        if !is_authority {
            return Some(None);
        }
        let text = if huffman { huffman::decode(encoded)? } else { encoded.to_vec() };
        Some(Some(Value { text, encoded_length: before - self.0.len() }))
    }

    /// A string, decoded.
    fn string(&mut self) -> Option<(Vec<u8>, bool)> {
        let (encoded, huffman) = self.raw_string()?;
        let text = if huffman { huffman::decode(encoded)? } else { encoded.to_vec() };
        Some((text, huffman))
    }

    /// A string as it is sent, and whether it is encoded.
    fn raw_string(&mut self) -> Option<(&'a [u8], bool)> {
        let huffman = self.0.first()? & 0x80 != 0;
        let length = self.integer(7)?;
        let (string, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some((string, huffman))
    }

    /// A number whose first bits share a byte with something else.
    fn integer(&mut self, prefix: u32) -> Option<usize> {
        let most = (1 << prefix) - 1;
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        let mut number = usize::from(*first) & most;
        if number < most {
            return Some(number);
        }
        // Four bytes hold more than a block may be long.
        for shift in [0, 7, 14, 21] {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number += (usize::from(*byte) & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

/// Appends a string that is not encoded.
fn plain_string(block: &mut Vec<u8>, text: &[u8]) {
    let mut length = text.len();
    if length < 0x7f {
        block.push(length as u8);
    } else {
        block.push(0x7f);
        length -= 0x7f;
        while length >= 0x80 {
            block.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        block.push(length as u8);
    }
    block.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn huffman_string(text: &[u8]) -> Vec<u8> {
        let encoded = huffman::encode(text);
        let mut string = Vec::new();
        plain_string(&mut string, &encoded);
        string[0] |= 0x80;
        string
    }

    fn plain(text: &[u8]) -> Vec<u8> {
        let mut string = Vec::new();
        plain_string(&mut string, text);
        string
    }

    #[test]
    fn an_authority_that_is_a_path_becomes_a_readable_one_of_the_same_length() {
        let path = b"/run/x_y.sock";
        let expected = plain(b"-run-x-y.sock");
        // By its number, put into the table or not; by its name, in either form; its value in either form.
        for head in [&[0x41][..], &[0x01], &[0x11], &[&[0x40][..], &plain(NAME)].concat()] {
            for value in [plain(path), huffman_string(path)] {
                let before = [&[0x83, 0x86][..], head, &value, &[0x84]].concat();
                let after = [&[0x83, 0x86][..], head, &expected, &[0x84]].concat();
                assert_eq!(with_readable_authorities(&before), Some(after), "{head:?}");
            }
        }
        let named = [&[0x40][..], &huffman_string(NAME), &plain(b"%2Frun")].concat();
        let expected = [&[0x40][..], &huffman_string(NAME), &plain(b"-2Frun")].concat();
        assert_eq!(with_readable_authorities(&named), Some(expected));
    }

    #[test]
    fn what_is_readable_or_not_an_authority_is_left_alone() {
        for block in [
            [&[0x41][..], &plain(b"localhost:80")].concat(),
            [&[0x41][..], &huffman_string(b"localhost")].concat(),
            [&[0x41][..], &plain(b"[::1]:80")].concat(),
            [&[0x41][..], &plain(b"")].concat(),
            [&[0x44][..], &plain(b"/a/path")].concat(),
            [&[0x40][..], &plain(b"x"), &plain(b"/a/path")].concat(),
            // A change of the table's size, then an entry of it.
            vec![0x3f, 0xe1, 0x1f, 0xbe],
            vec![],
        ] {
            assert_eq!(with_readable_authorities(&block), None, "{block:?}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_left_alone() {
        let good = [&[0x41][..], &plain(b"/run/x")].concat();
        for tail in
            [&[0x41][..], &[0x41, 0x05, b'a'], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff], &[0x41, 0x81, 0x00]]
        {
            assert_eq!(with_readable_authorities(&[&good, tail].concat()), None, "{tail:?}");
        }
    }

    #[test]
    fn a_long_authority_is_replaced_too() {
        let path = vec![b'/'; 5000];
        let before = [&[0x41][..], &huffman_string(&path)].concat();
        let after = [&[0x41][..], &plain(&vec![b'-'; 5000])].concat();
        assert_eq!(with_readable_authorities(&before), Some(after));
    }

    proptest! {
        #[test]
        fn no_block_makes_it_panic(block: Vec<u8>) {
            with_readable_authorities(&block);
        }

        #[test]
        fn every_authority_becomes_one_that_http_reads(text in "[ -~]{1,200}") {
            let before = [&[0x41][..], &huffman_string(text.as_bytes())].concat();
            let after = match with_readable_authorities(&before) {
                Some(block) => Rest(&block).representation().unwrap().unwrap().text,
                None => text.clone().into_bytes(),
            };
            prop_assert!(Authority::try_from(after.as_slice()).is_ok(), "{}", text);
            prop_assert_eq!(after.len(), text.len());
        }
    }
}
