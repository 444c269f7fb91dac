//! The scan: coefficients of the wanted blocks, one row of MCUs ("units") after another.

use std::num::NonZero;
use std::ops::Range;

use multiversion::multiversion;

use super::bits::{Bits, Segments, len};
use super::frame::{COEFFICIENTS, Component, Frame, TABLES, ZIGZAG};
use super::huffman::{Kind, PAST_THE_END, Table};
use super::pairs::{PAIR_BITS, Pairs};

/// A block's coefficients, row by row.
pub(super) type Block = [i16; COEFFICIENTS];

/// Pairs between two fills: after all but the last, the bits of a single coefficient are left, 16
/// of its code and 10 of its value.
const AT_A_TIME: u32 = 3;
const _: () = assert!((AT_A_TIME - 1) * PAIR_BITS + 16 + 10 <= Bits::FILLED);

/// First of the restart markers, and their number: they take turns.
const RST0: u8 = 0xD0;
const RESTART_MARKERS: u8 = 8;
/// End of image.
const EOI: u8 = 0xD9;

/// Buffers and tables that are kept from image to image.
#[derive(Default)]
pub(super) struct Buffers {
    dc: [Table; TABLES],
    ac: [Pairs; TABLES],
    segment: Vec<u8>,
}

/// The parts of a component that the scan needs.
#[derive(Clone, Copy, Default)]
struct Coded {
    /// Blocks in an MCU; 0 for a missing component.
    blocks: u32,
    /// Its tables.
    dc: usize,
    ac: usize,
    /// DC of its last block.
    last: i16,
}

/// A scan that is being decoded: segments of `interval` MCUs, with restart markers between them. No
/// decoding state passes from one to the next (T.81, F.2.1.3.1), so unwanted segments are skipped.
pub(super) struct Scan<'a> {
    buffers: &'a mut Buffers,
    segments: Segments<'a>,
    components: [Coded; 3],
    /// MCUs in a row.
    columns: u32,
    /// `u32::MAX` without markers.
    interval: u32,
    /// MCUs of the segment that are not decoded yet.
    left: u32,
    bits: Bits,
    /// The marker after the segment.
    marker: Option<u8>,
    /// Number of the next marker.
    number: u8,
}

impl Buffers {
    /// Frees the buffer if it is larger than that.
    pub(super) fn shrink(&mut self, bytes_max: usize) {
        shrink(&mut self.segment, bytes_max);
    }
}

impl<'a> Scan<'a> {
    /// Begins the scan of `frame`, which has `columns` MCUs in a row.
    pub(super) fn new(frame: &Frame<'a>, columns: u32, buffers: &'a mut Buffers) -> Option<Self> {
        let mut components = [Coded::default(); 3];
        for (coded, component) in components.iter_mut().zip(&frame.components) {
            let &Component { across, down, dc, ac, .. } = component;
            buffers.dc.get_mut(dc)?.set(Kind::Dc, frame.dc.get(dc).copied()??)?;
            buffers.ac.get_mut(ac)?.set(frame.ac.get(ac).copied()??)?;
            *coded = Coded { blocks: across * down, dc, ac, last: 0 };
        }
        Some(Self {
            buffers,
            segments: Segments::of(frame.data),
            components,
            columns,
            interval: NonZero::new(frame.interval).map_or(u32::MAX, NonZero::get),
            left: 0,
            bits: Bits::default(),
            marker: None,
            number: 0,
        })
    }

    /// Decodes the next row of MCUs. Appends the blocks of those in `wanted` to `found`, in coded
    /// order.
    pub(super) fn row(&mut self, wanted: Range<u32>, found: &mut Vec<Block>) -> Option<()> {
        let mut column = 0;
        while column < self.columns {
            if self.left == 0 {
                let end = column.saturating_add(self.interval);
                let is_beside = end <= self.columns && (end <= wanted.start || wanted.end <= column);
                self.begin_segment(is_beside)?;
                if is_beside {
                    column = end;
                    continue;
                }
            }
            let end = self.columns.min(column.saturating_add(self.left));
            units(self, column..end, &wanted, found)?;
            if self.interval < u32::MAX {
                self.left -= end - column;
            }
            if self.left == 0 && !self.is_segment_taken() {
                return None;
            }
            column = end;
        }
        (self.bits.taken() <= len(&self.buffers.segment)).then_some(())
    }

