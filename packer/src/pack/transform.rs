//! What `--format jpeg` and `--format raw` do to an image (turned upright, resized, encoded again), and what
//! `--restart-markers` does to a JPEG (coded again, with the same pixels).

use serde::{Deserialize, Serialize};
use shade_formats::index::{Media, sniff};
use shade_formats::limits::RECORD_BYTES_MAX;
use shade_images::{
    Decoder, Filter, Size, orientation, resize_both, resize_max, resize_short, with_restart_markers,
};

/// What an image becomes. Unless it is kept, its pixels are those of Pillow:
/// `ImageOps.exif_transpose(image).convert("RGB").resize(...)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transform {
    /// How it is stored.
    pub format: Format,
    /// The short side becomes this many pixels, if it is longer.
    pub resize_short: Option<u32>,
    /// No side stays longer than this many pixels.
    pub max_side: Option<u32>,
    /// How new pixels come from old ones.
    pub filter: Interpolation,
    /// JPEG quality, 1 to 100.
    pub quality: u8,
    /// Whether JPEGs get restart markers, so that a crop is decoded without what lies around it.
    #[serde(default)]
    pub restart_markers: bool,
}

/// How an image is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// As it is.
    Keep,
    /// As JPEG.
    Jpeg,
    /// As pixels: a PPM.
    Raw,
}

/// How pixels are interpolated, always with antialiasing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Interpolation {
    /// Linear: torchvision's default.
    #[default]
    Bilinear,
    /// Cubic: a little sharper.
    Bicubic,
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

impl<'a> Transformer<'a> {
    pub(super) fn new(transform: &'a Transform) -> Self {
        Self { transform, decoder: Decoder::new(), encoded: Vec::new() }
    }

    /// The record of an image.
    ///
    /// # Errors
    /// It cannot be decoded, or its record would be too large.
    pub(super) fn transform<'b>(&'b mut self, bytes: &'b [u8]) -> Result<&'b [u8], String> {
        let encoded = match self.transform.format {
            Format::Keep => None,
            Format::Jpeg | Format::Raw => Some(self.encode(bytes)?),
        };
        let image = encoded.as_deref().unwrap_or(bytes);
        let marked = if self.transform.restart_markers && sniff(image).0 == Media::Jpeg {
            Some(with_restart_markers(image).map_err(|fault| fault.to_string())?)
        } else {
            None
        };
        let Some(record) = marked.or(encoded) else { return Ok(bytes) };
        if record.len() as u64 > RECORD_BYTES_MAX {
            let bytes = record.len();
            return Err(format!("{bytes} bytes once coded again; a record holds at most {RECORD_BYTES_MAX}"));
        }
        self.encoded = record;
        Ok(&self.encoded)
    }

    /// The image upright, resized and encoded again.
    fn encode(&mut self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let image = self.decoder.decode(bytes).map_err(|fault| fault.to_string())?;
        self.decoder.shrink();
        let mut image = image.oriented(orientation(bytes));
        if let Some(size) = self.transform.target(image.size()) {
            let filter = match self.transform.filter {
                Interpolation::Bilinear => Filter::Bilinear,
                Interpolation::Bicubic => Filter::Bicubic,
            };
            image = image.resized(size, filter).map_err(|fault| fault.to_string())?;
        }
        match self.transform.format {
            Format::Raw => Ok(image.encode_ppm()),
            Format::Keep | Format::Jpeg => {
                image.encode_jpeg(self.transform.quality).map_err(|fault| fault.to_string())
            }
        }
    }
}
