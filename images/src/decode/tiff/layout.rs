//! Where a TIFF's samples lie: in strips or tiles, pixel by pixel or plane by plane.

use super::directory::{Directory, corrupt, tag, unsupported};
use super::unpack::{Compression, EXPANSION_MAX, high_byte_first, undo_differences};
use crate::limits::{RGBA_BYTES_MAX, check_size, scratch};
use crate::{Area, ImageFault, Size};

/// Most bytes of the samples of an image, or of a strip or tile: four words a pixel.
const BYTES_MAX: u64 = 2 * RGBA_BYTES_MAX as u64;

/// The layout of a page.
pub(super) struct Layout {
    pub(super) size: Size,
    /// Bits of a sample: 1, 2, 4, 8 or 16.
    pub(super) bits: u32,
    pub(super) samples_per_pixel: usize,
    compression: Compression,
    /// Samples are stored as differences (`Predictor` 2).
    has_differences: bool,
    /// The first bit of a byte is its lowest (`FillOrder` 2).
    is_reversed: bool,
    is_big_endian: bool,
    /// Each sample of the pixels has strips or tiles of its own.
    pub(super) has_planes: bool,
    is_tiled: bool,
    /// Size of a strip or tile. The last strip may be lower, and a tile may reach beyond the image.
    chunk: Size,
    /// Where each strip or tile begins: row by row, plane by plane.
    offsets: Vec<u64>,
    /// Their stored bytes.
    lengths: Option<Vec<u64>>,
}

/// A strip or tile.
struct Chunk<'a> {
    stored: &'a [u8],
    plane: usize,
    /// The pixels that it shows.
    area: Area,
    /// Rows that are unpacked.
    rows: u32,
}

impl Layout {
    pub(super) fn read(directory: &Directory<'_>) -> Result<Self, ImageFault> {
        let side = |tag, name| {
            let value = directory.one(tag)?.and_then(|side| u32::try_from(side).ok());
            value.ok_or_else(|| corrupt(format_args!("it has no {name}")))
        };
        let size = Size { width: side(tag::WIDTH, "width")?, height: side(tag::HEIGHT, "height")? };
        check_size(size.width.into(), size.height.into())?;
        let samples_per_pixel = match directory.one(tag::SAMPLES)?.unwrap_or(1) {
            count @ 1..=6 => usize::try_from(count).unwrap_or(0),
            count => return Err(unsupported(format_args!("{count} samples a pixel"))),
        };
        let bits = bits(directory, samples_per_pixel)?;
        let compression = Compression::from_tag(directory.one(tag::COMPRESSION)?.unwrap_or(1))?;
        let has_predictor = matches!(compression, Compression::Lzw | Compression::Deflate);
        let predictor = directory.one(tag::PREDICTOR)?.filter(|_| has_predictor).unwrap_or(1);
        if !matches!((predictor, bits), (1, _) | (2, 8 | 16)) {
            return Err(unsupported(format_args!("predictor {predictor} of samples of {bits} bits")));
        }
        let fill_order = directory.one(tag::FILL_ORDER)?.unwrap_or(1);
        let planes = directory.one(tag::PLANES)?.unwrap_or(1);
        if ![1, 2].contains(&fill_order) || ![1, 2].contains(&planes) {
            return Err(unsupported(format_args!("bit order {fill_order} and plane order {planes}")));
        }
        let strips = directory.all(tag::STRIP_OFFSETS)?;
        let is_tiled = strips.is_none();
        let (chunk, offsets, lengths) = if let Some(offsets) = strips {
            let rows = directory.one(tag::ROWS_PER_STRIP)?.unwrap_or(u64::MAX);
            let height = u32::try_from(rows.min(size.height.into())).unwrap_or(size.height);
            (Size { height, ..size }, offsets, directory.all(tag::STRIP_BYTES)?)
        } else {
            let chunk = Size {
                width: side(tag::TILE_WIDTH, "strips, and no tiles")?,
                height: side(tag::TILE_HEIGHT, "height of tiles")?,
            };
            let offsets = directory.all(tag::TILE_OFFSETS)?;
            let offsets = offsets.ok_or_else(|| corrupt("it has neither strips nor tiles"))?;
            (chunk, offsets, directory.all(tag::TILE_BYTES)?)
        };
        let layout = Self {
            size,
            bits,
            samples_per_pixel,
            compression,
            has_differences: predictor == 2,
            is_reversed: fill_order == 2,
            is_big_endian: directory.is_big_endian(),
            has_planes: planes == 2 && samples_per_pixel > 1,
            is_tiled,
            chunk,
            offsets,
            lengths,
        };
        layout.checked()
    }

