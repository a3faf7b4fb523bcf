//! The grammar of the small shell.

use std::iter::Peekable;
use std::sync::Arc;

/// Commands one after the other.
pub(crate) type List = Arc<[Item]>;

/// A command, and when it runs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Item {
    pub(crate) when: When,
    pub(crate) command: Command,
}

/// When a command runs, by how the one before it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    Always,
    Success,
    Failure,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Command {
    Simple(Simple),
    /// `while`, or `until` when the body runs on failure.
    Loop {
        until: bool,
        condition: List,
        body: List,
    },
    If {
        condition: List,
        then: List,
        otherwise: List,
    },
}

/// A program or builtin with its arguments.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Simple {
    pub(crate) words: Vec<Word>,
    pub(crate) redirects: Vec<Redirect>,
    pub(crate) background: bool,
}

/// Where a stream goes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Redirect {
    /// 1 or 2.
    pub(crate) from: u8,
    pub(crate) to: Target,
}

/// What a stream goes to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Target {
    Stream(u8),
    File { path: Word, append: bool },
}

/// A word before its variables are replaced.
pub(crate) type Word = Vec<Part>;

/// A piece of a word.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Part {
    Text(String),
    /// A variable. One that is not quoted may come to several words.
    Variable {
        name: String,
        quoted: bool,
    },
}

/// Reads a script. An error says what the shell would.
pub(crate) fn parse(script: &str) -> Result<List, String> {
    let tokens = tokenize(script)?;
    let mut parser = Parser { tokens: tokens.into_iter().peekable(), depth: 0 };
    let list = parser.list(&[])?;
    match parser.tokens.next() {
        None => Ok(list),
        Some(token) => Err(unexpected(&token)),
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(Word),
    /// `;` or the end of a line.
    Then,
    And,
    Or,
    Background,
    Redirect {
        from: u8,
        append: bool,
    },
    /// `>&2` and the like.
    Duplicate {
        from: u8,
        to: u8,
    },
}

fn unexpected(token: &Token) -> String {
    let text = match token {
        Token::Word(word) => keyword(word).unwrap_or("word").to_owned(),
        Token::Then => ";".to_owned(),
        Token::And => "&&".to_owned(),
        Token::Or => "||".to_owned(),
        Token::Background => "&".to_owned(),
        Token::Redirect { .. } | Token::Duplicate { .. } => ">".to_owned(),
    };
    format!("sh: syntax error: unexpected \"{text}\"")
}

fn keyword(word: &Word) -> Option<&str> {
    match word.as_slice() {
        [Part::Text(text)] => Some(text),
        _ => None,
    }
}

/// How deep commands may stand in each other: a reader that calls itself must end.
const DEEPEST: usize = 50;

struct Parser {
    tokens: Peekable<std::vec::IntoIter<Token>>,
    depth: usize,
}

impl Parser {
    /// Commands up to one of these words, which is left, or to the end.
    fn list(&mut self, ends: &[&str]) -> Result<List, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err("sh: syntax error: nested too deep".to_owned());
        }
        let list = self.items(ends);
        self.depth -= 1;
        list
    }

    fn items(&mut self, ends: &[&str]) -> Result<List, String> {
        let mut items = Vec::new();
        let mut when = When::Always;
        loop {
            while self.tokens.next_if_eq(&Token::Then).is_some() {}
            let at_end = match self.tokens.peek() {
                None => true,
                Some(Token::Word(word)) => keyword(word).is_some_and(|word| ends.contains(&word)),
                Some(_) => false,
            };
            if at_end {
                return match when {
                    When::Always => Ok(items.into()),
                    When::Success | When::Failure => Err("sh: syntax error: unexpected end".to_owned()),
                };
            }
            let mut command = self.command()?;
            let next = match self.tokens.next_if(|token| !matches!(token, Token::Word(_))) {
                None | Some(Token::Then) => When::Always,
                Some(Token::And) => When::Success,
                Some(Token::Or) => When::Failure,
                Some(Token::Background) => {
                    if let Command::Simple(simple) = &mut command {
                        simple.background = true;
                    }
                    When::Always
                }
                Some(other @ (Token::Redirect { .. } | Token::Duplicate { .. } | Token::Word(_))) => {
                    return Err(unexpected(&other));
                }
            };
            items.push(Item { when, command });
            when = next;
        }
    }

    fn command(&mut self) -> Result<Command, String> {
        let first = match self.tokens.peek() {
            Some(Token::Word(word)) => keyword(word).map(str::to_owned),
            Some(_) | None => None,
        };
        match first.as_deref() {
            Some(word @ ("while" | "until")) => {
                let until = word == "until";
                self.tokens.next();
                let condition = self.list(&["do"])?;
                self.expect("do")?;
                let body = self.list(&["done"])?;
                self.expect("done")?;
                Ok(Command::Loop { until, condition, body })
            }
            Some("if") => {
                self.tokens.next();
                let condition = self.list(&["then"])?;
                self.expect("then")?;
                let then = self.list(&["else", "fi"])?;
                let otherwise = match self.tokens.next_if(|token| is_word(token, "else")) {
                    Some(_) => self.list(&["fi"])?,
                    None => List::from([]),
                };
                self.expect("fi")?;
                Ok(Command::If { condition, then, otherwise })
            }
            Some(_) | None => self.simple().map(Command::Simple),
        }
    }

    fn simple(&mut self) -> Result<Simple, String> {
        let mut simple = Simple::default();
        loop {
            match self.tokens.peek() {
                Some(Token::Word(_)) => {
                    if let Some(Token::Word(word)) = self.tokens.next() {
                        simple.words.push(word);
                    }
                }
                Some(Token::Duplicate { from, to }) => {
                    simple.redirects.push(Redirect { from: *from, to: Target::Stream(*to) });
                    self.tokens.next();
                }
                Some(Token::Redirect { from, append }) => {
                    let (from, append) = (*from, *append);
                    self.tokens.next();
                    match self.tokens.next() {
                        Some(Token::Word(path)) => {
                            simple.redirects.push(Redirect { from, to: Target::File { path, append } });
                        }
                        Some(other) => return Err(unexpected(&other)),
                        None => return Err("sh: syntax error: unexpected end".to_owned()),
                    }
                }
                Some(token) if simple == Simple::default() => return Err(unexpected(token)),
                Some(_) | None => return Ok(simple),
            }
        }
    }

    fn expect(&mut self, word: &str) -> Result<(), String> {
        match self.tokens.next() {
            Some(token) if is_word(&token, word) => Ok(()),
            Some(token) => Err(unexpected(&token)),
            None => Err(format!("sh: syntax error: unexpected end of file (expecting \"{word}\")")),
        }
    }
}

