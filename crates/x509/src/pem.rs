//! PEM, written and read as Go does.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// What it holds may be a key: it has no `Debug`.
#[derive(PartialEq, Eq)]
pub struct Block {
    pub label: String,
    pub has_headers: bool,
    pub bytes: Vec<u8>,
}

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";

/// The blocks of a text. What is none is passed over.
pub fn blocks(text: &[u8]) -> Vec<Block> {
    let text = String::from_utf8_lossy(text);
    let mut rest = text.as_ref();
    let mut blocks = Vec::new();
    while let Some(start) = line_start(rest, BEGIN) {
        let (first, body) = line(&rest[start + BEGIN.len()..]);
        rest = body;
        let Some(label) = first.strip_suffix(DASHES) else { continue };
        if let Some((block, after)) = block(label, body) {
            blocks.push(block);
            rest = after;
        }
    }
    blocks
}

/// A block, as text.
pub fn encode(label: &str, bytes: &[u8]) -> String {
    let encoded = STANDARD.encode(bytes);
    let mut text = format!("{BEGIN}{label}{DASHES}\n");
    for line in encoded.as_bytes().chunks(64) {
        text.extend(line.iter().copied().map(char::from));
        text.push('\n');
    }
    text.push_str(&format!("{END}{label}{DASHES}\n"));
    text
}

/// The block that a first line began, and what follows it.
fn block<'t>(label: &str, mut body: &'t str) -> Option<(Block, &'t str)> {
    let mut has_headers = false;
    while let (header, after) = line(body)
        && header.contains(':')
    {
        has_headers = true;
        body = after;
    }
    let end = line_start(body, END)?;
    let (last, after) = line(&body[end + END.len()..]);
    if last.strip_suffix(DASHES)? != label {
        return None;
    }
    let encoded: String = body[..end].chars().filter(|letter| !" \t\r\n".contains(*letter)).collect();
    Some((Block { label: label.to_owned(), has_headers, bytes: STANDARD.decode(encoded).ok()? }, after))
}

/// Where a line begins with something.
fn line_start(text: &str, wanted: &str) -> Option<usize> {
    let mut places = text.match_indices(wanted).map(|(place, _)| place);
    places.find(|place| *place == 0 || text[..*place].ends_with('\n'))
}

/// The first line without what is blank at its end, and the rest.
fn line(text: &str) -> (&str, &str) {
    let (line, rest) = text.split_once('\n').unwrap_or((text, ""));
    (line.trim_end_matches([' ', '\t', '\r']), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_where_go_finds_them() {
        let block = |label: &str, has_headers| (label.to_owned(), has_headers, b"abc".to_vec());
        for (text, expected) in [
            ("", vec![]),
            ("x", vec![]),
            ("-----BEGIN A-----\nYWJj\n-----END A-----", vec![block("A", false)]),
            ("text\n-----BEGIN A-----\r\nYW\r\nJj\r\n-----END A-----  \r\nmore", vec![block("A", false)]),
            ("-----BEGIN A-----\nB: c\n\nYWJj\n-----END A-----\n", vec![block("A", true)]),
            (
                "-----BEGIN A-----\nYWJj\n-----END A-----\n-----BEGIN B-----\nYWJj\n-----END B-----\n",
                vec![block("A", false), block("B", false)],
            ),
            ("-----BEGIN A-----\nYWJj\n-----END B-----\n", vec![]),
            ("-----BEGIN A-----\n?\n-----END A-----\n", vec![]),
            (" -----BEGIN A-----\nYWJj\n-----END A-----\n", vec![]),
            ("-----BEGIN A-----\n-----END A-----\n", vec![("A".to_owned(), false, Vec::new())]),
            ("-----BEGIN A-----\nYWJj", vec![]),
            ("-----BEGIN A\n-----BEGIN B-----\nYWJj\n-----END B-----\n", vec![block("B", false)]),
        ] {
            let found: Vec<_> = blocks(text.as_bytes())
                .into_iter()
                .map(|block| (block.label, block.has_headers, block.bytes))
                .collect();
            assert_eq!(found, expected, "{text:?}");
        }
    }
}
