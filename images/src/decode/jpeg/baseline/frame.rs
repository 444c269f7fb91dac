//! The headers of a usual baseline JPEG (ITU-T T.81, annex B), sizes and regions of an image, and
//! why an image is refused.

use std::fmt;

use super::huffman::Codes;

/// Side of a block of coefficients.
pub(super) const BLOCK: u32 = 8;
/// Coefficients of a block.
pub(super) const COEFFICIENTS: usize = 64;
/// libjpeg accepts no larger images.
const SIDE_MAX: u32 = 65_500;
/// Table numbers of a file.
pub(super) const TABLES: usize = 4;

/// Place in its block, row by row, of the coefficient that is coded `k`-th; beyond the 64th, the
/// place of the 64th.
pub(super) const ZIGZAG: [u8; 256] = zigzag();

/// The headers of one image: one scan, 8 bits a sample, Huffman codes, and grey or YCbCr.
pub struct Frame<'a> {
    size: Size,
    /// Grey, or Y, Cb and Cr, in this order in each MCU.
    pub(super) components: Vec<Component>,
    /// Huffman tables by number.
    pub(super) dc: [Option<Codes<'a>>; TABLES],
    pub(super) ac: [Option<Codes<'a>>; TABLES],
    /// MCUs between two restart markers; 0 without markers.
    pub(super) interval: u32,
    /// The entropy-coded data, and anything after it.
    pub(super) data: &'a [u8],
}

/// A component of an image.
pub(super) struct Component {
    /// Its blocks in an MCU: columns and rows.
    pub(super) across: u32,
    pub(super) down: u32,
    /// Factor of each coefficient, row by row.
    pub(super) quantization: [i16; COEFFICIENTS],
    /// Numbers of its Huffman tables.
    pub(super) dc: usize,
    pub(super) ac: usize,
}

impl<'a> Frame<'a> {
    /// Reads the headers of the JPEG `bytes`.
    ///
    /// # Errors
    /// [`Error::Headers`] for damaged headers and for images that this decoder does not decode.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        Self::parse(bytes).ok_or(Error::Headers)
    }

    /// Columns and rows: neither is 0.
    #[must_use]
    pub fn size(&self) -> Size {
        self.size
    }

    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut headers = Headers::default();
        let mut rest = bytes.strip_prefix(&[0xFF, 0xD8])?;
        loop {
            let &[0xFF, marker, high, low] = rest.first_chunk()? else { return None };
            let length = usize::from(u16::from_be_bytes([high, low]));
            let (segment, behind) = rest.split_at_checked(2 + length)?;
            let content = segment.get(4..)?;
            match marker {
                // Baseline and extended sequential.
                0xC0 | 0xC1 if headers.frame.is_none() => headers.frame = Some(content),
                0xC4 => headers.huffman_tables(content)?,
                0xDB => headers.quantization_tables(content)?,
                0xDD => headers.interval = u16::from_be_bytes(*content.as_array()?).into(),
                0xDA => return headers.scan(content, behind),
                0xE0 => headers.is_jfif |= jfif(content)?,
                0xE2 => headers.profile(content)?,
                0xEE => headers.adobe = adobe(content).or(headers.adobe),
                // Comments and other applications' data.
                0xE1 | 0xE3..=0xED | 0xEF | 0xFE => {}
                _ => return None,
            }
            rest = behind;
        }
    }
}