    /// Begins the next segment, or skips it.
    fn begin_segment(&mut self, over: bool) -> Option<()> {
        if let Some(marker) = self.marker {
            if marker != RST0 + self.number {
                return None;
            }
            self.number = (self.number + 1) % RESTART_MARKERS;
        }
        self.bits = Bits::default();
        for coded in &mut self.components {
            coded.last = 0;
        }
        self.left = if over { 0 } else { self.interval };
        let Buffers { segment, .. } = &mut *self.buffers;
        segment.clear();
        self.marker = Some(self.segments.next((!over).then_some(segment))?);
        Some(())
    }

    /// Whether at most the last bits of a byte are left of the segment.
    fn is_segment_taken(&self) -> bool {
        self.bits.taken() == len(&self.buffers.segment)
    }

    /// Whether the image ends here.
    pub(super) fn is_at_end(&self) -> bool {
        self.marker == Some(EOI) && self.is_segment_taken()
    }
}

/// Decodes the MCUs of `columns`, and keeps the blocks of those in `wanted`.
#[multiversion(targets("x86_64+avx2+bmi1+bmi2+lzcnt+popcnt"))]
fn units(
    scan: &mut Scan<'_>,
    columns: Range<u32>,
    wanted: &Range<u32>,
    found: &mut Vec<Block>,
) -> Option<()> {
    let Buffers { dc, ac, segment } = &*scan.buffers;
    let mut bits = scan.bits;
    let mut unwanted = [0; COEFFICIENTS];
    for column in columns {
        let is_wanted = wanted.contains(&column);
        for coded in &mut scan.components {
            let (dc, ac) = (dc.get(coded.dc)?, ac.get(coded.ac)?);
            for _ in 0..coded.blocks {
                let block = if is_wanted {
                    found.push([0; COEFFICIENTS]);
                    found.last_mut()?
                } else {
                    &mut unwanted
                };
                bits.fill(segment);
                let symbol = dc.symbol(bits.buffer)?;
                coded.last = coded.last.wrapping_add(symbol.value(bits.buffer));
                bits.skip(symbol.bits);
                *block.first_mut()? = coded.last;
                bits = coefficients(ac, bits, segment, block)?;
            }
        }
    }
    scan.bits = bits;
    Some(())
}

/// Decodes a block's AC coefficients into `block`, which has zeros there.
#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "arrays of 256 and 64")]
fn coefficients(table: &Pairs, mut bits: Bits, segment: &[u8], block: &mut Block) -> Option<Bits> {
    const LAST: usize = COEFFICIENTS - 1;
    const END: usize = PAST_THE_END as usize;
    // The last decoded coefficient, in coded order.
    let mut at = 0;
    let mut store = |at: usize, value: i16| block[usize::from(ZIGZAG[at & 255]) & LAST] = value;
    loop {
        bits.fill(segment);
        for _ in 0..AT_A_TIME {
            let pair = table.pair(bits.buffer);
            if pair.bits == 0 {
                let symbol = table.symbols.symbol(bits.buffer)?;
                at += usize::from(symbol.moves);
                store(at, symbol.value(bits.buffer));
                bits.skip(symbol.bits);
                if at >= LAST {
                    return (at == LAST || at >= END).then_some(bits);
                }
                break;
            }
            let first = at + usize::from(pair.moves[0]);
            at = first + usize::from(pair.moves[1]);
            // The second one first: if there is none, its place is the first one's.
            store(at, pair.values[1]);
            store(first, pair.values[0]);
            if at >= LAST {
                let taken = if first == LAST && at > LAST {
                    // The second one belongs to the next block.
                    table.symbols.symbol(bits.buffer)?.bits
                } else {
                    pair.bits
                };
                bits.skip(taken);
                let is_in_place = first == LAST || first >= END || first < LAST && (at == LAST || at >= END);
                return is_in_place.then_some(bits);
            }
            bits.skip(pair.bits);
        }
    }
}

/// Frees a buffer that has grown beyond `bytes_max`.
pub(super) fn shrink(buffer: &mut Vec<u8>, bytes_max: usize) {
    if buffer.capacity() > bytes_max {
        *buffer = Vec::new();
    }
}
