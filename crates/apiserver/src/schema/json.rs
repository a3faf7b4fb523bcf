//! JSON, read as Go's decoder reads it, with its words for what is wrong.

use std::borrow::Cow;

use super::tree::Tree;
use super::{MOST_VALUES, go};

/// How deep a body may be nested. Go's decoder goes to 10,000; no object is deeper than thirty, and what is stored
/// must be read again by a decoder that ends at 128.
const DEEPEST: usize = 100;

/// Reads a whole text.
pub(crate) fn parse(text: &[u8]) -> Result<Tree<'_>, String> {
    let mut reader = Reader { text, at: 0, depth: 0, values: 0 };
    reader.skip_space();
    let tree = reader.value()?;
    reader.skip_space();
    match reader.peek() {
        None => Ok(tree),
        Some(_) => Err(reader.unexpected("after top-level value")),
    }
}

/// Reads what is to be an object, or null, of whatever fields.
pub(crate) fn parse_object(text: &[u8]) -> Result<Tree<'_>, String> {
    let tree = parse(text)?;
    match tree {
        Tree::Object(_) | Tree::Null => Ok(tree),
        Tree::Bool(_) | Tree::Number(_) | Tree::Text(_) | Tree::List(_) => {
            let what = tree.kind();
            Err(format!("json: cannot unmarshal {what} into Go value of type map[string]interface {{}}"))
        }
    }
}

struct Reader<'t> {
    text: &'t [u8],
    at: usize,
    depth: usize,
    values: usize,
}

