//! [`GoDuration`]: a span of time as Go writes it, such as `1h30m`.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000 * MICROSECOND;
const SECOND: u64 = 1_000 * MILLISECOND;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// The magnitude of the most negative duration, one more than that of the longest.
const LIMIT: u64 = 1 << 63;

/// A span of time in whole nanoseconds, possibly negative, read and written as Go's `time.Duration` is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(i64);

impl GoDuration {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A number of seconds; what is beyond the some 292 years a duration can hold is cut off.
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(SECOND as i64))
    }

    /// A number of milliseconds, cut off like `from_secs`.
    pub const fn from_millis(milliseconds: i64) -> Self {
        Self(milliseconds.saturating_mul(MILLISECOND as i64))
    }

    /// A number of nanoseconds.
    pub const fn from_nanos(nanoseconds: i64) -> Self {
        Self(nanoseconds)
    }

    /// The span in nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Whether this is no time at all.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Whether this is below zero.
    pub const fn is_negative(self) -> bool {
        self.0 < 0
    }

    /// The same span for waiting with; a negative one is zero.
    pub fn to_std(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }
}

/// A duration that is configured as text or as an integer of nanoseconds, and written back the way it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeOrGoDuration {
    /// The duration itself.
    pub duration: GoDuration,
    /// Whether it is written as text.
    pub serialize_as_string: bool,
}

/// Why a text is not a duration; the messages are Go's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseDurationError {
    /// The text is not a sequence of numbers with units, or too long a time.
    #[error("time: invalid duration {}", quote(.text))]
    Invalid {
        /// The whole text.
        text: String,
    },
    /// A number is not followed by a unit.
    #[error("time: missing unit in duration {}", quote(.text))]
    MissingUnit {
        /// The whole text.
        text: String,
    },
    /// A number is followed by something that is not a unit.
    #[error("time: unknown unit {} in duration {}", quote(.unit), quote(.text))]
    UnknownUnit {
        /// What is not a unit.
        unit: String,
        /// The whole text.
        text: String,
    },
}

/// Go escapes every byte of a character that is not printable ASCII.
fn quote(text: &str) -> String {
    let mut quoted = String::from('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', byte.into()]),
            b' '..=0x7f => quoted.push(byte.into()),
            0..b' ' | 0x80.. => quoted.push_str(&format!("\\x{byte:02x}")),
        }
    }
    quoted.push('"');
    quoted
}

impl FromStr for GoDuration {
    type Err = ParseDurationError;

    fn from_str(text: &str) -> Result<Self, ParseDurationError> {
        let invalid = || ParseDurationError::Invalid { text: text.to_owned() };
        let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
        if rest == "0" {
            return Ok(Self::ZERO);
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let number = Number::split(rest).ok_or_else(invalid)?;
            let unit_end = number.rest.find(|next: char| next == '.' || next.is_ascii_digit());
            let (unit, after) = number.rest.split_at(unit_end.unwrap_or(number.rest.len()));
            if unit.is_empty() {
                return Err(ParseDurationError::MissingUnit { text: text.to_owned() });
            }
            let unit = unit_nanoseconds(unit).ok_or_else(|| ParseDurationError::UnknownUnit {
                unit: unit.to_owned(),
                text: text.to_owned(),
            })?;
            let part = number.times(unit).ok_or_else(invalid)?;
            total = total.checked_add(part).filter(|total| *total <= LIMIT).ok_or_else(invalid)?;
            rest = after;
        }
        if text.starts_with('-') {
            Ok(Self(0_i64.wrapping_sub_unsigned(total)))
        } else {
            i64::try_from(total).map(Self).map_err(|_| invalid())
        }
    }
}

/// A decimal number at the start of a text, and what follows it.
struct Number<'a> {
    integer: u64,
    fraction: &'a str,
    rest: &'a str,
}

impl<'a> Number<'a> {
    fn split(text: &'a str) -> Option<Self> {
        let (integer, rest) = split_digits(text);
        let (fraction, rest) = match rest.strip_prefix('.') {
            Some(rest) => split_digits(rest),
            None => ("", rest),
        };
        if integer.is_empty() && fraction.is_empty() {
            return None;
        }
        let integer = integer.bytes().try_fold(0_u64, |number, digit| {
            number.checked_mul(10)?.checked_add(u64::from(digit - b'0')).filter(|number| *number <= LIMIT)
        })?;
        Some(Self { integer, fraction, rest })
    }

    /// The number in nanoseconds when it counts `unit`s of so many nanoseconds.
    fn times(&self, unit: u64) -> Option<u64> {
        let whole = self.integer.checked_mul(unit)?;
        let (fraction, scale) = self.fraction_and_scale();
        // Go calculates this in floating point, so the last nanosecond of a long fraction is as that has it.
        let part = (fraction as f64 * (unit as f64 / scale)) as u64;
        whole.checked_add(part).filter(|sum| *sum <= LIMIT)
    }