    /// The layout, unless its numbers do not fit each other.
    fn checked(self) -> Result<Self, ImageFault> {
        let bits = u64::from(self.chunk.width) * u64::from(self.bits) * self.stored_samples() as u64;
        let bytes = bits.div_ceil(8).checked_mul(self.chunk.height.into());
        if !matches!(bytes, Some(1..=BYTES_MAX)) {
            return Err(corrupt("a strip or tile has no pixels or too many"));
        }
        let row_bits = u64::from(self.chunk.width) * u64::from(self.bits);
        if !row_bits.is_multiple_of(8) && self.chunk.width < self.size.width {
            return Err(unsupported("tiles that end within a byte"));
        }
        let planes = if self.has_planes { self.samples_per_pixel as u64 } else { 1 };
        let count = self.per_plane().checked_mul(planes);
        let fits = |len: usize| count == Some(len as u64);
        if !fits(self.offsets.len()) || self.lengths.as_ref().is_some_and(|lengths| !fits(lengths.len())) {
            return Err(corrupt("it has more or fewer strips or tiles than its size takes"));
        }
        Ok(self)
    }

    /// Strips or tiles across and down.
    fn grid(&self) -> [u32; 2] {
        [self.size.width.div_ceil(self.chunk.width), self.size.height.div_ceil(self.chunk.height)]
    }

    fn per_plane(&self) -> u64 {
        let [across, down] = self.grid();
        u64::from(across) * u64::from(down)
    }

    /// Samples of a pixel in a strip or tile.
    fn stored_samples(&self) -> usize {
        if self.has_planes { 1 } else { self.samples_per_pixel }
    }

    fn row_bytes(&self, width: u32, samples: usize) -> usize {
        (width as usize * samples * self.bits as usize).div_ceil(8)
    }

