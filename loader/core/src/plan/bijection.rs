//! A keyed bijection of `0..len`: a shuffle without a table.
//!
//! A Feistel network of four rounds permutes the numbers of an even number of bits (Luby and
//! Rackoff, 1988). A result beyond `len` goes in again until it is below (cycle walking: Black and
//! Rogaway, "Ciphers with arbitrary finite domains", 2002). The numbers are those of the next power
//! of four, so four passes are needed at most, on average. It takes whole numbers only, so it is
//! the same on every machine. The rounds' hashes of all half numbers are made once: a plan inverts
//! every number of its strata, and a look into a table that fits the CPU's cache is far faster.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_seed;

const ROUNDS: u8 = 4;

/// A bijection of `0..len`.
#[derive(Clone, Debug)]
pub(super) struct Bijection {
    len: u32,
    /// Bits of half a number, at most 16.
    half_bits: u32,
    key: u128,
    /// By round and half number: its hash, as long as that.
    mixed: Arc<[u16]>,
}

impl PartialEq for Bijection {
    fn eq(&self, other: &Self) -> bool {
        (self.len, self.key) == (other.len, other.key)
    }
}

impl Eq for Bijection {}

impl Bijection {
    /// The bijection of `0..len` with this key.
    pub(super) fn new(len: u32, key: u128) -> Self {
        let half_bits = (u32::BITS - len.saturating_sub(1).leading_zeros()).div_ceil(2);
        let halves = |round| (0..1 << half_bits).map(move |half| hash_of_half(half, round, key, half_bits));
        Self { len, half_bits, key, mixed: (0..ROUNDS).flat_map(halves).collect() }
    }

    /// Where `number`, which is below the length, goes.
    pub(super) fn apply(&self, number: u32) -> u32 {
        self.walk(number, |left, right, round| (right, left ^ self.mixed(right, round)), 0..ROUNDS)
    }

    /// The number that goes to `number`, which is below the length.
    pub(super) fn invert(&self, number: u32) -> u32 {
        let rounds = (0..ROUNDS).rev();
        self.walk(number, |left, right, round| (right ^ self.mixed(left, round), left), rounds)
    }

    /// Goes through the rounds until the result is below the length, as `number` was: a bijection
    /// comes back to a number that it started from.
    fn walk(
        &self,
        number: u32,
        round: impl Fn(u32, u32, u8) -> (u32, u32),
        rounds: impl Iterator<Item = u8> + Clone,
    ) -> u32 {
        if number >= self.len {
            return number;
        }
        // A number has up to 32 bits, and half_bits of 16 leave no higher ones.
        let low = (1_u32 << self.half_bits) - 1;
        let mut number = number;
        loop {
            let halves = (number >> self.half_bits, number & low);
            let (left, right) = rounds.clone().fold(halves, |(left, right), at| round(left, right, at));
            number = (left << self.half_bits) | right;
            if number < self.len {
                return number;
            }
        }
    }

    fn mixed(&self, half: u32, round: u8) -> u32 {
        let at = (usize::from(round) << self.half_bits) | half as usize;
        self.mixed.get(at).copied().map_or(0, u32::from)
    }
}

/// A hash of half a number in a round, as long as that.
#[expect(clippy::cast_possible_truncation, reason = "halves of the key, and the low bits of a hash")]
fn hash_of_half(half: u32, round: u8, key: u128, half_bits: u32) -> u16 {
    let [a, b, c, d] = half.to_le_bytes();
    let key = if round.is_multiple_of(2) { key as u64 } else { (key >> 64) as u64 };
    let hash = xxh3_64_with_seed(&[a, b, c, d, round], key);
    (hash as u32 & ((1 << half_bits) - 1)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_own_place_and_comes_back() {
        for len in [1, 2, 3, 4, 5, 16, 17, 64, 65, 1000, 4096, 4097, 70_000] {
            let bijection = Bijection::new(len, 0x0123_4567_89ab_cdef_1032_5476_98ba_dcfe);
            let mut taken = vec![false; len as usize];
            for number in 0..len {
                let place = bijection.apply(number);
                assert!(!std::mem::replace(&mut taken[place as usize], true), "{number} of {len}");
                assert_eq!(bijection.invert(place), number, "{number} of {len}");
            }
        }
        for len in [u32::MAX, 1 << 31, (1 << 30) + 1] {
            let bijection = Bijection::new(len, 7);
            for number in [0, 1, 12_345, len - 1] {
                assert!(bijection.apply(number) < len);
                assert_eq!(bijection.invert(bijection.apply(number)), number);
            }
        }
    }

    /// These numbers decide who owns which sample. Others would move all samples. They were
    /// computed once by a separate Feistel network and XXH3 in another language.
    #[test]
    fn places_never_change() {
        let of =
            |len, key| -> Vec<u32> { (0..6).map(|number| Bijection::new(len, key).apply(number)).collect() };
        assert_eq!(of(1000, 1), [713, 944, 97, 498, 603, 349]);
        assert_eq!(
            of(1_281_167, 0x0123_4567_89ab_cdef_1032_5476_98ba_dcfe),
            [854_271, 144_413, 756_704, 406_152, 655_580, 555_633]
        );
    }

    #[test]
    fn neighbours_and_keys_are_told_apart() {
        let of = |key| -> Vec<u32> {
            (0..10_000).map(|number| Bijection::new(10_000, key).apply(number)).collect()
        };
        let places = of(1);
        let near = places.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) == 1).count();
        assert!(near < 15, "{near} next to their neighbours, where chance has 2");
        // A tenth of the numbers against a tenth of the places: 100 each, standard deviation 9.5.
        let mut counts = [[0_u32; 10]; 10];
        for (number, &place) in places.iter().enumerate() {
            counts[number / 1000][place as usize / 1000] += 1;
        }
        assert!(counts.iter().flatten().all(|count| count.abs_diff(100) < 50), "{counts:?}");
        for other in [2, 1 << 64] {
            let same = places.iter().zip(of(other)).filter(|&(&one, other)| one == other).count();
            assert!(same < 10, "{same} equal, where chance has 1");
        }
    }
}
