//! Floats of a row's bytes, piece by piece on their way to the batch.

use shade_job::ImageSpec;

use crate::normalize::{COLOURS, Lanes};
use crate::scratch;

/// Bytes that become floats at a time: their floats stay in the L1 cache until they are copied. A
/// whole number of pixels.
const PIECE: usize = 1024 * COLOURS;

/// Passes pieces of rows on, as floats where the job wants them; keeps its buffer.
#[derive(Default)]
pub(super) struct FloatWriter {
    values: Vec<u8>,
}

impl FloatWriter {
    /// Passes `bytes`, which begin at value `at` of the row, to `write`: as they are, or as floats
    /// piece by piece. The offsets that it gets are in bytes.
    ///
    /// `bytes` may be of several planes. Where colours lie side by side they are whole pixels.
    pub(super) fn write<E>(
        &mut self,
        spec: &ImageSpec,
        at: u64,
        bytes: &[u8],
        mut write: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(floats) = spec.floats else { return write(at, bytes) };
        let value_bytes = floats.dtype.bytes();
        let (mut at, mut rest) = (at, bytes);
        if spec.channels_last && !spec.grey {
            assert!(at.is_multiple_of(COLOURS as u64), "a piece of pixels, and not of colours");
            let lanes = Lanes::interleaved(&floats);
            return self.pieces(&lanes, value_bytes, at, rest, write);
        }
        let plane = u64::from(spec.width) * u64::from(spec.height);
        while !rest.is_empty() {
            let colour = usize::try_from(at / plane).unwrap_or(usize::MAX);
            let left = usize::try_from(plane - at % plane).unwrap_or(usize::MAX);
            let of_plane = rest.split_off(..left.min(rest.len())).unwrap_or_default();
            self.pieces(&Lanes::plane(&floats, colour), value_bytes, at, of_plane, &mut write)?;
            at += of_plane.len() as u64;
        }
        Ok(())
    }

    fn pieces<E>(
        &mut self,
        lanes: &Lanes,
        value_bytes: usize,
        at: u64,
        bytes: &[u8],
        mut write: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut at = at * value_bytes as u64;
        for piece in bytes.chunks(PIECE) {
            let values = scratch(&mut self.values, piece.len() * value_bytes);
            lanes.fill(piece, values);
            write(at, values)?;
            at += values.len() as u64;
        }
        Ok(())
    }
}