    /// The first `shown` samples of each pixel, pixel by pixel, in `room`. Each row begins at a
    /// byte, and words have the high byte first.
    pub(super) fn samples<'r>(
        &self,
        bytes: &[u8],
        shown: usize,
        room: &'r mut Vec<u8>,
    ) -> Result<&'r [u8], ImageFault> {
        let chunks: Vec<Chunk<'_>> = self.chunks(bytes, shown)?;
        let pitch = self.row_bytes(self.size.width, shown);
        let samples = scratch(room, pitch * self.size.height as usize);
        let mut unpacked = Vec::new();
        for chunk in chunks {
            let row_bytes = self.row_bytes(self.chunk.width, self.stored_samples());
            let len = match self.compression {
                Compression::None => chunk.stored.len(),
                _ => row_bytes * chunk.rows as usize,
            };
            let unpacked = scratch(&mut unpacked, len);
            self.compression.unpack(chunk.stored, self.is_reversed, unpacked)?;
            let lines = samples.chunks_exact_mut(pitch).skip(chunk.area.top as usize);
            let rows = unpacked.chunks_mut(row_bytes).take(chunk.area.size.height as usize);
            for (row, line) in rows.zip(lines) {
                if self.bits == 16 && !self.is_big_endian {
                    high_byte_first(row);
                }
                if self.has_differences {
                    undo_differences(row, self.bits, self.stored_samples());
                }
                self.place(row, &chunk, shown, line);
            }
        }
        Ok(samples)
    }

    /// The strips or tiles of the shown samples, once they are known to lie in the file and to be
    /// large enough.
    fn chunks<'a>(&self, bytes: &'a [u8], shown: usize) -> Result<Vec<Chunk<'a>>, ImageFault> {
        let [across, down] = self.grid();
        let planes = if self.has_planes { shown } else { 1 };
        let places = (0..planes)
            .flat_map(|plane| (0..down).flat_map(move |y| (0..across).map(move |x| (plane, x, y))));
        let outside = || corrupt("a strip or tile lies outside the file");
        let chunk = |(at, (plane, x, y))| {
            let (left, top) = (x * self.chunk.width, y * self.chunk.height);
            let area = Area { left, top, size: self.chunk }.within(self.size);
            let rows = if self.is_tiled { self.chunk.height } else { area.size.height };
            let whole_row = self.row_bytes(self.chunk.width, self.stored_samples());
            let len = match (self.compression, &self.lengths) {
                // Lengths say nothing that the size does not say.
                (Compression::None, _) => {
                    let last_row = self.row_bytes(area.size.width, self.stored_samples());
                    whole_row * (area.size.height as usize).saturating_sub(1) + last_row
                }
                (_, Some(lengths)) => {
                    let len: Option<&u64> = lengths.get::<usize>(at);
                    len.and_then(|&len| usize::try_from(len).ok()).ok_or_else(outside)?
                }
                (_, None) => return Err(corrupt("it does not say how long its strips or tiles are")),
            };
            let offset = self.offsets.get(at).and_then(|&offset| usize::try_from(offset).ok());
            let stored = offset.and_then(|offset| bytes.get(offset..)?.get(..len)).ok_or_else(outside)?;
            let unpacked = whole_row as u64 * u64::from(rows);
            if self.compression != Compression::None && unpacked / EXPANSION_MAX > len as u64 {
                return Err(corrupt("a strip or tile is too short for its size"));
            }
            Ok(Chunk { stored, plane, area, rows })
        };
        places.enumerate().map(chunk).collect()
    }

    /// Copies the shown samples of a strip's or tile's row to their place in the image's `line`.
    fn place(&self, row: &[u8], chunk: &Chunk<'_>, shown: usize, line: &mut [u8]) {
        let stored = self.stored_samples();
        let left = self.row_bytes(chunk.area.left, shown);
        let line = line.get_mut(left..).unwrap_or_default();
        if stored == shown {
            let bytes = self.row_bytes(chunk.area.size.width, shown);
            line.iter_mut().zip(row).take(bytes).for_each(|(to, &from)| *to = from);
            return;
        }
        // Only samples of whole bytes have others beside them.
        let sample_bytes = self.bits as usize / 8;
        let pixels = row.chunks_exact(stored * sample_bytes);
        let to = line.chunks_exact_mut(shown * sample_bytes).take(chunk.area.size.width as usize);
        for (pixel, to) in pixels.zip(to) {
            let at = chunk.plane * sample_bytes;
            let to = to.get_mut(at..).unwrap_or_default();
            to.iter_mut().zip(pixel).for_each(|(to, &from)| *to = from);
        }
    }
}

/// Bits of each sample, which must be the same.
fn bits(directory: &Directory<'_>, samples: usize) -> Result<u32, ImageFault> {
    let all = directory.all(tag::BITS)?.unwrap_or_else(|| vec![1]);
    let used = if all.len() == 1 { &all } else { all.get(..samples).unwrap_or_default() };
    match *used {
        [bits @ (1 | 2 | 4 | 8 | 16), ref others @ ..] if others.iter().all(|&other| other == bits) => {
            Ok(u32::try_from(bits).unwrap_or(0))
        }
        [] => Err(corrupt(format_args!("{} numbers of bits for {samples} samples", all.len()))),
        [bits, ..] => Err(unsupported(format_args!("samples of {bits} bits, or of several sizes"))),
    }
}
