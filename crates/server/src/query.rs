//! The part of a request's target behind the question mark.

use percent_encoding::percent_decode_str;

/// The value of a name, the first time that it is there.
pub(crate) fn value(query: Option<&str>, name: &str) -> Option<String> {
    let (_, value) = query?
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .find(|(known, _)| *known == name)?;
    Some(percent_decode_str(value).decode_utf8_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_name_and_decoded() {
        let query = Some("pod=default%2Fweb&output=json&pod=other&flag");
        assert_eq!(value(query, "pod").as_deref(), Some("default/web"));
        assert_eq!(value(query, "output").as_deref(), Some("json"));
        assert_eq!(value(query, "flag").as_deref(), Some(""));
        assert_eq!(value(query, "nosuch"), None);
        assert_eq!(value(None, "pod"), None);
    }
}
