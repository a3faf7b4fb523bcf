//! What upstream accepts as one or the other kind of text or number. Each function returns upstream's messages, or
//! none where all is well.

use std::net::IpAddr;

use crate::names::dns1123_subdomain_errors;

use super::error::{Errors, Place};
use super::path::Path;

pub(super) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
pub(super) const POSITIVE: &str = "must be greater than zero";
const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

pub fn inclusive_range(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

fn too_long(limit: usize) -> String {
    format!("must be no more than {limit} characters")
}

pub fn port_number_errors(port: i32) -> Vec<String> {
    if (1..=65535).contains(&port) { vec![] } else { vec![inclusive_range(1, 65535)] }
}

/// The name of a port: a service name of IANA's, in lower case.
pub fn port_name_errors(name: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.len() > 15 {
        errors.push(too_long(15));
    }
    if name.is_empty() || !name.bytes().all(known) {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".to_owned());
    }
    if name.contains("--") {
        errors.push("must not contain consecutive hyphens".to_owned());
    }
    if name.starts_with('-') || name.ends_with('-') {
        errors.push("must not begin or end with a hyphen".to_owned());
    }
    errors
}

/// The name of a variable of the environment.
pub(super) fn variable_name_errors(name: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if name.is_empty() {
        errors.push("environment variable name must be non-empty".to_owned());
    }
    if name.chars().any(|character| !(' '..='~').contains(&character) || character == '=') {
        errors.push(
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
                .to_owned(),
        );
    }
    errors
}

/// A key of a config map or a secret.
pub fn config_key_errors(key: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if key.len() > 253 {
        errors.push(too_long(253));
    }
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if key.is_empty() || !key.bytes().all(known) {
        errors.push(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
             'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                .to_owned(),
        );
    }
    match key {
        "." => errors.push("must not be '.'".to_owned()),
        ".." => errors.push("must not be '..'".to_owned()),
        key if key.starts_with("..") => errors.push("must not start with '..'".to_owned()),
        _ => {}
    }
    errors
}

pub(super) fn http_header_name_errors(name: &str) -> Vec<String> {
    if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return vec![];
    }
    vec![
        "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for \
         validation is '[-A-Za-z0-9]+')"
            .to_owned(),
    ]
}

/// A DNS subdomain whose labels may have underscores, as search paths have.
pub(super) fn subdomain_with_underscore_errors(name: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if name.len() > 253 {
        errors.push(too_long(253));
    }
    let is_label = |label: &str| is_segment(label.strip_prefix('_').unwrap_or(label));
    if !name.split('.').all(is_label) {
        errors.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', \
             and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation \
             is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        );
    }
    errors
}

pub(super) fn is_sysctl_name(name: &str) -> bool {
    name.len() <= 253 && name.split(['.', '/']).all(is_segment)
}

/// Lower-case letters and digits, with dashes and underscores inside.
fn is_segment(segment: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    match segment.as_bytes() {
        [] => false,
        [only] => alphanumeric(*only),
        [first, inner @ .., last] => {
            let inner_fits = inner.iter().all(|byte| alphanumeric(*byte) || matches!(byte, b'-' | b'_'));
            alphanumeric(*first) && alphanumeric(*last) && inner_fits
        }
    }
}

/// The name of an object that is to be generated may end with a dash; upstream looks at it without.
pub(super) fn name_prefix_errors(prefix: &str) -> Vec<String> {
    let masked = match prefix.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let last = rest.char_indices().next_back().map_or(0, |(start, _)| start);
            format!("{}a", &rest[..last])
        }
        _ => prefix.to_owned(),
    };
    dns1123_subdomain_errors(&masked)
}

