//! WebP: lossy or lossless, with alpha or without; the first frame of an animation.

mod container;

use std::io::Cursor;

use image_webp::{DecodingError, WebPDecoder};
use shade_formats::index::Media;

use super::colour::each;
use crate::limits::{RGBA_BYTES_MAX, check_size, scratch};
use crate::{Area, ImageFault, Size};
use container::{Container, Frame};

/// Decodes `bytes` into `rgb`, over `samples` if it has alpha or the frame does not fill the image.
/// `note` tells of data that the file announces and does not have.
pub(crate) fn decode(
    bytes: &[u8],
    samples: &mut Vec<u8>,
    rgb: &mut Vec<u8>,
    note: &mut Option<String>,
) -> Result<Size, ImageFault> {
    let Container { canvas, frame, lacks_data, .. } = Container::read(bytes).map_err(corrupt)?;
    *note = lacks_data.then(|| "its header announces a chunk that it does not have".to_owned());
    check_size(canvas.width.into(), canvas.height.into())?;
    let alone = frame.alone();
    let mut decoder = WebPDecoder::new(Cursor::new(alone.as_slice())).map_err(fault)?;
    decoder.set_memory_limit(RGBA_BYTES_MAX);
    let Area { size, .. } = frame.area;
    if decoder.dimensions() != (size.width, size.height) {
        return Err(corrupt("its image has another size than its header says"));
    }
    let pixels = size.width as usize * size.height as usize;
    let room = canvas.width as usize * canvas.height as usize * 3;
    let has_alpha = decoder.has_alpha();
    if !has_alpha && size == canvas {
        decoder.read_image(scratch(rgb, room)).map_err(fault)?;
        return Ok(canvas);
    }
    let channels = if has_alpha { 4 } else { 3 };
    let samples = scratch(samples, pixels * channels);
    decoder.read_image(samples).map_err(fault)?;
    let rgb = scratch(rgb, room);
    if size != canvas {
        rgb.fill(0);
    }
    // Alpha is dropped, whatever the colour below it is.
    let lines = rgb.chunks_exact_mut(3 * canvas.width as usize).skip(frame.area.top as usize);
    for (row, line) in samples.chunks_exact(channels * size.width as usize).zip(lines) {
        let line = line.get_mut(3 * frame.area.left as usize..).unwrap_or_default();
        if has_alpha {
            each(row, line, |&[r, g, b, _]| [r, g, b]);
        } else {
            each(row, line, |&pixel| pixel);
        }
    }
    Ok(canvas)
}

/// The EXIF chunk of a WebP, if it has one.
pub(crate) fn exif(bytes: &[u8]) -> Option<&[u8]> {
    Container::read(bytes).ok()?.exif
}

impl Frame<'_> {
    /// A file with nothing but this frame.
    fn alone(&self) -> Vec<u8> {
        let mut file = b"RIFF\0\0\0\0WEBP".to_vec();
        let mut chunk = |name: &[u8; 4], content: &[u8]| {
            file.extend_from_slice(name);
            // It was a chunk's content before.
            file.extend_from_slice(&u32::try_from(content.len()).unwrap_or(u32::MAX).to_le_bytes());
            file.extend_from_slice(content);
            file.extend((0..content.len() % 2).map(|_| 0));
        };
        if let Some(alpha) = self.alpha {
            let [width, height] = [self.area.size.width, self.area.size.height].map(|side| {
                let [low, middle, high, _] = side.saturating_sub(1).to_le_bytes();
                [low, middle, high]
            });
            let header: Vec<u8> = [&[0x10, 0, 0, 0][..], &width, &height].concat();
            chunk(b"VP8X", &header);
            chunk(b"ALPH", alpha);
        }
        chunk(if self.is_lossless { b"VP8L" } else { b"VP8 " }, self.image);
        let length = u32::try_from(file.len().saturating_sub(8)).unwrap_or(u32::MAX);
        if let Some(at) = file.get_mut(4..8) {
            at.copy_from_slice(&length.to_le_bytes());
        }
        file
    }
}

fn corrupt(text: &str) -> ImageFault {
    ImageFault::corrupt(Media::Webp, text)
}

fn fault(error: DecodingError) -> ImageFault {
    match error {
        DecodingError::UnsupportedFeature(detail) => ImageFault::unsupported(Media::Webp, detail),
        other => ImageFault::corrupt(Media::Webp, other),
    }
}
