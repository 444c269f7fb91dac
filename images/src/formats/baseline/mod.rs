//! Baseline JPEGs, the usual kind: a shortcut beside libjpeg-turbo, with the same pixels, bit for bit.
//!
//! ```text
//!   frame ── scan ──▶ coefficients ── inverse ──▶ planes ── interpolate ──▶ lines of Y, Cb, Cr ── colours ──▶ RGB
//!   (headers)         of a row of units (MCUs)
//! ```
//!
//! Four fifths of the time in which libjpeg-turbo decodes a photograph go into its Huffman codes. Here they are looked up by two,
//! which takes less than half of that. What lies below the part that is wanted is not looked at, nor what restart markers separate from it
//! (`shade-pack create --restart-markers`); what else lies beside it is neither transformed nor converted.
//!
//! Usual is: 8 bits, one scan, Huffman codes, grey or YCbCr with colours of full or half the resolution, and not a bit out of
//! place. Whatever else the bytes may be, the answer is `None` and libjpeg-turbo decides: what it refuses, what it overlooks, and in
//! which words.

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

use super::colour::{each, grey};
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
