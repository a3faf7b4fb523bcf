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

/// All values of a name, as a form has them: a plus is a space.
pub(crate) fn values<'a>(query: Option<&'a str>, name: &'a str) -> impl Iterator<Item = String> + 'a {
    let decoded = |text: &str| {
        let text = text.replace('+', " ");
        percent_decode_str(&text).decode_utf8_lossy().into_owned()
    };
    let pairs = query.unwrap_or_default().split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.filter(move |(known, _)| decoded(known) == name).map(move |(_, value)| decoded(value))
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
        let all = |name| values(query, name).collect::<Vec<_>>();
        assert_eq!(all("pod"), ["default/web", "other"]);
        assert_eq!(values(Some("%71=a+b%2B"), "q").collect::<Vec<_>>(), ["a b+"]);
    }
}
