//! JPEG by libjpeg-turbo: baseline, progressive and arithmetic; grey, YCbCr, RGB, CMYK and YCCK.

use shade_formats::index::Media;
use turbojpeg::{Colorspace, Decompressor, Error, Image, PixelFormat, ScalingFactor};

use super::DecodeFault;
use super::fit::{Fit, Size};
use super::limits::{JPEG_SCANS_MAX, check_size, scratch, shrink};

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
pub(super) struct Jpeg {
    /// Made by the first JPEG, for making one can fail and many data sets have none.
    handle: Option<Decompressor>,
    cmyk: Vec<u8>,
}

/// What was decoded.
pub(super) struct Decoded {
    /// The image's true size.
    pub(super) source: Size,
    /// The size of the pixels, which is the source's divided by `reduced_by` and rounded up.
    pub(super) size: Size,
    /// 1, 2, 4 or 8.
    pub(super) reduced_by: u32,
}

impl Jpeg {
    /// Decodes `bytes` into `rgb`, reduced as far as `target` allows.
    pub(super) fn decode(
        &mut self,
        bytes: &[u8],
        target: Size,
        rgb: &mut Vec<u8>,
    ) -> Result<Decoded, DecodeFault> {
        let Self { handle, cmyk } = self;
        let handle = match handle {
            Some(handle) => handle,
            empty => empty.insert(new_handle().map_err(corrupt)?),
        };
        let header = handle.read_header(bytes).map_err(corrupt)?;
        check_size(header.width as u64, header.height as u64)?;
        let source = to_size(header.width, header.height)?;
        // A lossless JPEG has no DCT to scale in.
        let by = if header.is_lossless { 1 } else { Fit::new(source, target).jpeg_reduction() };
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
            cmyk_to_rgb(scratch(cmyk, pitch * height), scratch(rgb, width * height * 3));
        }
        Ok(Decoded { source, size: to_size(width, height)?, reduced_by: by })
    }

    /// Gives back what one large image made the buffer grow to.
    pub(super) fn shrink(&mut self) {
        shrink(&mut self.cmyk);
    }
}

fn new_handle() -> Result<Decompressor, Error> {
    let mut handle = Decompressor::new()?;
    handle.set_scan_limit(JPEG_SCANS_MAX)?;
    Ok(handle)
}

fn corrupt(error: Error) -> DecodeFault {
    let text = match error {
        Error::TurboJpegError(text) => text,
        other => other.to_string(),
    };
    DecodeFault::Corrupt { media: Media::Jpeg, text }
}

fn to_size(width: usize, height: usize) -> Result<Size, DecodeFault> {
    match (u32::try_from(width), u32::try_from(height)) {
        (Ok(width), Ok(height)) => Ok(Size { width, height }),
        _ => Err(DecodeFault::Size { width: width as u64, height: height as u64 }),
    }
}

/// CMYK as Adobe stores it, inverted, so that 255 is no ink; PIL takes every CMYK JPEG to be so, and this is its
/// arithmetic: `black - ink * black / 255`, rounded.
fn cmyk_to_rgb(cmyk: &[u8], rgb: &mut [u8]) {
    let (inks, _) = cmyk.as_chunks::<4>();
    let (colours, _) = rgb.as_chunks_mut::<3>();
    for (&[c, m, y, k], colour) in inks.iter().zip(colours) {
        *colour = [c, m, y].map(|stored| k.saturating_sub(times_255th(255 - stored, k)));
    }
}

/// `a * b / 255`, rounded to nearest.
fn times_255th(a: u8, b: u8) -> u8 {
    let product = u32::from(a) * u32::from(b) + 128;
    u8::try_from(((product >> 8) + product) >> 8).unwrap_or(u8::MAX)
}
