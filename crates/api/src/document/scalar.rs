//! What an unquoted YAML scalar means to Kubernetes, whose parser keeps YAML 1.1's rules: `yes` and `on` are
//! booleans, `0644` is octal.

use super::Value;

/// The value of a plain (unquoted) scalar.
pub(super) fn resolve(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Value::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Value::Bool(false);
        }
        _ => {}
    }
    let starts_like_a_number = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.'));
    if !starts_like_a_number || looks_like_a_date(text) {
        return Value::Text(text.into());
    }
    let plain = text.replace('_', "");
    if let Some(number) = integer(&plain) {
        return Value::Int(number);
    }
    if is_decimal(&plain)
        && let Ok(number) = plain.parse::<f64>()
        && number.is_finite()
    {
        return Value::Float(number);
    }
    Value::Text(text.into())
}

/// A 64-bit whole number, signed or not, with the base its prefix says.
fn integer(plain: &str) -> Option<i128> {
    let (negative, digits) = match plain.as_bytes().first()? {
        b'-' => (true, &plain[1..]),
        b'+' => (false, &plain[1..]),
        _ => (false, plain),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..]),
        [b'0', b'o', ..] => (8, &lower[2..]),
        [b'0', b'b', ..] => (2, &lower[2..]),
        [b'0', _, ..] => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    if !digits.starts_with(|c: char| c.is_digit(radix)) {
        return None;
    }
    let magnitude = i128::from(u64::from_str_radix(digits, radix).ok()?);
    let number = if negative { -magnitude } else { magnitude };
    (number >= i128::from(i64::MIN)).then_some(number)
}

/// Digits with at most one point, then perhaps an exponent: what `f64` reads, less its words for infinity.
fn is_decimal(plain: &str) -> bool {
    plain.contains(|c: char| c.is_ascii_digit())
        && plain.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-'))
}

fn looks_like_a_date(text: &str) -> bool {
    text.len() > 4 && text.as_bytes()[4] == b'-' && text.bytes().take(4).all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_mean_what_kubernetes_reads_in_them() {
        let text = |t: &str| Value::Text(t.into());
        for (written, expected) in [
            ("", Value::Null),
            ("~", Value::Null),
            ("yes", Value::Bool(true)),
            ("on", Value::Bool(true)),
            ("N", Value::Bool(false)),
            ("Off", Value::Bool(false)),
            ("yeS", text("yeS")),
            ("0", Value::Int(0)),
            ("-7", Value::Int(-7)),
            ("+7", Value::Int(7)),
            ("0644", Value::Int(0o644)),
            ("0o644", Value::Int(0o644)),
            ("0x1F", Value::Int(31)),
            ("0b101", Value::Int(5)),
            ("1_000", Value::Int(1000)),
            ("0899", Value::Float(899.0)),
            ("18446744073709551615", Value::Int(u64::MAX.into())),
            ("-9223372036854775809", Value::Float(-9_223_372_036_854_775_809.0)),
            ("1.5", Value::Float(1.5)),
            (".5", Value::Float(0.5)),
            ("1e3", Value::Float(1000.0)),
            ("10s", text("10s")),
            ("10Mi", text("10Mi")),
            ("1.2.3", text("1.2.3")),
            ("10.0.0.1", text("10.0.0.1")),
            ("2026-11-15", text("2026-11-15")),
            ("inf", text("inf")),
            ("-", text("-")),
            ("+-1", text("+-1")),
            ("15%", text("15%")),
        ] {
            assert_eq!(resolve(written), expected, "{written:?}");
        }
    }
}
