//! [`Quantity`]: an exact amount of a resource, such as `250m` CPUs or `64Mi` of memory.
//!
//! A container is recognised by a hash over its text, so a quantity must be written as upstream writes it, to
//! the letter. Upstream has two representations, a 64-bit mantissa with a decimal scale and an unbounded
//! decimal, and which one a number is in shows: one overflows to zero, the other wraps around. [`Amount`]
//! therefore has the same two, with 128 bits for the second.

mod amount;
mod text;

use std::{
    cmp::Ordering,
    fmt,
    ops::{Add, AddAssign, Neg, Sub, SubAssign},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use amount::Amount;

/// Thousandths, as a power of ten.
const MILLI: i32 = -3;

/// An exact amount of a resource. Two quantities are equal when their values are, however they are written.
#[derive(Clone)]
pub struct Quantity(Representation);

impl Quantity {
    /// A whole number of units, written with decimal suffixes.
    pub const fn from_value(value: i64) -> Self {
        Self(Representation::Plain { mantissa: value, scale: 0, format: QuantityFormat::DecimalSi })
    }

    /// A number of thousandths, written with decimal suffixes.
    pub const fn from_milli(value: i64) -> Self {
        Self(Representation::Plain { mantissa: value, scale: MILLI, format: QuantityFormat::DecimalSi })
    }

    /// The same amount, written with the suffixes of `format`.
    #[must_use]
    pub fn with_format(self, format: QuantityFormat) -> Self {
        Self::new(self.amount(), format)
    }

    /// The family of suffixes this quantity is written with.
    pub fn format(&self) -> QuantityFormat {
        match &self.0 {
            Representation::Plain { format, .. } => *format,
            Representation::Rare(rare) => rare.format,
        }
    }

    /// The amount in units, rounded up.
    pub fn value(&self) -> i64 {
        self.scaled_value(0)
    }

    /// The amount in thousandths, rounded up.
    pub fn milli_value(&self) -> i64 {
        self.scaled_value(MILLI)
    }

    /// The amount in units of `10^scale`, rounded up. One that does not fit is zero or wraps around, as it is
    /// upstream.
    pub fn scaled_value(&self, scale: i32) -> i64 {
        self.amount().scaled_value(scale)
    }

    /// The amount rounded away from zero to a multiple of `10^scale`. One that already is keeps its spelling.
    #[must_use]
    pub fn rounded_up(self, scale: i32) -> Self {
        match self.amount().rounded_up(scale) {
            (_, true) => self,
            (amount, false) => Self::new(amount, self.format()),
        }
    }

    /// Whether the amount is zero.
    pub fn is_zero(&self) -> bool {
        self.sign() == 0
    }

    /// -1, 0 or 1, as the amount is negative, zero or positive.
    pub fn sign(&self) -> i32 {
        match self.amount().parts().0.cmp(&0) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        }
    }

    fn new(amount: Amount, format: QuantityFormat) -> Self {
        match amount {
            Amount::Narrow { mantissa, scale } => Self(Representation::Plain { mantissa, scale, format }),
            Amount::Wide { .. } => {
                Self(Representation::Rare(Box::new(Rare { amount, format, spelling: None })))
            }
        }
    }

    /// Like `new`, but shown as `text` even where that is not the canonical form.
    fn spelled(amount: Amount, format: QuantityFormat, text: &str) -> Self {
        let plain = Self::new(amount, format);
        if plain.to_string() == text {
            return plain;
        }
        Self(Representation::Rare(Box::new(Rare { amount, format, spelling: Some(text.into()) })))
    }

    fn amount(&self) -> Amount {
        match &self.0 {
            Representation::Plain { mantissa, scale, .. } => {
                Amount::Narrow { mantissa: *mantissa, scale: *scale }
            }
            Representation::Rare(rare) => rare.amount,
        }
    }

    /// A sum starting from zero takes the suffixes of what is added to it.
    fn add_amount(&mut self, amount: Amount, format: QuantityFormat) {
        let format = if self.is_zero() { format } else { self.format() };
        *self = Self::new(self.amount().plus(amount), format);
    }
}

