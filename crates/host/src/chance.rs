//! Chance from a seed, so that a run can be replayed. Nothing secret is made of it.

use std::time::Duration;

/// SplitMix64: enough for names, and to keep many nodes from asking at the same moment.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Another generator, which goes its own way from here.
    #[must_use]
    pub fn split(&mut self) -> Chance {
        Chance(self.number())
    }

    /// A time that is shorter than this one.
    pub fn below(&mut self, time: Duration) -> Duration {
        // 53 bits are what a fraction can hold.
        let fraction = (self.number() >> 11) as f64 / (1_u64 << 53) as f64;
        time.mul_f64(fraction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_spread_and_the_same_for_the_same_seed() {
        let drawn = |seed| {
            let mut chance = Chance::new(seed);
            (0..1000).map(|_| chance.below(Duration::from_secs(10))).collect::<Vec<_>>()
        };
        let times = drawn(7);
        assert_eq!(times, drawn(7));
        assert_ne!(times, drawn(8));
        assert!(times.iter().all(|time| *time < Duration::from_secs(10)));
        let late = times.iter().filter(|time| **time >= Duration::from_secs(5)).count();
        assert!((400..600).contains(&late), "{late}");
    }
}
