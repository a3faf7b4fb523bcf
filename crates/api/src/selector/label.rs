//! [`Selector`]: which objects are meant, by their labels.

use std::{fmt, str::FromStr};

use crate::map::Map;
use crate::meta::{LabelSelector, LabelSelectorOperator};
use crate::names::{label_value_errors, qualified_name_errors};
use crate::text::Text;

use super::SelectorError;

/// Objects whose labels match all of this. An empty selector matches every object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(pub Box<[Requirement]>);

/// What a label must be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requirement {
    /// The label's name.
    pub key: Text,
    /// How it is compared.
    pub operator: SelectorOperator,
    /// With what it is compared, sorted.
    pub values: Box<[Text]>,
}

/// How a label is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SelectorOperator {
    In,
    NotIn,
    Equals,
    DoubleEquals,
    NotEquals,
    GreaterThan,
    LessThan,
    Exists,
    DoesNotExist,
}

impl Selector {
    /// Whether an object with these labels is meant.
    pub fn matches(&self, labels: &Map<Text>) -> bool {
        self.0.iter().all(|requirement| requirement.matches(labels))
    }
}

impl Requirement {
    /// Whether an object with these labels is meant.
    pub fn matches(&self, labels: &Map<Text>) -> bool {
        let label = labels.get(&self.key);
        match self.operator {
            SelectorOperator::In | SelectorOperator::Equals | SelectorOperator::DoubleEquals => {
                label.is_some_and(|label| self.values.contains(label))
            }
            SelectorOperator::NotIn | SelectorOperator::NotEquals => {
                label.is_none_or(|label| !self.values.contains(label))
            }
            SelectorOperator::Exists => label.is_some(),
            SelectorOperator::DoesNotExist => label.is_none(),
            SelectorOperator::GreaterThan => self.numbers(label).is_some_and(|(label, limit)| label > limit),
            SelectorOperator::LessThan => self.numbers(label).is_some_and(|(label, limit)| label < limit),
        }
    }

    fn numbers(&self, label: Option<&Text>) -> Option<(i64, i64)> {
        let [limit] = &*self.values else { return None };
        Some((label?.parse().ok()?, limit.parse().ok()?))
    }

    fn checked(
        key: &str,
        operator: SelectorOperator,
        mut values: Vec<Text>,
    ) -> Result<Requirement, SelectorError> {
        values.sort_unstable();
        values.dedup();
        let problem = match operator {
            SelectorOperator::In | SelectorOperator::NotIn if values.is_empty() => {
                Some("for 'in', 'notin' operators, values set can't be empty")
            }
            SelectorOperator::Exists | SelectorOperator::DoesNotExist if !values.is_empty() => {
                Some("values set must be empty for exists and does not exist")
            }
            SelectorOperator::GreaterThan | SelectorOperator::LessThan
                if values.iter().any(|value| value.parse::<i64>().is_err()) =>
            {
                Some("for 'Gt', 'Lt' operators, the value must be an integer")
            }
            _ => None,
        };
        let problems = qualified_name_errors(key)
            .into_iter()
            .map(|problem| format!("key {key:?}: {problem}"))
            .chain(problem.map(|problem| format!("key {key:?}: {problem}")))
            .chain(values.iter().flat_map(|value| {
                label_value_errors(value)
                    .into_iter()
                    .map(move |problem| format!("value {value:?}: {problem}"))
            }));
        match problems.reduce(|all, problem| all + "; " + &problem) {
            None => Ok(Requirement { key: key.into(), operator, values: values.into() }),
            Some(problems) => Err(SelectorError(format!("unable to parse requirement: {problems}"))),
        }
    }
}

/// A selector as an object has it.
impl TryFrom<&LabelSelector> for Selector {
    type Error = SelectorError;

