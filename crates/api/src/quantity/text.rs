//! How a quantity is read and written.

use std::{fmt, str::FromStr};

use super::{
    ParseQuantityError, Quantity, QuantityFormat, Representation,
    amount::{Amount, times_power_of_ten},
};

/// The finest unit a quantity can be read with, as a power of ten.
const NANO: i32 = -9;

/// Where upstream cuts off a quantity with a binary suffix.
const MAX_BINARY: i64 = i64::MAX;

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, ParseQuantityError> {
        let written = Written::split(text)?;
        match written.suffix {
            "" => written.decimal(0, QuantityFormat::DecimalSi),
            "n" => written.decimal(-9, QuantityFormat::DecimalSi),
            "u" => written.decimal(-6, QuantityFormat::DecimalSi),
            "m" => written.decimal(-3, QuantityFormat::DecimalSi),
            "k" => written.decimal(3, QuantityFormat::DecimalSi),
            "M" => written.decimal(6, QuantityFormat::DecimalSi),
            "G" => written.decimal(9, QuantityFormat::DecimalSi),
            "T" => written.decimal(12, QuantityFormat::DecimalSi),
            "P" => written.decimal(15, QuantityFormat::DecimalSi),
            "E" => written.decimal(18, QuantityFormat::DecimalSi),
            "Ki" => written.binary(10),
            "Mi" => written.binary(20),
            "Gi" => written.binary(30),
            "Ti" => written.binary(40),
            "Pi" => written.binary(50),
            "Ei" => written.binary(60),
            suffix => {
                let digits = suffix.strip_prefix(['e', 'E']).ok_or(ParseQuantityError::Suffix)?;
                let exponent: i64 = digits.parse().map_err(|_| ParseQuantityError::Suffix)?;
                // Upstream drops the upper half too: 1e4294967297 is 10.
                written.decimal(exponent as i32, QuantityFormat::DecimalExponent)
            }
        }
    }
}

/// The parts of a quantity's text.
struct Written<'a> {
    text: &'a str,
    integer: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Written<'a> {
    fn split(text: &'a str) -> Result<Self, ParseQuantityError> {
        let (integer, rest) = split_digits(without_sign(text));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => split_digits(rest),
            None => ("", rest),
        };
        let exponent = suffix.trim_start_matches(|letter| "eEinumkKMGTP".contains(letter));
        let (_, garbage) = split_digits(without_sign(exponent));
        if text.is_empty() || !garbage.is_empty() {
            return Err(ParseQuantityError::Format);
        }
        Ok(Self { text, integer, fraction, suffix })
    }

    fn decimal(&self, exponent: i32, format: QuantityFormat) -> Result<Quantity, ParseQuantityError> {
        let scale = exponent.saturating_sub(i32::try_from(self.fraction.len()).unwrap_or(i32::MAX));
        if self.digit_count() <= 18 && scale >= NANO {
            let mantissa = self.small_number();
            let amount = self.signed(Amount::Narrow { mantissa, scale });
            let shown_as_given =
                scale % 3 == 0 && mantissa % 1000 != 0 && !self.significant_integer().is_empty();
            return Ok(if shown_as_given {
                Quantity::spelled(amount, format, self.text)
            } else {
                Quantity::new(amount, format)
            });
        }
        let digits = self.digits()?;
        let amount = match round_up_to_integer(&digits, scale.saturating_sub(NANO), 1) {
            Some(nanos) => wide_nanos(nanos),
            None => leading_digits(&digits, scale),
        };
        Ok(Quantity::new(self.signed(amount), format))
    }

    fn binary(&self, exponent: u32) -> Result<Quantity, ParseQuantityError> {
        let room = 14_usize.saturating_sub(exponent as usize * 3 / 10);
        if self.fraction.is_empty() && self.digit_count() <= room {
            let number = self.small_number();
            let amount = self.signed(Amount::Narrow { mantissa: number << exponent, scale: 0 });
            let shown_as_given = number % 8 != 0;
            return Ok(if shown_as_given {
                Quantity::spelled(amount, QuantityFormat::BinarySi, self.text)
            } else {
                Quantity::new(amount, QuantityFormat::BinarySi)
            });
        }
        let digits = self.digits()?;
        let shift = i32::try_from(self.fraction.len()).map_or(i32::MIN, |places| -NANO - places);
        let nanos = round_up_to_integer(&digits, shift, 1 << exponent).unwrap_or(i128::MAX);
        let unit = 10_i128.pow(NANO.unsigned_abs());
        let amount = if nanos > i128::from(MAX_BINARY) * unit {
            Amount::Wide { mantissa: MAX_BINARY.into(), scale: 0 }
        } else {
            wide_nanos(nanos)
        };
        let format =
            if 0 < nanos && nanos < unit { QuantityFormat::DecimalSi } else { QuantityFormat::BinarySi };
        Ok(Quantity::new(self.signed(amount), format))
    }

    fn signed(&self, magnitude: Amount) -> Amount {
        if self.text.starts_with('-') { magnitude.negated() } else { magnitude }
    }

    fn significant_integer(&self) -> &'a str {
        self.integer.trim_start_matches('0')
    }

    /// How many digits upstream sees: an integer part of zero, or none at all, counts as one.
    fn digit_count(&self) -> usize {
        self.significant_integer().len().max(1) + self.fraction.len()
    }

    /// The digits as a number, when there are few enough of them to fit.
    fn small_number(&self) -> i64 {
        let digits = self.significant_integer().bytes().chain(self.fraction.bytes());
        digits.fold(0, |number, digit| number * 10 + i64::from(digit - b'0'))
    }

    fn digits(&self) -> Result<String, ParseQuantityError> {
        let digits = [self.significant_integer(), self.fraction].concat();
        if self.integer.is_empty() && digits.is_empty() {
            Err(ParseQuantityError::Numeric)
        } else {
            Ok(digits)
        }
    }
}

