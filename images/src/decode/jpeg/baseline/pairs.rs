//! AC coefficients looked up in pairs. In a photograph each takes about 5 bits with its value, and
//! the time goes into look-ups that wait for the one before.

use super::huffman::{Codes, Kind, PAST_THE_END, Symbol, Table};

/// Bits of a pair's look-up: with more, tables for two components do not fit into the L1 cache.
pub(super) const PAIR_BITS: u32 = 10;

/// One or two coefficients, with their values, that fit into [`PAIR_BITS`] bits.
#[derive(Clone, Copy, Default)]
#[repr(align(8))]
pub(super) struct Pair {
    /// Length of codes and values; 0 if not even the first fits.
    pub(super) bits: u8,
    /// Steps from each coefficient to the next; 0 if there is no second one.
    pub(super) moves: [u8; 2],
    pub(super) values: [i16; 2],
}

/// Codes of AC coefficients.
pub(super) struct Pairs {
    pairs: Box<[Pair; 1 << PAIR_BITS]>,
    /// Single coefficients.
    pub(super) symbols: Table,
    /// The codes that the tables are for: most encoders use the same for all images.
    made_of: Vec<u8>,
}

impl Default for Pairs {
    fn default() -> Self {
        let pairs = Box::new([Pair::default(); 1 << PAIR_BITS]);
        Self { pairs, symbols: Table::default(), made_of: Vec::new() }
    }
}

impl Pairs {
    /// Prepares for `codes`. `None` if libjpeg would refuse them.
    pub(super) fn set(&mut self, codes: Codes<'_>) -> Option<()> {
        if codes.bytes().eq(&self.made_of) {
            return Some(());
        }
        self.made_of.clear();
        self.symbols.set(Kind::Ac, codes)?;
        for (bits, pair) in (0u64..).zip(self.pairs.iter_mut()) {
            *pair = Pair::of(&self.symbols, bits << (64 - PAIR_BITS)).unwrap_or_default();
        }
        self.made_of.extend(codes.bytes());
        Some(())
    }

    /// The pair that begins `buffer`.
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "a number of that many bits")]
    pub(super) fn pair(&self, buffer: u64) -> Pair {
        self.pairs[(buffer >> (64 - PAIR_BITS)) as usize]
    }
}

impl Pair {
    /// The pair in the first [`PAIR_BITS`] bits of `buffer`.
    fn of(symbols: &Table, buffer: u64) -> Option<Self> {
        let is_there = |bits: u8| u32::from(bits) <= PAIR_BITS;
        let first = symbols.symbol(buffer).filter(|first| is_there(first.bits))?;
        let behind = buffer << first.bits;
        let second = symbols
            .symbol(behind)
            .filter(|second| first.moves != PAST_THE_END && is_there(first.bits + second.bits))
            .unwrap_or(Symbol::NONE);
        let values = [first.value(buffer), second.value(behind)];
        Some(Self { bits: first.bits + second.bits, moves: [first.moves, second.moves], values })
    }
}
