//! JPEG: usual baseline files by `baseline`, all others (progressive, arithmetic, RGB, CMYK, YCCK)
//! by libjpeg-turbo (`turbo`). `markers` adds restart markers.

pub mod baseline;
mod markers;
mod turbo;

use memchr::memchr;
use shade_formats::index::Media;
use shade_job::JpegDecoder;

use super::colour::{each, from_inks, grey};
use crate::limits::{JPEG_SCANS_MAX, SCRATCH_KEEP_BYTES, check_size, scratch};
use crate::{Area, ImageFault, Part, Size};
use baseline::{Frame, Region};
pub use markers::with_restart_markers;
use turbo::{Decode, Handle, Header, Opened, Samples};

/// Largest to smallest divisor by which a JPEG is reduced within its DCT at almost no cost.
pub const JPEG_REDUCTIONS: [u32; 3] = [8, 4, 2];

/// The fault of a JPEG whose last bytes are missing.
const CUT_SHORT: &str = "it is cut short: the end marker is missing";

/// Columns beside an area that libjpeg-turbo must decode, too: subsampled chroma of the outermost
/// pixels is interpolated from its neighbours. The library itself adds the rows that it needs.
const MARGIN: u32 = 4;

/// Decodes JPEGs; keeps its buffers from image to image.
///
/// Each image for libjpeg-turbo gets a new handle, which costs a tenth of a microsecond. A reused
/// handle would keep the last image's tables and apply them to an image without any, and after a
/// damaged header it refuses every image.
#[derive(Default)]
pub(crate) struct Jpeg {
    with: JpegDecoder,
    baseline: baseline::Decoder,
}

/// What was decoded: of a JPEG a part, of other images all.
pub(crate) struct Decoded {
    /// The image's true size.
    pub(crate) source: Size,
    /// The decoded pixels' place in the reduced image.
    pub(crate) area: Area,
    /// 1, 2, 4 or 8. The reduced image's sides are the source's divided by it, rounded up.
    pub(crate) reduced_by: u32,
}

impl Decoded {
    /// All of an image of size `source`.
    pub(crate) fn whole(source: Size) -> Self {
        Self { source, area: Area::whole(source), reduced_by: 1 }
    }
}

impl Jpeg {
    pub(crate) fn new(with: JpegDecoder) -> Self {
        Self { with, ..Self::default() }
    }

    /// Which decoder it decodes with.
    pub(crate) fn decoder(&self) -> JpegDecoder {
        self.with
    }