    fn try_from(selector: &LabelSelector) -> Result<Selector, SelectorError> {
        let labels = selector
            .match_labels
            .iter()
            .map(|(key, value)| Requirement::checked(key, SelectorOperator::In, vec![value.clone()]));
        let expressions = selector.match_expressions.iter().map(|expression| {
            let operator = match &expression.operator {
                LabelSelectorOperator::In => SelectorOperator::In,
                LabelSelectorOperator::NotIn => SelectorOperator::NotIn,
                LabelSelectorOperator::Exists => SelectorOperator::Exists,
                LabelSelectorOperator::DoesNotExist => SelectorOperator::DoesNotExist,
                LabelSelectorOperator::Other(word) => {
                    return Err(SelectorError(format!("{word:?} is not a valid label selector operator")));
                }
            };
            Requirement::checked(&expression.key, operator, expression.values.to_vec())
        });
        labels.chain(expressions).collect::<Result<_, _>>().map(Selector)
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Selector, SelectorError> {
        let mut parser = Parser { tokens: tokens(text), position: 0 };
        let mut requirements = parser.selector()?;
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Selector(requirements.into()))
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(formatter, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let values = self.values.join(",");
        match self.operator {
            SelectorOperator::In => write!(formatter, "{key} in ({values})"),
            SelectorOperator::NotIn => write!(formatter, "{key} notin ({values})"),
            SelectorOperator::Equals => write!(formatter, "{key}={values}"),
            SelectorOperator::DoubleEquals => write!(formatter, "{key}=={values}"),
            SelectorOperator::NotEquals => write!(formatter, "{key}!={values}"),
            SelectorOperator::GreaterThan => write!(formatter, "{key}>{values}"),
            SelectorOperator::LessThan => write!(formatter, "{key}<{values}"),
            SelectorOperator::Exists => write!(formatter, "{key}"),
            SelectorOperator::DoesNotExist => write!(formatter, "!{key}"),
        }
    }
}

/// Words and symbols; what lies between two of them is white space.
fn tokens(text: &str) -> Vec<&str> {
    let is_symbol = |c: char| matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<');
    let is_space = |c: char| matches!(c, ' ' | '\t' | '\r' | '\n');
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        let length = match rest {
            _ if rest.starts_with("==") || rest.starts_with("!=") => 2,
            _ if rest.starts_with(is_symbol) => 1,
            _ => rest.find(|c| is_symbol(c) || is_space(c)).unwrap_or(rest.len()),
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token);
        rest = after.trim_start_matches(is_space);
    }
    tokens
}

struct Parser<'t> {
    tokens: Vec<&'t str>,
    position: usize,
}

