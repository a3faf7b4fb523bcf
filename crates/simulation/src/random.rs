//! Chance from a seed.

use std::time::Duration;

/// A generator whose numbers follow from its seed alone (SplitMix64).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// One from a seed. `purpose` keeps several of the same seed apart.
    pub fn new(seed: u64, purpose: u64) -> Random {
        let mut random = Random(seed ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93));
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below another one, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A number from the first up to and with the second.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// True in so many of a hundred cases.
    pub fn percent(&mut self, of_a_hundred: u64) -> bool {
        self.below(100) < of_a_hundred
    }

    /// One of several, if there are any.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        if of.is_empty() {
            return None;
        }
        let index = usize::try_from(self.below(of.len() as u64)).unwrap_or_default();
        of.get(index)
    }

    /// One of several by weight; the weights must not all be 0.
    pub fn weighted<T: Copy>(&mut self, of: &[(u64, T)]) -> T {
        let mut left = self.below(of.iter().map(|(weight, _)| weight).sum());
        for (weight, item) in of {
            match left.checked_sub(*weight) {
                None => return *item,
                Some(rest) => left = rest,
            }
        }
        of[0].1
    }

    /// A time up to another, in milliseconds.
    pub fn up_to(&mut self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX - 1);
        Duration::from_millis(self.below(most + 1))
    }
}