fn is_word(token: &Token, text: &str) -> bool {
    matches!(token, Token::Word(word) if keyword(word) == Some(text))
}

fn tokenize(script: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = script.chars().peekable();
    while let Some(&character) = rest.peek() {
        match character {
            ' ' | '\t' => {
                rest.next();
            }
            ';' | '\n' => {
                rest.next();
                tokens.push(Token::Then);
            }
            '#' => while rest.next_if(|character| *character != '\n').is_some() {},
            '&' => {
                rest.next();
                let token = if rest.next_if_eq(&'&').is_some() { Token::And } else { Token::Background };
                tokens.push(token);
            }
            '|' => {
                rest.next();
                if rest.next_if_eq(&'|').is_none() {
                    return Err("sh: syntax error: the simulated shell has no pipes".to_owned());
                }
                tokens.push(Token::Or);
            }
            '>' => {
                rest.next();
                tokens.push(redirect(1, &mut rest)?);
            }
            '<' | '(' | ')' | '`' => {
                return Err(format!("sh: syntax error: the simulated shell does not know \"{character}\""));
            }
            _ => {
                let word = word(&mut rest)?;
                match (word.as_slice(), rest.peek()) {
                    ([Part::Text(number)], Some('>')) if number == "1" || number == "2" => {
                        let from = if number == "1" { 1 } else { 2 };
                        rest.next();
                        tokens.push(redirect(from, &mut rest)?);
                    }
                    _ => tokens.push(Token::Word(word)),
                }
            }
        }
    }
    Ok(tokens)
}

type Characters<'a> = Peekable<std::str::Chars<'a>>;

/// What follows a `>`.
fn redirect(from: u8, rest: &mut Characters<'_>) -> Result<Token, String> {
    if rest.next_if_eq(&'&').is_some() {
        return match rest.next() {
            Some('1') => Ok(Token::Duplicate { from, to: 1 }),
            Some('2') => Ok(Token::Duplicate { from, to: 2 }),
            _ => Err("sh: syntax error: bad fd number".to_owned()),
        };
    }
    Ok(Token::Redirect { from, append: rest.next_if_eq(&'>').is_some() })
}

fn word(rest: &mut Characters<'_>) -> Result<Word, String> {
    let mut parts: Word = Vec::new();
    while let Some(&character) = rest.peek() {
        match character {
            ' ' | '\t' | '\n' | ';' | '&' | '|' | '>' | '<' | '(' | ')' => break,
            '\'' => {
                rest.next();
                let mut text = String::new();
                loop {
                    match rest.next() {
                        Some('\'') => break,
                        Some(character) => text.push(character),
                        None => return Err("sh: syntax error: unterminated quoted string".to_owned()),
                    }
                }
                push(&mut parts, &text);
            }
            '"' => {
                rest.next();
                double_quoted(&mut parts, rest)?;
            }
            '\\' => {
                rest.next();
                if let Some(character) = rest.next() {
                    push(&mut parts, character.encode_utf8(&mut [0; 4]));
                }
            }
            '$' => {
                rest.next();
                variable(&mut parts, rest, false)?;
            }
            '`' => return Err("sh: syntax error: the simulated shell does not know \"`\"".to_owned()),
            _ => {
                rest.next();
                push(&mut parts, character.encode_utf8(&mut [0; 4]));
            }
        }
    }
    Ok(parts)
}

