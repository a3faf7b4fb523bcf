//! [`FieldSelector`]: which objects are meant, by a few of their fields.

use std::{fmt, str::FromStr};

use super::SelectorError;
use crate::text::Text;

/// Objects whose fields match all of this. An empty selector matches every object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(pub Box<[FieldTerm]>);

/// What a field must be or must not be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldTerm {
    /// The field, such as `spec.nodeName`.
    pub field: Text,
    /// Whether it must have the value, or must not.
    pub equal: bool,
    pub value: Text,
}

impl FieldSelector {
    /// Whether an object matches; `field` gives the value of its field of that name.
    pub fn matches<'o>(&self, field: impl Fn(&str) -> &'o str) -> bool {
        self.0.iter().all(|term| (field(&term.field) == &*term.value) == term.equal)
    }

    /// The value that the selector asks of a field, where it asks for one.
    pub fn required(&self, field: &str) -> Option<&str> {
        self.0.iter().find(|term| term.equal && &*term.field == field).map(|term| &*term.value)
    }
}

impl FromStr for FieldSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<FieldSelector, SelectorError> {
        let mut parts: Vec<&str> = terms(text).into_iter().filter(|part| !part.is_empty()).collect();
        parts.sort_unstable();
        parts.into_iter().map(|part| term(text, part)).collect::<Result<_, _>>().map(FieldSelector)
    }
}

/// Splits at commas that no backslash stands before.
fn terms(text: &str) -> Vec<&str> {
    let mut escaped = false;
    text.split(|c: char| {
        let splits = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        splits
    })
    .collect()
}

fn term(selector: &str, part: &str) -> Result<FieldTerm, SelectorError> {
    let unclear = || SelectorError(format!("invalid selector: '{selector}'; can't understand '{part}'"));
    let at = part.find("!=").into_iter().chain(part.find('=')).min().ok_or_else(unclear)?;
    let (field, rest) = part.split_at(at);
    let (equal, value) = match rest.strip_prefix("!=") {
        Some(value) => (false, value),
        None => (true, rest.strip_prefix("==").unwrap_or(&rest[1..])),
    };
    Ok(FieldTerm { field: field.into(), equal, value: unescaped(value)? })
}

fn unescaped(text: &str) -> Result<Text, SelectorError> {
    let mut value = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => value.push(escaped),
                other => {
                    let sequence: String = std::iter::once('\\').chain(other).collect();
                    return Err(SelectorError(format!(
                        "invalid field selector: invalid escape sequence: {sequence}"
                    )));
                }
            },
            ',' | '=' => {
                return Err(SelectorError(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(letter)
                )));
            }
            letter => value.push(letter),
        }
    }
    Ok(value.into())
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, term) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let operator = if term.equal { "=" } else { "!=" };
            write!(formatter, "{comma}{}{operator}", term.field)?;
            for letter in term.value.chars() {
                let escape = if matches!(letter, '\\' | ',' | '=') { "\\" } else { "" };
                write!(formatter, "{escape}{letter}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(selector: &str) -> Result<bool, String> {
        let selector: FieldSelector = selector.parse().map_err(|error: SelectorError| error.to_string())?;
        Ok(selector.matches(|field| match field {
            "metadata.name" => "web",
            "spec.nodeName" => "n,1",
            _ => "",
        }))
    }

    #[test]
    fn fields_are_equal_or_not() {
        for (selector, expected) in [
            ("", Ok(true)),
            (",", Ok(true)),
            ("metadata.name=web", Ok(true)),
            ("metadata.name==web", Ok(true)),
            ("metadata.name!=web", Ok(false)),
            ("metadata.name=web,spec.nodeName!=x", Ok(true)),
            (r"metadata.name=web,spec.nodeName=n\,1", Ok(true)),
            ("status.phase=", Ok(true)),
            ("metadata.name", Err("invalid selector: 'metadata.name'; can't understand 'metadata.name'")),
            ("a=b=c", Err("invalid field selector: unescaped character in value: 61")),
            (r"a=\b", Err(r"invalid field selector: invalid escape sequence: \b")),
            (r"a=b\", Err(r"invalid field selector: invalid escape sequence: \")),
        ] {
            assert_eq!(matches(selector), expected.map_err(str::to_owned), "{selector}");
        }
        let selector: FieldSelector = "spec.nodeName=n,metadata.name!=x".parse().unwrap();
        assert_eq!(selector.required("spec.nodeName"), Some("n"));
        assert_eq!(selector.required("metadata.name"), None);
    }

    proptest! {
        #[test]
        fn what_is_written_can_be_read_again(value in "\\PC*", text in "[a=,!\\\\.é]*") {
            let selector = FieldSelector([FieldTerm { field: "a".into(), equal: true, value: value.into() }].into());
            prop_assert_eq!(selector.to_string().parse(), Ok(selector));
            let _ = text.parse::<FieldSelector>();
        }
    }
}
