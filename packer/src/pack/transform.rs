//! Does what `--format jpeg` and `--format raw` ask for (an image is turned upright, resized,
//! encoded again) and `--restart-markers` (a JPEG is coded again, with the same pixels).

use std::io;

use serde::{Deserialize, Serialize};
use shade_formats::index::{KIND_BYTES, Kind, Media, sniff};
use shade_formats::limits::RECORD_BYTES_MAX;
use shade_images::{
    Decoder, Filter, ImageFault, Size, orientation, resize_both, resize_max, resize_short,
    with_restart_markers,
};

/// How images are transformed. Unless they are kept, their pixels are those of Pillow's
/// `ImageOps.exif_transpose(image).convert("RGB").resize(...)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Transform {
    pub(crate) format: Format,
    /// The short side becomes this many pixels, if it is longer.
    pub(crate) resize_short: Option<u32>,
    /// No side stays longer than this many pixels.
    pub(crate) max_side: Option<u32>,
    pub(crate) filter: Interpolation,
    /// JPEG quality, 1 to 100.
    pub(crate) quality: u8,
    /// Whether JPEGs get restart markers, so that a crop is decoded without what lies around it.
    #[serde(default)]
    pub(crate) restart_markers: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// The file's bytes, untouched.
    #[default]
    Keep,
    /// Decode, turn upright by EXIF, resize, encode as JPEG.
    Jpeg,
    /// Decode, turn upright by EXIF, resize, store the pixels (PPM), as they are unless zstd halves
    /// large ones.
    Raw,
}

/// How pixels are interpolated, always with antialiasing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Interpolation {
    /// Linear: torchvision's default.
    #[default]
    Bilinear,
    /// Cubic: a little sharper.
    Bicubic,
}

/// Why no record can be made of an image, in words that go behind its path.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecipeFault {
    #[error("not decodable: {0}")]
    NoDecoder(&'static str),
    #[error("no image: {0}")]
    NoImage(&'static str),
    #[error(transparent)]
    Image(#[from] ImageFault),
    #[error("{0} bytes once coded again; a record holds at most {RECORD_BYTES_MAX}")]
    Size(usize),
    #[error("cannot be compressed: {0}")]
    Zstd(io::Error),
    #[error("shade-pack panicked, a defect of it: {0}")]
    Panicked(String),
}

/// Transforms images one after the other, reusing its memory.
pub(super) struct Transformer<'a> {
    transform: &'a Transform,
    decoder: Decoder,
    encoded: Vec<u8>,
}

impl Transform {
    /// The size that an upright image of size `size` gets; `None` to leave it.
    fn target(&self, size: Size) -> Option<Size> {
        match (self.resize_short, self.max_side) {
            (None, None) => None,
            (Some(short), None) => resize_short(size, short),
            (None, Some(max)) => resize_max(size, max),
            (Some(short), Some(max)) => resize_both(size, short, max),
        }
    }
}

/// Names the kind of what has no decoder.
fn named(bytes: &[u8], fault: ImageFault) -> RecipeFault {
    match Kind::of(bytes.get(..KIND_BYTES).unwrap_or(bytes)) {
        Kind::OtherImage(name) => RecipeFault::NoDecoder(name),
        Kind::NoImage(name) => RecipeFault::NoImage(name),
        Kind::Image(_) => fault.into(),
    }
}

impl<'a> Transformer<'a> {
    pub(super) fn new(transform: &'a Transform) -> Self {
        Self { transform, decoder: Decoder::new(), encoded: Vec::new() }
    }

    pub(super) fn transform<'b>(&'b mut self, bytes: &'b [u8]) -> Result<&'b [u8], RecipeFault> {
        let encoded = match self.transform.format {
            Format::Keep => None,
            Format::Jpeg | Format::Raw => Some(self.encode(bytes).map_err(|fault| named(bytes, fault))?),
        };
        let image = encoded.as_deref().unwrap_or(bytes);
        let marked = if self.transform.restart_markers && sniff(image).0 == Media::Jpeg {
            Some(with_restart_markers(image)?)
        } else {
            None
        };
        let Some(record) = marked.or(encoded) else { return Ok(bytes) };
        if record.len() as u64 > RECORD_BYTES_MAX {
            return Err(RecipeFault::Size(record.len()));
        }
        self.encoded = record;
        Ok(&self.encoded)
    }

    /// The image upright, resized and encoded again.
    fn encode(&mut self, bytes: &[u8]) -> Result<Vec<u8>, ImageFault> {
        let image = self.decoder.decode(bytes)?;
        self.decoder.shrink();
        let mut image = image.oriented(orientation(bytes));
        if let Some(size) = self.transform.target(image.size()) {
            let filter = match self.transform.filter {
                Interpolation::Bilinear => Filter::Bilinear,
                Interpolation::Bicubic => Filter::Bicubic,
            };
            image = image.resized(size, filter)?;
        }
        match self.transform.format {
            Format::Raw => Ok(image.encode_ppm()),
            Format::Keep | Format::Jpeg => image.encode_jpeg(self.transform.quality),
        }
    }
}
