//! Amounts that are written as a share or as a quantity.

use std::str::FromStr;

use crablet_api::Quantity;

/// How much must be left before pods are evicted, or how much more is to be reclaimed.
#[derive(Debug, Clone, PartialEq)]
pub enum Threshold {
    /// An amount.
    Quantity(Quantity),
    /// A share of the capacity, in hundredths.
    Percentage(f32),
}

/// A whole share, from 0 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Percentage(pub u8);

/// A text that is neither a share nor a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is neither a percentage such as \"10%\" nor a quantity such as \"100Mi\"")]
pub struct ThresholdError {
    text: Box<str>,
}

/// A text that is not a whole share.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PercentageError {
    /// It does not end with the sign.
    #[error("percentage such as \"50%\" expected, got '{0}'")]
    NoSign(Box<str>),
    /// It is not a number.
    #[error("invalid number in percentage '{0}'; a whole number such as \"50%\" is accepted")]
    NoNumber(Box<str>),
    #[error("percentage '{0}' must be between 0 and 100")]
    OutOfRange(Box<str>),
}

impl FromStr for Threshold {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Threshold, ThresholdError> {
        let parsed = match text.strip_suffix('%') {
            Some(number) => {
                number.parse().ok().filter(|share: &f32| share.is_finite()).map(Threshold::Percentage)
            }
            None => text.parse().ok().map(Threshold::Quantity),
        };
        parsed.ok_or_else(|| ThresholdError { text: text.into() })
    }
}

impl FromStr for Percentage {
    type Err = PercentageError;

    fn from_str(text: &str) -> Result<Percentage, PercentageError> {
        let number = text.strip_suffix('%').ok_or_else(|| PercentageError::NoSign(text.into()))?;
        let number: i64 = number.parse().map_err(|_| PercentageError::NoNumber(text.into()))?;
        u8::try_from(number)
            .ok()
            .filter(|share| *share <= 100)
            .map(Percentage)
            .ok_or_else(|| PercentageError::OutOfRange(text.into()))
    }
}
