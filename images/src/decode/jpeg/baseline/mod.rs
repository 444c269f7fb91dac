//! A decoder for baseline JPEGs of the usual kind, in safe Rust, with libjpeg-turbo's pixels bit
//! for bit, in about 0.6 of its time.
//!
//! ```text
//! Frame ── scan ─▶ coefficients ── inverse ─▶ planes ── interpolate ─▶ Y, Cb, ── colours ─▶ RGB
//! (headers)        of an MCU row                                       Cr lines
//! ```
//!
//! **Input**: 8 bits a sample, one scan, Huffman codes, grey or YCbCr with 4:4:4, 4:2:2 or 4:2:0
//! subsampling, with restart markers or without. Any region of the image, in its own size or
//! divided by 2, 4 or 8. Progressive, arithmetic, RGB and four-ink JPEGs and other samplings are an
//! [`Error`], for another decoder to take.
//!
//! **Guarantees**, for any bytes:
//! - Pixels equal libjpeg-turbo's (its "islow" DCT and "fancy" upsampling), or there is an error.
//! - Unusual headers, damaged data, or a byte left over after the image are errors. So an image
//!   that another decoder would complain about is never decoded here.
//! - Data below the region is not read, nor data that restart markers separate from it: damage
//!   there is not seen.
//! - No panic, no `unsafe`. Buffers take half of the result's memory or as much, and are kept for
//!   the next image ([`Decoder::shrink`]). An image's pixels do not depend on the image before.
//!
//! libjpeg-turbo spends four fifths of a photograph's time on Huffman codes. Here they are looked
//! up in pairs, which takes less than half of that.
//!
//! Nothing here uses the rest of the crate, so that it could be published by itself.
//!
//! ```
//! use shade_images::baseline::{Decoder, Frame, Region};
//!
//! # fn main() -> Result<(), shade_images::baseline::Error> {
//! let jpeg = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/baseline.jpg"));
//! let frame = Frame::read(jpeg)?;
//! // All of the image, at half its size.
//! let region = Region::whole(frame.size().divided(2));
//! let mut rgb = vec![0; 3 * region.size.width as usize * region.size.height as usize];
//! Decoder::new().decode(&frame, 2, region, &mut rgb)?;
//! assert_eq!((frame.size().width, region.size.width), (37, 19));
//! # Ok(())
//! # }
//! ```

mod bits;
mod colours;
mod frame;
mod huffman;
mod interpolate;
mod inverse;
mod layout;
mod pairs;
mod planes;
mod scan;

pub use frame::{Error, Frame, Region, Size};

use colours::to_rgb;
use interpolate::Line;
use layout::{Layout, Units};
use planes::Plane;
use scan::{Block, Buffers, Scan};

/// Pixels of the largest region: its buffers take 1.5 to 3 bytes a pixel.
const PIXELS_MAX: u64 = 1 << 24;

/// Decodes; keeps its buffers from image to image.
#[derive(Default)]
pub struct Decoder {
    scan: Buffers,
    /// Blocks of an MCU row.
    blocks: Vec<Block>,
    planes: [Plane; 3],
    lines: [Line; 2],
}

impl Decoder {
    /// A decoder without buffers: the first images grow them.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes the pixels of `region` of the image divided by `by` (1, 2, 4 or 8; sides are rounded
    /// up) into `rgb`: 3 bytes for each, row after row.
    ///
    /// # Errors
    /// [`Error::Region`] for a region that is empty, has more than 2^24 pixels or leaves the
    /// divided image, for another divisor, for `rgb` of another length, and for the few small or
    /// odd images whose chroma libjpeg does not interpolate. [`Error::Data`] for any fault in the
    /// coded data. `rgb` is unspecified then.
    pub fn decode(
        &mut self,
        frame: &Frame<'_>,
        by: u32,
        region: Region,
        rgb: &mut [u8],
    ) -> Result<(), Error> {
        let pixels = region.size.pixels();
        if pixels > PIXELS_MAX || rgb.len() as u64 != 3 * pixels {
            return Err(Error::Region);
        }
        let layout = Layout::new(frame, by).filter(|_| region.is_within(frame.size().divided(by)));
        let layout = layout.ok_or(Error::Region)?;
        let units = layout.around(region);
        for (at, (plane, component)) in self.planes.iter_mut().zip(&frame.components).enumerate() {
            plane.start(component, at, &layout, &units);
        }
        self.samples(frame, &layout, &units)
            .and_then(|()| self.colours(frame, &layout, region, rgb))
            .ok_or(Error::Data)
    }

    /// Converts the planes to `rgb`.
    fn colours(&mut self, frame: &Frame<'_>, layout: &Layout, region: Region, rgb: &mut [u8]) -> Option<()> {
        let [first, cb, cr] = &self.planes;
        let [cb_line, cr_line] = &mut self.lines;
        let (left, width) = (region.left as usize, region.size.width as usize);
        let columns = left..left + width;
        for (y, pixels) in (region.top as usize..).zip(rgb.chunks_exact_mut(3 * width)) {
            let first = first.row(y, columns.clone())?;
            if frame.components.len() == 1 {
                for (pixel, &grey) in pixels.as_chunks_mut().0.iter_mut().zip(first) {
                    *pixel = [grey; 3];
                }
            } else {
                let cb = cb_line.of(cb, layout.per_colour, y, columns.clone())?;
                let cr = cr_line.of(cr, layout.per_colour, y, columns.clone())?;
                to_rgb([first, cb, cr], pixels);
            }
        }
        Some(())
    }

