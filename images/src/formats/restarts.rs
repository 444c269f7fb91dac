//! Restart markers of a JPEG: the places at which decoding can begin. Given them, an excerpt of a JPEG is a JPEG again, of
//! the segments between markers that an area touches, so that nothing beside the area is decoded.
//!
//! Between two markers a decoder keeps no state: colours begin at 0, bits at a byte (ITU-T T.81, E.1.4 and F.1.1.5). So
//! segments can be left out, if the size in the header and the markers' numbers follow.

use std::ops::Range;

use memchr::memchr_iter;

use crate::{Area, Size};

/// Start of image.
const SOI: [u8; 2] = [0xFF, 0xD8];
/// End of image.
const EOI: u8 = 0xD9;
/// First of the eight restart markers, which take turns.
const RST0: u8 = 0xD0;
/// Sides of a block of coefficients, pixels.
const BLOCK: u32 = 8;

/// Columns of pixels between two markers that are added to a JPEG: one unit of coding with the usual half resolution of
/// colours. Fewer would not be possible there, more would decode more beside a crop.
const SPACING: u32 = 16;

/// Units of coding (MCUs) between two markers for an image `width` pixels wide, whose units have `unit_width`: about
/// [`SPACING`] pixels, and a whole number of times in a row of units, so that every row begins at a marker.
pub(super) fn spacing(width: u32, unit_width: u32) -> u32 {
    let in_a_row = width.div_ceil(unit_width);
    (2..=SPACING / unit_width).rev().find(|&units| in_a_row.is_multiple_of(units)).unwrap_or(1)
}

/// Makes excerpts; keeps its buffers from image to image.
#[derive(Default)]
pub(super) struct Excerpts {
    bytes: Vec<u8>,
    /// Where each segment of entropy-coded data lies.
    segments: Vec<Range<usize>>,
}

/// An excerpt of a JPEG.
pub(super) struct Excerpt<'a> {
    pub(super) bytes: &'a [u8],
    /// Where its first pixel is in the image.
    pub(super) left: u32,
    pub(super) top: u32,
}

impl Excerpts {
    /// The smallest excerpt of `bytes` in which the area lies; `None` where that is the image itself, or where an excerpt cannot be
    /// made: without markers, of a progressive image, or if anything about it is unusual.
    pub(super) fn cut(&mut self, bytes: &[u8], area: Area) -> Option<Excerpt<'_>> {
        let frame = Frame::read(bytes)?;
        let grid = frame.grid()?;
        let (columns, rows) = grid.around(area.within(frame.size))?;
        if columns.len() == grid.columns as usize && rows.len() == grid.rows as usize {
            return None;
        }
        let per_row = grid.columns as usize;
        find_segments(bytes, frame.data, rows.end as usize * per_row, &mut self.segments)?;

        self.bytes.clear();
        self.bytes.extend_from_slice(bytes.get(..frame.data)?);
        let mut number = 0;
        for row in rows.clone() {
            let from = row as usize * per_row;
            let segments = self.segments.get(from + columns.start as usize..from + columns.end as usize)?;
            for segment in segments {
                self.bytes.extend_from_slice(bytes.get(segment.clone())?);
                self.bytes.extend_from_slice(&[0xFF, RST0 + number % 8]);
                number = (number + 1) % 8;
            }
        }
        *self.bytes.last_mut()? = EOI;

        let (left, top) = (columns.start * grid.width, rows.start * grid.height);
        let right = (columns.end * grid.width).min(frame.size.width);
        let bottom = (rows.end * grid.height).min(frame.size.height);
        let sides = [bottom - top, right - left].map(u16::try_from);
        for (side, at) in sides.into_iter().zip([frame.sides, frame.sides + 2]) {
            self.bytes.get_mut(at..at + 2)?.copy_from_slice(&side.ok()?.to_be_bytes());
        }
        Some(Excerpt { bytes: &self.bytes, left, top })
    }

    /// Gives back what one large image made the buffers grow to.
    pub(super) fn shrink(&mut self) {
        crate::limits::shrink(&mut self.bytes);
        if self.segments.capacity() * size_of::<Range<usize>>() > crate::limits::SCRATCH_KEEP_BYTES {
            self.segments = Vec::new();
        }
    }
}

/// What the headers say of a JPEG of one scan, coded with Huffman tables and without progression.
struct Frame {
    size: Size,
    /// Where its height stands, with the width behind it.
    sides: usize,
    /// Pixels of a unit of coding.
    unit: Size,
    /// Units between two markers, not 0.
    interval: u32,
    /// Where the entropy-coded data begins.
    data: usize,
}

