//! The forms in which the kernel writes numbers, read without making text of them.

use memchr::memchr;

/// A number at the start of a text. `max` is the largest there is; `-1`, which v1 writes for it, is nothing.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    if text.starts_with(b"max") {
        return Some(u64::MAX);
    }
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    let (mut value, mut any) = (0_u64, false);
    for digit in digits {
        any = true;
        value = value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
    }
    any.then_some(value)
}

/// The lines of a text, without their ends.
pub(crate) fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = memchr(b'\n', rest).unwrap_or(rest.len());
        let line = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or_default();
        Some(line)
    })
}

/// The words of a line.
pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty())
}

/// Calls with each `name number` line of a text.
pub(crate) fn each_pair<'a>(text: &'a [u8], mut with: impl FnMut(&'a [u8], u64)) {
    for line in lines(text) {
        let Some(space) = memchr(b' ', line) else { continue };
        if let Some(value) = number(&line[space + 1..]) {
            with(&line[..space], value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_the_kernel_writes_them() {
        assert_eq!(number(b"1028096\n"), Some(1_028_096));
        assert_eq!(number(b"max\n"), Some(u64::MAX));
        assert_eq!(number(b"max 100000\n"), Some(u64::MAX));
        assert_eq!(number(b"-1\n"), None);
        assert_eq!(number(b""), None);
        assert_eq!(number(b"99999999999999999999"), None, "larger than any");
    }

    #[test]
    fn pairs_lines_and_words_are_found_whatever_stands_beside_them() {
        let mut found = Vec::new();
        each_pair(b"anon 12\nbroken\nfile max\nlast 3", |name, value| found.push((name, value)));
        assert_eq!(found, [(&b"anon"[..], 12), (b"file", u64::MAX), (b"last", 3)]);
        assert_eq!(words(b"  a \t b ").collect::<Vec<_>>(), [b"a", b"b"]);
        assert_eq!(lines(b"").count(), 0);
    }
}
