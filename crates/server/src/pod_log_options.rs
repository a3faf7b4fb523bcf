//! What of a container's log a request asks for: upstream's `PodLogOptions`, from the query, decoded and checked as
//! upstream does it.

use std::time::Duration;

use crablet_logs::LogOptions;
use jiff::Timestamp;

use crate::query::values;

/// What is wanted, as it was written.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PodLogOptions {
    pub(crate) follow: bool,
    pub(crate) previous: bool,
    since_seconds: Option<i64>,
    since_time: Option<Timestamp>,
    timestamps: bool,
    tail_lines: Option<i64>,
    limit_bytes: Option<i64>,
    pub(crate) stream: Option<String>,
}

/// A query that says nothing that can be understood.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Undecodable;

impl PodLogOptions {
    pub(crate) fn decode(query: Option<&str>) -> Result<PodLogOptions, Undecodable> {
        let text = |name: &str| values(query, name).next();
        let flag =
            |name: &str| text(name).is_some_and(|text| text != "0" && !text.eq_ignore_ascii_case("false"));
        let number = |name: &str| text(name).map(|text| text.parse().map_err(|_| Undecodable)).transpose();
        let time = |name: &str| match text(name).as_deref() {
            None => Ok(None),
            // An empty time is one that is over.
            Some("" | "null") => Ok(Some(Timestamp::MIN)),
            Some(text) => text.parse().map(Some).map_err(|_| Undecodable),
        };
        // What clients of old called it.
        let tail_lines = match text("tail").as_deref() {
            None | Some("") => number("tailLines")?,
            Some("all") => None,
            Some(tail) => Some(tail.parse().map_err(|_| Undecodable)?),
        };
        Ok(PodLogOptions {
            follow: flag("follow"),
            previous: flag("previous"),
            since_seconds: number("sinceSeconds")?,
            since_time: time("sinceTime")?,
            timestamps: flag("timestamps"),
            tail_lines,
            limit_bytes: number("limitBytes")?,
            stream: text("stream"),
        })
    }

    /// Whether upstream would accept it.
    pub(crate) fn is_valid(&self) -> bool {
        let stream = self.stream.as_deref();
        let of_one_stream = matches!(stream, Some("Stdout" | "Stderr"));
        self.tail_lines.is_none_or(|lines| lines >= 0)
            && self.limit_bytes.is_none_or(|bytes| bytes >= 1)
            && self.since_seconds.is_none_or(|seconds| seconds >= 1 && self.since_time.is_none())
            && (of_one_stream || matches!(stream, None | Some("All")))
            && !(of_one_stream && self.tail_lines.is_some())
    }

    /// What it means at a time.
    pub(crate) fn at(&self, now: Timestamp) -> LogOptions {
        let count = |number: Option<i64>| number.map(|number| u64::try_from(number).unwrap_or_default());
        let ago = count(self.since_seconds).map(|seconds| {
            let ago = Duration::from_secs(seconds);
            now.checked_sub(ago).unwrap_or(Timestamp::MIN)
        });
        LogOptions {
            follow: self.follow,
            tail_lines: count(self.tail_lines),
            limit_bytes: count(self.limit_bytes),
            since: ago.max(self.since_time),
            timestamps: self.timestamps,
            stdout: self.stream.as_deref() != Some("Stderr"),
            stderr: self.stream.as_deref() != Some("Stdout"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded_and_checked_as_upstream_does_it() {
        let cases = [
            ("", "valid"),
            ("tailLines=0", "valid"),
            ("tailLines=-1", "invalid"),
            ("tailLines=x", "undecodable"),
            ("tailLines=", "undecodable"),
            ("tail=all&tailLines=-1", "valid"),
            ("tail=-1", "invalid"),
            ("limitBytes=0", "invalid"),
            ("limitBytes=1", "valid"),
            ("sinceSeconds=0", "invalid"),
            ("sinceSeconds=5", "valid"),
            ("sinceSeconds=5&sinceTime=2026-01-01T00:00:00Z", "invalid"),
            ("sinceTime=2026-01-01T00:00:00Z", "valid"),
            ("sinceTime=yesterday", "undecodable"),
            ("sinceTime=", "valid"),
            ("stream=All&tailLines=3", "valid"),
            ("stream=Stdout", "valid"),
            ("stream=Stdout&tailLines=3", "invalid"),
            ("stream=stdout", "invalid"),
            ("follow=maybe", "valid"),
        ];
        for (query, expected) in cases {
            let found = match PodLogOptions::decode(Some(query)) {
                Err(Undecodable) => "undecodable",
                Ok(options) if options.is_valid() => "valid",
                Ok(_) => "invalid",
            };
            assert_eq!(found, expected, "{query}");
        }
        let flags = |query| PodLogOptions::decode(Some(query)).unwrap().follow;
        assert!(flags("follow=true") && flags("follow") && flags("follow=1"));
        assert!(!flags("follow=0") && !flags("follow=False") && !flags(""));
    }

    #[test]
    fn the_later_of_two_times_counts() {
        let now: Timestamp = "2026-11-16T18:00:00Z".parse().unwrap();
        let since =
            |query| PodLogOptions::decode(Some(query)).unwrap().at(now).since.map(|since| since.to_string());
        assert_eq!(since("sinceSeconds=60").as_deref(), Some("2026-11-16T17:59:00Z"));
        assert_eq!(since("sinceTime=2026-01-01T00:00:00Z").as_deref(), Some("2026-01-01T00:00:00Z"));
        assert_eq!(since(""), None);
        assert!(since("sinceSeconds=9223372036854775807").is_some());
    }
}
