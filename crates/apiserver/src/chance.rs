//! UIDs and generated names, from a seed: a run can be replayed. Nothing secret is made of it.

/// The letters of generated names: no vowels, so that no words come of it, and nothing that looks like another.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

#[derive(Clone, Debug)]
pub struct Chance(crablet_host::chance::Chance);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(crablet_host::chance::Chance::new(seed))
    }

    pub fn number(&mut self) -> u64 {
        self.0.number()
    }

    /// A UID of version 4.
    pub fn uid(&mut self) -> String {
        let bits = (u128::from(self.number()) << 64) | u128::from(self.number());
        let bits = (bits & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
        let hex = format!("{bits:032x}");
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    /// What is put behind `generateName`.
    pub fn suffix(&mut self) -> String {
        let count = LETTERS.len() as u64;
        (0..5)
            .map(|_| char::from(LETTERS[usize::try_from(self.number() % count).unwrap_or_default()]))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_of_version_4() {
        let mut chance = Chance::new(1);
        for _ in 0..100 {
            let uid = chance.uid();
            assert_eq!((uid.len(), &uid[14..15]), (36, "4"), "{uid}");
            assert!("89ab".contains(&uid[19..20]), "{uid}");
        }
    }
}
