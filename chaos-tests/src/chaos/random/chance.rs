//! Chance from a seed: the same seed gives the same numbers, on every machine and in every version of this program.

/// A small generator (SplitMix64).
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The numbers of this seed.
    #[must_use]
    pub const fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator of its own for a part of a plan: what another part draws does not change it.
    #[must_use]
    pub fn part(&self, name: &str) -> Self {
        let mixed = name.bytes().fold(self.0, |mixed, byte| mixed.rotate_left(7) ^ u64::from(byte));
        let mut part = Self(mixed);
        part.next();
        part
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from `low` to `high`, which belong to it.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        let width = high.saturating_sub(low).saturating_add(1).max(1);
        low + self.next() % width
    }

    /// One of these, or `otherwise` if there are none.
    pub fn one_of<T: Copy>(&mut self, all: &[T], otherwise: T) -> T {
        let last = u64::try_from(all.len()).unwrap_or(u64::MAX).saturating_sub(1);
        let place = usize::try_from(self.between(0, last)).unwrap_or_default();
        all.get(place).copied().unwrap_or(otherwise)
    }

    /// Whether something of this many percent happens.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.between(1, 100) <= percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_in_every_version() {
        // Of the algorithm's authors.
        let mut chance = Chance::of(1_234_567);
        assert_eq!(chance.next(), 6_457_827_717_110_365_317);
        assert_eq!(chance.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn parts_differ_and_do_not_depend_on_what_was_drawn_from_each_other() {
        let chance = Chance::of(7);
        let (mut a, mut b) = (chance.part("a"), chance.part("b"));
        let first = a.next();
        assert_ne!(first, b.next());
        assert_eq!(chance.part("a").next(), first);
    }

    #[test]
    fn numbers_stay_between_their_ends_and_reach_both() {
        let mut chance = Chance::of(1);
        let drawn: std::collections::BTreeSet<u64> = (0..200).map(|_| chance.between(3, 6)).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [3, 4, 5, 6]);
        assert_eq!(chance.one_of(&[], 9), 9);
    }
}
