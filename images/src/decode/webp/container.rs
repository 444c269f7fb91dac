//! The chunks of a WebP file, by libwebp's rules: a file is refused where Pillow refuses it.
//!
//! ```text
//! "RIFF" size u32 "WEBP", then a chunk "VP8 " or "VP8L", or
//!   "VP8X" flags u8, 0 u24, width - 1 u24, height - 1 u24; chunks, among them
//!     "ALPH" alpha, "VP8 " or "VP8L" image           of a still image
//!     "ANIM", "ANMF" x/2, y/2, sides - 1, time u24, flags u8, "ALPH", "VP8 " ...   of a frame
//! ```
//!
//! A chunk is a name, a length u32, its bytes, and a zero if they are odd.

use crate::{Area, Size};

/// Flags of "VP8X".
const ANIMATION: u8 = 0x02;
const XMP: u8 = 0x04;
const EXIF: u8 = 0x08;
const ALPHA: u8 = 0x10;
const PROFILE: u8 = 0x20;
const ALL_FLAGS: u8 = 0x3E;

/// What is decoded of a file.
#[derive(Debug)]
pub(super) struct Container<'a> {
    /// The image's size.
    pub(super) canvas: Size,
    pub(super) frame: Frame<'a>,
    /// The EXIF data that the flags announce.
    pub(super) exif: Option<&'a [u8]>,
    /// Its flags announce a profile or other data that it does not have.
    pub(super) lacks_data: bool,
}

/// The first frame, or the only one.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    /// Its place on the canvas.
    pub(super) area: Area,
    /// The content of "ALPH".
    pub(super) alpha: Option<&'a [u8]>,
    /// The content of "VP8 " or "VP8L".
    pub(super) image: &'a [u8],
    pub(super) is_lossless: bool,
}

/// A chunk's name and content.
type Chunk<'a> = (&'a [u8; 4], &'a [u8]);

/// What is wrong with the chunks.
type Fault = &'static str;

/// Goes through chunks.
#[derive(Clone, Copy)]
struct Chunks<'a>(&'a [u8]);

impl<'a> Chunks<'a> {
    /// The next chunk, which is not taken yet, and what lies behind it.
    fn peek(self) -> Result<Option<(Chunk<'a>, Self)>, Fault> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let cut = "a chunk is cut off";
        let (name, rest) = self.0.split_first_chunk().ok_or(cut)?;
        let (length, rest) = rest.split_first_chunk().ok_or(cut)?;
        let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| cut)?;
        let content = rest.get(..length).ok_or(cut)?;
        let behind = rest.get(length.saturating_add(length % 2)..).ok_or(cut)?;
        Ok(Some(((name, content), Self(behind))))
    }
}

impl<'a> Container<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, Fault> {
        let (header, rest) = bytes.split_first_chunk::<12>().ok_or("its header is cut off")?;
        let [b'R', b'I', b'F', b'F', length @ .., b'W', b'E', b'B', b'P'] = *header else {
            return Err("neither RIFF nor WEBP at its start");
        };
        let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
        let content = length.checked_sub(4).and_then(|length| rest.get(..length));
        let mut chunks = Chunks(content.ok_or("it is shorter than its header says")?);
        match chunks.peek()? {
            Some(((b"VP8X", header), rest)) => Self::extended(header, rest),
            _ => {
                let frame = Frame::still(&mut chunks)?.ok_or("it has no image")?;
                Ok(Self { canvas: frame.area.size, frame, exif: None, lacks_data: false })
            }
        }
    }

    fn extended(header: &'a [u8], mut chunks: Chunks<'a>) -> Result<Self, Fault> {
        let (&[flags, _, _, _, w0, w1, w2, h0, h1, h2], _) =
            header.split_first_chunk().ok_or("its VP8X chunk is cut off")?;
        if flags & !ALL_FLAGS != 0 {
            return Err("its VP8X chunk has unknown flags");
        }
        let side = |low: [u8; 3]| long(low) + 1;
        let canvas = Size { width: side([w0, w1, w2]), height: side([h0, h1, h2]) };
        let is_animated = flags & ANIMATION != 0;
        let mut missing = flags & (XMP | EXIF | PROFILE);
        let (mut first, mut exif, mut frames, mut has_anim) = (None, None, 0_u32, false);
        while let Some((chunk, behind)) = chunks.peek()? {
            let found = match chunk {
                (b"VP8X", _) => return Err("it has two VP8X chunks"),
                (b"ALPH" | b"VP8 " | b"VP8L", _) if is_animated || has_anim || frames > 0 => {
                    return Err("an image stands outside the frames");
                }
                (b"ALPH" | b"VP8 " | b"VP8L", _) => {
                    frames += 1;
                    Frame::still(&mut chunks)?
                }
                (b"ANIM", content) if content.len() < 6 => return Err("its ANIM chunk is cut off"),
                (b"ANMF", _) if !has_anim => return Err("a frame comes before the ANIM chunk"),
                (b"ANMF", content) => {
                    frames += 1;
                    chunks = behind;
                    Frame::animated(content)?.filter(|_| is_animated)
                }
                (name, content) => {
                    has_anim |= name == b"ANIM";
                    if name == b"EXIF" && flags & EXIF != 0 {
                        exif = exif.or(Some(content));
                    }
                    missing &= match name {
                        b"XMP " => !XMP,
                        b"EXIF" => !EXIF,
                        b"ICCP" => !PROFILE,
                        _ => u8::MAX,
                    };
                    chunks = behind;
                    None
                }
            };
            if let Some(frame) = found {
                let whole = frame.area.within(canvas);
                if whole != frame.area || (!is_animated && whole.size != canvas) {
                    return Err("its image is not of the size that its VP8X chunk says");
                }
                first = first.or(Some(frame));
            }
        }
        let mut frame = first.ok_or("it has no image")?;
        if !is_animated && flags & ALPHA == 0 {
            frame.alpha = None;
        }
        Ok(Self { canvas, frame, exif, lacks_data: missing != 0 })
    }
}

