//! Huffman codes as tables: look-up of the next symbol by the next bits of the data.

/// Bits of the first look-up, which finds most codes.
const BITS: u32 = 9;
/// Bits of the longest code.
const LONGEST: u32 = 16;
/// A symbol is a byte.
const SYMBOLS_MAX: usize = 256;
/// The largest symbol that libjpeg accepts in a DC table, whether it occurs or not.
const DC_SYMBOL_MAX: u8 = 15;
/// Bits of the largest difference of DC and of the largest AC coefficient, at 8 bits a sample.
const DC_SIZE_MAX: u8 = 11;
const AC_SIZE_MAX: u8 = 10;
/// Step of an end of block: past the end, and farther than any run.
pub(super) const PAST_THE_END: u8 = 128;

/// The codes of a table as they are in a file (ITU-T T.81, B.2.4.2).
#[derive(Clone, Copy)]
pub(super) struct Codes<'a> {
    /// Number of codes of each length from 1 on.
    counts: &'a [u8; LONGEST as usize],
    /// Their symbols.
    symbols: &'a [u8],
}

/// The coefficients that codes are for.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Dc,
    Ac,
}

/// The meaning of a code: some zeros, then a coefficient whose value follows the code.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Symbol {
    /// Length of code and value; 0 for no code.
    pub(super) bits: u8,
    code_bits: u8,
    /// Steps from the last coefficient to this one.
    pub(super) moves: u8,
}

/// Symbols by the bits that their codes begin with.
pub(super) struct Table {
    by_bits: Box<[Symbol; 1 << BITS]>,
    /// Symbols of longer codes, by [`LONGEST`] bits minus `first_long`.
    by_long: Vec<Symbol>,
    first_long: usize,
}

impl<'a> Codes<'a> {
    /// Codes at the beginning of `bytes`, and the rest.
    pub(super) fn read(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (counts, rest) = bytes.split_first_chunk()?;
        let count = counts.iter().map(|&count| usize::from(count)).sum();
        let (symbols, rest) = rest.split_at_checked(count).filter(|_| count <= SYMBOLS_MAX)?;
        Some((Self { counts, symbols }, rest))
    }

    /// All bytes of the codes.
    pub(super) fn bytes(self) -> impl Iterator<Item = &'a u8> {
        self.counts.iter().chain(self.symbols)
    }
}

impl Symbol {
    pub(super) const NONE: Self = Self { bits: 0, code_bits: 0, moves: 0 };

    /// [`Symbol::NONE`] for a symbol that cannot occur with 8 bits a sample.
    fn new(kind: Kind, symbol: u8, code_bits: u8) -> Self {
        let (run, size) = (symbol >> 4, symbol & 15);
        let moves = match (kind, run, size) {
            (Kind::Ac, 0, 0) => PAST_THE_END,
            (Kind::Ac, _, 1..=AC_SIZE_MAX) | (Kind::Ac, 15, 0) => run + 1,
            (Kind::Dc, 0, 0..=DC_SIZE_MAX) => 1,
            _ => return Self::NONE,
        };
        Self { bits: code_bits + size, code_bits, moves }
    }

    /// The value after the code, which begins `buffer` (T.81, F.2.2.1: EXTEND of RECEIVE).
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "a value has 11 bits at most; its first bit is the word's sign"
    )]
    pub(super) fn value(self, buffer: u64) -> i16 {
        let size = u32::from(self.bits - self.code_bits) & 15;
        let behind = buffer << (self.code_bits & 31);
        // Two shifts, as `size` may be 0.
        let bits = (behind >> 1 >> (63 - size)) as i16;
        // A value whose first bit is 0 is negative: all other bits set is -1.
        let below = !((behind as i64 >> 63) as i16);
        bits + (below & (1 - (1 << size)))
    }
}

impl Default for Table {
    fn default() -> Self {
        Self { by_bits: Box::new([Symbol::NONE; 1 << BITS]), by_long: Vec::new(), first_long: 0 }
    }
}

