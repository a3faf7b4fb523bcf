//! The end of a container's log, without what the log format adds.

/// The last lines of a log in CRI's format that fit into `bytes`, without their times, streams and tags.
pub(crate) fn last_lines(log: &[u8], lines: usize, bytes: usize) -> Vec<u8> {
    let mut text = Vec::new();
    for line in log.split_inclusive(|byte| *byte == b'\n') {
        text.extend(content(line));
    }
    let text = match text.len().checked_sub(bytes) {
        Some(surplus) => &text[surplus..],
        None => &text[..],
    };
    let ends: Vec<usize> =
        text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at).collect();
    let complete = ends.len().checked_sub(lines + usize::from(!text.ends_with(b"\n")));
    match complete.and_then(|surplus| surplus.checked_sub(1)) {
        Some(last_dropped) => text[ends[last_dropped] + 1..].to_vec(),
        None => text.to_vec(),
    }
}

/// What a container wrote, of one line of its log: `<time> <stream> <F|P> <text>`.
fn content(line: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let (_time, _stream, tag, text) = (parts.next(), parts.next(), parts.next(), parts.next());
    let text = text.unwrap_or_default();
    // A partial line goes on in the next one.
    let is_partial = tag.is_some_and(|tag| tag == b"P");
    let text = if is_partial { text.strip_suffix(b"\n").unwrap_or(text) } else { text };
    text.iter().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(log: &str, lines: usize, bytes: usize, expected: &str) {
        assert_eq!(String::from_utf8(last_lines(log.as_bytes(), lines, bytes)).unwrap(), expected, "{log}");
    }

    #[test]
    fn what_the_format_adds_is_left_out() {
        let log = "2026-11-15T07:00:00.1Z stdout F one\n2026-11-15T07:00:00.2Z stderr P tw\n2026-11-15T07:00:00.3Z stderr F o\n";
        check(log, 80, 2048, "one\ntwo\n");
        check(log, 1, 2048, "two\n");
        check(log, 80, 3, "wo\n");
        check("", 80, 2048, "");
        check("garbage\n", 80, 2048, "");
    }
}
