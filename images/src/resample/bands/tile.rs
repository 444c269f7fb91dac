//! Tiles of a band, and the chunks of the source's lines that fill them.

/// Lines of a band: the number of 16-bit values in a vector.
pub(crate) const LINES: usize = 16;

/// Columns of a tile, which are turned together.
pub(super) const TILE: usize = 8;

/// Bytes of a source's line that are read at a time: four tiles.
pub(super) const CHUNK: usize = 32;

/// A value of each of the band's lines.
pub(super) type Column = [i16; LINES];

/// 8 values of each of the band's lines: line by line, or, once turned, column by column.
pub(super) type Tile = [i16; LINES * TILE];

/// The chunk `at` of a line, with zeros past the end of the decoded pixels.
#[inline(always)]
pub(super) fn chunk(line: &[u8], at: usize) -> [u8; CHUNK] {
    line.as_chunks().0.get(at).copied().unwrap_or_else(|| last_chunk(line, at))
}

#[cold]
fn last_chunk(line: &[u8], at: usize) -> [u8; CHUNK] {
    let mut chunk = [0; CHUNK];
    let rest = line.get(at * CHUNK..).unwrap_or_default();
    chunk.iter_mut().zip(rest).for_each(|(to, &value)| *to = value);
    chunk
}
