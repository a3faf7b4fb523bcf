//! The arithmetic under a quantity: decimal fixed point in 64 or 128 bits.

use std::cmp::Ordering;

/// `mantissa * 10^scale`, with the width upstream would use.
#[derive(Clone, Copy)]
pub(super) enum Amount {
    Narrow { mantissa: i64, scale: i32 },
    Wide { mantissa: i128, scale: i32 },
}

impl Amount {
    pub(super) fn parts(self) -> (i128, i32) {
        match self {
            Self::Narrow { mantissa, scale } => (mantissa.into(), scale),
            Self::Wide { mantissa, scale } => (mantissa, scale),
        }
    }

    pub(super) fn compare(self, other: Self) -> Ordering {
        let ((left, left_scale), (right, right_scale)) = (self.parts(), other.parts());
        if left_scale < right_scale {
            return other.compare(self).reverse();
        }
        match times_power_of_ten(left, left_scale.abs_diff(right_scale)) {
            Some(left) => left.cmp(&right),
            // Beyond 128 bits in the finer unit, hence beyond anything the other side can be.
            None => left.cmp(&0),
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        if let (Self::Narrow { mantissa: left, .. }, Self::Narrow { mantissa: right, .. }) = (self, other) {
            if right == 0 {
                return self;
            }
            if left == 0 {
                return other;
            }
            if let Some(sum) = self.narrow_sum(other) {
                return sum;
            }
        }
        self.wide_sum(other)
    }

    /// The sum in 64 bits, both operands at the finer scale of the two.
    fn narrow_sum(self, other: Self) -> Option<Self> {
        let ((left, left_scale), (right, right_scale)) = (self.parts(), other.parts());
        let scale = left_scale.min(right_scale);
        let left = i64::try_from(times_power_of_ten(left, left_scale.abs_diff(scale))?).ok()?;
        let right = i64::try_from(times_power_of_ten(right, right_scale.abs_diff(scale))?).ok()?;
        Some(Self::Narrow { mantissa: left.checked_add(right)?, scale })
    }

    /// The sum in 128 bits. Where upstream would grow a number of any length, this drops the last digits of
    /// the finer operand, rounding up.
    fn wide_sum(self, other: Self) -> Self {
        let ((left, left_scale), (right, right_scale)) = (self.parts(), other.parts());
        if left_scale < right_scale {
            return other.wide_sum(self);
        }
        let power = left_scale.abs_diff(right_scale);
        match times_power_of_ten(left, power).and_then(|left| left.checked_add(right)) {
            Some(mantissa) => Self::Wide { mantissa, scale: right_scale },
            None => {
                let (right, _) = over_power_of_ten(right, power);
                Self::Wide { mantissa: left.saturating_add(right), scale: left_scale }
            }
        }
    }

    pub(super) fn negated(self) -> Self {
        let (mantissa, scale) = self.parts();
        match self {
            Self::Narrow { mantissa, scale } if mantissa != i64::MIN => {
                Self::Narrow { mantissa: -mantissa, scale }
            }
            Self::Narrow { .. } | Self::Wide { .. } => {
                Self::Wide { mantissa: mantissa.saturating_neg(), scale }
            }
        }
    }

    /// The amount at `scale` or coarser, rounded away from zero, and whether that is exact.
    pub(super) fn rounded_up(self, scale: i32) -> (Self, bool) {
        let (mantissa, from) = self.parts();
        if from >= scale {
            return (self, true);
        }
        let (rounded, exact) = over_power_of_ten(mantissa, scale.abs_diff(from));
        match self {
            // Rounded, a mantissa is a tenth or less of what it was, so it still fits.
            Self::Narrow { .. } => (Self::Narrow { mantissa: rounded as i64, scale }, exact),
            Self::Wide { .. } => (Self::Wide { mantissa: rounded, scale }, exact),
        }
    }

    pub(super) fn scaled_value(self, scale: i32) -> i64 {
        match self {
            Self::Narrow { mantissa, scale: from } if from < scale => {
                over_power_of_ten(mantissa.into(), scale.abs_diff(from)).0 as i64
            }
            Self::Narrow { mantissa, scale: from } => narrow_scaled_up(mantissa, from.abs_diff(scale)),
            Self::Wide { mantissa, scale: from } if from < scale => {
                wide_scaled_down(mantissa, scale.abs_diff(from))
            }
            Self::Wide { mantissa, scale: from } => {
                (mantissa as i64).wrapping_mul(10_i64.wrapping_pow(from.abs_diff(scale)))
            }
        }
    }
}

/// Upstream multiplies by these few powers in one step, which wraps around; by the others digit by digit, and
/// gives up with zero.
fn narrow_scaled_up(mantissa: i64, power: u32) -> i64 {
    match power {
        0..=3 | 6 | 9 => mantissa.wrapping_mul(10_i64.pow(power)),
        power => 10_i64.checked_pow(power).and_then(|factor| mantissa.checked_mul(factor)).unwrap_or(0),
    }
}

/// Upstream adds one to every inexact quotient, even a negative one, and takes every negative number to fit
/// into 64 bits.
fn wide_scaled_down(mantissa: i128, power: u32) -> i64 {
    if mantissa < i128::from(i64::MAX) && power < 19 {
        let divisor = 10_i64.pow(power);
        let low = mantissa as i64;
        return low / divisor + i64::from(low % divisor != 0);
    }
    let (quotient, exact) = match 10_i128.checked_pow(power) {
        Some(divisor) => (mantissa.div_euclid(divisor), mantissa.rem_euclid(divisor) == 0),
        None => (if mantissa < 0 { -1 } else { 0 }, mantissa == 0),
    };
    (quotient as i64).wrapping_add(i64::from(!exact))
}

pub(super) fn times_power_of_ten(mantissa: i128, power: u32) -> Option<i128> {
    if mantissa == 0 { Some(0) } else { mantissa.checked_mul(10_i128.checked_pow(power)?) }
}

/// The quotient rounded away from zero, and whether it is exact.
fn over_power_of_ten(mantissa: i128, power: u32) -> (i128, bool) {
    match 10_i128.checked_pow(power) {
        Some(divisor) if mantissa % divisor == 0 => (mantissa / divisor, true),
        Some(divisor) => (mantissa / divisor + mantissa.signum(), false),
        None => (mantissa.signum(), mantissa == 0),
    }
}
