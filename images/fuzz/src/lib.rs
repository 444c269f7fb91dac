//! Checks that hold for any bytes, for the fuzz targets and for the test that replays their corpus
//! (`tests/corpus.rs`).

use shade_formats::index::{Media, sniff};
use shade_images::{Area, Decoder, Part, Pixels, Size, orientation};

/// Pixels of the largest image that is decoded: tens of megapixels per input would take hours.
const PIXELS_MAX: u64 = 1 << 20;
/// Bytes of an input before the image: they choose a part of it.
const PART_BYTES: usize = 9;

/// Bytes of any kind of image give an image or an error, and the same again, whatever the decoder's
/// buffers hold.
pub fn any(input: &[u8]) {
    let _ = orientation(input);
    let (_, width, height) = sniff(input);
    if pixels(width.into(), height.into()) > PIXELS_MAX {
        return;
    }
    let mut decoder = Decoder::new();
    let first = decoder.decode(input);
    if let Ok(image) = &first {
        assert!(image.size().pixels() > 0);
        assert_eq!(image.rgb().len() as u64, 3 * image.size().pixels());
    }
    let again = decoder.decode(input);
    assert!(first == again, "{first:?}, then {again:?}");
}

/// A JPEG gives at least the requested part, with the whole's pixels, and decoding a part does not
/// change the next image.
///
/// Pixels of progressive JPEGs are not compared: where scans are missing, libjpeg smooths over
/// block edges, and at the edge of a part it lacks the neighbours. The difference is a step or two.
pub fn jpeg(input: &[u8]) {
    let Some((part, bytes)) = input.split_first_chunk::<PART_BYTES>() else { return };
    let (_, width, height) = sniff(bytes);
    if pixels(width.into(), height.into()) > PIXELS_MAX {
        return;
    }
    let part = |size| part_of(size, part);
    let mut decoder = Decoder::new();
    let found = decoder.decode_part(Media::Jpeg, bytes, part).map(Found::new);
    let whole = |size| Part { area: Area::whole(size), ..part(size) };
    let after = decoder.decode_part(Media::Jpeg, bytes, whole).map(Found::new);
    let alone = Decoder::new().decode_part(Media::Jpeg, bytes, whole).map(Found::new);
    assert!(after == alone, "a decoder that decoded a part: {:?}, a new one: {:?}", after.err(), alone.err());

    for found in [&found, &alone].into_iter().flatten() {
        let wanted = part(found.source);
        assert!(
            found.reduced_by == 1 || found.reduced_by == wanted.reduce_by,
            "divided by {}",
            found.reduced_by
        );
        assert_eq!(found.rgb.len() as u64, 3 * found.area.size.pixels());
        let [reduced_width, reduced_height] =
            [found.source.width, found.source.height].map(|side| side.div_ceil(found.reduced_by));
        let Area { left, top, size } = found.area;
        assert!(
            left + size.width <= reduced_width && top + size.height <= reduced_height,
            "{:?}",
            found.area
        );
    }
    if let Ok(whole) = &alone {
        assert_eq!((whole.area.left, whole.area.top), (0, 0));
        let found = found.unwrap_or_else(|fault| panic!("the whole, but no part: {fault}"));
        if bytes.windows(2).any(|marker| matches!(marker, [0xff, 0xc2 | 0xc6 | 0xca | 0xce])) {
            return;
        }
        let Area { left, top, size } = within(part(whole.source).area, whole.source);
        let by = found.reduced_by;
        for y in top / by..(top + size.height).div_ceil(by) {
            for x in left / by..(left + size.width).div_ceil(by) {
                assert_eq!(
                    found.pixel(x, y),
                    whole.pixel(x, y),
                    "pixel {x}, {y} of {size:?} at {left}, {top}"
                );
            }
        }
    }
}

/// A part of an image of `size`, which may reach beyond it.
fn part_of(size: Size, bytes: &[u8; PART_BYTES]) -> Part {
    let [left0, left1, top0, top1, width0, width1, height0, height1, by] = *bytes;
    let up_to = |low, high, last: u32| u32::from(u16::from_le_bytes([low, high])) % (last + 1);
    let area = Area {
        left: up_to(left0, left1, size.width),
        top: up_to(top0, top1, size.height),
        size: Size { width: up_to(width0, width1, size.width), height: up_to(height0, height1, size.height) },
    };
    Part { area, reduce_by: 1 << (by % 4) }
}

/// The part of `area` in an image of `size`.
fn within(area: Area, size: Size) -> Area {
    let width = area.size.width.min(size.width - area.left);
    let height = area.size.height.min(size.height - area.top);
    Area { size: Size { width, height }, ..area }
}

fn pixels(width: u32, height: u32) -> u64 {
    Size { width, height }.pixels()
}

/// A copy of decoded pixels.
#[derive(PartialEq)]
struct Found {
    rgb: Vec<u8>,
    area: Area,
    source: Size,
    reduced_by: u32,
}

impl Found {
    fn new(pixels: Pixels<'_>) -> Self {
        let Pixels { rgb, area, source, reduced_by, .. } = pixels;
        Self { rgb: rgb.to_vec(), area, source, reduced_by }
    }

    /// The pixel at (`x`, `y`) of the reduced image.
    fn pixel(&self, x: u32, y: u32) -> &[u8] {
        let Area { left, top, size } = self.area;
        let at = 3 * ((y - top) as usize * size.width as usize + (x - left) as usize);
        &self.rgb[at..at + 3]
    }
}
