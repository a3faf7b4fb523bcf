//! Where a registry or an image is: a host and a path, read as Go's `net/url` reads them behind a scheme.

/// A host, maybe with a port, and a path, which begins with a slash or is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) host: String,
    pub(crate) path: String,
}

/// A text is not a location. What it is instead is not told: it may hold a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadLocation {
    /// It has a character that no URL has.
    #[error("has a control character")]
    ControlCharacter,
    /// What stands before an `@` is not a user.
    #[error("has something before an @ that is not a user")]
    User,
    /// Its host has a character that no host has.
    #[error("has a host with a character that no host has")]
    Host,
    /// An address in brackets is not one.
    #[error("has brackets that hold no address")]
    Brackets,
    /// Its port is not a number.
    #[error("has a port that is not a number")]
    Port,
    /// A percent sign in its path begins no escape.
    #[error("has a percent sign in its path that is followed by something other than two hexadecimal digits")]
    Escape,
}

impl Location {
    /// Reads `host:port/path`. A query and a fragment are passed by, as is a user.
    pub(crate) fn parse(text: &str) -> Result<Location, BadLocation> {
        if text.contains(|c: char| c.is_ascii_control()) {
            return Err(BadLocation::ControlCharacter);
        }
        let text = text.split(['#', '?']).next().unwrap_or_default();
        let (authority, path) = match text.find('/') {
            Some(slash) => text.split_at(slash),
            None => (text, ""),
        };
        let host = match authority.rsplit_once('@') {
            Some((user, host)) if user.chars().all(is_in_user) => host,
            Some(_) => return Err(BadLocation::User),
            None => authority,
        };
        check_host(host)?;
        Ok(Location { host: host.to_owned(), path: unescaped(path)? })
    }

    /// Whether this location, as a pattern, covers another: the same port, as many parts of the name, each of which fits
    /// (a `*` stands for anything within one part), and the path is how the other one's begins, which need not be
    /// at a slash.
    pub(crate) fn covers(&self, target: &Location) -> bool {
        let ((pattern, port), (name, target_port)) = (self.name_and_port(), target.name_and_port());
        port == target_port
            && pattern.split('.').count() == name.split('.').count()
            && target.path.starts_with(&self.path)
            && pattern.split('.').zip(name.split('.')).all(|(pattern, part)| fits(pattern, part))
    }

    fn name_and_port(&self) -> (&str, &str) {
        match self.host.rsplit_once(':') {
            Some((name, port)) if !port.contains(']') => (name, port),
            Some(_) | None => (&self.host, ""),
        }
    }
}

/// Whether one location covers another, both given as texts. What is no location covers nothing.
pub(crate) fn covers(pattern: &str, target: &str) -> bool {
    match (Location::parse(pattern), Location::parse(target)) {
        (Ok(pattern), Ok(target)) => pattern.covers(&target),
        (Err(_), _) | (_, Err(_)) => false,
    }
}

fn check_host(host: &str) -> Result<(), BadLocation> {
    let port = match host.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']').ok_or(BadLocation::Brackets)?;
            // A zone may follow the address.
            let address = address.split('%').next().unwrap_or_default();
            address.parse::<std::net::Ipv6Addr>().map_err(|_| BadLocation::Brackets)?;
            port
        }
        None if host.contains('[') => return Err(BadLocation::Brackets),
        None if !host.chars().all(is_in_host) => return Err(BadLocation::Host),
        None => host.find(':').map_or("", |colon| &host[colon..]),
    };
    match port.strip_prefix(':') {
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => Ok(()),
        None if port.is_empty() => Ok(()),
        Some(_) | None => Err(BadLocation::Port),
    }
}

fn is_in_host(c: char) -> bool {
    !c.is_ascii() || c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:]<>\"".contains(c)
}

fn is_in_user(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c)
}

fn unescaped(path: &str) -> Result<String, BadLocation> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut parts = path.split('%');
    bytes.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        let digits = part.get(..2).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        let byte =
            digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).ok_or(BadLocation::Escape)?;
        bytes.push(byte);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).map_err(|_| BadLocation::Escape)
}