fn double_quoted(parts: &mut Word, rest: &mut Characters<'_>) -> Result<(), String> {
    push(parts, "");
    loop {
        match rest.next() {
            Some('"') => return Ok(()),
            Some('\\') => match rest.next() {
                Some(character @ ('"' | '\\' | '$' | '`')) => {
                    push(parts, character.encode_utf8(&mut [0; 4]));
                }
                Some(character) => push(parts, &format!("\\{character}")),
                None => push(parts, "\\"),
            },
            Some('$') => variable(parts, rest, true)?,
            Some(character) => push(parts, character.encode_utf8(&mut [0; 4])),
            None => return Err("sh: syntax error: unterminated quoted string".to_owned()),
        }
    }
}

/// What follows a `$`.
fn variable(parts: &mut Word, rest: &mut Characters<'_>, quoted: bool) -> Result<(), String> {
    let is_name = |character: &char| character.is_ascii_alphanumeric() || *character == '_';
    let mut name = String::new();
    match rest.peek() {
        Some('{') => {
            rest.next();
            while let Some(character) = rest.next_if(is_name) {
                name.push(character);
            }
            if rest.next() != Some('}') {
                return Err("sh: syntax error: bad substitution".to_owned());
            }
        }
        Some('(') => return Err("sh: syntax error: the simulated shell does not know \"$(\"".to_owned()),
        Some('?' | '$') => name.extend(rest.next()),
        _ => {
            while let Some(character) = rest.next_if(is_name) {
                name.push(character);
            }
        }
    }
    match name.is_empty() {
        true => push(parts, "$"),
        false => parts.push(Part::Variable { name, quoted }),
    }
    Ok(())
}

fn push(parts: &mut Word, text: &str) {
    match parts.last_mut() {
        Some(Part::Text(last)) => last.push_str(text),
        Some(Part::Variable { .. }) | None => parts.push(Part::Text(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A script as it was understood, in one line.
    fn check(script: &str, expected: &str) {
        let text = match parse(script) {
            Ok(list) => show(&list),
            Err(error) => error,
        };
        assert_eq!(text, expected, "{script}");
    }

    fn show(list: &List) -> String {
        let items = list.iter().map(|item| {
            let when = match item.when {
                When::Always => "",
                When::Success => "&&",
                When::Failure => "||",
            };
            let command = match &item.command {
                Command::Simple(simple) => {
                    let words: Vec<String> = simple.words.iter().map(show_word).collect();
                    let redirects = simple.redirects.iter().map(|redirect| match &redirect.to {
                        Target::Stream(to) => format!(" {}>&{to}", redirect.from),
                        Target::File { path, append } => {
                            format!(
                                " {}{}{}",
                                redirect.from,
                                if *append { ">>" } else { ">" },
                                show_word(path)
                            )
                        }
                    });
                    let background = if simple.background { "&" } else { "" };
                    format!("[{}{}]{background}", words.join(","), redirects.collect::<String>())
                }
                Command::Loop { until, condition, body } => {
                    format!(
                        "{}({}){{{}}}",
                        if *until { "until" } else { "while" },
                        show(condition),
                        show(body)
                    )
                }
                Command::If { condition, then, otherwise } => {
                    format!("if({}){{{}}}{{{}}}", show(condition), show(then), show(otherwise))
                }
            };
            format!("{when}{command}")
        });
        items.collect()
    }

    fn show_word(word: &Word) -> String {
        let parts = word.iter().map(|part| match part {
            Part::Text(text) => text.clone(),
            Part::Variable { name, quoted: true } => format!("\"${name}\""),
            Part::Variable { name, quoted: false } => format!("${name}"),
        });
        parts.collect()
    }

    #[test]
    fn scripts_are_read_as_a_shell_reads_them() {
        check("echo a  b; exit 3", "[echo,a,b][exit,3]");
        check("true && false || echo x", "[true]&&[false]||[echo,x]");
        check("echo 'a  b' \"c $D ${E}f\" g\\ h", "[echo,a  b,c \"$D\" \"$E\"f,g h]");
        check("echo $? a$B", "[echo,$?,a$B]");
        check("trap '' TERM\ntrap 'exit 7' TERM", "[trap,,TERM][trap,exit 7,TERM]");
        check("echo x >&2; cat y 2>/dev/null >>z", "[echo,x 1>&2][cat,y 2>/dev/null 1>>z]");
        check("sleep 5 & wait # then", "[sleep,5]&[wait]");
        check("while true; do sleep 1; done; echo x", "while([true]){[sleep,1]}[echo,x]");
        check("if [ -f /a ]; then echo y; else echo n; fi", "if([[,-f,/a,]]){[echo,y]}{[echo,n]}");
        check("", "");
    }

    #[test]
    fn what_it_does_not_know_is_a_syntax_error() {
        check("a | b", "sh: syntax error: the simulated shell has no pipes");
        check("echo $(x)", "sh: syntax error: the simulated shell does not know \"$(\"");
        check("echo 'x", "sh: syntax error: unterminated quoted string");
        check("while true; do sleep 1", "sh: syntax error: unexpected end of file (expecting \"done\")");
        check("true &&", "sh: syntax error: unexpected end");
        check("&& true", "sh: syntax error: unexpected \"&&\"");
        check(&"if ".repeat(10_000), "sh: syntax error: nested too deep");
    }
}
