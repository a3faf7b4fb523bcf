//! From text to a tree, within limits.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use super::{Limits, Path, Place, Problem, Tree, Value, scalar};

/// Why a text is not a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// It is larger than accepted.
    #[error("{source_name}: has {bytes} bytes; at most {limit} are accepted")]
    TooLarge {
        /// The file.
        source_name: Arc<str>,
        /// Its size.
        bytes: usize,
        /// The largest that is accepted.
        limit: usize,
    },
    /// It is not UTF-8.
    #[error("{0}: is not UTF-8 text")]
    NotText(Place),
    /// It is not YAML.
    #[error("{place}: is not valid YAML: {message}")]
    Syntax {
        /// Where it stops being YAML.
        place: Place,
        /// What is wrong there.
        message: String,
    },
    /// Its aliases or its plain size make more values than accepted.
    #[error("{place}: expands to more than {limit} values (aliases count each time)")]
    TooManyValues {
        /// Where the limit was passed.
        place: Place,
        limit: usize,
    },
    /// Its aliases make more text than accepted.
    #[error("{place}: expands to more than {limit} bytes of text (aliases count each time)")]
    TooMuchText {
        /// Where the limit was passed.
        place: Place,
        limit: usize,
    },
    /// It has no content.
    #[error("{0}: is empty")]
    Empty(Arc<str>),
}

/// Reads the first document of a YAML (or JSON) text. Duplicate keys are reported beside the tree; the last one
/// counts, as it does in Kubernetes.
pub fn parse(source: &str, text: &str, limits: Limits) -> Result<(Tree, Vec<Problem>), ParseError> {
    let source: Arc<str> = source.into();
    if text.len() > limits.bytes {
        return Err(ParseError::TooLarge { source_name: source, bytes: text.len(), limit: limits.bytes });
    }
    let options = granit_parser::options! {
        flow_nesting_limit: limits.depth,
        block_nesting_limit: limits.depth,
    };
    let mut builder = Builder {
        events: Parser::new_from_str_with_options(text, options),
        source,
        limits,
        size: Size { nodes: 0, bytes: 0 },
        depth: 0,
        anchors: BTreeMap::new(),
        problems: Vec::new(),
    };
    let root = builder.document()?;
    Ok((root, builder.problems))
}

struct Builder<'input> {
    events: Parser<'input, StrInput<'input>>,
    source: Arc<str>,
    limits: Limits,
    size: Size,
    /// How many lists and mappings are open.
    depth: usize,
    /// Anchored nodes, with their sizes.
    anchors: BTreeMap<usize, (Tree, Size)>,
    problems: Vec<Problem>,
}

/// What of a text takes memory.
#[derive(Clone, Copy)]
struct Size {
    nodes: usize,
    /// In texts, keys and problems.
    bytes: usize,
}

impl<'input> Builder<'input> {
    fn document(&mut self) -> Result<Tree, ParseError> {
        loop {
            match self.next()? {
                (Event::StreamStart | Event::DocumentStart(..), _) => {}
                (Event::StreamEnd, _) => return Err(ParseError::Empty(self.source.clone())),
                (event, span) => {
                    let root = self.node(event, span, Path::Root)?;
                    self.rest()?;
                    return match root.value {
                        Value::Null => Err(ParseError::Empty(self.source.clone())),
                        _ => Ok(root),
                    };
                }
            }
        }
    }

