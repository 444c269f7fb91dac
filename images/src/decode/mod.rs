//! Encoded images to interleaved RGB: one file per format, and `decoder`, which chooses among them
//! and keeps their buffers. `mask` gives the levels of a PNG as they are.

mod bmp;
mod colour;
mod decoder;
mod jpeg;
mod mask;
mod png;
mod ppm;
mod tiff;
mod webp;

pub use decoder::{Decoder, Pixels};
pub use jpeg::{JPEG_REDUCTIONS, baseline, with_restart_markers};
pub use mask::{Levels, MaskDecoder, MaskFile};
pub(crate) use webp::exif as webp_exif;
