//! What of a file is given to who has a part of it or an older one, as Go's file server decides it.
//!
//! One range is given; who asks for several at once gets the file, as the protocol allows. Files have no tags here.

use std::ops::Range;

use axum::http::HeaderMap;
use axum::http::header::{
    HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE,
};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// How a time is written in a header, the first as it is written today.
const TIME_FORMATS: [&str; 3] =
    ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];

/// What is given of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Given {
    Whole,
    Part(Range<u64>),
    /// Who asks has it as it is.
    NotModified,
    /// It is not what who asks wants something of.
    ConditionFailed,
    /// There is no such part.
    NoOverlap,
    NoRange,
}

/// A time as a header has it.
pub(crate) fn http_date(time: Timestamp) -> String {
    time.strftime(TIME_FORMATS[0]).to_string()
}

/// What is given of a file of this length that was last changed then.
pub(crate) fn given(headers: &HeaderMap, modified: Timestamp, length: u64) -> Given {
    let is_as_wanted = match text(headers, IF_MATCH) {
        Some(tags) => means_any(tags),
        None => is_modified_since(headers, IF_UNMODIFIED_SINCE, modified) != Some(true),
    };
    if !is_as_wanted {
        return Given::ConditionFailed;
    }
    let is_known = match text(headers, IF_NONE_MATCH) {
        Some(tags) => means_any(tags),
        None => is_known(headers, modified),
    };
    if is_known {
        return Given::NotModified;
    }
    let of_this = text(headers, IF_RANGE)
        .is_none_or(|text| time(text).is_some_and(|time| time.as_second() == modified.as_second()));
    match text(headers, RANGE).filter(|_| of_this) {
        Some(ranges) => part(ranges, length),
        None => Given::Whole,
    }
}

/// Whether who asks has seen it since it was last changed.
pub(crate) fn is_known(headers: &HeaderMap, modified: Timestamp) -> bool {
    is_modified_since(headers, IF_MODIFIED_SINCE, modified) == Some(false)
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok().filter(|text| !text.is_empty())
}

fn time(text: &str) -> Option<Timestamp> {
    let read = |format| DateTime::strptime(format, text).ok()?.to_zoned(TimeZone::UTC).ok();
    TIME_FORMATS.into_iter().find_map(read).map(|time| time.timestamp())
}

/// Headers have no fractions of seconds. A time that is not known says nothing.
fn is_modified_since(headers: &HeaderMap, name: HeaderName, modified: Timestamp) -> Option<bool> {
    let since = time(text(headers, name)?)?;
    (modified != Timestamp::UNIX_EPOCH).then(|| modified.as_second() > since.as_second())
}

/// Whether a list of tags has the one that means any. What comes behind no tag is not looked at.
fn means_any(tags: &str) -> bool {
    let mut rest = tags;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if rest.starts_with('*') {
            return true;
        }
        let tag = rest.strip_prefix("W/").unwrap_or(rest).strip_prefix('"');
        match tag.and_then(|tag| tag.split_once('"')) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
}

fn part(ranges: &str, length: u64) -> Given {
    let Some(ranges) = ranges.strip_prefix("bytes=") else { return Given::NoRange };
    let (mut found, mut count, mut is_beyond) = (None, 0_usize, false);
    for range in
        ranges.split(',').map(|range| range.trim_matches([' ', '\t'])).filter(|range| !range.is_empty())
    {
        match one_range(range, length) {
            Some(Some(range)) => {
                count += 1;
                found = Some(range);
            }
            Some(None) => is_beyond = true,
            None => return Given::NoRange,
        }
    }
    match (found, count) {
        (Some(range), 1) => Given::Part(range),
        // Some ask for a part of whatever they ask for.
        (None, _) if is_beyond && length > 0 => Given::NoOverlap,
        _ => Given::Whole,
    }
}