impl<'a> Frame<'a> {
    /// Takes the chunks of one image, which fills its canvas; `None` if it has no image but alpha.
    fn still(chunks: &mut Chunks<'a>) -> Result<Option<Self>, Fault> {
        let (mut alpha, mut image) = (None, None);
        while let Some(((name, content), behind)) = chunks.peek()? {
            match name {
                b"ALPH" if alpha.is_none() && image.is_none() => alpha = Some(content),
                b"VP8L" if alpha.is_some() => return Err("alpha twice: in ALPH and in VP8L"),
                b"VP8 " | b"VP8L" if image.is_none() => image = Some((name == b"VP8L", content)),
                b"ALPH" if alpha.is_none() => return Err("its alpha stands behind its image"),
                _ => break,
            }
            *chunks = behind;
        }
        let Some((is_lossless, image)) = image else { return Ok(None) };
        let size = if is_lossless { lossless_size(image) } else { lossy_size(image) };
        let area = Area::whole(size.ok_or("its image has no size")?);
        Ok(Some(Self { area, alpha, image, is_lossless }))
    }

    fn animated(content: &'a [u8]) -> Result<Option<Self>, Fault> {
        let (header, rest) = content.split_first_chunk::<16>().ok_or("a frame is cut off")?;
        let [x0, x1, x2, y0, y1, y2, w0, w1, w2, h0, h1, h2, ..] = *header;
        let size = Size { width: long([w0, w1, w2]) + 1, height: long([h0, h1, h2]) + 1 };
        let Some(mut frame) = Self::still(&mut Chunks(rest))? else { return Ok(None) };
        if frame.area.size != size {
            return Err("a frame is not of the size that its header says");
        }
        frame.area.left = 2 * long([x0, x1, x2]);
        frame.area.top = 2 * long([y0, y1, y2]);
        Ok(Some(frame))
    }
}

/// A number of three bytes.
fn long([low, middle, high]: [u8; 3]) -> u32 {
    u32::from_le_bytes([low, middle, high, 0])
}

/// Size of a lossy image: two sides of 14 bits behind the start code of a key frame.
fn lossy_size(image: &[u8]) -> Option<Size> {
    let (&[tag, _, _, 0x9D, 0x01, 0x2A, w0, w1, h0, h1], _) = image.split_first_chunk()? else { return None };
    let [width, height] = [[w0, w1], [h0, h1]].map(|side| u32::from(u16::from_le_bytes(side) & 0x3FFF));
    let is_key_frame = tag & 1 == 0;
    (is_key_frame && width > 0 && height > 0).then_some(Size { width, height })
}

/// Size of a lossless image: two sides of 14 bits, less 1, and a version, behind a signature.
fn lossless_size(image: &[u8]) -> Option<Size> {
    let (&[0x2F, rest @ ..], _) = image.split_first_chunk::<5>()? else { return None };
    let bits = u32::from_le_bytes(rest);
    let side = |bits: u32| (bits & 0x3FFF) + 1;
    (bits >> 29 == 0).then_some(Size { width: side(bits), height: side(bits >> 14) })
}