/// Whether a text is what a pattern with stars says.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(head) else { return false };
    let mut pieces: Vec<&str> = rest.split('*').collect();
    let tail = pieces.pop().unwrap_or_default();
    // The first place where a piece fits leaves the most for the pieces after it.
    for piece in pieces {
        match text.find(piece) {
            Some(at) => text = &text[at + piece.len()..],
            None => return false,
        }
    }
    text.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_pattern_covers_what_upstreams_covers() {
        for (pattern, target, expected) in [
            // Without a path.
            ("*.kubernetes.io", "prefix.kubernetes.io", true),
            ("prefix.*.io", "prefix.kubernetes.io", true),
            ("prefix.kubernetes.*", "prefix.kubernetes.io", true),
            ("*-good.kubernetes.io", "prefix-good.kubernetes.io", true),
            ("*.*.kubernetes.io", "a.b.kubernetes.io", true),
            ("*.*.*.kubernetes.io", "a.b.c.kubernetes.io", true),
            ("app*.k8s.io", "app42.k8s.io", true),
            ("a*c*e.io", "abcde.io", true),
            ("a*c*e.io", "abcd.io", false),
            ("a*bc.io", "abcbc.io", true),
            ("**.io", "a.io", true),
            // With a path, which is a beginning and no more.
            ("*.kubernetes.io/blah", "prefix.kubernetes.io/blah", true),
            ("*.kubernetes.io", "prefix.kubernetes.io/blah", true),
            ("prefix.*.io/foo", "prefix.kubernetes.io/foo/bar", true),
            ("gcr.io/foo", "gcr.io/foobar/image", true),
            ("gcr.io/foo/", "gcr.io/foobar/image", false),
            ("gcr.io/foo/bar", "gcr.io/foo", false),
            ("gcr.io/*", "gcr.io/foo", false),
            ("gcr.io/Foo", "gcr.io/foo", false),
            ("gcr.io/a%2Fb", "gcr.io/a/b/c", true),
            // With a port, which has to be the same: none is not the default one.
            ("*.kubernetes.io:1111/blah", "prefix.kubernetes.io:1111/blah", true),
            ("prefix.*.io:1111/foo", "prefix.kubernetes.io:1111/foo/bar", true),
            ("*.kubernetes.io:1234/blah", "prefix.kubernetes.io:1111/blah", false),
            ("prefix.*.io/foo", "prefix.kubernetes.io:1111/foo/bar", false),
            ("registry.io:443", "registry.io/foo", false),
            ("registry.io", "registry.io:443/foo", false),
            ("registry.io:", "registry.io/foo", true),
            ("registry.io:*", "registry.io:80/foo", false),
            ("localhost:5000", "localhost:5000/foo", true),
            // Each part of a name is one.
            ("*.kubernetes.io", "kubernetes.io", false),
            ("*.*.kubernetes.io", "prefix.kubernetes.io", false),
            ("*.*.kubernetes.io", "kubernetes.io", false),
            ("*kubernetes.io", "a.kubernetes.io", false),
            ("*kubernetes.io", "kubernetes.io", true),
            ("*.io", "a.b.io", false),
            ("*", "localhost/foo", true),
            ("*", "gcr.io/foo", false),
            // Others are others.
            ("kubernetes.io", "kubernetes.com", false),
            ("k*.io", "quay.io", false),
            ("GCR.io", "gcr.io/foo", false),
            ("", "gcr.io/foo", false),
            ("gcr.io", "", false),
            // A user, a query and a fragment are passed by.
            ("me@gcr.io", "gcr.io/foo", true),
            ("gcr.io?x=y/z", "gcr.io/foo", true),
            ("gcr.io#x", "gcr.io/foo", true),
            // Addresses.
            ("10.0.0.*:5000", "10.0.0.1:5000/foo", true),
            ("[fd00::1]:5000", "[fd00::1]:5000/foo", true),
            ("[fd00::1]:5000", "[fd00::2]:5000/foo", false),
            ("[fd00::1]", "[fd00::1]/foo", true),
            // What is no location covers nothing, not even itself.
            ("gcr.io:x", "gcr.io:x", false),
            ("gcr io", "gcr io", false),
            ("gcr.io/%zz", "gcr.io/%zz", false),
            ("a:1:2", "a:1:2", false),
        ] {
            assert_eq!(covers(pattern, target), expected, "{pattern} {target}");
        }
    }

    #[test]
    fn what_is_no_location_says_what_is_wrong_and_shows_nothing_of_it() {
        for (text, expected) in [
            ("hunter2\n.io", "has a control character"),
            ("hun ter2@gcr.io", "has something before an @ that is not a user"),
            ("hunter2{}.io", "has a host with a character that no host has"),
            ("hunter2%41.io", "has a host with a character that no host has"),
            ("[hunter2]", "has brackets that hold no address"),
            ("[::1", "has brackets that hold no address"),
            ("a[b].io", "has brackets that hold no address"),
            ("gcr.io:hunter2", "has a port that is not a number"),
            ("[::1]hunter2", "has a port that is not a number"),
            (
                "gcr.io/hunter2%4",
                "has a percent sign in its path that is followed by something other than two hexadecimal digits",
            ),
        ] {
            assert_eq!(Location::parse(text).unwrap_err().to_string(), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_location_or_none(text in "\\PC*") {
            let _ = Location::parse(&text);
        }

        #[test]
        fn a_pattern_of_letters_fits_itself_and_a_star_fits_all(text in "[a-z]{0,8}", head in 0usize..8) {
            prop_assert!(fits(&text, &text) && fits("*", &text));
            let head = head.min(text.len());
            let pattern = format!("{}*{}", &text[..head], &text[head..]);
            prop_assert!(fits(&pattern, &text));
        }
    }
}