impl<'t> Parser<'t> {
    /// The token here; the empty one at the end.
    fn peek(&self) -> &'t str {
        self.tokens.get(self.position).copied().unwrap_or_default()
    }

    fn next(&mut self) -> &'t str {
        let token = self.peek();
        self.position += 1;
        token
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, SelectorError> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                "" => return Ok(requirements),
                token if token == "!" || is_word(token) => requirements.push(self.requirement()?),
                token => return Err(unexpected(token, "!, identifier, or 'end of string'")),
            }
            match self.next() {
                "" => return Ok(requirements),
                "," if self.peek() == "!" || is_word(self.peek()) => {}
                "," => {
                    let message = format!("found '{}', expected: identifier after ','", self.peek());
                    return Err(SelectorError(message));
                }
                token => return Err(unexpected(token, "',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let absent = self.peek() == "!";
        if absent {
            self.next();
        }
        let key = self.next();
        if !is_word(key) {
            return Err(unparsable(key, "identifier"));
        }
        if let "" | "," = self.peek() {
            let operator = if absent { SelectorOperator::DoesNotExist } else { SelectorOperator::Exists };
            return Requirement::checked(key, operator, Vec::new());
        }
        let operator = match self.next() {
            "in" => SelectorOperator::In,
            "notin" => SelectorOperator::NotIn,
            "=" => SelectorOperator::Equals,
            "==" => SelectorOperator::DoubleEquals,
            "!=" => SelectorOperator::NotEquals,
            ">" => SelectorOperator::GreaterThan,
            "<" => SelectorOperator::LessThan,
            token => return Err(unparsable(token, "in, notin, =, ==, !=, gt, lt")),
        };
        let values = match operator {
            SelectorOperator::In | SelectorOperator::NotIn => self.values()?,
            _ => vec![self.value()?],
        };
        Requirement::checked(key, operator, values)
    }

    /// One value, which may be missing.
    fn value(&mut self) -> Result<Text, SelectorError> {
        match self.peek() {
            "" | "," => Ok(Text::default()),
            token if is_word(token) => Ok(self.next().into()),
            token => Err(unparsable(token, "identifier")),
        }
    }

    /// Values in parentheses, any of which may be missing.
    fn values(&mut self) -> Result<Vec<Text>, SelectorError> {
        match self.next() {
            "(" => {}
            token => {
                return Err(SelectorError(format!(
                    "unable to parse requirement: found '{token}' expected: '('"
                )));
            }
        }
        let mut values = Vec::new();
        loop {
            match self.peek() {
                "," | ")" => values.push(Text::default()),
                token if is_word(token) => values.push(self.next().into()),
                token => return Err(unparsable(token, "',', ')' or identifier")),
            }
            match self.next() {
                "," => {}
                ")" => return Ok(values),
                token => return Err(unparsable(token, "',' or ')'")),
            }
        }
    }
}

fn is_word(token: &str) -> bool {
    !matches!(token, "" | "=" | "==" | "!=" | "!" | "(" | ")" | "," | ">" | "<")
}

fn unexpected(found: &str, expected: &str) -> SelectorError {
    SelectorError(format!("found '{found}', expected: {expected}"))
}

fn unparsable(found: &str, expected: &str) -> SelectorError {
    SelectorError(format!("unable to parse requirement: found '{found}', expected: {expected}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels() -> Map<Text> {
        [("app", "web"), ("tier", "a"), ("n", "5"), ("empty", "")]
            .into_iter()
            .map(|(key, value)| (key, value.into()))
            .collect()
    }

    #[test]
    fn texts_select_by_labels() {
        for (text, matches, written) in [
            ("", true, ""),
            ("app", true, "app"),
            ("!app", false, "!app"),
            ("!other", true, "!other"),
            ("app=web", true, "app=web"),
            ("app==web", true, "app==web"),
            (" app = web ", true, "app=web"),
            ("app!=web", false, "app!=web"),
            ("other!=web", true, "other!=web"),
            ("other=web", false, "other=web"),
            ("tier in (b, a)", true, "tier in (a,b)"),
            ("tier notin (b,c)", true, "tier notin (b,c)"),
            ("other notin (b)", true, "other notin (b)"),
            ("tier in (b)", false, "tier in (b)"),
            ("empty=", true, "empty="),
            ("empty=,app=web", true, "app=web,empty="),
            ("empty in ()", true, "empty in ()"),
            ("empty in (,x)", true, "empty in (,x)"),
            ("empty in (x,,y)", true, "empty in (,x,y)"),
            ("n>4", true, "n>4"),
            ("n<5", false, "n<5"),
            ("app>4", false, "app>4"),
            ("in in (in),notin", false, "in in (in),notin"),
            ("tier in (a),app=web,!x", true, "app=web,tier in (a),!x"),
        ] {
            let selector: Selector = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(selector.matches(&labels()), matches, "{text}");
            assert_eq!(selector.to_string(), written, "{text}");
        }
    }

    #[test]
    fn a_bad_text_says_what_was_found() {
        for (text, expected) in [
            (",", "found ',', expected: !, identifier, or 'end of string'"),
            ("a,", "found '', expected: identifier after ','"),
            ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
            ("a in b", "unable to parse requirement: found 'b' expected: '('"),
            ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("a=(", "unable to parse requirement: found '(', expected: identifier"),
            ("!", "unable to parse requirement: found '', expected: identifier"),
            (
                "a>b",
                "unable to parse requirement: key \"a\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
        ] {
            assert_eq!(text.parse::<Selector>().unwrap_err().to_string(), expected, "{text}");
        }
        assert!("a_b/c/d=x".parse::<Selector>().is_err());
        assert!("a=-".parse::<Selector>().is_err());
    }

    #[test]
    fn an_objects_selector_selects_too() {
        let select = |json| {
            let selector: LabelSelector = serde_json::from_str(json).unwrap();
            Selector::try_from(&selector).map(|selector| selector.matches(&labels()))
        };
        assert_eq!(select("{}"), Ok(true));
        assert_eq!(
            select(
                r#"{"matchLabels":{"app":"web"},"matchExpressions":[{"key":"x","operator":"DoesNotExist"}]}"#
            ),
            Ok(true)
        );
        assert_eq!(
            select(r#"{"matchExpressions":[{"key":"tier","operator":"NotIn","values":["a"]}]}"#),
            Ok(false)
        );
        assert!(select(r#"{"matchExpressions":[{"key":"tier","operator":"In"}]}"#).is_err());
        assert!(select(r#"{"matchExpressions":[{"key":"tier","operator":"Near"}]}"#).is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_can_be_read_again(text in "[a-c=!(), <>in]{0,20}", any in "\\PC*") {
            if let Ok(selector) = text.parse::<Selector>() {
                prop_assert_eq!(selector.to_string().parse::<Selector>(), Ok(selector));
            }
            let _ = any.parse::<Selector>();
        }
    }
}
