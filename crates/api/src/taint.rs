//! [`Taint`]: what keeps pods that do not tolerate it off a node.

use std::{fmt, str::FromStr};

use crate::meta::Time;
use crate::names::{label_value_errors, qualified_name_errors};
use crate::object::object;

object! {
    /// A mark on a node that keeps pods off it.
    pub struct Taint {
        key: String = "key" always,
        value: String = "value",
        effect: TaintEffect = "effect" always,
        time_added: Option<Time> = "timeAdded",
    }
}

crate::text_enum! {
    /// What a taint does to pods that do not tolerate it.
    pub enum TaintEffect {
        /// They are not scheduled onto the node.
        NoSchedule = "NoSchedule",
        /// They are scheduled onto other nodes where possible.
        PreferNoSchedule = "PreferNoSchedule",
        /// They are not scheduled onto the node, and those that run on it are evicted.
        NoExecute = "NoExecute",
    }
}

impl Taint {
    /// The taints of `--register-with-taints`: `key=value:effect` or `key:effect`, separated by commas. One
    /// with a `-` after it asks for a taint's removal; that means nothing at registration and is only checked.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, TaintError> {
        let mut taints: Vec<Self> = Vec::new();
        for spec in text.split(',').filter(|_| !text.is_empty()) {
            if let Some(removed) = spec.strip_suffix('-') {
                parse_spec(removed)?;
                continue;
            }
            let taint: Self = spec.parse()?;
            if taints.iter().any(|other| other.key == taint.key && other.effect == taint.effect) {
                return Err(TaintError::Duplicate { taint });
            }
            taints.push(taint);
        }
        Ok(taints)
    }

    /// Whether the API server would accept this taint; an absent effect passes.
    pub fn validate(&self) -> Result<(), TaintError> {
        let problems = qualified_name_errors(&self.key);
        if !problems.is_empty() {
            return Err(TaintError::Key { problems });
        }
        let problems = label_value_errors(&self.value);
        if !problems.is_empty() {
            return Err(TaintError::Value { problems });
        }
        if self.effect == TaintEffect::default() { Ok(()) } else { require_known(&self.effect) }
    }
}

/// What is wrong with a taint; the messages are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaintError {
    /// The text does not have the form of a taint.
    #[error("invalid taint spec: {spec}")]
    Spec {
        /// The text.
        spec: String,
    },
    /// The text has the form of a taint, but its key or value is not valid.
    #[error("invalid taint spec: {spec}, {}", .problems.join("; "))]
    SpecPart {
        /// The text.
        spec: String,
        /// What is wrong with the key or the value.
        problems: Vec<String>,
    },
    /// The key is not a qualified name.
    #[error("invalid taint key: {}", .problems.join("; "))]
    Key {
        /// What is wrong with the key.
        problems: Vec<String>,
    },
    /// The value is not a label value.
    #[error("invalid taint value: {}", .problems.join("; "))]
    Value {
        /// What is wrong with the value.
        problems: Vec<String>,
    },
    /// There is no such effect.
    #[error("invalid taint effect: {effect}, unsupported taint effect")]
    Effect {
        /// The word given as an effect.
        effect: TaintEffect,
    },
    /// A list has two taints of the same key and effect.
    #[error(
        "duplicated taints with the same key and effect: {{{} {} {} <nil>}}",
        .taint.key, .taint.value, .taint.effect
    )]
    Duplicate {
        /// The second of the two.
        taint: Taint,
    },
}

impl FromStr for Taint {
    type Err = TaintError;

    fn from_str(spec: &str) -> Result<Self, TaintError> {
        let taint = parse_spec(spec)?;
        if taint.effect == TaintEffect::default() {
            return Err(TaintError::Spec { spec: spec.to_owned() });
        }
        Ok(taint)
    }
}

/// A taint with an effect, or a bare key, which is enough to remove one.
fn parse_spec(spec: &str) -> Result<Taint, TaintError> {
    let malformed = || TaintError::Spec { spec: spec.to_owned() };
    let (key, value, effect) = match spec.split_once(':') {
        None => (spec, "", TaintEffect::default()),
        Some((_, effect)) if effect.contains(':') => return Err(malformed()),
        Some((name, effect)) => {
            let effect = TaintEffect::from(effect);
            require_known(&effect)?;
            let (key, value) = name.split_once('=').unwrap_or((name, ""));
            if value.contains('=') {
                return Err(malformed());
            }
            (key, value, effect)
        }
    };
    for problems in [label_value_errors(value), qualified_name_errors(key)] {
        if !problems.is_empty() {
            return Err(TaintError::SpecPart { spec: spec.to_owned(), problems });
        }
    }
    Ok(Taint { key: key.to_owned(), value: value.to_owned(), effect, time_added: None })
}

