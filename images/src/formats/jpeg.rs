//! JPEG by libjpeg-turbo: baseline, progressive and arithmetic; grey, YCbCr, RGB, CMYK and YCCK.

use shade_formats::index::Media;
use turbojpeg::{Colorspace, Decompressor, Error, Image, PixelFormat, ScalingFactor};

use super::colour::{each, from_inks};
use crate::limits::{JPEG_SCANS_MAX, check_size, scratch, shrink};
use crate::{ImageFault, Size};

/// Largest to smallest divisor by which libjpeg-turbo reduces an image within its DCT at almost no cost.
pub const JPEG_REDUCTIONS: [u32; 3] = [8, 4, 2];

/// How the warnings of libjpeg (`JWRN_*` in its jerror.h) begin after which it still gives every row, and which PIL
/// does not even show. The binding reports them as errors, without the code that tells a warning from an error.
///
/// A file that ends early is a warning to libjpeg too, but not here: PIL refuses it, and half of it would be grey.
/// Warnings about the header (a broken ICC profile, an unknown JFIF version) remain faults, for there the binding goes
/// no further.
const HARMLESS: [&str; 3] = [
    "Corrupt JPEG data: ",
    "Inconsistent progression sequence",
    "Invalid SOS parameters for sequential JPEG",
];

/// One libjpeg-turbo handle.
#[derive(Default)]
pub(crate) struct Jpeg {
    /// Made by the first JPEG, for making one can fail and many data sets have none.
    handle: Option<Decompressor>,
    cmyk: Vec<u8>,
}

/// What was decoded.
pub(crate) struct Decoded {
    /// The image's true size.
    pub(crate) source: Size,
    /// The size of the pixels, which is the source's divided by `reduced_by` and rounded up.
    pub(crate) size: Size,
    /// 1, 2, 4 or 8.
    pub(crate) reduced_by: u32,
}

impl Jpeg {
    /// Decodes `bytes` into `rgb`, divided by what `reduction` says for its size.
    pub(crate) fn decode(
        &mut self,
        bytes: &[u8],
        reduction: impl FnOnce(Size) -> u32,
        rgb: &mut Vec<u8>,
    ) -> Result<Decoded, ImageFault> {
        let Self { handle, cmyk } = self;
        let handle = match handle {
            Some(handle) => handle,
            empty => empty.insert(new_handle().map_err(corrupt)?),
        };
        let header = handle.read_header(bytes).map_err(corrupt)?;
        check_size(header.width as u64, header.height as u64)?;
        let source = to_size(header.width, header.height)?;
        // A lossless JPEG has no DCT to scale in.
        let by = if header.is_lossless { 1 } else { reduction(source) };
        let factor = ScalingFactor::new(1, by as usize);
        handle.set_scaling_factor(factor).map_err(corrupt)?;
        let (width, height) = (factor.scale(header.width), factor.scale(header.height));

        let is_cmyk = matches!(header.colorspace, Colorspace::CMYK | Colorspace::YCCK);
        let (format, pixels) =
            if is_cmyk { (PixelFormat::CMYK, &mut *cmyk) } else { (PixelFormat::RGB, &mut *rgb) };
        let pitch = width * format.size();
        let pixels = scratch(pixels, pitch * height);
        let image = Image { pixels, width, pitch, height, format };
        match handle.decompress(bytes, image) {
            Err(Error::TurboJpegError(text)) if HARMLESS.iter().any(|begin| text.starts_with(begin)) => {}
            other => other.map_err(corrupt)?,
        }
        if is_cmyk {
            // Pillow takes every JPEG's inks to be stored inverted, as Adobe does: 255 is no ink.
            each(scratch(cmyk, pitch * height), scratch(rgb, width * height * 3), |&inks| {
                from_inks(inks.map(|stored: u8| u8::MAX - stored))
            });
        }
        Ok(Decoded { source, size: to_size(width, height)?, reduced_by: by })
    }

    /// Gives back what one large image made the buffer grow to.
    pub(crate) fn shrink(&mut self) {
        shrink(&mut self.cmyk);
    }
}

fn new_handle() -> Result<Decompressor, Error> {
    let mut handle = Decompressor::new()?;
    handle.set_scan_limit(JPEG_SCANS_MAX)?;
    Ok(handle)
}

fn corrupt(error: Error) -> ImageFault {
    let text = match error {
        Error::TurboJpegError(text) => text,
        other => other.to_string(),
    };
    ImageFault::Corrupt { media: Media::Jpeg, text }
}

fn to_size(width: usize, height: usize) -> Result<Size, ImageFault> {
    match (u32::try_from(width), u32::try_from(height)) {
        (Ok(width), Ok(height)) => Ok(Size { width, height }),
        _ => Err(ImageFault::Size { width: width as u64, height: height as u64 }),
    }
}
