//! [`Time`] and [`MicroTime`]: moments, as Kubernetes writes them.

use std::{fmt, num::NonZeroI64, str::FromStr};

use jiff::{Timestamp, civil};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A moment, to the second. What is finer is dropped when it is read, because upstream drops it when it writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(Moment);

impl Time {
    /// A moment by its seconds since 1970.
    pub const fn from_unix_seconds(seconds: i64) -> Time {
        Time(Moment::new(seconds))
    }

    /// The seconds since 1970.
    pub const fn unix_seconds(self) -> i64 {
        self.0.get()
    }
}

/// A moment, to the microsecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MicroTime(Moment);

impl MicroTime {
    /// A moment by its microseconds since 1970.
    pub const fn from_unix_microseconds(microseconds: i64) -> MicroTime {
        MicroTime(Moment::new(microseconds))
    }

    /// The microseconds since 1970.
    pub const fn unix_microseconds(self) -> i64 {
        self.0.get()
    }
}

/// A count that leaves room for "none" in its 64 bits: it is one more than it says, from 1970 on, and so never 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Moment(NonZeroI64);

impl Moment {
    /// The last count there is has no place of its own.
    const fn new(count: i64) -> Moment {
        let shifted = if count >= 0 { count.saturating_add(1) } else { count };
        match NonZeroI64::new(shifted) {
            Some(shifted) => Moment(shifted),
            None => Moment(NonZeroI64::MIN),
        }
    }

    const fn get(self) -> i64 {
        let shifted = self.0.get();
        if shifted > 0 { shifted - 1 } else { shifted }
    }
}

impl Default for Moment {
    fn default() -> Moment {
        Moment::new(0)
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(formatter)
    }
}

/// A text that is no moment in the form of RFC 3339.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a time such as \"2006-01-02T15:04:05Z\"")]
pub struct ParseTimeError;

impl FromStr for Time {
    type Err = ParseTimeError;

    fn from_str(text: &str) -> Result<Time, ParseTimeError> {
        let moment = rfc3339(text.as_bytes()).ok_or(ParseTimeError)?;
        Ok(moment.into())
    }
}

impl FromStr for MicroTime {
    type Err = ParseTimeError;

    fn from_str(text: &str) -> Result<MicroTime, ParseTimeError> {
        let moment = rfc3339(text.as_bytes()).ok_or(ParseTimeError)?;
        Ok(moment.into())
    }
}

impl From<Timestamp> for Time {
    fn from(moment: Timestamp) -> Time {
        // A timestamp is cut towards 1970; a moment before that belongs to the second in which it is.
        Time::from_unix_seconds(moment.as_nanosecond().div_euclid(1_000_000_000) as i64)
    }
}

impl From<Timestamp> for MicroTime {
    fn from(moment: Timestamp) -> MicroTime {
        MicroTime::from_unix_microseconds(moment.as_nanosecond().div_euclid(1_000) as i64)
    }
}

/// What is beyond the years that a timestamp can hold is cut off.
impl From<Time> for Timestamp {
    fn from(time: Time) -> Timestamp {
        beyond(Timestamp::from_second(time.unix_seconds()), time.unix_seconds())
    }
}

/// What is beyond the years that a timestamp can hold is cut off.
impl From<MicroTime> for Timestamp {
    fn from(time: MicroTime) -> Timestamp {
        beyond(Timestamp::from_microsecond(time.unix_microseconds()), time.unix_microseconds())
    }
}

fn beyond(moment: Result<Timestamp, jiff::Error>, count: i64) -> Timestamp {
    moment.unwrap_or(if count < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

impl fmt::Display for Time {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:.0}", Timestamp::from(*self))
    }
}

impl fmt::Display for MicroTime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:.6}", Timestamp::from(*self))
    }
}

/// Reads what Go's parser takes for RFC 3339, which is a little more than the standard: the hour may have one
/// digit, and a comma may stand before the fraction.
fn rfc3339(text: &[u8]) -> Option<Timestamp> {
    let mut rest = text;
    let year = number(&mut rest, 4)?;
    let month = number(after(&mut rest, b'-')?, 2)?;
    let day = number(after(&mut rest, b'-')?, 2)?;
    let hour = hour(after(&mut rest, b'T')?)?;
    let minute = number(after(&mut rest, b':')?, 2)?;
    let second = number(after(&mut rest, b':')?, 2)?;
    let nanosecond = fraction(&mut rest)?;
    let offset = offset_seconds(rest)?;

    let date = civil::Date::new(year as i16, month as i8, day as i8).ok()?;
    let time = civil::Time::new(hour as i8, minute as i8, second as i8, nanosecond as i32).ok()?;
    let utc = date.to_datetime(time).to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp();
    utc.checked_sub(jiff::SignedDuration::from_secs(offset)).ok()
}

fn number(rest: &mut &[u8], digits: usize) -> Option<u32> {
    let (head, tail) = rest.split_at_checked(digits)?;
    *rest = tail;
    head.iter()
        .try_fold(0, |number, byte| byte.is_ascii_digit().then(|| number * 10 + u32::from(byte - b'0')))
}

fn hour(rest: &mut &[u8]) -> Option<u32> {
    let digits = if rest.get(1).is_some_and(u8::is_ascii_digit) { 2 } else { 1 };
    number(rest, digits)
}

fn after<'r, 't>(rest: &'r mut &'t [u8], byte: u8) -> Option<&'r mut &'t [u8]> {
    *rest = rest.strip_prefix(&[byte])?;
    Some(rest)
}