impl Table {
    /// Prepares for `codes`. `None` if libjpeg would refuse them.
    pub(super) fn set(&mut self, kind: Kind, codes: Codes<'_>) -> Option<()> {
        if matches!(kind, Kind::Dc) && codes.symbols.iter().any(|&symbol| symbol > DC_SYMBOL_MAX) {
            return None;
        }
        let Self { by_bits, by_long, first_long } = self;
        by_long.clear();
        let mut symbols = codes.symbols.iter();
        // Codes fill the numbers of 16 bits from 0 on, in their order.
        let mut filled = 0;
        for (bits, &count) in (1..).zip(codes.counts) {
            let is_long = u32::from(bits) > BITS;
            if u32::from(bits) == BITS + 1 {
                *first_long = filled;
                by_bits.get_mut(filled >> (LONGEST - BITS)..)?.fill(Symbol::NONE);
            }
            for &symbol in symbols.by_ref().take(count.into()) {
                let symbol = Symbol::new(kind, symbol, bits);
                let end = filled + (1 << (LONGEST - u32::from(bits)));
                if is_long {
                    by_long.resize(end - *first_long, symbol);
                } else {
                    by_bits.get_mut(filled >> (LONGEST - BITS)..end >> (LONGEST - BITS))?.fill(symbol);
                }
                filled = end;
            }
        }
        // No code is all ones.
        (filled < 1 << LONGEST).then_some(())
    }

    /// The symbol whose code begins `buffer`; `None` if none does.
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "a number of that many bits")]
    pub(super) fn symbol(&self, buffer: u64) -> Option<Symbol> {
        let symbol = self.by_bits[(buffer >> (64 - BITS)) as usize];
        if symbol == Symbol::NONE { self.long(buffer) } else { Some(symbol) }
    }

    #[inline]
    fn long(&self, buffer: u64) -> Option<Symbol> {
        let at = ((buffer >> (64 - LONGEST)) as usize).checked_sub(self.first_long)?;
        self.by_long.get(at).copied().filter(|&symbol| symbol != Symbol::NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bits of `text`, then ones.
    fn bits(text: &str) -> u64 {
        let ones = u64::MAX >> text.len();
        text.chars()
            .rev()
            .enumerate()
            .fold(ones, |bits, (at, digit)| bits | u64::from(digit == '1') << (64 - text.len() + at))
    }

    fn table(kind: Kind, bytes: &[u8]) -> Option<Table> {
        let mut table = Table::default();
        let (codes, rest) = Codes::read(bytes)?;
        assert!(rest.is_empty());
        table.set(kind, codes)?;
        Some(table)
    }

    /// Codes 00, 010 and 1111 1111 10 of a table for AC.
    const CODES: [u8; 19] = [0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x00, 0x23, 0xF0];

    #[test]
    fn codes_and_values_are_found() {
        let mut bytes = CODES;
        bytes[15] = 1;
        let table = table(Kind::Ac, &bytes).unwrap();
        let symbol = |text: &str| {
            let buffer = bits(text);
            table.symbol(buffer).map(|symbol| (symbol.bits, symbol.moves, symbol.value(buffer)))
        };
        assert_eq!(symbol("00"), Some((2, PAST_THE_END, 0)));
        // T.81, table F.2: values of 3 bits are -7 to -4 and 4 to 7.
        for (text, value) in [("000", -7), ("011", -4), ("100", 4), ("111", 7)] {
            assert_eq!(symbol(&format!("010{text}")), Some((6, 3, value)));
        }
        assert_eq!(symbol("0110000000000000"), Some((16, 16, 0)), "a long one");
        assert_eq!(symbol("0110000000000001"), None);
        assert_eq!(symbol("1"), None);
    }

    #[test]
    fn what_is_no_set_of_codes_is_refused() {
        let mut bytes = CODES;
        bytes[15] = 1;
        assert!(table(Kind::Ac, &bytes).is_some());
        assert!(table(Kind::Ac, &bytes[..18]).is_none(), "cut off");
        let with_one_bit = |count: u8| [&[count][..], &[0; 15], &[1, 2, 3][..count.into()]].concat();
        assert!(table(Kind::Ac, &with_one_bit(1)).is_some());
        assert!(table(Kind::Ac, &with_one_bit(2)).is_none(), "a code of ones");
        assert!(table(Kind::Ac, &with_one_bit(3)).is_none(), "more codes than there are");
        assert!(table(Kind::Dc, &bytes).is_none(), "a symbol that DC never has");
        // A symbol that DC does not have at 8 bits a sample counts as no code.
        bytes[17..].copy_from_slice(&[12, 11]);
        let dc = table(Kind::Dc, &bytes).unwrap();
        assert!(dc.symbol(bits("00")).is_some() && dc.symbol(bits("010")).is_none());
        assert!(dc.symbol(bits("0110000000000000")).is_some());
    }
}