    /// Decodes the part of `bytes` that `part` chooses into `rgb`, over `samples` unless it is
    /// decoded to RGB. `note` gets what libjpeg has found out of place.
    pub(crate) fn decode(
        &mut self,
        bytes: &[u8],
        part: impl FnOnce(Size) -> Part,
        samples: &mut Vec<u8>,
        rgb: &mut Vec<u8>,
        note: &mut Option<String>,
    ) -> Result<Decoded, ImageFault> {
        let Self { with, baseline } = self;
        let usual = usual(*with, bytes);
        let source = match &usual {
            Some(frame) => from_size(frame.size()),
            None => open(bytes)?.header.size,
        };
        check_size(source.width.into(), source.height.into())?;
        let part = part(source);
        let by = part.reduce_by.max(1);
        let wanted = part.area.within(source);
        if let Some(frame) = usual {
            let area = wanted.divided(by).within(source.divided(by));
            let region = to_region(area);
            let room = scratch(rgb, 3 * area.size.width as usize * area.size.height as usize);
            if baseline.decode(&frame, by, region, room).is_ok() {
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
        let channels = header.samples.count();
        let target =
            if channels == 3 { scratch(rgb, 3 * pixels) } else { scratch(samples, channels * pixels) };
        *note = opened.decode(decode, target).map_err(corrupt)?;
        if note.is_some() && !has_end(bytes) {
            return Err(corrupt(CUT_SHORT.to_owned()));
        }
        match header.samples {
            Samples::Rgb => {}
            Samples::Grey => each(scratch(samples, pixels), scratch(rgb, 3 * pixels), |&[value]| grey(value)),
            // Pillow assumes inverted inks in every JPEG, as Adobe writes them: 255 is no ink.
            Samples::Inks => each(scratch(samples, 4 * pixels), scratch(rgb, 3 * pixels), |&inks| {
                from_inks(inks.map(|stored: u8| u8::MAX - stored))
            }),
        }
        Ok(Decoded { source, area, reduced_by: by })
    }

    /// Frees buffers that a large image made grow.
    pub(crate) fn shrink(&mut self) {
        self.baseline.shrink(SCRATCH_KEEP_BYTES);
    }
}

/// The headers of a JPEG that `baseline` can decode.
fn usual(with: JpegDecoder, bytes: &[u8]) -> Option<Frame<'_>> {
    match with {
        JpegDecoder::Auto => Frame::read(bytes).ok(),
        JpegDecoder::Turbo => None,
    }
}

fn from_size(baseline::Size { width, height }: baseline::Size) -> Size {
    Size { width, height }
}

fn to_region(Area { left, top, size: Size { width, height } }: Area) -> Region {
    Region { left, top, size: baseline::Size { width, height } }
}

/// The area that libjpeg-turbo must decode to give `wanted`, an area of the source, the same pixels
/// as the whole image: in the image divided by `by`, from a block's edge on. `None` for all of it.
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

fn corrupt(text: String) -> ImageFault {
    ImageFault::corrupt(Media::Jpeg, text)
}

/// Whether libjpeg finds an end of image marker in `bytes`, behind anything that is out of place.
///
/// Where there is none, libjpeg makes up the rest of the image, and Pillow calls the file
/// truncated. libjpeg's own warning about it is not told if another one came before.
fn has_end(bytes: &[u8]) -> bool {
    /// Start and end of image.
    const SOI: u8 = 0xD8;
    const EOI: u8 = 0xD9;
    let mut rest = bytes;
    while let Some(at) = memchr(0xFF, rest) {
        // Fill bytes may stand before a marker's code.
        let mut marker = rest.get(at..).unwrap_or_default().iter();
        let Some(&code) = marker.find(|&&byte| byte != 0xFF) else { return false };
        let behind = marker.as_slice();
        rest = match code {
            EOI => return true,
            // A stuffed zero and markers without a length.
            0 | 1 | 0xD0..=SOI => behind,
            _ => {
                let length = behind.first_chunk().map_or(0, |&length| u16::from_be_bytes(length));
                behind.get(usize::from(length)..).unwrap_or_default()
            }
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> Vec<u8> {
        std::fs::read(format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    #[test]
    fn turbo_leaves_nothing_to_the_baseline_decoder() {
        for name in ["baseline.jpg", "full.jpg", "half.jpg", "grey.jpg"] {
            assert!(usual(JpegDecoder::Auto, &file(name)).is_some(), "{name}");
            assert!(usual(JpegDecoder::Turbo, &file(name)).is_none(), "{name}");
        }
        assert!(usual(JpegDecoder::Auto, &file("progressive.jpg")).is_none());
    }

    #[test]
    fn the_end_is_found_behind_anything() {
        let scan = b"\xff\xd8\xff\xda\0\x02\x01\xff\0\x02\xff\xd3\x03";
        let with = |tail: &[u8]| has_end(&[scan, tail].concat());
        assert!(!has_end(b"") && !has_end(b"\xff") && !with(b""));
        assert!(with(b"\xff\xd9"));
        assert!(with(b"\0\0\xff\xff\xd9more"), "bytes that are left over and a fill byte");
        assert!(with(b"\xff\xc4\0\x04\x01\x02\xff\xda\0\x02\xff\xd9"), "another scan");
        assert!(!with(b"\xff"), "half a marker");
        assert!(!with(b"\xff\xfe\0\x04\xff\xd9"), "within a comment");
        assert!(!with(b"\xff\xfe\xff\xff\xff\xd9"), "a segment that is cut short");
    }
}