/// The headers before the scan.
#[derive(Default)]
struct Headers<'a> {
    frame: Option<&'a [u8]>,
    quantization: [Option<[i16; COEFFICIENTS]>; TABLES],
    dc: [Option<Codes<'a>>; TABLES],
    ac: [Option<Codes<'a>>; TABLES],
    interval: u32,
    is_jfif: bool,
    /// The transform that Adobe's segment names.
    adobe: Option<u8>,
    /// Number and count of the last segment of a colour profile.
    profile: Option<(u8, u8)>,
}

impl<'a> Headers<'a> {
    fn huffman_tables(&mut self, mut content: &'a [u8]) -> Option<()> {
        while let Some((&kind, rest)) = content.split_first() {
            let tables = if kind >> 4 == 0 { &mut self.dc } else { &mut self.ac };
            let (codes, rest) = Codes::read(rest)?;
            *tables.get_mut(usize::from(kind & 15)).filter(|_| kind >> 4 <= 1)? = Some(codes);
            content = rest;
        }
        Some(())
    }

    fn quantization_tables(&mut self, mut content: &[u8]) -> Option<()> {
        while let Some((&kind, rest)) = content.split_first() {
            // Tables of 16 bits have a kind above 15.
            let table = self.quantization.get_mut(usize::from(kind))?;
            let (values, rest) = rest.split_first_chunk::<COEFFICIENTS>()?;
            let mut in_place = [0; COEFFICIENTS];
            for (&value, at) in values.iter().zip(ZIGZAG) {
                *in_place.get_mut(usize::from(at))? = value.into();
            }
            *table = Some(in_place);
            content = rest;
        }
        Some(())
    }

    /// Segments of a colour profile must be in order.
    fn profile(&mut self, content: &[u8]) -> Option<()> {
        if let Some(&[number, count, ..]) = content.strip_prefix(b"ICC_PROFILE\0") {
            let (last, _) = self.profile.unwrap_or_default();
            self.profile = (number == last.wrapping_add(1)).then_some((number, count));
            self.profile?;
        }
        Some(())
    }

    /// Completes the headers with the scan's, `content`.
    fn scan(self, content: &[u8], data: &'a [u8]) -> Option<Frame<'a>> {
        let (&[8, h0, h1, w0, w1, count], described) = self.frame?.split_first_chunk()? else { return None };
        let [width, height] = [[w0, w1], [h0, h1]].map(|side| u32::from(u16::from_be_bytes(side)));
        let (described, []) = described.as_chunks::<3>() else { return None };
        let (&scanned_count, content) = content.split_first()?;
        let (scanned, &[0, 63, 0]) = content.split_last_chunk()? else { return None };
        let (scanned, []) = scanned.as_chunks::<2>() else { return None };
        let counts = [count.into(), scanned_count.into(), described.len(), scanned.len()];
        let is_ycc = self.is_jfif
            || match self.adobe {
                Some(transform) => transform == 1,
                None => matches!(described, [[1, ..], [2, ..], [3, ..]]),
            };
        let is_whole = self.profile.is_none_or(|(number, count)| number == count);
        let is_grey = counts == [1; 4];
        let is_usual = is_whole && (is_grey || counts == [3; 4] && is_ycc);
        if !is_usual || width.min(height) == 0 || width.max(height) > SIDE_MAX {
            return None;
        }
        let mut components = Vec::with_capacity(scanned.len());
        for (&[id, sampling, quantization], &[scanned, tables]) in described.iter().zip(scanned) {
            let is_usual = match sampling {
                0x11 => true,
                0x21 | 0x22 => components.is_empty(),
                _ => false,
            };
            if !is_usual || id != scanned {
                return None;
            }
            // A component alone is coded block by block, whatever its sampling.
            let sampling = if is_grey { 0x11 } else { sampling };
            components.push(Component {
                across: u32::from(sampling >> 4),
                down: u32::from(sampling & 15),
                quantization: self.quantization.get(usize::from(quantization)).copied()??,
                dc: usize::from(tables >> 4),
                ac: usize::from(tables & 15),
            });
        }
        let Self { dc, ac, interval, .. } = self;
        Some(Frame { size: Size { width, height }, components, dc, ac, interval, data })
    }
}

/// Whether it is JFIF's segment; `None` for an unknown version.
fn jfif(content: &[u8]) -> Option<bool> {
    match content {
        [b'J', b'F', b'I', b'F', 0, version, _, rest @ ..] if rest.len() >= 7 => {
            (*version == 1).then_some(true)
        }
        _ => Some(false),
    }
}

/// The colour transform that Adobe's segment names.
fn adobe(content: &[u8]) -> Option<u8> {
    content.get(11).copied().filter(|_| content.starts_with(b"Adobe"))
}

/// The order of coding: from diagonal to diagonal, up and down in turn.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const fn zigzag() -> [u8; 256] {
    let mut places = [63; 256];
    let (mut row, mut column, mut at) = (0u8, 0u8, 0);
    while at < COEFFICIENTS {
        places[at] = 8 * row + column;
        let rises = (row + column) % 2 == 0;
        match (rises, row, column) {
            (true, _, 7) | (false, 0..7, 0) => row += 1,
            (true, 0, _) | (false, 7, _) => column += 1,
            (true, ..) => {
                row -= 1;
                column += 1;
            }
            (false, ..) => {
                row += 1;
                column -= 1;
            }
        }
        at += 1;
    }
    places
}

/// Columns and rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

/// A rectangle of pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// First column.
    pub left: u32,
    /// First row.
    pub top: u32,
    /// Columns and rows.
    pub size: Size,
}

impl Size {
    /// Number of pixels.
    pub(super) fn pixels(self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }

    /// Both sides divided by `by`, rounded up.
    #[must_use]
    pub fn divided(self, by: u32) -> Self {
        let by = by.max(1);
        Self { width: self.width.div_ceil(by), height: self.height.div_ceil(by) }
    }
}

impl Region {
    /// All of an image.
    #[must_use]
    pub fn whole(size: Size) -> Self {
        Self { left: 0, top: 0, size }
    }

    /// Whether it has pixels and lies within an image of `size`.
    pub(super) fn is_within(self, size: Size) -> bool {
        let fits = |from: u32, len: u32, end: u32| from.checked_add(len).is_some_and(|to| to <= end);
        let Self { left, top, size: own } = self;
        own.pixels() > 0 && fits(left, own.width, size.width) && fits(top, own.height, size.height)
    }
}

/// Why this decoder refuses an image. Another decoder may accept it: the image need not be bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The headers are damaged, or not those of a usual baseline JPEG.
    Headers,
    /// The region is empty, too large or not within the image, the reduction is unknown, or the
    /// buffer for the pixels has another length.
    Region,
    /// The coded data is damaged or cut off, or something follows it.
    Data,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Headers => "headers that are damaged or not those of a usual baseline JPEG",
            Self::Region => "no such region or reduction of this JPEG",
            Self::Data => "the JPEG's coded data is damaged or does not end where it should",
        })
    }
}

impl std::error::Error for Error {}