/// The three families of suffixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantityFormat {
    /// `n`, `u`, `m`, none, `k`, `M`, `G`, `T`, `P`, `E`: powers of 1000.
    DecimalSi,
    /// `Ki`, `Mi`, `Gi`, `Ti`, `Pi`, `Ei`: powers of 1024.
    BinarySi,
    /// `e3` or `E3`: a power of ten.
    DecimalExponent,
}

/// Why a text is not a quantity; the messages are upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseQuantityError {
    /// The text is not a number followed by something like a suffix.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The part before the suffix is not a number.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// No such suffix.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// Sixteen bytes for nearly every quantity there is; a node holds many thousands.
#[derive(Clone)]
enum Representation {
    Plain { mantissa: i64, scale: i32, format: QuantityFormat },
    Rare(Box<Rare>),
}

#[derive(Clone)]
struct Rare {
    amount: Amount,
    format: QuantityFormat,
    /// Upstream shows some numbers as they were given, such as `+1` or `1.234`, and hashes them so.
    spelling: Option<Box<str>>,
}

impl fmt::Debug for Quantity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Quantity({self})")
    }
}

impl Default for Quantity {
    fn default() -> Self {
        Self::from_value(0)
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.amount().compare(other.amount())
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Eq for Quantity {}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl AddAssign<&Quantity> for Quantity {
    fn add_assign(&mut self, other: &Quantity) {
        self.add_amount(other.amount(), other.format());
    }
}

impl SubAssign<&Quantity> for Quantity {
    fn sub_assign(&mut self, other: &Quantity) {
        self.add_amount(other.amount().negated(), other.format());
    }
}

impl Add<&Quantity> for Quantity {
    type Output = Self;

    fn add(mut self, other: &Quantity) -> Self {
        self += other;
        self
    }
}

impl Sub<&Quantity> for Quantity {
    type Output = Self;

    fn sub(mut self, other: &Quantity) -> Self {
        self -= other;
        self
    }
}

impl Neg for Quantity {
    type Output = Self;

    fn neg(self) -> Self {
        Self::new(self.amount().negated(), self.format())
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(QuantityVisitor)
    }
}

struct QuantityVisitor;

impl de::Visitor<'_> for QuantityVisitor {
    type Value = Quantity;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a quantity such as \"250m\", \"64Mi\" or 2")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
        text.trim().parse().map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Quantity, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Quantity, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Quantity, E> {
        self.visit_str(&json_text(number))
    }

    /// Upstream reads null as zero.
    fn visit_unit<E: de::Error>(self) -> Result<Quantity, E> {
        Ok(Quantity::default())
    }
}