    /// The fraction as a numerator and its power of ten; Go ignores the digits that do not fit into 63 bits.
    fn fraction_and_scale(&self) -> (u64, f64) {
        let mut numerator = 0_u64;
        let mut scale = 1.0;
        for digit in self.fraction.bytes() {
            if numerator > (LIMIT - 1) / 10 {
                break;
            }
            let next = numerator * 10 + u64::from(digit - b'0');
            if next > LIMIT {
                break;
            }
            numerator = next;
            scale *= 10.0;
        }
        (numerator, scale)
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    text.split_at(end)
}

fn unit_nanoseconds(unit: &str) -> Option<u64> {
    match unit {
        "ns" => Some(1),
        // The micro sign, and the Greek letter that looks like it.
        "us" | "\u{b5}s" | "\u{3bc}s" => Some(MICROSECOND),
        "ms" => Some(MILLISECOND),
        "s" => Some(SECOND),
        "m" => Some(MINUTE),
        "h" => Some(HOUR),
        _ => None,
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let magnitude = self.0.unsigned_abs();
        if self.is_negative() {
            formatter.write_str("-")?;
        }
        match magnitude {
            0 => formatter.write_str("0s"),
            1..MICROSECOND => write!(formatter, "{magnitude}ns"),
            MICROSECOND..MILLISECOND => write!(formatter, "{}\u{b5}s", decimal(magnitude, MICROSECOND)),
            MILLISECOND..SECOND => write!(formatter, "{}ms", decimal(magnitude, MILLISECOND)),
            SECOND.. => {
                let (hours, minutes) = (magnitude / HOUR, magnitude % HOUR / MINUTE);
                if hours > 0 {
                    write!(formatter, "{hours}h")?;
                }
                if magnitude >= MINUTE {
                    write!(formatter, "{minutes}m")?;
                }
                write!(formatter, "{}s", decimal(magnitude % MINUTE, SECOND))
            }
        }
    }
}

/// A number of nanoseconds in a larger unit, without trailing zeros.
fn decimal(nanoseconds: u64, unit: u64) -> String {
    let (whole, fraction) = (nanoseconds / unit, nanoseconds % unit);
    if fraction == 0 {
        return whole.to_string();
    }
    let places = unit.ilog10() as usize;
    format!("{whole}.{fraction:0places$}").trim_end_matches('0').to_owned()
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

struct TextVisitor;

impl de::Visitor<'_> for TextVisitor {
    type Value = GoDuration;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a duration such as \"10s\" or \"1h30m\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<GoDuration, E> {
        text.parse().map_err(E::custom)
    }
}

impl Serialize for TimeOrGoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.serialize_as_string {
            self.duration.serialize(serializer)
        } else {
            serializer.serialize_i64(self.duration.as_nanos())
        }
    }
}

impl<'de> Deserialize<'de> for TimeOrGoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrNanosecondsVisitor)
    }
}

struct TextOrNanosecondsVisitor;

