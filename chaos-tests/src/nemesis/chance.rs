//! Chance that is the same in every run of a seed.

/// The `n`-th number of a seed, spread evenly over all numbers: `SplitMix64`.
#[must_use]
pub const fn draw(seed: u64, n: u64) -> u64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut z = seed.wrapping_add(STEP.wrapping_mul(n.wrapping_add(1)));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Whether the `n`-th event of a seed is one of `per_mille` in a thousand.
#[must_use]
pub const fn hits(seed: u64, n: u64, per_mille: u16) -> bool {
    draw(seed, n) % 1000 < per_mille as u64
}

/// One number after the other.
#[derive(Clone, Debug)]
pub struct Chance {
    seed: u64,
    drawn: u64,
}

impl Chance {
    /// Chance of this seed, from its beginning.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed, drawn: 0 }
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        let number = draw(self.seed, self.drawn);
        self.drawn += 1;
        number
    }

    /// A number below `bound`; 0 if that is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        let number = self.next();
        if bound == 0 { 0 } else { number % bound }
    }

    /// One of `all`, or `None` if there are none.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        let place = self.below(all.len().try_into().unwrap_or(u64::MAX));
        all.get(usize::try_from(place).ok()?)
    }

    /// A number from `low` to `high`, which belong to it.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// One of `all`, or `otherwise` if there are none.
    pub fn one_of<T: Copy>(&mut self, all: &[T], otherwise: T) -> T {
        self.pick(all).copied().unwrap_or(otherwise)
    }

    /// Whether something of so many percent happens.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Chance of its own for a part of a whole: what other parts draw does not change it.
    #[must_use]
    pub fn part(&self, name: &str) -> Self {
        let mixed = name.bytes().fold(self.seed, |mixed, byte| draw(mixed, byte.into()));
        Self::new(mixed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_again_and_another_seed_others() {
        let numbers = |seed| {
            let mut chance = Chance::new(seed);
            [(); 8].map(|()| chance.next())
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
    }

    #[test]
    fn so_many_in_a_thousand_are_hit() {
        let count = |per_mille| (0..100_000).filter(|n| hits(3, *n, per_mille)).count();
        assert_eq!((count(0), count(1000)), (0, 100_000));
        assert!((24_000..26_000).contains(&count(250)), "{}", count(250));
    }

    #[test]
    fn each_of_a_few_is_picked_in_time_and_none_of_none() {
        let mut chance = Chance::new(1);
        let picked: std::collections::BTreeSet<_> =
            (0..100).filter_map(|_| chance.pick(&[1, 2, 3])).collect();
        assert_eq!(picked.len(), 3);
        assert_eq!(chance.pick::<u8>(&[]), None);
    }

    #[test]
    fn parts_differ_and_do_not_depend_on_what_was_drawn_from_the_whole() {
        let mut chance = Chance::new(7);
        let first = |chance: &Chance, name| chance.part(name).next();
        let (a, b) = (first(&chance, "a"), first(&chance, "b"));
        assert_ne!(a, b);
        chance.next();
        assert_eq!(first(&chance, "a"), a);
    }

    #[test]
    fn numbers_stay_between_their_ends_and_reach_both() {
        let mut chance = Chance::new(1);
        let drawn: std::collections::BTreeSet<u64> = (0..200).map(|_| chance.between(3, 6)).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [3, 4, 5, 6]);
        assert_eq!(chance.one_of(&[], 9), 9);
        assert!(!chance.percent(0) && chance.percent(100));
    }
}