impl Frame {
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut found = None;
        let mut interval = 0;
        let mut at = bytes.starts_with(&SOI).then_some(SOI.len())?;
        loop {
            let &[0xFF, marker, high, low] = bytes.get(at..at + 4)?.as_array()? else { return None };
            let end = at + 2 + usize::from(u16::from_be_bytes([high, low]));
            let content = bytes.get(at + 4..end)?;
            match marker {
                // Baseline and extended sequential.
                0xC0 | 0xC1 => {
                    let (&[8, h0, h1, w0, w1, components], rest) = content.split_first_chunk()? else {
                        return None;
                    };
                    let sides = [[w0, w1], [h0, h1]].map(|side| u32::from(u16::from_be_bytes(side)));
                    let (sampling, []) = rest.as_chunks::<3>() else { return None };
                    if found.is_some() || sampling.len() != usize::from(components) {
                        return None;
                    }
                    found = Some((Size { width: sides[0], height: sides[1] }, at + 5, unit(sampling)?));
                }
                // DRI.
                0xDD => interval = u32::from(u16::from_be_bytes(*content.as_array()?)),
                // SOS: all components in one scan.
                0xDA => {
                    let (size, sides, (components, unit)) = found?;
                    let is_whole = content.first().is_some_and(|&count| usize::from(count) == components)
                        && content.ends_with(&[0, 63, 0])
                        && size.pixels() > 0
                        && interval > 0;
                    return is_whole.then_some(Self { size, sides, unit, interval, data: end });
                }
                // Tables, comments, applications' data.
                0xC4 | 0xDB | 0xE0..=0xEF | 0xFE => {}
                _ => return None,
            }
            at = end;
        }
    }

    /// How segments tile the image; `None` where they begin in the middle of one row and end in that of another.
    fn grid(&self) -> Option<Grid> {
        let in_a_row = self.size.width.div_ceil(self.unit.width);
        let (across, down) = if in_a_row.is_multiple_of(self.interval) {
            (self.interval, 1)
        } else if self.interval.is_multiple_of(in_a_row) {
            (in_a_row, self.interval / in_a_row)
        } else {
            return None;
        };
        let (width, height) = (across * self.unit.width, down * self.unit.height);
        let (columns, rows) = (self.size.width.div_ceil(width), self.size.height.div_ceil(height));
        Some(Grid { width, height, columns, rows })
    }
}

/// The number of components and the pixels of a unit of coding, of components as a header describes them.
fn unit(components: &[[u8; 3]]) -> Option<(usize, Size)> {
    // One component is coded block by block, whatever its sampling.
    let (mut across, mut down) = (1, 1);
    if components.len() > 1 {
        for &[_, sampling, _] in components {
            (across, down) = (across.max(sampling >> 4), down.max(sampling & 15));
        }
    }
    let is_allowed = (1..=4).contains(&across) && (1..=4).contains(&down) && !components.is_empty();
    let size = Size { width: BLOCK * u32::from(across), height: BLOCK * u32::from(down) };
    is_allowed.then_some((components.len(), size))
}

/// Segments as tiles of the image.
struct Grid {
    /// Of a tile, pixels.
    width: u32,
    height: u32,
    /// Tiles.
    columns: u32,
    rows: u32,
}

impl Grid {
    /// Columns and rows of the tiles that an area of the image touches.
    fn around(&self, area: Area) -> Option<(Range<u32>, Range<u32>)> {
        let Area { left, top, size } = area;
        let columns = left / self.width..(left + size.width).div_ceil(self.width);
        let rows = top / self.height..(top + size.height).div_ceil(self.height);
        (size.pixels() > 0).then_some((columns, rows))
    }
}

