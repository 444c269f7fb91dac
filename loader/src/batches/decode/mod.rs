//! From an encoded record to a planar `uint8` RGB image of the batch's size, as torchvision's `ImageFolder` with
//! `Resize` + `CenterCrop` would give it.
//!
//! Three steps: the crate `shade-images` fills interleaved RGB; `fit` says which box of the source becomes the target,
//! and how far a JPEG may be reduced while it is decoded; `planes` resizes that box and writes one plane per colour.
//! `decoder` strings them together and owns the buffers.
//!
//! Orientation in EXIF is ignored, as PIL's `Image.open(..).convert("RGB")`, which `ImageFolder` uses, ignores it;
//! `shade-pack` can apply it once and for all.

mod decoder;
mod fault;
mod fit;
mod planes;

pub use decoder::Decoder;
pub use fault::DecodeFault;
pub(super) use shade_images::{scratch, shrink};
