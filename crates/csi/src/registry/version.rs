//! Which version of a protocol a plugin speaks.

use std::fmt;

/// A version such as `1.0.0`, or `v1.2`: two numbers or more, and whatever follows them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(Vec<u64>);

impl Version {
    /// The number before the first dot.
    pub fn major(&self) -> u64 {
        self.0.first().copied().unwrap_or_default()
    }

    /// Reads a version, or says in upstream's words why it is none.
    pub(super) fn parse(text: &str) -> Result<Version, String> {
        let trimmed = text.trim_start();
        let numbers = trimmed.strip_prefix('v').unwrap_or(trimmed);
        let is_digit = |character: char| character.is_ascii_digit();
        if !numbers.starts_with(is_digit) {
            return Err(format!("could not parse {text:?} as version"));
        }
        let mut components = Vec::new();
        let mut rest = numbers;
        loop {
            let end = rest.find(|character| !is_digit(character)).unwrap_or(rest.len());
            components.push(&rest[..end]);
            rest = match rest[end..].strip_prefix('.') {
                Some(next) if next.starts_with(is_digit) => next,
                Some(_) | None => break,
            };
        }
        if components.len() < 2 {
            return Err(format!("illegal version string {text:?}"));
        }
        if components[0].starts_with('0') && components[0] != "0" {
            return Err(format!("illegal zero-prefixed version component {:?} in {text:?}", components[0]));
        }
        let number = |component: &&str| {
            component.parse().map_err(|_| {
                format!(
                    "illegal non-numeric version component {component:?} in {text:?}: strconv.ParseUint: parsing \
                     {component:?}: value out of range"
                )
            })
        };
        components.iter().map(number).collect::<Result<Vec<u64>, String>>().map(Version)
    }

    /// The highest of several versions that is not beyond 1.x. It must be 1.x.
    pub(super) fn highest_supported(versions: &[String]) -> Result<Version, String> {
        let mut highest: Option<Version> = None;
        let mut problem = None;
        for text in versions.iter().rev() {
            match Version::parse(text) {
                Err(error) => problem = Some(error),
                Ok(version) if version.major() > 1 => {}
                Ok(version) => highest = highest.max(Some(version)),
            }
        }
        match highest {
            Some(highest) if highest.major() == 1 => Ok(highest),
            Some(highest) => Err(format!("highest supported version reported is {highest}, must be v1.x")),
            None => Err(format!(
                "could not find a highest supported version from versions ([{}]) reported: {}",
                versions.join(" "),
                problem.as_deref().unwrap_or("<nil>")
            )),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, number) in self.0.iter().enumerate() {
            if place > 0 {
                f.write_str(".")?;
            }
            write!(f, "{number}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_version_that_is_not_beyond_one_is_taken() {
        let check = |versions: &[&str], expected: Result<&str, &str>| {
            let versions: Vec<String> = versions.iter().map(|&version| version.to_owned()).collect();
            let highest = Version::highest_supported(&versions).map(|highest| highest.to_string());
            assert_eq!(highest, expected.map(str::to_owned).map_err(str::to_owned), "{versions:?}");
        };
        check(&["1.0.0"], Ok("1.0.0"));
        check(&["0.3", "v1.10-rc1", "1.9.0", "2.0.0"], Ok("1.10"));
        check(&["nonsense", "1.2"], Ok("1.2"));
        check(&["0.3.0"], Err("highest supported version reported is 0.3.0, must be v1.x"));
        let none = "could not find a highest supported version from versions";
        check(&["2.0.0", "3.0"], Err(&format!("{none} ([2.0.0 3.0]) reported: <nil>")));
        check(&["x"], Err(&format!("{none} ([x]) reported: could not parse \"x\" as version")));
        check(&["1"], Err(&format!("{none} ([1]) reported: illegal version string \"1\"")));
        check(
            &["01.2"],
            Err(&format!(
                "{none} ([01.2]) reported: illegal zero-prefixed version component \"01\" in \"01.2\""
            )),
        );
    }
}
