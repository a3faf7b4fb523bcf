//! Times, read as Go's `time.Parse` reads them, with its words for what is wrong.

use jiff::civil::DateTime;
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};

const SECONDS: &str = "2006-01-02T15:04:05Z07:00";
const MICROSECONDS: &str = "2006-01-02T15:04:05.000000Z07:00";

/// A time as it is written in objects; none for the zero time, which is written as null.
pub(crate) fn canonical(text: &str, micro: bool) -> Result<Option<String>, String> {
    let layout = if micro { MICROSECONDS } else { SECONDS };
    let failed = |rest: &str, element: &str| {
        format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {element:?}")
    };
    let range = |what: &str| format!("parsing time {text:?}: {what} out of range");
    let mut rest = text;
    let mut elements = [0i64; 6];
    for (index, (element, digits, separator, lowest, highest, what)) in ELEMENTS.into_iter().enumerate() {
        if !separator.is_empty() {
            rest = rest.strip_prefix(separator).ok_or_else(|| failed(rest, separator))?;
        }
        // Go takes an hour of one digit.
        let digits = match element {
            "15" if !starts_with_digits(rest, 2) => 1,
            _ => digits,
        };
        if !starts_with_digits(rest, digits) {
            return Err(failed(rest, element));
        }
        let (number, after) = rest.split_at(digits);
        let number = number.parse().unwrap_or_default();
        if !(lowest..=highest).contains(&number) {
            return Err(range(what));
        }
        elements[index] = number;
        rest = after;
    }
    let mut nanoseconds = 0i64;
    if micro {
        let fraction = rest.strip_prefix('.').filter(|digits| starts_with_digits(digits, 6));
        let fraction = fraction.ok_or_else(|| failed(rest, ".000000"))?;
        let (digits, after) = fraction.split_at(6);
        nanoseconds = digits.parse::<i64>().unwrap_or_default() * 1000;
        rest = after;
    } else if let Some(fraction) = rest.strip_prefix(['.', ',']).filter(|rest| starts_with_digits(rest, 1)) {
        // Go reads a fraction that its layout does not have; seconds are all that is kept.
        rest = fraction.trim_start_matches(|letter: char| letter.is_ascii_digit());
    }
    let offset = match rest.strip_prefix('Z') {
        Some(after) => {
            rest = after;
            0
        }
        None => {
            let (offset, after) = offset(rest).ok_or_else(|| failed(rest, "Z07:00"))?;
            rest = after;
            offset.ok_or_else(|| range("time zone offset"))?
        }
    };
    if !rest.is_empty() {
        return Err(format!("parsing time {text:?}: extra text: {rest:?}"));
    }
    let [year, month, day, hour, minute, second] = elements;
    let civil = DateTime::new(
        year as i16,
        month as i8,
        day as i8,
        hour as i8,
        minute as i8,
        second as i8,
        nanoseconds as i32,
    );
    let civil = civil.map_err(|_| range("day"))?;
    // The edges of all time: what an offset moves beyond them is no time of an object.
    let utc = civil.checked_sub(SignedDuration::from_secs(offset)).map_err(|_| range("day"))?;
    Ok(written(utc, micro))
}

/// A time of protobuf; none for one that no object can have.
pub(crate) fn from_seconds(seconds: i64, nanoseconds: i32, micro: bool) -> Option<String> {
    let timestamp = Timestamp::new(seconds, if micro { nanoseconds } else { 0 }).ok()?;
    written(Offset::UTC.to_datetime(timestamp), micro)
}

fn written(utc: DateTime, micro: bool) -> Option<String> {
    let zero = (utc.year(), utc.month(), utc.day()) == (1, 1, 1)
        && (utc.hour(), utc.minute(), utc.second(), utc.subsec_nanosecond()) == (0, 0, 0, 0);
    if zero {
        return None;
    }
    let (date, time) = (utc.date(), utc.time());
    let fraction = match micro {
        true => format!(".{:06}", utc.subsec_nanosecond() / 1000),
        false => String::new(),
    };
    Some(format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{fraction}Z",
        date.year(),
        date.month(),
        date.day(),
        time.hour(),
        time.minute(),
        time.second()
    ))
}