/// A number as Go writes it into JSON, which is what upstream parses once YAML has been turned into that.
fn json_text(number: f64) -> String {
    let magnitude = number.abs();
    if magnitude >= 1e21 {
        format!("{number:e}").replace('e', "e+")
    } else if magnitude != 0.0 && magnitude < 1e-6 {
        format!("{number:e}")
    } else {
        number.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    fn quantity(text: &str) -> Quantity {
        text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"))
    }

    #[derive(Deserialize)]
    struct Facts {
        arithmetic: Vec<ArithmeticFact>,
        parse: Vec<ParseFact>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct ArithmeticFact {
        a: String,
        b: String,
        sum: String,
        diff: String,
        cmp: i32,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ParseFact {
        r#in: String,
        error: Option<String>,
        #[serde(default)]
        canonical: String,
        #[serde(default)]
        format: String,
        value: i64,
        milli_value: i64,
        sign: i32,
    }

    fn facts() -> Facts {
        serde_json::from_str(include_str!("../tests/data/quantities.json")).unwrap()
    }

    #[test]
    fn every_text_parses_as_upstream_parses_it() {
        for fact in facts().parse {
            let parsed = fact.r#in.parse::<Quantity>();
            assert_eq!(parsed.is_err(), fact.error.is_some(), "{:?}", fact.r#in);
            let Ok(parsed) = parsed else { continue };
            let format = match parsed.format() {
                QuantityFormat::DecimalSi => "DecimalSI",
                QuantityFormat::BinarySi => "BinarySI",
                QuantityFormat::DecimalExponent => "DecimalExponent",
            };
            assert_eq!(
                (parsed.to_string().as_str(), format, parsed.value(), parsed.milli_value(), parsed.sign()),
                (fact.canonical.as_str(), fact.format.as_str(), fact.value, fact.milli_value, fact.sign),
                "{:?}",
                fact.r#in
            );
        }
    }

    #[test]
    fn sums_differences_and_comparisons_are_upstreams() {
        for fact in facts().arithmetic {
            let (a, b) = (quantity(&fact.a), quantity(&fact.b));
            let order = match a.cmp(&b) {
                Ordering::Less => -1,
                Ordering::Equal => 0,
                Ordering::Greater => 1,
            };
            assert_eq!(
                ((a.clone() + &b).to_string(), (a.clone() - &b).to_string(), order),
                (fact.sum, fact.diff, fact.cmp),
                "{a} and {b}"
            );
        }
    }

    #[test]
    fn a_bad_quantity_says_which_part_is_bad() {
        for (text, error) in [
            ("", ParseQuantityError::Format),
            ("1 Mi", ParseQuantityError::Format),
            ("1.1.1", ParseQuantityError::Format),
            ("--1", ParseQuantityError::Suffix),
            ("1K", ParseQuantityError::Suffix),
            ("1e", ParseQuantityError::Suffix),
            ("1e9223372036854775808", ParseQuantityError::Suffix),
            ("Ei", ParseQuantityError::Numeric),
            (".e-10", ParseQuantityError::Numeric),
        ] {
            assert_eq!(text.parse::<Quantity>().unwrap_err(), error, "{text:?}");
        }
        assert_eq!(
            ParseQuantityError::Format.to_string(),
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        );
    }

    #[test]
    fn digits_beyond_nano_round_up_however_many_there_are() {
        let tail = "0".repeat(1000);
        assert_eq!(quantity(&format!("1.{tail}1")).to_string(), "1000000001n");
        assert_eq!(quantity(&format!("1.{tail}0")).to_string(), "1");
        assert_eq!(quantity(&format!("2.{tail}1Ki")).to_string(), "2048000000001n");
        assert_eq!(quantity("1e-1000").to_string(), "1e-9");
        assert_eq!(quantity("-1e-1000").to_string(), "-1e-9");
    }

    #[test]
    fn numbers_beyond_128_bits_keep_their_order() {
        let ascending = ["-1e2147483647", "-1", "0", "9E", "1e40", "12345678901234567890e1000", "1e1020"];
        for pair in ascending.windows(2) {
            assert!(quantity(pair[0]) < quantity(pair[1]), "{pair:?}");
        }
        assert_eq!(quantity("12345678901234567890e1000").to_string(), "123456789012345678900e999");
    }

    #[test]
    fn an_amount_can_be_made_from_a_number_and_a_format() {
        assert_eq!(Quantity::from_value(1024).to_string(), "1024");
        assert_eq!(Quantity::from_value(1024).with_format(QuantityFormat::BinarySi).to_string(), "1Ki");
        assert_eq!(
            Quantity::from_value(1000).with_format(QuantityFormat::DecimalExponent).to_string(),
            "1e3"
        );
        assert_eq!(Quantity::from_milli(1500).to_string(), "1500m");
        assert_eq!(Quantity::from_milli(2000), Quantity::from_value(2));
        assert_eq!((-Quantity::from_value(i64::MIN)).to_string(), "9223372036854775808");
    }

    #[test]
    fn rounding_up_changes_the_spelling_only_of_what_it_changes() {
        assert_eq!(quantity("1.2345").rounded_up(-3).to_string(), "1235m");
        assert_eq!(quantity("-1.2345").rounded_up(-3).to_string(), "-1235m");
        assert_eq!(quantity("1.234").rounded_up(-3).to_string(), "1.234");
    }

    #[test]
    fn a_quantity_is_read_from_a_string_or_a_number_and_written_as_a_string() {
        for (json, text) in [
            (r#""100m""#, "100m"),
            (r#"" 1.5Gi ""#, "1536Mi"),
            ("2", "2"),
            ("-3", "-3"),
            ("18446744073709551615", "18446744073709551615"),
            ("1.5", "1500m"),
            ("1e21", "1e+21"),
            ("1e-7", "100e-9"),
            ("null", "0"),
        ] {
            let quantity: Quantity = serde_json::from_str(json).unwrap();
            assert_eq!(serde_json::to_string(&quantity).unwrap(), format!("{text:?}"), "{json}");
        }
        assert_eq!(
            serde_json::from_str::<Quantity>("[]").unwrap_err().to_string(),
            "invalid type: sequence, expected a quantity such as \"250m\", \"64Mi\" or 2 at line 1 column 2"
        );
    }

    #[test]
    fn a_quantity_takes_sixteen_bytes() {
        assert_eq!(size_of::<Quantity>(), 16);
    }

    /// Below 10^28, so that a sum of several still has its nanos within 128 bits.
    fn any_quantity() -> impl Strategy<Value = Quantity> {
        "[+-]?[0-9]{0,10}(\\.[0-9]{0,12})?([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9])?"
            .prop_filter_map("not a quantity", |text| text.parse().ok())
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = text.parse::<Quantity>();
        }

        #[test]
        fn nothing_written_like_a_quantity_panics(
            left in "[+-]?[0-9.]{0,60}[eEinumkKMGTP]{0,2}[+-]?[0-9]{0,10}",
            right in "[+-]?[0-9.]{0,60}[eEinumkKMGTP]{0,2}[+-]?[0-9]{0,10}",
            scale in any::<i32>(),
        ) {
            if let (Ok(left), Ok(right)) = (left.parse::<Quantity>(), right.parse::<Quantity>()) {
                let _ = (left.value(), left.milli_value(), left.scaled_value(scale), left.cmp(&right));
                let _ = (left.clone() + &right).to_string();
                let _ = (right - &left).rounded_up(scale).to_string();
            }
        }

        #[test]
        fn the_canonical_form_is_the_same_quantity(quantity in any_quantity()) {
            prop_assume!(quantity.scaled_value(18).abs() < 1000);
            let again: Quantity = quantity.to_string().parse().unwrap();
            prop_assert_eq!(again.to_string(), quantity.to_string());
            prop_assert_eq!(again, quantity);
        }

        #[test]
        fn ordering_agrees_with_the_sign_of_the_difference(left in any_quantity(), right in any_quantity()) {
            let order = left.cmp(&right);
            prop_assert_eq!(order, right.cmp(&left).reverse());
            prop_assert_eq!((left - &right).sign().cmp(&0), order);
        }

        #[test]
        fn adding_the_same_keeps_the_order(
            left in any_quantity(),
            right in any_quantity(),
            same in any_quantity(),
        ) {
            let order = left.cmp(&right);
            prop_assert_eq!((left + &same).cmp(&(right + &same)), order);
        }

        #[test]
        fn what_is_added_can_be_subtracted(left in any_quantity(), right in any_quantity()) {
            prop_assert_eq!(left.clone() + &right - &right, left.clone());
            prop_assert_eq!(-(-left.clone()), left);
        }
    }
}
