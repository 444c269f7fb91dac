//! The steps for any CPU and any number of taps, on the tiles of a band. Chunks of the source's
//! lines fill them.

use super::weights::Weights;

/// Lines of a band: the number of 16-bit values in a vector.
pub(crate) const LINES: usize = 16;

/// Columns of a tile, which are turned together.
pub(super) const TILE: usize = 8;

/// Bytes of a source's line that are read at a time: four tiles.
pub(crate) const CHUNK: usize = 32;

/// A value of each of the band's lines.
pub(super) type Column = [i16; LINES];

/// 8 values of each of the band's lines: line by line, or, once turned, column by column.
pub(super) type Tile = [i16; LINES * TILE];

/// The chunk `at` of a line, with zeros past the end of the decoded pixels.
#[inline(always)]
pub(crate) fn chunk(line: &[u8], at: usize) -> [u8; CHUNK] {
    line.as_chunks().0.get(at).copied().unwrap_or_else(|| last_chunk(line, at))
}

#[cold]
fn last_chunk(line: &[u8], at: usize) -> [u8; CHUNK] {
    let mut chunk = [0; CHUNK];
    let rest = line.get(at * CHUNK..).unwrap_or_default();
    chunk.iter_mut().zip(rest).for_each(|(to, &value)| *to = value);
    chunk
}

/// Writes line `line` of `tiles`: the weighted sum of the lines of `rgb`, which are `pitch` bytes
/// apart.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "a sum of bytes weighted by 2^15 in all is within 2^22 of 0"
)]
pub(super) fn down(rgb: &[u8], pitch: usize, weights: &[i16], tiles: &mut [Tile], line: usize) {
    for (at, tiles) in tiles.as_chunks_mut::<{ CHUNK / TILE }>().0.iter_mut().enumerate() {
        // Rounds to the nearest.
        let mut sums = [1 << 6; CHUNK];
        for (tap, &weight) in weights.iter().enumerate() {
            let values = chunk(rgb.get(tap * pitch..).unwrap_or_default(), at);
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += (i32::from(value) - 128) * i32::from(weight);
            }
        }
        for (tile, sums) in tiles.iter_mut().zip(sums.as_chunks::<TILE>().0) {
            if let Some(to) = tile.as_chunks_mut::<TILE>().0.get_mut(line) {
                *to = sums.map(|sum| (sum >> 7) as i16);
            }
        }
    }
}

/// A tile's lines become its columns.
#[inline(always)]
pub(super) fn turn(tile: &mut Tile) {
    let lines = *tile;
    for (from, column) in tile.as_chunks_mut::<LINES>().0.iter_mut().enumerate() {
        for (value, &line) in column.iter_mut().zip(lines.iter().skip(from).step_by(TILE)) {
            *value = line;
        }
    }
}

/// Writes `done`: each pixel is the weighted sum of some of `pixels`.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "16 bits by weights of 2^15 are 31 bits"
)]
pub(super) fn across(pixels: &[[Column; 3]], weights: &Weights, done: &mut [[[u8; LINES]; 3]]) {
    for (done, (start, weights)) in done.iter_mut().zip(weights.from(0)) {
        let mut sums = [[1 << 22; LINES]; 3];
        for (pixel, &weight) in pixels.get(start..).unwrap_or_default().iter().zip(weights) {
            for (sum, &value) in sums.as_flattened_mut().iter_mut().zip(pixel.as_flattened()) {
                *sum += i32::from(value) * i32::from(weight);
            }
        }
        *done = sums.map(|sums| sums.map(|sum| ((sum >> 23) + 128) as u8));
    }
}

/// Sixteen columns become lines.
#[inline(always)]
pub(super) fn turn_back(columns: [&[u8; LINES]; LINES]) -> [[u8; LINES]; LINES] {
    let mut lines = [[0; LINES]; LINES];
    for (at, column) in columns.into_iter().enumerate() {
        for (value, &from) in lines.as_flattened_mut().iter_mut().skip(at).step_by(LINES).zip(column) {
            *value = from;
        }
    }
    lines
}
