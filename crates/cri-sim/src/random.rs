//! Chance from a seed.

use std::fmt::Write as _;
use std::time::Duration;

/// A generator whose numbers follow from its seed alone (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// One whose numbers follow from a text.
    pub(crate) fn of_text(text: &str) -> Random {
        // FNV-1a: the same on every machine and in every release.
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Random(hash)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// 64 hexadecimal digits, as containers and images have them.
    pub(crate) fn id(&mut self) -> String {
        let mut id = String::with_capacity(64);
        for _ in 0..4 {
            // Writing to a string cannot fail.
            let _ = write!(id, "{:016x}", self.next());
        }
        id
    }

    /// A number from 0 up to, but without, 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.fraction() < probability
    }

    /// A duration between two others.
    pub(crate) fn between(&mut self, least: Duration, most: Duration) -> Duration {
        least + most.saturating_sub(least).mul_f64(self.fraction())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_ids() {
        let ids = |seed| {
            let mut random = Random::new(seed);
            [random.id(), random.id()]
        };
        assert_eq!(ids(7), ids(7));
        assert_ne!(ids(7), ids(8));
        let [first, second] = ids(7);
        assert_ne!(first, second);
        assert_eq!(first.len(), 64);
        assert!(first.chars().all(|digit| digit.is_ascii_hexdigit() && !digit.is_ascii_uppercase()));
    }

    #[test]
    fn chances_are_about_what_they_say() {
        let mut random = Random::new(1);
        let hits = (0..10_000).filter(|_| random.chance(0.25)).count();
        assert!((2_300..2_700).contains(&hits), "{hits}");
        assert!(!random.chance(0.0));
        assert!(random.chance(1.0));
    }

    #[test]
    fn a_duration_lies_between_its_bounds() {
        let mut random = Random::new(1);
        let (least, most) = (Duration::from_millis(5), Duration::from_millis(9));
        assert!((0..1000).all(|_| (least..=most).contains(&random.between(least, most))));
        assert_eq!(random.between(most, least), most);
    }
}
