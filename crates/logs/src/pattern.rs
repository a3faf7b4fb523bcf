//! Whether a pattern is one for Go's `regexp`, in whose syntax upstream wants it before journalctl gets it. Nothing is
//! matched here. Of long names of Unicode's classes only the letters are looked at.

/// The most times that something is repeated, within all that repeats it.
const MOST_REPEATS: u32 = 1_000;
/// The most groups within each other.
const DEEPEST: usize = 1_000;
/// From here on a number is not read any further.
const LARGE: u32 = 100_000_000;
const CATEGORIES: &str = "C Cc Cf Cn Co Cs L LC Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So \
                          Z Zl Zp Zs";
const POSIX_CLASSES: &str =
    "alnum alpha ascii blank cntrl digit graph lower print punct space upper word xdigit";

/// What is wrong with a pattern, in Go's words, and where.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("error parsing regexp: {problem}: `{part}`")]
pub(crate) struct PatternError {
    problem: Problem,
    part: String,
}

#[derive(Debug, Clone, Copy, thiserror::Error, PartialEq, Eq)]
enum Problem {
    #[error("invalid character class range")]
    Range,
    #[error("invalid escape sequence")]
    Escape,
    #[error("invalid named capture")]
    NamedCapture,
    #[error("invalid or unsupported Perl syntax")]
    PerlOperator,
    #[error("invalid nested repetition operator")]
    NestedRepeat,
    #[error("invalid repeat count")]
    RepeatCount,
    #[error("missing closing ]")]
    MissingBracket,
    #[error("missing closing )")]
    MissingParenthesis,
    #[error("missing argument to repetition operator")]
    MissingArgument,
    #[error("trailing backslash at end of expression")]
    TrailingBackslash,
    #[error("unexpected )")]
    UnexpectedParenthesis,
    #[error("expression nests too deeply")]
    TooDeep,
}

/// Checks a pattern.
pub(crate) fn check_pattern(pattern: &str) -> Result<(), PatternError> {
    let mut checker = Checker { pattern, at: 0, groups: vec![Group::default()] };
    // Where a repetition began that stands right before.
    let mut repeated = None;
    while let Some(next) = checker.peek() {
        let start = checker.at;
        let repeats = match next {
            '*' | '+' | '?' => {
                checker.at += 1;
                checker.repeat(start, repeated, 1)?;
                true
            }
            '{' => checker.counted(start, repeated)?,
            _ => {
                checker.part(next)?;
                false
            }
        };
        repeated = repeats.then_some(start);
    }
    match &*checker.groups {
        [_] => Ok(()),
        _ => Err(checker.error(Problem::MissingParenthesis, 0, pattern.len())),
    }
}

struct Checker<'a> {
    pattern: &'a str,
    /// How many bytes of it are read.
    at: usize,
    /// The one at hand, and those that it is in.
    groups: Vec<Group>,
}

/// A group that has not ended, and how often what is in it is repeated at the most.
#[derive(Default)]
struct Group {
    repeats: u32,
    /// The same of what stands last in it, which is what a repetition would repeat.
    last: Option<u32>,
}

