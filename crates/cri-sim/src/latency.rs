//! How long calls take.

use std::collections::BTreeMap;
use std::time::Duration;

use super::call::Method;
use super::random::Random;

/// How long calls take, per method.
#[derive(Debug, Clone, Default)]
pub struct Latencies {
    default: Latency,
    of: BTreeMap<Method, Latency>,
}

impl Latencies {
    /// The same for every method.
    pub fn all(latency: Latency) -> Latencies {
        Latencies { default: latency, of: BTreeMap::new() }
    }

    /// Another one for one method.
    pub fn with(mut self, method: Method, latency: Latency) -> Latencies {
        self.of.insert(method, latency);
        self
    }

    pub(crate) fn draw(&self, method: Method, random: &mut Random) -> Duration {
        self.of.get(&method).unwrap_or(&self.default).draw(random)
    }
}

/// How long a call takes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Latency {
    /// No time at all.
    #[default]
    None,
    /// Always the same.
    Fixed(Duration),
    /// Anything between two bounds.
    Uniform(Duration, Duration),
    /// Mostly something between the first two bounds; with this probability, up to the third.
    Tailed {
        least: Duration,
        /// The most, in most cases.
        most: Duration,
        /// The most of all.
        worst: Duration,
        /// How often it is more than `most`, from 0 to 1.
        probability: f64,
    },
}

impl Latency {
    fn draw(&self, random: &mut Random) -> Duration {
        match *self {
            Latency::None => Duration::ZERO,
            Latency::Fixed(latency) => latency,
            Latency::Uniform(least, most) => random.between(least, most),
            Latency::Tailed { least, most, worst, probability } => match random.chance(probability) {
                true => random.between(most, worst),
                false => random.between(least, most),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_as_rare_as_it_says_and_no_longer_than_it_says() {
        let millis = Duration::from_millis;
        let tailed =
            Latency::Tailed { least: millis(1), most: millis(5), worst: millis(500), probability: 0.1 };
        let latencies = Latencies::all(tailed).with(Method::Version, Latency::Fixed(millis(7)));
        let mut random = Random::new(3);
        let drawn: Vec<Duration> =
            (0..1000).map(|_| latencies.draw(Method::StartContainer, &mut random)).collect();
        let slow = drawn.iter().filter(|latency| **latency > millis(5)).count();
        assert!((50..150).contains(&slow), "{slow}");
        assert!(drawn.iter().all(|latency| (millis(1)..=millis(500)).contains(latency)));
        assert_eq!(latencies.draw(Method::Version, &mut random), millis(7));
    }
}
