//! Samples of a component, as far as they are wanted.

use std::ops::Range;

use super::Size;
use super::frame::{COEFFICIENTS, Component};
use super::inverse::{Samples, inverse};
use super::layout::{Layout, Units};
use super::scan::{Block, shrink};

/// A component's samples; its buffer is kept from image to image.
#[derive(Default)]
pub(super) struct Plane {
    /// Row by row.
    samples: Vec<u8>,
    /// Columns of samples.
    pitch: usize,
    /// Place of the first sample in the component.
    left: usize,
    top: usize,
    /// Size of the whole component.
    pub(super) size: Size,
    /// Blocks in an MCU.
    across: usize,
    down: usize,
    /// Samples along a block's side.
    side: usize,
}

impl Plane {
    /// Makes room for the samples of component `at` in `units`.
    pub(super) fn start(&mut self, component: &Component, at: usize, layout: &Layout, units: &Units) {
        let (across, down, side) = (component.across as usize, component.down as usize, layout.side(at));
        let (width, height) = (across * side, down * side);
        let pitch = units.columns.len() * width;
        let mut samples = std::mem::take(&mut self.samples);
        let count = pitch * units.rows.len() * height;
        // Never shorter: old samples are overwritten.
        samples.resize(count.max(samples.len()), 0);
        let (left, top) = (units.columns.start as usize * width, units.rows.start as usize * height);
        *self = Self { samples, pitch, left, top, size: layout.component(at), across, down, side };
    }

    /// Blocks of an MCU.
    pub(super) fn blocks(&self) -> usize {
        self.across * self.down
    }

    /// Adds the blocks of the MCU in `column` and `row`, in coded order.
    pub(super) fn place(
        &mut self,
        blocks: &[Block],
        quantization: &[i16; COEFFICIENTS],
        [column, row]: [usize; 2],
    ) -> Option<()> {
        let mut samples = Samples::default();
        for (at, block) in blocks.iter().enumerate() {
            inverse(block, quantization, self.side, &mut samples);
            let x = self.side * (column * self.across + at % self.across);
            let y = self.side * (row * self.down + at / self.across);
            let lines = self.samples.get_mut(y * self.pitch + x..)?.chunks_mut(self.pitch);
            for (samples, line) in samples.iter().zip(lines).take(self.side) {
                // Where possible, a length that the compiler knows.
                if let ([whole, ..], true) = (line.as_chunks_mut().0, self.side == samples.len()) {
                    *whole = *samples;
                } else {
                    line.get_mut(..self.side)?.copy_from_slice(samples.get(..self.side)?);
                }
            }
        }
        Some(())
    }

    /// Samples of a row of the component, or of its last row if there are fewer.
    pub(super) fn row(&self, row: usize, columns: Range<usize>) -> Option<&[u8]> {
        let row = row.min((self.size.height as usize).checked_sub(1)?).checked_sub(self.top)?;
        let from = row * self.pitch + columns.start.checked_sub(self.left)?;
        self.samples.get(from..from + columns.len())
    }

    /// Frees the buffer if it is larger than that.
    pub(super) fn shrink(&mut self, bytes_max: usize) {
        shrink(&mut self.samples, bytes_max);
    }
}