/// The digits of a decimal number, as a person would write it.
pub fn decimal_integer_errors(text: &str) -> Vec<String> {
    if text.is_empty() {
        return vec!["must be non-empty".to_owned()];
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    let canonical = text == "0"
        || (!digits.is_empty()
            && !digits.starts_with('0')
            && digits.bytes().all(|byte| byte.is_ascii_digit()));
    if canonical { vec![] } else { vec!["must be a valid decimal integer in canonical form".to_owned()] }
}

pub(super) fn check_user_or_group(errors: &mut Errors, path: &Path<'_>, id: Option<i64>) {
    if let Some(id) = id.filter(|id| !(0..=i64::from(i32::MAX)).contains(id)) {
        errors.invalid(path, id, inclusive_range(0, i64::from(i32::MAX)));
    }
}

pub(super) fn check_not_negative(errors: &mut Errors, path: &Path<'_>, value: i64) {
    if value < 0 {
        errors.invalid(path, value, NOT_NEGATIVE);
    }
}

pub(super) fn check_file_mode(errors: &mut Errors, path: &Path<'_>, mode: Option<i32>) {
    if let Some(mode) = mode.filter(|mode| !(0..=0o777).contains(mode)) {
        errors.invalid(path, mode, FILE_MODE);
    }
}

/// A path below some directory.
pub(super) fn check_descending_path(errors: &mut Errors, path: &Path<'_>, target: &str) {
    if target.starts_with('/') {
        errors.invalid(path, target, "must be a relative path");
    }
    check_no_backsteps(errors, path, target);
}

/// A path below some directory that does not begin as the atomic writer's own files do.
pub(super) fn check_unreserved_path(errors: &mut Errors, path: &Path<'_>, target: &str) {
    check_descending_path(errors, path, target);
    if target.starts_with("..") && !target.starts_with("../") {
        errors.invalid(path, target, "must not start with '..'");
    }
}

pub(super) fn check_no_backsteps(errors: &mut Errors, path: &Path<'_>, target: &str) {
    if has_backsteps(target) {
        errors.invalid(path, target, "must not contain '..'");
    }
}

pub(super) fn has_backsteps(target: &str) -> bool {
    target.split('/').any(|part| part == "..")
}

/// An IP address, of which older fields accept more spellings unless the gate says otherwise.
pub fn check_address(errors: &mut Errors, path: impl Place, text: &str, strict: bool) {
    let address = match text.parse::<IpAddr>() {
        Ok(address) => address,
        Err(_) if without_leading_zeros(text).is_some_and(|text| text.parse::<IpAddr>().is_ok()) => {
            if strict {
                errors.invalid(path, text, "must not have leading 0s");
            }
            return;
        }
        Err(_) => {
            return errors.invalid(
                path,
                text,
                "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            );
        }
    };
    if strict && matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some()) {
        errors.invalid(path, text, "must not be an IPv4-mapped IPv6 address");
    }
}

/// The address with the decimal numbers of its IPv4 part shortened.
fn without_leading_zeros(text: &str) -> Option<String> {
    let (start, dotted) = match text.rfind(':') {
        Some(colon) => text.split_at(colon + 1),
        None => ("", text),
    };
    let numbers: Option<Vec<&str>> = dotted
        .split('.')
        .map(|number| {
            let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            let shortened = number.trim_start_matches('0');
            digits.then_some(if shortened.is_empty() { "0" } else { shortened })
        })
        .collect();
    Some(format!("{start}{}", numbers?.join(".")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_upstream_reads_them() {
        let messages = |text: &str, strict: bool| -> Vec<String> {
            let mut errors = Errors::default();
            check_address(&mut errors, &Path::root("ip"), text, strict);
            errors.into_list().into_iter().map(|error| error.detail).collect()
        };
        let bad = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        for good in ["10.0.0.1", "::", "::1", "2001:db8::ffff", "FE80:0:0:0:0:0:0:0abc", "1::1.2.3.4"] {
            assert_eq!(messages(good, true), [""; 0], "{good}");
        }
        for text in
            ["", "1.2.3", "1.2.3.4.5", "256.1.1.1", "1.2.3.a", "fe80::1%eth0", "host", "1.2..3", ":::"]
        {
            assert_eq!(messages(text, false), [bad], "{text}");
            assert_eq!(messages(text, true), [bad], "{text}");
        }
        for text in ["010.002.003.004", "::ffff:01.2.3.4", "00.0.0.0"] {
            assert_eq!(messages(text, false), [""; 0], "{text}");
            assert_eq!(messages(text, true), ["must not have leading 0s"], "{text}");
        }
        assert_eq!(messages("::ffff:1.2.3.4", false), [""; 0]);
        assert_eq!(messages("::ffff:1.2.3.4", true), ["must not be an IPv4-mapped IPv6 address"]);
    }

    #[test]
    fn a_generated_name_may_end_with_a_dash() {
        for good in ["web-", "a-", "web", "a.b-"] {
            assert_eq!(name_prefix_errors(good), [""; 0], "{good}");
        }
        for bad in ["-", "Web-", "", "\u{e9}-x"] {
            assert_eq!(name_prefix_errors(bad).len(), 1, "{bad}");
        }
    }

    #[test]
    fn decimal_integers_are_canonical() {
        for good in ["0", "7", "-7", "120"] {
            assert_eq!(decimal_integer_errors(good), [""; 0], "{good}");
        }
        for bad in ["", "-", "-0", "007", "+7", "7a", " 7"] {
            assert_eq!(decimal_integer_errors(bad).len(), 1, "{bad}");
        }
    }
}