    /// What follows the first document is not read, as in Kubernetes; but it is said.
    fn rest(&mut self) -> Result<(), ParseError> {
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(()),
                (Event::DocumentStart(..), span) => {
                    let place = self.place(span);
                    let message = "only the first document of the file is read; this one is ignored".into();
                    self.problems.push(Problem { place, path: String::new(), message });
                    return Ok(());
                }
                _ => {}
            }
        }
    }

    fn node(&mut self, event: Event<'input>, span: Span, path: Path<'_>) -> Result<Tree, ParseError> {
        let place = self.place(span);
        let before = self.size;
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.count(Size { nodes: 1, bytes: text.len() }, &place)?;
                (self.scalar(&text, style, tag, &place)?, anchor)
            }
            Event::SequenceStart(_, anchor, _) => {
                self.open(&place)?;
                (Value::List(self.list(path)?), anchor)
            }
            Event::MappingStart(_, anchor, _) => {
                self.open(&place)?;
                (Value::Map(self.map(path)?), anchor)
            }
            Event::Alias(anchor) => return self.alias(anchor, place),
            other => return Err(self.syntax(place, format!("unexpected {other:?}"))),
        };
        if matches!(value, Value::List(_) | Value::Map(_)) {
            self.depth -= 1;
        }
        let node = Tree { value, place };
        if anchor != 0 {
            let Size { nodes, bytes } = self.size;
            self.keep(anchor, &node, Size { nodes: nodes - before.nodes, bytes: bytes - before.bytes })?;
        }
        Ok(node)
    }

    fn open(&mut self, place: &Place) -> Result<(), ParseError> {
        self.count(Size { nodes: 1, bytes: 0 }, place)?;
        self.depth += 1;
        self.check_depth(0, place)
    }

    fn list(&mut self, path: Path<'_>) -> Result<Vec<Tree>, ParseError> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(items),
                (event, span) => {
                    let item = self.node(event, span, Path::Index(&path, items.len()))?;
                    items.push(item);
                }
            }
        }
    }

    fn map(&mut self, path: Path<'_>) -> Result<BTreeMap<Box<str>, Tree>, ParseError> {
        let mut fields: BTreeMap<Box<str>, Tree> = BTreeMap::new();
        let mut merged = Vec::new();
        loop {
            let (event, span) = self.next()?;
            let plain_merge = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, ..) if text == "<<");
            if event == Event::MappingEnd {
                break;
            }
            let place = self.place(span);
            let key = self.key(event, place.clone())?;
            let (event, span) = self.next()?;
            let node = self.node(event, span, Path::Field(&path, &key))?;
            if plain_merge {
                merged.push(node);
                continue;
            }
            // A mapping's own place is its key's: that is the line a person looks for.
            let node = Tree { place: place.clone(), ..node };
            if let Some(earlier) = fields.insert(key.clone(), node) {
                let message =
                    format!("is set twice (first on line {}); the last one counts", earlier.place.line);
                let path = Path::Field(&path, &key).to_string();
                // Many short fields below long names would otherwise make far more text than there was.
                self.count(Size { nodes: 0, bytes: path.len() }, &place)?;
                self.problems.push(Problem { place, path, message });
            }
        }
        for node in merged {
            self.merge_key(&mut fields, node)?;
        }
        Ok(fields)
    }

    /// `<<: *other`: the fields of another mapping, where this one does not have them itself.
    fn merge_key(&mut self, fields: &mut BTreeMap<Box<str>, Tree>, node: Tree) -> Result<(), ParseError> {
        match node.value {
            Value::Map(others) => {
                for (name, other) in others {
                    fields.entry(name).or_insert(other);
                }
                Ok(())
            }
            Value::List(items) => items.into_iter().try_for_each(|item| self.merge_key(fields, item)),
            value @ (Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_)) => {
                Err(self.syntax(
                    node.place,
                    format!("<< takes a mapping or a list of them, not {}", value.kind()),
                ))
            }
        }
    }

    fn key(&mut self, event: Event<'input>, place: Place) -> Result<Box<str>, ParseError> {
        let node = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let value = self.scalar(&text, style, tag, &place)?;
                let key: Box<str> = match &value {
                    Value::Bool(true) => "true".into(),
                    Value::Bool(false) => "false".into(),
                    Value::Int(number) => number.to_string().into(),
                    _ => text.into(),
                };
                self.count(Size { nodes: 0, bytes: key.len() }, &place)?;
                if anchor != 0 {
                    self.keep(anchor, &Tree { value, place }, Size { nodes: 1, bytes: key.len() })?;
                }
                return Ok(key);
            }
            Event::Alias(anchor) => self.alias(anchor, place)?,
            _ => return Err(self.syntax(place, "a key must be text, not a list or a mapping".into())),
        };
        match node.value {
            Value::Text(text) => Ok(text),
            value => Err(self.syntax(node.place, format!("a key must be text, not {}", value.kind()))),
        }
    }

    fn scalar(
        &self,
        text: &str,
        style: ScalarStyle,
        tag: Option<Cow<'input, Tag>>,
        place: &Place,
    ) -> Result<Value, ParseError> {
        match tag.as_ref().map(|tag| tag.core_suffix()) {
            Some(Some("str")) => Ok(Value::Text(text.into())),
            Some(Some(kind)) => {
                let value = scalar::resolve(text);
                let fits = matches!(
                    (kind, &value),
                    ("null", Value::Null)
                        | ("bool", Value::Bool(_))
                        | ("int", Value::Int(_))
                        | ("float", Value::Float(_) | Value::Int(_))
                );
                match fits {
                    true => Ok(value),
                    false => Err(self.syntax(place.clone(), format!("{} is not a !!{kind}", value.kind()))),
                }
            }
            Some(None) => Ok(Value::Text(text.into())),
            None if style == ScalarStyle::Plain => Ok(scalar::resolve(text)),
            None => Ok(Value::Text(text.into())),
        }
    }

    /// Copies a node for the aliases that may name it. The copy counts too: anchors inside anchors make many.
    fn keep(&mut self, anchor: usize, node: &Tree, size: Size) -> Result<(), ParseError> {
        self.count(size, &node.place)?;
        self.anchors.insert(anchor, (node.clone(), size));
        Ok(())
    }

    fn alias(&mut self, anchor: usize, place: Place) -> Result<Tree, ParseError> {
        let Some((_, size)) = self.anchors.get(&anchor) else {
            return Err(self.syntax(place, "an alias may not stand inside the value it names".into()));
        };
        // Counted before it is copied: this is what stops a "billion laughs" text.
        self.count(*size, &place)?;
        let node = self.anchors[&anchor].0.clone();
        self.check_depth(levels(&node), &place)?;
        Ok(node)
    }

    fn count(&mut self, more: Size, place: &Place) -> Result<(), ParseError> {
        self.size.nodes += more.nodes;
        self.size.bytes += more.bytes;
        if self.size.nodes > self.limits.nodes {
            return Err(ParseError::TooManyValues { place: place.clone(), limit: self.limits.nodes });
        }
        match self.size.bytes > self.limits.bytes {
            true => Err(ParseError::TooMuchText { place: place.clone(), limit: self.limits.bytes }),
            false => Ok(()),
        }
    }

    /// The parser counts the levels of each style by itself, and does not see what an alias stands for.
    fn check_depth(&self, more: usize, place: &Place) -> Result<(), ParseError> {
        let limit = self.limits.depth;
        match self.depth + more > limit {
            true => Err(self.syntax(place.clone(), format!("is nested deeper than {limit} levels"))),
            false => Ok(()),
        }
    }

    fn next(&mut self) -> Result<(Event<'input>, Span), ParseError> {
        match self.events.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(self.scan_error(&error)),
            None => Err(ParseError::Empty(self.source.clone())),
        }
    }

    fn scan_error(&self, error: &ScanError) -> ParseError {
        let line = u32::try_from(error.marker().line()).unwrap_or(u32::MAX);
        // The parser's own text ends with a position; ours begins with one.
        let text = error.to_string();
        let message = match text.split(" at char ").next().unwrap_or(&text) {
            "recursion limit exceeded" => format!("is nested deeper than {} levels", self.limits.depth),
            text => text.split(" at byte ").next().unwrap_or(text).to_owned(),
        };
        ParseError::Syntax { place: Place { source: self.source.clone(), line }, message }
    }

    fn syntax(&self, place: Place, message: String) -> ParseError {
        ParseError::Syntax { place, message }
    }

    fn place(&self, span: Span) -> Place {
        Place { source: self.source.clone(), line: u32::try_from(span.start.line()).unwrap_or(u32::MAX) }
    }
}