fn require_known(effect: &TaintEffect) -> Result<(), TaintError> {
    match effect {
        TaintEffect::NoSchedule | TaintEffect::PreferNoSchedule | TaintEffect::NoExecute => Ok(()),
        TaintEffect::Other(_) => Err(TaintError::Effect { effect: effect.clone() }),
    }
}

impl fmt::Display for Taint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}={}:{}", self.key, self.value, self.effect)
    }
}

/// No effect at all: the empty word.
impl Default for TaintEffect {
    fn default() -> Self {
        Self::from("")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn taint(key: &str, value: &str, effect: TaintEffect) -> Taint {
        Taint { key: key.to_owned(), value: value.to_owned(), effect, time_added: None }
    }

    #[test]
    fn a_flag_is_a_list_of_taints() {
        assert_eq!(Taint::parse_list("").unwrap(), []);
        assert_eq!(
            Taint::parse_list("a=b:NoSchedule,example.com/c:NoExecute,d=:PreferNoSchedule,a=b:NoExecute")
                .unwrap(),
            [
                taint("a", "b", TaintEffect::NoSchedule),
                taint("example.com/c", "", TaintEffect::NoExecute),
                taint("d", "", TaintEffect::PreferNoSchedule),
                taint("a", "b", TaintEffect::NoExecute),
            ]
        );
    }

    #[test]
    fn a_taint_to_be_removed_is_checked_and_left_out() {
        assert_eq!(
            Taint::parse_list("a-,b:NoSchedule-,c=d:NoExecute").unwrap(),
            [taint("c", "d", TaintEffect::NoExecute)]
        );
        assert_eq!(
            Taint::parse_list("a:Never-").unwrap_err().to_string(),
            "invalid taint effect: Never, unsupported taint effect"
        );
    }

    #[test]
    fn a_bad_flag_says_what_is_wrong_as_upstream_does() {
        for (text, message) in [
            ("a", "invalid taint spec: a"),
            ("a=b", "invalid taint spec: a=b, name part must consist of"),
            ("a=b=c:NoSchedule", "invalid taint spec: a=b=c:NoSchedule"),
            ("a:b:NoSchedule", "invalid taint spec: a:b:NoSchedule"),
            ("a=b:", "invalid taint effect: , unsupported taint effect"),
            ("a=b:noschedule", "invalid taint effect: noschedule, unsupported taint effect"),
            (
                ":NoSchedule",
                "invalid taint spec: :NoSchedule, name part must be non-empty; name part must consist of",
            ),
            (
                "a=b c:NoSchedule",
                "invalid taint spec: a=b c:NoSchedule, a valid label must be an empty string or",
            ),
            (",", "invalid taint spec: , name part must be non-empty; "),
            (
                "a=b:NoSchedule,a=c:NoSchedule",
                "duplicated taints with the same key and effect: {a c NoSchedule <nil>}",
            ),
        ] {
            let error = Taint::parse_list(text).unwrap_err().to_string();
            assert!(error.starts_with(message), "{text}: {error}");
        }
    }

    #[test]
    fn a_configured_taint_is_checked_part_by_part() {
        assert_eq!(taint("a", "", TaintEffect::default()).validate(), Ok(()));
        assert_eq!(taint("example.com/a", "b", TaintEffect::NoExecute).validate(), Ok(()));
        for (taint, message) in [
            (taint("a b", "", TaintEffect::NoExecute), "invalid taint key: name part must consist of"),
            (taint("a", "-", TaintEffect::NoExecute), "invalid taint value: a valid label must be"),
            (taint("a", "", "Never".into()), "invalid taint effect: Never, unsupported taint effect"),
        ] {
            let error = taint.validate().unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn a_taint_in_a_document_keeps_what_it_was_given() {
        for json in [
            r#"{"key":"a","value":"b","effect":"NoSchedule"}"#,
            r#"{"key":"a","effect":"NoExecute","timeAdded":"2026-01-02T03:04:05Z"}"#,
            r#"{"key":"a","effect":"FromTheFuture"}"#,
        ] {
            let taint: Taint = serde_json::from_str(json).unwrap();
            assert_eq!(serde_json::to_string(&taint).unwrap(), json);
        }
        assert_eq!(serde_json::from_str::<Taint>("{}").unwrap(), taint("", "", TaintEffect::default()));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*", similar in "[a=:,-]{0,8}") {
            let _ = (Taint::parse_list(&text), Taint::parse_list(&similar));
        }

        #[test]
        fn what_is_written_can_be_read_again(
            key in "[a-z]([-a-z0-9_.]{0,8}[a-z])?",
            value in "([A-Z]{1,9})?",
        ) {
            let taint = taint(&key, &value, TaintEffect::NoExecute);
            prop_assert_eq!(taint.to_string().parse::<Taint>().unwrap(), taint);
        }
    }
}
