//! What Kubernetes accepts as a name, a label or a part of one. Each function returns upstream's messages, or
//! none if the text is valid.

const LABEL_MAX_LENGTH: usize = 63;
const SUBDOMAIN_MAX_LENGTH: usize = 253;

/// What is wrong with `name` as the key of a label or a taint: a name, which a DNS subdomain and `/` may
/// precede.
pub fn qualified_name_errors(name: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let name = match name.split_once('/') {
        None => name,
        Some((_, rest)) if rest.contains('/') => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')",
                label_key_error()
            )];
        }
        Some(("", name)) => {
            errors.push("prefix part must be non-empty".to_owned());
            name
        }
        Some((prefix, name)) => {
            // The same check as a subdomain's own, except that here upstream counts bytes.
            if prefix.len() > SUBDOMAIN_MAX_LENGTH {
                errors.push(format!("prefix part {}", too_many_bytes(SUBDOMAIN_MAX_LENGTH)));
            }
            if !is_subdomain(prefix) {
                errors.push(format!("prefix part {}", subdomain_error()));
            }
            name
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX_LENGTH {
        errors.push(format!("name part {}", too_many_bytes(LABEL_MAX_LENGTH)));
    }
    if !is_label_text(name) {
        errors.push(format!("name part {}", label_key_error()));
    }
    errors
}

/// What is wrong with `value` as the value of a label.
pub fn label_value_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > LABEL_MAX_LENGTH {
        errors.push(too_many_bytes(LABEL_MAX_LENGTH));
    }
    if !value.is_empty() && !is_label_text(value) {
        errors.push(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
             and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or \
             '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                .to_owned(),
        );
    }
    errors
}

/// What is wrong with `name` as a DNS label of lower case (RFC 1123).
pub fn dns1123_label_errors(name: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if name.len() > LABEL_MAX_LENGTH {
        errors.push(too_many_characters(LABEL_MAX_LENGTH));
    }
    if is_subdomain(name) && name.contains('.') {
        errors.push("must not contain dots".to_owned());
    } else if !is_dns_label(name) {
        errors.push(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
             start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for \
             validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
                .to_owned(),
        );
    }
    errors
}

/// What is wrong with `name` as a DNS subdomain of lower case (RFC 1123), which most objects' names must be.
pub fn dns1123_subdomain_errors(name: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if name.len() > SUBDOMAIN_MAX_LENGTH {
        errors.push(too_many_characters(SUBDOMAIN_MAX_LENGTH));
    }
    if !is_subdomain(name) {
        errors.push(subdomain_error());
    }
    errors
}

fn too_many_bytes(limit: usize) -> String {
    format!("must be no more than {limit} bytes")
}

fn too_many_characters(limit: usize) -> String {
    format!("must be no more than {limit} characters")
}

fn label_key_error() -> String {
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
     character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
        .to_owned()
}

fn subdomain_error() -> String {
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
     start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        .to_owned()
}

fn is_label_text(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    ends_are(text, |byte| byte.is_ascii_alphanumeric()) && text.bytes().all(inner)
}

fn is_dns_label(text: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    ends_are(text, alphanumeric) && text.bytes().all(|byte| alphanumeric(byte) || byte == b'-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_dns_label)
}

/// Whether there is a first and a last byte, and both are as required.
fn ends_are(text: &str, required: impl Fn(u8) -> bool) -> bool {
    match text.as_bytes() {
        [] => false,
        [first, .., last] => required(*first) && required(*last),
        [only] => required(*only),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LABEL_KEY: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
        with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
        '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
        '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
        validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
        and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for \
        validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

    #[test]
    fn good_names_have_no_errors() {
        let longest_label = "a".repeat(63);
        for name in ["simple", "1", "Mixed.Case_and-dash", "example.com/name", "1.2.3/a_b", &longest_label] {
            assert_eq!(qualified_name_errors(name), [""; 0], "{name}");
        }
        for value in ["", "a", "A_b.c-9", &longest_label] {
            assert_eq!(label_value_errors(value), [""; 0], "{value}");
        }
        for label in ["a", "0", "a-b", "a--b", &longest_label] {
            assert_eq!(dns1123_label_errors(label), [""; 0], "{label}");
        }
        for subdomain in ["a", "a.b", "0-1.2-3", "a.".repeat(126).trim_end_matches('.')] {
            assert_eq!(dns1123_subdomain_errors(subdomain), [""; 0], "{subdomain}");
        }
    }

    #[test]
    fn a_bad_qualified_name_says_which_part_is_bad() {
        let check =
            |name: &str, expected: &[String]| assert_eq!(qualified_name_errors(name), expected, "{name}");
        let name_part = format!("name part {LABEL_KEY}");
        let non_empty = "name part must be non-empty".to_owned();
        check("", &[non_empty.clone(), name_part.clone()]);
        check("-a", std::slice::from_ref(&name_part));
        check("a b", std::slice::from_ref(&name_part));
        check("\u{e9}", std::slice::from_ref(&name_part));
        check("example.com/", &[non_empty, name_part]);
        check("/a", &["prefix part must be non-empty".to_owned()]);
        check("Example.com/a", &[format!("prefix part {SUBDOMAIN}")]);
        check(&format!("{}/a", "a".repeat(254)), &["prefix part must be no more than 253 bytes".to_owned()]);
        check(&"a".repeat(64), &["name part must be no more than 63 bytes".to_owned()]);
        check(
            "a/b/c",
            &[format!(
                "a valid label key {LABEL_KEY} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            )],
        );
    }

    #[test]
    fn a_bad_label_value_says_what_is_accepted() {
        let characters = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' \
            or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or \
            '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
        assert_eq!(label_value_errors("a/b"), [characters]);
        assert_eq!(label_value_errors("a\n"), [characters]);
        assert_eq!(label_value_errors(&"-".repeat(64)), ["must be no more than 63 bytes", characters]);
    }

    #[test]
    fn a_bad_dns_name_says_what_is_accepted() {
        assert_eq!(dns1123_label_errors("A"), [LABEL]);
        assert_eq!(dns1123_label_errors(""), [LABEL]);
        assert_eq!(dns1123_label_errors("a."), [LABEL]);
        assert_eq!(dns1123_label_errors("a.b"), ["must not contain dots"]);
        assert_eq!(dns1123_label_errors(&"a".repeat(64)), ["must be no more than 63 characters"]);
        assert_eq!(dns1123_subdomain_errors("a..b"), [SUBDOMAIN]);
        assert_eq!(dns1123_subdomain_errors("a.-b"), [SUBDOMAIN]);
        assert_eq!(dns1123_subdomain_errors(&"a".repeat(254)), ["must be no more than 253 characters"]);
    }

    proptest! {
        #[test]
        fn a_label_is_a_subdomain_and_a_label_value(label in "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?") {
            prop_assert!(dns1123_label_errors(&label).is_empty());
            prop_assert!(dns1123_subdomain_errors(&label).is_empty());
            prop_assert!(label_value_errors(&label).is_empty());
            prop_assert!(qualified_name_errors(&label).is_empty());
        }

        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = (qualified_name_errors(&text), label_value_errors(&text));
            let _ = (dns1123_label_errors(&text), dns1123_subdomain_errors(&text));
        }
    }
}