/// How many levels of lists and mappings there are.
fn levels(node: &Tree) -> usize {
    match &node.value {
        Value::List(items) => 1 + items.iter().map(levels).max().unwrap_or(0),
        Value::Map(fields) => 1 + fields.values().map(levels).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::write_yaml;

    fn read(text: &str) -> Result<String, String> {
        match parse("f", text, Limits::MANIFEST) {
            Ok((node, problems)) => {
                let problems: String = problems.iter().map(|problem| format!("! {problem}\n")).collect();
                Ok(write_yaml(&node, &|_| None) + &problems)
            }
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn texts_become_trees() {
        for (text, expected) in [
            ("a: 1\nb: [x, 'yes', yes]\n", "a: 1\nb:\n- x\n- \"yes\"\n- true\n"),
            ("{\"a\":\t{\"b\": null}}", "a:\n  b: null\n"),
            (
                "base: &b {x: 1, z: 2}\nover:\n  <<: *b\n  z: 3\n",
                "base:\n  x: 1\n  z: 2\nover:\n  x: 1\n  z: 3\n",
            ),
            ("a: !!str 1\n", "a: \"1\"\n"),
            ("1: x\ntrue: z\n", "\"1\": x\n\"true\": z\n"),
            (
                "a: 1\nb:\n  c: 1\n  c: 2\n",
                "a: 1\nb:\n  c: 2\n! f:4: b.c: is set twice (first on line 3); the last one counts\n",
            ),
            (
                "a: 1\n---\nb: 2\n",
                "a: 1\n! f:2: only the first document of the file is read; this one is ignored\n",
            ),
        ] {
            assert_eq!(read(text).as_deref(), Ok(expected), "{text:?}");
        }
    }

    #[test]
    fn what_is_no_document_is_refused_with_its_line() {
        let deep = "[".repeat(10_000);
        let deep_block: String = (0..200).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
        let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n".to_owned()
            + &('b'..='j')
                .map(|c| format!("{c}: &{c} [{}]\n", format!("*{},", (c as u8 - 1) as char).repeat(9)))
                .collect::<String>();
        let large = "a".repeat(4 * 1024 * 1024);
        let mixed: String = (0..60).map(|level| format!("{}a:\n", " ".repeat(level))).collect::<String>()
            + &" ".repeat(60)
            + &"[".repeat(60)
            + &"]".repeat(60);
        let chain = "a0: &a0 [x]\n".to_owned()
            + &(1..150).map(|n| format!("a{n}: &a{n} [*a{}]\n", n - 1)).collect::<String>();
        let long_laugh = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), "*a,".repeat(100));
        let nested_anchors = format!("{}{}{}", "&a [".repeat(90), "x,".repeat(5000), "]".repeat(90));
        let twice = format!("? {}\n: {{{}}}\n", "k".repeat(100_000), "a: 1,".repeat(100));
        for (text, expected) in [
            ("", "f: is empty"),
            ("# only a comment\n", "f: is empty"),
            ("---\n", "f: is empty"),
            ("a: [1\n", "f:1: is not valid YAML: "),
            ("a: 1\n b: 2\n", "f:2: is not valid YAML: "),
            ("a: *x\n", "f:1: is not valid YAML: "),
            ("a: &x [*x]\n", "f:1: is not valid YAML: an alias may not stand inside the value it names"),
            ("[a]: 1\n", "f:1: is not valid YAML: a key must be text, not a list or a mapping"),
            ("a: !!int x\n", "f:1: is not valid YAML: text is not a !!int"),
            ("a:\n  <<: 3\n", "f:2: is not valid YAML: << takes a mapping or a list of them, not a number"),
            (&deep, "f:1: is not valid YAML: "),
            (&deep_block, "f:101: is not valid YAML: "),
            (&bomb, "f:6: expands to more than 200000 values (aliases count each time)"),
            (&mixed, "f:61: is not valid YAML: is nested deeper than 100 levels"),
            (&chain, "f:100: is not valid YAML: is nested deeper than 100 levels"),
            (&long_laugh, "f:2: expands to more than 3145728 bytes of text (aliases count each time)"),
            (&nested_anchors, "f:1: expands to more than 200000 values (aliases count each time)"),
            (&twice, "f:2: expands to more than 3145728 bytes of text (aliases count each time)"),
            (&large, "f: has 4194304 bytes; at most 3145728 are accepted"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
