//! Quantities keep the laws of arithmetic and are the same after they were written and read again.
//!
//! The text is two quantities with a space between them, and perhaps a third.
#![no_main]

use std::cmp::Ordering;

use crablet_api::{Quantity, QuantityFormat};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let quantities: Vec<Quantity> =
        text.splitn(3, ' ').filter_map(|quantity| quantity.parse().ok()).collect();
    quantities.iter().for_each(alone);
    if let [left, right, ..] = quantities.as_slice() {
        together(left, right);
    }
    if let [a, b, c] = quantities.as_slice() {
        if a <= b && b <= c {
            assert!(a <= c, "{a:?} <= {b:?} <= {c:?}");
        }
        if [a, b, c].into_iter().all(is_usual) {
            assert_eq!((a.clone() + b) + c, a.clone() + &(b.clone() + c), "({a:?} + {b:?}) + {c:?}");
            assert_eq!((a.clone() + c).cmp(&(b.clone() + c)), a.cmp(b), "{c:?} added to {a:?} and {b:?}");
        }
    }
});

fn alone(quantity: &Quantity) {
    assert_eq!(quantity.cmp(quantity), Ordering::Equal);
    assert_eq!(quantity.is_zero(), quantity.sign() == 0);
    assert_eq!(quantity.sign().cmp(&0), quantity.cmp(&Quantity::default()), "{quantity:?}");
    assert_eq!(&-(-quantity.clone()), quantity);
    // Only that these end: what does not fit comes out as upstream has it.
    for scale in [i32::MIN, -10, -3, 0, 3, 18, i32::MAX] {
        quantity.scaled_value(scale);
        let rounded = quantity.clone().rounded_up(scale);
        assert!(rounded.sign() == quantity.sign(), "{quantity:?} rounded to 10^{scale} is {rounded:?}");
    }
    for format in [QuantityFormat::DecimalSi, QuantityFormat::BinarySi, QuantityFormat::DecimalExponent] {
        let formatted = quantity.clone().with_format(format);
        assert_eq!(&formatted, quantity);
        if is_writable(&formatted) {
            round_trip(&formatted);
        }
    }
    if is_writable(quantity) {
        round_trip(quantity);
        let json = serde_json::to_string(quantity).expect("a quantity can be written as JSON");
        assert_eq!(&serde_json::from_str::<Quantity>(&json).expect("and read again"), quantity);
    }
    // Below zero, upstream rounds one way or the other as the digits have it.
    if is_usual(quantity) && quantity.sign() >= 0 {
        let value = Quantity::from_value(quantity.value());
        assert!(value >= *quantity && value.clone() - quantity < Quantity::from_value(1), "{quantity:?}");
    }
}

fn round_trip(quantity: &Quantity) {
    let written = quantity.to_string();
    let again: Quantity = written.parse().unwrap_or_else(|error| panic!("{written}: {error}"));
    assert_eq!(&again, quantity);
    // Without a binary suffix, such a quantity is read as a decimal one, which may have a suffix.
    if quantity.format() != QuantityFormat::BinarySi {
        assert_eq!(again.to_string(), written);
    }
}

fn together(left: &Quantity, right: &Quantity) {
    let order = left.cmp(right);
    assert_eq!(order, right.cmp(left).reverse(), "{left:?} and {right:?}");
    assert_eq!(left == right, order.is_eq());
    assert_eq!(left.clone() + right, right.clone() + left, "{left:?} + {right:?}");
    assert_eq!(left.clone() - right, left.clone() + &-right.clone(), "{left:?} - {right:?}");
    if is_usual(left) && is_usual(right) {
        assert_eq!((left.clone() - right).sign().cmp(&0), order, "{left:?} - {right:?}");
        assert_eq!(&(left.clone() + right - right), left, "{left:?} + {right:?} - {right:?}");
    }
}

/// Whether the amount can be written and read: upstream has no suffix for 10^21 and leaves it off, and takes 8Ei
/// for one less.
fn is_writable(quantity: &Quantity) -> bool {
    match quantity.format() {
        QuantityFormat::DecimalSi | QuantityFormat::DecimalExponent => is_below(quantity, "1e21"),
        QuantityFormat::BinarySi => is_below(quantity, "9223372036854775808"),
    }
}

/// Whether the amount, and a sum of some like it, is one that upstream calculates with exactly.
fn is_usual(quantity: &Quantity) -> bool {
    is_below(quantity, "1e18")
}

fn is_below(quantity: &Quantity, limit: &str) -> bool {
    let limit: Quantity = limit.parse().expect("this is a quantity");
    *quantity < limit && *quantity > -limit
}
