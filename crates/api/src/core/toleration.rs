//! [`Toleration`]: the taints that a pod puts up with.

use crate::object::{Absent, object, words};
use crate::taint::{Taint, TaintEffect};
use crate::text::Text;

object! {
    /// Taints that a pod puts up with.
    pub struct Toleration {
        key: Text = "key",
        operator: Option<TolerationOperator> = "operator" word,
        value: Text = "value",
        effect: Option<TaintEffect> = "effect" word,
        toleration_seconds: Option<i64> = "tolerationSeconds",
    }
}

words! {
    /// How a toleration is compared with a taint.
    pub enum TolerationOperator {
        Exists = "Exists",
        Equal = "Equal",
        Lt = "Lt",
        Gt = "Gt",
    }
}

impl Toleration {
    /// Whether a pod with this toleration puts up with `taint`. An absent key or effect stands for all of them.
    /// `comparison_operators` says whether `Lt` and `Gt` are in force; where they are not, they match nothing.
    pub fn tolerates(&self, taint: &Taint, comparison_operators: bool) -> bool {
        if self.effect.as_ref().is_some_and(|effect| *effect != taint.effect) {
            return false;
        }
        if !self.key.is_empty() && *self.key != *taint.key {
            return false;
        }
        let numbers =
            || Some((decimal(&taint.value)?, decimal(&self.value)?)).filter(|_| comparison_operators);
        match &self.operator {
            None | Some(TolerationOperator::Equal) => *self.value == *taint.value,
            Some(TolerationOperator::Exists) => true,
            Some(TolerationOperator::Lt) => numbers().is_some_and(|(taint, own)| taint < own),
            Some(TolerationOperator::Gt) => numbers().is_some_and(|(taint, own)| taint > own),
            Some(TolerationOperator::Other(_)) => false,
        }
    }
}

/// A whole number without needless signs and zeros.
fn decimal(text: &str) -> Option<i64> {
    text.parse().ok().filter(|number: &i64| number.to_string() == text)
}

impl Absent for TaintEffect {
    fn is_absent(&self) -> bool {
        self.as_str().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toleration(text: &str) -> Toleration {
        let mut parts = text.split('|');
        let mut part = || parts.next().filter(|part| !part.is_empty());
        Toleration {
            key: part().unwrap_or_default().into(),
            operator: part().map(TolerationOperator::from),
            value: part().unwrap_or_default().into(),
            effect: part().map(TaintEffect::from),
            toleration_seconds: None,
        }
    }

    #[test]
    fn a_toleration_matches_by_key_operator_value_and_effect() {
        for (tolerated, taint, compared, expected) in [
            ("a|Exists", "a=x:NoSchedule", true, true),
            ("a|Exists||NoExecute", "a=x:NoSchedule", true, false),
            ("b|Exists", "a=x:NoSchedule", true, false),
            ("|Exists", "a=x:NoSchedule", true, true),
            ("a", "a:NoSchedule", true, true),
            ("a||x", "a=x:NoSchedule", true, true),
            ("a|Equal|x|NoSchedule", "a=x:NoSchedule", true, true),
            ("a|Equal|y|NoSchedule", "a=x:NoSchedule", true, false),
            ("a|Near|x", "a=x:NoSchedule", true, false),
            ("a|Gt|5", "a=6:NoSchedule", true, true),
            ("a|Gt|5", "a=5:NoSchedule", true, false),
            ("a|Lt|5", "a=4:NoSchedule", true, true),
            ("a|Lt|5", "a=4:NoSchedule", false, false),
            ("a|Lt|5", "a=04:NoSchedule", true, false),
            ("a|Gt|x", "a=4:NoSchedule", true, false),
            ("a|Gt|-5", "a=4:NoSchedule", true, true),
        ] {
            let taint: Taint = taint.parse().unwrap();
            assert_eq!(toleration(tolerated).tolerates(&taint, compared), expected, "{tolerated} {taint}");
        }
    }
}