impl Checker<'_> {
    fn rest(&self) -> &str {
        &self.pattern[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn error(&self, problem: Problem, start: usize, end: usize) -> PatternError {
        PatternError { problem, part: self.pattern[start..end].to_owned() }
    }

    /// Something that matches, and can be repeated.
    fn push(&mut self, repeats: u32) {
        if let Some(group) = self.groups.last_mut() {
            group.repeats = group.repeats.max(repeats);
            group.last = Some(repeats);
        }
    }

    /// All but repetitions.
    fn part(&mut self, next: char) -> Result<(), PatternError> {
        match next {
            '(' if self.rest().starts_with("(?") => self.perl_group()?,
            '[' => self.class()?,
            '\\' => self.escape()?,
            _ => {
                self.at += next.len_utf8();
                match next {
                    '(' => self.open()?,
                    ')' => self.close()?,
                    '|' => self.groups.last_mut().into_iter().for_each(|group| group.last = None),
                    _ => self.push(0),
                }
            }
        }
        Ok(())
    }

    fn open(&mut self) -> Result<(), PatternError> {
        if self.groups.len() >= DEEPEST {
            return Err(self.error(Problem::TooDeep, 0, self.pattern.len()));
        }
        self.groups.push(Group::default());
        Ok(())
    }

    fn close(&mut self) -> Result<(), PatternError> {
        match self.groups.pop() {
            Some(group) if !self.groups.is_empty() => {
                self.push(group.repeats);
                Ok(())
            }
            _ => Err(self.error(Problem::UnexpectedParenthesis, 0, self.pattern.len())),
        }
    }

    /// A repetition that begins at `start` and is read but for the question mark behind it.
    fn repeat(&mut self, start: usize, repeated: Option<usize>, times: u32) -> Result<(), PatternError> {
        if self.peek() == Some('?') {
            self.at += 1;
        }
        if let Some(first) = repeated {
            return Err(self.error(Problem::NestedRepeat, first, self.at));
        }
        let Some(inner) = self.groups.last().and_then(|group| group.last) else {
            return Err(self.error(Problem::MissingArgument, start, self.at));
        };
        let repeats = if times < 2 { inner * times } else { times * inner.max(1) };
        if repeats > MOST_REPEATS {
            return Err(self.error(Problem::RepeatCount, start, self.at));
        }
        self.push(repeats);
        Ok(())
    }

    /// `{2}`, `{2,}` or `{2,5}`; what is none of them is a brace.
    fn counted(&mut self, start: usize, repeated: Option<usize>) -> Result<bool, PatternError> {
        let Some(Counts { least, most, length }) = Counts::read(self.rest()) else {
            self.at += 1;
            self.push(0);
            return Ok(false);
        };
        self.at += length;
        if least > MOST_REPEATS || most.is_some_and(|most| most > MOST_REPEATS || most < least) {
            return Err(self.error(Problem::RepeatCount, start, self.at));
        }
        self.repeat(start, repeated, most.unwrap_or(least.max(1)))?;
        Ok(true)
    }

    /// `(?i)`, `(?i:…)`, `(?P<name>…)` or `(?<name>…)`.
    fn perl_group(&mut self) -> Result<(), PatternError> {
        let start = self.at;
        let rest = self.rest();
        let name = ["(?P<", "(?<"].into_iter().find_map(|prefix| {
            rest.strip_prefix(prefix).filter(|name| !name.is_empty()).map(|name| (prefix.len(), name))
        });
        if let Some((prefix, name)) = name {
            let Some(length) = name.find('>') else {
                return Err(self.error(Problem::NamedCapture, start, self.pattern.len()));
            };
            let is_name = |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric();
            let is_valid = length > 0 && name[..length].bytes().all(is_name);
            self.at += prefix + length + 1;
            return match is_valid {
                true => self.open(),
                false => Err(self.error(Problem::NamedCapture, start, self.at)),
            };
        }
        self.at += 2;
        let (mut has_flag, mut is_negated) = (false, false);
        while let Some(next) = self.next() {
            match next {
                'i' | 'm' | 's' | 'U' => has_flag = true,
                '-' if !is_negated => (has_flag, is_negated) = (false, true),
                ':' | ')' if has_flag || !is_negated => {
                    return if next == ':' { self.open() } else { Ok(()) };
                }
                _ => break,
            }
        }
        Err(self.error(Problem::PerlOperator, start, self.at))
    }

    /// What begins with a backslash, outside of brackets.
    fn escape(&mut self) -> Result<(), PatternError> {
        let start = self.at;
        match self.rest().chars().nth(1) {
            Some('Q') => {
                let text = &self.rest()[2..];
                let (length, end) = text.find("\\E").map_or((text.len(), 0), |length| (length, 2));
                self.at += 2 + length + end;
                if length > 0 {
                    self.push(0);
                }
                return Ok(());
            }
            Some('A' | 'b' | 'B' | 'z') => self.at += 2,
            Some('C') => return Err(self.error(Problem::Escape, start, start + 2)),
            _ if self.named_class()? => {}
            _ => _ = self.character()?,
        }
        self.push(0);
        Ok(())
    }

    /// `\d` and its kin, and `\p{Greek}`.
    fn named_class(&mut self) -> Result<bool, PatternError> {
        let start = self.at;
        let mut characters = self.rest().chars();
        match (characters.next(), characters.next()) {
            (Some('\\'), Some('d' | 'D' | 's' | 'S' | 'w' | 'W')) => {
                self.at += 2;
                return Ok(true);
            }
            (Some('\\'), Some('p' | 'P')) => self.at += 2,
            _ => return Ok(false),
        }
        let from = self.at;
        let name = match self.next() {
            Some('{') => {
                let Some(length) = self.rest().find('}') else {
                    return Err(self.error(Problem::Range, start, self.pattern.len()));
                };
                self.at += length + 1;
                &self.pattern[from + 1..self.at - 1]
            }
            _ => &self.pattern[from..self.at],
        };
        let name = name.strip_prefix('^').unwrap_or(name);
        let is_known = match name.len() {
            ..3 => CATEGORIES.split(' ').any(|known| known.eq_ignore_ascii_case(name)),
            _ => name.bytes().all(|byte| byte.is_ascii_alphabetic() || b"_- ".contains(&byte)),
        };
        match is_known {
            true => Ok(true),
            false => Err(self.error(Problem::Range, start, self.at)),
        }
    }

    /// A character that is written with a backslash.
    fn character(&mut self) -> Result<u32, PatternError> {
        let start = self.at;
        self.at += 1;
        let Some(kind) = self.next() else {
            return Err(self.error(Problem::TrailingBackslash, self.at, self.at));
        };
        let is_octal = |next: Option<char>| next.is_some_and(|next| next.is_digit(8));
        let value = match kind {
            // One digit alone would mean an earlier group.
            '1'..='7' if !is_octal(self.peek()) => None,
            '0'..='7' => {
                let mut value = kind.to_digit(8);
                for _ in 1..3 {
                    if is_octal(self.peek()) {
                        value =
                            value.zip(self.next().and_then(|next| next.to_digit(8))).map(|(a, b)| a * 8 + b);
                    }
                }
                value
            }
            'x' => self.hexadecimal(),
            'a' => Some(7),
            'f' => Some(12),
            'n' => Some(10),
            'r' => Some(13),
            't' => Some(9),
            'v' => Some(11),
            other if other.is_ascii() && !other.is_ascii_alphanumeric() => Some(other.into()),
            _ => None,
        };
        value.ok_or_else(|| self.error(Problem::Escape, start, self.at))
    }

    /// `\x7f` or `\x{1F600}`, behind the `x`.
    fn hexadecimal(&mut self) -> Option<u32> {
        let first = self.next()?;
        if first != '{' {
            let second = self.next();
            return Some(first.to_digit(16)? * 16 + second?.to_digit(16)?);
        }
        let mut value = None;
        loop {
            match self.next()? {
                '}' => return value,
                digit => {
                    let larger = value.unwrap_or(0) * 16 + digit.to_digit(16)?;
                    value = Some(larger).filter(|value| *value <= char::MAX.into());
                    value?;
                }
            }
        }
    }

    /// `[a-z[:digit:]\pL]`.
    fn class(&mut self) -> Result<(), PatternError> {
        let start = self.at;
        self.at += 1;
        if self.peek() == Some('^') {
            self.at += 1;
        }
        let mut is_first = true;
        while is_first || self.peek() != Some(']') {
            is_first = false;
            if self.posix_class()? || self.named_class()? {
                continue;
            }
            let from = self.at;
            let low = self.class_character(start)?;
            let rest = self.rest();
            if rest.len() > 1 && rest.starts_with('-') && !rest.starts_with("-]") {
                self.at += 1;
                if self.class_character(start)? < low {
                    return Err(self.error(Problem::Range, from, self.at));
                }
            }
        }
        self.at += 1;
        self.push(0);
        Ok(())
    }

    fn class_character(&mut self, start: usize) -> Result<u32, PatternError> {
        match self.peek() {
            None => Err(self.error(Problem::MissingBracket, start, self.pattern.len())),
            Some('\\') => self.character(),
            Some(other) => {
                self.at += other.len_utf8();
                Ok(other.into())
            }
        }
    }

    /// `[:alpha:]`.
    fn posix_class(&mut self) -> Result<bool, PatternError> {
        let Some(name) = self.rest().strip_prefix("[:") else { return Ok(false) };
        let Some(length) = name.find(":]") else { return Ok(false) };
        let name = &name[..length];
        let is_known = POSIX_CLASSES.split(' ').any(|known| known == name.strip_prefix('^').unwrap_or(name));
        let start = self.at;
        self.at += length + 4;
        match is_known {
            true => Ok(true),
            false => Err(self.error(Problem::Range, start, self.at)),
        }
    }
}

/// How often something is repeated.
struct Counts {
    least: u32,
    /// Nothing where there is no limit.
    most: Option<u32>,
    /// How long it is itself.
    length: usize,
}

impl Counts {
    fn read(text: &str) -> Option<Counts> {
        let (least, rest) = number(text.strip_prefix('{')?)?;
        let (most, rest) = match rest.strip_prefix(',') {
            None => (Some(least), rest),
            Some(rest) if rest.starts_with('}') => (None, rest),
            Some(rest) => {
                let (most, rest) = number(rest)?;
                (Some(most), rest)
            }
        };
        let rest = rest.strip_prefix('}')?;
        Some(Counts { least, most, length: text.len() - rest.len() })
    }
}

/// A number without zeros before it; a large one is only known to be that.
fn number(text: &str) -> Option<(u32, &str)> {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(length);
    if digits.is_empty() || digits.len() > 1 && digits.starts_with('0') {
        return None;
    }
    Some((digits.parse().map_or(LARGE, |number: u32| number.min(LARGE)), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(pattern: &str) -> String {
        match check_pattern(pattern) {
            Ok(()) => "taken".to_owned(),
            Err(error) => {
                let text = error.to_string();
                text.strip_prefix("error parsing regexp: ").unwrap().to_owned()
            }
        }
    }

    /// What Go 1.26 said.
    #[test]
    fn patterns_are_judged_as_go_judges_them() {
        for (pattern, expected) in [
            ("", "taken"),
            ("a", "taken"),
            ("(", "missing closing ): `(`"),
            ("(a", "missing closing ): `(a`"),
            ("a)", "unexpected ): `a)`"),
            ("[", "missing closing ]: `[`"),
            ("[a", "missing closing ]: `[a`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("a*?*", "invalid nested repetition operator: `*?*`"),
            ("*a", "missing argument to repetition operator: `*`"),
            ("a{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
            ("(?i", "invalid or unsupported Perl syntax: `(?i`"),
            ("(?P<n", "invalid named capture: `(?P<n`"),
            ("(?P<n>a)", "taken"),
            ("(?P<>a)", "invalid named capture: `(?P<>`"),
            ("(?P<n n>a)", "invalid named capture: `(?P<n n>`"),
            (r#"\"#, "trailing backslash at end of expression: ``"),
            (r#"\8"#, r#"invalid escape sequence: `\8`"#),
            (r#"\q"#, r#"invalid escape sequence: `\q`"#),
            ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
            ("[b-a]", "invalid character class range: `b-a`"),
            ("((a{100}){10}){2}", "invalid repeat count: `{2}`"),
            ("((a{10}){10}){10}", "taken"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("(?!a)", "invalid or unsupported Perl syntax: `(?!`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("x{2}{", "taken"),
            (r#"\pN"#, "taken"),
            (r#"\p"#, r#"invalid character class range: `\p`"#),
            (r#"\p{"#, r#"invalid character class range: `\p{`"#),
            ("(?", "invalid or unsupported Perl syntax: `(?`"),
            ("(?<n>a)", "taken"),
            ("(?'n'a)", "invalid or unsupported Perl syntax: `(?'`"),
            (r#"[\d-z]"#, "taken"),
            (r#"[a\]"#, r#"missing closing ]: `[a\]`"#),
            (r#"\x{110000}"#, r#"invalid escape sequence: `\x{110000`"#),
            (r#"\x{10FFFF}"#, "taken"),
            (r#"\x1"#, r#"invalid escape sequence: `\x1`"#),
            ("a|*", "missing argument to repetition operator: `*`"),
            ("(|*)", "missing argument to repetition operator: `*`"),
            ("(a|b)*", "taken"),
            ("^*", "taken"),
            ("$+", "taken"),
            (r#"\b+"#, "taken"),
            ("(?i)*", "missing argument to repetition operator: `*`"),
            ("a(?i)*", "taken"),
            ("a*(?i)*", "taken"),
            ("{2}", "missing argument to repetition operator: `{2}`"),
            ("(?-)", "invalid or unsupported Perl syntax: `(?-)`"),
            ("(?i-s:a)", "taken"),
            ("(?--i)", "invalid or unsupported Perl syntax: `(?--`"),
            ("(a{0,}){1001}", "invalid repeat count: `{1001}`"),
            ("((a{0}){500}){3}", "invalid repeat count: `{3}`"),
            ("((a{2}){0,}){501}", "invalid repeat count: `{501}`"),
            ("((a{2})*){501}", "invalid repeat count: `{501}`"),
            ("[]a]", "taken"),
            ("[^]a]", "taken"),
            ("[]", "missing closing ]: `[]`"),
            ("[^]", "missing closing ]: `[^]`"),
            ("a{,2}", "taken"),
            (r#"\Qa*\E*"#, "taken"),
            (r#"\Q\E*"#, "missing argument to repetition operator: `*`"),
        ] {
            assert_eq!(judged(pattern), expected, "{pattern}");
        }
        let deep = |depth: usize| format!("{}a{}", "(".repeat(depth), ")".repeat(depth));
        assert_eq!(judged(&deep(999)), "taken");
        assert!(judged(&deep(1_000)).starts_with("expression nests too deeply: `((((("));
    }
}
