//! Paths, as Go joins them.

/// A path without `.`, `..` and doubled slashes, as far as that can be told from the text.
pub(crate) fn clean(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => match parts.last() {
                Some(&"..") => parts.push(".."),
                Some(_) => _ = parts.pop(),
                None if rooted => {}
                None => parts.push(".."),
            },
            other => parts.push(other),
        }
    }
    match (rooted, parts.is_empty()) {
        (true, _) => format!("/{}", parts.join("/")),
        (false, true) => ".".to_owned(),
        (false, false) => parts.join("/"),
    }
}

/// One path below another.
pub(crate) fn join(base: &str, path: &str) -> String {
    match (base, path) {
        ("", "") => String::new(),
        ("", only) | (only, "") => clean(only),
        (base, path) => clean(&format!("{base}/{path}")),
    }
}

/// A path from the root; one that is not is taken to be meant so.
pub(crate) fn absolute(path: &str) -> String {
    clean(&format!("/{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned() {
        for (path, expected) in [
            ("", "."),
            ("/", "/"),
            ("//a//b/", "/a/b"),
            ("a/./b/../c", "a/c"),
            ("/../a", "/a"),
            ("../../a", "../../a"),
            ("a/..", "."),
        ] {
            assert_eq!(clean(path), expected, "{path}");
        }
        assert_eq!((join("/a", "b/../c").as_str(), join("", "x").as_str()), ("/a/c", "x"));
        assert_eq!((join("", "").as_str(), join("a/", "").as_str()), ("", "a"));
        assert_eq!(absolute("dev/log"), "/dev/log");
    }
}
