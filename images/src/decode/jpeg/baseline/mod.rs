//! Baseline JPEGs, the usual kind: a shortcut beside libjpeg-turbo, with the same pixels, bit for bit.
//!
//! ```text
//!   frame ── scan ──▶ coefficients ── inverse ──▶ planes ── interpolate ──▶ lines ── colours ──▶ RGB
//!   (headers)         of a row of units                                     of Y, Cb, Cr
//! ```
//!
//! Four fifths of the time in which libjpeg-turbo decodes a photograph go into its Huffman codes. Here they are looked up by
//! two, which takes less than half of that. What lies below the part that is wanted is not looked at, nor what restart markers
//! separate from it (`shade-pack create --restart-markers`); what else lies beside it is neither transformed nor converted.
//!
//! Usual is: 8 bits, one scan, Huffman codes, grey or YCbCr with colours of full or half the resolution, and not a bit out of
//! place. Whatever else the bytes may be, the answer is `None` and libjpeg-turbo decides: what it refuses, what it overlooks,
//! and in which words.

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

pub(super) use frame::Frame;

use super::super::colour::{each, grey};
use crate::Area;
use crate::limits::scratch;
use colours::to_rgb;
use interpolate::Line;
use layout::{Layout, Units};
use planes::Plane;
use scan::{Block, Buffers, Scan};

/// Pixels of the largest part that is decoded here: the buffers beside it are half as large, or as large.
const PIXELS_MAX: u64 = 1 << 24;

/// Decodes; keeps its buffers from image to image.
#[derive(Default)]
pub(super) struct Baseline {
    scan: Buffers,
    /// Of a row of units.
    blocks: Vec<Block>,
    planes: [Plane; 3],
    lines: [Line; 2],
}

impl Baseline {
    /// Decodes into `rgb` the pixels of `area`, which is not empty and lies within the image divided by `by`: 1, 2, 4 or 8.
    pub(super) fn decode(&mut self, frame: &Frame<'_>, by: u32, area: Area, rgb: &mut Vec<u8>) -> Option<()> {
        if area.size.pixels() > PIXELS_MAX {
            return None;
        }
        let layout = Layout::new(frame, by)?;
        let units = layout.around(area);
        for (at, (plane, component)) in self.planes.iter_mut().zip(&frame.components).enumerate() {
            plane.start(component, at, &layout, &units);
        }
        self.samples(frame, &layout, &units)?;

        let [first, cb, cr] = &self.planes;
        let [cb_line, cr_line] = &mut self.lines;
        let (left, width) = (area.left as usize, area.size.width as usize);
        let columns = left..left + width;
        let rgb = scratch(rgb, 3 * width * area.size.height as usize);
        for (y, pixels) in (area.top as usize..).zip(rgb.chunks_exact_mut(3 * width)) {
            let first = first.row(y, columns.clone())?;
            if frame.components.len() == 1 {
                each(first, pixels, |&[value]| grey(value));
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
        // What is behind the part is left alone, and behind the image there has to be nothing.
        (units.rows.end < layout.rows || scan.is_at_end()).then_some(())
    }

    /// Gives back what one large image made the buffers grow to.
    pub(super) fn shrink(&mut self) {
        self.scan.shrink();
        for plane in &mut self.planes {
            plane.shrink();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Size;

    /// Whether it is decoded here, whole and reduced.
    fn is_usual(bytes: &[u8]) -> bool {
        let is_usual = |by: u32| {
            Frame::read(bytes).is_some_and(|frame| {
                let area = Area::whole(frame.size.divided(by));
                Baseline::default().decode(&frame, by, area, &mut Vec::new()).is_some()
            })
        };
        let [whole, others @ ..] = [1, 2, 4, 8].map(is_usual);
        assert_eq!(others, [whole; 3]);
        whole
    }

    fn file(name: &str) -> Vec<u8> {
        std::fs::read(format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    #[test]
    fn what_is_usual_is_decoded_here() {
        for name in ["baseline.jpg", "full.jpg", "grey.jpg", "turned6.jpg"] {
            assert!(is_usual(&file(name)), "{name}");
            let marked = crate::with_restart_markers(&file(name)).unwrap();
            assert!(is_usual(&marked), "{name} with markers");
        }
    }

    #[test]
    fn all_else_is_left_to_libjpeg_turbo() {
        for name in ["progressive.jpg", "cmyk.jpg", "ycck.jpg", "rgb.jpg"] {
            assert!(!is_usual(&file(name)), "{name}");
        }
        let usual = file("baseline.jpg");
        let with = |at: usize, bytes: &[u8]| [&usual[..at], bytes, &usual[at..]].concat();
        assert!(is_usual(&with(2, &[0xFF, 0xFE, 0, 3, 1])), "a comment");
        // What the benches have beside it: a fill byte before a marker.
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
            let size = Size { height, ..frame.size };
            let mut rgb = Vec::new();
            let area = Area { left: 0, top: 0, size };
            Baseline::default().decode(&frame, 1, area, &mut rgb).map(|()| rgb)
        };
        let expected = decode(&bytes, 8).unwrap();
        // Zeros are codes, but no image.
        let mut damaged = bytes.clone();
        let from = bytes.len() - frame.data.len() / 8;
        damaged[from..bytes.len() - 2].fill(0);
        assert_eq!(decode(&damaged, 8), Some(expected));
        assert!(decode(&damaged, frame.size.height).is_none());
    }
}
