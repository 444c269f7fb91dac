//! JPEG: the usual kind by `baseline`, all others by libjpeg-turbo: progressive and arithmetic, RGB, CMYK and YCCK.

mod baseline;
mod turbo;

use shade_formats::index::Media;

use super::colour::{each, from_inks};
use crate::limits::{JPEG_SCANS_MAX, check_size, scratch, shrink};
use crate::{Area, ImageFault, Part, Size};
use baseline::{Baseline, Frame};
use turbo::{Complaint, Decode, Handle, Header, Opened, Recoder};

/// Largest to smallest divisor by which a JPEG is reduced within its DCT at almost no cost.
pub const JPEG_REDUCTIONS: [u32; 3] = [8, 4, 2];

/// How the warnings of libjpeg (`JWRN_*` in its jerror.h) begin after which it still gives every row, and which PIL
/// does not even show.
///
/// A file that ends early is a warning to libjpeg too, but not here: PIL refuses it, and half of it would be grey.
/// Warnings about the header (a broken ICC profile, an unknown JFIF version) are faults, too: no image is opened then.
const HARMLESS: [&str; 3] = [
    "Corrupt JPEG data: ",
    "Inconsistent progression sequence",
    "Invalid SOS parameters for sequential JPEG",
];

/// Columns beside an area that libjpeg-turbo has to decode for its outermost pixels: where colours have half the resolution, a
/// pixel is interpolated from the colour beside it, too. It sees to the rows itself.
const MARGIN: u32 = 4;

/// Columns of pixels between two markers that are added to a JPEG: one unit of coding with the usual half resolution of
/// colours. Fewer would not be possible there, more would decode more beside a crop.
const SPACING: u32 = 16;

/// The buffers of usual images and of those of four inks.
///
/// Each image that is left to libjpeg-turbo gets a handle of its own, which costs a tenth of a microsecond. One that is used again keeps the tables of
/// the image before, so that an image without tables would look as its neighbours do, and after a damaged header it
/// refuses whatever comes.
#[derive(Default)]
pub(crate) struct Jpeg {
    baseline: Baseline,
    inks: Vec<u8>,
}

/// What was decoded.
pub(crate) struct Decoded {
    /// The image's true size.
    pub(crate) source: Size,
    /// The pixels that there are, in the image as it is after the reduction.
    pub(crate) area: Area,
    /// 1, 2, 4 or 8. The reduced image's sides are those of the source divided by it and rounded up.
    pub(crate) reduced_by: u32,
}

impl Jpeg {
    /// Decodes what of `bytes` the answer of `part` asks for into `rgb`.
    pub(crate) fn decode(
        &mut self,
        bytes: &[u8],
        part: impl FnOnce(Size) -> Part,
        rgb: &mut Vec<u8>,
    ) -> Result<Decoded, ImageFault> {
        let Self { baseline, inks } = self;
        let usual = Frame::read(bytes);
        let source = match &usual {
            Some(frame) => frame.size,
            None => open(bytes)?.header.size,
        };
        check_size(source.width.into(), source.height.into())?;
        let part = part(source);
        let by = part.reduce_by.max(1);
        let wanted = part.area.within(source);
        if let Some(frame) = usual {
            let area = divided(wanted, by).within(source.divided(by));
            if area.size.pixels() > 0 && baseline.decode(&frame, by, area, rgb).is_some() {
                return Ok(Decoded { source, area, reduced_by: by });
            }
        }
        let opened = open(bytes)?;
        // A lossless JPEG has no DCT to reduce in.
        let by = if opened.header.is_lossless { 1 } else { by };
        let header = opened.header;
        let area = area_of_blocks(&header, by, wanted);
        let decode = Decode { by, area };
        let area = area.unwrap_or(Area::whole(header.size.divided(by)));
        let pixels = area.size.width as usize * area.size.height as usize;
        let target = if header.has_inks { scratch(inks, 4 * pixels) } else { scratch(rgb, 3 * pixels) };
        match opened.decode(decode, target) {
            Err(complaint) if is_harmless(&complaint) => {}
            other => other.map_err(corrupt)?,
        }
        if header.has_inks {
            // Pillow takes every JPEG's inks to be stored inverted, as Adobe does: 255 is no ink.
            each(scratch(inks, 4 * pixels), scratch(rgb, 3 * pixels), |&inks| {
                from_inks(inks.map(|stored: u8| u8::MAX - stored))
            });
        }
        Ok(Decoded { source, area, reduced_by: by })
    }