    /// Decodes the samples of `units` into the planes.
    fn samples(&mut self, frame: &Frame<'_>, layout: &Layout, units: &Units) -> Option<()> {
        let mut scan = Scan::new(frame, layout.columns, &mut self.scan)?;
        for _ in 0..units.rows.start {
            scan.row(0..0, &mut self.blocks)?;
        }
        for row in 0..units.rows.len() {
            self.blocks.clear();
            scan.row(units.columns.clone(), &mut self.blocks)?;
            let mut blocks = self.blocks.as_slice();
            for column in 0..units.columns.len() {
                for (plane, component) in self.planes.iter_mut().zip(&frame.components) {
                    let (unit, rest) = blocks.split_at_checked(plane.blocks())?;
                    plane.place(unit, &component.quantization, [column, row])?;
                    blocks = rest;
                }
            }
        }
        // Data after the region is not read; after the image there must be none.
        (units.rows.end < layout.rows || scan.is_at_end()).then_some(())
    }

    /// Frees each buffer that a large image made grow beyond `bytes_max`.
    pub fn shrink(&mut self, bytes_max: usize) {
        self.scan.shrink(bytes_max);
        for plane in &mut self.planes {
            plane.shrink(bytes_max);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    /// Whether `bytes` are decoded here, whole and reduced.
    fn is_usual(bytes: &[u8]) -> bool {
        let is_usual = |by: u32| {
            let Ok(frame) = Frame::read(bytes) else { return false };
            let region = Region::whole(frame.size().divided(by));
            let mut rgb = vec![0; room(region)];
            Decoder::new().decode(&frame, by, region, &mut rgb).is_ok()
        };
        let [whole, others @ ..] = [1, 2, 4, 8].map(is_usual);
        assert_eq!(others, [whole; 3]);
        whole
    }

    fn room(region: Region) -> usize {
        usize::try_from(3 * region.size.pixels()).unwrap()
    }

    fn file(name: &str) -> Vec<u8> {
        std::fs::read(format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    #[test]
    fn what_is_usual_is_decoded_here() {
        for name in ["baseline.jpg", "full.jpg", "grey.jpg", "turned6.jpg"] {
            assert!(is_usual(&file(name)), "{name}");
        }
    }

    #[test]
    fn all_else_is_left_to_another_decoder() {
        for name in ["progressive.jpg", "cmyk.jpg", "ycck.jpg", "rgb.jpg"] {
            assert!(!is_usual(&file(name)), "{name}");
        }
        let usual = file("baseline.jpg");
        let with = |at: usize, bytes: &[u8]| [&usual[..at], bytes, &usual[at..]].concat();
        assert!(is_usual(&with(2, &[0xFF, 0xFE, 0, 3, 1])), "a comment");
        // The benches do this: a fill byte before a marker.
        assert!(!is_usual(&with(2, &[0xFF])));
        assert!(!is_usual(&with(usual.len() - 2, &[0])), "a byte that is left over");
        assert!(!is_usual(&usual[..usual.len() - 2]), "no end");
        let version = usual.windows(5).position(|found| found == b"JFIF\0").unwrap() + 5;
        let mut other = usual.clone();
        other[version] = 2;
        assert!(!is_usual(&other), "a version that there is not");
    }

    #[test]
    fn a_part_is_decoded_without_what_lies_below() {
        let bytes = file("baseline.jpg");
        let frame = Frame::read(&bytes).unwrap();
        let decode = |bytes: &[u8], height: u32| {
            let frame = Frame::read(bytes).unwrap();
            let region = Region::whole(Size { height, ..frame.size() });
            let mut rgb = vec![0; room(region)];
            Decoder::new().decode(&frame, 1, region, &mut rgb).map(|()| rgb)
        };
        let expected = decode(&bytes, 8).unwrap();
        // Zeros are codes, but no image.
        let mut damaged = bytes.clone();
        let from = bytes.len() - frame.data.len() / 8;
        damaged[from..bytes.len() - 2].fill(0);
        assert_eq!(decode(&damaged, 8), Ok(expected));
        assert_eq!(decode(&damaged, frame.size().height), Err(Error::Data));
    }

    #[test]
    fn regions_and_room_are_checked() {
        let bytes = file("baseline.jpg");
        let frame = Frame::read(&bytes).unwrap();
        let decode = |by: u32, region: Region, room: usize| {
            Decoder::new().decode(&frame, by, region, &mut vec![0; room])
        };
        let whole = Region::whole(frame.size());
        assert_eq!(decode(1, whole, room(whole)), Ok(()));
        assert_eq!(decode(1, whole, room(whole) - 1), Err(Error::Region));
        assert_eq!(decode(3, whole, room(whole)), Err(Error::Region), "no such divisor");
        assert_eq!(decode(0, whole, room(whole)), Err(Error::Region), "no such divisor");
        assert_eq!(decode(2, whole, room(whole)), Err(Error::Region), "not within the divided image");
        for beside in [Region { left: 1, ..whole }, Region { top: u32::MAX, ..whole }] {
            assert_eq!(decode(1, beside, room(whole)), Err(Error::Region));
        }
        assert_eq!(decode(1, Region::whole(Size::default()), 0), Err(Error::Region), "empty");
        let huge = Region::whole(Size { width: 65_500, height: 65_500 });
        assert_eq!(decode(1, huge, 0), Err(Error::Region));
    }
}