/// Nanoseconds; what is finer is dropped.
fn fraction(rest: &mut &[u8]) -> Option<u32> {
    let Some((b'.' | b',', tail)) = rest.split_first() else { return Some(0) };
    let length = tail.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, tail) = tail.split_at(length);
    *rest = tail;
    let digit = |index: usize| u32::from(digits.get(index).map_or(0, |byte| byte - b'0'));
    (length > 0).then(|| (0..9).fold(0, |number, index| number * 10 + digit(index)))
}

fn offset_seconds(mut rest: &[u8]) -> Option<i64> {
    let sign = match rest {
        b"Z" => return Some(0),
        [b'+', ..] => 1,
        [b'-', ..] => -1,
        _ => return None,
    };
    rest = &rest[1..];
    let hours = number(&mut rest, 2).filter(|hours| *hours <= 24)?;
    let minutes = number(after(&mut rest, b':')?, 2).filter(|minutes| *minutes <= 60)?;
    rest.is_empty().then_some(sign * i64::from(hours * 3600 + minutes * 60))
}

macro_rules! text_on_the_wire {
    ($($type:ty),*) => { $(
        impl crate::object::Absent for $type {}

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                deserializer.deserialize_str(TimeVisitor).map(<$type>::from)
            }
        }
    )* };
}

text_on_the_wire!(Time, MicroTime);

struct TimeVisitor;

impl de::Visitor<'_> for TimeVisitor {
    type Value = Timestamp;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a time such as \"2006-01-02T15:04:05Z\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Timestamp, E> {
        rfc3339(text.as_bytes()).ok_or_else(|| E::custom(ParseTimeError))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_go_reads_is_read_and_written_as_go_writes_it() {
        for (text, written, micro) in [
            ("2026-11-15T03:48:00Z", "2026-11-15T03:48:00Z", "2026-11-15T03:48:00.000000Z"),
            ("2026-11-15T03:48:00.123456789Z", "2026-11-15T03:48:00Z", "2026-11-15T03:48:00.123456Z"),
            ("2026-11-15T03:48:00.1+02:00", "2026-11-15T01:48:00Z", "2026-11-15T01:48:00.100000Z"),
            ("2026-11-15T03:48:00,5-01:30", "2026-11-15T05:18:00Z", "2026-11-15T05:18:00.500000Z"),
            ("2026-11-15T3:48:00Z", "2026-11-15T03:48:00Z", "2026-11-15T03:48:00.000000Z"),
            ("1969-12-31T23:59:59.5Z", "1969-12-31T23:59:59Z", "1969-12-31T23:59:59.500000Z"),
            ("2024-02-29T00:00:00+24:00", "2024-02-28T00:00:00Z", "2024-02-28T00:00:00.000000Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000000Z"),
            ("9999-12-30T21:59:59Z", "9999-12-30T21:59:59Z", "9999-12-30T21:59:59.000000Z"),
        ] {
            assert_eq!(text.parse::<Time>().unwrap().to_string(), written, "{text}");
            assert_eq!(text.parse::<MicroTime>().unwrap().to_string(), micro, "{text}");
        }
    }

    #[test]
    fn a_time_that_may_be_absent_takes_eight_bytes() {
        assert_eq!((size_of::<Option<Time>>(), size_of::<Option<MicroTime>>()), (8, 8));
        for count in [i64::MIN, -2, -1, 0, 1, 2, i64::MAX - 1] {
            assert_eq!(Time::from_unix_seconds(count).unix_seconds(), count);
        }
        assert_eq!(Time::default(), Time::from_unix_seconds(0));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "Z",
            "2026",
            "2026-11-15",
            "2026-11-15T03:48:00",
            "2026-11-15 03:48:00Z",
            "2026-11-15t03:48:00z",
            "2026-11-31T00:00:00Z",
            "2023-02-29T00:00:00Z",
            "2026-00-15T03:48:00Z",
            "2026-11-15T24:00:00Z",
            "2026-11-15T03:60:00Z",
            "2026-11-15T03:48:60Z",
            "2026-11-15T03:48:00.Z",
            "2026-11-15T03:48:00+0200",
            "2026-11-15T03:48:00+25:00",
            "2026-11-15T03:48:00+02:61",
            "2026-11-15T03:48:00Z ",
            "26-11-15T03:48:00Z",
            "2026-11-15T03:4é:00Z",
            "+2026-11-15T03:48:00Z",
        ] {
            assert_eq!(text.parse::<Time>(), Err(ParseTimeError), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn every_moment_is_read_as_it_was_written(seconds in -62_135_596_800_i64..253_402_207_200, micros in 0..1_000_000_i64) {
            let time = Time::from_unix_seconds(seconds);
            prop_assert_eq!(time.to_string().parse::<Time>().unwrap(), time);
            let time = MicroTime::from_unix_microseconds(seconds * 1_000_000 + micros);
            prop_assert_eq!(time.to_string().parse::<MicroTime>().unwrap(), time);
        }

        #[test]
        fn no_text_panics(text in "\\PC*", similar in "[0-9TZ:.+-]{0,40}", seconds: i64) {
            let _ = (text.parse::<Time>(), similar.parse::<Time>());
            let _ = Time::from_unix_seconds(seconds).to_string();
            let _ = MicroTime::from_unix_microseconds(seconds).to_string();
        }
    }
}
