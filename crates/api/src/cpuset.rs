//! [`CpuSet`]: a set of CPUs in Linux's list format, such as `0-3,8`.

use std::{borrow::Cow, collections::BTreeSet, fmt, num::IntErrorKind, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The highest CPU a text may name: beyond the 8192 that Linux can be built for, yet a range up to it is small.
const MAX_CPU: u32 = u16::MAX as u32;

/// A set of CPUs by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSet(BTreeSet<u32>);

impl CpuSet {
    /// Whether `cpu` is in the set.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// How many CPUs are in the set.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

/// Why a text is not a list of CPUs; the messages are upstream's, but for the last.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseCpuSetError {
    /// Something else stands where a number should.
    #[error("strconv.Atoi: parsing {text:?}: invalid syntax")]
    NotANumber {
        /// What stands there.
        text: String,
    },
    /// A number is beyond 64 bits.
    #[error("strconv.Atoi: parsing {text:?}: value out of range")]
    NumberTooLarge {
        /// The number.
        text: String,
    },
    /// A range ends before it starts.
    #[error("invalid range {range:?} ({start} > {end})")]
    Backwards { range: String, start: i64, end: i64 },
    /// No machine has such a CPU. Upstream would try to allocate the range.
    #[error("invalid range {range:?}: CPUs are numbered from 0 to {MAX_CPU}")]
    NoSuchCpu {
        /// The range or the single CPU.
        range: String,
    },
}

impl FromStr for CpuSet {
    type Err = ParseCpuSetError;

    fn from_str(text: &str) -> Result<Self, ParseCpuSetError> {
        let mut ranges = Vec::new();
        for range in text.split(',').filter(|_| !text.is_empty()) {
            let (start, end) = range.split_once('-').unwrap_or((range, range));
            let (start, end) = (parse_number(start)?, parse_number(end)?);
            if start > end {
                return Err(ParseCpuSetError::Backwards { range: range.to_owned(), start, end });
            }
            match (u32::try_from(start), u32::try_from(end)) {
                (Ok(start), Ok(end)) if end <= MAX_CPU => ranges.push((start, end)),
                _ => return Err(ParseCpuSetError::NoSuchCpu { range: range.to_owned() }),
            }
        }
        // In order, so that each CPU is counted once however often a text repeats a range.
        ranges.sort_unstable();
        let mut cpus = BTreeSet::new();
        let mut next = 0;
        for (start, end) in ranges {
            cpus.extend(start.max(next)..=end);
            next = next.max(end + 1);
        }
        Ok(Self(cpus))
    }
}

fn parse_number(text: &str) -> Result<i64, ParseCpuSetError> {
    text.parse::<i64>().map_err(|error| match error.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => {
            ParseCpuSetError::NumberTooLarge { text: text.to_owned() }
        }
        _ => ParseCpuSetError::NotANumber { text: text.to_owned() },
    })
}

impl fmt::Display for CpuSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut cpus = self.iter().peekable();
        while let Some(start) = cpus.next() {
            let mut end = start;
            while let Some(next) = cpus.next_if(|next| *next == end + 1) {
                end = next;
            }
            write!(formatter, "{separator}{start}")?;
            if end > start {
                write!(formatter, "-{end}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::btree_set, prelude::*};

    use super::*;

    #[test]
    fn lists_are_read_and_written_in_canonical_form() {
        for (text, canonical, len) in [
            ("", "", 0),
            ("0", "0", 1),
            ("0-3,8", "0-3,8", 5),
            ("8,3,2,1,0", "0-3,8", 5),
            ("1-1", "1", 1),
            ("0-2,1-4", "0-4", 5),
            ("0,1", "0-1", 2),
            ("+5,007", "5,7", 2),
            ("1-+2", "1-2", 2),
            ("65535", "65535", 1),
        ] {
            let set: CpuSet = text.parse().unwrap();
            assert_eq!(
                (set.to_string().as_str(), set.len(), set.is_empty()),
                (canonical, len, len == 0),
                "{text}"
            );
        }
    }

    #[test]
    fn a_bad_list_says_what_is_wrong() {
        for (text, message) in [
            (",", r#"strconv.Atoi: parsing "": invalid syntax"#),
            ("-5", r#"strconv.Atoi: parsing "": invalid syntax"#),
            ("0-", r#"strconv.Atoi: parsing "": invalid syntax"#),
            ("0, 1", r#"strconv.Atoi: parsing " 1": invalid syntax"#),
            ("1-2-3", r#"strconv.Atoi: parsing "2-3": invalid syntax"#),
            ("99999999999999999999", r#"strconv.Atoi: parsing "99999999999999999999": value out of range"#),
            ("5-3", r#"invalid range "5-3" (5 > 3)"#),
            ("1--5", r#"invalid range "1--5" (1 > -5)"#),
            ("0-4294967295", r#"invalid range "0-4294967295": CPUs are numbered from 0 to 65535"#),
            (
                "0-9223372036854775807",
                r#"invalid range "0-9223372036854775807": CPUs are numbered from 0 to 65535"#,
            ),
            ("65536", r#"invalid range "65536": CPUs are numbered from 0 to 65535"#),
        ] {
            assert_eq!(text.parse::<CpuSet>().unwrap_err().to_string(), message, "{text}");
        }
    }

    #[test]
    fn a_range_that_is_repeated_costs_no_more_than_once() {
        // Inserting every CPU each time would take minutes.
        let set: CpuSet = ["0-65535"; 100_000].join(",").parse().unwrap();
        assert_eq!(set.to_string(), "0-65535");
    }

    #[test]
    fn a_set_in_a_document_is_text() {
        let set: CpuSet = serde_json::from_str(r#""0,1,2""#).unwrap();
        assert_eq!(serde_json::to_string(&set).unwrap(), r#""0-2""#);
        assert!(serde_json::from_str::<CpuSet>(r#""""#).unwrap().is_empty());
        assert!(set.contains(2) && !set.contains(3));
    }

    proptest! {
        #[test]
        fn what_is_written_can_be_read_again(cpus in btree_set(0_u32..300, 0..100)) {
            let set: CpuSet = cpus.iter().copied().collect();
            let again: CpuSet = set.to_string().parse().unwrap();
            prop_assert_eq!(again.iter().collect::<BTreeSet<_>>(), cpus);
        }

        #[test]
        fn no_text_panics(text in "\\PC*", similar in "[-+,0-9]{0,20}") {
            let _ = (text.parse::<CpuSet>(), similar.parse::<CpuSet>());
        }
    }
}