/// Zero alone is not brought to nanos upstream, nor then is what is added to it.
fn wide_nanos(nanos: i128) -> Amount {
    Amount::Wide { mantissa: nanos, scale: if nanos == 0 { 0 } else { NANO } }
}

fn without_sign(text: &str) -> &str {
    text.strip_prefix(['+', '-']).unwrap_or(text)
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    text.split_at(end)
}

/// `digits * multiplier * 10^shift` rounded up to an integer, or `None` when that is beyond 128 bits.
fn round_up_to_integer(digits: &str, shift: i32, multiplier: i128) -> Option<i128> {
    let dropped = if shift < 0 { shift.unsigned_abs() as usize } else { 0 };
    let (kept, fraction) = digits.split_at(digits.len().saturating_sub(dropped));
    // From the last digit up, what each carries into the one before it, so that any number of digits can be
    // multiplied exactly.
    let mut carried = 0;
    let mut exact = true;
    for digit in fraction.bytes().rev() {
        let product = carried + i128::from(digit - b'0') * multiplier;
        exact &= product % 10 == 0;
        carried = product / 10;
    }
    let power = u32::try_from(shift).unwrap_or(0);
    let whole = times_power_of_ten(parse_digits(kept)?.checked_mul(multiplier)?, power)?;
    whole.checked_add(carried + i128::from(!exact))
}

/// As much of `digits * 10^scale` as 128 bits hold, rounded up.
fn leading_digits(digits: &str, scale: i32) -> Amount {
    let (kept, dropped) = digits.split_at(digits.len().min(i128::MAX.ilog10() as usize));
    let rounding = i128::from(dropped.bytes().any(|digit| digit != b'0'));
    let mantissa = parse_digits(kept).map_or(i128::MAX, |mantissa| mantissa + rounding);
    Amount::Wide { mantissa, scale: scale.saturating_add_unsigned(dropped.len() as u32) }
}

fn parse_digits(digits: &str) -> Option<i128> {
    digits
        .bytes()
        .try_fold(0_i128, |number, digit| number.checked_mul(10)?.checked_add(i128::from(digit - b'0')))
}

impl fmt::Display for Quantity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Representation::Rare(rare) = &self.0
            && let Some(spelling) = &rare.spelling
        {
            return formatter.write_str(spelling);
        }
        let amount = self.amount();
        match self.format() {
            QuantityFormat::DecimalSi => write_decimal_si(formatter, amount),
            QuantityFormat::DecimalExponent => write_decimal_exponent(formatter, amount),
            QuantityFormat::BinarySi => match binary_parts(amount) {
                Some((mantissa, suffix)) => write!(formatter, "{mantissa}{suffix}"),
                None => write_decimal_si(formatter, amount),
            },
        }
    }
}

/// The mantissa and suffix of an amount that binary suffixes can show: not below 1Ki, and without a fraction.
fn binary_parts(amount: Amount) -> Option<(i128, &'static str)> {
    let (mantissa, scale) = match amount.rounded_up(0) {
        (whole, true) => whole.parts(),
        (_, false) => return None,
    };
    let mut mantissa = times_power_of_ten(mantissa, u32::try_from(scale).ok()?)?;
    if mantissa.unsigned_abs() < 1024 {
        return None;
    }
    let mut exponent = 0;
    while mantissa % 1024 == 0 {
        mantissa /= 1024;
        exponent += 1;
    }
    // Upstream has no suffix beyond these and leaves it off.
    Some((mantissa, ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].get(exponent).copied().unwrap_or("")))
}

fn write_decimal_si(formatter: &mut fmt::Formatter<'_>, amount: Amount) -> fmt::Result {
    let (mantissa, zeros, exponent) = decimal_parts(amount);
    let suffix = match exponent {
        -9 => "n",
        -6 => "u",
        -3 => "m",
        3 => "k",
        6 => "M",
        9 => "G",
        12 => "T",
        15 => "P",
        18 => "E",
        // Upstream has no suffix beyond these and leaves it off: it prints 10^21 as 1.
        _ => "",
    };
    write!(formatter, "{mantissa}{zeros}{suffix}")
}

fn write_decimal_exponent(formatter: &mut fmt::Formatter<'_>, amount: Amount) -> fmt::Result {
    match decimal_parts(amount) {
        (mantissa, zeros, 0) => write!(formatter, "{mantissa}{zeros}"),
        (mantissa, zeros, exponent) => write!(formatter, "{mantissa}{zeros}e{exponent}"),
    }
}

/// An amount as digits, zeros to append to them, and the largest multiple of three that can be its exponent.
fn decimal_parts(amount: Amount) -> (i128, &'static str, i64) {
    let (mut mantissa, scale) = amount.parts();
    if mantissa == 0 {
        return (0, "", 0);
    }
    let mut exponent = i64::from(scale);
    while mantissa % 10 == 0 {
        mantissa /= 10;
        exponent += 1;
    }
    match exponent.rem_euclid(3) {
        0 => (mantissa, "", exponent),
        1 => (mantissa, "0", exponent - 1),
        _ => (mantissa, "00", exponent - 2),
    }
}
