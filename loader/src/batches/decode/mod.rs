//! From an encoded record to a planar `uint8` RGB image of the batch's size, as torchvision's `ImageFolder` with
//! `Resize` + `CenterCrop` would give it.
//!
//! Three steps, each in its file: a decoder fills interleaved RGB (`jpeg`, `png`, `ppm`); `fit` says which
//! box of the source becomes the target, and how far a JPEG may be reduced while it is decoded; `planes` resizes that
//! box and writes one plane per colour. `decoder` strings them together and owns every buffer.
//!
//! Orientation in EXIF is ignored, as PIL's `Image.open(..).convert("RGB")`, which `ImageFolder` uses, ignores it;
//! `shade-pack` can apply it once and for all. Alpha is dropped, not blended, for the same reason.

mod decoder;
mod fault;
mod fit;
mod jpeg;
mod limits;
mod planes;
mod png;
mod ppm;

pub use decoder::Decoder;
pub use fault::DecodeFault;
pub use limits::IMAGE_PIXELS_MAX;
pub(super) use limits::{scratch, shrink};