    /// Gives back what one large image made the buffers grow to.
    pub(crate) fn shrink(&mut self) {
        self.baseline.shrink();
        shrink(&mut self.inks);
    }
}

/// A JPEG with the same pixels and a restart marker about every 16 columns, so that a part of it is decoded without what
/// lies above and beside it ([`Decoder::decode_part`](crate::Decoder::decode_part)). Its Huffman tables are made for it, which
/// makes up for the markers' bytes in most photographs; it is not progressive, and all else that stood in it still does. One that
/// is left to libjpeg-turbo, which makes nothing of the markers, comes back as it is, and so does one with damage that decoding
/// overlooks.
///
/// # Errors
/// The image is damaged or too large.
pub fn with_restart_markers(jpeg: &[u8]) -> Result<Vec<u8>, ImageFault> {
    let header = open(jpeg)?.header;
    check_size(header.size.width.into(), header.size.height.into())?;
    let Some(unit_width) = header.block_width.filter(|_| !header.is_lossless) else {
        return Ok(jpeg.to_vec());
    };
    let recoder = Recoder::new(JPEG_SCANS_MAX, spacing(header.size.width, unit_width)).map_err(corrupt)?;
    match recoder.recode(jpeg) {
        Ok(marked) if Frame::read(&marked).is_some() => Ok(marked),
        Err(complaint) if !is_harmless(&complaint) => Err(corrupt(complaint)),
        _ => Ok(jpeg.to_vec()),
    }
}

/// Units of coding (MCUs) between two markers for an image `width` pixels wide, whose units have `unit_width`: about
/// [`SPACING`] pixels, and a whole number of times in a row of units, so that every row begins at a marker.
fn spacing(width: u32, unit_width: u32) -> u32 {
    let in_a_row = width.div_ceil(unit_width);
    (2..=SPACING / unit_width).rev().find(|&units| in_a_row.is_multiple_of(units)).unwrap_or(1)
}

/// The pixels of an image divided by `by` that show an area of it.
fn divided(Area { left, top, size }: Area, by: u32) -> Area {
    let along = |from: u32, len: u32| (from / by, (from + len).div_ceil(by) - from / by);
    let ((left, width), (top, height)) = (along(left, size.width), along(top, size.height));
    Area { left, top, size: Size { width, height } }
}

/// The area to decode so that the pixels of `wanted`, an area of the source, are those of the whole image: in the image
/// divided by `by`, from a block's edge on. `None` for all of it.
fn area_of_blocks(header: &Header, by: u32, wanted: Area) -> Option<Area> {
    let block_width = header.block_width.filter(|_| !header.is_lossless)?.div_ceil(by);
    let reduced = header.size.divided(by);
    let left = (wanted.left / by).saturating_sub(MARGIN) / block_width * block_width;
    let right = ((wanted.left + wanted.size.width).div_ceil(by) + MARGIN).min(reduced.width);
    let top = wanted.top / by;
    let bottom = (wanted.top + wanted.size.height).div_ceil(by).min(reduced.height);
    let size = Size { width: right.saturating_sub(left), height: bottom.saturating_sub(top) };
    (size.pixels() > 0 && size != reduced).then_some(Area { left, top, size })
}

fn open(bytes: &[u8]) -> Result<Opened<'_>, ImageFault> {
    Handle::new(JPEG_SCANS_MAX).and_then(|handle| handle.open(bytes)).map_err(corrupt)
}

fn is_harmless(complaint: &Complaint) -> bool {
    complaint.is_warning && HARMLESS.iter().any(|begin| complaint.text.starts_with(begin))
}

fn corrupt(complaint: Complaint) -> ImageFault {
    ImageFault::Corrupt { media: Media::Jpeg, text: complaint.text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_that_are_added_begin_every_row() {
        for (width, unit_width, expected) in [(40, 16, 1), (48, 8, 2), (40, 8, 1), (500, 16, 1), (64, 32, 1)]
        {
            assert_eq!(spacing(width, unit_width), expected, "{width}");
        }
    }
}