/// Finds the first `count` segments of the data that begins at `from`. `None` if they are not there with their markers in turn.
fn find_segments(bytes: &[u8], from: usize, count: usize, segments: &mut Vec<Range<usize>>) -> Option<()> {
    segments.clear();
    let mut begin = from;
    for at in memchr_iter(0xFF, bytes.get(from..)?) {
        let at = from + at;
        match bytes.get(at + 1)? {
            // A byte of the data that happens to be 0xFF.
            0 => continue,
            &marker if marker == EOI || usize::from(marker) == usize::from(RST0) + segments.len() % 8 => {
                segments.push(begin..at);
                if segments.len() == count {
                    return Some(());
                }
                if marker == EOI {
                    return None;
                }
                begin = at + 2;
            }
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Headers of a JPEG of 40 x 24 pixels in units of 16 x 8, markers at every `interval`, and segments of one byte.
    fn jpeg(interval: u8, segments: u8) -> Vec<u8> {
        let mut bytes = SOI.to_vec();
        bytes.extend([0xFF, 0xDD, 0, 4, 0, interval]);
        bytes.extend([0xFF, 0xC0, 0, 17, 8, 0, 24, 0, 40, 3, 1, 0x21, 0, 2, 0x11, 1, 3, 0x11, 1]);
        bytes.extend([0xFF, 0xDA, 0, 12, 3, 1, 0, 2, 0x11, 3, 0x11, 0, 63, 0]);
        for number in 0..segments {
            bytes.extend([100 + number, 0xFF, RST0 + number % 8]);
        }
        *bytes.last_mut().unwrap() = EOI;
        bytes
    }

    fn area(left: u32, top: u32, width: u32, height: u32) -> Area {
        Area { left, top, size: Size { width, height } }
    }

    /// What is behind the headers of an excerpt, and where the excerpt begins and how large it says it is.
    fn cut(bytes: &[u8], area: Area) -> Option<(Vec<u8>, [u32; 4])> {
        let mut excerpts = Excerpts::default();
        let Excerpt { bytes, left, top } = excerpts.cut(bytes, area)?;
        let frame = Frame::read(bytes).unwrap();
        Some((bytes[frame.data..].to_vec(), [left, top, frame.size.width, frame.size.height]))
    }

    #[test]
    fn an_excerpt_has_the_segments_around_the_area() {
        let bytes = jpeg(1, 9);
        let (data, place) = cut(&bytes, area(17, 9, 3, 3)).unwrap();
        assert_eq!((data, place), (vec![104, 0xFF, EOI], [16, 8, 16, 8]));
        let (data, place) = cut(&bytes, area(15, 8, 2, 16)).unwrap();
        assert_eq!(data, [103, 0xFF, 0xD0, 104, 0xFF, 0xD1, 106, 0xFF, 0xD2, 107, 0xFF, EOI]);
        assert_eq!(place, [0, 8, 32, 16]);
        // The last column has half a unit only.
        let (data, place) = cut(&bytes, area(32, 0, 8, 1)).unwrap();
        assert_eq!((data, place), (vec![102, 0xFF, EOI], [32, 0, 8, 8]));
        assert!(cut(&bytes, area(0, 0, 40, 24)).is_none(), "the image itself");
    }

    #[test]
    fn segments_may_be_rows_or_several() {
        let (data, place) = cut(&jpeg(3, 3), area(17, 9, 3, 3)).unwrap();
        assert_eq!((data, place), (vec![101, 0xFF, EOI], [0, 8, 40, 8]));
        let (data, place) = cut(&jpeg(6, 2), area(17, 17, 3, 3)).unwrap();
        assert_eq!((data, place), (vec![101, 0xFF, EOI], [0, 16, 40, 8]));
        assert!(cut(&jpeg(2, 5), area(17, 9, 3, 3)).is_none(), "segments that begin within rows");
    }

    #[test]
    fn whatever_is_unusual_is_left_alone() {
        let whole = jpeg(1, 9);
        let wanted = area(17, 9, 3, 3);
        assert!(cut(&whole, wanted).is_some());
        let data = Frame::read(&whole).unwrap().data;
        for end in 0..data + 3 * 4 + 1 {
            assert!(cut(&whole[..end], wanted).is_none(), "cut off at {end}");
        }
        let changed = |at: usize, byte: u8| {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            cut(&bytes, wanted)
        };
        assert!(changed(7, 0).is_none(), "no interval");
        for marker in [0xC2, 0xC3, 0xC9] {
            assert!(changed(9, marker).is_none(), "progressive, lossless, arithmetic");
        }
        assert!(changed(12, 12).is_none(), "12 bits");
        assert!(changed(17, 4).is_none(), "a component that is not described");
        assert!(changed(19, 0x51).is_none(), "a sampling that there is not");
        assert!(changed(data - 10, 1).is_none(), "a scan of one component of three");
        assert!(changed(data - 2, 5).is_none(), "a scan of some coefficients");
        assert!(changed(data + 2, 0xD3).is_none(), "a marker out of turn");
        assert!(changed(data + 2, EOI).is_none(), "an end before the area");
    }

    #[test]
    fn markers_that_are_added_begin_every_row() {
        for (width, unit_width, expected) in [(40, 16, 1), (48, 8, 2), (40, 8, 1), (500, 16, 1), (64, 32, 1)]
        {
            assert_eq!(spacing(width, unit_width), expected, "{width}");
        }
    }
}