/// A range; none of its own where it begins behind the end of the file.
fn one_range(text: &str, length: u64) -> Option<Option<Range<u64>>> {
    let number = |text: &str| {
        let text = text.trim_matches([' ', '\t']);
        let number = text.parse::<i64>().ok()?;
        u64::try_from(number).ok()
    };
    let (start, end) = text.split_once('-')?;
    if start.trim_matches([' ', '\t']).is_empty() {
        // So many at the end.
        let last = number(end)?.min(length);
        return Some(Some(length - last..length));
    }
    let start = number(start)?;
    if start >= length {
        return Some(None);
    }
    let end = match end.trim_matches([' ', '\t']).is_empty() {
        true => length,
        false => number(end)?.checked_add(1)?,
    };
    (start < end).then(|| Some(start..end.min(length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: u64 = 10;

    fn judged(headers: &[(HeaderName, &str)]) -> Given {
        let headers = headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
        given(&headers, "2026-11-18T13:00:00.5Z".parse().unwrap(), LENGTH)
    }

    #[test]
    fn a_part_is_given_as_go_reads_ranges() {
        for (range, expected) in [
            ("bytes=0-3", Given::Part(0..4)),
            ("bytes=4-", Given::Part(4..10)),
            ("bytes=-3", Given::Part(7..10)),
            ("bytes=-30", Given::Part(0..10)),
            ("bytes=-0", Given::Part(10..10)),
            ("bytes= 2 - 100 ", Given::Part(2..10)),
            ("bytes=,5-5,", Given::Part(5..6)),
            ("bytes=10-", Given::NoOverlap),
            ("bytes=10-,20-30", Given::NoOverlap),
            ("bytes=10-,1-2", Given::Part(1..3)),
            ("bytes=0-1,3-4", Given::Whole),
            ("bytes=", Given::Whole),
            ("bytes=3-2", Given::NoRange),
            ("bytes=a-b", Given::NoRange),
            ("bytes=-", Given::NoRange),
            ("bytes=--2", Given::NoRange),
            ("bytes=5", Given::NoRange),
            ("bytes=99999999999999999999-", Given::NoRange),
            ("lines=0-3", Given::NoRange),
        ] {
            assert_eq!(judged(&[(RANGE, range)]), expected, "{range}");
        }
        assert_eq!(part("bytes=0-3", 0), Given::Whole, "of an empty file");
    }

    #[test]
    fn who_has_it_as_it_is_gets_nothing_and_who_wants_another_neither() {
        let (before, then, after) = (
            "Wed, 18 Nov 2026 12:59:59 GMT",
            "Wed, 18 Nov 2026 13:00:00 GMT",
            "Wed, 18 Nov 2026 13:00:01 GMT",
        );
        for (headers, expected) in [
            (&[(IF_MODIFIED_SINCE, before)][..], Given::Whole),
            (&[(IF_MODIFIED_SINCE, then)], Given::NotModified),
            (&[(IF_MODIFIED_SINCE, after)], Given::NotModified),
            (&[(IF_MODIFIED_SINCE, "Wednesday, 18-Nov-26 13:00:00 GMT")], Given::NotModified),
            (&[(IF_MODIFIED_SINCE, "Wed Nov 18 13:00:00 2026")], Given::NotModified),
            (&[(IF_MODIFIED_SINCE, "today")], Given::Whole),
            (&[(IF_NONE_MATCH, "\"a\""), (IF_MODIFIED_SINCE, then)], Given::Whole),
            (&[(IF_NONE_MATCH, "W/\"a\", *")], Given::NotModified),
            (&[(IF_NONE_MATCH, "a, *")], Given::Whole),
            (&[(IF_UNMODIFIED_SINCE, before)], Given::ConditionFailed),
            (&[(IF_UNMODIFIED_SINCE, then)], Given::Whole),
            (&[(IF_MATCH, "\"a\"")], Given::ConditionFailed),
            (&[(IF_MATCH, "*"), (IF_UNMODIFIED_SINCE, before)], Given::Whole),
            (&[(RANGE, "bytes=1-2"), (IF_RANGE, then)], Given::Part(1..3)),
            (&[(RANGE, "bytes=1-2"), (IF_RANGE, after)], Given::Whole),
            (&[(RANGE, "bytes=1-2"), (IF_RANGE, "\"a\"")], Given::Whole),
            (&[(RANGE, "bytes=99-"), (IF_MODIFIED_SINCE, then)], Given::NotModified),
        ] {
            assert_eq!(judged(headers), expected, "{headers:?}");
        }
        let headers = HeaderMap::from_iter([(IF_MODIFIED_SINCE, then.parse().unwrap())]);
        assert_eq!(given(&headers, Timestamp::UNIX_EPOCH, LENGTH), Given::Whole, "a time that is not known");
    }
}