impl<'t> Reader<'t> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// The byte that comes next is none that may.
    fn unexpected(&self, context: &str) -> String {
        match self.peek() {
            Some(byte) => format!("invalid character {} {context}", go::quote_byte(byte)),
            None => "unexpected end of JSON input".to_owned(),
        }
    }

    /// The same within a word, which Go ends with a space where the text ends.
    fn unexpected_within(&self, context: &str) -> String {
        format!("invalid character {} {context}", go::quote_byte(self.peek().unwrap_or(b' ')))
    }

    fn value(&mut self) -> Result<Tree<'t>, String> {
        self.values += 1;
        if self.values > MOST_VALUES {
            return Err(super::too_many_values());
        }
        match self.peek() {
            Some(b'{') => self.nested(Reader::object),
            Some(b'[') => self.nested(Reader::list),
            Some(b'"') => Ok(Tree::Text(self.text()?)),
            Some(b'-' | b'0'..=b'9') => Ok(Tree::Number(self.number()?)),
            Some(b't') => self.literal("true", Tree::Bool(true)),
            Some(b'f') => self.literal("false", Tree::Bool(false)),
            Some(b'n') => self.literal("null", Tree::Null),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    fn nested(
        &mut self,
        read: impl FnOnce(&mut Reader<'t>) -> Result<Tree<'t>, String>,
    ) -> Result<Tree<'t>, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err("exceeded max depth".to_owned());
        }
        self.at += 1;
        let tree = read(self);
        self.depth -= 1;
        tree
    }

    fn object(&mut self) -> Result<Tree<'t>, String> {
        let mut fields = Vec::new();
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Tree::Object(fields));
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("looking for beginning of object key string"));
            }
            let name = self.text()?;
            self.skip_space();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("after object key"));
            }
            self.at += 1;
            self.skip_space();
            fields.push((name, self.value()?));
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Tree::Object(fields));
                }
                _ => return Err(self.unexpected("after object key:value pair")),
            }
            self.skip_space();
        }
    }

    fn list(&mut self) -> Result<Tree<'t>, String> {
        let mut items = Vec::new();
        self.skip_space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Tree::List(items));
        }
        loop {
            items.push(self.value()?);
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Tree::List(items));
                }
                _ => return Err(self.unexpected("after array element")),
            }
            self.skip_space();
        }
    }

    fn literal(&mut self, word: &str, tree: Tree<'t>) -> Result<Tree<'t>, String> {
        for letter in word.bytes() {
            if self.peek() != Some(letter) {
                let expecting = char::from(letter);
                return Err(self.unexpected_within(&format!("in literal {word} (expecting '{expecting}')")));
            }
            self.at += 1;
        }
        Ok(tree)
    }

    fn number(&mut self) -> Result<Cow<'t, str>, String> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.unexpected_within("in numeric literal")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if !matches!(self.peek(), Some(b'0'..=b'9')) {
                return Err(self.unexpected_within("after decimal point in numeric literal"));
            }
            self.digits();
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if !matches!(self.peek(), Some(b'0'..=b'9')) {
                return Err(self.unexpected_within("in exponent of numeric literal"));
            }
            self.digits();
        }
        Ok(String::from_utf8_lossy(&self.text[start..self.at]))
    }

    fn digits(&mut self) {
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
    }

    /// A string; what is no UTF-8 in it becomes U+FFFD.
    fn text(&mut self) -> Result<Cow<'t, str>, String> {
        self.at += 1;
        let start = self.at;
        // Nearly all have no escapes, and need no copy.
        loop {
            match self.peek() {
                Some(b'"') => {
                    let text = String::from_utf8_lossy(&self.text[start..self.at]);
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => break,
                Some(0x20..) => self.at += 1,
                _ => return Err(self.unexpected("in string literal")),
            }
        }
        let mut text = String::from_utf8_lossy(&self.text[start..self.at]).into_owned();
        loop {
            let plain = self.at;
            while matches!(self.peek(), Some(byte) if byte >= 0x20 && byte != b'"' && byte != b'\\') {
                self.at += 1;
            }
            text.push_str(&String::from_utf8_lossy(&self.text[plain..self.at]));
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text.into());
                }
                Some(b'\\') => {
                    self.at += 1;
                    text.push(self.escaped()?);
                }
                _ => return Err(self.unexpected("in string literal")),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, String> {
        let letter = match self.peek() {
            Some(letter @ (b'"' | b'\\' | b'/')) => char::from(letter),
            Some(b'b') => '\x08',
            Some(b'f') => '\x0c',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                let first = self.hexadecimal()?;
                return Ok(self.code_point(first));
            }
            _ => return Err(self.unexpected_within("in string escape code")),
        };
        self.at += 1;
        Ok(letter)
    }

    /// The letter of a code; of two, if it is half of one. A half alone is U+FFFD.
    fn code_point(&mut self, first: u32) -> char {
        if !(0xd800..0xdc00).contains(&first) {
            return char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER);
        }
        let before = self.at;
        if self.text[self.at..].starts_with(b"\\u") {
            self.at += 2;
            if let Ok(second @ 0xdc00..0xe000) = self.hexadecimal() {
                let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
            }
        }
        self.at = before;
        char::REPLACEMENT_CHARACTER
    }

    fn hexadecimal(&mut self) -> Result<u32, String> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let digit = digit.ok_or_else(|| self.unexpected_within("in \\u hexadecimal character escape"))?;
            code = code * 16 + digit;
            self.at += 1;
        }
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::schema::problems::Problems;

    fn error(text: &str) -> String {
        parse(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn what_is_wrong_is_said_in_gos_words() {
        for (text, expected) in [
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            (r#"{"a":1"#, "unexpected end of JSON input"),
            (r#"{"a":tr"#, "invalid character ' ' in literal true (expecting 'u')"),
            (r#""a"#, "unexpected end of JSON input"),
            ("x", "invalid character 'x' looking for beginning of value"),
            ("{]", "invalid character ']' looking for beginning of object key string"),
            (r#"{"a":1,}"#, "invalid character '}' looking for beginning of object key string"),
            (r#"{"a" 1}"#, "invalid character '1' after object key"),
            (r#"{"a":1 "b"}"#, "invalid character '\"' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("{} {}", "invalid character '{' after top-level value"),
            ("trie", "invalid character 'i' in literal true (expecting 'u')"),
            ("nul0", "invalid character '0' in literal null (expecting 'l')"),
            ("-", "invalid character ' ' in numeric literal"),
            ("1.", "invalid character ' ' after decimal point in numeric literal"),
            (r#""\"#, "invalid character ' ' in string escape code"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("1e+x", "invalid character 'x' in exponent of numeric literal"),
            ("[01]", "invalid character '1' after array element"),
            ("\"\n\"", "invalid character '\\n' in string literal"),
            (r#""\x""#, "invalid character 'x' in string escape code"),
            (r#""\u00zz""#, "invalid character 'z' in \\u hexadecimal character escape"),
            ("apiVersion: v1", "invalid character 'a' looking for beginning of value"),
        ] {
            assert_eq!(error(text), expected, "{text}");
        }
        assert_eq!(error(&"[".repeat(1 << 20)), "exceeded max depth");
        assert!(parse(format!("{}{}", "[".repeat(DEEPEST), "]".repeat(DEEPEST)).as_bytes()).is_ok());
    }

    #[test]
    fn strings_are_decoded() {
        for (text, expected) in [
            (r#""a\"\\\/\b\f\n\r\t\u00e9""#, "a\"\\/\u{8}\u{c}\n\r\té"),
            (r#""\ud83e\udd80""#, "🦀"),
            (r#""\ud83ex\udd80""#, "\u{fffd}x\u{fffd}"),
            (r#""\ud83e\u0041""#, "\u{fffd}A"),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap(), Tree::Text(expected.into()), "{text}");
        }
        assert_eq!(parse(b"\"a\xffb\"").unwrap(), Tree::Text("a\u{fffd}b".into()));
    }

    #[test]
    fn fields_keep_their_order_and_are_kept_twice() {
        let tree = parse(br#"{"b": 1, "a": [{"c": 1, "c": 2}], "b": 2}"#).unwrap();
        let mut problems = Problems::default();
        assert_eq!(tree.into_value(&mut problems), serde_json::json!({"a": [{"c": 2}], "b": 2}));
        assert_eq!(problems.into_found(), [r#"duplicate field "a[0].c""#, r#"duplicate field "b""#]);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn it_agrees_with_another_reader(text in r#"[\[\]{}":,0-9a-z\\eE.+ -]{0,40}"#) {
            let (ours, theirs) = (parse(text.as_bytes()), serde_json::from_str::<Value>(&text));
            // The other one refuses halves of letters, and keeps the sign of a zero.
            prop_assume!(!text.contains("-0"));
            if let Ok(theirs) = theirs {
                prop_assert_eq!(ours.unwrap().into_value(&mut Problems::default()), theirs);
            }
        }
    }
}