impl de::Visitor<'_> for TextOrNanosecondsVisitor {
    type Value = TimeOrGoDuration;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a duration such as \"10s\" or \"1h30m\", or an integer of nanoseconds")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<TimeOrGoDuration, E> {
        Ok(TimeOrGoDuration { duration: TextVisitor.visit_str(text)?, serialize_as_string: true })
    }

    fn visit_i64<E: de::Error>(self, nanoseconds: i64) -> Result<TimeOrGoDuration, E> {
        Ok(TimeOrGoDuration { duration: GoDuration::from_nanos(nanoseconds), serialize_as_string: false })
    }

    fn visit_u64<E: de::Error>(self, nanoseconds: u64) -> Result<TimeOrGoDuration, E> {
        match i64::try_from(nanoseconds) {
            Ok(nanoseconds) => self.visit_i64(nanoseconds),
            Err(_) => Err(E::invalid_value(de::Unexpected::Unsigned(nanoseconds), &self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn nanoseconds(text: &str) -> i64 {
        text.parse::<GoDuration>().unwrap_or_else(|error| panic!("{error}")).as_nanos()
    }

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, expected) in [
            ("0", 0),
            ("-0", 0),
            ("+0", 0),
            ("0s", 0),
            ("5s", 5_000_000_000),
            ("+5s", 5_000_000_000),
            ("-5s", -5_000_000_000),
            ("5.0s", 5_000_000_000),
            ("5.s", 5_000_000_000),
            (".5s", 500_000_000),
            ("10ns", 10),
            ("11us", 11_000),
            ("12\u{b5}s", 12_000),
            ("12\u{3bc}s", 12_000),
            ("13ms", 13_000_000),
            ("15m", 900_000_000_000),
            ("2h45m", 9_900_000_000_000),
            ("-1.5h", -5_400_000_000_000),
            ("10.5s4m", 250_500_000_000),
            ("0.3333333333333333333h", 1_200_000_000_000),
            ("0.9223372036854775807s", 922_337_203),
            ("0.100000000000000000000h", 360_000_000_000),
            ("9223372036854775807ns", i64::MAX),
            ("-9223372036854775808ns", i64::MIN),
            ("2562047h47m16.854775807s", i64::MAX),
        ] {
            assert_eq!(nanoseconds(text), expected, "{text}");
        }
    }

    #[test]
    fn a_bad_duration_says_what_is_wrong_as_go_does() {
        for (text, message) in [
            ("", r#"time: invalid duration """#),
            ("-", r#"time: invalid duration "-""#),
            (".s", r#"time: invalid duration ".s""#),
            ("s", r#"time: invalid duration "s""#),
            ("5", r#"time: missing unit in duration "5""#),
            ("1h5", r#"time: missing unit in duration "1h5""#),
            ("5x", r#"time: unknown unit "x" in duration "5x""#),
            ("1d", r#"time: unknown unit "d" in duration "1d""#),
            ("5 s", r#"time: unknown unit " s" in duration "5 s""#),
            ("1h-5s", r#"time: unknown unit "h-" in duration "1h-5s""#),
            ("3\u{e9}\n\"", r#"time: unknown unit "\xc3\xa9\x0a\"" in duration "3\xc3\xa9\x0a\"""#),
            ("9223372036854775808ns", r#"time: invalid duration "9223372036854775808ns""#),
            ("9223372036854775809ns", r#"time: invalid duration "9223372036854775809ns""#),
            ("3000000h", r#"time: invalid duration "3000000h""#),
        ] {
            assert_eq!(text.parse::<GoDuration>().unwrap_err().to_string(), message, "{text:?}");
        }
    }

    #[test]
    fn durations_are_written_as_go_writes_them() {
        for (nanoseconds, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1\u{b5}s"),
            (2_200_000, "2.2ms"),
            (100_000_000, "100ms"),
            (1_500_000_000, "1.5s"),
            (60_000_000_000, "1m0s"),
            (245_010_000_000, "4m5.01s"),
            (18_367_001_000_000, "5h6m7.001s"),
            (9_900_000_000_000, "2h45m0s"),
            (480_000_000_001, "8m0.000000001s"),
            (3_600_000_000_000, "1h0m0s"),
            (-1, "-1ns"),
            (i64::MAX, "2562047h47m16.854775807s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(GoDuration::from_nanos(nanoseconds).to_string(), text);
        }
    }

    #[test]
    fn seconds_and_milliseconds_are_cut_off_at_the_longest_duration() {
        assert_eq!(GoDuration::from_secs(10).as_nanos(), 10_000_000_000);
        assert_eq!(GoDuration::from_millis(10).as_nanos(), 10_000_000);
        assert_eq!(GoDuration::from_secs(i64::MAX).as_nanos(), i64::MAX);
        assert_eq!(GoDuration::from_millis(i64::MIN).as_nanos(), i64::MIN);
    }

    #[test]
    fn a_negative_duration_waits_no_time() {
        assert_eq!(GoDuration::from_millis(1500).to_std(), Duration::from_millis(1500));
        assert_eq!(GoDuration::from_secs(-1).to_std(), Duration::ZERO);
        assert!(GoDuration::from_secs(-1).is_negative() && GoDuration::ZERO.is_zero());
    }

    #[test]
    fn a_duration_in_a_document_is_text_only() {
        let duration: GoDuration = serde_json::from_str(r#""1h30m""#).unwrap();
        assert_eq!(serde_json::to_string(&duration).unwrap(), r#""1h30m0s""#);
        let error = serde_json::from_str::<GoDuration>("10").unwrap_err().to_string();
        assert!(error.contains(r#"expected a duration such as "10s" or "1h30m""#), "{error}");
    }

    #[test]
    fn a_time_or_duration_is_written_back_the_way_it_came() {
        for (json, written) in
            [(r#""5s""#, r#""5s""#), (r#""90s""#, r#""1m30s""#), ("5000000000", "5000000000")]
        {
            let duration: TimeOrGoDuration = serde_json::from_str(json).unwrap();
            assert_eq!(serde_json::to_string(&duration).unwrap(), written);
        }
        for json in ["1.5", "9223372036854775808", "true"] {
            let error = serde_json::from_str::<TimeOrGoDuration>(json).unwrap_err().to_string();
            assert!(error.contains("or an integer of nanoseconds"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*", similar in "[-+]?([0-9.]{0,25}[nu\u{b5}mshd]{0,2}){0,3}") {
            let _ = text.parse::<GoDuration>();
            let _ = similar.parse::<GoDuration>();
        }

        #[test]
        fn what_is_written_can_be_read_again(long: i64, short in -5_000_000_000_000..5_000_000_000_000_i64) {
            for nanoseconds in [long, short] {
                let duration = GoDuration::from_nanos(nanoseconds);
                prop_assert_eq!(duration.to_string().parse::<GoDuration>().unwrap(), duration);
            }
        }
    }
}
