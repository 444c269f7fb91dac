//! What holds for any bytes at all, for the fuzz targets and for the test that replays their corpus
//! (`tests/corpus.rs`).

use std::io::Cursor;

use libdeflater::{adler32, crc32};
use shade_formats::index::{Media, sniff};
use shade_images::{Area, Decoder, ImageFault, Part, Pixels, Size, orientation};

/// Pixels of an image that is worth a try: tens of megapixels for every input would take hours.
const PIXELS_MAX: u64 = 1 << 20;
/// Bytes of an input before the image's: what part of it to take.
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

/// A JPEG gives at least the part that was asked for, with the whole's pixels; and the whole behind
/// it is not touched by it.
///
/// Pixels of progressive JPEGs are not compared: where scans are missing, libjpeg smooths over the
/// blocks' edges, and at the edge of a part it lacks the blocks beside it. The difference is a step
/// or two.
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

/// A PNG gives what the `png` crate alone makes of it: pixels or words, but for Huffman codes with
/// holes. So does the same one with right CRCs, which nearly every input lacks, and one whose lines
/// are the input.
pub fn png(input: &[u8]) {
    for bytes in [input.to_vec(), mended(input), made_of(input)] {
        let sides = [16, 20].map(|at| bytes.get(at..).and_then(|rest| rest.first_chunk()).copied());
        let [Some(width), Some(height)] = sides.map(|side| side.map(u32::from_be_bytes)) else { continue };
        if pixels(width, height) > PIXELS_MAX {
            continue;
        }
        let found = Decoder::new().decode_part(Media::Png, &bytes, Part::whole).map(Found::new);
        match (found, by_the_png_crate(&bytes)) {
            (Ok(found), Ok((size, rgb))) => {
                assert_eq!((found.source, found.area, found.reduced_by), (size, Area::whole(size), 1));
                assert_eq!(found.rgb.len() as u64, 3 * size.pixels());
                assert!(rgb.is_none_or(|rgb| rgb == found.rgb), "other pixels");
            }
            (Err(ImageFault::Corrupt { text, .. }), Err(expected)) => {
                assert!(
                    expected.is_empty() || text == expected,
                    "{text}, where the png crate says {expected}"
                );
            }
            // The one thing that libdeflate overlooks, which the shortcut uses:
            // `images/src/formats/png_plain.rs`.
            (Ok(_), Err(expected)) if expected.starts_with("Corrupt deflate stream.") => {}
            (found, expected) => panic!("{:?}, where the png crate says {:?}", found.err(), expected.err()),
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

/// What of `area` lies in an image of `size`.
fn within(area: Area, size: Size) -> Area {
    let width = area.size.width.min(size.width - area.left);
    let height = area.size.height.min(size.height - area.top);
    Area { size: Size { width, height }, ..area }
}

fn pixels(width: u32, height: u32) -> u64 {
    Size { width, height }.pixels()
}

/// Decoded pixels, to keep.
#[derive(PartialEq)]
struct Found {
    rgb: Vec<u8>,
    area: Area,
    source: Size,
    reduced_by: u32,
}

impl Found {
    fn new(pixels: Pixels<'_>) -> Self {
        let Pixels { rgb, area, source, reduced_by } = pixels;
        Self { rgb: rgb.to_vec(), area, source, reduced_by }
    }

    /// The pixel at (`x`, `y`) of the reduced image.
    fn pixel(&self, x: u32, y: u32) -> &[u8] {
        let Area { left, top, size } = self.area;
        let at = 3 * ((y - top) as usize * size.width as usize + (x - left) as usize);
        &self.rgb[at..at + 3]
    }
}

/// The size and, where samples have 8 bits, the pixels without alpha; or the decoder's words. No
/// words where it would panic.
fn by_the_png_crate(bytes: &[u8]) -> Result<(Size, Option<Vec<u8>>), String> {
    let decode = || {
        let mut decoder = png::Decoder::new(Cursor::new(bytes));
        decoder.set_ignore_text_chunk(true);
        decoder.set_ignore_iccp_chunk(true);
        decoder.set_transformations(png::Transformations::EXPAND);
        let mut reader = decoder.read_info().map_err(Some)?;
        let is_odd = |palette: &[u8]| !palette.len().is_multiple_of(3);
        let info = reader.info();
        if info.color_type == png::ColorType::Indexed && info.palette.as_deref().is_some_and(is_odd) {
            return Err(None);
        }
        let size = Size { width: reader.info().width, height: reader.info().height };
        let mut samples = vec![0; reader.output_buffer_size().unwrap_or(0)];
        reader.next_frame(&mut samples).map_err(Some)?;
        let (colour, depth) = reader.output_color_type();
        let rgb = |pixel: &[u8]| if pixel.len() < 3 { [pixel[0]; 3] } else { [pixel[0], pixel[1], pixel[2]] };
        let pixels = samples.chunks_exact(colour.samples());
        Ok((size, (depth == png::BitDepth::Eight).then(|| pixels.flat_map(rgb).collect())))
    };
    decode().map_err(|error: Option<png::DecodingError>| error.map(|e| e.to_string()).unwrap_or_default())
}

/// `bytes` with the right CRC behind every chunk.
fn mended(bytes: &[u8]) -> Vec<u8> {
    let mut mended = bytes.to_vec();
    let mut at = 8;
    while let Some(length) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        let end = at + 8 + u32::from_be_bytes(*length) as usize;
        let Some(crc) = mended.get_mut(end..end + 4) else { break };
        crc.copy_from_slice(&crc32(&bytes[at + 4..end]).to_be_bytes());
        at = end + 4;
    }
    mended
}

/// A PNG whose lines, their filters included, are what `input` says behind kind, width and palette;
/// its stream is stored and has right checksums.
fn made_of(input: &[u8]) -> Vec<u8> {
    let [kind, width, colours, rest @ ..] = input else { return Vec::new() };
    let (colour, samples) = [(0, 1), (2, 3), (3, 1), (4, 2), (6, 4)][usize::from(*kind) % 5];
    let width = usize::from(*width) + 1;
    let (palette, lines) = rest.split_at(rest.len().min(3 * usize::from(*colours)));
    let height = lines.len() / (width * samples + 1);
    let lines = &lines[..height * (width * samples + 1)];
    let mut stream = vec![0x78, 1];
    let mut blocks = lines.chunks(0xffff).peekable();
    while let Some(block) = blocks.next() {
        let length = u16::try_from(block.len()).unwrap_or_default();
        stream.push(u8::from(blocks.peek().is_none()));
        stream.extend([length.to_le_bytes(), (!length).to_le_bytes()].as_flattened());
        stream.extend(block);
    }
    stream.extend(adler32(lines).to_be_bytes());
    let sides = [width, height].map(|side| u32::try_from(side).unwrap_or_default().to_be_bytes());
    let header = [sides.as_flattened(), &[8, colour, 0, 0, 0]].concat();
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    for (kind, data) in [(b"IHDR", &header[..]), (b"PLTE", palette), (b"IDAT", &stream), (b"IEND", &[])] {
        if kind == b"PLTE" && palette.is_empty() {
            continue;
        }
        let start = file.len() + 4;
        file.extend(u32::try_from(data.len()).unwrap_or_default().to_be_bytes());
        file.extend(kind);
        file.extend(data);
        file.extend(crc32(&file[start..]).to_be_bytes());
    }
    file
}