/// As Go's layout names an element, its digits, what stands before it, its range, and what its range is called.
const ELEMENTS: [(&str, usize, &str, i64, i64, &str); 6] = [
    ("2006", 4, "", 0, 9999, "year"),
    ("01", 2, "-", 1, 12, "month"),
    ("02", 2, "-", 1, 31, "day"),
    ("15", 2, "T", 0, 23, "hour"),
    ("04", 2, ":", 0, 59, "minute"),
    ("05", 2, ":", 0, 59, "second"),
];

fn starts_with_digits(text: &str, count: usize) -> bool {
    text.len() >= count && text.as_bytes()[..count].iter().all(u8::is_ascii_digit)
}

/// `+07:00` in seconds, if it is in range, and what follows.
fn offset(text: &str) -> Option<(Option<i64>, &str)> {
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let hours = &text[1..];
    if !starts_with_digits(hours, 2) || !starts_with_digits(hours.get(3..)?, 2) || hours.as_bytes()[2] != b':'
    {
        return None;
    }
    let (hour, minute): (i64, i64) = (hours[..2].parse().ok()?, hours[3..5].parse().ok()?);
    let seconds = (hour <= 24 && minute < 60).then_some(sign * (hour * 3600 + minute * 60));
    Some((seconds, &hours[5..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_read_and_written_as_go_does() {
        for (text, micro, expected) in [
            ("2024-02-29T12:34:56Z", false, "2024-02-29T12:34:56Z"),
            ("2024-02-29T12:34:56.789Z", false, "2024-02-29T12:34:56Z"),
            ("2024-02-29T23:34:56+01:30", false, "2024-02-29T22:04:56Z"),
            ("2024-02-29T23:34:56-01:00", false, "2024-03-01T00:34:56Z"),
            ("2024-02-29T12:34:56.123456Z", true, "2024-02-29T12:34:56.123456Z"),
            ("0001-01-01T00:00:00Z", false, "null"),
            (
                "yesterday",
                false,
                r#"parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006""#,
            ),
            (
                "2024-02-29",
                false,
                r#"parsing time "2024-02-29" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#,
            ),
            (
                "2024-02-29T12:34:56",
                false,
                r#"parsing time "2024-02-29T12:34:56" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00""#,
            ),
            ("2024-13-01T00:00:00Z", false, r#"parsing time "2024-13-01T00:00:00Z": month out of range"#),
            ("2023-02-29T00:00:00Z", false, r#"parsing time "2023-02-29T00:00:00Z": day out of range"#),
            ("2024-02-29T12:34:56Zx", false, r#"parsing time "2024-02-29T12:34:56Zx": extra text: "x""#),
            (
                "2024-02-29T12:34:56Z",
                true,
                r#"parsing time "2024-02-29T12:34:56Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#,
            ),
        ] {
            let written = canonical(text, micro).map(|time| time.unwrap_or_else(|| "null".to_owned()));
            assert_eq!(written.unwrap_or_else(|error| error), expected, "{text}");
        }
        assert_eq!(from_seconds(1_700_000_000, 123_456_789, true).unwrap(), "2023-11-14T22:13:20.123456Z");
        assert_eq!(from_seconds(1_700_000_000, 123_456_789, false).unwrap(), "2023-11-14T22:13:20Z");
        assert_eq!(from_seconds(i64::MAX, 0, false), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*", micro: bool) {
            let _ = canonical(&text, micro);
        }

        #[test]
        fn nothing_written_like_a_time_panics(
            text in "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.,][0-9]{0,9})?(Z|[+-][0-9é:]{0,6})?",
            micro: bool,
        ) {
            let _ = canonical(&text, micro);
        }
    }
}
