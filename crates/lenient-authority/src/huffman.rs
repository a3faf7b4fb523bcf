//! HPACK's Huffman code (RFC 7541, appendix B).

/// How many bits each byte's code has, and at the end that of the mark that nothing follows.
///
/// The lengths say it all: codes are given out in the order of their lengths, and among the same length in the order
/// of what they stand for.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

const LONGEST: usize = 30;

/// The codes of one length: the first of them, how many there are, and where what they stand for begins.
#[derive(Clone, Copy)]
struct Row {
    first: u32,
    count: u32,
    begins: usize,
}

struct Code {
    rows: [Row; LONGEST + 1],
    /// What codes stand for, in the order of the codes.
    symbols: [u16; 257],
}

static CODE: Code = code();

const fn code() -> Code {
    let mut rows = [Row { first: 0, count: 0, begins: 0 }; LONGEST + 1];
    let mut symbols = [0; 257];
    let (mut next, mut placed, mut length) = (0, 0, 1);
    while length <= LONGEST {
        next <<= 1;
        rows[length] = Row { first: next, count: 0, begins: placed };
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == length {
                symbols[placed] = symbol as u16;
                placed += 1;
                next += 1;
                rows[length].count += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    Code { rows, symbols }
}

/// Decodes a string. Nothing, if it is none.
pub(super) fn decode(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(bytes.len() * 8 / 5);
    let (mut bits, mut length) = (0, 0);
    for byte in bytes {
        for place in (0..8).rev() {
            bits = bits << 1 | u32::from(byte >> place & 1);
            length += 1;
            let row = CODE.rows.get(length)?;
            if let Some(number) = bits.checked_sub(row.first)
                && number < row.count
            {
                let symbol = CODE.symbols[row.begins + number as usize];
                decoded.push(u8::try_from(symbol).ok()?);
                (bits, length) = (0, 0);
            }
        }
    }
    // The last byte is filled up with ones.
    (length < 8 && bits == (1 << length) - 1).then_some(decoded)
}

#[cfg(test)]
pub(super) fn encode(text: &[u8]) -> Vec<u8> {
    let mut bits = Vec::new();
    for byte in text {
        let length = usize::from(LENGTHS[usize::from(*byte)]);
        let row = CODE.rows[length];
        let place = CODE.symbols[row.begins..].iter().position(|symbol| *symbol == u16::from(*byte)).unwrap();
        let code = row.first + u32::try_from(place).unwrap();
        bits.extend((0..length).rev().map(|place| code >> place & 1 == 1));
    }
    while bits.len() % 8 != 0 {
        bits.push(true);
    }
    bits.chunks(8).map(|bits| bits.iter().fold(0, |byte, bit| byte << 1 | u8::from(*bit))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_examples_of_the_standard_are_decoded() {
        for (bytes, text) in [
            (
                &[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff][..],
                "www.example.com",
            ),
            (&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf], "no-cache"),
            (&[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xa9, 0x7d, 0x7f], "custom-key"),
            (&[], ""),
        ] {
            assert_eq!(decode(bytes).as_deref(), Some(text.as_bytes()));
            assert_eq!(encode(text.as_bytes()), bytes);
        }
    }

    #[test]
    fn what_is_no_code_is_refused() {
        // A whole byte of filling, filling that is not all ones, and the mark of the end.
        for bytes in [&[0xff][..], &[0x00, 0x00], &[0xff, 0xff, 0xff, 0xff]] {
            assert_eq!(decode(bytes), None, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(text: Vec<u8>) {
            prop_assert_eq!(decode(&encode(&text)), Some(text));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            decode(&bytes);
        }
    }
}
